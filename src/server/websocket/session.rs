//! What is said on one connection: the rules of the protocol, and the operations that run on it.

use std::collections::HashMap;
use std::sync::Arc;

use async_graphql::parser::types::OperationType;
use axum::extract::ws::{Message, WebSocket};
use axum::http::{Extensions, HeaderMap};
use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable, BoxFuture, pending, ready};
use futures_util::stream::{FuturesUnordered, SplitStream, StreamExt};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::super::caller::{Asking, identify, origin};
use super::super::identity::{authorization, bearer_of};
use super::super::operation::{Admitted, Asked, Event, Watching, admit, execute};
use super::super::wire::GraphRequest;
use super::messages::{Close, FromClient, MAX_ID_BYTES, ToClient};
use crate::app::App;
use crate::error::Error;
use crate::graphql::{Caller, Origin};

/// How a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// It is not there any more.
    Gone,
    /// The client takes its leave.
    Left,
    /// The server does not want to go on.
    Closed(Close),
    /// The client sent what is no message, or too long a one.
    Unreadable,
}

impl From<Close> for End {
    fn from(close: Close) -> Self {
        Self::Closed(close)
    }
}

/// An operation that has run, by its number, and how that ended.
type Finished = (String, u64, Result<(), Cut>);

/// A connection: who is at the other end, and what runs for it. All of it is one task, so that a
/// connection takes no more of the machine than a request does, and nothing outlives it.
pub(super) struct Session {
    app: Arc<App>,
    out: mpsc::Sender<Message>,
    /// Those of the request that opened the connection.
    headers: HeaderMap,
    /// Where the connection comes from.
    origin: Origin,
    /// Names the connection in the log.
    id: String,
    /// Who is at the other end, once that was said.
    caller: Option<Caller>,
    /// When it ends: first for want of a `connection_init`, then with the token.
    until: Option<Instant>,
    /// The operations that run, by the client's ids.
    running: HashMap<String, (u64, AbortHandle)>,
    work: FuturesUnordered<Abortable<BoxFuture<'static, Finished>>>,
    /// How many operations there have been.
    count: u64,
}

impl Session {
    /// A connection that has just been opened.
    pub(super) fn new(
        app: Arc<App>,
        out: mpsc::Sender<Message>,
        (headers, extensions): (HeaderMap, &Extensions),
        id: String,
    ) -> Self {
        let origin = origin(&app, &headers, extensions);
        let until = Some(Instant::now() + app.config.limits.sockets.init_within);
        Self {
            app,
            out,
            headers,
            origin,
            id,
            caller: None,
            until,
            running: HashMap::new(),
            work: FuturesUnordered::new(),
            count: 0,
        }
    }

    /// Does what the client says, until one of both ends it.
    pub(super) async fn run(&mut self, incoming: &mut SplitStream<WebSocket>) -> End {
        let ping_after = self.app.config.limits.sockets.ping_after;
        let mut quiet_until = Instant::now() + ping_after;
        let mut was_pinged = false;
        loop {
            let until = self.until;
            let over = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = over => {
                    return match self.caller {
                        Some(_) => Close::Forbidden("token expired").into(),
                        None => Close::InitTimeout.into(),
                    };
                }
                Some(finished) = self.work.next() => {
                    // One that was stopped is known no more; its id may be another's by now.
                    let Ok((id, number, done)) = finished else { continue };
                    if self.running.get(&id).is_some_and(|(own, _)| *own == number) {
                        self.running.remove(&id);
                    }
                    if let Err(Cut::SessionEnded) = done {
                        return SESSION_ENDED.into();
                    }
                }
                message = incoming.next() => {
                    quiet_until = Instant::now() + ping_after;
                    was_pinged = false;
                    let done = match message {
                        None => return End::Gone,
                        Some(Err(_)) => return End::Unreadable,
                        Some(Ok(Message::Close(_))) => return End::Left,
                        // Pings are answered by the library.
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
                        Some(Ok(Message::Binary(_))) => {
                            Err(Close::Invalid("Messages are text, not binary"))
                        }
                        Some(Ok(Message::Text(text))) => self.hear(&text).await,
                    };
                    if let Err(close) = done {
                        return close.into();
                    }
                }
                () = sleep_until(quiet_until) => {
                    if was_pinged {
                        return End::Gone;
                    }
                    quiet_until = Instant::now() + ping_after;
                    was_pinged = true;
                    // A ping of WebSocket's own: every client answers it without knowing. If the
                    // queue is full, its messages tell as well whether somebody is there.
                    let _ = self.out.try_send(Message::Ping(Bytes::new()));
                }
            }
        }
    }

    async fn hear(&mut self, text: &str) -> Result<(), Close> {
        let message = FromClient::parse(text).ok_or(Close::Invalid("Invalid message received"))?;
        match message {
            FromClient::ConnectionInit { payload } => {
                if self.caller.is_some() {
                    return Err(Close::TooManyInits);
                }
                self.let_in(&payload.unwrap_or_default()).await?;
                self.tell(&ToClient::ConnectionAck).await;
            }
            FromClient::Ping => self.tell(&ToClient::Pong).await,
            FromClient::Pong => {}
            FromClient::Subscribe { id, payload } => {
                let Some(caller) = self.caller.clone() else { return Err(Close::Unauthorized) };
                if id.is_empty() || id.len() > MAX_ID_BYTES {
                    return Err(Close::Invalid("An id has 1 to 255 bytes"));
                }
                if self.running.contains_key(&id) {
                    return Err(Close::Duplicate(id));
                }
                self.begin(id, caller, payload.0).await;
            }
            FromClient::Complete { id } => {
                if let Some((_, operation)) = self.running.remove(&id) {
                    operation.abort();
                }
            }
        }
        Ok(())
    }

    /// Finds out who is at the other end: by the token in the message, which is all that a page in
    /// a browser can send, or else by that of the request.
    async fn let_in(&mut self, payload: &Map<String, Value>) -> Result<(), Close> {
        let values = || {
            let named = |(name, _): &(&String, _)| name.eq_ignore_ascii_case("authorization");
            payload.iter().filter(named).map(|(_, value)| value.as_str())
        };
        let token = match values().next() {
            Some(_) => bearer_of(values()),
            None => bearer_of(authorization(&self.headers)),
        };
        let refused = |error| match error {
            Error::Unauthenticated(_) => Close::Forbidden("Forbidden"),
            _ => Close::TryLater,
        };
        let app = self.app.clone();
        let shop = app.shop().ok_or(Close::TryLater)?;
        let token = token.map_err(refused)?;
        let deadline = Instant::now() + app.config.limits.deadline;
        let known = in_time(deadline, identify(&app, shop, token, self.origin.clone())).await;
        let (caller, lasts) = known.map_err(refused)?;
        self.caller = Some(caller);
        // One that ends in a thousand years cannot be added, and never ends.
        self.until = lasts.and_then(|lasts| Instant::now().checked_add(lasts));
        self.headers = HeaderMap::new();
        Ok(())
    }

    async fn begin(&mut self, id: String, caller: Caller, request: GraphRequest) {
        let most = self.app.config.limits.sockets.subscriptions;
        if self.running.len() >= most {
            let message = format!("At most {most} operations run at once on a connection.");
            let error = Error::too_many(message);
            self.tell(&ToClient::Error { id: &id, payload: &[(&error).into()] }).await;
            return;
        }
        self.count += 1;
        let number = self.count;
        let name = format!("{}.{number}", self.id);
        let (app, out, own_id) = (self.app.clone(), self.out.clone(), id.clone());
        let work: BoxFuture<'static, Finished> = Box::pin(async move {
            let done = operate(&app, caller, &name, &own_id, request, &out).await;
            (own_id, number, done)
        });
        let (handle, registration) = AbortHandle::new_pair();
        self.work.push(Abortable::new(work, registration));
        self.running.insert(id, (number, handle));
    }

    async fn tell(&mut self, message: &ToClient<'_>) {
        // It fails only when the connection has ended; the reader notices.
        let _ = self.out.send(message.message()).await;
    }
}

/// How a connection ends whose session has.
const SESSION_ENDED: Close = Close::Forbidden("session ended");

/// Why an operation does not come to its end.
#[derive(Debug)]
enum Cut {
    /// There is nobody to tell any more.
    NobodyThere,
    /// The client's session has ended.
    SessionEnded,
}

/// Waits for something until a deadline.
async fn in_time<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    timeout_at(deadline, work).await.unwrap_or(Err(Error::Timeout))
}

/// Runs an operation to its end, and tells the client what comes of it.
async fn operate(
    app: &App,
    mut caller: Caller,
    name: &str,
    id: &str,
    request: GraphRequest,
    out: &mpsc::Sender<Message>,
) -> Result<(), Cut> {
    let tell = async |message: ToClient<'_>| {
        out.send(message.message()).await.map_err(|_| Cut::NobodyThere)
    };
    let deadline = Instant::now() + app.config.limits.deadline;
    let Some(shop) = app.shop() else {
        return tell(ToClient::Error { id, payload: &[(&Error::Unavailable).into()] }).await;
    };
    let session = caller.session.as_ref().map(|session| session.id);
    if let Some(session) = session {
        // To ask for something is activity; whoever has ended the session ends this too.
        match in_time(deadline, shop.sessions.admit_id(session)).await {
            Ok(Some(session)) => caller.session = Some(session),
            Ok(None) => return Err(Cut::SessionEnded),
            Err(error) => return tell(ToClient::Error { id, payload: &[(&error).into()] }).await,
        }
    }
    let address = caller.origin.address;
    let admitted = admit(app, shop, request, address, ready(Ok(Asking::Known(caller))));
    let admitted = timeout_at(deadline, admitted).await;
    let Admitted { place, caller, ready } = match admitted {
        Ok(Ok(admitted)) => admitted,
        Ok(Err(refusal)) => {
            return tell(ToClient::Error { id, payload: &Vec::from(refusal) }).await;
        }
        Err(_) => return tell(ToClient::Error { id, payload: &[(&Error::Timeout).into()] }).await,
    };
    let asked = Asked { shop, caller, id: name };
    if ready.kind() == OperationType::Subscription {
        // It waits for events from now on; how often those come is bounded where they come from.
        drop(place);
        let mut watching = Watching::new(app, asked, ready);
        while let Some(event) = watching.next().await {
            if let Some(session) = session {
                let within = Instant::now() + app.config.limits.deadline;
                match in_time(within, shop.sessions.goes_on(session)).await {
                    Ok(true) => {}
                    Ok(false) => return Err(Cut::SessionEnded),
                    Err(error) => {
                        return tell(ToClient::Error { id, payload: &[(&error).into()] }).await;
                    }
                }
            }
            match event {
                Event::Answer(answer) => tell(ToClient::Next { id, payload: &answer }).await?,
                Event::Failed(errors) => {
                    return tell(ToClient::Error { id, payload: &errors }).await;
                }
            }
        }
    } else {
        match execute(app, asked, (ready, place), deadline).await {
            Ok(answer) => tell(ToClient::Next { id, payload: &answer }).await?,
            Err(error) => {
                return tell(ToClient::Error { id, payload: &[(&error).into()] }).await;
            }
        }
    }
    tell(ToClient::Complete { id }).await
}
