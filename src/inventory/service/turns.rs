//! Processes that share a row take turns.
//!
//! Two processes that write one row at the same time cost each other more than both gain. So once a
//! process has noticed that it is not alone, it writes into the row, with its rounds, that it is its
//! turn. The others stand in line beside the row, look at it now and then and let it go on. With the
//! last write of its turn it names the next in line: named, so that it comes alone. Meanwhile those
//! who wait have their requests carried out by it; see [`super::errands`]. A turn is a courtesy: what a process may write is decided by the row's version alone, and one that dies with
//! its turn holds the others up for [`STALLED`], no longer.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::super::model::StockKey;
use super::super::store::InventoryStore;

/// How long it may take until everybody in line has had a turn; well below what a request waits.
const CYCLE: Duration = Duration::from_secs(2);
/// The longest turn: handing it over costs something.
const MAX_TURN: Duration = Duration::from_millis(660);
/// The shortest one: a few rounds.
const MIN_TURN: Duration = Duration::from_millis(80);
/// The time between two looks of those who wait, about, while a turn is young …
const LOOK: Duration = Duration::from_millis(40);
/// … and once it may end at any moment.
const CLOSE_LOOK: Duration = Duration::from_millis(5);
/// A turn is young for so long.
const YOUNG: Duration = Duration::from_millis(560);
/// Whoever does not move for so long has lost its turn.
const STALLED: Duration = Duration::from_millis(300);
/// How often who waits says so.
const STAND: Duration = Duration::from_millis(400);
/// The longest a process waits for others.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// A process is not alone if another one has written the row, or had its turn, within this time:
/// longer than it takes until everybody has had one.
const COMPANY: Duration = Duration::from_secs(3);
/// The pause after a round that another process won, about.
const LOST_PAUSE: Duration = Duration::from_millis(8);

/// What one process knows of the others that write a row.
pub(super) struct Turns {
    me: Uuid,
    /// When another process was last seen to have written the row.
    seen: Option<Instant>,
    /// When this process's turn began.
    began: Option<Instant>,
    /// When this process last named another to be the next.
    handed_over: Option<Instant>,
    /// How many others stood in line when it was last looked at.
    others: u32,
    /// The version that this process wrote last.
    written: Option<i64>,
    is_in_line: bool,
}

impl Turns {
    pub(super) fn new(me: Uuid) -> Self {
        Self {
            me,
            seen: None,
            began: None,
            handed_over: None,
            others: 1,
            written: None,
            is_in_line: false,
        }
    }

    /// By which others know this one.
    pub(super) fn me(&self) -> Uuid {
        self.me
    }

    /// Whether others write the row, too.
    pub(super) fn has_company(&self) -> bool {
        self.seen.is_some_and(|seen| seen.elapsed() < COMPANY)
    }

    /// Notes the version of a row that was read.
    pub(super) fn saw(&mut self, version: i64) {
        if self.written.is_some_and(|written| written != version) {
            self.seen = Some(Instant::now());
        }
    }

    /// Whose turn it is said to be in the next write.
    pub(super) async fn next(
        &mut self,
        store: &dyn InventoryStore,
        key: &StockKey,
    ) -> Option<Uuid> {
        if !self.has_company() {
            self.began = None;
            return None;
        }
        let began = *self.began.get_or_insert_with(Instant::now);
        if began.elapsed() < (CYCLE / (self.others + 1)).clamp(MIN_TURN, MAX_TURN) {
            return Some(self.me);
        }
        self.began = None;
        let next = self.successor(store, key).await;
        let now = Instant::now();
        // Where nobody waits it goes on.
        (self.began, self.handed_over) =
            if next.is_none() { (Some(now), None) } else { (None, Some(now)) };
        next.or(Some(self.me))
    }

    /// The next in line after this process, all around.
    pub(super) async fn successor(
        &mut self,
        store: &dyn InventoryStore,
        key: &StockKey,
    ) -> Option<Uuid> {
        // A store that does not answer is met by the write that follows.
        let line = store.line(key).await.unwrap_or_default();
        self.others = u32::try_from(line.len()).unwrap_or(u32::MAX).saturating_sub(1).max(1);
        let others = || line.iter().copied().filter(|other| *other != self.me);
        others().filter(|other| *other > self.me).min().or_else(|| others().min())
    }

    /// Notes that this process does not want its turn any more.
    pub(super) fn end(&mut self) {
        self.began = None;
    }

    /// Notes a version that this process has written.
    pub(super) fn won(&mut self, version: i64) {
        self.written = Some(version);
    }

    /// Notes that another process was ahead.
    pub(super) async fn lost(&mut self) {
        (self.seen, self.began) = (Some(Instant::now()), None);
        sleep(about(LOST_PAUSE)).await;
    }

    /// Looks whose turn it is: another's, who is to be waited for, or nobody's.
    pub(super) async fn look(
        &mut self,
        watch: &mut Watch,
        store: &dyn InventoryStore,
        key: &StockKey,
    ) -> Option<Uuid> {
        if watch.began.elapsed() >= MAX_WAIT {
            return None;
        }
        // A store that does not answer is met by whoever writes.
        let (version, other) = match store.stock_turn(key).await {
            Ok(Some((version, Some(other)))) if other != self.me => (version, other),
            _ => return None,
        };
        if watch.holder.is_none_or(|(holder, _)| holder != other) {
            // Of the first one it is known only if it was named here.
            let began = watch.holder.map(|_| Instant::now()).or(self.handed_over);
            let young = began.map_or_else(Instant::now, |began| began + YOUNG);
            watch.holder = Some((other, young));
        }
        match watch.seen {
            Some((before, since)) if before == version => {
                if since.elapsed() >= STALLED {
                    return None;
                }
            }
            _ => {
                watch.seen = Some((version, Instant::now()));
                self.seen = Some(Instant::now());
            }
        }
        if watch.stood.is_none_or(|stood| stood.elapsed() >= STAND) {
            watch.stood = Some(Instant::now());
            self.is_in_line = true;
            // Who is not seen in line comes when nothing moves any more.
            let _ = store.stand_in_line(key, self.me, true).await;
        }
        Some(other)
    }

    /// Does not stand in line any more, if it did.
    pub(super) async fn leave(&mut self, store: &dyn InventoryStore, key: &StockKey) {
        if std::mem::take(&mut self.is_in_line) {
            // It goes by itself if it has to.
            let _ = store.stand_in_line(key, self.me, false).await;
        }
    }
}

/// What a writer that waits has seen of the one it waits for.
pub(super) struct Watch {
    began: Instant,
    /// The version of the row, and since when it is that.
    seen: Option<(i64, Instant)>,
    /// Whose turn it is, and until when it is young.
    holder: Option<(Uuid, Instant)>,
    /// When it last said that it waits.
    stood: Option<Instant>,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), seen: None, holder: None, stood: None }
    }

    /// The time until the next look.
    pub(super) fn pause(&self) -> Duration {
        let is_young = self.holder.is_some_and(|(_, until)| Instant::now() < until);
        about(if is_young { LOOK } else { CLOSE_LOOK })
    }
}

/// A time around this one, so that two processes do not keep meeting.
pub(super) fn about(pause: Duration) -> Duration {
    let chance = u32::from(crate::chance::id().as_bytes()[0]);
    pause / 2 + pause * chance / 256
}
