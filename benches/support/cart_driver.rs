//! The worker that only runs the prepared statements of carts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;
use tokio::task::JoinSet;
use uuid::Uuid;
use vitrina::cart::model::KEPT;
use vitrina::clock::{Clock, SystemClock};
use vitrina::config::StoreConfig;
use vitrina::storage;
use vitrina::storage::cassandra::seconds;

use super::carts::VISIT;
use super::figures::Load;
use super::roles::{control, prepare};
use super::{Result, worker};

/// The guests who have a cart.
const GUESTS: &str = "SELECT DISTINCT session_id FROM ks.carts_by_session";
/// The statement that the shop reads a cart with.
const READ: &str = "SELECT part, at, operation_id, body FROM ks.carts_by_session \
                    WHERE session_id = ? AND part < 3 LIMIT ?";
/// The statement that the shop reads the session of a guest with, once for each visit.
const SESSION: &str = "SELECT user_id, created_at, last_activity, ended_at, ip, user_agent, \
                       device_type, geo_zone FROM ks.user_sessions WHERE session_id = ?";
/// How many rows it asks for.
const ROWS: i32 = 17;
/// The statement that the shop adds an operation with.
const ADD: &str = "INSERT INTO ks.carts_by_session (session_id, part, at, operation_id, body) \
                   VALUES (?, 2, ?, ?, ?) USING TTL ?";

/// What it selects: ids and texts as they come, times as the driver has them.
type SessionRow = (
    Option<String>,
    Option<CqlTimestamp>,
    Option<CqlTimestamp>,
    Option<CqlTimestamp>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
);

/// What the loops work with.
struct Driver {
    session: Arc<Session>,
    visitor: PreparedStatement,
    read: PreparedStatement,
    add: PreparedStatement,
    /// The guests whose carts are read, and the next of them.
    guests: Vec<Uuid>,
    next: AtomicUsize,
}

/// Runs statements on a session like the shop's, on the carts of the guests who are there when it
/// starts, each time the benchmark says how:
///
/// - `cart AT_ONCE MILLISECONDS`: reads carts, and sessions as often as the shop has to; reports what it
///   did;
/// - `add AT_ONCE MILLISECONDS`: the same, and each time adds an operation like the newest one of
///   the cart to one that nobody reads.
pub(super) async fn work() -> Result<()> {
    let mut control = control().await?;
    let StoreConfig::Cassandra(config) = StoreConfig::parse(&std::env::var(worker::STORE)?)? else {
        return Err("this needs a Cassandra store".into());
    };
    let session = storage::cassandra::connect(&config).await?;
    let quorum = Consistency::LocalQuorum;
    let known = prepare(&session, &config, GUESTS, quorum).await?;
    let known = session.execute_unpaged(&known, ()).await?.into_rows_result()?;
    let guests = known.rows::<(Uuid,)>()?.map(|row| row.map(|(guest,)| guest));
    let driver = Arc::new(Driver {
        visitor: prepare(&session, &config, SESSION, quorum).await?,
        read: prepare(&session, &config, READ, quorum).await?,
        add: prepare(&session, &config, ADD, quorum).await?,
        guests: guests.collect::<std::result::Result<_, _>>()?,
        next: AtomicUsize::new(0),
        session,
    });
    control.tell("").await?;
    while let Some(order) = control.hear().await? {
        let words: Vec<&str> = order.split(' ').collect();
        let [way @ ("cart" | "add"), at_once, millis] = words.as_slice() else {
            return Err(format!("an order that cannot be read: {order}").into());
        };
        let (adds, time) = (*way == "add", Duration::from_millis(millis.parse()?));
        let started = Instant::now();
        let mut loops = JoinSet::new();
        for _ in 0..at_once.parse()? {
            let driver = driver.clone();
            loops.spawn(async move { driver.run_for(time, adds).await });
        }
        let mut times = Vec::new();
        while let Some(done) = loops.join_next().await {
            times.extend(done??);
        }
        control.tell(&Load::new(started.elapsed(), times).to_string()).await?;
    }
    Ok(())
}

impl Driver {
    async fn run_for(&self, time: Duration, adds: bool) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        let started = Instant::now();
        while started.elapsed() < time {
            let guest = self.guests[self.next.fetch_add(1, Ordering::Relaxed) % self.guests.len()];
            let own = Uuid::new_v4();
            for request in 0..VISIT {
                let sent = Instant::now();
                if request == 0 {
                    self.read_session(guest).await?;
                }
                let body = self.read(guest).await?;
                if adds {
                    let at = SystemClock.now().micros();
                    let values = (own, at, Uuid::new_v4(), body, seconds(KEPT));
                    self.session.execute_unpaged(&self.add, values).await?;
                }
                times.push(sent.elapsed());
            }
        }
        Ok(times)
    }

    async fn read_session(&self, guest: Uuid) -> Result<()> {
        let found = self.session.execute_unpaged(&self.visitor, (guest,)).await?;
        let found = found.into_rows_result()?;
        found.maybe_first_row::<SessionRow>()?.ok_or("a guest has no session")?;
        Ok(())
    }

    /// Reads a cart; the body of its newest operation.
    async fn read(&self, guest: Uuid) -> Result<String> {
        let found = self.session.execute_unpaged(&self.read, (guest, ROWS)).await?;
        let found = found.into_rows_result()?;
        let mut newest = None;
        for row in found.rows::<(i8, i64, Uuid, Option<String>)>()? {
            let (part, _, _, body) = row?;
            newest = newest.or(body.filter(|_| part == 2));
        }
        newest.ok_or_else(|| format!("the cart of {guest} is not there").into())
    }
}
