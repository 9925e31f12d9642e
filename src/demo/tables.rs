//! What the demo shop sells: its categories, the kinds of goods in each, and the words their
//! names, attributes and descriptions are made of. Data only; `catalogue` draws products from it.
//!
//! Texts are templates, so that a name, its attributes and its description tell the same story:
//!
//! | mark | stands for |
//! |---|---|
//! | `$B`, `$M`, `$C` | the brand, the model, the maker's article code |
//! | `$0` … `$9` | the value of that entry of [`Kind::specs`] |
//! | `&0` … `&9` | the digits that value begins with («55» of «55″») |
//! | `~0` … `~9` | a word of that list of [`Kind::words`] |
//! | `#`, `%`, `@` | a digit, a digit other than zero, a capital letter |
//! | `[abc]` | one of the characters |

mod accessories;
mod appliances;
mod audio;
mod books;
mod computers;
mod household;
mod laptops;
mod leisure;
mod media;
mod mobile;
mod personal;

/// A category and what stands in it.
#[derive(Debug)]
pub(super) struct Category {
    /// Its Russian name, which is its key in the shop.
    pub name: &'static str,
    /// How many of a hundred products stand in it.
    pub share: i64,
    /// What is sold there.
    pub kinds: &'static [Kind],
}

/// The shop's categories, the largest one first. The shares add up to [`SLOTS`].
pub(super) static SHELVES: [Category; 12] = [
    shelf(
        "Электроника",
        45,
        &[
            mobile::SMARTPHONE,
            laptops::LAPTOP,
            audio::HEADPHONES,
            audio::TRUE_WIRELESS,
            media::TV,
            mobile::TABLET,
            mobile::WATCH,
            media::CAMERA,
            audio::SPEAKER,
            media::CONSOLE,
        ],
    ),
    shelf(
        "Бытовая техника",
        12,
        &[appliances::WASHER, appliances::FRIDGE, appliances::VACUUM, appliances::MICROWAVE],
    ),
    shelf(
        "Компьютерные комплектующие",
        8,
        &[computers::GRAPHICS_CARD, computers::DISK, computers::BOARD],
    ),
    shelf("Аксессуары", 7, &[accessories::CASE, accessories::POWER_BANK, accessories::CHARGER]),
    shelf("Книги", 6, &[books::FICTION, books::TEXTBOOK]),
    shelf("Дом и кухня", 5, &[household::PAN, household::KETTLE, household::LAMP]),
    shelf("Одежда и обувь", 4, &[personal::TRAINERS, personal::SHIRT]),
    shelf("Игрушки и игры", 4, &[leisure::BRICKS, leisure::BOARD_GAME]),
    shelf("Спорт и отдых", 3, &[leisure::BIKE, leisure::TENT]),
    shelf("Красота и здоровье", 3, &[personal::DRYER, personal::CARE]),
    shelf("Автотовары", 2, &[household::TYRE, household::DASHCAM, household::OIL]),
    shelf("Зоотовары", 1, &[personal::PET_FOOD]),
];

const fn shelf(name: &'static str, share: i64, kinds: &'static [Kind]) -> Category {
    Category { name, share, kinds }
}

/// After how many products the order of categories repeats.
pub(super) const SLOTS: usize = 100;

/// Which entry of [`SHELVES`] each product of a run of [`SLOTS`] stands in.
pub(super) static SLOT_SHELVES: [usize; SLOTS] = spread_shares(&SHELVES);

/// Deals the slots out by smooth weighted round robin: each category's slots lie evenly apart, so
/// that its share holds in every prefix of the catalogue and not only in whole runs.
const fn spread_shares<const N: usize>(shelves: &[Category; N]) -> [usize; SLOTS] {
    let mut credit = [0; N];
    let mut slots = [0; SLOTS];
    let mut slot = 0;
    while slot < SLOTS {
        let mut best = 0;
        let mut shelf = 0;
        while shelf < N {
            credit[shelf] += shelves[shelf].share;
            if credit[shelf] > credit[best] {
                best = shelf;
            }
            shelf += 1;
        }
        credit[best] -= 100;
        slots[slot] = best;
        slot += 1;
    }
    slots
}

/// One kind of goods, such as smartphones: everything needed to make up one of them.
#[derive(Debug)]
pub(super) struct Kind {
    /// How often it occurs, relative to the other kinds of its category.
    pub weight: u64,
    /// Which picture it gets.
    pub icon: Icon,
    /// Template of the product's name.
    pub title: &'static str,
    /// What the maker is called among the attributes.
    pub maker: &'static str,
    /// Who makes it, and under which names.
    pub families: &'static [Family],
    /// The attributes beside the maker; a value that is empty leaves its attribute out.
    pub specs: &'static [Spec],
    /// Lists of words for `~0` and so on.
    pub words: &'static [&'static [&'static str]],
    /// Roubles at the tiers 0, 250, 500, 750 and 1000. Dear goods are many times dearer than cheap
    /// ones, so the steps grow.
    pub prices: [u32; 5],
    /// Choices for the first, the second and the third sentence of the description.
    pub about: [&'static [&'static str]; 3],
}

/// Models of one brand that have something in common.
#[derive(Debug)]
pub(super) struct Family {
    /// The brand.
    pub brand: &'static str,
    /// Template of the article code.
    pub code: &'static str,
    /// Its series.
    pub lines: &'static [Line],
    /// Attributes that differ from the kind's of the same name: an iPhone runs no Android.
    pub own: &'static [Spec],
}

/// A series of models and its place between the cheapest and the dearest of the kind.
#[derive(Debug)]
pub(super) struct Line {
    /// Template of the model's name.
    pub model: &'static str,
    /// Lowest tier, from 0 for the cheapest goods of the kind.
    pub low: u32,
    /// Highest tier, up to [`TOP_TIER`].
    pub high: u32,
}

/// The tier of the dearest goods of a kind.
pub(super) const TOP_TIER: u32 = 1000;

/// An attribute and the values it may have.
#[derive(Debug)]
pub(super) struct Spec {
    /// Its Russian name.
    pub name: &'static str,
    /// What it may be.
    pub values: Values,
}

/// Where an attribute's value comes from.
#[derive(Debug)]
pub(super) enum Values {
    /// Any of these, whatever the product costs.
    Any(&'static [&'static str]),
    /// These, from the cheapest to the dearest: the product's tier decides, give or take a little.
    Rising(&'static [&'static str]),
    /// The same without the give or take, where the model's name already says it.
    Exact(&'static [&'static str]),
    /// A number of a range, in steps, with its unit.
    Span {
        /// The smallest.
        low: u32,
        /// The largest.
        high: u32,
        /// The distance between two of them.
        step: u32,
        /// What follows the number, with its space.
        unit: &'static str,
    },
    /// The value at the place where an earlier attribute's value stands in its own list: a small
    /// television has no 4K. Templates, too.
    Paired(usize, &'static [&'static str]),
    /// Made of one of these templates.
    Made(&'static [&'static str]),
}

const fn family(
    brand: &'static str,
    code: &'static str,
    lines: &'static [Line],
    own: &'static [Spec],
) -> Family {
    Family { brand, code, lines, own }
}

const fn line(model: &'static str, low: u32, high: u32) -> Line {
    Line { model, low, high }
}

const fn any(name: &'static str, values: &'static [&'static str]) -> Spec {
    Spec { name, values: Values::Any(values) }
}

const fn rising(name: &'static str, values: &'static [&'static str]) -> Spec {
    Spec { name, values: Values::Rising(values) }
}

const fn exact(name: &'static str, values: &'static [&'static str]) -> Spec {
    Spec { name, values: Values::Exact(values) }
}

const fn paired(name: &'static str, with: usize, values: &'static [&'static str]) -> Spec {
    Spec { name, values: Values::Paired(with, values) }
}

const fn made(name: &'static str, templates: &'static [&'static str]) -> Spec {
    Spec { name, values: Values::Made(templates) }
}

const fn span(name: &'static str, low: u32, high: u32, step: u32, unit: &'static str) -> Spec {
    Spec { name, values: Values::Span { low, high, step, unit } }
}

/// The picture of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Icon {
    Battery,
    Bike,
    Board,
    Book,
    Bottle,
    Bricks,
    Camera,
    Case,
    Console,
    Dashcam,
    Dice,
    Disk,
    Dryer,
    Earbuds,
    Fridge,
    Graphics,
    Headphones,
    Kettle,
    Lamp,
    Laptop,
    Microwave,
    Oil,
    Pan,
    Paw,
    Phone,
    Plug,
    Shirt,
    Shoe,
    Speaker,
    Tablet,
    Tent,
    Tv,
    Tyre,
    Vacuum,
    Washer,
    Watch,
}

/// Colours of gadgets; `images` paints each of them.
const GADGET_COLOURS: &[&str] = &[
    "чёрный",
    "чёрный",
    "белый",
    "серый",
    "серебристый",
    "синий",
    "голубой",
    "зелёный",
    "фиолетовый",
    "розовый",
    "золотистый",
];

/// Colours of things that stand in a kitchen.
const APPLIANCE_COLOURS: &[&str] = &["белый", "белый", "серебристый", "чёрный", "серый", "бежевый"];

/// Colours of clothes and of what is bought for its looks.
const BRIGHT_COLOURS: &[&str] = &[
    "чёрный",
    "белый",
    "серый",
    "синий",
    "голубой",
    "зелёный",
    "красный",
    "розовый",
    "бежевый",
    "оранжевый",
    "жёлтый",
];

/// What a shop promises at the end of a description.
const PROMISES: &[&str] = &[
    "Официальная гарантия производителя.",
    "В комплекте — инструкция на русском языке.",
    "Товар сертифицирован для продажи в России.",
    "Можно забрать из магазина в день заказа.",
    "Проверить комплектацию можно при получении.",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> impl Iterator<Item = &'static Kind> {
        SHELVES.iter().flat_map(|category| category.kinds)
    }

    fn len(values: &Values) -> usize {
        match values {
            Values::Any(list)
            | Values::Rising(list)
            | Values::Exact(list)
            | Values::Paired(_, list)
            | Values::Made(list) => list.len(),
            Values::Span { low, high, step, .. } => {
                assert!(low < high && *step > 0);
                1
            }
        }
    }

    #[test]
    fn shares_add_up() {
        assert_eq!(SHELVES.iter().map(|category| category.share).sum::<i64>(), 100);
        for (shelf, category) in SHELVES.iter().enumerate() {
            let slots = SLOT_SHELVES.iter().filter(|&&slot| slot == shelf).count();
            assert_eq!(i64::try_from(slots), Ok(category.share), "{}", category.name);
        }
    }

    /// A draw from a list that is empty, or past its end, would be a panic.
    #[test]
    fn there_is_something_to_draw_everywhere() {
        for kind in kinds() {
            assert!(kind.weight > 0 && !kind.families.is_empty(), "{}", kind.title);
            assert!(kind.about.iter().all(|sentences| !sentences.is_empty()), "{}", kind.title);
            assert!(kind.words.iter().all(|words| !words.is_empty()), "{}", kind.title);
            assert!(kind.prices.is_sorted(), "{}", kind.title);
            for family in kind.families {
                assert!(!family.lines.is_empty(), "{}", family.brand);
                for line in family.lines {
                    assert!(line.low <= line.high && line.high <= TOP_TIER, "{}", line.model);
                }
                let spec_of = |spec: &'static Spec| {
                    family.own.iter().find(|own| own.name == spec.name).unwrap_or(spec)
                };
                for own in family.own {
                    let known = kind.specs.iter().any(|spec| spec.name == own.name);
                    assert!(known, "{} has no {} to differ in", kind.title, own.name);
                }
                for (place, spec) in kind.specs.iter().enumerate() {
                    let values = &spec_of(spec).values;
                    assert!(len(values) > 0, "{} of {}", spec.name, kind.title);
                    if let Values::Paired(with, list) = values {
                        assert!(*with < place, "{} comes too early", spec.name);
                        let partner = &spec_of(&kind.specs[*with]).values;
                        assert_eq!(len(partner), list.len(), "{} of {}", spec.name, kind.title);
                    }
                }
            }
        }
    }

    #[test]
    fn choices_are_of_ascii_characters() {
        let lines = kinds().flat_map(|kind| kind.families).flat_map(|family| family.lines);
        let codes = kinds().flat_map(|kind| kind.families).map(|family| family.code);
        for template in lines.map(|line| line.model).chain(codes) {
            for choice in template.split('[').skip(1) {
                let (choices, _) = choice.split_once(']').unwrap();
                assert!(!choices.is_empty() && choices.is_ascii(), "{template}");
                assert!(!choices.contains('-'), "{template} lists characters, not ranges");
            }
        }
    }
}
