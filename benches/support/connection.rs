//! An HTTP/1.1 connection that stays open, with as little parsing as will do: whoever measures a
//! server with it is not what limits the server. (The tests that flood a server use it, too.)

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;

/// Why there is no answer, for a person.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

/// Largest answer, head and body: 24 cards with all their attributes fit in several times over.
const MAX_ANSWER: usize = 256 << 10;
/// The room that a connection begins with.
const USUAL_ANSWER: usize = 16 << 10;
/// Longest wait for an answer: longer than the server's own deadline.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A connection, and the room for what goes over it.
pub(crate) struct Connection {
    stream: TcpStream,
    /// What is sent next.
    pub(crate) request: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, request: Vec::new(), answer: vec![0; USUAL_ANSWER] })
    }

    /// The status of a page.
    pub(crate) async fn get(&mut self, path: &str) -> Result<u16> {
        self.request = format!("GET {path} HTTP/1.1\r\nhost: shop\r\n\r\n").into_bytes();
        Ok(self.exchange().await?.0)
    }

    /// Sends a request; the status and the body of the answer.
    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<(u16, &[u8])> {
        request.clone_into(&mut self.request);
        self.exchange().await
    }

    /// Sends the request that lies ready; the status and the body of the answer.
    pub(crate) async fn exchange(&mut self) -> Result<(u16, &[u8])> {
        tokio::time::timeout(ANSWER_WITHIN, self.exchange_patiently()).await?
    }

    async fn exchange_patiently(&mut self) -> Result<(u16, &[u8])> {
        write_all(&self.stream, &self.request).await?;
        let mut filled = 0;
        let mut end = None;
        loop {
            if filled == self.answer.len() {
                if filled >= MAX_ANSWER {
                    return Err(format!("an answer of more than {MAX_ANSWER} bytes").into());
                }
                self.answer.resize(2 * filled, 0);
            }
            match read_some(&self.stream, &mut self.answer[filled..]).await? {
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

/// Reads what is there, once something is; 0 at the end of the stream.
pub(crate) async fn read_some(stream: &TcpStream, into: &mut [u8]) -> Result<usize> {
    loop {
        match stream.try_read(into) {
            Ok(read) => return Ok(read),
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.readable().await?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes all of it.
pub(crate) async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
