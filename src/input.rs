//! Checking what comes from outside: texts, and batches of which everything that is wrong is told at
//! once.

use crate::error::{ErrorCode, UserError};

/// Most characters of an idempotency key.
pub const MAX_KEY_CHARS: usize = 255;

/// What is wrong with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFault {
    /// It is empty, or nothing but spaces.
    Blank,
    /// It has more characters than allowed.
    TooLong,
    /// It has a control character.
    Control,
}

/// Checks a text that is a name or a key.
pub fn check_text(text: &str, max_chars: usize) -> Option<TextFault> {
    if text.trim().is_empty() {
        Some(TextFault::Blank)
    } else if text.chars().count() > max_chars {
        Some(TextFault::TooLong)
    } else if text.chars().any(char::is_control) {
        Some(TextFault::Control)
    } else {
        None
    }
}

/// What a client is told of a text that is to be a name or a key; `None` if nothing is wrong.
pub fn text_fault(text: &str, max_chars: usize) -> Option<(ErrorCode, String)> {
    Some(match check_text(text, max_chars)? {
        TextFault::Blank => (ErrorCode::Blank, "This must not be empty.".to_owned()),
        TextFault::TooLong => (ErrorCode::TooLong, format!("At most {max_chars} characters.")),
        TextFault::Control => {
            (ErrorCode::Invalid, "Control characters are not allowed here.".to_owned())
        }
    })
}

/// The same for an argument, or a part of one, that stands alone.
pub fn argument_fault(path: &[&str], text: &str, max_chars: usize) -> Option<UserError> {
    let (code, message) = text_fault(text, max_chars)?;
    let field = Some(path.iter().map(|&step| step.to_owned()).collect());
    Some(UserError { code, field, message })
}

/// Collects what is wrong with a batch, each fault with its path in the arguments.
pub struct Faults {
    argument: &'static str,
    /// The entry of the batch that is being checked.
    pub entry: usize,
    /// What was found so far.
    pub found: Vec<UserError>,
}

impl Faults {
    /// The faults of the batch that an argument holds.
    pub fn of(argument: &'static str) -> Self {
        Self { argument, entry: 0, found: Vec::new() }
    }

    /// Notes a fault at a path below the entry.
    pub fn add(&mut self, path: &[&str], code: ErrorCode, message: &str) {
        let field = [self.argument.to_owned(), self.entry.to_string()]
            .into_iter()
            .chain(path.iter().map(|&step| step.to_owned()))
            .collect();
        self.found.push(UserError { code, field: Some(field), message: message.to_owned() });
    }

    /// Notes that something is too long.
    pub fn too_long(&mut self, path: &[&str], max_chars: usize) {
        self.add(path, ErrorCode::TooLong, &format!("At most {max_chars} characters."));
    }

    /// Checks a text that is a name or a key.
    pub fn text(&mut self, path: &[&str], text: &str, max_chars: usize) {
        if let Some((code, message)) = text_fault(text, max_chars) {
            self.add(path, code, &message);
        }
    }
}
