//! A store that fails or does not answer: what clients are told, and what they are not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::{Value, json};
use uuid::Uuid;
use vitrina::cart::CartStore;
use vitrina::cart::model::{CartLog, Checkpoint, HandOver, KeyNote, Operation};
use vitrina::cart::store::LogPlace;
use vitrina::catalog::CatalogStore;
use vitrina::catalog::model::browse::{CardRow, CategoryMap, Slice};
use vitrina::catalog::model::buckets::{Bucket, Layout};
use vitrina::catalog::model::{CategoryInfo, Product, ProductDraft, ProductId};
use vitrina::catalog::store::{Care, Counted, Deleted, ScanStep, Upserted};
use vitrina::checkout::CheckoutStore;
use vitrina::checkout::model::Checkout;
use vitrina::checkout::store::ScannedCheckouts;
use vitrina::clock::Timestamp;
use vitrina::config::Config;
use vitrina::geo_zone::GeoZone;
use vitrina::inventory::InventoryStore;
use vitrina::inventory::model::{Errand, Report, StockKey, StockLevel, StockRow};
use vitrina::orders::OrderStore;
use vitrina::orders::model::{Month, Order, OrderEvent, OrderPlace};
use vitrina::orders::store::{ScannedOrders, Slice as OrderSlice};
use vitrina::owner::Owner;
use vitrina::root_key::RootKey;
use vitrina::sessions::SessionStore;
use vitrina::sessions::model::Session;
use vitrina::storage::{Due, DueRead, DueStore, Store, StoreError};

use super::{DELETE, UPSERT, product, staff};
use crate::support::server::TestServer;
use crate::support::stores::TestStore;
use crate::support::websocket::Socket;

/// What a driver says, which no client may see.
const CAUSE: &str = "SELECT secret FROM internal at 10.0.0.1";

#[derive(Clone, Copy)]
enum Broken {
    /// Never answers.
    Silent,
    Timeout,
    Unavailable,
    Fault,
    Panic,
}

impl Broken {
    async fn answer<T>(self) -> Result<T, StoreError> {
        let (call, cause) = ("products", CAUSE.to_owned());
        match self {
            Self::Silent => std::future::pending().await,
            Self::Timeout => Err(StoreError::Timeout { call, cause }),
            Self::Unavailable => Err(StoreError::Unavailable { call, cause }),
            Self::Fault => Err(StoreError::Fault { call, cause }),
            Self::Panic => panic!("{CAUSE}"),
        }
    }
}

/// Answers every call of a trait in the same way.
macro_rules! broken {
    ($trait:ident { $(fn $call:ident($($argument:ty),*) -> $answer:ty;)+ } and { $($rest:item)* }) => {
        #[async_trait]
        impl $trait for Broken {
            $(async fn $call(&self, $(_: $argument),*) -> Result<$answer, StoreError> {
                self.answer().await
            })+
            $($rest)*
        }
    };
}

broken!(CatalogStore {
    fn products(&[ProductId]) -> Vec<Option<Product>>;
    fn upsert_products(Vec<ProductDraft>, Timestamp) -> Vec<Upserted>;
    fn delete_products(&[ProductId], Timestamp) -> Vec<Deleted>;
    fn categories() -> Vec<CategoryInfo>;
    fn category_names() -> Vec<Arc<str>>;
    fn category(&str) -> Option<CategoryInfo>;
    fn category_map(&str) -> Option<CategoryMap>;
    fn read_slices(&str, Vec<Slice>, Care) -> Vec<Vec<CardRow>>;
    fn change_layout(&str, &Layout) -> bool;
    fn copy_rows(&str, Bucket, Vec<CardRow>, u8) -> ();
    fn remove_rows(&str, Bucket, Vec<CardRow>) -> ();
    fn drop_empty_bucket(&str, Bucket, Timestamp) -> ();
    fn drop_bucket(&str, Bucket) -> ();
    fn mend_rows(&[ProductId], Timestamp) -> u64;
    fn repair_row(&str, Bucket, &CardRow, Timestamp) -> bool;
    fn scan_products(u32, u32, Option<String>) -> ScanStep;
    fn mend_counts(&str, &CategoryMap, &Counted) -> bool;
} and {
    fn rows_always_agree(&self) -> bool {
        false
    }
});

broken!(InventoryStore {
    fn stock_levels(&[StockKey]) -> Vec<Option<StockLevel>>;
    fn stock_zones(&ProductId) -> Vec<GeoZone>;
    fn stock_row(&StockKey) -> Option<StockRow>;
    fn stock_turn(&StockKey) -> Option<(i64, Option<Uuid>)>;
    fn stand_in_line(&StockKey, Uuid, bool) -> ();
    fn line(&StockKey) -> Vec<Uuid>;
    fn give_errand(&StockKey, &Errand) -> ();
    fn errands(&StockKey) -> Vec<Errand>;
    fn report_errand(&StockKey, Uuid, i64, &Report) -> ();
    fn errand_report(&StockKey, Uuid) -> Option<(i64, Report)>;
    fn settled_stock_row(&StockKey) -> Option<StockRow>;
    fn change_stock(&StockKey, Option<i64>, &StockRow) -> bool;
    fn stock_up(Vec<(StockKey, i64)>, Timestamp) -> ();
} and {});

broken!(SessionStore {
    fn session(Uuid) -> Option<Session>;
    fn put_session(&Session) -> ();
    fn end_session(&Session) -> ();
    fn sessions_of(&str, usize) -> Vec<Uuid>;
} and {});

broken!(CartStore {
    fn cart_log(&Owner) -> CartLog;
    fn cart_note(&Owner, Uuid) -> Option<KeyNote>;
    fn add_to_cart(&Owner, &Operation) -> ();
    fn put_checkpoint(&Owner, &Checkpoint, &[KeyNote]) -> ();
    fn record_hand_over(Uuid, &HandOver) -> ();
    fn cart_history(&Owner, Option<LogPlace>, usize) -> Vec<Operation>;
    fn list_cart(i64, i8, &Owner) -> ();
    fn listed_carts(i64, i8, Option<&Owner>, usize) -> Vec<Owner>;
} and {});

broken!(OrderStore {
    fn order(Uuid) -> Option<Order>;
    fn settled_order(Uuid) -> Option<Order>;
    fn place_order(&Order, &Due) -> ();
    fn change_order(&Order, &Order, &Due) -> bool;
    fn mend_order(&Order) -> ();
    fn faults_of_order(&Order) -> Vec<&'static str>;
    fn add_order_event(Uuid, &OrderEvent) -> ();
    fn order_events(Uuid, usize) -> Vec<OrderEvent>;
    fn history_parts(&Owner) -> Vec<Month>;
    fn begin_history_part(&Owner, Month) -> ();
    fn orders_of(&Owner, Month, OrderSlice) -> Vec<Order>;
    fn orders_on(i32, i8, Option<OrderPlace>, usize) -> Vec<Order>;
    fn claim_guest(Uuid, &str) -> ();
    fn claimant(Uuid) -> Option<String>;
    fn scan_orders(Option<Vec<u8>>) -> ScannedOrders;
} and {});

broken!(CheckoutStore {
    fn checkout(&Owner, &str) -> Option<Checkout>;
    fn settled_checkout(&Owner, &str) -> Option<Checkout>;
    fn change_checkout(Option<i64>, &Checkout, Option<&Due>) -> bool;
    fn scan_checkouts(Option<Vec<u8>>) -> ScannedCheckouts;
} and {});

broken!(DueStore {
    fn add_due(&Due) -> ();
    fn remove_due(&Due) -> ();
    fn due(i8, (Timestamp, Timestamp), usize) -> DueRead;
    fn swept() -> Option<Timestamp>;
    fn set_swept(Timestamp) -> ();
} and {});

broken!(Store {
    fn ready() -> ();
    fn take_lease(&str, Uuid, Duration) -> bool;
    fn give_up_lease(&str, Uuid) -> ();
} and {
    async fn root_key(&self) -> Result<RootKey, StoreError> {
        // A shop opens only when its store answers; it may break later.
        Ok(RootKey::from([0; 32]))
    }

    fn layout_grace(&self) -> Duration {
        Duration::ZERO
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn kind(&self) -> &'static str {
        "broken"
    }
});

async fn serve(broken: Broken, deadline: Duration) -> TestServer {
    serve_with(broken, |config| config.limits.deadline = deadline).await
}

/// A shop whose store never answers.
pub async fn serve_silent(change: impl FnOnce(&mut Config)) -> TestServer {
    serve_with(Broken::Silent, change).await
}

async fn serve_with(broken: Broken, change: impl FnOnce(&mut Config)) -> TestServer {
    let mut store = TestStore::embedded().await;
    store.store = Arc::new(broken);
    TestServer::start_on(store, change).await
}

/// An id that an order may have.
const ORDER: &str = "01980000-0000-7000-8000-000000000001";
pub const CHECKOUT: &str = "mutation($input: CheckoutInput!) {
    checkout(input: $input) { order { id } userErrors { code } } }";

fn requests() -> [(&'static str, Value); 11] {
    let to = json!({ "city": "Тула", "street": "Ленина, 1" });
    let input = json!({ "idempotencyKey": "k", "geoZone": "Тула", "shippingAddress": to,
                        "paymentMethod": "card" });
    [
        ("{ product(id: 1) { id } }", json!({})),
        ("{ categories { name } }", json!({})),
        ("{ category(name: \"Книги\") { name } }", json!({})),
        (UPSERT, json!({ "products": [product("1", "Книги", "1")] })),
        (DELETE, json!({ "ids": ["1"] })),
        ("{ orders { nodes { id } } }", json!({})),
        ("query($id: ID!) { order(id: $id) { id } }", json!({ "id": ORDER })),
        ("{ ordersByPeriod(day: \"2026-11-15\") { nodes { id } } }", json!({})),
        ("mutation($id: ID!) { orderCancel(id: $id) { order { id } } }", json!({ "id": ORDER })),
        (
            "mutation($id: ID!) { orderAdvance(id: $id, to: PAID) { order { id } } }",
            json!({ "id": ORDER }),
        ),
        (CHECKOUT, json!({ "input": input })),
    ]
}

#[tokio::test]
async fn a_failure_has_a_code_and_tells_nothing_of_the_store() {
    for (broken, code) in [
        (Broken::Timeout, "TIMEOUT"),
        (Broken::Unavailable, "UNAVAILABLE"),
        (Broken::Fault, "INTERNAL"),
        (Broken::Panic, "INTERNAL"),
    ] {
        let server = serve(broken, Duration::from_secs(5)).await;
        for (query, variables) in requests() {
            let answer = server.http.query_as(&staff(), query, variables).await;
            assert_eq!(answer.code(), code, "{query}");
            let text = answer.text();
            assert!(!text.contains("SELECT") && !text.contains("10.0.0.1"), "{text}");
        }
        let answer = server.http.query("{ __typename }", json!({})).await;
        assert_eq!(answer.status, 200, "what needs no store is still answered");
    }
}

#[tokio::test]
async fn a_failure_is_the_same_over_a_websocket() {
    let watch = "subscription { stockChanged(productIds: [1], geoZone: \"Тула\") { available } }";
    for (broken, code) in [
        (Broken::Timeout, "TIMEOUT"),
        (Broken::Silent, "TIMEOUT"),
        (Broken::Unavailable, "UNAVAILABLE"),
        (Broken::Fault, "INTERNAL"),
        (Broken::Panic, "INTERNAL"),
    ] {
        let server = serve(broken, Duration::from_millis(300)).await;
        let mut socket = Socket::connect(server.address).await;
        for query in [watch, "{ product(id: 1) { id } }"] {
            socket.subscribe("s", query, json!({})).await;
            let message = socket.next().await;
            let text = message.to_string();
            assert!(text.contains(&format!("\"code\":\"{code}\"")), "{query}: {text}");
            assert!(!text.contains("SELECT") && !text.contains("10.0.0.1"), "{text}");
            if message["type"] == "next" {
                assert_eq!(socket.payload("complete", "s").await, Value::Null);
            }
        }
    }
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_given_up_at_the_deadline() {
    let deadline = Duration::from_millis(200);
    let server = serve(Broken::Silent, deadline).await;
    for (query, variables) in requests() {
        let started = Instant::now();
        let answer = server.http.query_as(&staff(), query, variables).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (504, "TIMEOUT"));
        assert_ne!(answer.header("x-request-id"), "");
        let took = started.elapsed();
        assert!(took >= deadline && took < Duration::from_secs(2), "{took:?}");
    }
}

#[tokio::test]
async fn a_shop_whose_store_fails_is_not_ready_and_alive() {
    for broken in [Broken::Silent, Broken::Unavailable] {
        let server = serve(broken, Duration::from_secs(5)).await;
        let ready = server.http.get("/health/ready").await;
        assert_eq!(ready.status, 503);
        assert_eq!(ready.json()["ready"], false);
        assert!(!ready.text().contains("SELECT"), "{}", ready.text());
        assert_eq!(server.http.get("/health/live").await.status, 200);
    }
}
