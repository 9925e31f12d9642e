//! Exact decimals as Cassandra keeps them.

use rust_decimal::Decimal;
use scylla::value::CqlDecimal;

/// An amount as a value of Cassandra.
pub fn to_cql(amount: Decimal) -> CqlDecimal {
    let bytes = amount.mantissa().to_be_bytes();
    let scale = i32::try_from(amount.scale()).unwrap_or(i32::MAX);
    CqlDecimal::from_signed_be_bytes_slice_and_exponent(&bytes, scale)
}

/// A value of Cassandra as an amount; `None` if it does not fit.
pub fn from_cql(value: &CqlDecimal) -> Option<Decimal> {
    let (bytes, scale) = value.as_signed_be_bytes_slice_and_exponent();
    let sign = if bytes.first()? & 0x80 == 0 { 0x00 } else { 0xFF };
    let mut wide = [sign; 16];
    let start = wide.len().checked_sub(bytes.len())?;
    wide[start..].copy_from_slice(bytes);
    Decimal::try_from_i128_with_scale(i128::from_be_bytes(wide), u32::try_from(scale).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_survive_the_trip() {
        for text in ["0.00", "0.01", "89990.00", "100000000000.00", "-1.50", "0.99", "1.28"] {
            let amount: Decimal = text.parse().unwrap();
            assert_eq!(from_cql(&to_cql(amount)).unwrap().to_string(), text);
        }
        let short = CqlDecimal::from_signed_be_bytes_slice_and_exponent(&[0x7F], 2);
        assert_eq!(from_cql(&short).unwrap().to_string(), "1.27");
        let huge = CqlDecimal::from_signed_be_bytes_slice_and_exponent(&[1; 17], 2);
        assert_eq!(from_cql(&huge), None);
    }
}
