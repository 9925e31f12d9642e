//! `kill -9` of a server on the embedded store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use vitrina::server::Role;

use crate::support::process::ServerProcess;
use crate::support::server::token;
use crate::support::{Random, seed};

/// How often the server is killed.
const ROUNDS: u64 = 6;
/// Clients that write at the same time.
const WRITERS: u64 = 8;
/// How many acknowledged writes a round waits for before it kills, at the most.
const WRITES_BEFORE_KILL: u64 = 120;

const UPSERT: &str = "mutation($p: [ProductInput!]!) {
    productsUpsert(products: $p) { products { id } userErrors { message } }
}";
const READ: &str = "query($ids: [ID!]!) { products(ids: $ids) { id name price { amount } } }";
const COUNT: &str = "{ category(name: \"Стойкие\") { productCount } }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_during_a_stream_of_upserts_loses_no_acknowledged_one() {
    let mut random = Random(seed());
    let dir = tempfile::tempdir().unwrap();
    let staff = token("staff", Role::Staff);
    let mut acknowledged: Vec<(String, u64)> = Vec::new();
    for round in 0..ROUNDS {
        let mut server = ServerProcess::start(dir.path(), &["--no-demo"]);
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (http, staff) = (server.http.clone(), staff.clone());
                let (tell, stop) = (tell.clone(), stop.clone());
                tokio::spawn(async move {
                    for n in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        // Two products in one call: both are there afterwards, or the call was
                        // not acknowledged.
                        let product = |half: &str| {
                            let id = format!("R{round}-W{writer}-{n}-{half}");
                            let price = json!({ "amount": format!("{n}.00") });
                            json!({ "id": id, "name": id, "category": "Стойкие", "price": price })
                        };
                        let variables = json!({ "p": [product("a"), product("b")] });
                        let body = json!({ "query": UPSERT, "variables": variables });
                        let Ok(answer) = http.try_post(Some(&staff), &body).await else { return };
                        let products = &answer.json()["data"]["productsUpsert"]["products"];
                        if products.as_array().is_some_and(|products| products.len() == 2) {
                            let _ = tell.send((format!("R{round}-W{writer}-{n}"), n));
                        }
                    }
                })
            })
            .collect();
        drop(tell);
        let enough = 1 + random.below(WRITES_BEFORE_KILL);
        for _ in 0..enough {
            acknowledged.push(told.recv().await.expect("the server answers"));
        }
        server.kill();
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.await.unwrap();
        }
        while let Some(last) = told.recv().await {
            acknowledged.push(last);
        }

        let server = ServerProcess::start(dir.path(), &["--no-demo"]);
        for some in acknowledged.chunks(125) {
            let ids: Vec<_> = some
                .iter()
                .flat_map(|(name, _)| [format!("{name}-a"), format!("{name}-b")])
                .collect();
            let answer = server.http.query(READ, json!({ "ids": ids })).await.json();
            let products = answer["data"]["products"].as_array().unwrap().clone();
            for (id, product) in ids.iter().zip(&products) {
                assert_eq!(product["name"], json!(id), "round {round}: {id} was acknowledged");
            }
            for ((_, n), product) in some.iter().zip(products.iter().step_by(2)) {
                assert_eq!(product["price"]["amount"], json!(format!("{n}.00")));
            }
        }
        // Counts are part of the same write: at least what was acknowledged, and always pairs.
        let answer = server.http.query(COUNT, json!({})).await.json();
        let count = answer["data"]["category"]["productCount"].as_u64().unwrap();
        assert!(count >= 2 * u64::try_from(acknowledged.len()).unwrap(), "{count}");
        assert_eq!(count % 2, 0, "half of a write survived");
    }
}
