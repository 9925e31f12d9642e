//! The rows of the two read models on Cassandra.
//!
//! Every row is written and deleted with a product's version as the timestamp, so that of two
//! writers of one product the later one wins here as it does in `product_by_id`.

use std::time::Duration;

use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use scylla::value::CqlDecimal;

use crate::catalog::model::browse::{CardRow, Slice, amount, kopecks};
use crate::catalog::model::buckets::{Bucket, Kopecks, Model};
use crate::catalog::model::{ProductId, RowChanges};
use crate::catalog::store::Care;
use crate::fault;
use crate::money::Currency;
use crate::storage::cassandra::{Access, Statement, Statements, from_cql, to_cql};
use crate::storage::{OpenError, StoreError};

/// Buckets of one page that are read at once.
const SLICES_AT_ONCE: usize = 16;
/// Rows of one call that are written at once.
const ROWS_AT_ONCE: usize = 64;
/// Reads of a part of a bucket.
const READ: Duration = Duration::from_secs(2);
/// Writes of single rows.
const WRITE: Duration = Duration::from_secs(3);
/// Writes that wait for every replica, and deletions of a whole bucket.
const PATIENT: Duration = Duration::from_secs(8);

/// The statements of one read model.
struct ModelStatements {
    ascending: Statement,
    descending: Statement,
    ascending_fresh: Statement,
    descending_fresh: Statement,
    ascending_whole: Statement,
    descending_whole: Statement,
    row: Statement,
    put: Statement,
    put_everywhere: Statement,
    take: Statement,
}

/// The statements of both, and of the list of price buckets.
pub(super) struct RowStatements {
    hash: ModelStatements,
    price: ModelStatements,
    listed: Statement,
    list: Statement,
    unlist: Statement,
    drop_rows: Statement,
    drop_listed: Statement,
}

/// The CQL of a read model: the same for both but for two names.
macro_rules! model_statements {
    ($statements:expr, $table:literal, $bucket:literal) => {{
        macro_rules! slice {
            ($order:literal) => {
                concat!(
                    "SELECT price, product_id, name, image_url, currency, version FROM ks.",
                    $table,
                    " WHERE category = ? AND ",
                    $bucket,
                    " = ? AND (price, product_id) > (?, ?) AND (price, product_id) < (?, ?) \
                     ORDER BY price ",
                    $order,
                    ", product_id ",
                    $order,
                    " LIMIT ?"
                )
            };
        }
        const PUT: &str = concat!(
            "INSERT INTO ks.",
            $table,
            " (category, ",
            $bucket,
            ", price, product_id, name, \
             image_url, currency, version) VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
        );
        let one = |cql, access, timeout| $statements.prepare($table, cql, access, timeout);
        ModelStatements {
            ascending: one(slice!("ASC"), Access::ReadOne, READ).await?,
            descending: one(slice!("DESC"), Access::ReadOne, READ).await?,
            ascending_fresh: one(slice!("ASC"), Access::ReadQuorum, READ).await?,
            descending_fresh: one(slice!("DESC"), Access::ReadQuorum, READ).await?,
            ascending_whole: one(slice!("ASC"), Access::ReadAll, PATIENT).await?,
            descending_whole: one(slice!("DESC"), Access::ReadAll, PATIENT).await?,
            row: one(
                concat!(
                    "SELECT price, product_id, name, image_url, currency, version FROM ks.",
                    $table,
                    " WHERE category = ? AND ",
                    $bucket,
                    " = ? AND price = ? AND product_id = ?"
                ),
                Access::ReadQuorum,
                READ,
            )
            .await?,
            put: one(PUT, Access::WriteQuorum, WRITE).await?,
            put_everywhere: one(PUT, Access::WriteAll, PATIENT).await?,
            take: one(
                concat!(
                    "DELETE FROM ks.",
                    $table,
                    " USING TIMESTAMP ? WHERE category = ? AND ",
                    $bucket,
                    " = ? AND price = ? AND product_id = ?"
                ),
                Access::WriteQuorum,
                WRITE,
            )
            .await?,
        }
    }};
}

type RowColumns = (CqlDecimal, String, Option<String>, Option<String>, Option<String>, Option<i64>);

impl RowStatements {
    pub(super) async fn prepare(statements: &Statements) -> Result<Self, OpenError> {
        let list =
            |cql, access| statements.prepare("price_buckets_by_category", cql, access, WRITE);
        Ok(Self {
            hash: model_statements!(statements, "products_by_category_bucket", "bucket"),
            price: model_statements!(statements, "products_by_category_price", "price_bucket"),
            listed: list(
                "SELECT price_bucket FROM ks.price_buckets_by_category WHERE category = ?",
                Access::ReadQuorum,
            )
            .await?,
            list: list(
                "INSERT INTO ks.price_buckets_by_category (category, price_bucket) VALUES (?, ?) \
                 USING TIMESTAMP ?",
                Access::WriteQuorum,
            )
            .await?,
            unlist: list(
                "DELETE FROM ks.price_buckets_by_category USING TIMESTAMP ? WHERE category = ? \
                 AND price_bucket = ?",
                Access::WriteQuorum,
            )
            .await?,
            drop_rows: statements
                .prepare(
                    "products_by_category_price",
                    "DELETE FROM ks.products_by_category_price WHERE category = ? \
                     AND price_bucket = ?",
                    Access::WriteQuorum,
                    PATIENT,
                )
                .await?,
            drop_listed: list(
                "DELETE FROM ks.price_buckets_by_category WHERE category = ? AND price_bucket = ?",
                Access::WriteQuorum,
            )
            .await?,
        })
    }

    fn of(&self, model: Model) -> &ModelStatements {
        match model {
            Model::Hash => &self.hash,
            Model::Price => &self.price,
        }
    }

    /// The price buckets that may have rows.
    pub(super) async fn listed(&self, category: &str) -> Result<Vec<i64>, StoreError> {
        let rows: Vec<(i64,)> = self.listed.rows((category,)).await?;
        Ok(rows.into_iter().map(|(bucket,)| bucket).collect())
    }

    /// Puts a price bucket on the list.
    pub(super) async fn list(
        &self,
        category: &str,
        bucket: i64,
        timestamp: i64,
    ) -> Result<(), StoreError> {
        self.list.run((category, bucket, timestamp)).await?;
        fault::point("upsert.listed");
        Ok(())
    }

    /// Takes a price bucket off the list, unless it was put there after `timestamp`.
    pub(super) async fn unlist(
        &self,
        category: &str,
        bucket: i64,
        timestamp: i64,
    ) -> Result<(), StoreError> {
        self.unlist.run((timestamp, category, bucket)).await.map(drop)
    }

    pub(super) async fn slices(
        &self,
        category: &str,
        slices: &[Slice],
        care: Care,
    ) -> Result<Vec<Vec<CardRow>>, StoreError> {
        if let [slice] = slices {
            return Ok(vec![self.slice(category, slice, care).await?]);
        }
        let reads: Vec<_> = slices.iter().map(|slice| self.slice(category, slice, care)).collect();
        stream::iter(reads).buffered(SLICES_AT_ONCE).try_collect().await
    }

    async fn slice(
        &self,
        category: &str,
        slice: &Slice,
        care: Care,
    ) -> Result<Vec<CardRow>, StoreError> {
        let model = self.of(slice.bucket.model);
        let statement = match (care, slice.descending) {
            (Care::Usual, false) => &model.ascending,
            (Care::Usual, true) => &model.descending,
            (Care::Fresh, false) => &model.ascending_fresh,
            (Care::Fresh, true) => &model.descending_fresh,
            (Care::Whole, false) => &model.ascending_whole,
            (Care::Whole, true) => &model.descending_whole,
        };
        let (lower, upper) = (&slice.span.lower, &slice.span.upper);
        let limit = i32::try_from(slice.limit).unwrap_or(i32::MAX);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let values = (
            category,
            slice.bucket.number,
            to_cql(amount(lower.price)),
            lower.id.as_ref(),
            to_cql(amount(upper.price)),
            upper.id.as_ref(),
            limit,
        );
        let rows: Vec<RowColumns> = statement.rows(values).await?;
        rows.into_iter().map(|row| card_row(row, statement)).collect()
    }

    /// The row of a product in a bucket.
    pub(super) async fn row(
        &self,
        category: &str,
        bucket: Bucket,
        price: Kopecks,
        id: &ProductId,
    ) -> Result<Option<CardRow>, StoreError> {
        let statement = &self.of(bucket.model).row;
        let values = (category, bucket.number, to_cql(amount(price)), id.as_str());
        let row: Option<RowColumns> = statement.first(values).await?;
        row.map(|row| card_row(row, statement)).transpose()
    }

    /// Writes a row; every replica has it afterwards if it is `everywhere`.
    pub(super) async fn put(
        &self,
        category: &str,
        bucket: Bucket,
        row: &CardRow,
        timestamp: i64,
        everywhere: bool,
    ) -> Result<(), StoreError> {
        let model = self.of(bucket.model);
        let statement = if everywhere { &model.put_everywhere } else { &model.put };
        let values = (
            category,
            bucket.number,
            to_cql(amount(row.price)),
            row.id.as_str(),
            &row.name,
            &row.image_url,
            row.currency.as_str(),
            row.version,
            timestamp,
        );
        statement.run(values).await.map(drop)
    }

    /// Takes away a row that was written at `timestamp` or before.
    pub(super) async fn take(
        &self,
        category: &str,
        bucket: Bucket,
        (price, id): (Kopecks, &ProductId),
        timestamp: i64,
    ) -> Result<(), StoreError> {
        let values = (timestamp, category, bucket.number, to_cql(amount(price)), id.as_str());
        self.of(bucket.model).take.run(values).await.map(drop)
    }

    /// Puts the rows of a product where `changes` says.
    pub(super) async fn put_all(
        &self,
        category: &str,
        changes: &RowChanges,
        row: &CardRow,
    ) -> Result<(), StoreError> {
        let put = async |&bucket| {
            self.put(category, bucket, row, row.version, false).await?;
            fault::point("upsert.row");
            Ok(())
        };
        try_join_all(changes.put.iter().map(put)).await.map(drop)
    }

    /// Takes the rows of a product away where `changes` says.
    pub(super) async fn take_all(
        &self,
        category: &str,
        changes: &RowChanges,
        id: &ProductId,
        version: i64,
    ) -> Result<(), StoreError> {
        let take = async |&(bucket, price)| {
            self.take(category, bucket, (price, id), version).await?;
            fault::point("upsert.take");
            Ok(())
        };
        try_join_all(changes.take.iter().map(take)).await.map(drop)
    }

    /// Takes away exactly these rows.
    pub(super) async fn take_rows(
        &self,
        category: &str,
        bucket: Bucket,
        rows: &[CardRow],
    ) -> Result<(), StoreError> {
        let takes: Vec<_> = rows
            .iter()
            .map(|row| async move {
                let done = self.take(category, bucket, (row.price, &row.id), row.version).await;
                done.inspect(|()| fault::point("split.take"))
            })
            .collect();
        stream::iter(takes).buffer_unordered(ROWS_AT_ONCE).try_collect().await
    }

    /// Takes all rows of a price bucket away, and the bucket off the list.
    pub(super) async fn drop(&self, category: &str, bucket: Bucket) -> Result<(), StoreError> {
        self.drop_rows.run((category, bucket.number)).await?;
        fault::point("split.dropped");
        self.drop_listed.run((category, bucket.number)).await.map(drop)
    }
}

fn card_row(row: RowColumns, statement: &Statement) -> Result<CardRow, StoreError> {
    let (price, id, name, image_url, currency, version) = row;
    let price = from_cql(&price).ok_or_else(|| statement.unexpected(&"a row without a price"))?;
    Ok(CardRow {
        price: kopecks(price),
        // A row that lost columns to a later deletion is one that is going away.
        currency: currency.and_then(|code| Currency::parse(&code)).unwrap_or(Currency::RUB),
        id: ProductId::new_unchecked(id),
        name: name.unwrap_or_default(),
        image_url,
        version: version.unwrap_or(0),
    })
}
