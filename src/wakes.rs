//! Futures that wake themselves.
//!
//! Some do so while they run: an executor of GraphQL that pauses in the middle of a list, a connection
//! whose request asks for its own body. The runtime then has their task come again behind all others and,
//! where threads share it, wakes another one to help. So whoever runs such a future listens for these wakes
//! itself, and runs it again at once.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::future::poll_fn;
use tokio::task::coop;

/// How often in a row a future may go on by itself before other tasks have their turn.
const MAX_OWN_TURNS: u32 = 256;

/// Runs a future, and runs it again at once where it has woken itself.
pub(crate) async fn at_once<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut own = OwnWakes::default();
    poll_fn(|context| {
        let (wakes, waker) = own.of(context);
        let mut turns = OwnTurns::default();
        loop {
            wakes.begin();
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                return Poll::Ready(output);
            }
            if wakes.end() || !turns.may_go_on(context) {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// How often a future has gone on by itself.
#[derive(Default)]
pub(crate) struct OwnTurns(u32);

impl OwnTurns {
    /// Whether it may once more. If not, its task comes again after others have had their turn.
    pub(crate) fn may_go_on(&mut self, context: &Context<'_>) -> bool {
        self.0 += 1;
        let may = self.0 < MAX_OWN_TURNS && coop::has_budget_remaining();
        if !may {
            context.waker().wake_by_ref();
        }
        may
    }
}

/// The wakes of one future, for as long as it is run by the same task.
#[derive(Default)]
pub(crate) struct OwnWakes(Option<(Arc<Wakes>, Waker)>);

impl OwnWakes {
    /// For a turn of the task; and the waker that the future is to be run with.
    pub(crate) fn of(&mut self, context: &Context<'_>) -> (&Wakes, &Waker) {
        let own = match self.0.take() {
            Some(there) if there.0.task.will_wake(context.waker()) => self.0.insert(there),
            _ => {
                let task = context.waker().clone();
                let wakes = Arc::new(Wakes { task, state: AtomicU8::new(AWAY) });
                self.0.insert((wakes.clone(), wakes.into()))
            }
        };
        (&own.0, &own.1)
    }
}

/// Notices that a future was woken while it ran, and passes on what comes while it does not.
pub(crate) struct Wakes {
    task: Waker,
    state: AtomicU8,
}

/// The future is not being run: whoever wakes it wakes its task.
const AWAY: u8 = 0;
/// It is, and whoever runs it looks afterwards whether it was woken.
const RUNNING: u8 = 1;
/// It was.
const WOKEN: u8 = 2;

impl Wakes {
    /// The future is about to be run; what woke it before is thereby answered.
    pub(crate) fn begin(&self) {
        self.state.swap(RUNNING, Ordering::AcqRel);
    }

    /// Whether it was woken since it was begun with.
    pub(crate) fn is_woken(&self) -> bool {
        self.state.load(Ordering::Acquire) == WOKEN
    }

    /// It is left alone from now on. False if it was woken since it was begun with, which nobody else
    /// knows: then it has to be run again.
    pub(crate) fn end(&self) -> bool {
        self.state.swap(AWAY, Ordering::AcqRel) != WOKEN
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let woken =
            self.state.compare_exchange(RUNNING, WOKEN, Ordering::AcqRel, Ordering::Acquire);
        if woken == Err(AWAY) {
            self.task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use tokio::sync::oneshot;

    use super::*;

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Wakes itself so many times, and is over when it was run once more than that.
    async fn wakes_itself(times: u32) {
        let mut left = times;
        poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    #[test]
    fn a_future_that_wakes_itself_goes_on_at_once_but_not_for_ever() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        let mut few = pin!(at_once(wakes_itself(10)));
        assert!(few.as_mut().poll(&mut context).is_ready());
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        let mut many = pin!(at_once(wakes_itself(MAX_OWN_TURNS)));
        assert!(many.as_mut().poll(&mut context).is_pending());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(many.as_mut().poll(&mut context).is_ready());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_is_woken_by_another_thread_at_any_moment_goes_on() {
        for _ in 0..10_000 {
            let (tell, told) = oneshot::channel();
            let telling = tokio::spawn(async move { tell.send(7) });
            assert_eq!(at_once(told).await, Ok(7));
            telling.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn others_have_their_turn_where_a_future_lets_them() {
        let order = std::cell::RefCell::new(Vec::new());
        let polite = at_once(async {
            order.borrow_mut().push("polite");
            tokio::task::yield_now().await;
            order.borrow_mut().push("polite again");
        });
        tokio::join!(polite, async { order.borrow_mut().push("other") });
        assert_eq!(order.into_inner(), ["polite", "other", "polite again"]);
    }
}
