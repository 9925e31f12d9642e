//! What can go wrong, and what a client is told about it.
//!
//! Two kinds, as the API promises: a [`UserError`] is part of a payload and names something a
//! shopper or a member of staff can mend; an [`Error`] ends a field or a request with a code in
//! `extensions.code`. Neither carries text of a driver, a path of the machine or a query.

use std::time::Duration;

use async_graphql::{Enum, ErrorExtensionValues, ServerError, SimpleObject};

use crate::storage::StoreError;

/// When to come back where nothing says how long it takes.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// Why a mutation did not do what was asked, for a program to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
pub enum ErrorCode {
    /// The value is not acceptable; the message says why.
    Invalid,
    /// The value must not be empty.
    Blank,
    /// The value is longer than allowed.
    TooLong,
    /// There are more entries than allowed.
    TooMany,
    /// The same value stands more than once where it must be unique.
    Duplicate,
    /// There is nothing under this key.
    NotFound,
    /// Units are reserved that the new quantity would not cover.
    BelowReserved,
    /// The idempotency key was used for something else.
    KeyReused,
    /// The cart would have more lines than a cart has.
    CartFull,
    /// There would be more units of one product than a cart takes.
    QuantityLimit,
    /// The price is in another currency than those of the cart.
    CurrencyMismatch,
    /// There is nothing in the cart.
    CartEmpty,
    /// The cart costs another sum than was expected.
    PriceChanged,
    /// There are not as many units as were asked for.
    OutOfStock,
    /// The product is no longer sold.
    ProductGone,
    /// The order cannot become this from how it stands.
    InvalidTransition,
}

/// Something in the input of a mutation that the caller can mend. What it speaks of was not changed.
#[derive(Debug, Clone, PartialEq, Eq, SimpleObject)]
pub struct UserError {
    /// What kind of fault it is, for a program.
    pub code: ErrorCode,
    /// The path to the faulty value in the arguments, list positions included.
    pub field: Option<Vec<String>>,
    /// What is wrong, for a person.
    pub message: String,
}

/// A failure of a field or of a whole request, as a client is told of it.
///
/// It has no `Display`: async-graphql turns whatever has one into an error without a code.
#[derive(Debug, Clone)]
pub enum Error {
    /// The client sent something that cannot be right.
    BadUserInput(String),
    /// A persisted query is asked for by its hash and this server does not know it.
    PersistedQueryNotFound,
    /// Only registered documents are executed, and this is none of them.
    DocumentNotTrusted,
    /// A cursor that was not given for this list.
    InvalidCursor,
    /// The document asks for more than one request may.
    QueryTooComplex(String),
    /// No token, or one that is not valid.
    Unauthenticated(&'static str),
    /// A valid token whose bearer may not do this.
    Forbidden(&'static str),
    /// The client has asked for more than its share, or has more open than it may.
    RateLimited {
        /// What there is too much of.
        message: String,
        /// After this time the same request is no longer too much.
        wait: Duration,
    },
    /// The request took longer than its deadline.
    Timeout,
    /// A server behind this one does not answer.
    Unavailable,
    /// There is more to do than can be done.
    Overloaded {
        /// When to come back.
        wait: Duration,
    },
    /// A fault of this program.
    Internal,
}

impl Error {
    /// The code in `extensions.code`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadUserInput(_) => "BAD_USER_INPUT",
            Self::PersistedQueryNotFound => "PERSISTED_QUERY_NOT_FOUND",
            Self::DocumentNotTrusted => "DOCUMENT_NOT_TRUSTED",
            Self::InvalidCursor => "INVALID_CURSOR",
            Self::QueryTooComplex(_) => "QUERY_TOO_COMPLEX",
            Self::Unauthenticated(_) => "UNAUTHENTICATED",
            Self::Forbidden(_) => "FORBIDDEN",
            Self::RateLimited { .. } => "RATE_LIMITED",
            Self::Timeout => "TIMEOUT",
            Self::Unavailable | Self::Overloaded { .. } => "UNAVAILABLE",
            Self::Internal => "INTERNAL",
        }
    }

    /// The sentence in `message`.
    pub fn message(&self) -> &str {
        match self {
            Self::BadUserInput(message)
            | Self::QueryTooComplex(message)
            | Self::RateLimited { message, .. } => message,
            Self::Unauthenticated(message) | Self::Forbidden(message) => message,
            // Clients that send persisted queries look for exactly this.
            Self::PersistedQueryNotFound => "PersistedQueryNotFound",
            Self::DocumentNotTrusted => {
                "This server executes only the documents that are registered with it, and this is \
                 none of them."
            }
            Self::InvalidCursor => {
                "This is not a cursor of this list. Use one that came with the same list and the \
                 same arguments, such as category, sort and price range."
            }
            Self::Timeout => "The request took too long and was given up. Try again.",
            Self::Unavailable | Self::Overloaded { .. } => {
                "The shop cannot answer this right now. Try again in a moment."
            }
            Self::Internal => "Something went wrong on our side.",
        }
    }

    /// Whether a code tells of a failure of the server, rather than a refusal of what was asked.
    pub fn is_failure(code: &str) -> bool {
        [Self::Timeout, Self::Unavailable, Self::Internal].iter().any(|error| error.code() == code)
    }

    /// A [`Error::BadUserInput`] about one argument.
    pub fn argument(name: &str, fault: impl std::fmt::Display) -> Self {
        Self::BadUserInput(format!("Argument \"{name}\": {fault}."))
    }

    /// A client that has more open or running than it may.
    pub fn too_many(message: String) -> Self {
        Self::RateLimited { message, wait: SHORT_WAIT }
    }

    /// When to come back, where that is known.
    pub fn wait(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { wait, .. } | Self::Overloaded { wait } => Some(*wait),
            Self::Unavailable => Some(SHORT_WAIT),
            _ => None,
        }
    }

    fn extensions(&self) -> ErrorExtensionValues {
        let mut extensions = ErrorExtensionValues::default();
        extensions.set("code", self.code());
        if let Some(wait) = self.wait() {
            extensions.set("retryAfterMs", u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        }
        extensions
    }
}

impl From<StoreError> for Error {
    /// What a client learns of a store's failure: that it happened. The cause goes to the log,
    /// here and nowhere else.
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "store call failed");
        match error {
            StoreError::Timeout { .. } => Self::Timeout,
            StoreError::Unavailable { .. } => Self::Unavailable,
            StoreError::Fault { .. } => Self::Internal,
        }
    }
}

impl From<Error> for async_graphql::Error {
    /// The failure of a field; its path and place are added on the way up.
    fn from(error: Error) -> Self {
        Self {
            message: error.message().to_owned(),
            source: None,
            extensions: Some(error.extensions()),
        }
    }
}

impl From<&Error> for ServerError {
    /// The failure of a whole request, before any field was reached.
    fn from(error: &Error) -> Self {
        let mut server_error = Self::new(error.message(), None);
        server_error.extensions = Some(error.extensions());
        server_error
    }
}
