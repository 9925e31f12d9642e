//! What is due: read in its order, nothing left out, nothing after it was removed.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use uuid::Uuid;
use vitrina::clock::{Clock, SystemClock, Timestamp};
use vitrina::storage::{DUE_SHARDS, Due, Store, Task};

use super::{AT_ONCE, new_user};
use crate::support::stores::TestStore;
use crate::support::{Random, seed};

crate::on_every_store!(
    what_is_due_is_read_in_order_within_its_span,
    a_walk_with_small_steps_reads_everything_once_if_it_is_removed,
    up_to_when_nothing_is_left_is_remembered,
);

fn task(random: &mut Random) -> Task {
    match random.below(3) {
        0 => Task::Payment(Uuid::new_v4()),
        1 => Task::Claim(Uuid::new_v4()),
        _ => {
            Task::Checkout { owner: new_user(), key: format!("ключ-{}", random.next()).into() }
        }
    }
}

/// What is due at moments of so many seconds; some of it at one moment.
async fn fill(
    store: &dyn Store,
    random: &mut Random,
    start: Timestamp,
    seconds: u64,
) -> BTreeSet<Due> {
    let mut all = BTreeSet::new();
    while all.len() < 250 {
        let at = start.after(Duration::from_micros(random.below(seconds * 1_000_000)));
        // Now and then on the edge of a minute, and several at once.
        let minute = Timestamp::from_micros(at.micros().div_euclid(60_000_000) * 60_000_000);
        let at = if random.below(4) == 0 { minute.max(start) } else { at };
        for _ in 0..=random.below(20).saturating_sub(14) {
            all.insert(Due { at, task: task(random) });
        }
    }
    stream::iter(&all)
        .for_each_concurrent(AT_ONCE, async |due| {
            store.add_due(due).await.unwrap();
            store.add_due(due).await.unwrap();
        })
        .await;
    all
}

fn between(all: &BTreeSet<Due>, shard: i8, from: Timestamp, until: Timestamp) -> BTreeSet<Due> {
    let is_in = |due: &&Due| due.shard() == shard && due.at >= from && due.at <= until;
    all.iter().filter(is_in).cloned().collect()
}

async fn what_is_due_is_read_in_order_within_its_span(store: &TestStore) {
    let mut random = Random(seed());
    let store = store.store.as_ref();
    let now = SystemClock.now();
    let mut all = fill(store, &mut random, now, 3 * 3_600).await;
    for round in 0..60 {
        let shard = i8::try_from(random.below(8)).unwrap();
        let moment = |random: &mut Random| {
            let which = usize::try_from(random.below(all.len() as u64)).unwrap();
            let at = all.iter().nth(which).unwrap().at.micros();
            Timestamp::from_micros(at + i64::try_from(random.below(3)).unwrap() - 1)
        };
        let (one, other) = (moment(&mut random), moment(&mut random));
        let (from, until) = (one.min(other), one.max(other));
        let limit = usize::try_from(1 + random.below(20)).unwrap();
        let read = store.due(shard, (from, until), limit).await.unwrap();
        assert!(read.due.len() <= limit && read.until >= from && read.until <= until, "{read:?}");
        assert!(read.due.is_sorted_by_key(|due| due.at), "{read:?}");
        let found: BTreeSet<Due> = read.due.iter().cloned().collect();
        assert_eq!(found.len(), read.due.len(), "each once");
        let model = between(&all, shard, from, read.until);
        assert!(found.is_subset(&model), "round {round}: what is not due is told");
        let missing: Vec<_> = model.difference(&found).collect();
        // Only of the last moment some may be left, where there was no room for them.
        let is_sound = |due: &&Due| due.at == read.until && read.due.len() == limit;
        assert!(missing.iter().all(is_sound), "round {round}: {missing:?} of {read:?}");
        // What is removed is not told again, and to remove it again changes nothing.
        if let Some(first) = read.due.first() {
            store.remove_due(first).await.unwrap();
            store.remove_due(first).await.unwrap();
            all.remove(first);
        }
    }
    let other = Due { at: now, task: task(&mut random) };
    store.remove_due(&other).await.unwrap();
}

async fn a_walk_with_small_steps_reads_everything_once_if_it_is_removed(store: &TestStore) {
    let mut random = Random(seed());
    let store = store.store.as_ref();
    let now = SystemClock.now();
    let all = fill(store, &mut random, now, 2 * 3_600).await;
    // More of one moment than a step reads.
    let at = now.after(Duration::from_secs(1_000));
    let crowd = (0..60).map(|n| Due { at, task: Task::Payment(Uuid::from_u128(n)) });
    let crowd: BTreeSet<Due> = crowd.collect();
    for due in &crowd {
        store.add_due(due).await.unwrap();
    }
    let all: BTreeSet<Due> = all.union(&crowd).cloned().collect();
    let (start, end) = (now, now.after(Duration::from_secs(2 * 3_600 + 60)));
    let mut seen = BTreeSet::new();
    for shard in 0..DUE_SHARDS {
        let (mut from, mut last) = (start, start);
        loop {
            let limit = usize::try_from(1 + random.below(5)).unwrap();
            let read = store.due(shard, (from, end), limit).await.unwrap();
            let is_full = read.due.len() == limit;
            assert!(read.until > from || is_full, "it goes on: {read:?}");
            for due in read.due {
                assert!(due.at >= last, "in order");
                last = due.at;
                store.remove_due(&due).await.unwrap();
                assert!(seen.insert(due.clone()), "{due:?} was read before");
            }
            from = read.until;
            if from == end && !is_full {
                break;
            }
        }
    }
    assert_eq!(seen, all);
    for shard in 0..DUE_SHARDS {
        assert_eq!(store.due(shard, (start, end), 10).await.unwrap().due, []);
    }
}

async fn up_to_when_nothing_is_left_is_remembered(store: &TestStore) {
    let store = store.store.as_ref();
    assert_eq!(store.swept().await.unwrap(), None);
    let now = SystemClock.now();
    // Also back again: what was noted late is looked for.
    for until in [now, now.after(Duration::from_micros(1)), super::before(now, super::DAY)] {
        store.set_swept(until).await.unwrap();
        assert_eq!(store.swept().await.unwrap(), Some(until));
    }
}
