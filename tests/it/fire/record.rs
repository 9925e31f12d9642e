//! What clients were told, and when.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A page or a card with stock, which needs most copies of a row.
    Browse,
    /// A card without its stock, which needs one.
    Card,
    Cart,
    Checkout,
}

struct Told {
    /// When it was told.
    at: Instant,
    kind: Kind,
    took: Duration,
    /// The code of an error, or what became of the connection.
    error: Option<String>,
}

/// All answers of a test.
#[derive(Default)]
pub struct Record(Mutex<Vec<Told>>);

impl Record {
    pub fn note(&self, kind: Kind, began: Instant, error: Option<String>) {
        let at = Instant::now();
        self.0.lock().unwrap().push(Told { at, kind, took: at - began, error });
    }

    /// What was told from one moment to another.
    pub fn between(&self, from: Instant, to: Instant) -> Stretch {
        let told = self.0.lock().unwrap();
        let told = told.iter().filter(|told| told.at >= from && told.at < to);
        let mut stretch = Stretch { time: to - from, ..Stretch::default() };
        let mut before = from;
        for told in told {
            match &told.error {
                None => {
                    stretch.good.entry(told.kind).or_default().push(told.took);
                    stretch.silence = stretch.silence.max(told.at - before);
                    before = told.at;
                }
                Some(code) => {
                    *stretch.errors.entry((told.kind, code.clone())).or_default() += 1;
                    stretch.last_error = Some(told.at - from);
                    stretch.slowest_error = stretch.slowest_error.max(told.took);
                }
            }
        }
        stretch.silence = stretch.silence.max(to - before);
        stretch
    }
}

/// What was told in a stretch of time.
#[derive(Default)]
pub struct Stretch {
    time: Duration,
    good: BTreeMap<Kind, Vec<Duration>>,
    errors: BTreeMap<(Kind, String), u64>,
    /// The last error, counted from the beginning.
    pub last_error: Option<Duration>,
    pub slowest_error: Duration,
    /// The longest time without a good answer to anybody.
    pub silence: Duration,
}

impl Stretch {
    pub fn good(&self) -> usize {
        self.good.values().map(Vec::len).sum()
    }

    pub fn good_of(&self, kind: Kind) -> usize {
        self.good.get(&kind).map_or(0, Vec::len)
    }

    pub fn per_second(&self) -> f64 {
        rate(self.good(), self.time)
    }

    /// Codes of errors, with how many there were of each.
    pub fn errors(&self) -> BTreeMap<&str, u64> {
        let mut errors = BTreeMap::new();
        for ((_, code), count) in &self.errors {
            *errors.entry(code.as_str()).or_default() += count;
        }
        errors
    }

    /// Nobody was told of a failure. In the short version, on a machine that is busy with other tests,
    /// those that are `excused` there do not count.
    pub fn assert_no_errors(&self, excused: &[&str]) {
        let mut codes = self.errors();
        codes.retain(|code, _| super::is_long() || !excused.contains(code));
        assert!(codes.is_empty(), "{}", self.errors_in_words());
    }

    /// The errors in words.
    pub fn errors_in_words(&self) -> String {
        if self.errors.is_empty() {
            return "none".to_owned();
        }
        let word =
            |((kind, code), count): (&(Kind, String), &u64)| format!("{count} {code} ({kind:?})");
        self.errors.iter().map(word).collect::<Vec<_>>().join(", ").to_lowercase()
    }

    /// A percentile of the good answers of a kind.
    pub fn percentile(&self, kind: Kind, percent: usize) -> Duration {
        percentile(self.good.get(&kind).cloned().unwrap_or_default(), percent)
    }
}

pub fn percentile(mut times: Vec<Duration>, percent: usize) -> Duration {
    times.sort_unstable();
    let place = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(place).copied().unwrap_or_default()
}

pub fn rate(count: usize, time: Duration) -> f64 {
    f64::from(u32::try_from(count).unwrap()) / time.as_secs_f64()
}

/// Milliseconds, for a table.
pub fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
