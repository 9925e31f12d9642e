//! GraphQL over WebSocket: the protocol `graphql-transport-ws`, as the library graphql-ws describes
//! it. Operations take the same way as over HTTP; subscriptions come this way only.
//!
//! A browser lets any site open a WebSocket to any other, without a preflight. Who asks is told by a
//! token that the page itself must send, never by a cookie that the browser adds; all the same only
//! pages of the shop itself and of the sites that are named are let in, because what a shop shows
//! inside a company's network is not for every site that its people look at.

mod messages;
mod session;
mod sockets;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::header::UPGRADE;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{SplitSink, StreamExt};
use futures_util::{FutureExt, SinkExt};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use self::messages::Close;
use self::session::{End, Session};
use self::sockets::Open;
pub(crate) use self::sockets::Sockets;
use super::caller::origin;
use super::cors;
use super::wire::{self, Media};
use crate::app::App;
use crate::error::Error;

/// The one protocol that is spoken.
const PROTOCOL: &str = "graphql-transport-ws";
/// Messages that wait to be sent on one connection. When there are more, whoever has one waits, and
/// of a subscription's changes only the last is told later.
const QUEUE: usize = 16;
/// Bytes that are read at once. They are taken for each connection, whether it says much or little.
const READ_BUFFER_BYTES: usize = 4 << 10;
/// How long a client has to take its leave after the connection was closed.
const PART_WITHIN: Duration = Duration::from_secs(1);

/// Whether a request asks for a WebSocket.
pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Answers a request for a WebSocket. `id` names the connection in the log.
pub(super) async fn open(app: &Arc<App>, mut parts: Parts, id: String) -> Response {
    let refused = |status, message: &str| {
        wire::with_status(status, Media::Json, &Error::BadUserInput(message.to_owned()))
    };
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade.protocols([PROTOCOL]),
        Err(fault) => {
            let status = fault.into_response().status();
            return refused(status, "This is not how a WebSocket is opened.");
        }
    };
    if upgrade.selected_protocol().is_none() {
        return refused(
            StatusCode::BAD_REQUEST,
            "The WebSocket's protocol must be graphql-transport-ws.",
        );
    }
    if !cors::may_open(app, &parts.headers) {
        let message = "Pages of this site may not open a WebSocket here.";
        return wire::failed(Media::Json, &Error::Forbidden(message));
    }
    if app.opened().await.is_none() {
        return wire::failed(Media::Json, &Error::Unavailable);
    }
    // Without an address, as in a test without a socket, only the number of all counts.
    let address = origin(app, &parts.headers, &parts.extensions).address;
    let seat = match Open::enter(app, address) {
        Ok(seat) => seat,
        Err(error) => return wire::failed(Media::Json, &error),
    };
    let (app, limit) = (app.clone(), app.config.limits.body_bytes);
    upgrade
        .read_buffer_size(READ_BUFFER_BYTES)
        // Every message is sent at once, so nothing is gained by gathering.
        .write_buffer_size(0)
        .max_message_size(limit)
        .max_frame_size(limit)
        .on_upgrade(move |socket| async move {
            serve(&app, socket, (parts.headers, &parts.extensions), id).await;
            drop(seat);
        })
}

/// Serves a connection to its end.
async fn serve(app: &Arc<App>, socket: WebSocket, opened_by: (HeaderMap, &Extensions), id: String) {
    let (sink, mut incoming) = socket.split();
    let (out, queue) = mpsc::channel(QUEUE);
    let mut writer = pin!(write(sink, queue, app.config.limits.sockets.send_within).fuse());
    let mut session = Session::new(app.clone(), out.clone(), opened_by, id);
    let end = tokio::select! {
        end = session.run(&mut incoming) => end,
        () = app.sockets.closing() => End::Closed(Close::GoingAway),
        written = &mut writer => {
            if written == Written::TooSlowly {
                app.metrics.slow_consumer();
            }
            End::Gone
        }
    };
    // Nothing of it runs any more.
    drop(session);
    let (close, is_readable) = match end {
        End::Gone => return,
        End::Left => (None, true),
        End::Closed(close) => (Some(close), true),
        End::Unreadable => {
            (Some(Close::Invalid("Invalid message received, or one that is too long")), false)
        }
    };
    let tell = async {
        if let Some(close) = close {
            // The writer fails only when there is nobody to tell.
            let _ = out.send(Message::Close(Some(close.frame()))).await;
        }
        drop(out);
    };
    // What a client has sent and nobody has read makes the system cut the connection, and the
    // client would not learn why.
    let read = async {
        if is_readable {
            while let Some(Ok(_)) = incoming.next().await {}
        } else {
            sleep(PART_WITHIN).await;
        }
    };
    let _ = timeout(PART_WITHIN, async { tokio::join!(tell, writer, read) }).await;
}

/// Why nothing more is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    /// All has been sent.
    All,
    /// The client is gone.
    InVain,
    /// The client did not take a message in time.
    TooSlowly,
}

/// Sends what is in the queue, until that is given up.
async fn write(
    mut sink: SplitSink<WebSocket, Message>,
    mut queue: mpsc::Receiver<Message>,
    within: Duration,
) -> Written {
    while let Some(message) = queue.recv().await {
        match timeout(within, sink.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Written::InVain,
            Err(_) => return Written::TooSlowly,
        }
    }
    Written::All
}
