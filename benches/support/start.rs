//! From starting the binary to being ready, with the demo already loaded, and its memory.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use vitrina::demo::DEFAULT_PRODUCTS;

use super::Result;
use super::connection::Connection;
use super::figures::{megabytes, print_table, spread};
use super::http::{self, Until};
use super::process::{Process, vitrina};
use super::requests::{Kind, Requests};
use super::roles::SHOP;
use super::worker::folder;

/// How often it is started; the median is reported.
const RUNS: usize = 7;
/// How often it is asked whether it is ready.
const POLL: Duration = Duration::from_millis(1);
/// How long it may take.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Connections that the requests after the start come over …
const CONNECTIONS: usize = 8;
/// … and requests on each of them: 1,000 together.
const REQUESTS_EACH: u64 = 125;

/// Measures and prints.
pub(crate) async fn run() -> Result<()> {
    let folder = folder()?;
    let store = format!("embedded:{}", folder.path().join("data").display());
    let products = DEFAULT_PRODUCTS.to_string();
    let mut filling = vitrina(&["demo", "--products", &products, "--store", &store]);
    let mut filling = Process::start(&mut filling, &folder.path().join("demo.log"))?;
    let filled = async {
        loop {
            if let Some(status) = filling.ended()? {
                return Ok::<_, super::Error>(status);
            }
            tokio::time::sleep(POLL).await;
        }
    };
    if !tokio::time::timeout(READY_WITHIN, filled).await??.success() {
        return Err(format!("the demo was not loaded: {}", filling.last_words()).into());
    }
    let (mut times, mut idle, mut warm) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let figures = start(&store, folder.path()).await?;
        times.push(figures.ready.as_secs_f64() * 1e3);
        idle.push(megabytes(figures.idle));
        warm.push(megabytes(figures.warm));
    }
    let row = |name: &str, figure: String| vec![name.to_owned(), figure];
    let rows = [
        row("start to ready", spread(&times, "ms")),
        row("memory when ready (VmRSS)", spread(&idle, "MB")),
        row("memory after 1,000 cards (VmRSS)", spread(&warm, "MB")),
    ];
    let heading = format!(
        "vitrina serve, embedded store with 2,000 products (median of {RUNS} starts, min–max)"
    );
    print_table(&heading, &rows);
    Ok(())
}

struct Figures {
    ready: Duration,
    idle: u64,
    warm: u64,
}

async fn start(store: &str, folder: &Path) -> Result<Figures> {
    let address = free_address().await?;
    let mut serve = vitrina(&["serve", "--store", store, "--listen", &address.to_string()]);
    let started = Instant::now();
    let mut server = Process::start(&mut serve, &folder.join("serve.log"))?;
    let ready = async {
        while !is_ready(address).await {
            if server.ended()?.is_some() {
                return Err("it ended".into());
            }
            tokio::time::sleep(POLL).await;
        }
        Ok::<_, super::Error>(started.elapsed())
    };
    let ready = tokio::time::timeout(READY_WITHIN, ready).await.unwrap_or_else(|e| Err(e.into()));
    let ready = ready.map_err(|error| {
        format!("the server is not ready: {error}; its log: {}", server.last_words())
    })?;
    let memory = || server.memory("VmRSS").ok_or("the server is gone");
    let idle = memory()?;
    let mut connections = http::connect(address, CONNECTIONS).await?;
    let requests = Requests::new(Kind::Card, SHOP);
    http::load(&mut connections, &requests, Until::Count(REQUESTS_EACH)).await?;
    let warm = memory()?;
    // An open connection may keep a server from stopping.
    drop(connections);
    server.stop().await?;
    Ok(Figures { ready, idle, warm })
}

/// A port that is free now; nobody else on the machine is expected to take it in a moment.
async fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?)
}

async fn is_ready(address: SocketAddr) -> bool {
    match Connection::open(address).await {
        Ok(mut connection) => connection.get("/health/ready").await.is_ok_and(|code| code == 200),
        Err(_) => false,
    }
}
