//! What a client wants changed: checked, and held against the limits of a cart.

use std::collections::{HashMap, HashSet};

use super::{Card, Cart, Change, MAX_LINES, MAX_UNITS, Units, fingerprint};
use crate::error::{ErrorCode, UserError};
use crate::input::Faults;
use crate::product_id::{MAX_ID_CHARS, ProductId};

/// A line as it came from outside.
#[derive(Debug, Clone)]
pub struct RawLine {
    /// The product's id.
    pub product: String,
    /// How many units.
    pub quantity: i64,
}

/// A change as it came from outside.
#[derive(Debug, Clone)]
pub enum RawChange {
    /// Add units.
    Add(Vec<RawLine>),
    /// Have so many units; 0 for none.
    Set(Vec<RawLine>),
    /// Take products out.
    Remove(Vec<String>),
    /// Take everything out.
    Clear,
}

impl RawChange {
    /// The products that there must be for it, as far as their ids are sound.
    pub fn products(&self) -> Vec<ProductId> {
        let (Self::Add(lines) | Self::Set(lines)) = self else { return Vec::new() };
        let wanted = lines.iter().filter(|line| line.quantity > 0).take(MAX_LINES);
        wanted.filter_map(|line| ProductId::parse(&line.product).ok()).collect()
    }

    /// Tells it from other things that are asked for, sound or not. It is the same as that of the
    /// [`Change`] that it becomes.
    pub fn fingerprint(&self) -> i64 {
        let of = |kind, lines: &[RawLine]| {
            fingerprint(kind, lines.iter().map(|line| (line.product.as_str(), line.quantity)))
        };
        match self {
            Self::Add(lines) => of("add", lines),
            Self::Set(lines) => of("set", lines),
            Self::Remove(products) => {
                fingerprint("remove", products.iter().map(|product| (product.as_str(), 0)))
            }
            Self::Clear => fingerprint("clear", std::iter::empty()),
        }
    }

    /// Where a product stands in it.
    fn place_of(&self, product: &ProductId) -> Option<usize> {
        let (Self::Add(lines) | Self::Set(lines)) = self else { return None };
        lines.iter().position(|line| line.product == product.as_str())
    }

    /// Checks it, with what its products look like now. All that is wrong is told at once.
    pub fn check(&self, cards: &HashMap<ProductId, Card>) -> Result<Change, Vec<UserError>> {
        match self {
            Self::Add(lines) => Ok(Change::Add(
                check_lines(lines, 1, cards)?.into_iter().filter_map(some).collect(),
            )),
            Self::Set(lines) => {
                let checked = check_lines(lines, 0, cards)?;
                let removed = checked.iter().filter(|(_, units)| units.is_none());
                let removed = removed.map(|(product, _)| product.clone()).collect();
                Ok(Change::Set(checked.into_iter().filter_map(some).collect(), removed))
            }
            Self::Remove(products) => check_products(products).map(Change::Remove),
            Self::Clear => Ok(Change::Clear),
        }
    }
}

fn some((_, units): (ProductId, Option<Units>)) -> Option<Units> {
    units
}

/// A product, and the units wanted of it; `None` for none.
type Checked = (ProductId, Option<Units>);

fn check_lines(
    lines: &[RawLine],
    least: i64,
    cards: &HashMap<ProductId, Card>,
) -> Result<Vec<Checked>, Vec<UserError>> {
    check_count("lines", lines.len())?;
    let mut faults = Faults::of("lines");
    let mut checked: Vec<Checked> = Vec::with_capacity(lines.len());
    for (index, line) in lines.iter().enumerate() {
        faults.entry = index;
        faults.text(&["productId"], &line.product, MAX_ID_CHARS);
        if !(least..=MAX_UNITS).contains(&line.quantity) {
            let message = format!("A quantity is {least} to {MAX_UNITS}.");
            faults.add(&["quantity"], ErrorCode::Invalid, &message);
            continue;
        }
        let Ok(product) = ProductId::parse(&line.product) else { continue };
        let there = checked.iter_mut().find(|(other, _)| *other == product);
        if let Some((_, units)) = there {
            match units {
                // Several lines of one product add up.
                Some(units) if least == 1 => {
                    units.units += line.quantity;
                    if units.units > MAX_UNITS {
                        faults.add(&["quantity"], ErrorCode::QuantityLimit, &too_many_units());
                    }
                }
                _ => {
                    let message = "The same product stands twice.";
                    faults.add(&["productId"], ErrorCode::Duplicate, message);
                }
            }
            continue;
        }
        let units = match (line.quantity, cards.get(&product)) {
            (0, _) => None,
            (_, None) => {
                let message = "There is no such product.";
                faults.add(&["productId"], ErrorCode::NotFound, message);
                continue;
            }
            (units, Some(card)) => {
                Some(Units { product: product.clone(), units, card: card.clone() })
            }
        };
        checked.push((product, units));
    }
    if faults.found.is_empty() { Ok(checked) } else { Err(faults.found) }
}

fn check_products(products: &[String]) -> Result<Vec<ProductId>, Vec<UserError>> {
    check_count("productIds", products.len())?;
    let mut faults = Faults::of("productIds");
    for (index, product) in products.iter().enumerate() {
        faults.entry = index;
        faults.text(&[], product, MAX_ID_CHARS);
    }
    if !faults.found.is_empty() {
        return Err(faults.found);
    }
    Ok(products.iter().filter_map(|product| ProductId::parse(product).ok()).collect())
}

fn check_count(argument: &str, count: usize) -> Result<(), Vec<UserError>> {
    let (code, message) = match count {
        0 => (ErrorCode::Blank, "There must be at least one.".to_owned()),
        1..=MAX_LINES => return Ok(()),
        _ => (ErrorCode::TooMany, format!("At most {MAX_LINES} at once.")),
    };
    Err(vec![UserError { code, field: Some(vec![argument.to_owned()]), message }])
}

fn too_many_units() -> String {
    format!("A cart has at most {MAX_UNITS} of one product.")
}

/// Why a cart cannot take a change that is sound by itself.
pub fn refusals(cart: &Cart, raw: &RawChange, change: &Change) -> Vec<UserError> {
    let (lines, adds) = match change {
        Change::Add(lines) => (lines, true),
        Change::Set(lines, _) => (lines, false),
        _ => return Vec::new(),
    };
    let refuse = |code, message| UserError { code, field: Some(vec!["lines".to_owned()]), message };
    let mut found = Vec::new();
    for line in lines.iter().filter(|_| adds) {
        let there = cart.line(&line.product).map_or(0, |line| line.units);
        if there + line.units > MAX_UNITS {
            let message = format!("{} {there} of {} are there.", too_many_units(), line.product);
            let place = raw.place_of(&line.product).unwrap_or(0).to_string();
            let field = ["lines".to_owned(), place, "quantity".to_owned()];
            let field = Some(field.into());
            found.push(UserError { code: ErrorCode::QuantityLimit, field, message });
        }
    }
    let gone: HashSet<_> = match change {
        Change::Set(_, removed) => removed.iter().collect(),
        _ => HashSet::new(),
    };
    let new = lines.iter().filter(|line| cart.line(&line.product).is_none()).count();
    let kept = cart.lines.iter().filter(|line| !gone.contains(&line.product)).count();
    if new > 0 && kept + new > MAX_LINES {
        let message = format!("A cart has at most {MAX_LINES} lines.");
        found.push(refuse(ErrorCode::CartFull, message));
    }
    // A sum of two currencies would be none.
    let stays = |product: &ProductId| {
        !gone.contains(product) && !lines.iter().any(|line| line.product == *product)
    };
    let kept = cart.lines.iter().find(|line| stays(&line.product));
    let currency = kept.map(|line| line.card.price.currency);
    let currency = currency.or(lines.first().map(|line| line.card.price.currency));
    if lines.iter().any(|line| Some(line.card.price.currency) != currency) {
        let message = "All products of a cart have prices in one currency.".to_owned();
        found.push(refuse(ErrorCode::CurrencyMismatch, message));
    }
    found
}
