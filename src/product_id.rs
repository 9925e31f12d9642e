//! The key that every domain knows a product by.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::input::{TextFault, check_text};

/// Most characters of a product id: the shop's PIM hands out keys like `PROD-12345`.
pub const MAX_ID_CHARS: usize = 64;

/// The shop's own key of a product: 1–64 characters, none of them a control character.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProductId(Arc<str>);

impl ProductId {
    /// Takes a key that came from outside; says what is wrong with it otherwise.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match check_text(text, MAX_ID_CHARS) {
            None => Ok(Self(text.into())),
            Some(TextFault::Blank) => Err("a product id must not be empty"),
            Some(TextFault::TooLong) => Err("a product id has at most 64 characters"),
            Some(TextFault::Control) => Err("a product id has no control characters"),
        }
    }

    /// Takes a key known to be valid: one that was read back from a store, or made by the program.
    pub fn new_unchecked(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProductId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for ProductId {
    fn borrow(&self) -> &str {
        &self.0
    }
}
