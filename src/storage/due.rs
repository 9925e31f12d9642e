//! What has to be looked at again at some time, should whoever began it have died: checkouts that
//! were not finished, orders that wait for their payment. It is noted before it begins.

use std::sync::Arc;

use uuid::Uuid;

use crate::clock::Timestamp;
use crate::digest;
use crate::owner::Owner;

/// Into how many shards what is due is cut.
pub const DUE_SHARDS: i8 = 8;

/// What is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Task {
    /// A checkout that may have been left half-way.
    Checkout {
        /// Whose.
        owner: Owner,
        /// Its idempotency key: without any white space.
        key: Arc<str>,
    },
    /// An order that was being changed, or waits for its payment.
    Order(Uuid),
    /// A guest whose orders are a customer's now.
    Claim(Uuid),
}

impl Task {
    /// As stores keep it.
    pub fn to_text(&self) -> String {
        match self {
            Self::Checkout { owner, key } => format!("checkout {key} {owner}"),
            Self::Order(id) => format!("order {}", id.simple()),
            Self::Claim(guest) => format!("claim {}", guest.simple()),
        }
    }

    /// Reads what [`to_text`](Self::to_text) writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(' ')?;
        Some(match kind {
            "checkout" => {
                let (key, owner) = rest.split_once(' ')?;
                Self::Checkout { owner: Owner::parse(owner)?, key: key.into() }
            }
            "order" => Self::Order(Uuid::try_parse(rest).ok()?),
            "claim" => Self::Claim(Uuid::try_parse(rest).ok()?),
            _ => return None,
        })
    }

    /// What kind it is, for the metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Checkout { .. } => "checkout",
            Self::Order(_) => "order",
            Self::Claim(_) => "claim",
        }
    }
}

/// A task and its time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Due {
    /// When it is to be looked at.
    pub at: Timestamp,
    /// What.
    pub task: Task,
}

impl Due {
    /// The shard that it is kept in.
    pub fn shard(&self) -> i8 {
        digest::shard_of(&self.task.to_text(), DUE_SHARDS)
    }
}

/// What of a shard is due.
#[derive(Debug, Default)]
pub struct DueRead {
    /// The oldest, in the order of their time.
    pub due: Vec<Due>,
    /// There is no other up to this moment.
    pub until: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_comes_back_from_its_text() {
        for task in [
            Task::Order(Uuid::from_u128(7)),
            Task::Claim(Uuid::from_u128(8)),
            Task::Checkout { owner: Owner::User("a b: c".into()), key: "ключ-1".into() },
            Task::Checkout { owner: Owner::Guest(Uuid::from_u128(9)), key: "k:1".into() },
        ] {
            assert_eq!(Task::parse(&task.to_text()), Some(task));
        }
        assert_eq!(Task::parse("order"), None);
        assert_eq!(Task::parse("checkout key"), None);
        assert_eq!(Task::parse("something 1"), None);
    }
}
