//! Use cases of the catalogue: what a resolver calls.

use std::sync::Arc;

use futures_util::future::try_join_all;

use super::model::{
    CategoryInfo, MAX_BATCH, MAX_LOOKUP, Product, ProductId, RawProduct, check_batch,
};
use crate::clock::Clock;
use crate::error::{Error, ErrorCode, UserError};
use crate::storage::Store;

/// The catalogue.
pub struct CatalogService {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
}

impl CatalogService {
    /// The catalogue of a store.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    /// The products with these ids, in their order; `None` where there is none.
    pub async fn products(&self, ids: &[ProductId]) -> Result<Vec<Option<Arc<Product>>>, Error> {
        let products = if ids.len() <= MAX_LOOKUP {
            self.store.products(ids).await?
        } else {
            let reads = ids.chunks(MAX_LOOKUP).map(|ids| self.store.products(ids));
            try_join_all(reads).await?.into_iter().flatten().collect()
        };
        Ok(products.into_iter().map(|product| product.map(Arc::new)).collect())
    }

    /// Writes a batch of products; all of it is checked before any of it is written.
    pub async fn upsert(
        &self,
        batch: Vec<RawProduct>,
    ) -> Result<Result<Vec<Product>, Vec<UserError>>, Error> {
        check_size("products", batch.len())?;
        match check_batch(batch) {
            Ok(drafts) => Ok(Ok(self.store.upsert_products(drafts, self.clock.now()).await?)),
            Err(faults) => Ok(Err(faults)),
        }
    }

    /// Deletes products; answers with the ids of those that were there.
    pub async fn delete(
        &self,
        ids: Vec<String>,
    ) -> Result<Result<Vec<ProductId>, Vec<UserError>>, Error> {
        check_size("ids", ids.len())?;
        let mut faults = Vec::new();
        let mut sound = Vec::with_capacity(ids.len());
        for (index, id) in ids.iter().enumerate() {
            match ProductId::parse(id) {
                // Named twice is deleted once.
                Ok(id) if sound.contains(&id) => {}
                Ok(id) => sound.push(id),
                Err(fault) => faults.push(UserError {
                    code: ErrorCode::Invalid,
                    field: Some(vec!["ids".to_owned(), index.to_string()]),
                    message: format!("Not a product id: {fault}."),
                }),
            }
        }
        if !faults.is_empty() {
            return Ok(Err(faults));
        }
        Ok(Ok(self.store.delete_products(&sound, self.clock.now()).await?))
    }

    /// All categories that have products, by name.
    pub async fn categories(&self) -> Result<Vec<CategoryInfo>, Error> {
        Ok(self.store.categories().await?)
    }

    /// One category, if it has products.
    pub async fn category(&self, name: &str) -> Result<Option<CategoryInfo>, Error> {
        Ok(self.store.category(name).await?)
    }
}

fn check_size(argument: &str, len: usize) -> Result<(), Error> {
    if len > MAX_BATCH {
        return Err(Error::argument(argument, format!("at most {MAX_BATCH} at once, got {len}")));
    }
    Ok(())
}
