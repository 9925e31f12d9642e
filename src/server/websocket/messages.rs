//! The messages of `graphql-transport-ws`, and the codes that a connection is closed with.

use async_graphql::{Response as GraphQlResponse, ServerError};
use axum::extract::ws::{CloseFrame, Message};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::wire::{GraphRequest, Object};
use crate::graphql::write_response;

/// Longest id of an operation. Clients number them, or use UUIDs.
pub(super) const MAX_ID_BYTES: usize = 255;
/// Longest reason in a close frame, a limit of WebSocket's.
const MAX_REASON_BYTES: usize = 123;

/// What a client says.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum FromClient {
    /// Who it is; the first thing that it says.
    ConnectionInit { payload: Option<Map<String, Value>> },
    /// Asks for a sign of life.
    Ping,
    /// Gives one, asked or not.
    Pong,
    /// Asks for an operation.
    Subscribe { id: String, payload: Object<GraphRequest> },
    /// Wants no more of one.
    Complete { id: String },
}

impl FromClient {
    /// Reads a message; `None` if it is none of the protocol's.
    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str::<Object<Self>>(text).ok().map(|message| message.0)
    }
}

/// What a client is told.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ToClient<'a> {
    /// It is let in.
    ConnectionAck,
    /// A sign of life.
    Pong,
    /// An answer of an operation. It has its own way to be written.
    #[serde(skip)]
    Next { id: &'a str, payload: &'a GraphQlResponse },
    /// An operation ended with these errors.
    Error { id: &'a str, payload: &'a [ServerError] },
    /// An operation ended.
    Complete { id: &'a str },
}

impl ToClient<'_> {
    /// The message as it is sent. It always can be written: what is in it came from JSON or goes
    /// into it over HTTP too.
    pub(super) fn message(&self) -> Message {
        let text = match self {
            Self::Next { id, payload } => {
                let id = serde_json::to_string(id).unwrap_or_default();
                let payload = String::from_utf8(write_response(payload)).unwrap_or_default();
                format!(r#"{{"type":"next","id":{id},"payload":{payload}}}"#)
            }
            other => serde_json::to_string(other).unwrap_or_default(),
        };
        Message::Text(text.into())
    }
}

/// Why a connection is closed by the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Close {
    /// The server stops.
    GoingAway,
    /// Who the client is cannot be told right now.
    TryLater,
    /// A message that is none of the protocol's, or longer than one may be.
    Invalid(&'static str),
    /// An operation before the client was let in.
    Unauthorized,
    /// A token that is not taken, or not any more.
    Forbidden(&'static str),
    /// No `connection_init` in time.
    InitTimeout,
    /// An operation under the id of one that runs.
    Duplicate(String),
    /// A second `connection_init`.
    TooManyInits,
}

impl Close {
    /// The frame that says so.
    pub(super) fn frame(&self) -> CloseFrame {
        let (code, reason) = match self {
            Self::GoingAway => (1001, "Going away".to_owned()),
            Self::TryLater => (1013, "Try again later".to_owned()),
            Self::Invalid(fault) => (4400, (*fault).to_owned()),
            Self::Unauthorized => (4401, "Unauthorized".to_owned()),
            Self::Forbidden(reason) => (4403, (*reason).to_owned()),
            Self::InitTimeout => (4408, "Connection initialisation timeout".to_owned()),
            Self::Duplicate(id) => (4409, format!("Subscriber for {id} already exists")),
            Self::TooManyInits => (4429, "Too many initialisation requests".to_owned()),
        };
        let fits = |end: &usize| reason.is_char_boundary(*end);
        let end = (0..=reason.len().min(MAX_REASON_BYTES)).rev().find(fits).unwrap_or(0);
        CloseFrame { code, reason: reason[..end].into() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::super::wire::tests::any_json;
    use super::*;

    #[test]
    fn messages_are_those_of_the_protocol() {
        for text in [
            r#"{"type":"connection_init"}"#,
            r#"{"type":"connection_init","payload":null}"#,
            r#"{"type":"connection_init","payload":{"Authorization":"Bearer x","more":[1]}}"#,
            r#"{"type":"ping","payload":{"any":1}}"#,
            r#"{"type":"pong"}"#,
            r#"{"id":"1","type":"subscribe","payload":{"query":"{ a }","variables":{"n":1}}}"#,
            r#"{"type":"complete","id":"1"}"#,
        ] {
            assert!(FromClient::parse(text).is_some(), "{text}");
        }
        for text in [
            "",
            "null",
            "[]",
            r#"{"type":"start"}"#,
            r#"{"type":"connection_init","payload":"token"}"#,
            r#"{"type":"subscribe","payload":{"query":"{ a }"}}"#,
            r#"{"type":"subscribe","id":1,"payload":{"query":"{ a }"}}"#,
            r#"{"type":"subscribe","id":"1"}"#,
            r#"{"type":"subscribe","id":"1","payload":{"query":["{ a }"]}}"#,
            r#"{"type":"complete"}"#,
            r#"["ping"]"#,
            r#"["complete","1"]"#,
            r#"{"type":"subscribe","id":"1","payload":["{ a }",null,null,null]}"#,
        ] {
            assert!(FromClient::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_reason_fits_into_its_frame() {
        let frame = Close::Duplicate("я".repeat(MAX_ID_BYTES / 2)).frame();
        assert_eq!(frame.code, 4409);
        assert!(frame.reason.len() <= MAX_REASON_BYTES && frame.reason.starts_with("Subscriber"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_message_or_none(text in any::<String>(), json in any_json()) {
            let _ = FromClient::parse(&text);
            let json_text = json.to_string();
            if FromClient::parse(&json_text).is_some() {
                prop_assert!(json["type"].is_string(), "{}", json_text);
            }
            for kind in ["connection_init", "ping", "pong", "subscribe", "complete"] {
                let message = json!({ "type": kind, "id": "1", "payload": json }).to_string();
                let is_taken = FromClient::parse(&message).is_some();
                let is_sound = match kind {
                    "connection_init" => json.is_object() || json.is_null(),
                    "subscribe" => GraphRequest::from_json(json_text.as_bytes()).is_ok(),
                    _ => true,
                };
                prop_assert_eq!(is_taken, is_sound, "{}", message);
            }
        }

        #[test]
        fn every_reason_fits_into_its_frame(id in ".{0,255}") {
            let frame = Close::Duplicate(id).frame();
            prop_assert!(frame.reason.len() <= MAX_REASON_BYTES);
        }
    }
}
