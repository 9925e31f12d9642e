//! Places where a test makes the process die, to see that what it leaves behind is mended.
//!
//! A debug build ends at once, as by `kill -9`, when it comes for the n-th time to the place that
//! `VITRINA_FAULT=place:n` names; with `VITRINA_FAULT_HURRY` it waits a twentieth of the time for
//! others to finish. A release build knows nothing of this.
//!
//! The places `write.before` and `write.after` are in front of and behind every write to the store
//! that a checkout, or a change of an order, consists of.

#[cfg(debug_assertions)]
pub(crate) use debug::{hurried, point, writes, written};

/// A write to a table is about to begin. Does nothing unless a test has named it.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn writes(_: &'static str) {}

/// A write to a table was acknowledged. Does nothing unless a test has named it.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn written(_: &'static str) {}

/// A place between two writes. Does nothing unless a test has named it.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn point(_: &'static str) {}

/// How long to wait for others, or to be waited for. A test may be in a hurry.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn hurried(pause: std::time::Duration) -> std::time::Duration {
    pause
}

#[cfg(debug_assertions)]
mod debug {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// The tables whose writes make up a checkout, or a change of an order.
    const TABLES: [&str; 12] = [
        "carts_by_day",
        "carts_by_session",
        "carts_by_user",
        "checkout_by_key",
        "customer_by_session",
        "due_by_slot",
        "inventory_by_product_geo",
        "order_events_by_id",
        "order_months_by_user",
        "order_state_by_id",
        "orders_by_period",
        "orders_by_user",
    ];

    /// A write to a table is about to begin. Does nothing unless a test has named it.
    pub(crate) fn writes(table: &'static str) {
        if TABLES.contains(&table) {
            point("write.before");
        }
    }

    /// A write to a table was acknowledged. Does nothing unless a test has named it.
    pub(crate) fn written(table: &'static str) {
        if TABLES.contains(&table) {
            point("write.after");
        }
    }

    /// A place between two writes. Does nothing unless a test has named it.
    pub(crate) fn point(place: &'static str) {
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

    /// How long to wait for others, or to be waited for. A test may be in a hurry.
    pub(crate) fn hurried(pause: Duration) -> Duration {
        static HURRY: LazyLock<bool> =
            LazyLock::new(|| std::env::var_os("VITRINA_FAULT_HURRY").is_some());
        if *HURRY { pause / 20 } else { pause }
    }
}
