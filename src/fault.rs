//! Places where a test makes the process die, to see that what it leaves behind is mended.
//!
//! A debug build ends at once, as by `kill -9`, when it comes for the n-th time to the place that
//! `VITRINA_FAULT=place:n` names. A release build knows nothing of this.

/// A place between two writes. Does nothing unless a test has named it.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn point(_: &'static str) {}

/// A place between two writes. Does nothing unless a test has named it.
#[cfg(debug_assertions)]
pub(crate) fn point(place: &'static str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static WANTED: LazyLock<Option<(String, u64)>> = LazyLock::new(|| {
        let wanted = std::env::var("VITRINA_FAULT").ok()?;
        let (place, nth) = wanted.rsplit_once(':').unwrap_or((&wanted, "1"));
        Some((place.to_owned(), nth.parse().ok()?))
    });
    static PASSED: AtomicU64 = AtomicU64::new(0);
    if let Some((wanted, nth)) = WANTED.as_ref()
        && wanted == place
        && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == *nth
    {
        std::process::abort();
    }
}
