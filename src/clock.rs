//! Time as a value that is passed in, so that a test decides what time it is.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// A moment in UTC, in microseconds since 1970: fine enough to order two writes of one row, and
/// exactly what Cassandra takes as a write timestamp.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment `micros` microseconds after 1970-01-01T00:00:00Z.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// The moment `millis` milliseconds after 1970-01-01T00:00:00Z (saturating).
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Microseconds since 1970-01-01T00:00:00Z.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Whole milliseconds since 1970-01-01T00:00:00Z.
    pub const fn millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// The moment `life` later (saturating).
    #[must_use]
    pub fn after(self, life: std::time::Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(life.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The moment `life` earlier (saturating).
    #[must_use]
    pub fn before(self, life: std::time::Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(life.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The same moment cut to milliseconds, the precision that every store keeps.
    #[must_use]
    pub const fn to_millis_precision(self) -> Self {
        Self::from_millis(self.millis())
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds: `2026-11-15T10:00:00.000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::<Utc>::from_timestamp_micros(self.0) {
            Some(time) => f.write_str(&time.to_rfc3339_opts(SecondsFormat::Millis, true)),
            None => f.write_str("invalid time"),
        }
    }
}

/// Where the time comes from.
pub trait Clock: Send + Sync + std::panic::RefUnwindSafe {
    /// The current moment.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
    }
}

/// A clock that stands still until it is told otherwise.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `now`.
    pub fn new(now: Timestamp) -> Self {
        Self(AtomicI64::new(now.micros()))
    }

    /// Moves the hands forward.
    pub fn advance(&self, by: std::time::Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_rfc_3339_in_utc() {
        assert_eq!(
            Timestamp::from_millis(1_794_736_800_000).to_string(),
            "2026-11-15T10:00:00.000Z"
        );
    }

    #[test]
    fn cuts_to_milliseconds_also_before_1970() {
        assert_eq!(Timestamp::from_micros(1_999).to_millis_precision().micros(), 1_000);
        assert_eq!(Timestamp::from_micros(-1).to_millis_precision().micros(), -1_000);
    }
}
