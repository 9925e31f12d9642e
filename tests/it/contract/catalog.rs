//! The catalogue's contract.

use std::collections::{BTreeMap, HashMap};

use futures_util::future::join_all;
use vitrina::catalog::model::{Attribute, Product, ProductId};
use vitrina::clock::{Clock, SystemClock, Timestamp};

use crate::support::stores::TestStore;
use crate::support::{Random, draft, seed};

crate::on_every_store!(
    what_is_written_is_read_back_whole,
    many_are_read_in_the_order_asked,
    a_second_write_replaces_the_first_and_keeps_its_birth,
    a_write_wins_over_what_it_replaces_whatever_the_clock_says,
    deleting_answers_with_what_was_there,
    categories_count_their_products,
    writers_of_one_product_come_one_after_another,
    random_changes_leave_what_a_simple_model_says,
);

fn id(text: &str) -> ProductId {
    ProductId::parse(text).unwrap()
}

fn now() -> Timestamp {
    SystemClock.now()
}

async fn one(store: &TestStore, product: &str) -> Option<Product> {
    store.store.products(&[id(product)]).await.unwrap().remove(0)
}

async fn counts(store: &TestStore) -> BTreeMap<String, u64> {
    let categories = store.store.categories().await.unwrap();
    let names: Vec<_> = categories.iter().map(|category| category.name.to_string()).collect();
    assert!(names.is_sorted(), "{names:?}");
    categories.into_iter().map(|c| (c.name.to_string(), c.product_count)).collect()
}

async fn what_is_written_is_read_back_whole(store: &TestStore) {
    let mut full = draft("PROD-1 «ё»/#?%", "Электроника и «всё» остальное", 8_999_000);
    full.name = "Ж".repeat(300);
    full.description = Some("Строка\nи ещё одна \u{1F4F1}".to_owned());
    full.image_url = Some("/images/1.svg".to_owned());
    full.attributes = ["Цвет", "Вес", "Abc"]
        .map(|name| Attribute { name: name.to_owned(), value: format!("{name}: да") })
        .to_vec();
    let mut bare = draft("2", "Электроника и «всё» остальное", 0);
    bare.description = None;
    bare.attributes = Vec::new();

    let written = store.upsert(vec![full.clone(), bare.clone()]).await;
    let read = store.store.products(&[full.id.clone(), bare.id.clone()]).await.unwrap();
    assert_eq!(read, written.iter().cloned().map(Some).collect::<Vec<_>>());

    let product = &written[0];
    assert_eq!(product.name, full.name);
    assert_eq!(product.description, full.description);
    assert_eq!(product.price.amount.to_string(), "89990.00");
    assert_eq!(product.image_url, full.image_url);
    let names: Vec<_> = product.attributes.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["Abc", "Вес", "Цвет"], "attributes are sorted by name on every store");
    assert_eq!(written[1].description, None);
    assert_eq!(written[1].attributes, []);
    assert_eq!(written[1].price.amount.to_string(), "0.00");
}

async fn many_are_read_in_the_order_asked(store: &TestStore) {
    let drafts: Vec<_> = (0..100).map(|n| draft(&format!("P{n}"), "Книги", n)).collect();
    store.upsert(drafts).await;
    let asked: Vec<_> = (0..250).rev().map(|n| id(&format!("P{n}"))).collect();
    let read = store.store.products(&asked).await.unwrap();
    assert_eq!(read.len(), asked.len());
    for (asked, read) in asked.iter().zip(read) {
        let number: u32 = asked.as_str()[1..].parse().unwrap();
        assert_eq!(read.map(|product| product.id), (number < 100).then(|| asked.clone()));
    }
    assert_eq!(store.store.products(&[]).await.unwrap(), []);
}

async fn a_second_write_replaces_the_first_and_keeps_its_birth(store: &TestStore) {
    let born = Timestamp::from_millis(1_700_000_000_000);
    let first = store.upsert_at(vec![draft("A", "Книги", 100)], born).await;
    let mut second = draft("A", "Книги", 250);
    second.description = None;
    second.attributes = Vec::new();
    let later = Timestamp::from_millis(1_700_000_001_500);
    let second = store.upsert_at(vec![second], later).await;

    assert_eq!(one(store, "A").await.as_ref(), Some(&second[0]));
    assert_eq!(second[0].created_at, born);
    assert_eq!(second[0].updated_at, later);
    assert_eq!(second[0].description, None, "nothing of the first write shines through");
    assert_eq!(second[0].attributes, []);
    assert!(second[0].version > first[0].version);
}

async fn a_write_wins_over_what_it_replaces_whatever_the_clock_says(store: &TestStore) {
    let future = Timestamp::from_millis(now().millis() + 3_600_000);
    store.upsert_at(vec![draft("A", "Книги", 100)], future).await;
    // This writer's clock is an hour behind.
    store.upsert(vec![draft("A", "Игры", 200)]).await;
    let product = one(store, "A").await.unwrap();
    assert_eq!(product.price.amount.to_string(), "2.00");
    assert_eq!(product.category.as_ref(), "Игры");
    store.delete(&[id("A")]).await;
    assert_eq!(one(store, "A").await, None);
    // And what was deleted can be written again.
    store.upsert_at(vec![draft("A", "Книги", 300)], future).await;
    assert_eq!(one(store, "A").await.unwrap().price.amount.to_string(), "3.00");
}

async fn deleting_answers_with_what_was_there(store: &TestStore) {
    let drafts = ["A", "B", "C"].map(|id| draft(id, "Книги", 1)).to_vec();
    store.upsert(drafts).await;
    let ids = ["C", "nope", "A"].map(id);
    let deleted = store.delete(&ids).await;
    assert_eq!(deleted, ["C", "A"].map(id));
    assert_eq!(store.delete(&ids).await, []);
    assert!(one(store, "B").await.is_some());
    assert_eq!(counts(store).await, BTreeMap::from([("Книги".to_owned(), 1)]));
}

async fn categories_count_their_products(store: &TestStore) {
    assert_eq!(counts(store).await, BTreeMap::new());
    let drafts = vec![draft("A", "Книги", 1), draft("B", "Книги", 1), draft("C", "Игры", 1)];
    store.upsert(drafts.clone()).await;
    let both = BTreeMap::from([("Игры".to_owned(), 1), ("Книги".to_owned(), 2)]);
    assert_eq!(counts(store).await, both);
    // The same again changes no count.
    store.upsert(drafts).await;
    assert_eq!(counts(store).await, both);
    // A product that moves is counted where it went, and an empty category is gone.
    store.upsert(vec![draft("C", "Книги", 1)]).await;
    assert_eq!(counts(store).await, BTreeMap::from([("Книги".to_owned(), 3)]));
    assert_eq!(store.store.category("Игры").await.unwrap(), None);
    assert_eq!(store.store.category("Книги").await.unwrap().unwrap().product_count, 3);
    assert_eq!(store.store.category("никогда не было").await.unwrap(), None);
}

async fn writers_of_one_product_come_one_after_another(store: &TestStore) {
    let writes = (0..32).map(|n| {
        let category = if n % 2 == 0 { "Книги" } else { "Игры" };
        let store = store.store.clone();
        async move {
            let drafts = vec![draft("A", category, n), draft("B", "Игры", n)];
            let written = store.upsert_products(drafts, now()).await.unwrap();
            written.into_iter().map(|written| written.product).collect::<Vec<_>>()
        }
    });
    let written = join_all(writes).await;
    let mut versions: Vec<_> = written.iter().map(|batch| batch[0].version).collect();
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), written.len(), "no two writes share a version");
    let last = written.iter().map(|batch| &batch[0]).max_by_key(|product| product.version);
    assert_eq!(one(store, "A").await.as_ref(), last, "the largest version stays");
    let expected = match last.unwrap().category.as_ref() {
        "Игры" => BTreeMap::from([("Игры".to_owned(), 2)]),
        _ => BTreeMap::from([("Игры".to_owned(), 1), ("Книги".to_owned(), 1)]),
    };
    assert_eq!(counts(store).await, expected);
}

async fn random_changes_leave_what_a_simple_model_says(store: &TestStore) {
    let mut random = Random(seed());
    let mut model: HashMap<String, (String, i64)> = HashMap::new();
    for _ in 0..60 {
        let some = |random: &mut Random| -> Vec<u64> {
            let mut numbers: Vec<_> = (0..=random.below(8)).map(|_| random.below(30)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        };
        if random.below(4) == 0 {
            let ids: Vec<_> = some(&mut random).iter().map(|n| id(&format!("P{n}"))).collect();
            let deleted = store.delete(&ids).await;
            let there: Vec<_> =
                ids.into_iter().filter(|id| model.remove(id.as_str()).is_some()).collect();
            assert_eq!(deleted, there);
        } else {
            let mut drafts = Vec::new();
            for n in some(&mut random) {
                let category = format!("К{}", random.below(4));
                let kopecks = i64::try_from(random.below(10_000)).unwrap();
                drafts.push(draft(&format!("P{n}"), &category, kopecks));
                model.insert(format!("P{n}"), (category, kopecks));
            }
            store.upsert(drafts).await;
        }
    }
    let mut expected = BTreeMap::new();
    for (category, _) in model.values() {
        *expected.entry(category.clone()).or_insert(0) += 1;
    }
    assert_eq!(counts(store).await, expected);
    let ids: Vec<_> = (0..30).map(|n| id(&format!("P{n}"))).collect();
    for (id, product) in ids.iter().zip(store.store.products(&ids).await.unwrap()) {
        let found = product.map(|p| (p.category.to_string(), p.price.amount.mantissa()));
        let kept = model.get(id.as_str()).map(|(c, kopecks)| (c.clone(), i128::from(*kopecks)));
        assert_eq!(found, kept, "{id}");
    }
}
