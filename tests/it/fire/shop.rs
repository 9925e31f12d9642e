//! Instances of the shop as processes, and the front that clients see of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vitrina::server::Role;

use super::record::{Kind, Record};
use crate::support::http::{Answer, HttpClient};
use crate::support::process::{ServerProcess, vitrina};
use crate::support::server::{SECRET, token};

pub const ZONE: &str = "Москва";
pub const CATEGORY: &str = "Под огнём";
/// Products that there is enough of, whoever buys them.
pub const PRODUCTS: u64 = 200;
pub const PLENTY: i64 = 1_000_000;
/// Products that are written at once.
const BATCH: u64 = 50;
/// Waiting for a shop that is just starting, or mending.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a client waits after a failure that does not say how long.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest that it waits if it is told how long.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub fn product(number: u64) -> String {
    format!("FIRE-{number:03}")
}

pub fn staff() -> String {
    token("boss", Role::Staff)
}

/// How instances are started.
#[derive(Clone)]
pub struct Setting {
    pub store: String,
    pub cache: String,
    /// More of the command line.
    pub args: Vec<String>,
    /// The only core that they may use.
    pub core: Option<usize>,
}

impl Setting {
    pub fn of(store: &str) -> Self {
        Self { store: store.to_owned(), cache: "memory".to_owned(), args: vec![], core: None }
    }

    /// Starts an instance; `listen` is `127.0.0.1:0` for any port.
    pub fn start(&self, listen: &str) -> ServerProcess {
        let mut command = vitrina(&["serve", "--no-demo", "--listen", listen]);
        if let Some(core) = self.core {
            let mut pinned = std::process::Command::new("taskset");
            pinned
                .args(["-c", &core.to_string()])
                .arg(command.get_program())
                .args(command.get_args());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => pinned.env(name, value),
                    None => pinned.env_remove(name),
                };
            }
            command = pinned;
        }
        command.args(["--store", &self.store, "--cache", &self.cache]).args(&self.args);
        ServerProcess::spawn(command.env("VITRINA_JWT_SECRET", SECRET))
    }
}

/// Instances at addresses that stay the same when they are started anew.
pub struct Instances {
    setting: Setting,
    servers: Vec<ServerProcess>,
}

impl Instances {
    /// Starts so many, and fills the shop.
    pub async fn open(setting: Setting, count: usize) -> Self {
        let servers = (0..count).map(|_| setting.start("127.0.0.1:0")).collect();
        let instances = Self { setting, servers };
        fill(&instances.front()).await;
        instances
    }

    pub fn server(&self, number: usize) -> &ServerProcess {
        &self.servers[number]
    }

    /// `kill -9` of one, which is started again at once, at the same address.
    pub async fn kill_and_restart(&mut self, number: usize) {
        self.servers[number].kill();
        let listen = self.servers[number].base.trim_start_matches("http://").to_owned();
        let setting = self.setting.clone();
        let started = tokio::task::spawn_blocking(move || setting.start(&listen));
        self.servers[number] = started.await.unwrap();
    }

    pub fn front(&self) -> Front {
        Front(self.servers.iter().map(|server| server.http.clone()).collect())
    }
}

/// What clients see: an instance that refuses to connect is passed over, as by any proxy.
#[derive(Clone)]
pub struct Front(Vec<HttpClient>);

impl Front {
    /// Asks once. What went wrong is an error's code, or what became of the connection.
    pub async fn ask(
        &self,
        turn: u64,
        token: Option<&str>,
        body: &Value,
    ) -> Result<Answer, String> {
        let count = self.0.len() as u64;
        for shift in 0..count {
            let instance = &self.0[usize::try_from((turn + shift) % count).unwrap()];
            match instance.try_post(token, body).await {
                Err(error) if error.contains("ConnectionRefused") => {}
                Err(error) if error == "no answer" => return Err(error),
                Err(_) => return Err("connection lost".to_owned()),
                answered => return answered,
            }
        }
        Err("connection refused".to_owned())
    }

    /// Asks until it is answered, as whoever prepares or audits a shop.
    pub async fn must(&self, token: &str, query: &str, variables: Value) -> Value {
        let body = json!({ "query": query, "variables": variables });
        let began = Instant::now();
        loop {
            let told = match self.ask(0, Some(token), &body).await {
                Ok(answer) if answer.code().is_empty() => return answer.json()["data"].take(),
                Ok(answer) => answer.text(),
                Err(error) => error,
            };
            assert!(began.elapsed() < PATIENCE, "{told}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// A client that counts what it is told.
pub struct Client {
    pub front: Front,
    pub record: Arc<Record>,
    /// Which instance is next.
    pub turn: u64,
}

impl Client {
    /// Asks once; the data of a good answer. After a failure it waits for a moment.
    pub async fn ask(&mut self, kind: Kind, token: Option<&str>, body: &Value) -> Option<Value> {
        self.turn += 1;
        let began = Instant::now();
        let (error, pause) = match self.front.ask(self.turn, token, body).await {
            Ok(answer) => {
                let mut json = answer.json();
                let error = &json["errors"][0]["extensions"];
                let Some(code) = error["code"].as_str() else {
                    self.record.note(kind, began, None);
                    return Some(json["data"].take());
                };
                let told = error["retryAfterMs"].as_u64().map(Duration::from_millis);
                (code.to_owned(), told.unwrap_or(PAUSE).min(LONGEST_PAUSE))
            }
            Err(error) => (error, PAUSE),
        };
        self.record.note(kind, began, Some(error));
        tokio::time::sleep(pause).await;
        None
    }
}

/// Products, and plenty of each.
async fn fill(front: &Front) {
    for begin in (0..PRODUCTS).step_by(usize::try_from(BATCH).unwrap()) {
        let numbers = begin..(begin + BATCH).min(PRODUCTS);
        let products: Vec<_> = numbers.clone().map(|n| card(&product(n), 100 + n)).collect();
        let stock: Vec<_> = numbers.map(|n| level(&product(n), PLENTY)).collect();
        put(front, &products, &stock).await;
    }
}

/// A product of which there are only so many.
pub async fn add_scarce(front: &Front, id: &str, units: i64) {
    put(front, &[card(id, 1_000)], &[level(id, units)]).await;
}

async fn put(front: &Front, products: &[Value], stock: &[Value]) {
    let query = "mutation($p: [ProductInput!]!, $s: [StockInput!]!) {
        productsUpsert(products: $p) { userErrors { message } }
        stockSet(entries: $s) { userErrors { message } } }";
    let done = front.must(&staff(), query, json!({ "p": products, "s": stock })).await;
    for part in ["productsUpsert", "stockSet"] {
        assert_eq!(done[part]["userErrors"], json!([]));
    }
}

fn card(id: &str, price: u64) -> Value {
    json!({ "id": id, "name": format!("Товар {id}"), "category": CATEGORY,
            "price": { "amount": price.to_string() } })
}

fn level(id: &str, units: i64) -> Value {
    json!({ "productId": id, "geoZone": ZONE, "quantity": units })
}
