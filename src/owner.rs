//! Whose a cart or an order is.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Most bytes of a customer's id.
const MAX_USER_BYTES: usize = 255;

/// A customer, or a guest who has not logged in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Owner {
    /// A customer, by the `sub` of the token.
    User(Arc<str>),
    /// A guest, by the id of the session.
    Guest(Uuid),
}

impl fmt::Display for Owner {
    /// As stores keep it: `user:…` or `guest:…`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => write!(f, "user:{user}"),
            Self::Guest(session) => write!(f, "guest:{}", session.simple()),
        }
    }
}

impl Owner {
    /// Reads what `to_string` writes.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':')? {
            ("user", user) => {
                let is_sound = (1..=MAX_USER_BYTES).contains(&user.len())
                    && !user.chars().any(char::is_control);
                is_sound.then(|| Self::User(user.into()))
            }
            ("guest", session) => Uuid::try_parse(session).ok().map(Self::Guest),
            _ => None,
        }
    }
}

impl From<Owner> for String {
    fn from(owner: Owner) -> Self {
        owner.to_string()
    }
}

impl TryFrom<String> for Owner {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or_else(|| "an owner is user:… or guest:…".to_owned())
    }
}
