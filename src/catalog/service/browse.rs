//! Reading a page of a category: which read model, which buckets, in which order.

use std::collections::{HashSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::super::model::browse::{CardRow, CategoryMap, Slice, Span, in_scan_order};
use super::super::model::buckets::{Bucket, MAX_PRICE_BUCKETS, Model, hash_bucket, price_span};
use super::super::store::Care;
use crate::storage::{Store, StoreError};

/// Price buckets that a walk reads at once, at the most, when those before them were empty.
const MAX_AHEAD: usize = 8;

/// What a page took to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageReads {
    /// The read model that answered.
    pub model: Model,
    /// Its buckets that were read.
    pub partitions: u32,
    /// The rows that were read.
    pub rows: u32,
}

/// The read model that needs fewer partitions for `wanted` rows of a span.
pub(super) fn plan(map: &CategoryMap, span: &Span, descending: bool, wanted: usize) -> Model {
    let by_hash = 1_usize << map.layout.hash.level;
    if by_hash == 1 {
        // Nothing is fewer, and no price bucket has to be known.
        return Model::Hash;
    }
    if map.price_buckets().nth(MAX_PRICE_BUCKETS).is_some() {
        // Prices as far apart as these make a list that is not worth reading.
        return Model::Hash;
    }
    let mut by_price = 0;
    let mut rows = 0;
    for (bucket, count) in price_walk(map, span, descending) {
        by_price += 1;
        let (low, beyond) = price_span(bucket);
        // A span that begins or ends inside a bucket has about half of its rows.
        let is_whole = span.lower.price <= low && span.upper.price >= beyond;
        rows += if is_whole { count } else { count / 2 };
        if rows >= wanted as u64 || by_price > by_hash {
            break;
        }
    }
    if by_hash <= by_price { Model::Hash } else { Model::Price }
}

/// The price buckets that a span touches, in the order of the scan.
fn price_walk(map: &CategoryMap, span: &Span, descending: bool) -> Vec<(i64, u64)> {
    let touched = map.price_buckets().filter(|(bucket, _)| {
        let (low, beyond) = price_span(*bucket);
        span.touches(low, beyond)
    });
    if descending { touched.rev().collect() } else { touched.collect() }
}

/// The rows of a category in order, read bucket by bucket as they are needed.
pub(super) struct Scan<'a> {
    store: &'a dyn Store,
    category: &'a str,
    care: Care,
    descending: bool,
    level: u8,
    source: Source,
    touched: HashSet<Bucket>,
    rows: u32,
    model: Model,
    /// Listed buckets that turned out to have no rows at all.
    pub(super) found_empty: Vec<Bucket>,
}

enum Source {
    /// Hash buckets: every one may have the next row.
    Merge(Vec<Stream>),
    /// Price buckets: one after another.
    Walk { waiting: VecDeque<i64>, span: Span, open: VecDeque<Stream>, ahead: usize },
}

/// What is left of a bucket.
struct Stream {
    bucket: Bucket,
    rest: Span,
    rows: VecDeque<CardRow>,
    is_whole: bool,
    has_ended: bool,
}

impl Stream {
    fn new(bucket: Bucket, rest: Span) -> Self {
        let is_whole = bucket.model == Model::Price && {
            let (low, beyond) = price_span(bucket.number);
            rest.covers(low, beyond)
        };
        Self { bucket, rest, rows: VecDeque::new(), is_whole, has_ended: false }
    }

    fn is_dry(&self) -> bool {
        self.rows.is_empty() && !self.has_ended
    }
}

impl<'a> Scan<'a> {
    /// A scan of a span with the read model that [`plan`] chose.
    pub(super) fn new(
        store: &'a dyn Store,
        category: &'a str,
        map: &CategoryMap,
        (span, descending): (&Span, bool),
        model: Model,
        care: Care,
    ) -> Self {
        let level = map.layout.axis(model).level;
        let stream = |number| Stream::new(Bucket { model, number }, span.clone());
        let source = match model {
            Model::Hash => Source::Merge((0..1_i64 << level).map(stream).collect()),
            Model::Price => Source::Walk {
                // Streams are made when they are read: a page reads few of a thousand.
                waiting: price_walk(map, span, descending)
                    .into_iter()
                    .map(|(number, _)| number)
                    .collect(),
                span: span.clone(),
                open: VecDeque::new(),
                ahead: 1,
            },
        };
        Self {
            store,
            category,
            care,
            descending,
            level,
            source,
            touched: HashSet::new(),
            rows: 0,
            model,
            found_empty: Vec::new(),
        }
    }

    /// What the scan has read so far.
    pub(super) fn reads(&self) -> PageReads {
        let partitions = u32::try_from(self.touched.len()).unwrap_or(u32::MAX);
        PageReads { model: self.model, partitions, rows: self.rows }
    }

    /// The next `wanted` rows with their buckets; fewer only at the end.
    pub(super) async fn next(
        &mut self,
        wanted: usize,
    ) -> Result<Vec<(Bucket, CardRow)>, StoreError> {
        let mut found = Vec::with_capacity(wanted);
        // Taken out, so that the scan can be borrowed while its streams are filled.
        let mut source = std::mem::replace(&mut self.source, Source::Merge(Vec::new()));
        let filled = match &mut source {
            Source::Merge(streams) => self.merge(streams, wanted, &mut found).await,
            Source::Walk { waiting, span, open, ahead } => {
                self.walk((waiting, span), open, ahead, wanted, &mut found).await
            }
        };
        self.source = source;
        filled.map(|()| found)
    }

    async fn merge(
        &mut self,
        streams: &mut [Stream],
        wanted: usize,
        found: &mut Vec<(Bucket, CardRow)>,
    ) -> Result<(), StoreError> {
        // Each bucket has about its share of the page. Few need to be asked again, and then for
        // their share of what is missing: about `page + 2 × buckets` rows in all.
        let buckets = streams.len().max(1);
        let first = wanted.div_ceil(buckets) + usize::from(buckets > 1);
        let descending = self.descending;
        while found.len() < wanted {
            let again = (wanted - found.len()).div_ceil(buckets);
            let fresh =
                |stream: &Stream| if self.touched.contains(&stream.bucket) { again } else { first };
            let dry: Vec<(&mut Stream, usize)> = streams
                .iter_mut()
                .filter(|stream| stream.is_dry())
                .map(|stream| {
                    let limit = fresh(stream);
                    (stream, limit)
                })
                .collect();
            if !dry.is_empty() {
                self.fill(dry).await?;
                continue;
            }
            let next =
                streams.iter_mut().filter(|stream| !stream.rows.is_empty()).min_by(|a, b| {
                    let place = |s: &Stream| s.rows.front().map(|row| (row.price, row.id.clone()));
                    let (a, b) = (place(a), place(b));
                    if descending { b.cmp(&a) } else { a.cmp(&b) }
                });
            let Some(stream) = next else { break };
            found.extend(stream.rows.pop_front().map(|row| (stream.bucket, row)));
        }
        Ok(())
    }

    async fn walk(
        &mut self,
        (waiting, span): (&mut VecDeque<i64>, &Span),
        open: &mut VecDeque<Stream>,
        ahead: &mut usize,
        wanted: usize,
        found: &mut Vec<(Bucket, CardRow)>,
    ) -> Result<(), StoreError> {
        while found.len() < wanted {
            let missing = wanted - found.len();
            let Some(front) = open.front_mut() else {
                if waiting.is_empty() {
                    break;
                }
                let next = waiting.drain(..(*ahead).min(waiting.len()));
                open.extend(next.map(|number| {
                    Stream::new(Bucket { model: Model::Price, number }, span.clone())
                }));
                // Each time a bucket was not enough, look further ahead.
                *ahead = (*ahead * 2).min(MAX_AHEAD);
                self.fill(open.iter_mut().map(|stream| (stream, missing)).collect()).await?;
                continue;
            };
            if let Some(row) = front.rows.pop_front() {
                found.push((front.bucket, row));
            } else if front.has_ended {
                open.pop_front();
            } else {
                self.fill(vec![(front, missing)]).await?;
            }
        }
        Ok(())
    }

    /// Asks the store for the next rows of each of these streams, at most so many of each.
    async fn fill(&mut self, mut streams: Vec<(&mut Stream, usize)>) -> Result<(), StoreError> {
        let slices = streams
            .iter()
            .map(|(stream, limit)| Slice {
                bucket: stream.bucket,
                span: stream.rest.clone(),
                descending: self.descending,
                limit: *limit,
            })
            .collect();
        let answers = self.store.read_slices(self.category, slices, self.care).await?;
        for ((stream, limit), rows) in streams.iter_mut().zip(answers) {
            let is_first = self.touched.insert(stream.bucket);
            self.rows = self.rows.saturating_add(u32::try_from(rows.len()).unwrap_or(u32::MAX));
            stream.has_ended = rows.len() < *limit;
            if is_first && rows.is_empty() && stream.is_whole {
                self.found_empty.push(stream.bucket);
            }
            if let Some(last) = rows.last() {
                let place = last.position();
                debug_assert!(rows.is_sorted_by(|a, b| {
                    in_scan_order(self.descending, &a.position(), &b.position()).is_lt()
                }));
                if self.descending {
                    stream.rest.upper = place;
                } else {
                    stream.rest.lower = place;
                }
            }
            // After a split a hash bucket may still hold rows that have been copied to another.
            let (level, bucket) = (self.level, stream.bucket);
            stream.rows.extend(rows.into_iter().filter(|row| {
                bucket.model == Model::Price || hash_bucket(&row.id, level) == bucket.number
            }));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::model::browse::PriceRange;
    use super::super::super::model::buckets::{Layout, price_bucket};
    use super::*;

    fn map(level: u8, buckets: &[(i64, u64)]) -> CategoryMap {
        let mut layout = Layout::default();
        layout.hash.level = level;
        let price = |(rubles, rows): &(i64, u64)| {
            let number = price_bucket(rubles * 100, layout.price.level);
            (Bucket { model: Model::Price, number }, *rows)
        };
        CategoryMap { layout, product_count: 0, buckets: buckets.iter().map(price).collect() }
    }

    fn prices(min: i64, max: i64) -> Span {
        Span::of_prices(PriceRange { min: Some(min * 100), max: Some(max * 100) })
    }

    #[test]
    fn the_model_that_reads_fewer_partitions_is_taken() {
        let all = Span::of_prices(PriceRange::default());
        // One hash bucket: nothing is fewer.
        assert_eq!(plan(&map(0, &[(100, 9), (50_000, 9)]), &all, false, 21), Model::Hash);
        // Many hash buckets, and one price bucket has the whole page.
        assert_eq!(plan(&map(3, &[(100, 900), (50_000, 9)]), &all, false, 21), Model::Price);
        // From the other end the first price bucket is not enough, but two still are fewer.
        assert_eq!(plan(&map(3, &[(100, 900), (50_000, 9)]), &all, true, 21), Model::Price);
        // Thinly spread: eight hash buckets are fewer than twenty price buckets.
        let thin: Vec<_> = (0..20).map(|i| (i * 20_000, 1)).collect();
        assert_eq!(plan(&map(3, &thin), &all, false, 21), Model::Hash);
        // … unless the range is narrow.
        assert_eq!(plan(&map(3, &thin), &prices(20_000, 70_000), false, 21), Model::Price);
    }

    #[test]
    fn a_walk_touches_the_buckets_of_the_range_only() {
        let map = map(3, &[(100, 1), (20_000, 1), (40_000, 1)]);
        let touched = |min, max| price_walk(&map, &prices(min, max), false).len();
        assert_eq!(touched(0, 100_000), 3);
        assert_eq!(touched(15_000, 16_000), 1);
        assert_eq!(touched(200_000, 300_000), 0);
        let backwards = price_walk(&map, &prices(0, 100_000), true);
        assert!(backwards.is_sorted_by(|a, b| a.0 > b.0));
    }
}
