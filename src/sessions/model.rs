//! What a session is, and how long it and its token live. Pure rules; no I/O.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{constant_time, hmac};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::geo_zone::GeoZone;
use crate::root_key::{self, RootKey};

/// How long a session lives without activity.
pub const SESSION_LIFE: Duration = Duration::from_secs(24 * 3_600);
/// How long a guest's token lives without activity: as long as the guest's cart.
pub const GUEST_TOKEN_LIFE: Duration = Duration::from_secs(30 * 24 * 3_600);
/// How long it is remembered that a session was ended: longer than its token could have lived, also
/// if it was used in the moment it was ended.
pub const ENDED_LIFE: Duration = Duration::from_secs(31 * 24 * 3_600);
/// Activity is noted so often at the most.
pub const TOUCH_EVERY: Duration = Duration::from_secs(60);
/// Most sessions of a user that are listed.
pub const MAX_LISTED: usize = 50;
/// Most characters of a device type.
pub const MAX_DEVICE_CHARS: usize = 40;
/// Most characters of a user agent that are kept; the rest of a longer one says nothing.
pub const MAX_AGENT_CHARS: usize = 300;

/// A visit of a guest or a customer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// 128 random bits.
    pub id: Uuid,
    /// Whose it is; nobody's is a guest's.
    pub user: Option<Arc<str>>,
    /// When it began. A guest who comes back after [`SESSION_LIFE`] begins a new one under the same
    /// id.
    pub created_at: Timestamp,
    /// When it was last used, give or take [`TOUCH_EVERY`].
    pub last_activity: Timestamp,
    /// It was ended and stays ended.
    pub is_ended: bool,
    /// What was noted of the visitor.
    pub noted: Noted,
}

/// What is noted of a visitor when a session begins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noted {
    /// What the frontend says it runs on.
    pub device_type: Option<String>,
    /// Where the visitor wants to buy.
    pub geo_zone: Option<GeoZone>,
    /// The browser or app.
    pub user_agent: Option<String>,
    /// The network address.
    pub address: Option<String>,
}

/// How a session stands at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It goes on.
    Live,
    /// It is over, but its guest may begin anew under the same id.
    Asleep,
    /// Its token is worth nothing any more.
    Over,
}

impl Session {
    /// How it stands at a moment. A customer whose session is over comes back with a token of the
    /// identity provider; a guest has nothing but this one.
    pub fn standing(&self, now: Timestamp) -> Standing {
        if self.is_ended {
            Standing::Over
        } else if now < self.last_activity.after(SESSION_LIFE) {
            Standing::Live
        } else if self.user.is_none() && now < self.last_activity.after(GUEST_TOKEN_LIFE) {
            Standing::Asleep
        } else {
            Standing::Over
        }
    }

    /// The session after it was used at a moment; `None` if that need not be noted.
    pub fn touched(&self, now: Timestamp) -> Option<Self> {
        match self.standing(now) {
            Standing::Live if now < self.last_activity.after(TOUCH_EVERY) => None,
            Standing::Live => Some(Self { last_activity: now, ..self.clone() }),
            Standing::Asleep => Some(Self { created_at: now, last_activity: now, ..self.clone() }),
            Standing::Over => None,
        }
    }

    /// How long it is kept after its last activity.
    pub fn life(&self) -> Duration {
        if self.user.is_some() { SESSION_LIFE } else { GUEST_TOKEN_LIFE }
    }
}

/// What every token of a session begins with: nothing that a JWT begins with.
const TOKEN_MARK: &str = "vs1.";
/// Bytes of a token's signature.
const SIGNATURE_BYTES: usize = 16;
/// Bytes of a session's id.
const ID_BYTES: usize = 16;

/// Signs the tokens of sessions and knows them again. They are no JWTs: neither can be taken for the
/// other.
pub struct TokenKey(hmac::Key);

impl TokenKey {
    /// The key for tokens, made from the shop's root key. It is for nothing else.
    pub fn derive(root: &RootKey) -> Self {
        Self(root_key::derive(root, "vitrina session tokens, first form"))
    }

    /// Whether a text looks like a token of a session, good or bad.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(TOKEN_MARK)
    }

    /// The token of a session.
    pub fn sign(&self, id: Uuid) -> String {
        let mut bytes = id.as_bytes().to_vec();
        bytes.extend_from_slice(&hmac::sign(&self.0, id.as_bytes()).as_ref()[..SIGNATURE_BYTES]);
        format!("{TOKEN_MARK}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// The session that a token was made for; `None` for any other text.
    pub fn open(&self, token: &str) -> Option<Uuid> {
        let text = token.strip_prefix(TOKEN_MARK)?;
        let mut bytes = [0; ID_BYTES + SIGNATURE_BYTES];
        // Of a longer text this finds no room for the rest.
        let length = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        let (id, signature) = bytes.get(..length)?.split_at_checked(ID_BYTES)?;
        let expected = hmac::sign(&self.0, id);
        let expected = &expected.as_ref()[..SIGNATURE_BYTES];
        constant_time::verify_slices_are_equal(signature, expected).ok()?;
        Uuid::from_slice(id).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn session(user: Option<&str>) -> Session {
        let created_at = Timestamp::from_millis(1_000_000);
        Session {
            id: Uuid::from_u128(7),
            user: user.map(Into::into),
            created_at,
            last_activity: created_at,
            is_ended: false,
            noted: Noted::default(),
        }
    }

    #[test]
    fn a_guest_sleeps_for_thirty_days_and_a_customer_does_not() {
        let hours =
            |n: u64| Timestamp::from_millis(1_000_000).after(Duration::from_secs(n * 3_600));
        let (guest, customer) = (session(None), session(Some("me")));
        assert_eq!(guest.standing(hours(23)), Standing::Live);
        assert_eq!(guest.standing(hours(24)), Standing::Asleep);
        assert_eq!(guest.standing(hours(30 * 24 - 1)), Standing::Asleep);
        assert_eq!(guest.standing(hours(30 * 24)), Standing::Over);
        assert_eq!(customer.standing(hours(23)), Standing::Live);
        assert_eq!(customer.standing(hours(24)), Standing::Over);
        let anew = guest.touched(hours(25)).unwrap();
        assert_eq!((anew.id, anew.created_at), (guest.id, hours(25)));
        assert_eq!(anew.standing(hours(48)), Standing::Live);
        let ended = Session { is_ended: true, ..guest };
        assert_eq!(ended.standing(hours(1)), Standing::Over);
        assert_eq!(ended.touched(hours(25)), None);
    }

    #[test]
    fn activity_is_noted_once_a_minute() {
        let guest = session(None);
        let seconds = |n| guest.last_activity.after(Duration::from_secs(n));
        assert_eq!(guest.touched(seconds(59)), None);
        assert_eq!(guest.touched(seconds(60)).unwrap().last_activity, seconds(60));
        assert_eq!(guest.touched(seconds(60)).unwrap().created_at, guest.created_at);
    }

    #[test]
    fn a_token_opens_with_its_key_only() {
        let key = TokenKey::derive(&[7; 32].into());
        let id = Uuid::from_u128(u128::MAX - 5);
        let token = key.sign(id);
        assert_eq!(key.open(&token), Some(id));
        assert_eq!(TokenKey::derive(&[8; 32].into()).open(&token), None);
        assert_eq!(key.open(&format!("{token}A")), None);
        assert_eq!(key.open(&token[..token.len() - 1]), None);
        assert_eq!(key.open(TOKEN_MARK), None);
    }

    proptest! {
        #[test]
        fn no_other_text_is_a_token(text in ".{0,80}", flip in 4..46_usize) {
            let key = TokenKey::derive(&[7; 32].into());
            prop_assert_eq!(key.open(&text), None);
            prop_assert_eq!(key.open(&format!("{TOKEN_MARK}{text}")), None);
            let mut token = key.sign(Uuid::from_u128(1)).into_bytes();
            token[flip] = if token[flip] == b'A' { b'B' } else { b'A' };
            prop_assert_eq!(key.open(std::str::from_utf8(&token).unwrap()), None);
        }
    }
}
