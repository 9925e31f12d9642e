//! The door: connections are taken in, bounded, served, and at the end seen out politely.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
#[cfg(target_os = "linux")]
use socket2::{SockFilter, SockRef};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::connection::{Phase, Phases, Timed};
use super::seats::{Full, Seat, Seats};
use super::wire::{ComeBackAfter, Unheard};
use crate::app::App;
use crate::crew::{Crew, Hands};
use crate::wakes::at_once;

/// Bytes of a request's head.
const HEAD_BYTES: usize = 32 << 10;
/// Requests at once on one connection of HTTP/2.
const STREAMS: u32 = 100;
/// A quiet connection of HTTP/2 is asked this often for a sign of life …
const PING_EVERY: Duration = Duration::from_secs(30);
/// … and ended after so long without one.
const PONG_WITHIN: Duration = Duration::from_secs(10);
/// The pause after the system could not give another connection, as when files run out.
const NO_MORE_PAUSE: Duration = Duration::from_millis(50);
/// After the signal to stop, new clients are let in for so long: whoever sends them here has to
/// learn first that this instance is not ready any more.
const FAREWELL: Duration = Duration::from_secs(1);
/// Then clients that are connected have so long to make one more request, in whose answer they are
/// told to go elsewhere.
const LAST_CALL: Duration = Duration::from_secs(1);

/// Whoever has begun to connect before that takes the last steps within so long.
const LAST_STEPS: Duration = Duration::from_millis(100);

/// While so many are sent away that they are told to come back later than this, their first refusal is
/// held for so long, too: clients of which each comes on a connection of its own cannot be held up
/// later.
const FIRST_HELD: Duration = Duration::from_secs(1);
/// Who has had its share and comes back too early waits for its next refusal for so long at least, as the
/// moment that it was told may be the next one already …
const LIMITED_AT_LEAST: Duration = Duration::from_millis(100);
/// … and at the most.
const LIMITED_AT_MOST: Duration = Duration::from_secs(1);

/// What a client gets that finds no place. It has not been listened to, so it is told in the words
/// of HTTP/1.1 whatever it speaks.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-length: 0\r\n\r\n";

/// Clients that may have connected before they are let in. With tokio's 1,024 some of two thousand that
/// came at once were reset by the system. It may be set to allow fewer (`net.core.somaxconn`).
const BACKLOG: u32 = 4_096;

/// Opens an address for clients.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // An instance that is started again does not have to wait for its last connections to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `stop` is over, and then until all clients have been seen out. `router` has the
/// routes of `app`, and perhaps others.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    app: Arc<App>,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let crew = Crew::gather();
    let (hands, kept) = (crew.hands(), app.clone());
    let door = async move {
        // Whoever waits at it listens to it.
        match listener.into_std().and_then(TcpListener::from_std) {
            Ok(listener) => see_through(listener, router, &kept, hands, stop).await,
            Err(error) => tracing::error!(%error, "the door cannot be kept"),
        }
    };
    tokio::select! {
        () = app.admission.keep(&crew) => {}
        () = crew.keep_door(door) => {}
    }
    // Changes whose clients have left come to their end, too.
    app.admission.idle().await;
    crew.end().await;
}

/// Lets clients in until `stop` is over, and sees all out.
async fn see_through(
    listener: TcpListener,
    router: Router,
    app: &Arc<App>,
    hands: Hands,
    stop: impl Future<Output = ()>,
) {
    let limits = &app.config.limits.connections;
    let seats = Seats::new(limits.all, limits.per_address);
    let door = Door {
        service: TowerToHyperService::new(router),
        builder: builder(hands.clone()),
        hands,
        graceful: GracefulShutdown::new(),
        seats: seats.clone(),
        app: app.clone(),
    };
    door.until(&listener, pin!(stop)).await;
    app.stop();
    let see_out = async {
        // With nobody inside there is nobody to wait for; whoever comes now is refused by the system
        // and knows it.
        let farewell = async { timeout(FAREWELL, seats.empty()).await.map_or((), drop) };
        door.until(&listener, pin!(farewell)).await;
        if let Err(error) = turn_away_newcomers(&listener) {
            tracing::debug!(%error, "who connects at the last moment may be reset");
        }
        door.until(&listener, pin!(sleep(LAST_STEPS))).await;
        door.let_in_the_last(listener);
        let _ = timeout(LAST_CALL, seats.empty()).await;
        door.graceful.shutdown().await;
    };
    // WebSockets have left the seats: they are no requests any more.
    tokio::join!(see_out, app.sockets.close());
}

/// From now on nobody begins to connect. Whoever the system has let connect is reset when a listener is
/// closed before they were let in, and has lost a request by then; whoever only knocks is not answered,
/// knocks again and is refused by then, which says that nothing was lost.
#[cfg(target_os = "linux")]
fn turn_away_newcomers(listener: &TcpListener) -> io::Result<()> {
    // Of the TCP header the byte with its flags; those that begin a connection have SYN and no ACK.
    const LOAD_FLAGS: SockFilter = SockFilter::new(0x30, 0, 0, 13);
    const OF_THEM_SYN_AND_ACK: SockFilter = SockFilter::new(0x54, 0, 0, 0x12);
    const UNLESS_SYN_ALONE_SKIP_ONE: SockFilter = SockFilter::new(0x15, 0, 1, 0x02);
    const DROP: SockFilter = SockFilter::new(0x06, 0, 0, 0);
    const KEEP: SockFilter = SockFilter::new(0x06, 0, 0, u32::MAX);
    let filter = [LOAD_FLAGS, OF_THEM_SYN_AND_ACK, UNLESS_SYN_ALONE_SKIP_ONE, DROP, KEEP];
    SockRef::from(listener).attach_filter(&filter)
}

#[cfg(not(target_os = "linux"))]
fn turn_away_newcomers(_: &TcpListener) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn builder(hands: Hands) -> Builder<Hands> {
    let mut builder = Builder::new(hands);
    builder
        .http1()
        // [`Timed`] minds the time.
        .header_read_timeout(None)
        .max_buf_size(HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN);
    builder
}

struct Door {
    service: TowerToHyperService<Router>,
    builder: Builder<Hands>,
    hands: Hands,
    graceful: GracefulShutdown,
    seats: Arc<Seats>,
    app: Arc<App>,
}

impl Door {
    /// Lets clients in until something is over.
    async fn until(&self, listener: &TcpListener, mut over: Pin<&mut impl Future<Output = ()>>) {
        loop {
            tokio::select! {
                biased;
                () = &mut over => return,
                accepted = listener.accept() => {
                    if !self.admit(accepted) {
                        sleep(NO_MORE_PAUSE).await;
                    }
                }
            }
        }
    }

    /// Lets in those who have connected and wait: they would be cut off. The system is asked
    /// directly, as tokio knows of them only a moment later.
    fn let_in_the_last(&self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else { return };
        while let Ok((stream, address)) = listener.accept() {
            let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            self.admit(stream.map(|stream| (stream, address)));
        }
    }

    /// Serves a client that has connected. False if the system has no room for more.
    fn admit(&self, accepted: io::Result<(TcpStream, SocketAddr)>) -> bool {
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            // It has hung up again.
            Err(error) if is_of_client(&error) => return true,
            Err(error) => {
                tracing::warn!(%error, "no more connections can be taken");
                return false;
            }
        };
        let seat = match self.take_seat(address) {
            Ok(seat) => seat,
            Err(full) => {
                self.app.metrics.pressure().refused();
                tracing::debug!(%address, ?full, "a connection is refused");
                // A new connection takes so little at once; if not, it is closed all the same.
                let _ = stream.try_write(FULL);
                return true;
            }
        };
        // Answers are written whole; waiting for more would only delay them.
        let _ = stream.set_nodelay(true);
        let phases = Phases::new();
        let handler = Handler {
            inner: self.service.clone(),
            app: self.app.clone(),
            address,
            phases: phases.clone(),
            patience: Arc::default(),
        };
        let (stream, app) = (stream.into_std(), self.app.clone());
        let (builder, watcher) = (self.builder.clone(), self.graceful.watcher());
        self.hands.serve(async move {
            // Whoever serves it listens to it.
            let Ok(stream) = stream.and_then(TcpStream::from_std) else { return };
            let io = TokioIo::new(Timed::new(stream, phases, &app.config.limits.connections));
            // A request that asks for its body wakes its own connection.
            at_once(attend(builder, io, handler, watcher, seat)).await;
        });
        true
    }

    /// Those on the same machine are a proxy for all clients, or tests: they have no share.
    fn take_seat(&self, address: SocketAddr) -> Result<Seat, Full> {
        let address = address.ip().to_canonical();
        self.seats.take((!address.is_loopback()).then_some(address))
    }
}

async fn attend(
    builder: Builder<Hands>,
    io: TokioIo<Timed>,
    handler: Handler,
    watcher: Watcher,
    seat: Seat,
) {
    let metrics = handler.app.metrics.clone();
    metrics.pressure().connections().inc();
    let connection = builder.serve_connection_with_upgrades(io, handler);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection ended");
    }
    metrics.pressure().connections().dec();
    drop(seat);
}

fn is_of_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// Answers the requests of one connection.
struct Handler {
    inner: TowerToHyperService<Router>,
    app: Arc<App>,
    address: SocketAddr,
    phases: Phases,
    patience: Arc<Patience>,
}

/// When a client that was sent away was told to come back. One that does not wait is made to: its next
/// refusal comes no earlier, so that whoever asks again and again costs little more than whoever
/// waits. What can be answered is not held up.
#[derive(Default)]
struct Patience(Mutex<Option<Instant>>);

impl Patience {
    /// The moment before which a client is not to be sent away again; none the first time, unless very
    /// many are.
    fn until(&self, answer: &Answer) -> Option<Instant> {
        let ComeBackAfter(pause) = *answer.extensions().get()?;
        let (pause, first) = match answer.status() {
            StatusCode::SERVICE_UNAVAILABLE => (pause, (pause > FIRST_HELD).then_some(FIRST_HELD)),
            StatusCode::TOO_MANY_REQUESTS => (pause.clamp(LIMITED_AT_LEAST, LIMITED_AT_MOST), None),
            _ => return None,
        };
        let mut until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let held = until.filter(|until| *until > now).or(first.map(|first| now + first));
        // Requests that share a connection are all held together, and not one after the other.
        *until = Some((held.unwrap_or(now) + pause).min(now + 2 * pause));
        held
    }
}

type Answer = Response<axum::body::Body>;
type Answering = Pin<Box<dyn Future<Output = Result<Answer, std::convert::Infallible>> + Send>>;

impl hyper::service::Service<Request<Incoming>> for Handler {
    type Response = Answer;
    type Error = std::convert::Infallible;
    type Future = Answering;

    fn call(&self, mut request: Request<Incoming>) -> Answering {
        let is_alone = request.version() < Version::HTTP_2;
        self.phases.set(if is_alone { Phase::Work } else { Phase::Shared });
        request.extensions_mut().insert(ConnectInfo(self.address));
        let (answer, app) = (self.inner.call(request), self.app.clone());
        let (phases, patience) = (self.phases.clone(), self.patience.clone());
        let under_way = (!is_alone).then(|| phases.begin());
        Box::pin(async move {
            let _under_way = under_way;
            let mut response = answer.await?;
            if let Some(until) = patience.until(&response) {
                // Whoever is to go elsewhere is told so now.
                tokio::select! {
                    () = sleep_until(until) => {}
                    () = app.stopped() => {}
                }
            }
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                phases.set(Phase::HandedOver);
            } else {
                phases.set(Phase::Quiet);
                let is_unheard = response.extensions().get::<Unheard>().is_some();
                if is_alone && (is_unheard || app.is_stopping()) {
                    // What a client went on to say was not listened to; or its next request goes to
                    // another instance. It must not send one here, where the connection ends.
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
            }
            Ok(response)
        })
    }
}
