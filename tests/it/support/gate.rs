//! A store in front of another one, that holds reads up when a test wants it to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
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

/// A store whose reads of cards and stock can be held up: they have read, and do not come back.
pub struct Gate {
    inner: Arc<dyn Store>,
    /// Whether reads of the rows of a category are held up, too.
    pub holds_rows: AtomicBool,
    /// Whether sessions cannot be read.
    pub loses_sessions: AtomicBool,
    is_open: watch::Sender<bool>,
    reads: AtomicUsize,
    waiting: AtomicUsize,
}

impl Gate {
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        let (reads, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (is_open, holds_rows) = (watch::Sender::new(true), AtomicBool::new(false));
        let loses_sessions = AtomicBool::new(false);
        Arc::new(Self { inner, holds_rows, loses_sessions, is_open, reads, waiting })
    }

    /// Whether reads come back.
    pub fn open(&self, is_open: bool) {
        self.is_open.send_replace(is_open);
    }

    /// Reads so far.
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// Waits until so many reads are held up.
    pub async fn holds(&self, reads: usize) {
        let wait = async {
            while self.waiting.load(Ordering::SeqCst) != reads {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait).await.expect("nothing is held up");
    }

    async fn pass(&self) {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let mut is_open = self.is_open.subscribe();
        let _waiting = Waiting::of(&self.waiting);
        is_open.wait_for(|is_open| *is_open).await.unwrap();
    }
}

/// A read that is held up, or was given up.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn of(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Passes the calls of a trait on to the store that a field has, but for those that are written out.
macro_rules! forwarded {
    ($trait:ident for $front:ident by $inner:ident {
        $(fn $call:ident($($name:ident: $argument:ty),*) -> $answer:ty;)*
    } and { $($rest:item)* }) => {
        #[async_trait]
        impl $trait for $front {
            $(async fn $call(&self, $($name: $argument),*) -> Result<$answer, StoreError> {
                self.$inner.$call($($name),*).await
            })*
            $($rest)*
        }
    };
}

pub(crate) use forwarded;

/// The same for stock, with all the calls that no store in front changes.
macro_rules! forwarded_stock {
    ($front:ident by $inner:ident { $($more:tt)* } and { $($rest:tt)* }) => {
        $crate::support::gate::forwarded!(InventoryStore for $front by $inner {
            fn stock_zones(a: &ProductId) -> Vec<GeoZone>;
            fn stock_row(a: &StockKey) -> Option<StockRow>;
            fn stock_turn(a: &StockKey) -> Option<(i64, Option<Uuid>)>;
            fn stand_in_line(a: &StockKey, b: Uuid, c: bool) -> ();
            fn line(a: &StockKey) -> Vec<Uuid>;
            fn give_errand(a: &StockKey, b: &Errand) -> ();
            fn errands(a: &StockKey) -> Vec<Errand>;
            fn report_errand(a: &StockKey, b: Uuid, c: i64, d: &Report) -> ();
            fn errand_report(a: &StockKey, b: Uuid) -> Option<(i64, Report)>;
            fn settled_stock_row(a: &StockKey) -> Option<StockRow>;
            fn stock_up(a: Vec<(StockKey, i64)>, b: Timestamp) -> ();
            $($more)*
        } and { $($rest)* });
    };
}

pub(crate) use forwarded_stock;

forwarded!(CatalogStore for Gate by inner {
    fn upsert_products(a: Vec<ProductDraft>, b: Timestamp) -> Vec<Upserted>;
    fn delete_products(a: &[ProductId], b: Timestamp) -> Vec<Deleted>;
    fn categories() -> Vec<CategoryInfo>;
    fn category_names() -> Vec<Arc<str>>;
    fn category(a: &str) -> Option<CategoryInfo>;
    fn category_map(a: &str) -> Option<CategoryMap>;
    fn change_layout(a: &str, b: &Layout) -> bool;
    fn copy_rows(a: &str, b: Bucket, c: Vec<CardRow>, d: u8) -> ();
    fn remove_rows(a: &str, b: Bucket, c: Vec<CardRow>) -> ();
    fn drop_empty_bucket(a: &str, b: Bucket, c: Timestamp) -> ();
    fn drop_bucket(a: &str, b: Bucket) -> ();
    fn mend_rows(a: &[ProductId], b: Timestamp) -> u64;
    fn repair_row(a: &str, b: Bucket, c: &CardRow, d: Timestamp) -> bool;
    fn scan_products(a: u32, b: u32, c: Option<String>) -> ScanStep;
    fn mend_counts(a: &str, b: &CategoryMap, c: &Counted) -> bool;
} and {
    async fn products(&self, ids: &[ProductId]) -> Result<Vec<Option<Product>>, StoreError> {
        let found = self.inner.products(ids).await;
        self.pass().await;
        found
    }

    async fn read_slices(
        &self,
        category: &str,
        slices: Vec<Slice>,
        care: Care,
    ) -> Result<Vec<Vec<CardRow>>, StoreError> {
        let found = self.inner.read_slices(category, slices, care).await;
        if self.holds_rows.load(Ordering::SeqCst) {
            self.pass().await;
        }
        found
    }

    fn rows_always_agree(&self) -> bool {
        self.inner.rows_always_agree()
    }
});

forwarded_stock!(Gate by inner {
    fn change_stock(a: &StockKey, b: Option<i64>, c: &StockRow) -> bool;
} and {
    async fn stock_levels(
        &self,
        keys: &[StockKey],
    ) -> Result<Vec<Option<StockLevel>>, StoreError> {
        let found = self.inner.stock_levels(keys).await;
        self.pass().await;
        found
    }
});

forwarded!(SessionStore for Gate by inner {
    fn put_session(a: &Session) -> ();
    fn end_session(a: &Session) -> ();
    fn sessions_of(a: &str, b: usize) -> Vec<Uuid>;
} and {
    async fn session(&self, id: Uuid) -> Result<Option<Session>, StoreError> {
        if self.loses_sessions.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable { call: "session", cause: "a test".to_owned() });
        }
        self.inner.session(id).await
    }
});

forwarded!(CartStore for Gate by inner {
    fn cart_log(a: &Owner) -> CartLog;
    fn cart_note(a: &Owner, b: Uuid) -> Option<KeyNote>;
    fn add_to_cart(a: &Owner, b: &Operation) -> ();
    fn put_checkpoint(a: &Owner, b: &Checkpoint, c: &[KeyNote]) -> ();
    fn record_hand_over(a: Uuid, b: &HandOver) -> ();
    fn cart_history(a: &Owner, b: Option<LogPlace>, c: usize) -> Vec<Operation>;
    fn list_cart(a: i64, b: i8, c: &Owner) -> ();
    fn listed_carts(a: i64, b: i8, c: Option<&Owner>, d: usize) -> Vec<Owner>;
} and {});

forwarded!(OrderStore for Gate by inner {
    fn order(a: Uuid) -> Option<Order>;
    fn settled_order(a: Uuid) -> Option<Order>;
    fn place_order(a: &Order, b: &Due) -> ();
    fn change_order(a: &Order, b: &Order, c: &Due) -> bool;
    fn mend_order(a: &Order) -> ();
    fn faults_of_order(a: &Order) -> Vec<&'static str>;
    fn add_order_event(a: Uuid, b: &OrderEvent) -> ();
    fn order_events(a: Uuid, b: usize) -> Vec<OrderEvent>;
    fn history_parts(a: &Owner) -> Vec<Month>;
    fn begin_history_part(a: &Owner, b: Month) -> ();
    fn orders_of(a: &Owner, b: Month, c: OrderSlice) -> Vec<Order>;
    fn orders_on(a: i32, b: i8, c: Option<OrderPlace>, d: usize) -> Vec<Order>;
    fn claim_guest(a: Uuid, b: &str) -> ();
    fn claimant(a: Uuid) -> Option<String>;
    fn scan_orders(a: Option<Vec<u8>>) -> ScannedOrders;
} and {});

forwarded!(CheckoutStore for Gate by inner {
    fn checkout(a: &Owner, b: &str) -> Option<Checkout>;
    fn settled_checkout(a: &Owner, b: &str) -> Option<Checkout>;
    fn change_checkout(a: Option<i64>, b: &Checkout, c: Option<&Due>) -> bool;
    fn scan_checkouts(a: Option<Vec<u8>>) -> ScannedCheckouts;
} and {});

forwarded!(DueStore for Gate by inner {
    fn add_due(a: &Due) -> ();
    fn remove_due(a: &Due) -> ();
    fn due(a: i8, b: (Timestamp, Timestamp), c: usize) -> DueRead;
    fn swept() -> Option<Timestamp>;
    fn set_swept(a: Timestamp) -> ();
} and {});

forwarded!(Store for Gate by inner {
    fn ready() -> ();
    fn take_lease(a: &str, b: Uuid, c: Duration) -> bool;
    fn give_up_lease(a: &str, b: Uuid) -> ();
} and {
    async fn root_key(&self) -> Result<RootKey, StoreError> {
        self.inner.root_key().await
    }

    fn layout_grace(&self) -> Duration {
        self.inner.layout_grace()
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn kind(&self) -> &'static str {
        self.inner.kind()
    }
});
