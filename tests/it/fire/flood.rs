//! Requests at a rate, whether or not the last ones have been answered; from a thread of its own, so
//! that it does not stand in the way of those whose answers are timed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::task::LocalSet;

use super::connection::Connection;
use super::record::{percentile, rate};

/// Longest pause of a connection between two looks whether it is over.
const LOOK: Duration = Duration::from_millis(200);

/// What a flood is made of.
pub struct Flood {
    pub address: SocketAddr,
    /// What is posted to `/graphql`, one after the other.
    pub bodies: Vec<String>,
    pub connections: usize,
    /// Requests a second; without it each connection sends the next when the last is answered.
    pub rate: Option<f64>,
    /// Whether each request comes on a connection of its own.
    pub reconnects: bool,
}

/// What became of a flood.
#[derive(Default)]
pub struct Flooded {
    pub time: Duration,
    pub sent: usize,
    /// How long good answers took …
    pub good: Vec<Duration>,
    /// … and answers that sent the client away.
    pub shed: Vec<Duration>,
    /// Everything else, by what it was.
    pub other: BTreeMap<String, usize>,
}

impl Flooded {
    pub fn sent_per_second(&self) -> f64 {
        rate(self.sent, self.time)
    }

    pub fn good_per_second(&self) -> f64 {
        rate(self.good.len(), self.time)
    }

    pub fn slow_shed(&self) -> Duration {
        percentile(self.shed.clone(), 95)
    }
}

/// A flood that goes on until it is told to stop.
pub struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Flooded>,
}

impl Flood {
    pub fn begin(self) -> Running {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(LocalSet::new().run_until(self.run(told)))
        });
        Running { stop, thread }
    }

    async fn run(self, stop: Arc<AtomicBool>) -> Flooded {
        let head = "POST /graphql HTTP/1.1\r\nhost: shop\r\ncontent-type: application/json\r\n";
        let request = |body: &String| format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        let requests: Rc<Vec<_>> = Rc::new(self.bodies.iter().map(request).collect());
        let (flooded, next) = (Rc::new(RefCell::new(Flooded::default())), Rc::new(Cell::new(0)));
        let began = Instant::now();
        let mut connections = Vec::new();
        for _ in 0..self.connections {
            let (flooded, next) = (flooded.clone(), next.clone());
            let (stop, requests) = (stop.clone(), requests.clone());
            let (address, rate, reconnects) = (self.address, self.rate, self.reconnects);
            connections.push(tokio::task::spawn_local(async move {
                let mut connection = None;
                while !stop.load(Ordering::Relaxed) {
                    let number: u32 = next.get();
                    if let Some(rate) = rate {
                        let turn = began + Duration::from_secs_f64(f64::from(number) / rate);
                        if turn > Instant::now() + LOOK {
                            tokio::time::sleep(LOOK).await;
                            continue;
                        }
                        next.set(number + 1);
                        tokio::time::sleep_until(turn.into()).await;
                    } else {
                        next.set(number + 1);
                    }
                    let request = &requests[number as usize % requests.len()];
                    let sent = Instant::now();
                    let told = send(&mut connection, address, request).await;
                    if reconnects {
                        connection = None;
                    }
                    flooded.borrow_mut().note(told, sent.elapsed());
                }
            }));
        }
        for connection in connections {
            connection.await.unwrap();
        }
        let mut flooded = flooded.take();
        flooded.time = began.elapsed();
        flooded
    }
}

/// What an answer says; empty for a good one.
async fn send(
    connection: &mut Option<Connection>,
    address: SocketAddr,
    request: &str,
) -> Result<String, String> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => Connection::open(address).await.map_err(|error| error.to_string())?,
    };
    let told = match open.send(request.as_bytes()).await {
        Ok((200, body)) if body.starts_with(b"{\"data\":{") => String::new(),
        Ok((503, body)) if contains(body, b"\"UNAVAILABLE\"") => "UNAVAILABLE".to_owned(),
        Ok((status, body)) => format!("{status} {}", String::from_utf8_lossy(body)),
        Err(error) => return Err(error.to_string()),
    };
    *connection = Some(open);
    Ok(told)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

impl Flooded {
    fn note(&mut self, told: Result<String, String>, took: Duration) {
        self.sent += 1;
        match told.unwrap_or_else(|error| error).as_str() {
            "" => self.good.push(took),
            "UNAVAILABLE" => self.shed.push(took),
            other => *self.other.entry(other.to_owned()).or_default() += 1,
        }
    }
}

impl Running {
    pub fn end(self) -> Flooded {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}
