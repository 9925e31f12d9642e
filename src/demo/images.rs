//! Pictures of the demo products: drawn, not photographed, so that the binary can serve one for
//! every product without keeping any.
//!
//! A picture stands on its own: it names no other file, runs nothing, and its ids carry the
//! product's number, so that several of them may be put into one page.

mod icons;

use std::fmt::Write;

use super::catalogue::{kind_of, product};

/// Most characters of a line of the name; more would not fit the width.
const LINE_CHARS: usize = 39;
/// Most lines of the name.
const LINES: usize = 3;

/// The picture of the `index`-th product: an SVG document of 480 by 480 and at most 3 KB.
pub fn svg(index: u64) -> String {
    let draft = product(index);
    let kind = kind_of(index);
    let attribute = |name: &str| {
        let found = draft.attributes.iter().find(|attribute| attribute.name == name);
        found.map_or("", |attribute| attribute.value.as_str())
    };
    let brand = attribute(kind.maker);
    let scheme = &SCHEMES[usize::from(checksum(brand)) % SCHEMES.len()];
    let paint = paint_of(attribute("Цвет")).unwrap_or(scheme.paint);
    let id = draft.id.as_str();

    let mut out = String::with_capacity(3072);
    out.push_str(r#"<svg xmlns="http://www.w3.org/2000/svg" width="480" height="480" viewBox="0 0 480 480" role="img"><title>"#);
    escape(&draft.name, &mut out);
    let (top, bottom, accent) = (scheme.top, scheme.bottom, scheme.accent);
    // Writing to a string cannot fail; a picture is not worth an error path.
    let _ = write!(
        out,
        r##"</title><defs><linearGradient id="{id}" x1="0" y1="0" x2="1" y2="1"><stop stop-color="{top}"/><stop offset="1" stop-color="{bottom}"/></linearGradient></defs><rect width="480" height="480" fill="url(#{id})"/><circle cx="240" cy="178" r="152" fill="#fff" opacity=".5"/><ellipse cx="240" cy="300" rx="104" ry="11" opacity=".12"/><g transform="translate(120 62)">"##
    );
    colour(icons::drawing(kind.icon), paint, accent, &mut out);
    out.push_str(
        r#"</g><g font-family="Inter,Roboto,'Segoe UI',Arial,sans-serif" text-anchor="middle">"#,
    );
    let _ = write!(
        out,
        r#"<text x="240" y="366" font-size="15" font-weight="700" letter-spacing="2" fill="{accent}">"#
    );
    escape(&brand.to_uppercase(), &mut out);
    out.push_str("</text>");
    let mut y = 396;
    for line in wrap(&draft.name) {
        let _ = write!(out, r##"<text x="240" y="{y}" font-size="17" fill="#20242e">"##);
        escape(&line, &mut out);
        out.push_str("</text>");
        y += 25;
    }
    out.push_str("</g></svg>");
    out
}

/// The colours of a body: itself, its shade and its light side.
#[derive(Debug, Clone, Copy)]
struct Paint {
    body: &'static str,
    shade: &'static str,
    light: &'static str,
}

const fn paint(body: &'static str, shade: &'static str, light: &'static str) -> Paint {
    Paint { body, shade, light }
}

/// How a colour that the catalogue names is painted.
fn paint_of(name: &str) -> Option<Paint> {
    Some(match name {
        "чёрный" => paint("#3a404d", "#272b35", "#5b6373"),
        "белый" => paint("#fdfdfe", "#cdd3dd", "#eceff4"),
        "серый" => paint("#8b94a3", "#6a7280", "#b3bac6"),
        "серебристый" => paint("#c9cfd9", "#a3abb8", "#e6eaf0"),
        "синий" => paint("#3563c4", "#274a96", "#6d93e3"),
        "голубой" => paint("#7cc0ee", "#4f9bd0", "#b3dcf7"),
        "зелёный" => paint("#4f9d74", "#3a7856", "#86c6a3"),
        "фиолетовый" => paint("#8a6cc9", "#684ca6", "#b7a1e4"),
        "розовый" => paint("#f0a3bd", "#d77c9b", "#f9ccdb"),
        "золотистый" => paint("#dcbd85", "#bb985a", "#f0dcb6"),
        "красный" => paint("#d9484f", "#ab3138", "#ef8085"),
        "бежевый" => paint("#e0cdb2", "#bfa885", "#f1e5d3"),
        "оранжевый" => paint("#f08a3c", "#c86a21", "#f8b27c"),
        "жёлтый" => paint("#f3c63f", "#cfa21d", "#fadf8c"),
        _ => return None,
    })
}

/// Colours that go together: the background, the accent, and a body of no colour of its own.
struct Scheme {
    top: &'static str,
    bottom: &'static str,
    accent: &'static str,
    paint: Paint,
}

const fn scheme(
    [top, bottom, accent]: [&'static str; 3],
    [body, shade, light]: [&'static str; 3],
) -> Scheme {
    Scheme { top, bottom, accent, paint: paint(body, shade, light) }
}

/// A brand always gets the same one of these.
const SCHEMES: [Scheme; 8] = [
    scheme(["#eaf1ff", "#c5d8fb", "#2f6bdb"], ["#3f5f9e", "#2c4578", "#7f9bd0"]),
    scheme(["#fff1e6", "#fbd3b4", "#d9622b"], ["#a85a3a", "#7f4027", "#d39a7f"]),
    scheme(["#e6f8f1", "#b9e6d4", "#13896a"], ["#2f7d68", "#205c4c", "#77b8a6"]),
    scheme(["#f3edff", "#d8c8fa", "#7247d6"], ["#6a52a8", "#4d3a82", "#a794d8"]),
    scheme(["#ffeef1", "#f9c6d0", "#cf3a5c"], ["#a84560", "#7e2f45", "#d78da0"]),
    scheme(["#e7f7fb", "#b6e2ee", "#0f82a3"], ["#2d7690", "#1f566a", "#77b3c8"]),
    scheme(["#fff8e1", "#f6e0a3", "#b27a06"], ["#8f6f2d", "#6b521e", "#c9ad72"]),
    scheme(["#f0f2f6", "#ced5e0", "#475a80"], ["#55617a", "#3d475b", "#96a1b8"]),
];

/// Lines, badges and screens.
const INK: &str = "#262b36";

/// A small number that depends on all of a text.
fn checksum(text: &str) -> u8 {
    text.bytes().fold(7, |sum: u8, byte| sum.wrapping_mul(31) ^ byte)
}

/// Writes a drawing with its marks filled in.
fn colour(drawing: &str, paint: Paint, accent: &str, out: &mut String) {
    let mut parts = drawing.split('~');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (mark, rest) = part.split_at_checked(1).unwrap_or((part, ""));
        out.push_str(match mark {
            "b" => paint.body,
            "d" => paint.shade,
            "l" => paint.light,
            "a" => accent,
            _ => INK,
        });
        out.push_str(rest);
    }
}

/// Breaks a name into lines at its spaces; what does not fit ends in an ellipsis.
fn wrap(name: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::with_capacity(LINES);
    let mut chars = 0;
    let mut words = name.split(' ').peekable();
    while let Some(word) = words.next() {
        // A number stays with its unit: «4 л», «512 ГБ».
        let unit = words.next_if(|next| word.ends_with(is_digit) && is_unit(next));
        let piece = unit.map_or(word.to_owned(), |unit| format!("{word} {unit}"));
        let len = piece.chars().count();
        let full = lines.len() == LINES;
        match lines.last_mut() {
            Some(line) if chars + 1 + len <= LINE_CHARS => {
                line.push(' ');
                line.push_str(&piece);
                chars += 1 + len;
            }
            Some(line) if full => {
                line.push('…');
                break;
            }
            _ => {
                lines.push(piece);
                chars = len;
            }
        }
    }
    lines
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

fn is_unit(word: &str) -> bool {
    let bare = word.trim_end_matches([',', '.']);
    (1..=4).contains(&bare.chars().count()) && bare.chars().all(char::is_alphabetic)
}

/// Writes text so that XML reads it as text.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            _ => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::tables::SHELVES;
    use super::*;

    #[test]
    fn pictures_are_small_and_well_formed() {
        for index in (0..5_000).chain([999_999, u64::MAX]) {
            let svg = svg(index);
            assert!(svg.len() <= 3 * 1024, "{} bytes: {svg}", svg.len());
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
            check_xml(&svg);
        }
    }

    /// Not a parser, yet enough for the documents made here: every tag is closed in turn, every
    /// attribute quoted, every `&` an entity, and nothing is loaded or run.
    fn check_xml(svg: &str) {
        let mut open = Vec::new();
        for piece in svg.split('<').skip(1) {
            let (tag, text) = piece.split_once('>').unwrap();
            let name = tag.split([' ', '/']).find(|name| !name.is_empty()).unwrap();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "{svg}");
            } else if !tag.ends_with('/') {
                open.push(name);
            }
            assert_eq!(tag.matches('"').count(), tag.matches('=').count() * 2, "{tag}");
            assert!(!["script", "image", "use", "style", "a"].contains(&name), "{tag}");
            assert!(!tag.contains("href") && !tag.contains(" on") && !tag.contains('~'), "{tag}");
            for entity in text.split('&').skip(1) {
                let known = ["amp;", "lt;", "gt;", "quot;", "apos;"];
                assert!(known.iter().any(|known| entity.starts_with(known)), "{text}");
            }
        }
        assert!(open.is_empty());
    }

    #[test]
    fn text_is_escaped() {
        let mut out = String::new();
        escape(r#"<a href="x">'B&O'</a>"#, &mut out);
        assert_eq!(out, "&lt;a href=&quot;x&quot;&gt;&apos;B&amp;O&apos;&lt;/a&gt;");
        let ampersand = (0..5_000).find(|&index| product(index).name.contains('&')).unwrap();
        let svg = svg(ampersand);
        assert!(svg.contains(" &amp; ") && !svg.contains(" & "), "{svg}");
    }

    #[test]
    fn names_are_wrapped() {
        assert_eq!(wrap("Палатка"), ["Палатка"]);
        let lines = wrap(&"смартфон ".repeat(40));
        assert_eq!(lines.len(), LINES);
        assert!(lines[LINES - 1].ends_with('…'));
        assert!(lines.iter().all(|line| line.chars().count() <= LINE_CHARS + 1));
        let lines = wrap("Моторное масло Shell Helix HX7 10W-40, 4 л, арт. 550027443");
        assert_eq!(lines, ["Моторное масло Shell Helix HX7 10W-40,", "4 л, арт. 550027443"]);
    }

    #[test]
    fn every_colour_of_the_catalogue_is_painted() {
        let colours: HashSet<String> = (0..5_000)
            .flat_map(|index| product(index).attributes)
            .filter(|attribute| attribute.name == "Цвет")
            .map(|attribute| attribute.value)
            .collect();
        assert!(colours.len() > 10);
        for colour in colours {
            assert!(paint_of(&colour).is_some(), "{colour}");
        }
    }

    #[test]
    fn every_kind_has_a_drawing_in_the_five_colours() {
        for kind in SHELVES.iter().flat_map(|category| category.kinds) {
            let drawing = icons::drawing(kind.icon);
            for mark in drawing.split('~').skip(1) {
                assert!(mark.starts_with(['b', 'd', 'l', 'a', 'k']), "{drawing}");
            }
        }
    }
}
