use super::super::model::CartLine;
use super::*;
use crate::clock::Timestamp;
use crate::graphql::assert_written_as_resolved;
use crate::product_id::ProductId;

fn cart() -> Cart {
    let at = Timestamp::from_millis(1_794_736_800_000);
    let line = |id: &str, image_url: Option<String>| CartLine {
        product: ProductId::parse(id).unwrap(),
        units: 3,
        card: Card {
            name: "Чайник \"1\"".to_owned(),
            price: Money::rub("10.50".parse().unwrap()),
            image_url,
        },
        added_at: at,
    };
    Cart {
        lines: vec![line("1", None), line("2", Some("/images/2.svg".to_owned()))],
        changed_at: Some(at),
        touched_at: Some(at),
        ..Cart::default()
    }
}

#[tokio::test]
async fn carts_are_written_as_they_are_resolved() {
    let owner = || Owner::User("«a»\"b\"".into());
    let fields = "id lines { productId } totalQuantity updatedAt expiresAt";
    for cart in [Cart::default(), cart()] {
        let node = CartNode::new(owner(), Arc::new(cart));
        let owned = Arc::into_inner(node.0).unwrap();
        assert_written_as_resolved(owned, fields, &["subtotal", "notices"]).await;
    }
    let fault = UserError { code: ErrorCode::Invalid, field: None, message: "no".to_owned() };
    for errors in [Vec::new(), vec![fault]] {
        let payload = *CartPayload::answer(owner(), cart(), errors).0;
        let fields = "cart { id } userErrors { code message }";
        assert_written_as_resolved(payload, fields, &[]).await;
    }
}

#[tokio::test]
async fn lines_are_written_as_they_are_resolved() {
    let cart = Arc::new(cart());
    for line in lines::bare(&cart) {
        let fields = "productId name imageUrl quantity priceWhenAdded { amount } addedAt";
        assert_written_as_resolved(line, fields, &["product", "unitPrice", "total"]).await;
    }
}
