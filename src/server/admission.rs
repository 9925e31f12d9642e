//! How much is worked on at once, and how much may wait for its turn.
//!
//! Beyond what the machine can do, more work at once only makes all of it late. So a request needs
//! a place before anything is read for it. When there is none it waits, but not for long and not
//! behind many: the rest is told at once to come back later, which costs little.
//!
//! Those who buy do not wait for those who look around: each kind has places of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::comeback::Comeback;
use crate::crew::Crew;
use crate::error::Error;
use crate::telemetry::{Metrics, Traffic};

/// The longest wait for a place. Whoever has waited so long would be answered late, and those
/// behind it later still.
const WAIT_AT_MOST: Duration = Duration::from_millis(500);

/// How much is worked on at once.
#[derive(Debug, Clone)]
pub struct WorkLimits {
    /// Operations of each kind that are worked on at once; of browsing, fewer while the process is
    /// short of time.
    pub in_work: usize,
    /// Operations of each kind that wait for that.
    pub waiting: usize,
}

impl Default for WorkLimits {
    /// As much as keeps the cores busy while stores answer, and a queue that is worked off within
    /// the longest wait.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { in_work: 64 * cores, waiting: 1_024 }
    }
}

/// How often it is looked whether the process keeps up.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// So much is done at the most before what is ready to run has its turn; else there are fewer places for
/// browsing: an operation has a dozen turns, and those who buy wait in the same queue.
const QUEUE_AT_MOST: Duration = Duration::from_micros(200);
/// Of the places for browsing, one in so many goes when the queue is too long.
const SHRINK_BY: usize = 8;
/// The fewest places for browsing.
const FEWEST: usize = 1;
/// After so many looks at which nobody had come to buy, nobody is there for whom others would have to
/// make room.
const NO_BUYERS_AFTER: u32 = 100;
/// So many others than buyers between two looks are a crowd.
const CROWD: usize = 8;

/// The places for operations.
pub(crate) struct Admission {
    buying: Arc<Places>,
    browsing: Arc<Places>,
    /// Who came to buy since the last look.
    buyers: AtomicUsize,
    /// Who came since then and was no buyer, whether there was a place or not …
    others: AtomicUsize,
    /// … and whether those before it were a crowd.
    is_crowded: AtomicBool,
    comeback: Comeback,
    metrics: Arc<Metrics>,
}

struct Places {
    free: Arc<Semaphore>,
    most: usize,
    /// How many there are now …
    now: AtomicUsize,
    /// … and how many too many are taken: they go when they are given back.
    too_many: AtomicUsize,
    waiting: AtomicUsize,
    most_waiting: usize,
    /// How many may wait while very many are sent away anyway.
    few_waiting: usize,
}

/// A place that is taken, for as long as this is kept.
pub(crate) struct Place {
    places: Arc<Places>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let one_less = |count: usize| count.checked_sub(1);
        let too_many = &self.places.too_many;
        if too_many.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
        }
    }
}

impl Places {
    fn new(limits: &WorkLimits) -> Self {
        Self {
            free: Arc::new(Semaphore::new(limits.in_work)),
            most: limits.in_work,
            now: AtomicUsize::new(limits.in_work),
            too_many: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            most_waiting: limits.waiting,
            few_waiting: limits.waiting.min(limits.in_work),
        }
    }

    /// Makes it so many. Only one at a time does this.
    fn resize(&self, wanted: usize) {
        let now = self.now.swap(wanted, Ordering::Relaxed);
        for _ in wanted..now {
            if self.free.forget_permits(1) == 0 {
                self.too_many.fetch_add(1, Ordering::Relaxed);
            }
        }
        for _ in now..wanted {
            let one_less = |count: usize| count.checked_sub(1);
            if self.too_many.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err() {
                self.free.add_permits(1);
            }
        }
    }

    /// Fewer, or one more, by how much was done before what was ready had its turn.
    fn adjust(&self, queue: Duration) -> usize {
        let now = self.now.load(Ordering::Relaxed);
        let wanted = if queue > QUEUE_AT_MOST {
            (now - now.div_ceil(SHRINK_BY)).max(FEWEST.min(self.most))
        } else {
            (now + 1).min(self.most)
        };
        if wanted != now {
            self.resize(wanted);
        }
        wanted
    }
}

impl Admission {
    /// All places are free.
    pub(crate) fn new(limits: &WorkLimits, metrics: Arc<Metrics>) -> Self {
        let [buying, browsing] = [(); 2].map(|()| Arc::new(Places::new(limits)));
        let [buyers, others] = [(); 2].map(|()| AtomicUsize::new(0));
        let (is_crowded, comeback) = (AtomicBool::new(false), Comeback::new());
        Self { buying, browsing, buyers, others, is_crowded, comeback, metrics }
    }

    /// Sees to it, for ever, that those who browse leave room for those who buy: while there are such and
    /// the process is short of time, fewer of the others are let in at once. As many are answered as
    /// before, as nobody can be answered faster than the cores work; they wait at the door and not
    /// inside. (That costs something: those who are inside together ask the store together.)
    pub(crate) async fn keep(&self, crew: &Crew) {
        let mut sent_away = self.comeback.begin();
        let mut without_buyers = NO_BUYERS_AFTER;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.comeback.adjust(&mut sent_away);
            let buyers = self.buyers.swap(0, Ordering::Relaxed);
            without_buyers = if buyers > 0 { 0 } else { without_buyers.saturating_add(1) };
            let queue = match without_buyers {
                ..NO_BUYERS_AFTER => crew.queue().await,
                _ => Duration::ZERO,
            };
            let places = self.browsing.adjust(queue);
            let others = self.others.swap(0, Ordering::Relaxed);
            self.is_crowded.store(others >= CROWD, Ordering::Relaxed);
            self.metrics
                .pressure()
                .browsing_places()
                .set(i64::try_from(places).unwrap_or(i64::MAX));
        }
    }

    /// Waits until nothing is in work, also of what goes on for clients that have left. Nobody may come any
    /// more.
    pub(crate) async fn idle(&self) {
        for places in [&self.buying, &self.browsing] {
            let all = u32::try_from(places.now.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
            // They are never closed.
            let _ = places.free.acquire_many(all).await;
        }
    }

    /// Whether the process has been short of time for a moment, and others than buyers kept coming:
    /// buyers alone gain nothing by going out of each other's way.
    pub(crate) fn is_crowded(&self) -> bool {
        self.browsing.now.load(Ordering::Relaxed) < self.browsing.most.div_ceil(2)
            && self.is_crowded.load(Ordering::Relaxed)
    }

    /// Notes a request that is no buyer's, or is answered before that is known.
    pub(crate) fn note_other(&self) {
        self.others.fetch_add(1, Ordering::Relaxed);
    }

    /// What somebody is told for whom there is no room.
    pub(crate) fn sent_away(&self) -> Error {
        Error::Overloaded { wait: self.comeback.wait() }
    }

    /// Waits for a place; it is free again when what is returned is dropped.
    pub(crate) async fn enter(&self, kind: Traffic) -> Result<Place, Error> {
        let places = match kind {
            Traffic::Buying => {
                self.buyers.fetch_add(1, Ordering::Relaxed);
                &self.buying
            }
            Traffic::Browsing => {
                self.note_other();
                &self.browsing
            }
        };
        let taken = |permit| Place { places: places.clone(), permit: Some(permit) };
        if let Ok(permit) = places.free.clone().try_acquire_owned() {
            return Ok(taken(permit));
        }
        let shed = || {
            self.metrics.pressure().shed(kind);
            self.sent_away()
        };
        // A long queue gets everybody in who comes in a burst. While it never gets shorter it only makes all
        // of them late, and each costs more the longer it has waited: nothing of it is in a cache any more.
        let may_wait = match kind {
            Traffic::Browsing if self.comeback.is_late() => places.few_waiting,
            _ => places.most_waiting,
        };
        let _waiting = Waiting::begin(places, may_wait).ok_or_else(shed)?;
        match timeout(WAIT_AT_MOST, places.free.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(taken(permit)),
            Ok(Err(_)) | Err(_) => Err(shed()),
        }
    }
}

/// Somebody who waits; also one who gives up no longer does.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(places: &'a Places, most: usize) -> Option<Self> {
        let waiting = Self(&places.waiting);
        (places.waiting.fetch_add(1, Ordering::Relaxed) < most).then_some(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn admission() -> Admission {
        Admission::new(&WorkLimits { in_work: 2, waiting: 1 }, Arc::default())
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_places_one_waits_and_the_rest_is_sent_away_at_once() {
        let admission = admission();
        let first = admission.enter(Traffic::Browsing).await.unwrap();
        let _second = admission.enter(Traffic::Browsing).await.unwrap();
        let mut third = Box::pin(admission.enter(Traffic::Browsing));
        assert!(third.as_mut().now_or_never().is_none());
        let fourth = admission.enter(Traffic::Browsing).now_or_never().expect("at once");
        assert!(matches!(fourth, Err(Error::Overloaded { .. })));
        drop(first);
        let third = third.await.unwrap();
        // Now one may wait again, but not for ever.
        assert!(matches!(admission.enter(Traffic::Browsing).await, Err(Error::Overloaded { .. })));
        drop(third);
        assert!(admission.enter(Traffic::Browsing).now_or_never().expect("a place").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_buys_does_not_wait_for_those_who_browse() {
        let admission = admission();
        let _browsing = [
            admission.enter(Traffic::Browsing).await.unwrap(),
            admission.enter(Traffic::Browsing).await.unwrap(),
        ];
        assert!(admission.enter(Traffic::Buying).now_or_never().expect("a place").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn while_very_many_are_sent_away_few_who_browse_wait() {
        const WAITING: usize = 1_000;
        let limits = WorkLimits { in_work: 2, waiting: WAITING };
        let admission = Admission::new(&limits, Arc::default());
        let mut count = admission.comeback.begin();
        let take = |kind| [(); 2].map(|()| admission.enter(kind).now_or_never().unwrap());
        let _inside = [take(Traffic::Browsing), take(Traffic::Buying)];
        // Those who wait when so many have come; the others are sent away.
        let waiting = |kind| {
            let come = |_| {
                let mut one = Box::pin(admission.enter(kind));
                one.as_mut().now_or_never().is_none().then_some(one)
            };
            (0..WAITING * 2).filter_map(come).collect::<Vec<_>>()
        };
        assert_eq!(waiting(Traffic::Browsing).len(), WAITING);
        tokio::time::advance(Duration::from_secs(1)).await;
        admission.comeback.adjust(&mut count);
        assert_eq!(waiting(Traffic::Browsing).len(), limits.in_work);
        assert_eq!(waiting(Traffic::Buying).len(), WAITING);
        // Nobody has been sent away for long enough.
        for _ in 0..60 {
            tokio::time::advance(Duration::from_secs(1)).await;
            admission.comeback.adjust(&mut count);
        }
        assert_eq!(waiting(Traffic::Browsing).len(), WAITING);
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_queue_is_long_fewer_who_browse_are_let_in() {
        let limits = WorkLimits { in_work: 10, waiting: 100 };
        let admission = Admission::new(&limits, Arc::default());
        let inside = async |count: usize| {
            let mut places = Vec::new();
            while let Some(place) = admission.enter(Traffic::Browsing).now_or_never() {
                places.push(place.unwrap());
            }
            assert_eq!(places.len(), count);
            places
        };
        let (long, short) = (QUEUE_AT_MOST * 2, QUEUE_AT_MOST);
        let places = &admission.browsing;
        // All are taken when there are to be fewer: those go that are given back.
        let all = inside(10).await;
        for expected in [8, 7, 6, 5, 4, 3, 2, 1, 1] {
            assert_eq!(places.adjust(long), expected);
        }
        drop(all);
        drop(inside(1).await);
        assert_eq!(places.adjust(short), 2);
        assert_eq!(places.adjust(short), 3);
        drop(inside(3).await);
        // As many as there may be, and no more, also where some were still to go.
        let three = inside(3).await;
        assert_eq!(places.adjust(long), 2);
        for expected in [3, 4, 5, 6, 7, 8, 9, 10, 10] {
            assert_eq!(places.adjust(short), expected);
        }
        drop(three);
        inside(10).await;
        assert!(admission.enter(Traffic::Buying).now_or_never().is_some(), "buyers are not asked");
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_waits_no_longer() {
        let admission = admission();
        let _inside = [
            admission.enter(Traffic::Buying).await.unwrap(),
            admission.enter(Traffic::Buying).await.unwrap(),
        ];
        for _ in 0..10 {
            assert!(admission.enter(Traffic::Buying).now_or_never().is_none(), "it may wait");
        }
    }
}
