//! Clients that mean harm, beside those who do not.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::clients::{Crowd, Load};
use super::connection::Connection;
use super::record::{Kind, Record, Stretch, millis, percentile};
use super::shop::{Instances, Setting};
use super::{by_version, is_long, stretch};
use crate::support::documents::bomb;

const VISITORS: Crowd =
    Crowd { browsing: 4, looking: 0, filling: 0, buying: 0, pause: Duration::from_millis(5) };
/// Pause of a slow client between two bytes.
const DRIP: Duration = Duration::from_millis(430);
/// Fragments of a bomb, each of which has the next one in it twice.
const FRAGMENTS: usize = 24;
/// Clients that throw bombs.
const BOMBERS: usize = 4;
/// Two attacks at once would be one.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
/// How soon a bomb is to be refused …
const REFUSED_WITHIN: Duration = Duration::from_millis(50);
/// … and what tens of thousands of them may leave behind: a part of what caches hold.
const MORE_MEMORY: u64 = 32 << 20;

async fn open(dir: &tempfile::TempDir, args: &[&str]) -> Instances {
    let store = format!("embedded:{}", dir.path().join("data").display());
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    Instances::open(Setting { args, ..Setting::of(&store) }, 1).await
}

/// Visitors alone, and beside an attack.
async fn beside<T>(
    instances: &Instances,
    attack: impl AsyncFnOnce() -> T,
) -> (Stretch, Stretch, T) {
    let load = Load::start(instances.front(), VISITORS, "", crate::support::seed());
    tokio::time::sleep(stretch(0.5, 2.0)).await;
    let began = Instant::now();
    tokio::time::sleep(stretch(1.5, 20.0)).await;
    let attacked = Instant::now();
    let told = attack().await;
    let over = Instant::now();
    let record: &Record = &load.end().await.record;
    (record.between(began, attacked), record.between(attacked, over), told)
}

fn print(name: &str, before: &Stretch, during: &Stretch, more: &str) {
    let p99 = |stretch: &Stretch| stretch.percentile(Kind::Browse, 99);
    println!(
        "{name}: visitors {:.0} → {:.0} answers/s, p99 {} → {} ({:.2} ×), errors {}; {more}",
        before.per_second(),
        during.per_second(),
        millis(p99(before)),
        millis(p99(during)),
        p99(during).as_secs_f64() / p99(before).as_secs_f64(),
        during.errors_in_words(),
    );
}

/// A request of a few hundred bytes for millions of fields.
fn bomb_request(number: usize) -> String {
    let query = format!("query Bomb{number} {{ ...F0 }} {}", bomb(FRAGMENTS));
    let body = json!({ "query": query }).to_string();
    format!(
        "POST /graphql HTTP/1.1\r\nhost: shop\r\ncontent-type: application/json\r\n\
         x-forwarded-for: 203.0.113.9\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// From an address that a proxy names, with the shares that every address has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fragment_bombs_from_one_address_do_not_go_off() {
    let (before, during) = bombed("from one address", &["--proxies", "1"]).await;
    if is_long() {
        let p99 = |stretch: &Stretch| stretch.percentile(Kind::Browse, 99);
        assert!(p99(&during) <= p99(&before) * 2, "others wait");
    }
}

/// As many as the machine can take: those on the same machine have no share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fragment_bombs_without_end_do_not_go_off() {
    bombed("without end", &[]).await;
}

/// Visitors before and while bombs are thrown.
async fn bombed(name: &str, args: &[&str]) -> (Stretch, Stretch) {
    let _alone = ALONE.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let instances = open(&dir, args).await;
    let address: std::net::SocketAddr =
        instances.server(0).base.trim_start_matches("http://").parse().unwrap();
    let memory = instances.server(0).memory();
    let time = stretch(1.5, 20.0);
    let throw = async |bomber: usize| {
        let mut connection = Connection::open(address).await.unwrap();
        let (mut times, began) = (Vec::new(), Instant::now());
        let mut limited = 0;
        while began.elapsed() < time {
            // Every one is new to the server.
            let request = bomb_request((times.len() + limited) * BOMBERS + bomber);
            let sent = Instant::now();
            let (status, body) = connection.send(request.as_bytes()).await.unwrap();
            let told = String::from_utf8_lossy(body);
            if status == 429 {
                limited += 1;
            } else {
                times.push(sent.elapsed());
                assert!(told.contains("QUERY_TOO_COMPLEX"), "{told}");
            }
        }
        (times, limited)
    };
    let (before, during, thrown) =
        beside(&instances, async || futures_util::future::join_all((0..BOMBERS).map(throw)).await)
            .await;
    let (times, limited): (Vec<_>, Vec<usize>) = thrown.into_iter().unzip();
    let times = times.concat();
    let more = format!(
        "{} bombs looked at, {} sent away before; refused within {} (p99), {} at most; memory {} → {} MB",
        times.len(),
        limited.iter().sum::<usize>(),
        millis(percentile(times.clone(), 99)),
        millis(percentile(times.clone(), 100)),
        memory >> 20,
        instances.server(0).memory() >> 20,
    );
    print(&format!("fragment bombs {name}"), &before, &during, &more);
    during.assert_no_errors(&["TIMEOUT"]);
    assert!(during.good() > 0 && !times.is_empty());
    if is_long() {
        assert!(percentile(times, 99) <= REFUSED_WITHIN, "refusals are slow");
        let grown = instances.server(0).memory().saturating_sub(memory);
        assert!(grown < MORE_MEMORY, "{grown} bytes of memory more");
    }
    (before, during)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_are_cut_off_and_hold_up_nobody() {
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let instances = open(&dir, &[]).await;
    let address = instances.server(0).base.trim_start_matches("http://").to_owned();
    let memory = instances.server(0).memory();
    let head = "POST /graphql HTTP/1.1\r\nhost: shop\r\ncontent-type: application/json\r\n\
                content-length: 100000\r\n\r\n{";
    let crawl = async |_| {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let began = Instant::now();
        let (mut read, mut write) = stream.split();
        let drip = async {
            while write.write_all(b" ").await.is_ok() {
                tokio::time::sleep(DRIP).await;
            }
            std::future::pending::<()>().await;
        };
        let mut told = [0; 512];
        let told = tokio::select! {
            () = drip => unreachable!("it waits for ever in the end"),
            read = read.read(&mut told) => match read {
                Ok(length) => String::from_utf8_lossy(&told[..length]).into_owned(),
                Err(error) => error.to_string(),
            },
        };
        (began.elapsed(), told)
    };
    let count = by_version(100, 2_000);
    let (before, during, ends) =
        beside(&instances, async || futures_util::future::join_all((0..count).map(crawl)).await)
            .await;
    let times: Vec<_> = ends.iter().map(|(time, _)| *time).collect();
    let more = format!(
        "{count} of them, cut off after {} at most; memory {} → {} MB",
        millis(percentile(times, 100)),
        memory >> 20,
        instances.server(0).memory() >> 20,
    );
    print("slow bodies", &before, &during, &more);
    during.assert_no_errors(&["TIMEOUT"]);
    let unheard: Vec<_> =
        ends.iter().filter(|(_, told)| !told.starts_with("HTTP/1.1 504 ")).collect();
    assert!(unheard.is_empty(), "{} were not told why: {unheard:?}", unheard.len());
}
