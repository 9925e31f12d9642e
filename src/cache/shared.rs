//! The tier that instances share: how entries lie in Redis, and the scripts that store them.
//!
//! A value begins with 40 digits: its version and since when it is true, by Redis's clock in
//! microseconds, 20 digits each. As text they sort as they do as numbers, also in a script, whose
//! own numbers are too coarse for a version. The rest is the entry in `MessagePack`; without a rest
//! it is known that there is none.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use redis::{Script, ScriptInvocation};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::CacheSettings;
use super::flight::Held;
use super::messages;
use super::redis::{Reading, Redis};
use crate::telemetry::OperationStats;

/// Digits of a number in a value.
const DIGITS: usize = 20;
/// The largest value that is stored. A larger one would hold up what else is on the connection for
/// longer than it saves.
const MAX_VALUE_BYTES: usize = 1 << 20;

/// Stores values that are newer than what is there, for the rest of their life. A script that Redis
/// runs late, after it stood still, finds that they are too old.
static STORE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local time = redis.call('TIME')
         local now = time[1] * 1000000 + time[2]
         for i, key in ipairs(KEYS) do
             local value = ARGV[i + 1]
             local left = math.floor((string.sub(value, 21, 40) + ARGV[1] - now) / 1000)
             local there = redis.call('GETRANGE', key, 0, 39)
             if left > 0 and string.sub(value, 1, 40) > there then
                 redis.call('SET', key, value, 'PX', left)
             end
         end",
    )
});

/// Stores a value that was just written, and tells the other instances of it. In this order: who has
/// heard of it finds it.
static ANNOUNCE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local time = redis.call('TIME')
         local now = time[1] * 1000000 + time[2]
         local value = ARGV[2]
         local left = math.floor((string.sub(value, 21, 40) + ARGV[1] - now) / 1000)
         if left > 0 then
             if string.sub(value, 1, 40) > redis.call('GETRANGE', KEYS[1], 0, 39) then
                 redis.call('SET', KEYS[1], value, 'PX', left)
             end
             redis.call('PUBLISH', KEYS[2], ARGV[3] .. value)
         end",
    )
});

/// Stores a value of a group, unless the group was changed since the value is true.
static STORE_IN_GROUP: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local time = redis.call('TIME')
         local now = time[1] * 1000000 + time[2]
         local since = string.sub(ARGV[2], 21, 40)
         local left = math.floor((since + ARGV[1] - now) / 1000)
         local changed = redis.call('GET', KEYS[1]) or ''
         local there = redis.call('GETRANGE', KEYS[2], 0, 39)
         if left > 0 and since > changed and string.sub(ARGV[2], 1, 40) > there then
             redis.call('SET', KEYS[2], ARGV[2], 'PX', left)
         end",
    )
});

/// Notes that a group was changed. What is older is passed over by readers and not stored any
/// more. The note outlives all of it: nothing is stored or read once it is older than `max_age`.
static CHANGE_GROUP: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local time = redis.call('TIME')
         local now = string.format('%020.0f', time[1] * 1000000 + time[2])
         redis.call('SET', KEYS[1], now, 'PX', ARGV[1])",
    )
});

/// Why something is stored.
#[derive(Clone, Copy)]
pub(super) enum Urgency {
    /// It was read: to lose it costs a read.
    StoreBack,
    /// It was written: to lose it makes others wait for what is new.
    Change,
}

/// An entry found in Redis.
pub(super) struct Found<V> {
    pub(super) version: i64,
    pub(super) value: Option<Arc<V>>,
    /// Since when it is true, by our clock; a little early.
    pub(super) since: Instant,
}

/// The part of one cache in Redis.
pub(super) struct Shared {
    pub(super) redis: Arc<Redis>,
    prefix: String,
    pub(super) max_age: Duration,
}

impl Shared {
    pub(super) fn new(redis: &Arc<Redis>, settings: &CacheSettings) -> Self {
        let prefix = format!("{}:{}", settings.prefix, settings.name);
        Self { redis: redis.clone(), prefix, max_age: settings.max_age }
    }

    /// The name of an entry.
    pub(super) fn key(&self, key: &str) -> String {
        format!("{}:e:{key}", self.prefix)
    }

    /// The names of a group's note and of an entry in the group. The length keeps apart what would
    /// read the same, as `a:b` with `c` and `a` with `b:c`.
    pub(super) fn group_keys(&self, group: &str, key: &str) -> [String; 2] {
        let entry = format!("{}:e:{}:{group}:{key}", self.prefix, group.len());
        [self.group_key(group), entry]
    }

    fn group_key(&self, group: &str) -> String {
        format!("{}:g:{group}", self.prefix)
    }

    /// The channel on which instances tell each other of changes.
    pub(super) fn channel(&self) -> String {
        format!("{}:c", self.prefix)
    }

    /// Takes a message of [`Self::announce`] apart; `None` if it is none, or too old to matter.
    pub(super) fn heard<'m, V: DeserializeOwned>(
        &self,
        message: &'m [u8],
    ) -> Option<(&'m str, Found<V>)> {
        let (key, value) = messages::read(message)?;
        let found = decode(&self.redis.link()?.reading(), value)?;
        (found.since.elapsed() < self.max_age).then_some((key, found))
    }

    async fn read(&self, keys: &[String]) -> Option<Reading> {
        let reading = self.redis.read(keys).await;
        if reading.is_none() {
            OperationStats::degraded();
        }
        reading
    }

    /// Reads entries by their names; `None` if Redis was not asked or did not answer.
    pub(super) async fn find<V: DeserializeOwned>(
        &self,
        keys: &[String],
    ) -> Option<Vec<Option<Found<V>>>> {
        let reading = self.read(keys).await?;
        let decode = |value: &Option<Bytes>| value.as_deref().and_then(|v| decode(&reading, v));
        Some(reading.values.iter().map(decode).collect())
    }

    /// Reads an entry of a group. `None` if Redis was not asked or did not answer.
    pub(super) async fn find_in_group<V: DeserializeOwned>(
        &self,
        keys: &[String; 2],
    ) -> Option<Option<Found<V>>> {
        let reading = self.read(keys).await?;
        let (changed, value) = match reading.values.as_slice() {
            [changed, Some(value)] => (changed.as_deref().unwrap_or_default(), value),
            _ => return Some(None),
        };
        let is_current = value.get(DIGITS..2 * DIGITS).is_some_and(|since| since > changed);
        Some(if is_current { decode(&reading, value) } else { None })
    }

    /// Stores entries in the background, where they are newer than what is there.
    pub(super) fn store<V>(&self, entries: Vec<(String, Held<V>)>, urgency: Urgency)
    where
        V: Serialize + Send + Sync + 'static,
    {
        // All entries of a call are true since the same moment.
        let Some((_, Held { since, .. })) = entries.first() else { return };
        let (since, max_age) = (*since, micros_text(self.max_age));
        self.in_background(urgency, since, move |redis_since| {
            let mut script = STORE.prepare_invoke();
            script.arg(max_age);
            let mut is_empty = true;
            for (key, held) in &entries {
                if let Some(value) = encode(held, redis_since) {
                    script.key(key).arg(value);
                    is_empty = false;
                }
            }
            (!is_empty).then_some(script)
        });
    }

    /// Stores an entry that was just written in the background, and tells the other instances.
    pub(super) fn announce<V>(&self, key: &str, held: Held<V>)
    where
        V: Serialize + Send + Sync + 'static,
    {
        let (max_age, channel) = (micros_text(self.max_age), self.channel());
        let (name, message) = (self.key(key), messages::write(key));
        self.in_background(Urgency::Change, held.since, move |redis_since| {
            let mut script = ANNOUNCE.prepare_invoke();
            script.key(name).key(channel).arg(max_age).arg(encode(&held, redis_since)?);
            script.arg(message);
            Some(script)
        });
    }

    /// Stores an entry of a group in the background.
    pub(super) fn store_in_group<V>(&self, [group, entry]: [String; 2], held: Held<V>)
    where
        V: Serialize + Send + Sync + 'static,
    {
        let max_age = micros_text(self.max_age);
        self.in_background(Urgency::StoreBack, held.since, move |redis_since| {
            let mut script = STORE_IN_GROUP.prepare_invoke();
            script.key(group).key(entry).arg(max_age).arg(encode(&held, redis_since)?);
            Some(script)
        });
    }

    /// Notes in the background that a group was changed.
    pub(super) fn change_group(&self, group: &str) {
        let key = self.group_key(group);
        // Twice the age, so that no rounding of either makes the note end first.
        let life = (2 * self.max_age).as_millis().max(1).to_string();
        self.in_background(Urgency::Change, Instant::now(), move |_| {
            let mut script = CHANGE_GROUP.prepare_invoke();
            script.key(key).arg(life);
            Some(script)
        });
    }

    fn in_background(
        &self,
        urgency: Urgency,
        since: Instant,
        prepare: impl FnOnce(i64) -> Option<ScriptInvocation<'static>> + Send + 'static,
    ) {
        let permits: &Arc<Semaphore> = match urgency {
            Urgency::StoreBack => &self.redis.store_backs,
            Urgency::Change => &self.redis.changes,
        };
        if self.redis.link().is_none() {
            return;
        }
        let (Ok(permit), Ok(runtime)) =
            (permits.clone().try_acquire_owned(), Handle::try_current())
        else {
            return;
        };
        let redis = self.redis.clone();
        runtime.spawn(async move {
            redis.run(since, prepare).await;
            drop(permit);
        });
    }
}

fn micros_text(duration: Duration) -> String {
    duration.as_micros().to_string()
}

/// A value as it lies in Redis; `None` if it is not to be stored.
fn encode<V: Serialize>(held: &Held<V>, redis_since: i64) -> Option<Vec<u8>> {
    // Moved so that the smallest version is 0: then digits sort as the numbers do.
    let version = held.version.cast_unsigned() ^ (1 << 63);
    let since = u64::try_from(redis_since).ok()?;
    let mut bytes = format!("{version:0DIGITS$}{since:0DIGITS$}").into_bytes();
    if let Some(value) = &held.value {
        // Named fields: an instance of another version finds its own or none, not a wrong one.
        rmp_serde::encode::write_named(&mut bytes, value.as_ref()).ok()?;
    }
    (bytes.len() <= MAX_VALUE_BYTES).then_some(bytes)
}

/// The entry in a value; `None` if it cannot be read.
fn decode<V: DeserializeOwned>(reading: &Reading, value: &[u8]) -> Option<Found<V>> {
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u64>().ok();
    let (version, rest) = value.split_at_checked(DIGITS)?;
    let (since, rest) = rest.split_at_checked(DIGITS)?;
    let version = (number(version)? ^ (1 << 63)).cast_signed();
    let since = i64::try_from(number(since)?).ok()?;
    // Below zero if Redis's clock was set back.
    let age = u64::try_from(reading.micros.saturating_sub(since)).unwrap_or(0);
    let value = match rest {
        [] => None,
        rest => Some(Arc::new(rmp_serde::from_slice(rest).ok()?)),
    };
    // Counted from before the call: what the way took makes the entry older.
    let since = reading.sent.checked_sub(Duration::from_micros(age))?;
    Some(Found { version, value, since })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(micros: i64) -> Reading {
        Reading { sent: Instant::now(), micros, values: Vec::new() }
    }

    fn held(version: i64, value: Option<&str>) -> Held<String> {
        let value = value.map(|value| Arc::new(value.to_owned()));
        Held { version, value, since: Instant::now(), bytes: 0 }
    }

    #[test]
    fn what_is_encoded_is_decoded_with_its_age() {
        for (version, value) in [(i64::MIN, Some("")), (-1, Some("Товар")), (i64::MAX, None)] {
            let bytes = encode(&held(version, value), 1_000_000).unwrap();
            let reading = reading(1_250_000);
            let found = decode::<String>(&reading, &bytes).unwrap();
            assert_eq!(
                (found.version, found.value.as_deref().map(String::as_str)),
                (version, value)
            );
            assert_eq!(reading.sent - found.since, Duration::from_millis(250));
        }
    }

    #[test]
    fn versions_sort_as_text() {
        let versions = [i64::MIN, -1_000, -1, 0, 1, 9, 10, 1_794_736_800_000_000, i64::MAX];
        let texts = versions.map(|version| encode(&held(version, None), 1).unwrap());
        assert!(texts.is_sorted());
    }

    #[test]
    fn what_cannot_be_read_is_a_miss() {
        let good = encode(&held(1, Some("a")), 1).unwrap();
        let no_digits = [&[b'x'; 2 * DIGITS][..], &good[2 * DIGITS..]].concat();
        for bad in [&[], &good[..2 * DIGITS - 1], &good[..good.len() - 1], &no_digits] {
            assert!(decode::<String>(&reading(1), bad).is_none(), "{bad:?}");
        }
        let number = Held { version: 1, value: Some(Arc::new(7)), since: Instant::now(), bytes: 0 };
        let number = encode(&number, 1).unwrap();
        assert!(decode::<String>(&reading(1), &number).is_none());
    }

    #[test]
    fn a_value_that_is_too_large_is_not_stored() {
        assert!(encode(&held(1, Some(&"x".repeat(MAX_VALUE_BYTES))), 1).is_none());
    }
}
