//! The zones that the shop sells in, each with its own stock.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::input::{TextFault, check_text};

/// Most characters of a zone's name; it is part of keys.
pub const MAX_ZONE_CHARS: usize = 64;

/// A zone that has its own stock, such as «Москва».
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GeoZone(Arc<str>);

impl GeoZone {
    /// Takes a name that came from outside; says what is wrong with it otherwise.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match check_text(text, MAX_ZONE_CHARS) {
            None => Ok(Self(text.into())),
            Some(TextFault::Blank) => Err("a geo zone must not be empty"),
            Some(TextFault::TooLong) => Err("a geo zone has at most 64 characters"),
            Some(TextFault::Control) => Err("a geo zone has no control characters"),
        }
    }

    /// Takes a name known to be valid.
    pub fn new_unchecked(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
