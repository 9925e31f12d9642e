use super::*;
use crate::clock::Timestamp;
use crate::graphql::assert_written_as_resolved;

#[tokio::test]
async fn stock_is_written_as_it_is_resolved() {
    for quantity in [0, 3, 1_000, i64::MAX] {
        let key = StockKey {
            product: ProductId::parse("1").unwrap(),
            zone: GeoZone::new_unchecked("Москва"),
        };
        let updated_at = Timestamp::from_millis(1_794_736_800_000);
        let level = StockLevel { quantity, reserved: 0, version: 1, updated_at };
        let stock = Stock { key, level, few: 5 };
        let fields = "geoZone available status updatedAt";
        assert_written_as_resolved(stock, fields, &["product"]).await;
    }
}
