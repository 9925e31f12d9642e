//! Events of a subscription: each is resolved with what is true now, and in bounded time.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::poll_fn;
use futures_util::stream::{self, Stream};
use tokio::time::{Instant, Sleep, sleep_until};

use super::loader::Rounds;

/// Where an operation stands. Only a subscription ever waits for events.
#[derive(Debug, Clone, Copy)]
enum Stand {
    /// It began then, and has no events to wait for yet.
    Opening(Instant),
    /// It waits for an event; that may take for ever.
    Waiting,
    /// An event came then and is being resolved.
    Resolving(Instant),
}

/// Tells when a subscription has something to do. It never goes on waiting on a resolver that does
/// not pass its events through [`events`]: such a one is taken for one that is still opening.
#[derive(Debug)]
pub struct Turn(Mutex<Stand>);

impl Default for Turn {
    fn default() -> Self {
        Self(Mutex::new(Stand::Opening(Instant::now())))
    }
}

impl Turn {
    fn stand(&self) -> Stand {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, stand: Stand) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stand;
    }

    /// Whether there are events to wait for. If not, what was answered is why there are none.
    pub fn is_open(&self) -> bool {
        !matches!(self.stand(), Stand::Opening(_))
    }

    /// Runs `work`, which ends with an event's answer. `None` if opening the subscription, or
    /// resolving an event, takes longer than `limit`; waiting for one does not count.
    pub async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut alarm: Option<(Instant, Pin<Box<Sleep>>)> = None;
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            let since = match self.stand() {
                Stand::Opening(since) | Stand::Resolving(since) => since,
                Stand::Waiting => return Poll::Pending,
            };
            if alarm.as_ref().is_none_or(|(of, _)| *of != since) {
                alarm = Some((since, Box::pin(sleep_until(since + limit))));
            }
            match &mut alarm {
                Some((_, sleep)) => sleep.as_mut().poll(context).map(|()| None),
                None => Poll::Pending,
            }
        })
        .await
    }
}

/// The events of a subscription. With each one its loaders forget what they have read for the one
/// before, and its time to be resolved begins.
pub(super) fn events<S: Stream>(
    rounds: Arc<Rounds>,
    source: S,
) -> impl Stream<Item = S::Item> + use<S> {
    let mut source = Box::pin(source);
    stream::poll_fn(move |context| {
        rounds.turn().set(Stand::Waiting);
        let event = source.as_mut().poll_next(context);
        if let Poll::Ready(Some(_)) = event {
            rounds.forget();
            rounds.turn().set(Stand::Resolving(Instant::now()));
        }
        event
    })
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use tokio::time::sleep;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    /// Events that come a minute apart, each resolved for so long.
    fn slow(
        rounds: &Arc<Rounds>,
        opening: Duration,
        resolving: Duration,
    ) -> Pin<Box<impl Stream<Item = u32> + use<>>> {
        let rounds = rounds.clone();
        let source = stream::unfold(0, |n| async move {
            sleep(Duration::from_secs(60)).await;
            Some((n, n + 1))
        });
        let opened = async move {
            sleep(opening).await;
            events(rounds, source).then(move |n| async move {
                sleep(resolving).await;
                n
            })
        };
        Box::pin(stream::once(opened).flatten())
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_may_take_for_ever_but_neither_opening_nor_resolving() {
        let seconds = Duration::from_secs;
        for (opening, resolving, expected) in [
            (seconds(4), seconds(4), vec![Some(Some(0)), Some(Some(1)), Some(Some(2))]),
            (seconds(6), seconds(0), vec![None]),
            (seconds(0), seconds(6), vec![None]),
        ] {
            let rounds = Arc::new(Rounds::default());
            let mut answers = slow(&rounds, opening, resolving);
            for expected in expected {
                let answer = rounds.turn().within(LIMIT, rounds.drive(answers.next())).await;
                assert_eq!(answer, expected, "{opening:?} {resolving:?}");
            }
        }
    }
}
