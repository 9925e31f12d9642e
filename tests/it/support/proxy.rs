//! A stand-in for the nodes of a cluster: it passes bytes on, until it is told to lose replies, to
//! hold requests back, to cut connections, or to refuse them.
//!
//! Cassandra's driver asks the first node it reaches for the addresses of all, and goes to those with
//! the port of the first. So each node is stood in for on its own address, all on one port, and the
//! driver finds them by itself.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How much is passed on at once.
const CHUNK: usize = 64 * 1_024;
/// How much of a connection is held back at the most.
const MAX_HELD: usize = 16 * CHUNK;
/// How often a port is looked for that is free on the addresses of all nodes.
const PORT_TRIES: usize = 20;

/// What becomes of bytes from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Passes,
    /// Requests reach the server, and what it answers is lost.
    LosesReplies,
    /// Requests wait, also when whoever sent them has gone; they are passed on later.
    HoldsRequests,
}

struct Shared {
    mode: watch::Sender<Mode>,
    /// Raised by one, all connections of before are cut.
    cuts: watch::Sender<u64>,
    /// Results of statements that were lost.
    lost: watch::Sender<u64>,
    /// Statements that were held back.
    held: watch::Sender<u64>,
    /// Connections that were made.
    connections: watch::Sender<u64>,
    /// Whether nobody is to be let in.
    is_away: watch::Sender<bool>,
    /// Addresses that are listened on.
    listening: watch::Sender<usize>,
}

/// A proxy in front of a cluster; it ends when it is dropped.
pub struct Proxy {
    /// The addresses to use instead of the nodes'.
    pub nodes: Vec<String>,
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

impl Proxy {
    /// Stands in for these nodes, `ip:port` each.
    pub async fn start(nodes: &[String]) -> Self {
        let nodes: Vec<SocketAddr> = nodes.iter().map(|node| node.parse().unwrap()).collect();
        let listeners = listen(&nodes.iter().map(SocketAddr::ip).collect::<Vec<_>>()).await;
        let shared = Arc::new(Shared {
            mode: watch::Sender::new(Mode::Passes),
            cuts: watch::Sender::new(0),
            lost: watch::Sender::new(0),
            held: watch::Sender::new(0),
            connections: watch::Sender::new(0),
            is_away: watch::Sender::new(false),
            listening: watch::Sender::new(listeners.len()),
        });
        let addresses = listeners.iter().map(|one| one.local_addr().unwrap().to_string());
        let addresses = addresses.collect();
        let accept = |(listener, node)| tokio::spawn(accept(listener, node, shared.clone()));
        let tasks = listeners.into_iter().zip(nodes).map(accept).collect();
        Self { nodes: addresses, shared, tasks }
    }

    /// From now on answers are lost. The connections they came on end with [`pass`](Self::pass).
    pub fn lose_replies(&self) {
        self.shared.mode.send_replace(Mode::LosesReplies);
    }

    /// From now on requests wait until [`pass`](Self::pass).
    pub fn hold_requests(&self) {
        self.shared.mode.send_replace(Mode::HoldsRequests);
    }

    /// From now on everything is passed on, also what was held back.
    pub fn pass(&self) {
        self.shared.mode.send_replace(Mode::Passes);
    }

    /// Cuts all connections. What was held back on them is gone, unless it is passed on before.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Goes away: connections are cut, and new ones refused.
    pub async fn leave(&self) {
        self.shared.is_away.send_replace(true);
        self.cut();
        self.shared.listening.subscribe().wait_for(|count| *count == 0).await.unwrap();
    }

    /// Is there again, at the same addresses.
    pub fn come_back(&self) {
        self.shared.is_away.send_replace(false);
    }

    /// Waits until one more result of a statement has been lost; those of before do not count.
    pub fn a_lost_result(&self) -> impl Future<Output = ()> + use<> {
        let mut lost = self.shared.lost.subscribe();
        let before = *lost.borrow();
        async move {
            lost.wait_for(|lost| *lost > before).await.unwrap();
        }
    }

    /// Results that were lost so far.
    pub fn lost(&self) -> u64 {
        *self.shared.lost.borrow()
    }

    /// Statements that were held back so far.
    pub fn held(&self) -> u64 {
        *self.shared.held.borrow()
    }

    /// Connections so far.
    pub fn connections(&self) -> u64 {
        *self.shared.connections.borrow()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Listens on all these addresses, on one port.
async fn listen(addresses: &[IpAddr]) -> Vec<TcpListener> {
    for _ in 0..PORT_TRIES {
        let mut listeners = vec![TcpListener::bind((addresses[0], 0)).await.unwrap()];
        let port = listeners[0].local_addr().unwrap().port();
        for address in &addresses[1..] {
            listeners.extend(TcpListener::bind((*address, port)).await.ok());
        }
        if listeners.len() == addresses.len() {
            return listeners;
        }
    }
    panic!("no port is free on all of {addresses:?}");
}

async fn accept(mut listener: TcpListener, node: SocketAddr, shared: Arc<Shared>) {
    let address = listener.local_addr().unwrap();
    let mut is_away = shared.is_away.subscribe();
    loop {
        tokio::select! {
            () = let_in(&listener, node, &shared) => return,
            left = is_away.wait_for(|away| *away) => if left.is_err() { return },
        }
        drop(listener);
        shared.listening.send_modify(|count| *count -= 1);
        if is_away.wait_for(|away| !away).await.is_err() {
            return;
        }
        listener = TcpListener::bind(address).await.unwrap();
        shared.listening.send_modify(|count| *count += 1);
    }
}

async fn let_in(listener: &TcpListener, node: SocketAddr, shared: &Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        shared.connections.send_modify(|connections| *connections += 1);
        let mut cuts = shared.cuts.subscribe();
        cuts.mark_unchanged();
        let shared = shared.clone();
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(node).await else { return };
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let ((from_client, to_client), (from_server, to_server)) =
                (client.into_split(), server.into_split());
            // Both ways go on by themselves: a request that was held back is passed on although
            // its sender has hung up.
            let pumps = async {
                let requests = async {
                    requests(from_client, to_server, &shared).await;
                    Ok(())
                };
                tokio::try_join!(requests, replies(from_server, to_client, &shared))
            };
            tokio::select! { _ = pumps => {}, _ = cuts.changed() => {} }
        });
    }
}

/// Whether these bytes begin with a frame of Cassandra's protocol of this kind.
fn is_frame(bytes: &[u8], kinds: &[u8]) -> bool {
    bytes.get(4).is_some_and(|kind| kinds.contains(kind))
}

/// A result, among the answers.
const RESULT: u8 = 0x08;
/// A statement and a prepared one, among the requests.
const STATEMENTS: [u8; 2] = [0x07, 0x0A];

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared) {
    let (mut bytes, mut waiting) = (vec![0; CHUNK], Vec::new());
    let (mut mode, mut is_open) = (shared.mode.subscribe(), true);
    loop {
        let holds = *mode.borrow_and_update() == Mode::HoldsRequests;
        if !holds {
            if to.write_all(&waiting).await.is_err() || !is_open {
                return;
            }
            waiting.clear();
        }
        tokio::select! {
            read = from.read(&mut bytes), if is_open && waiting.len() < MAX_HELD => match read {
                Ok(read @ 1..) => {
                    waiting.extend_from_slice(&bytes[..read]);
                    if holds && is_frame(&bytes, &STATEMENTS) {
                        shared.held.send_modify(|held| *held += 1);
                    }
                }
                _ => is_open = false,
            },
            changed = mode.changed() => if changed.is_err() { return },
        }
    }
}

/// A connection on which something was lost.
struct Spoilt;

/// Passes answers on. A connection on which some were lost ends once no more are to be: half of an
/// answer would be taken for the beginning of the next one.
async fn replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
) -> Result<(), Spoilt> {
    let mut bytes = vec![0; CHUNK];
    let (mut mode, mut is_spoilt, mut has_reader) = (shared.mode.subscribe(), false, true);
    loop {
        let loses = *mode.borrow_and_update() == Mode::LosesReplies;
        if is_spoilt && !loses {
            return Err(Spoilt);
        }
        let read = tokio::select! {
            read = from.read(&mut bytes) => read.unwrap_or(0),
            changed = mode.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return Ok(()),
            },
        };
        if read == 0 {
            return Ok(());
        }
        if loses {
            is_spoilt = true;
            if is_frame(&bytes, &[RESULT]) {
                shared.lost.send_modify(|lost| *lost += 1);
            }
        } else if has_reader {
            // Whoever asked may have gone; what was held back is answered to nobody.
            has_reader = to.write_all(&bytes[..read]).await.is_ok();
        }
    }
}
