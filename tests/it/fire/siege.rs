//! One fault under load: calm, the fault, and what comes after it; then the books.

use std::time::{Duration, Instant};

use super::audit::{Books, Harm};
use super::clients::{Crowd, Load};
use super::record::{Kind, Stretch, millis};
use super::shop::{Front, add_scarce};

/// Units of what is scarce in each siege: fewer than are wanted.
const SCARCE_UNITS: i64 = 12;

/// How long each stretch of a siege is.
#[derive(Clone, Copy)]
pub struct Times {
    pub calm: Duration,
    pub fault: Duration,
    pub after: Duration,
}

/// What a siege came to.
pub struct Outcome {
    pub calm: Stretch,
    pub fault: Stretch,
    pub after: Stretch,
    pub harm: Harm,
    purchases: usize,
}

/// A shop, and those who shop there.
pub struct Siege {
    pub front: Front,
    pub crowd: Crowd,
    pub times: Times,
    pub books: Books,
}

impl Siege {
    pub fn of(front: Front, crowd: Crowd, times: Times) -> Self {
        Self { front, crowd, times, books: Books::default() }
    }

    /// Lets clients go on while `strike` happens and until `heal` is through.
    pub async fn lay(
        &mut self,
        name: &str,
        strike: impl AsyncFnOnce(),
        heal: impl AsyncFnOnce(),
    ) -> Outcome {
        let Self { front, crowd, times, books } = self;
        let seed = crate::support::seed();
        let scarce = format!("SCARCE-{seed:x}");
        add_scarce(front, &scarce, SCARCE_UNITS).await;
        books.stock(&scarce, SCARCE_UNITS);
        let load = Load::start(front.clone(), *crowd, &scarce, seed);
        // Connections and caches are made first.
        tokio::time::sleep(times.calm / 4).await;
        let began = Instant::now();
        tokio::time::sleep(times.calm).await;
        let struck = Instant::now();
        strike().await;
        tokio::time::sleep_until((struck + times.fault).into()).await;
        let healing = Instant::now();
        heal().await;
        tokio::time::sleep(times.after).await;
        let over = Instant::now();
        let shared = load.end().await;
        let purchases = std::mem::take(&mut *shared.purchases.lock().unwrap());
        let record = &shared.record;
        let outcome = Outcome {
            calm: record.between(began, struck),
            fault: record.between(struck, healing),
            after: record.between(healing, over),
            purchases: purchases.len(),
            harm: books.audit(front, &purchases).await,
        };
        outcome.print(name);
        outcome
    }
}

impl Outcome {
    /// A row of the table.
    fn print(&self, name: &str) {
        let Self { calm, fault, after, purchases, harm } = self;
        let recovered = match (fault.last_error, after.last_error) {
            (None, None) => "no error".to_owned(),
            (Some(last), None) => format!("{:.1} s after it began", last.as_secs_f64()),
            (_, Some(last)) => format!("{:.1} s after it ended", last.as_secs_f64()),
        };
        println!(
            "| {name} | {:.0} → {:.0} → {:.0} | {} → {} | {}; afterwards {} | {} | {} | {} | {harm} |",
            calm.per_second(),
            fault.per_second(),
            after.per_second(),
            millis(calm.percentile(Kind::Checkout, 95)),
            millis(fault.percentile(Kind::Checkout, 95)),
            fault.errors_in_words(),
            after.errors_in_words(),
            recovered,
            millis(fault.silence.max(after.silence)),
            purchases,
        );
    }

    /// What holds after every siege, on any machine.
    pub fn assert_nothing_lost(&self) {
        assert_eq!(self.harm, Harm::default());
        assert!(self.after.good() > 0, "nobody was answered afterwards");
    }
}

/// The head of the table.
pub fn print_head() {
    println!(
        "| fault | answers/s before → during → after | p95 of a checkout | errors | last error | \
         longest silence | purchases | oversold / lost / doubled |\n|---|---|---|---|---|---|---|---|"
    );
}
