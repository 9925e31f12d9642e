use super::*;
use crate::graphql::assert_written_as_resolved;
use crate::money::Money;
use crate::orders::model::{Month, UnitsStand};
use crate::owner::Owner;
use crate::page::CursorKey;
use crate::product_id::ProductId;

fn order(has_all: bool) -> Order {
    let at = Timestamp::from_millis(1_794_736_800_000);
    let text = || has_all.then(|| "«Текст»\n".to_owned());
    let price = Money::rub("10.50".parse().unwrap());
    let line = |id: &str| OrderLine {
        product: ProductId::parse(id).unwrap(),
        name: "Чайник \"1\"".to_owned(),
        units: 3,
        price,
    };
    Order {
        id: Uuid::from_u128(7),
        owner: Owner::User("u".into()),
        status: if has_all { OrderStatus::Shipped } else { OrderStatus::Created },
        units: UnitsStand::Held,
        zone: GeoZone::new_unchecked("Москва"),
        lines: vec![line("1"), line("2")],
        total: price.times(6),
        address: Address {
            city: "Москва".to_owned(),
            street: "Тверская, 1".to_owned(),
            postal_code: text(),
            recipient: text(),
            phone: text(),
        },
        payment_method: "card".to_owned(),
        created_at: at,
        updated_at: at,
        payment_due_at: at,
        tracking_number: text(),
        payment: None,
        part: Month::of(at),
        changes: Vec::new(),
        version: 1,
    }
}

const FIELDS: &str = "id status lines { productId } total { amount } geoZone \
                      shippingAddress { city } paymentMethod createdAt updatedAt paymentDueAt \
                      trackingNumber";

#[tokio::test]
async fn orders_are_written_as_they_are_resolved() {
    for has_all in [false, true] {
        let order = order(has_all);
        let (line, address) = (order.lines[0].clone(), order.address.clone());
        assert_written_as_resolved(order, FIELDS, &["timeline"]).await;
        let fields = "productId name quantity unitPrice { amount } total { amount }";
        assert_written_as_resolved(line, fields, &["product"]).await;
        let fields = "city street postalCode recipient phone";
        assert_written_as_resolved(address, fields, &[]).await;
    }
}

#[tokio::test]
async fn pages_are_written_as_they_are_resolved() {
    let info = "pageInfo { hasNextPage hasPreviousPage startCursor endCursor }";
    let fields = format!("edges {{ cursor node {{ id }} }} nodes {{ {FIELDS} }} {info}");
    let place = order(true).place();
    for (orders, has_next, next) in
        [(Vec::new(), false, None), (vec![order(true), order(false)], true, Some(place))]
    {
        let page = OrderPage { orders, has_next, has_previous: !has_next, next };
        let cursors = CursorKey::derive(&[7; 32].into()).of(&[b"list"]);
        let page = *connection(cursors, page).0;
        assert_written_as_resolved(page, &fields, &[]).await;
    }
}
