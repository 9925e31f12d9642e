//! The load generator: HTTP/1.1 connections that stay open, on one thread, with as little parsing
//! as will do, so that it is not what limits the server.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::net::TcpStream;

use super::Result;
use super::figures::Load;
use super::requests::Requests;

/// Largest answer, head and body: 24 cards with all their attributes fit in several times over.
const MAX_ANSWER: usize = 256 << 10;
/// Longest wait for an answer: longer than the server's own deadline.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// When a load ends.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// Nothing new is sent after so long.
    Time(Duration),
    /// So many requests are sent on each connection.
    Count(u64),
}

/// A connection, and the room for what goes over it.
pub(super) struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub(super) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, request: Vec::new(), answer: vec![0; MAX_ANSWER] })
    }

    /// Connects several times.
    pub(super) async fn open_many(address: SocketAddr, many: usize) -> Result<Vec<Self>> {
        try_join_all((0..many).map(|_| Self::open(address))).await
    }

    /// The status of a page.
    pub(super) async fn get(&mut self, path: &str) -> Result<u16> {
        self.request = format!("GET {path} HTTP/1.1\r\nhost: shop\r\n\r\n").into_bytes();
        Ok(self.exchange().await?.0)
    }

    /// Sends a request; the status and the body of the answer.
    pub(super) async fn send(&mut self, request: &[u8]) -> Result<(u16, &[u8])> {
        request.clone_into(&mut self.request);
        tokio::time::timeout(ANSWER_WITHIN, self.exchange()).await?
    }

    /// Sends the request that lies ready; the status and the body of the answer.
    async fn exchange(&mut self) -> Result<(u16, &[u8])> {
        write_all(&self.stream, &self.request).await?;
        let mut filled = 0;
        let mut end = None;
        loop {
            let room = &mut self.answer[filled..];
            if room.is_empty() {
                return Err(format!("an answer of more than {MAX_ANSWER} bytes").into());
            }
            match read_some(&self.stream, room).await? {
                0 => return Err("the server closed the connection".into()),
                read => filled += read,
            }
            if end.is_none() {
                end = Head::find(&self.answer[..filled])?;
            }
            if let Some(Head { status, body, end }) = end
                && filled >= end
            {
                return Ok((status, &self.answer[body..end]));
            }
        }
    }
}

/// What matters of an answer's head.
#[derive(Clone, Copy)]
struct Head {
    status: u16,
    /// Where the body begins …
    body: usize,
    /// … and ends.
    end: usize,
}

impl Head {
    /// `None` if the head is not complete yet.
    fn find(bytes: &[u8]) -> Result<Option<Self>> {
        let Some(head_end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = std::str::from_utf8(&bytes[..head_end])?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let length = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim())
        });
        let status = status.ok_or("an answer without a status")?.parse()?;
        let length: usize = length.ok_or("an answer without its length")?.parse()?;
        let body = head_end + 4;
        Ok(Some(Self { status, body, end: body + length }))
    }
}

/// Keeps all connections busy with requests of one kind until it is time to end.
pub(super) async fn load(
    connections: &mut [Connection],
    requests: &Requests,
    until: Until,
) -> Result<Load> {
    let started = Instant::now();
    let busy = connections.iter_mut().map(|connection| keep_busy(connection, requests, until));
    let times = try_join_all(busy).await?;
    Ok(Load::new(started.elapsed(), times.concat()))
}

async fn keep_busy(
    connection: &mut Connection,
    requests: &Requests,
    until: Until,
) -> Result<Vec<Duration>> {
    let started = Instant::now();
    let (mut times, mut place) = (Vec::new(), 0);
    loop {
        let is_over = match until {
            Until::Time(time) => started.elapsed() >= time,
            Until::Count(count) => times.len() as u64 >= count,
        };
        if is_over {
            return Ok(times);
        }
        place = requests.next(place, times.len());
        requests.write(place, &mut connection.request);
        let sent = Instant::now();
        let (status, body) = tokio::time::timeout(ANSWER_WITHIN, connection.exchange()).await??;
        times.push(sent.elapsed());
        if status != 200 || !requests.is_answer(body) {
            let body = String::from_utf8_lossy(body);
            return Err(format!("an answer that is none of these: status {status}, {body}").into());
        }
    }
}

/// Reads what is there, once something is; 0 at the end of the stream.
pub(super) async fn read_some(stream: &TcpStream, into: &mut [u8]) -> Result<usize> {
    loop {
        match stream.try_read(into) {
            Ok(read) => return Ok(read),
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.readable().await?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes all of it.
pub(super) async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
