//! Bounds on a document's text that hold before it is parsed: the parser recurses, and takes its
//! time and memory from what it is given.

use crate::error::Error;

/// How deep brackets of all kinds may nest. The parser recurses once for each.
pub(super) const MAX_NESTING: usize = 50;

/// Longest name or number: errors name names, and an answer must not grow with them.
const MAX_WORD_BYTES: usize = 100;

/// Words that the parser takes for values even where a name goes on behind them.
const LITERALS: [&[u8]; 3] = [b"true", b"false", b"null"];

/// Counts tokens and nesting in one pass over the text; answers with the number of tokens.
pub(super) fn check_text(text: &str, max_tokens: usize) -> Result<usize, Error> {
    let bytes = text.as_bytes();
    let (mut at, mut tokens, mut nesting) = (0, 0_usize, 0_usize);
    while at < bytes.len() {
        at = match bytes[at] {
            b' ' | b'\t' | b'\n' | b'\r' | b',' => {
                at += 1;
                continue;
            }
            b'#' => {
                at = end_of_comment(bytes, at);
                continue;
            }
            // The byte order mark that some editors put first.
            0xEF if bytes[at..].starts_with(&[0xEF, 0xBB, 0xBF]) => {
                at += 3;
                continue;
            }
            b'"' => end_of_string(bytes, at)?,
            b'{' | b'(' | b'[' => {
                nesting += 1;
                if nesting > MAX_NESTING {
                    let message = format!("The document nests deeper than {MAX_NESTING} brackets.");
                    return Err(Error::QueryTooComplex(message));
                }
                at + 1
            }
            b'}' | b')' | b']' => {
                nesting = nesting.saturating_sub(1);
                at + 1
            }
            b'.' if bytes[at..].starts_with(b"...") => at + 3,
            byte if is_digit(byte) || byte == b'-' => end_of_number(bytes, at)?,
            byte if is_word(byte) => {
                let length = bytes[at..].iter().take_while(|&&byte| is_word(byte)).count();
                if length > MAX_WORD_BYTES {
                    let message =
                        format!("The document has a name longer than {MAX_WORD_BYTES} characters.");
                    return Err(Error::BadUserInput(message));
                }
                tokens += literals_before(&bytes[at..at + length]);
                at + length
            }
            byte if byte < 0x20 || byte == 0x7F => {
                let message = "The document holds a control character.".to_owned();
                return Err(Error::BadUserInput(message));
            }
            _ => at + 1,
        };
        tokens += 1;
        if tokens > max_tokens {
            let message = format!("The document has more than {max_tokens} tokens.");
            return Err(Error::QueryTooComplex(message));
        }
    }
    Ok(tokens)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit()
}

/// How many values the parser finds in a word before its last one: it takes `[truetrue]` for two.
fn literals_before(mut word: &[u8]) -> usize {
    let mut found = 0;
    while let Some(rest) = LITERALS.iter().find_map(|literal| word.strip_prefix(*literal)) {
        if rest.is_empty() {
            break;
        }
        word = rest;
        found += 1;
    }
    found
}

/// A number and what ends it have to be as the specification says. The parser is less strict and
/// takes `[000]` and `[0-0-0]` for three numbers each: a text could hold many more values than were
/// counted here.
fn end_of_number(bytes: &[u8], at: usize) -> Result<usize, Error> {
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| is_digit(**byte)).count();
    let wrong = || Error::BadUserInput("The document has a malformed number.".to_owned());
    let first = at + usize::from(bytes[at] == b'-');
    let whole = digits(first);
    if whole == 0 || (whole > 1 && bytes[first] == b'0') {
        return Err(wrong());
    }
    let mut end = first + whole;
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        if fraction == 0 {
            return Err(wrong());
        }
        end += 1 + fraction;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let signed = matches!(bytes.get(end + 1), Some(b'+' | b'-'));
        let start = end + 1 + usize::from(signed);
        let exponent = digits(start);
        if exponent == 0 {
            return Err(wrong());
        }
        end = start + exponent;
    }
    let goes_on = bytes.get(end).is_some_and(|&byte| is_word(byte) || matches!(byte, b'.' | b'-'));
    if goes_on || end - at > MAX_WORD_BYTES { Err(wrong()) } else { Ok(end) }
}

fn end_of_comment(bytes: &[u8], at: usize) -> usize {
    let line = bytes[at..].iter().position(|&byte| byte == b'\n' || byte == b'\r');
    line.map_or(bytes.len(), |length| at + length)
}

fn end_of_string(bytes: &[u8], at: usize) -> Result<usize, Error> {
    let (mut end, quotes): (usize, &[u8]) =
        if bytes[at..].starts_with(b"\"\"\"") { (at + 3, b"\"\"\"") } else { (at + 1, b"\"") };
    while end < bytes.len() {
        if bytes[end..].starts_with(quotes) {
            return Ok(end + quotes.len());
        }
        let in_line = quotes.len() == 1;
        end += match bytes[end] {
            // An escape: whatever follows does not end the string.
            b'\\' if in_line => 2,
            b'\\' if bytes[end..].starts_with(b"\\\"\"\"") => 4,
            // A string in quotes ends with its line; the parser says what is wrong with that.
            b'\n' | b'\r' if in_line => return Ok(end),
            _ => 1,
        };
    }
    // The parser would take `""""` without an end for two empty strings and go on behind them,
    // through text that was not counted here.
    Err(Error::BadUserInput("The document has a string without an end.".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> usize {
        check_text(text, usize::MAX).unwrap()
    }

    #[test]
    fn counts_as_the_grammar_does() {
        assert_eq!(tokens(""), 0);
        assert_eq!(tokens("\u{FEFF}{ a, b }"), 4);
        assert_eq!(tokens("query($x:[ID!]=[\"a,b\"]){a(x:$x)...F@skip(if:true)}"), 32);
        assert_eq!(tokens("{ a # } } }\n b }"), 4);
        assert_eq!(tokens(r#"{ a(s: "\" { \\") }"#), 8);
        assert_eq!(tokens(r#"{ a(s: """ " \""" { """) }"#), 8);
        assert_eq!(tokens("{ a(n: -1.5e+3) }"), 8);
        assert_eq!(tokens("{ a(n: [0 -0 10 0.05 1E9 7e-05]) }"), 15);
        assert_eq!(tokens("[true falsehood nullnulltrue]"), 1 + 1 + 2 + 3 + 1);
    }

    #[test]
    fn refuses_numbers_that_the_parser_would_take_for_several() {
        for number in
            ["00", "-00", "0-0", "1-1", "01", "1.5-5", "1.", "1.e3", "1e", "1e+", "-", "1a"]
        {
            for text in [format!("[{number}]"), number.to_owned(), format!("{number} ")] {
                assert!(matches!(check_text(&text, 100), Err(Error::BadUserInput(_))), "{text}");
            }
        }
        assert!(check_text(&"9".repeat(MAX_WORD_BYTES), 100).is_ok());
        assert!(check_text(&"9".repeat(MAX_WORD_BYTES + 1), 100).is_err());
    }

    #[test]
    fn refuses_strings_without_an_end() {
        for text in [r#"{ a(s: "x"#, r#"{ a(s: """x"#, r#"{ a(s: ["""" [[[[]]]]]) }"#] {
            assert!(matches!(check_text(text, 100), Err(Error::BadUserInput(_))), "{text}");
        }
    }

    #[test]
    fn refuses_deep_nesting_before_parsing() {
        let deep = |depth| format!("{{ a(x: {}{}) }}", "[".repeat(depth), "]".repeat(depth));
        assert!(check_text(&deep(MAX_NESTING - 2), 1_000).is_ok());
        assert!(check_text(&deep(MAX_NESTING - 1), 1_000).is_err());
        assert!(check_text(&deep(100_000), 1_000_000).is_err());
    }

    #[test]
    fn refuses_control_characters_outside_strings() {
        assert!(check_text("{ a\u{0} }", 100).is_err());
    }
}
