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
    /// An order that waits for its payment.
    Payment(Uuid),
    /// An order that is being changed, and what tells this change from another of the same moment.
    Change(Uuid, u32),
    /// A guest whose orders are a customer's now.
    Claim(Uuid),
}

impl Task {
    /// As stores keep it.
    pub fn to_text(&self) -> String {
        match self {
            Self::Checkout { owner, key } => format!("checkout {key} {owner}"),
            Self::Payment(id) => format!("payment {}", id.simple()),
            Self::Change(id, nonce) => format!("change {} {nonce}", id.simple()),
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
            "payment" => Self::Payment(Uuid::try_parse(rest).ok()?),
            "change" => {
                let (id, nonce) = rest.split_once(' ')?;
                Self::Change(Uuid::try_parse(id).ok()?, nonce.parse().ok()?)
            }
            "claim" => Self::Claim(Uuid::try_parse(rest).ok()?),
            _ => return None,
        })
    }

    /// What kind it is, for the metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Checkout { .. } => "checkout",
            Self::Payment(_) => "payment",
            Self::Change(..) => "change",
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
            Task::Payment(Uuid::from_u128(7)),
            Task::Change(Uuid::from_u128(7), 9),
            Task::Claim(Uuid::from_u128(8)),
            Task::Checkout { owner: Owner::User("a b: c".into()), key: "ключ-1".into() },
            Task::Checkout { owner: Owner::Guest(Uuid::from_u128(9)), key: "k:1".into() },
        ] {
            assert_eq!(Task::parse(&task.to_text()), Some(task));
        }
        assert_eq!(Task::parse("payment"), None);
        assert_eq!(Task::parse("change 00000000000000000000000000000007"), None);
        assert_eq!(Task::parse("checkout key"), None);
        assert_eq!(Task::parse("something 1"), None);
    }
}
