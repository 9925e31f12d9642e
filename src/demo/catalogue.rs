//! The demo catalogue: product number `index` is a pure function of `index`.
//!
//! There is no random source, no clock and no floating point in it, so the i-th product is the
//! same on every machine and in a shop of any size, and a million of them need no memory.

mod splitmix;

use std::borrow::Cow;

use rust_decimal::Decimal;

use self::splitmix::SplitMix;
use super::tables::{Category, Family, Kind, Line, SHELVES, SLOT_SHELVES, SLOTS, TOP_TIER, Values};
use crate::catalog::model::{Attribute, ProductDraft, ProductId};
use crate::money::{Money, PRICE_SCALE};

/// The names of the demo shop's categories; the first one holds 45 % of the products.
pub const CATEGORIES: [&str; SHELVES.len()] = {
    let mut names = [""; SHELVES.len()];
    let mut shelf = 0;
    while shelf < names.len() {
        names[shelf] = SHELVES[shelf].name;
        shelf += 1;
    }
    names
};

/// The zones the shop keeps stock in, the largest warehouse first.
pub const GEO_ZONES: [&str; 5] = ["Москва", "СПб", "Казань", "Екатеринбург", "Новосибирск"];

/// What comes before the number in the id of a demo product.
const ID_PREFIX: &str = "PROD-";

/// The number in the id of the first demo product.
const FIRST_NUMBER: u64 = 11_000;

/// Seeds of the streams of draws. Another value makes another shop.
const PRODUCT_SEED: u64 = 0x5649_5452_494e_4131;
const STOCK_SEED: u64 = 0x5649_5452_494e_4132;

/// The `index`-th product of the demo shop.
pub fn product(index: u64) -> ProductDraft {
    let Sketch { mut rng, category, kind, family, line, tier, roubles } = Sketch::of(index);
    let mut scene =
        Scene { kind, family, model: String::new(), code: String::new(), values: vec![] };
    scene.draw_values(tier, &mut rng);
    scene.model = scene.text(line.model, &mut rng);
    scene.code = scene.text(family.code, &mut rng);
    let name = scene.text(kind.title, &mut rng);
    let description = scene.description(&mut rng);
    let id = id_of(index);
    let image_url = Some(format!("/images/{id}.svg"));
    ProductDraft {
        id: ProductId::new_unchecked(id),
        name,
        description: Some(description),
        category: category.name.to_owned(),
        price: Money::rub(Decimal::new(i64::from(roubles) * 100, PRICE_SCALE)),
        attributes: scene.into_attributes(),
        image_url,
    }
}

/// The id of the `index`-th product.
pub fn id_of(index: u64) -> String {
    // Wider than the index, so that every index has an id of its own.
    format!("{ID_PREFIX}{}", u128::from(index) + u128::from(FIRST_NUMBER))
}

/// Which demo product has this id. Only the exact text that [`product`] gives out is one:
/// `PROD-011000` and `PROD-+11000` are not.
pub fn index_of(id: &str) -> Option<u64> {
    let digits = id.strip_prefix(ID_PREFIX)?;
    if digits.starts_with('0') || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u128 = digits.parse().ok()?;
    u64::try_from(number.checked_sub(u128::from(FIRST_NUMBER))?).ok()
}

/// How many pieces of the `index`-th product lie in each geo zone: what loading the demo shop's
/// stock writes.
///
/// A zone that never carries the product is absent, one that has sold out of it is there with 0.
/// Cheap goods lie in larger heaps than dear ones, and Moscow has the most of everything.
pub fn stock(index: u64) -> Vec<(&'static str, u32)> {
    /// For each zone: in how many of a hundred cases it carries a product, and its size.
    const CARRIES: [(usize, u32); GEO_ZONES.len()] = [(96, 10), (90, 7), (78, 4), (74, 4), (70, 3)];
    let heap = match Sketch::of(index).roubles {
        0..1_000 => 240,
        1_000..5_000 => 120,
        5_000..20_000 => 60,
        20_000..60_000 => 30,
        60_000..150_000 => 15,
        _ => 7,
    };
    let mut rng = SplitMix::of(index, STOCK_SEED);
    let mut zones = Vec::with_capacity(GEO_ZONES.len());
    for (zone, (carried, size)) in GEO_ZONES.into_iter().zip(CARRIES) {
        let share = rng.up_to(heap);
        let sold_out = rng.below(100) < 12;
        if rng.below(100) < carried {
            zones.push((zone, if sold_out { 0 } else { (share * size).div_ceil(10) }));
        }
    }
    zones
}

/// Which kind of goods the `index`-th product is, for its picture.
pub(super) fn kind_of(index: u64) -> &'static Kind {
    Sketch::of(index).kind
}

/// What is decided about a product before its texts are made.
struct Sketch {
    rng: SplitMix,
    category: &'static Category,
    kind: &'static Kind,
    family: &'static Family,
    line: &'static Line,
    tier: u32,
    roubles: u32,
}

impl Sketch {
    fn of(index: u64) -> Self {
        let mut rng = SplitMix::of(index, PRODUCT_SEED);
        let slot = usize::try_from(index % SLOTS as u64).unwrap_or(0);
        let category = &SHELVES[SLOT_SHELVES[slot]];
        let kind = rng.weighted(category.kinds);
        let family = rng.one_of(kind.families);
        let line = rng.one_of(family.lines);
        let tier = line.low + rng.up_to(line.high - line.low);
        let roubles = tidy_price(price_at(&kind.prices, tier));
        Self { rng, category, kind, family, line, tier, roubles }
    }
}

/// Roubles at a tier, between the steps of a kind's prices.
fn price_at(steps: &[u32; 5], tier: u32) -> u32 {
    const WIDTH: u32 = TOP_TIER / 4;
    let mut above = tier;
    for pair in steps.windows(2) {
        if above <= WIDTH {
            return pair[0] + (pair[1] - pair[0]) * above / WIDTH;
        }
        above -= WIDTH;
    }
    steps[4]
}

/// The nearest price a shop would print: 349, 1 290, 4 490, 89 990.
fn tidy_price(roubles: u32) -> u32 {
    let (step, below) = match roubles {
        0..1_000 => (50, 1),
        1_000..3_000 => (100, 10),
        3_000..100_000 => (500, 10),
        _ => (1_000, 10),
    };
    (roubles + step / 2).max(step) / step * step - below
}

/// A product whose texts are being made.
struct Scene {
    kind: &'static Kind,
    family: &'static Family,
    model: String,
    code: String,
    /// One for each entry of the kind's specs.
    values: Vec<Cow<'static, str>>,
}

impl Scene {
    /// Decides the attributes.
    fn draw_values(&mut self, tier: u32, rng: &mut SplitMix) {
        let specs = self.kind.specs;
        let mut places: Vec<usize> = Vec::with_capacity(specs.len());
        self.values.reserve(specs.len());
        for spec in specs {
            let own = self.family.own.iter().find(|own| own.name == spec.name);
            let mut place = 0;
            let value = match own.unwrap_or(spec).values {
                Values::Any(list) => {
                    place = rng.below(list.len());
                    list[place].into()
                }
                Values::Rising(list) => {
                    place = place_of(rng.near(tier), list.len());
                    list[place].into()
                }
                Values::Exact(list) => {
                    place = place_of(tier, list.len());
                    list[place].into()
                }
                Values::Paired(with, list) => self.text(list[places[with]], rng).into(),
                Values::Span { low, high, step, unit } => {
                    let number = low + rng.up_to((high - low) / step) * step;
                    format!("{number}{unit}").into()
                }
                Values::Made(templates) => {
                    let template = rng.word(templates);
                    self.text(template, rng).into()
                }
            };
            places.push(place);
            self.values.push(value);
        }
    }

    /// One to three sentences.
    fn description(&self, rng: &mut SplitMix) -> String {
        let [opening, middle, closing] = self.kind.about;
        let mut text = String::with_capacity(320);
        self.expand(rng.word(opening), rng, &mut text);
        for (sentences, chance) in [(middle, 80), (closing, 50)] {
            if rng.below(100) < chance {
                text.push(' ');
                self.expand(rng.word(sentences), rng, &mut text);
            }
        }
        text
    }

    fn into_attributes(self) -> Vec<Attribute> {
        let maker = (self.kind.maker, Cow::Borrowed(self.family.brand));
        let rest = self.kind.specs.iter().map(|spec| spec.name).zip(self.values);
        std::iter::once(maker)
            .chain(rest.filter(|(_, value)| !value.is_empty()))
            .map(|(name, value)| Attribute { name: name.to_owned(), value: value.into_owned() })
            .collect()
    }

    fn text(&self, template: &str, rng: &mut SplitMix) -> String {
        let mut text = String::with_capacity(template.len() + 64);
        self.expand(template, rng, &mut text);
        text
    }

    /// Writes a template out. The marks are listed in `tables`; a mark that names nothing writes
    /// nothing.
    fn expand(&self, template: &str, rng: &mut SplitMix, out: &mut String) {
        /// Without those that are read as digits.
        const LETTERS: &[u8] = b"ABCDEFGHJKLMNPRSTUVWXYZ";
        const MARKS: [char; 7] = ['$', '&', '~', '#', '%', '@', '['];
        let mut rest = template;
        while let Some(at) = rest.find(MARKS) {
            out.push_str(&rest[..at]);
            let mark = rest.as_bytes()[at];
            rest = &rest[at + 1..];
            match mark {
                b'#' => out.push(char::from(b'0' + rng.digit(10))),
                b'%' => out.push(char::from(b'1' + rng.digit(9))),
                b'@' => out.push(char::from(*rng.one_of(LETTERS))),
                b'[' => {
                    let (choices, after) = rest.split_once(']').unwrap_or((rest, ""));
                    out.push(char::from(*rng.one_of(choices.as_bytes())));
                    rest = after;
                }
                _ => {
                    let name = rest.as_bytes().first().copied().unwrap_or_default();
                    self.insert(mark, name, rng, out);
                    rest = rest.get(1..).unwrap_or_default();
                }
            }
        }
        out.push_str(rest);
    }

    /// Writes out a mark of two characters.
    fn insert(&self, mark: u8, name: u8, rng: &mut SplitMix, out: &mut String) {
        let place = usize::from(name.wrapping_sub(b'0'));
        match (mark, name) {
            (b'$', b'B') => out.push_str(self.family.brand),
            (b'$', b'M') => out.push_str(&self.model),
            (b'$', b'C') => out.push_str(&self.code),
            (b'$', _) => out.push_str(self.values.get(place).map_or("", |value| value)),
            (b'&', _) => {
                let value = self.values.get(place).map_or("", |value| value);
                let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
                out.push_str(&value[..end]);
            }
            (_, _) => {
                out.push_str(self.kind.words.get(place).map_or("", |words| rng.word(words)));
            }
        }
    }
}

/// Where a tier falls in a list that runs from cheap to dear.
fn place_of(tier: u32, len: usize) -> usize {
    let tier = usize::try_from(tier).unwrap_or(0);
    let tiers = usize::try_from(TOP_TIER).unwrap_or(usize::MAX) + 1;
    tier * len / tiers
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use crate::catalog::model::{MAX_BATCH, RawProduct, check_batch};

    /// Far apart, to the last one there is.
    const LARGE: [u64; 6] =
        [999_999, 10_000_000, 123_456_789, u64::MAX / 2, u64::MAX - 1, u64::MAX];

    fn raw(index: u64) -> RawProduct {
        let draft = product(index);
        RawProduct {
            id: draft.id.as_str().to_owned(),
            name: draft.name,
            description: draft.description,
            category: draft.category,
            amount: Some(draft.price.amount),
            currency: draft.price.currency.as_str().to_owned(),
            attributes: draft.attributes,
            image_url: draft.image_url,
        }
    }

    #[test]
    fn every_product_is_one_the_shop_accepts() {
        let indices: Vec<u64> = (0..20_000).chain(LARGE).collect();
        for batch in indices.chunks(MAX_BATCH) {
            let kept = check_batch(batch.iter().map(|&index| raw(index)).collect()).unwrap();
            for (draft, &index) in kept.iter().zip(batch) {
                assert_eq!(*draft, product(index), "accepted as it is, price scale included");
                assert!(draft.price.amount > Decimal::ZERO);
                assert!((3..=10).contains(&draft.attributes.len()), "{draft:?}");
            }
        }
    }

    #[test]
    fn texts_have_no_holes() {
        for index in 0..20_000 {
            let draft = product(index);
            let description = draft.description.unwrap();
            for text in [&draft.name, &description] {
                let marks = ["  ", " ,", " .", "«»", "()", "$", "~", "#", "@", "[", "]"];
                assert!(marks.iter().all(|mark| !text.contains(mark)), "{text}");
                assert_eq!(text.trim(), text);
            }
            assert!(description.ends_with('.'), "{description}");
            assert_eq!(draft.image_url.unwrap(), format!("/images/{}.svg", draft.id));
        }
    }

    #[test]
    fn a_product_never_changes() {
        let golden = [
            (
                0,
                "Ноутбук MSI Cyborg 16 A13V 9S7-178819-556, 16″, Intel Core i5-13450HX, \
                 32 ГБ/1 ТБ, серый",
                "102990.00",
            ),
            (7, "Смартфон Apple iPhone 16 Pro Max MEB23WN/A 8/512 ГБ золотистый", "148990.00"),
            (24, "Юлия Громова. «Дорога сломанных часов» (подростковая проза, 2019)", "649.00"),
            (1_999, "Телевизор Samsung UE50CU812 JXXRU3V, 50″, 4K", "39990.00"),
            (1_000_000, "Планшет HONOR Pad X9 KEK-609 12,1″ 3/32 ГБ серый", "12990.00"),
        ];
        for (index, name, price) in golden {
            let draft = product(index);
            assert_eq!((draft.name.as_str(), &*draft.price.amount.to_string()), (name, price));
        }
        let phone = product(7);
        let description =
            "Экран диагональю 6,9″, процессор Apple A18 Pro и 512 ГБ встроенной памяти.";
        assert_eq!(phone.description.as_deref(), Some(description));
        assert_eq!(phone.id.as_str(), "PROD-11007");
        let colour =
            Attribute { name: "Цвет".to_owned(), value: "золотистый".to_owned() };
        assert!(phone.attributes.contains(&colour));
        let zones = [("Москва", 6), ("Казань", 6), ("Екатеринбург", 3), ("Новосибирск", 2)];
        assert_eq!(stock(7), zones);
    }

    #[test]
    fn shares_hold_in_every_prefix() {
        let mut electronics = 0;
        let mut counts = HashMap::new();
        for index in 0..10_000_u64 {
            let category = product(index).category;
            electronics += i64::from(category == CATEGORIES[0]);
            *counts.entry(category).or_insert(0) += 1;
            let products = i64::try_from(index).unwrap() + 1;
            assert!(
                (electronics * 100 - products * 45).abs() <= 100,
                "{electronics} of {products}"
            );
            if products == 100 {
                assert_eq!(counts.len(), CATEGORIES.len(), "all of them are among the first 100");
            }
        }
        assert_eq!(counts["Электроника"], 4_500);
        assert!(CATEGORIES.iter().all(|&name| counts.contains_key(name)));
    }

    #[test]
    fn an_id_leads_back_to_its_product() {
        for index in (0..1_000).chain(LARGE) {
            assert_eq!(index_of(&id_of(index)), Some(index));
        }
        assert_eq!(index_of("PROD-11042"), Some(42));
        for wrong in [
            "",
            "PROD-",
            "PROD-10999",
            "PROD-011042",
            "PROD-+11042",
            "PROD--1",
            "prod-11042",
            "PROD-11042 ",
            "PROD-11042.svg",
            "PROD-١١٠٤٢",
            "PROD-18446744073709562616",
            "PROD-99999999999999999999999999999999999999999999",
        ] {
            assert_eq!(index_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_hardly_ever_repeat() {
        let names: HashSet<String> = (0..20_000).map(|index| product(index).name).collect();
        assert!(names.len() > 19_980, "{}", names.len());
    }

    #[test]
    fn prices_end_as_in_a_shop() {
        let printed = [20, 260, 980, 1_249, 3_200, 42_420, 161_300].map(tidy_price);
        assert_eq!(printed, [49, 249, 999, 1_190, 2_990, 42_490, 160_990]);
        assert_eq!(price_at(&[10, 20, 40, 80, 160], 0), 10);
        assert_eq!(price_at(&[10, 20, 40, 80, 160], 625), 60);
        assert_eq!(price_at(&[10, 20, 40, 80, 160], 1000), 160);
    }

    #[test]
    fn stock_is_believable() {
        let (mut absent, mut empty, mut filled) = (0, 0, 0);
        for index in 0..5_000 {
            let zones = stock(index);
            let names: Vec<_> = zones.iter().map(|(zone, _)| *zone).collect();
            assert!(names.iter().all(|zone| GEO_ZONES.contains(zone)));
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
            absent += GEO_ZONES.len() - zones.len();
            empty += zones.iter().filter(|(_, quantity)| *quantity == 0).count();
            filled += zones.iter().filter(|(_, quantity)| (1..=240).contains(quantity)).count();
        }
        assert_eq!(absent + empty + filled, 25_000);
        assert!(absent > 2_500 && empty > 1_500 && filled > 15_000, "{absent} {empty} {filled}");
    }
}
