//! Threads of their own for those who buy, while everybody else waits for a turn.
//!
//! An operation that writes has a dozen turns on the runtime, one after each write. Under a flood each of
//! them comes after a turn of whoever is ready: those who browse, and those at the door who are just being
//! sent away. On threads of its own it takes its turns among those who buy, and the system sees to it that
//! threads that do little need not wait for those that do much. Going there and back costs some
//! microseconds, so it is done only while the process is short of time by those who browse.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// The threads; there are none until somebody needs them.
#[derive(Default)]
pub(crate) struct Till(OnceLock<Option<Runtime>>);

impl Till {
    /// Runs something there; `None` if it was given up because the process ends. Whoever stops waiting
    /// for it ends it.
    pub(crate) async fn run<F>(&self, work: F) -> Option<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        match self.0.get_or_init(open) {
            Some(threads) => Given(threads.spawn(work)).end().await,
            None => Some(work.await),
        }
    }
}

fn open() -> Option<Runtime> {
    let built = Builder::new_multi_thread().thread_name("till").enable_all().build();
    built.inspect_err(|error| tracing::warn!(%error, "no threads for those who buy")).ok()
}

impl Drop for Till {
    fn drop(&mut self) {
        // The last to have it may be a task, which must not wait for threads.
        if let Some(Some(threads)) = self.0.take() {
            threads.shutdown_background();
        }
    }
}

/// Work that was given to other threads.
struct Given<T>(JoinHandle<T>);

impl<T> Given<T> {
    async fn end(mut self) -> Option<T> {
        (&mut self.0).await.ok()
    }
}

impl<T> Drop for Given<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn it_goes_on_while_everybody_else_is_busy() {
        let till = Arc::new(Till::default());
        let (begun, has_begun) = std::sync::mpsc::channel();
        let other = till.clone();
        let buying = tokio::spawn(async move {
            let steps = async move {
                for step in 0..3 {
                    tokio::task::yield_now().await;
                    begun.send(step).unwrap();
                }
                7
            };
            other.run(steps).await
        });
        tokio::task::yield_now().await;
        // The only thread of this runtime is held up until all of it has been done.
        assert_eq!(has_begun.iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(buying.await.unwrap(), Some(7));
    }

    #[tokio::test]
    async fn who_leaves_ends_it() {
        let till = Till::default();
        let (begun, has_begun) = oneshot::channel();
        let (held, is_held) = oneshot::channel::<()>();
        let work = till.run(async move {
            begun.send(()).unwrap();
            std::future::pending::<()>().await;
            drop(held);
        });
        tokio::select! {
            _ = work => panic!("it never ends"),
            begun = has_begun => begun.unwrap(),
        }
        assert!(is_held.await.is_err(), "it is dropped");
    }
}
