//! The load generator: HTTP/1.1 connections that stay open, on one thread, with as little parsing
//! as will do, so that it is not what limits the server.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use super::Result;
use super::connection::Connection;
use super::figures::Load;
use super::requests::Requests;

/// When a load ends.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// Nothing new is sent after so long.
    Time(Duration),
    /// So many requests are sent on each connection.
    Count(u64),
}

/// Connections that are asked for at once: a listener's queue takes so many before the system lets
/// the others wait for a second.
const CONNECT_AT_ONCE: usize = 256;

/// What a load did, as a whole and by the parts of a mix.
pub(super) struct Seen {
    pub(super) load: Load,
    pub(super) parts: Vec<Load>,
    /// Answers that are none, and the first of them.
    pub(super) failed: u64,
    pub(super) first_failure: Option<String>,
}

/// The time of each good answer with its part, and what was no good answer.
#[derive(Default)]
struct Answered {
    times: Vec<(usize, Duration)>,
    failed: u64,
    first_failure: Option<String>,
}

/// Connects several times.
pub(super) async fn connect(address: SocketAddr, many: usize) -> Result<Vec<Connection>> {
    let mut connections = Vec::with_capacity(many);
    while connections.len() < many {
        let some = CONNECT_AT_ONCE.min(many - connections.len());
        connections.extend(try_join_all((0..some).map(|_| Connection::open(address))).await?);
    }
    Ok(connections)
}

/// Keeps all connections busy with requests until it is time to end. What is no good answer is an
/// error.
pub(super) async fn load(
    connections: &mut [Connection],
    requests: &Requests,
    until: Until,
) -> Result<Load> {
    let all = connections.len();
    Ok(load_apart(connections, requests, (all, 0), until).await?.load)
}

/// The same with so many of the connections busy at once: each of them takes its turn, one request
/// at a time. So many bad answers of each turn-taking are counted; one more is an error.
pub(super) async fn load_apart(
    connections: &mut [Connection],
    requests: &Requests,
    (busy, may_fail): (usize, u64),
    until: Until,
) -> Result<Seen> {
    let started = Instant::now();
    let each = connections.len().div_ceil(busy.max(1)).max(1);
    let loops = connections.chunks_mut(each).map(|some| keep_busy(some, requests, may_fail, until));
    let all = try_join_all(loops).await?;
    let elapsed = started.elapsed();
    let failed = all.iter().map(|times| times.failed).sum();
    let first_failure = all.iter().find_map(|times| times.first_failure.clone());
    let times: Vec<(usize, Duration)> = all.into_iter().flat_map(|times| times.times).collect();
    let of = |part: usize| {
        let own = times.iter().filter(|(of, _)| *of == part).map(|(_, time)| *time);
        Load::new(elapsed, own.collect())
    };
    let parts = (0..requests.parts()).map(of).collect();
    let load = Load::new(elapsed, times.iter().map(|(_, time)| *time).collect());
    Ok(Seen { load, parts, failed, first_failure })
}

async fn keep_busy(
    connections: &mut [Connection],
    requests: &Requests,
    may_fail: u64,
    until: Until,
) -> Result<Answered> {
    let started = Instant::now();
    let (mut seen, mut turns) = (Answered::default(), requests.turns());
    let mut at = 0;
    loop {
        let is_over = match until {
            Until::Time(time) => started.elapsed() >= time,
            Until::Count(count) => seen.times.len() as u64 >= count,
        };
        let next = if is_over { None } else { requests.next(&mut turns) };
        let Some(next) = next else { return Ok(seen) };
        let connection = &mut connections[at];
        requests.write(next, &mut connection.request);
        let sent = Instant::now();
        let (status, body) = connection.exchange().await?;
        let took = sent.elapsed();
        if status == 200 && requests.is_answer(next, body) {
            seen.times.push((next.0, took));
        } else {
            let body = String::from_utf8_lossy(body);
            let failure = format!("an answer that is none of these: status {status}, {body}");
            if seen.failed >= may_fail {
                return Err(failure.into());
            }
            seen.failed += 1;
            seen.first_failure.get_or_insert(failure);
        }
        at = (at + 1) % connections.len();
    }
}
