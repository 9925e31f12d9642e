use super::*;
use crate::clock::Timestamp;
use crate::graphql::assert_written_as_resolved;

fn product(has_all: bool) -> Product {
    let attribute =
        |name: &str| Attribute { name: name.to_owned(), value: "«я»\n\"".to_owned() };
    Product {
        id: ProductId::parse("PROD-1").unwrap(),
        name: "Чайник".to_owned(),
        description: has_all.then(|| "Кипятит".to_owned()),
        category: "Дом".into(),
        price: Money::rub("1500.00".parse().unwrap()),
        attributes: ["Цвет", "Объём"].into_iter().filter(|_| has_all).map(attribute).collect(),
        image_url: has_all.then(|| "/images/1.svg".to_owned()),
        created_at: Timestamp::from_millis(1_794_736_800_123),
        updated_at: Timestamp::from_millis(-1),
        version: 1,
    }
}

#[tokio::test]
async fn products_are_written_as_they_are_resolved() {
    let fields = "id name description category { name } price { amount } \
                  attributes { name value } imageUrl createdAt updatedAt";
    for has_all in [false, true] {
        assert_written_as_resolved(product(has_all), fields, &["stock", "stocks"]).await;
    }
    let attribute = product(true).attributes.remove(0);
    assert_written_as_resolved(attribute, "name value", &[]).await;
    let edge = ProductEdge::new("AbC_-0".to_owned(), Leaf(Arc::new(product(true))));
    assert_written_as_resolved(edge, "cursor node { id }", &[]).await;
}
