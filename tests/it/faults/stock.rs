//! Buyers in several processes, and processes that are killed while they buy.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use vitrina::cache::Tiers;
use vitrina::clock::SystemClock;
use vitrina::config::StoreConfig;
use vitrina::inventory::model::{Mark, StockRow, Token};
use vitrina::inventory::service::{Reserved, Standing};
use vitrina::storage::{self, Store};
use vitrina::telemetry::Metrics;

use crate::contract::inventory::{key, reservation, service, stock};
use crate::support::stores::{address_of, cassandra_config, drop_keyspace};
use crate::support::{Random, seed};

/// What a process of buyers is to do: the store, the product, how many buyers, the seed.
const TASK: &str = "VITRINA_TEST_BUYERS";
/// Buyers of one process that are at it at once.
const AT_ONCE: usize = 60;

/// The orders of a process: their tokens follow from its seed, so that others know them too.
fn orders(seed: u64, count: u64) -> Vec<(Token, i64)> {
    let mut random = Random(seed);
    let order = |_| {
        let id = uuid::Uuid::from_u64_pair(random.next(), random.next());
        (Token::of_reservation(id), i64::try_from(1 + random.below(3)).unwrap())
    };
    (0..count).map(order).collect()
}

async fn open(store: &str) -> Arc<dyn Store> {
    let config = StoreConfig::parse(store).unwrap();
    let metrics = Arc::new(Metrics::default());
    storage::open(&config, Arc::new(SystemClock), metrics).await.unwrap()
}

/// Not a test by itself: the process of buyers that the tests below start. It says what each buyer
/// was told as soon as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_of_buyers() {
    let Ok(task) = std::env::var(TASK) else { return };
    let [store, product, buyers, seed] = task.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{task}")
    };
    let service = service(open(store).await, &Tiers::Off);
    let orders = orders(seed.parse().unwrap(), buyers.parse().unwrap());
    let say = |line: String| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}").unwrap();
        out.flush().unwrap();
    };
    say("\nready".to_owned());
    let mut go = String::new();
    std::io::stdin().read_line(&mut go).unwrap();
    stream::iter(orders)
        .for_each_concurrent(AT_ONCE, |(token, units)| {
            let (service, say) = (service.clone(), &say);
            async move {
                let order = reservation(&token, &[(product, units)]);
                // A failure tells nothing: ask again.
                for _ in 0..20 {
                    match service.reserve(&order).await {
                        Ok(Reserved::Held) => return say(format!("held {}", token.as_str())),
                        Ok(Reserved::Short(_)) => return say(format!("short {}", token.as_str())),
                        Ok(Reserved::Undone) => panic!("nobody has undone it"),
                        Err(_) => {}
                    }
                }
                say(format!("unknown {}", token.as_str()));
            }
        })
        .await;
    say("done".to_owned());
}

/// A process of buyers, ready to begin.
struct Buyers {
    child: Child,
    orders: Vec<(Token, i64)>,
    lines: Box<dyn Iterator<Item = String> + Send>,
}

impl Buyers {
    fn start(store: &str, product: &str, buyers: u64, seed: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "faults::stock::process_of_buyers", "--nocapture"])
            .env(TASK, format!("{store} {product} {buyers} {seed}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut lines: Box<dyn Iterator<Item = String> + Send> = Box::new(lines);
        assert!(lines.any(|line| line == "ready"), "the process opens its store");
        Self { child, orders: orders(seed, buyers), lines }
    }

    fn go(&mut self) {
        self.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }

    /// What its buyers were told, up to so many of them or the end.
    fn told(&mut self, count: usize) -> HashMap<String, String> {
        let told = self.lines.by_ref().filter_map(|line| {
            let (outcome, token) = line.split_once(' ')?;
            let is_told = matches!(outcome, "held" | "short" | "unknown");
            is_told.then(|| (token.to_owned(), outcome.to_owned()))
        });
        told.take(count).collect()
    }
}

impl Drop for Buyers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn assert_told_the_truth(row: &StockRow, told: &HashMap<String, String>) {
    for (token, outcome) in told {
        let mark = row.marks.get(&Token::new_unchecked(token.as_str()));
        match outcome.as_str() {
            "held" => assert!(matches!(mark, Some(Mark::Reserved(_))), "{token}: {mark:?}"),
            "short" => assert_eq!(mark, None, "{token}"),
            _ => {}
        }
    }
    let held = row.marks.values().map(|mark| if let Mark::Reserved(n) = mark { *n } else { 0 });
    assert_eq!(row.level.reserved, held.sum::<i64>());
    assert!(0 <= row.level.reserved && row.level.reserved <= row.level.quantity, "{row:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_never_sell_what_is_not_there() {
    let Some(config) = cassandra_config() else { return };
    let mut random = Random(seed());
    let text = address_of(&config);
    let store = open(&text).await;
    for round in 0..4 {
        let product = format!("P{round}");
        stock(store.as_ref(), &[(&product, 300)]).await;
        let mut processes: Vec<_> =
            (0..3).map(|_| Buyers::start(&text, &product, 200, random.next())).collect();
        processes.iter_mut().for_each(Buyers::go);
        let mut told = HashMap::new();
        for process in &mut processes {
            told.extend(process.told(usize::MAX));
        }
        assert_eq!(told.len(), 600, "everybody was told something");
        let row = store.stock_row(&key(&product)).await.unwrap().unwrap();
        assert_told_the_truth(&row, &told);
        // The smallest order is 1: as long as somebody was refused, at most 2 are left.
        assert!(row.level.available() < 3, "{:?}", row.level);
    }
    drop(store);
    drop_keyspace(&StoreConfig::Cassandra(config)).await;
}

/// Kills processes while they buy; whatever they were told is true, and once what they left behind
/// is undone, every unit is back.
async fn killed_while_buying(text: &str, processes: usize) {
    let mut random = Random(seed());
    for round in 0..3 {
        let product = format!("P{round}");
        {
            let store = open(text).await;
            stock(store.as_ref(), &[(&product, 2_000)]).await;
        }
        let mut buyers: Vec<_> =
            (0..processes).map(|_| Buyers::start(text, &product, 3_000, random.next())).collect();
        buyers.iter_mut().for_each(Buyers::go);
        let mut told = HashMap::new();
        for process in &mut buyers {
            let some = 20 + usize::try_from(random.below(200)).unwrap();
            told.extend(process.told(some));
            process.child.kill().unwrap();
            // What it had said before it died counts as well.
            told.extend(process.told(usize::MAX));
            process.child.wait().unwrap();
        }
        let store = open(text).await;
        let row = store.settled_stock_row(&key(&product)).await.unwrap().unwrap();
        assert_told_the_truth(&row, &told);
        // The recovery of a checkout: what is recorded stands, everything else is undone.
        let service = service(store.clone(), &Tiers::Off);
        let mut kept = 0;
        let all: Vec<_> = buyers.iter().flat_map(|process| process.orders.clone()).collect();
        let undone = stream::iter(&all).for_each_concurrent(AT_ONCE, |(token, units)| {
            let (service, product) = (service.clone(), &product);
            let is_kept = told.get(token.as_str()).is_some_and(|outcome| outcome == "held");
            kept += if is_kept { *units } else { 0 };
            async move {
                let order = reservation(token, &[(product, *units)]);
                if is_kept {
                    service.settle(&order).await.unwrap();
                } else {
                    service.release(&order, Standing::Unknown).await.unwrap();
                }
            }
        });
        undone.await;
        let row = store.stock_row(&key(&product)).await.unwrap().unwrap();
        assert_eq!((row.level.quantity, row.level.reserved), (2_000, kept), "round {round}");
        assert!(kept > 0, "somebody was told before the end");
        drop(service);
        // Writers remember their rows for a moment, and the folder with them.
        while Arc::strong_count(&store) > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_lose_and_double_nothing_embedded() {
    let dir = tempfile::tempdir().unwrap();
    killed_while_buying(&format!("embedded:{}", dir.path().display()), 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_lose_and_double_nothing_cassandra() {
    let Some(config) = cassandra_config() else { return };
    let text = address_of(&config);
    killed_while_buying(&text, 3).await;
    drop_keyspace(&StoreConfig::Cassandra(config)).await;
}
