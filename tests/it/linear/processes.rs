//! Histories of real processes: staff adjust quantities over HTTP, and one of the processes is
//! killed in the middle, while the test's own instance buys and sells.

use std::sync::Mutex;

use futures_util::future::join_all;
use serde_json::{Value, json};
use vitrina::config::StoreConfig;
use vitrina::server::Role;

use super::model::{Answer, Call, Seen};
use super::play::Plan;
use super::runs::{FIRST_ANSWERS, PLAN, all_are_linearizable, histories, history_name};
use super::scene::{Instance, Scene, row_name};
use crate::contract::inventory::ZONE;
use crate::support::http::HttpClient;
use crate::support::process::ServerProcess;
use crate::support::server::token;
use crate::support::stores::{TestStore, address_of, cassandra_config, drop_keyspace};
use crate::support::{draft, seed};

/// Histories; in each of them a process is killed.
const HISTORIES: u64 = 1;
/// Adjustments that each member of staff makes in a stretch.
const ADJUSTMENTS: i64 = 3;

const ADJUST: &str = "mutation($entries: [StockAdjustInput!]!) { \
                      stockAdjust(entries: $entries) { stocks { available } userErrors { code } } }";

/// A member of staff, who goes to another process when one does not answer.
struct Staff<'a> {
    who: &'static str,
    doors: [HttpClient; 2],
    token: &'a str,
}

impl Staff<'_> {
    async fn adjust(&self, scene: &Scene, row: &str, delta: i64) {
        let name = scene.name();
        let entry = json!({
            "productId": row,
            "geoZone": ZONE,
            "delta": delta,
            "idempotencyKey": name.to_string(),
        });
        let body = json!({ "query": ADJUST, "variables": { "entries": [entry] } });
        for door in &self.doors {
            let begun = scene.recorder.begin(self.who, row, Call::Adjust(name, delta));
            let seen = scene.recorder.begin_after(self.who, row, Call::Read, Some(begun));
            let told = door.try_post(Some(self.token), &body).await.map(|answer| answer.json());
            let payload = told.as_ref().map(|told| &told["data"]["stockAdjust"]);
            match payload {
                Ok(Value::Object(payload)) => {
                    if let Some(available) = payload["stocks"][0]["available"].as_i64() {
                        let told = Seen { available, ..Seen::default() };
                        scene.recorder.end(begun, Answer::Done);
                        scene.recorder.end(seen, Answer::Seen(told));
                    } else {
                        assert_eq!(payload["userErrors"][0]["code"], "BELOW_RESERVED");
                        scene.recorder.end(begun, Answer::Below);
                    }
                    return;
                }
                _ => scene.recorder.failed(self.who, &told),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_of_which_one_is_killed() {
    let Some(config) = cassandra_config() else { return };
    let text = address_of(&config);
    let store = TestStore::open_on(StoreConfig::Cassandra(config)).await;
    let count = histories(HISTORIES);
    let names = (0..count)
        .flat_map(|index| (0..PLAN.rows).map(move |row| row_name(&history_name(index), row)));
    store.upsert(names.map(|name| draft(&name, "Связь", 100)).collect()).await;
    let start = || ServerProcess::start_with(&text, &[]);
    let (lasting, mortal) = (start(), Mutex::new(None));
    let token = token("staff", Role::Staff);
    *mortal.lock().unwrap() = Some(start());
    let kill = async |scene: &Scene, _| {
        let dies = mortal.lock().unwrap().get_or_insert_with(start).http.clone();
        let lasts = lasting.http.clone();
        let staff = [
            Staff { who: "lasting", doors: [lasts.clone(), lasts.clone()], token: &token },
            Staff { who: "mortal", doors: [dies.clone(), lasts.clone()], token: &token },
            Staff { who: "mortal", doors: [dies, lasts], token: &token },
        ];
        let working = staff.iter().enumerate().map(async |(at, one)| {
            for delta in 1..=ADJUSTMENTS {
                let row = &scene.rows[(at + usize::from(delta % 2 == 0)) % scene.rows.len()];
                one.adjust(scene, row, delta - 2 * (delta % 2)).await;
            }
        });
        let killing = async {
            scene.recorder.answers(FIRST_ANSWERS).await;
            scene.recorder.event("a process is killed");
            // Dropped, it is killed.
            mortal.lock().unwrap().take();
        };
        tokio::join!(join_all(working), killing);
    };
    let instances = [Instance::new("test", store.store.clone())];
    let plan = Plan { clients: 2, stretches: 1, ..PLAN };
    all_are_linearizable(&instances, plan, (seed(), count), kill).await;
    drop((lasting, mortal));
    drop_keyspace(&store.config).await;
}
