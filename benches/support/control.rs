//! Lines between the benchmark and its workers, over a connection: a worker whose benchmark is
//! gone, however it went, reads the end of it and goes too.

use std::net::SocketAddr;

use tokio::net::TcpStream;

use super::Result;
use super::connection::{read_some, write_all};

/// Longest line: a few numbers.
const MAX_LINE: usize = 1_024;

/// One end of the connection.
pub(super) struct Control {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Control {
    /// Takes a connection over.
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, unread: Vec::new() }
    }

    /// Connects to the benchmark.
    pub(super) async fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self::new(TcpStream::connect(address).await?))
    }

    /// Sends a line.
    pub(super) async fn tell(&mut self, line: &str) -> Result<()> {
        write_all(&self.stream, format!("{line}\n").as_bytes()).await
    }

    /// The next line; `None` if the other end is gone.
    pub(super) async fn hear(&mut self) -> Result<Option<String>> {
        let mut chunk = [0; MAX_LINE];
        while self.unread.len() <= MAX_LINE {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let rest = self.unread.split_off(end + 1);
                self.unread.pop();
                return Ok(Some(String::from_utf8(std::mem::replace(&mut self.unread, rest))?));
            }
            match read_some(&self.stream, &mut chunk).await? {
                0 => return Ok(None),
                read => self.unread.extend_from_slice(&chunk[..read]),
            }
        }
        Err("a line that is too long".into())
    }
}
