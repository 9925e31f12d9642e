//! What an operation holds for as long as any of its work goes on: its place among those in work.
//!
//! A change runs to its end also when its client leaves or its deadline passes, in a task that nobody
//! waits for. Its place stays taken until then: else a slow store would have any number of them.

use std::any::Any;
use std::sync::Arc;

tokio::task_local! {
    static HELD: Option<Held>;
}

/// Something that is given back when the last who works for the operation lets go of it.
pub(crate) type Held = Arc<dyn Any + Send + Sync>;

/// Does work that holds something, if it does.
pub(crate) fn holding<F: Future>(
    held: Option<Held>,
    work: F,
) -> impl Future<Output = F::Output> + use<F> {
    HELD.scope(held, work)
}

/// What the work that is being done holds, for a part of it that may go on for longer.
pub(crate) fn held() -> Option<Held> {
    HELD.try_with(Clone::clone).ok().flatten()
}
