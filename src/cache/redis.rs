//! The connection to Redis: short time-outs, left alone while it does not answer, mended in the
//! background.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, FromRedisValue,
    IntoConnectionInfo, RedisConnectionInfo, RedisResult, ScriptInvocation,
};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::config::RedisConfig;

/// How long an answer may take. A healthy Redis needs less than a millisecond, and a read from the
/// store a few: to wait longer would be slower than to have no cache.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(30);
/// How long a new connection may take, the log-in included. Nobody but the mending waits for it.
pub(super) const CONNECTION_TIMEOUT: Duration = Duration::from_millis(200);
/// So many failures in a row, and Redis is left alone: one or two may be a lost packet or a slow
/// command of somebody else's.
const MAX_FAILURES: u32 = 3;
/// The time between two probes of a Redis that is left alone. Short, as a probe costs no request
/// anything; long enough not to bother a server that is just starting.
pub(super) const PROBE_PAUSE: Duration = Duration::from_millis(500);
/// Calls on the connection at once. More only wait for each other; those over it fail by time-out.
const MAX_CALLS: usize = 512;
/// Stores of what was read that are under way at once; over it they are left out, because a value
/// that is not stored is read again, no more.
const MAX_STORE_BACKS: u32 = 64;
/// Stores of what was written that are under way at once. Apart from the others, so that a rush of
/// reads does not keep changes from Redis.
const MAX_CHANGES: u32 = 256;
/// How long the clocks are taken to run alike before they are compared again. In that time two
/// clocks drift apart by less than a millisecond.
pub(super) const CLOCK_LIFE: Duration = Duration::from_secs(5);

/// A Redis that instances share.
///
/// It never makes a read fail, and costs a read one time-out of 30 ms at the most. After three
/// failures in a row it is not asked any more; a task in the background tries to connect again
/// until it succeeds. The log says once that it is away and once that it is back.
pub struct Redis {
    pub(super) config: RedisConfig,
    /// `None` while it is left alone.
    link: Mutex<Option<Arc<Link>>>,
    in_use: watch::Sender<bool>,
    pub(super) store_backs: Arc<Semaphore>,
    pub(super) changes: Arc<Semaphore>,
}

/// A connection that works, as far as is known.
pub(super) struct Link {
    connection: MultiplexedConnection,
    since: Instant,
    failures: AtomicU32,
    clock: Mutex<ClockReading>,
}

/// What Redis's clock showed, and ours when the answer was there. At that moment Redis's clock had
/// gone on, so a moment of ours turned into Redis's time comes out too early, never too late.
#[derive(Clone, Copy)]
struct ClockReading {
    ours: Instant,
    micros: i64,
}

/// What a call is made for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To read something.
    Read,
    /// To store something: a Redis that refuses it is none the worse for those who read.
    Store,
}

/// What [`Redis::read`] brought.
pub(super) struct Reading {
    /// Our time before the call.
    pub(super) sent: Instant,
    /// Redis's time when it read, in microseconds since 1970.
    pub(super) micros: i64,
    /// The values, one for each key.
    pub(super) values: Vec<Option<Bytes>>,
}

impl Redis {
    /// Connects, or begins to try if that does not succeed at once.
    pub async fn open(config: &RedisConfig) -> Arc<Self> {
        let this = Arc::new(Self {
            config: config.clone(),
            link: Mutex::new(None),
            in_use: watch::Sender::new(false),
            store_backs: Arc::new(Semaphore::new(MAX_STORE_BACKS as usize)),
            changes: Arc::new(Semaphore::new(MAX_CHANGES as usize)),
        });
        match this.connect().await {
            Ok(link) => this.use_link(link),
            Err(error) => this.leave_alone(&error.to_string(), PROBE_PAUSE),
        }
        this
    }

    /// Whether Redis is in use or left alone, now and whenever that changes.
    pub fn in_use(&self) -> watch::Receiver<bool> {
        self.in_use.subscribe()
    }

    /// Waits until everything that was being stored in the background has been, or has failed.
    pub async fn settled(&self) {
        // All permits are back when nobody is at work.
        let store_backs = self.store_backs.acquire_many(MAX_STORE_BACKS);
        let changes = self.changes.acquire_many(MAX_CHANGES);
        drop((store_backs.await, changes.await));
    }

    /// The connection, unless Redis is left alone.
    pub(super) fn link(&self) -> Option<Arc<Link>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads keys and Redis's clock in one round trip; `None` if it did not answer.
    pub(super) async fn read(self: &Arc<Self>, keys: &[String]) -> Option<Reading> {
        let link = self.link()?;
        let sent = Instant::now();
        // The clock first: a value that is stored in between seems older than it is.
        let mut pipe = redis::pipe();
        pipe.cmd("TIME").cmd("MGET").arg(keys);
        let mut connection = link.connection.clone();
        let answer = pipe.query_async::<((i64, i64), Vec<Option<Bytes>>)>(&mut connection);
        let (time, values) = self.call(&link, Purpose::Read, answer).await?;
        let micros = micros(time);
        link.read_clock(micros);
        (values.len() == keys.len()).then_some(Reading { sent, micros, values })
    }

    /// Runs a script. It is prepared for the moment `since` in Redis's time, or a little before;
    /// nothing is run if there is nothing prepared.
    pub(super) async fn run(
        self: &Arc<Self>,
        since: Instant,
        prepare: impl FnOnce(i64) -> Option<ScriptInvocation<'static>>,
    ) {
        let Some(link) = self.link() else { return };
        let mut connection = link.connection.clone();
        if link.clock().ours.elapsed() > CLOCK_LIFE {
            let time = redis::cmd("TIME");
            let answer = time.query_async::<(i64, i64)>(&mut connection);
            let Some(time) = self.call(&link, Purpose::Read, answer).await else { return };
            link.read_clock(micros(time));
        }
        if let Some(script) = prepare(link.clock().micros_at(since)) {
            let stored = script.invoke_async::<()>(&mut connection);
            self.call(&link, Purpose::Store, stored).await;
        }
    }

    /// Runs a script that stores something, for its answer; `None` if there was none.
    pub(super) async fn ask<T: FromRedisValue>(
        self: &Arc<Self>,
        script: &ScriptInvocation<'_>,
    ) -> Option<T> {
        let link = self.link()?;
        let mut connection = link.connection.clone();
        self.call(&link, Purpose::Store, script.invoke_async::<T>(&mut connection)).await
    }

    /// Sends a message to a channel, and compares the clocks.
    pub(super) async fn publish(self: &Arc<Self>, channel: &str, message: &[u8]) {
        let Some(link) = self.link() else { return };
        let mut pipe = redis::pipe();
        pipe.cmd("TIME").cmd("PUBLISH").arg(channel).arg(message);
        let mut connection = link.connection.clone();
        let answer = pipe.query_async::<((i64, i64), i64)>(&mut connection);
        if let Some((time, _)) = self.call(&link, Purpose::Read, answer).await {
            link.read_clock(micros(time));
        }
    }

    /// Makes a call under the time-out and notes how it went.
    async fn call<T>(
        self: &Arc<Self>,
        link: &Arc<Link>,
        purpose: Purpose,
        call: impl Future<Output = RedisResult<T>>,
    ) -> Option<T> {
        match timeout(RESPONSE_TIMEOUT, call).await {
            Ok(Ok(answer)) => {
                link.failures.store(0, Ordering::Relaxed);
                return Some(answer);
            }
            Ok(Err(error)) if error.is_io_error() && !error.is_timeout() => {
                // The connection is gone. Perhaps Redis was started anew, so look at once, but do
                // not keep running after one that hangs up each time.
                let pause = PROBE_PAUSE.saturating_sub(link.since.elapsed());
                self.give_up(link, &error.to_string(), pause);
            }
            // One that is full still reads.
            Ok(Err(error)) if purpose == Purpose::Store && error.code().is_some() => {
                tracing::debug!(%error, "Redis did not store a value");
            }
            Ok(Err(error)) => self.failed(link, &error.to_string()),
            Err(_) => self.failed(link, "no answer in time"),
        }
        None
    }

    fn failed(self: &Arc<Self>, link: &Arc<Link>, error: &str) {
        if link.failures.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_FAILURES {
            self.give_up(link, error, PROBE_PAUSE);
        }
    }

    /// Stops using a connection, unless that has happened already.
    fn give_up(self: &Arc<Self>, link: &Arc<Link>, error: &str, pause: Duration) {
        let mut current = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if current.take_if(|current| Arc::ptr_eq(current, link)).is_some() {
            drop(current);
            self.leave_alone(error, pause);
        }
    }

    fn leave_alone(self: &Arc<Self>, error: &str, pause: Duration) {
        self.in_use.send_replace(false);
        let RedisConfig { host, port, .. } = &self.config;
        tracing::warn!(
            host,
            port,
            error,
            "Redis does not answer; reading without it until it does"
        );
        tokio::spawn(mend(Arc::downgrade(self), pause));
    }

    fn use_link(&self, link: Link) {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(link));
        self.in_use.send_replace(true);
    }

    /// A new connection that has answered.
    async fn connect(&self) -> RedisResult<Link> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECTION_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_concurrency_limit(MAX_CALLS);
        let client = Client::open(connection_info(&self.config)?)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let time = redis::cmd("TIME").query_async(&mut connection).await?;
        let now = Instant::now();
        let clock = Mutex::new(ClockReading { ours: now, micros: micros(time) });
        Ok(Link { connection, since: now, failures: AtomicU32::new(0), clock })
    }
}

/// Tries to connect until it succeeds or nobody needs it any more.
async fn mend(redis: Weak<Redis>, mut pause: Duration) {
    loop {
        sleep(pause).await;
        pause = PROBE_PAUSE;
        let Some(redis) = redis.upgrade() else { return };
        if let Ok(link) = redis.connect().await {
            redis.use_link(link);
            let RedisConfig { host, port, .. } = &redis.config;
            tracing::info!(host, port, "Redis answers again");
            return;
        }
    }
}

impl Link {
    /// What Redis's clock shows now, about, as if it had been asked: what is measured by it comes
    /// out a little too old.
    pub(super) fn reading(&self) -> Reading {
        let now = Instant::now();
        let sent = now.checked_sub(RESPONSE_TIMEOUT).unwrap_or(now);
        Reading { sent, micros: self.clock().micros_at(now), values: Vec::new() }
    }

    fn clock(&self) -> ClockReading {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_clock(&self, micros: i64) {
        let reading = ClockReading { ours: Instant::now(), micros };
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = reading;
    }
}

impl ClockReading {
    /// Redis's time at a moment of ours, or a little before.
    fn micros_at(self, moment: Instant) -> i64 {
        let later = whole_micros(moment.saturating_duration_since(self.ours));
        let earlier = self.ours.saturating_duration_since(moment);
        // Rounded up, so that the moment comes out too early.
        let earlier = whole_micros(earlier + Duration::from_nanos(999));
        self.micros.saturating_add(later).saturating_sub(earlier)
    }
}

fn whole_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The answer to `TIME`: seconds and microseconds.
fn micros((seconds, micros): (i64, i64)) -> i64 {
    seconds.saturating_mul(1_000_000).saturating_add(micros)
}

pub(super) fn connection_info(config: &RedisConfig) -> RedisResult<ConnectionInfo> {
    let mut login = RedisConnectionInfo::default().set_db(config.db.into());
    if let Some((user, password)) = &config.credentials {
        login = login.set_password(password.expose());
        if !user.is_empty() {
            login = login.set_username(user);
        }
    }
    // Without it a small request waits for the acknowledgement of the one before, up to 40 ms.
    let tcp = TcpSettings::default().set_nodelay(true);
    // An address is always taken as it is; only a text could be refused.
    let address = ConnectionAddr::Tcp(config.host.clone(), config.port);
    address.into_connection_info().map(|info| info.set_tcp_settings(tcp).set_redis_settings(login))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_on_between_two_comparisons() {
        let ours = Instant::now().checked_sub(Duration::from_secs(3)).unwrap();
        let clock = ClockReading { ours, micros: 1_000_000 };
        let ahead = clock.micros_at(Instant::now()) - 4_000_000;
        assert!((0..1_000_000).contains(&ahead), "{ahead}");
    }
}
