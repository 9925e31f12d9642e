//! Growing a category: one read model goes from its level to the next while shoppers browse it and
//! staff change it. See [`Phase`] for the steps.
//!
//! Every step is recorded in the category's layout before the next one begins, so that a split
//! whose process died goes on where it stopped, in this process or another. A lease keeps two from
//! working on the same one; were they to overlap, each step could be done twice without harm.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::model::browse::{CardRow, PriceRange, Slice, Span};
use super::super::model::buckets::{
    Axis, Bucket, Layout, MAX_DEPTH, MAX_LEVEL, MAX_PRICE_BUCKETS, Model, Phase, bucket_at,
};
use super::super::store::Care;
use crate::fault;
use crate::storage::{Store, StoreError};

/// Rows that are copied or taken away at once.
const STEP_ROWS: usize = 500;
/// How long a split may stay silent before another process takes it over.
const LEASE: Duration = Duration::from_secs(30);
/// Changes of the layout that come first before a split gives up for now.
const MAX_CONFLICTS: u32 = 16;

/// What came of a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitOutcome {
    /// It is done.
    Done,
    /// Another process is at it.
    Busy,
    /// There is nothing to split: no such category, or no finer level.
    Nothing,
}

/// Splits categories.
pub struct Splitter {
    store: Arc<dyn Store>,
    /// How long nobody acts on an old layout any more after a change of it: longer than a layout
    /// is cached and a page or a write takes together.
    grace: Duration,
    holder: uuid::Uuid,
}

impl Splitter {
    /// A splitter that waits for `grace` between phases; see [`Store::layout_grace`].
    pub fn new(store: Arc<dyn Store>, grace: Duration) -> Self {
        Self { store, grace, holder: uuid::Uuid::new_v4() }
    }

    /// Under which name it takes leases.
    pub fn holder(&self) -> uuid::Uuid {
        self.holder
    }

    /// Takes a read model of a category one level further, or finishes a split that was begun.
    pub async fn split(&self, category: &str, model: Model) -> Result<SplitOutcome, StoreError> {
        let Some(map) = self.store.category_map(category).await? else {
            return Ok(SplitOutcome::Nothing);
        };
        if map.layout.axis(model).phase == Phase::Stable && !can_split(&map.layout, model) {
            return Ok(SplitOutcome::Nothing);
        }
        let lease = format!("split:{category}");
        if !self.store.take_lease(&lease, self.holder, fault::hurried(LEASE)).await? {
            return Ok(SplitOutcome::Busy);
        }
        let seen = *map.layout.axis(model);
        let renewed = Mutex::new(Instant::now());
        let run = Run { splitter: self, lease: &lease, category, model, renewed };
        let outcome = run.to_the_end(seen).await;
        if let Err(error) = self.store.give_up_lease(&lease, self.holder).await {
            tracing::warn!(%error, "a lease was not given back; it runs out by itself");
        }
        outcome
    }

    /// Whether a category needs a split, and of which model: one that was begun, or one of a bucket
    /// that has more than `rows` rows.
    pub async fn needed(&self, category: &str, rows: u64) -> Result<Option<Model>, StoreError> {
        let Some(map) = self.store.category_map(category).await? else { return Ok(None) };
        for model in Model::BOTH {
            if map.layout.axis(model).phase != Phase::Stable {
                return Ok(Some(model));
            }
        }
        let level = map.layout.hash.level;
        if map.product_count >> level > rows && can_split(&map.layout, Model::Hash) {
            return Ok(Some(Model::Hash));
        }
        let large =
            map.price_buckets().filter(|(_, count)| *count > rows).map(|(number, _)| number);
        if map.price_buckets().count() >= MAX_PRICE_BUCKETS || !can_split(&map.layout, Model::Price)
        {
            return Ok(None);
        }
        for number in large {
            if self.has_several_prices(category, Bucket { model: Model::Price, number }).await? {
                return Ok(Some(Model::Price));
            }
        }
        Ok(None)
    }

    /// A bucket of one price stays as it is, however finely prices are cut.
    async fn has_several_prices(&self, category: &str, bucket: Bucket) -> Result<bool, StoreError> {
        let end = |descending| Slice { bucket, span: everything(), descending, limit: 1 };
        let slices = vec![end(false), end(true)];
        let ends = self.store.read_slices(category, slices, Care::Usual).await?;
        let mut prices = ends.iter().flatten().map(|row| row.price);
        Ok(prices.next() != prices.next())
    }
}

fn can_split(layout: &Layout, model: Model) -> bool {
    let finest = match model {
        Model::Hash => MAX_LEVEL,
        Model::Price => MAX_DEPTH,
    };
    layout.axis(model).level < finest
}

fn everything() -> Span {
    Span::of_prices(PriceRange::default())
}

/// One split on its way.
struct Run<'a> {
    splitter: &'a Splitter,
    lease: &'a str,
    category: &'a str,
    model: Model,
    /// When the lease was last renewed.
    renewed: Mutex<Instant>,
}

impl Run<'_> {
    /// Takes the model from `seen`, as it was before the lease, to the next level.
    async fn to_the_end(&self, seen: Axis) -> Result<SplitOutcome, StoreError> {
        let mut has_begun = false;
        let mut conflicts = 0;
        while conflicts < MAX_CONFLICTS {
            let Some(map) = self.store().category_map(self.category).await? else {
                return Ok(SplitOutcome::Nothing);
            };
            let axis = *map.layout.axis(self.model);
            if axis.phase == Phase::Stable && (has_begun || axis != seen) {
                // Done: by this run, or by another one since it was looked at.
                return Ok(SplitOutcome::Done);
            }
            if axis.phase != Phase::Stable && !has_begun {
                // Somebody else's: written once more, so that whoever reads after the pause has
                // seen this phase, also if the answer to its beginning was lost.
                has_begun = true;
                conflicts += u32::from(!self.advance(map.layout, axis).await?);
                continue;
            }
            let worked = match axis.phase {
                Phase::Stable => Some(map.layout),
                // Nobody acts on the phase before this one any more when the pause is over.
                _ if !self.pause().await? => None,
                Phase::Copying => self.copy(map.layout).await?,
                Phase::Draining => Some(map.layout),
                Phase::Cleaning => self.clean(map.layout).await?,
            };
            let Some(layout) = worked else { return Ok(SplitOutcome::Busy) };
            has_begun = true;
            conflicts += u32::from(!self.advance(layout, after(axis)).await?);
        }
        Ok(SplitOutcome::Busy)
    }

    fn store(&self) -> &dyn Store {
        self.splitter.store.as_ref()
    }

    async fn advance(&self, layout: Layout, axis: Axis) -> Result<bool, StoreError> {
        let changed =
            self.store().change_layout(self.category, &layout.with(self.model, axis)).await?;
        if changed {
            tracing::info!(
                category = self.category,
                model = self.model.as_str(),
                level = axis.level,
                phase = axis.phase.as_str(),
                "split"
            );
            fault::point(match axis.phase {
                Phase::Copying => "split.copying",
                Phase::Draining => "split.draining",
                Phase::Cleaning => "split.cleaning",
                Phase::Stable => "split.stable",
            });
        }
        Ok(changed)
    }

    /// Renews the lease where it is time; `false` if another process has it now.
    async fn renew(&self) -> Result<bool, StoreError> {
        let life = fault::hurried(LEASE);
        let renewed = || self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        if renewed().elapsed() < life / 3 {
            return Ok(true);
        }
        *renewed() = Instant::now();
        self.store().take_lease(self.lease, self.splitter.holder, life).await
    }

    async fn pause(&self) -> Result<bool, StoreError> {
        tokio::time::sleep(fault::hurried(self.splitter.grace)).await;
        self.renew().await
    }

    /// Copies every row to its bucket at the next level.
    async fn copy(&self, mut layout: Layout) -> Result<Option<Layout>, StoreError> {
        let axis = *layout.axis(self.model);
        for bucket in self.buckets(axis.level, axis.progress).await? {
            let mut slice =
                Slice { bucket, span: everything(), descending: false, limit: STEP_ROWS };
            loop {
                let step = self.next_elsewhere(&mut slice, axis.level + 1).await?;
                let Some((moving, is_last)) = step else { return Ok(None) };
                if !moving.is_empty() {
                    self.store().copy_rows(self.category, bucket, moving, axis.level + 1).await?;
                    fault::point("split.copied");
                }
                if is_last {
                    break;
                }
            }
            match self.record(layout, bucket).await? {
                Some(recorded) => layout = recorded,
                None => return Ok(None),
            }
        }
        Ok(Some(layout))
    }

    /// Takes away what stands at the level before.
    async fn clean(&self, mut layout: Layout) -> Result<Option<Layout>, StoreError> {
        let axis = *layout.axis(self.model);
        for bucket in self.buckets(axis.level - 1, axis.progress).await? {
            if self.model == Model::Price {
                self.store().drop_bucket(self.category, bucket).await?;
            } else {
                let mut slice =
                    Slice { bucket, span: everything(), descending: false, limit: STEP_ROWS };
                loop {
                    let step = self.next_elsewhere(&mut slice, axis.level).await?;
                    let Some((left, is_last)) = step else { return Ok(None) };
                    if !left.is_empty() {
                        self.store().remove_rows(self.category, bucket, left).await?;
                    }
                    if is_last {
                        break;
                    }
                }
            }
            fault::point("split.cleaned");
            match self.record(layout, bucket).await? {
                Some(recorded) => layout = recorded,
                None => return Ok(None),
            }
        }
        Ok(Some(layout))
    }

    /// Of the next rows of a bucket those whose bucket at a level is another one, and whether these
    /// were the last. `None` if another process has taken over.
    async fn next_elsewhere(
        &self,
        slice: &mut Slice,
        level: u8,
    ) -> Result<Option<(Vec<CardRow>, bool)>, StoreError> {
        if !self.renew().await? {
            return Ok(None);
        }
        let read =
            self.store().read_slices(self.category, vec![slice.clone()], Care::Whole).await?;
        let mut rows = read.into_iter().next().unwrap_or_default();
        if let Some(last) = rows.last() {
            slice.span.lower = last.position();
        }
        let is_last = rows.len() < STEP_ROWS;
        rows.retain(|row| bucket_at(self.model, level, row.price, &row.id) != slice.bucket);
        Ok(Some((rows, is_last)))
    }

    /// The buckets of a level from a number on.
    async fn buckets(&self, level: u8, from: i64) -> Result<Vec<Bucket>, StoreError> {
        let bucket = |number| Bucket { model: self.model, number };
        if self.model == Model::Hash {
            return Ok((from..1 << level).map(bucket).collect());
        }
        let map = self.store().category_map(self.category).await?;
        let known = map.map(|map| map.buckets).unwrap_or_default().into_iter();
        let of_level = |bucket: &Bucket| {
            bucket.model == Model::Price
                && super::super::model::buckets::depth_of(bucket.number) == level
                && bucket.number >= from
        };
        Ok(known.map(|(bucket, _)| bucket).filter(of_level).collect())
    }

    /// Notes that a bucket is done. `None` if another process has taken over.
    async fn record(&self, layout: Layout, bucket: Bucket) -> Result<Option<Layout>, StoreError> {
        if !self.renew().await? {
            return Ok(None);
        }
        let axis = Axis { progress: bucket.number + 1, ..*layout.axis(self.model) };
        let recorded = layout.with(self.model, axis);
        let changed = self.store().change_layout(self.category, &recorded).await?;
        Ok(changed.then_some(recorded))
    }
}

/// What a phase is followed by.
fn after(axis: Axis) -> Axis {
    let (level, phase) = match axis.phase {
        Phase::Stable => (axis.level, Phase::Copying),
        Phase::Copying => (axis.level + 1, Phase::Draining),
        Phase::Draining => (axis.level, Phase::Cleaning),
        Phase::Cleaning => (axis.level, Phase::Stable),
    };
    Axis { level, phase, progress: 0 }
}
