//! Threads that serve clients, each with a runtime of its own.
//!
//! A client stays with the thread that it was given to, and so does what is done for it; on Cassandra
//! over a connection that is the thread's own (`storage/cassandra/lines.rs`). Where all threads share one
//! runtime, most steps of a request end with one of them waking another, and what the one knew is not in
//! the cache of the other's core: that was a third of the CPU of a card that is in no cache.

use std::cell::Cell;
use std::io;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use hyper::rt::Executor;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::sleep;

/// After so many turns at the latest a member looks what other threads have for it: the answers of those
/// who write, for whom buyers wait …
const HEAR_EVERY: u32 = 4;
/// … and what has come over the network.
const LOOK_EVERY: u32 = 31;
/// Threads of all members together that may wait for the disk.
const BLOCKING_THREADS: usize = 512;
/// How long a member that is told to end waits for what such threads are doing.
const END_WITHIN: Duration = Duration::from_secs(1);
/// A member always has a timer that ends so soon. Whenever one is set that ends before all others, the
/// runtime interrupts its own wait for the network with a system call, also if it does not wait; of the
/// time-outs of requests, none is shorter than this.
const TICK: Duration = Duration::from_millis(50);

thread_local! {
    static MEMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The number of this thread, if it is one that serves clients: what it begins stays with it.
pub(crate) fn member() -> Option<usize> {
    MEMBER.get()
}

/// As many such threads as there are cores. They end when it is dropped.
pub(crate) struct Crew {
    hands: Hands,
    ends: Vec<End>,
}

/// How a thread is told to end, and how it tells that it has.
struct End {
    /// It ends when this is gone …
    stop: oneshot::Sender<()>,
    /// … and then the other end of this is.
    ended: oneshot::Receiver<()>,
}

/// What gives work to the threads of a crew.
#[derive(Clone)]
pub(crate) struct Hands {
    members: Arc<[Member]>,
    next: Arc<AtomicUsize>,
}

struct Member {
    runtime: Handle,
    /// Clients that it was given and still serves.
    clients: Arc<AtomicUsize>,
}

impl Crew {
    /// Begins. If there are no threads to be had, whoever gives away work does it.
    pub(crate) fn gather() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let begun = (0..cores).map(|_| begin((BLOCKING_THREADS / cores).max(1)));
        let begun = begun.collect::<io::Result<Vec<_>>>().unwrap_or_else(|error| {
            tracing::warn!(%error, "no threads for clients");
            Vec::new()
        });
        let (members, ends): (Vec<_>, Vec<_>) = begun.into_iter().unzip();
        Self { hands: Hands { members: members.into(), next: Arc::default() }, ends }
    }

    /// What gives work to it.
    pub(crate) fn hands(&self) -> Hands {
        self.hands.clone()
    }

    /// Has the door kept by one of those who serve: whoever comes waits for a turn like those who are
    /// inside.
    pub(crate) async fn keep_door(&self, door: impl Future<Output = ()> + Send + 'static) {
        let Some(member) = self.hands.members.first() else { return door.await };
        // A thread ends with the crew, and so does whoever waits here.
        if let Err(error) = member.runtime.spawn(door).await
            && error.is_panic()
        {
            resume_unwind(error.into_panic());
        }
    }

    /// How much is done before what is ready to run has its turn, on the thread where that is most.
    pub(crate) async fn queue(&self) -> Duration {
        let turns = self.hands.members.iter().map(|member| member.runtime.spawn(turn()));
        let turns: Vec<_> = turns.collect();
        let mut longest = Duration::ZERO;
        for turn in turns {
            longest = longest.max(turn.await.unwrap_or_default());
        }
        longest
    }

    /// Ends the threads, and waits until they have let go of all they had.
    pub(crate) async fn end(self) {
        // All are told before the first is waited for.
        let tell = |End { stop, ended }| {
            drop::<oneshot::Sender<()>>(stop);
            ended
        };
        let ended: Vec<_> = self.ends.into_iter().map(tell).collect();
        for ended in ended {
            // Nothing is ever sent.
            let _ = ended.await;
        }
    }
}

fn begin(blocking_threads: usize) -> io::Result<(Member, End)> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let runtime = Builder::new_current_thread()
        .enable_all()
        .thread_name("reader")
        .global_queue_interval(HEAR_EVERY)
        .event_interval(LOOK_EVERY)
        .max_blocking_threads(blocking_threads)
        .build()?;
    let (stop, stopped) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let handle = runtime.handle().clone();
    thread::Builder::new().name("crew".to_owned()).spawn(move || {
        MEMBER.set(Some(number));
        run(runtime, stopped);
        drop::<oneshot::Sender<()>>(end);
    })?;
    Ok((Member { runtime: handle, clients: Arc::default() }, End { stop, ended }))
}

fn run(runtime: Runtime, stopped: oneshot::Receiver<()>) {
    runtime.spawn(async {
        loop {
            sleep(TICK).await;
        }
    });
    // Nothing is ever sent.
    let _ = runtime.block_on(stopped);
    runtime.shutdown_timeout(END_WITHIN);
}

/// What the turns of all take that are ready. The time in which the system had other programs run is
/// not theirs: it would not be shorter if there were fewer of them.
async fn turn() -> Duration {
    let before = worked();
    yield_now().await;
    worked().saturating_sub(before)
}

/// How long this thread has worked so far.
fn worked() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

impl Hands {
    /// Has a client served by the thread that serves the fewest.
    pub(crate) fn serve(&self, client: impl Future<Output = ()> + Send + 'static) {
        // Among those that serve as many as each other they are given out in turns.
        let (before, from) = self.members.split_at(self.next());
        let in_turn = from.iter().chain(before);
        let Some(member) = in_turn.min_by_key(|m| m.clients.load(Ordering::Relaxed)) else {
            tokio::spawn(client);
            return;
        };
        member.clients.fetch_add(1, Ordering::Relaxed);
        let given = Given(member.clients.clone());
        member.runtime.spawn(async move {
            let _given = given;
            client.await;
        });
    }

    /// Whose turn it is.
    fn next(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % self.members.len().max(1)
    }
}

/// A client that a member serves.
struct Given(Arc<AtomicUsize>);

impl Drop for Given {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Spreads work over the threads: a connection of HTTP/2 may carry the requests of a whole gateway.
impl<F> Executor<F> for Hands
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, work: F) {
        match self.members.get(self.next()) {
            Some(member) => member.runtime.spawn(work),
            None => tokio::spawn(work),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;
    use std::thread::ThreadId;

    use futures_util::future::BoxFuture;

    use super::*;

    /// Which threads do the work that is given away so many times.
    async fn threads_of(
        times: usize,
        give: impl Fn(usize, oneshot::Sender<ThreadId>),
    ) -> HashMap<ThreadId, usize> {
        let told = (0..times).map(|number| {
            let (tell, told) = oneshot::channel();
            give(number, tell);
            told
        });
        let mut threads = HashMap::new();
        for told in told.collect::<Vec<_>>() {
            *threads.entry(told.await.unwrap()).or_default() += 1;
        }
        threads
    }

    fn here() -> ThreadId {
        assert!(member().is_some());
        thread::current().id()
    }

    #[tokio::test]
    async fn clients_and_shared_connections_are_spread_evenly() {
        let crew = Crew::gather();
        let hands = crew.hands();
        let cores = hands.members.len();
        assert!(cores > 0 && member().is_none());
        let staying = Arc::new(Mutex::new(Vec::new()));
        let serve = |_, tell: oneshot::Sender<ThreadId>| {
            let (leave, left) = oneshot::channel::<()>();
            staying.lock().unwrap().push(leave);
            hands.serve(async move {
                tell.send(here()).unwrap();
                let _ = left.await;
            });
        };
        let threads = threads_of(3 * cores, serve).await;
        assert_eq!(threads.into_values().collect::<Vec<_>>(), vec![3; cores]);
        // Where one has left there is room for the next.
        staying.lock().unwrap().clear();
        while hands.members.iter().any(|m| m.clients.load(Ordering::Relaxed) > 0) {
            yield_now().await;
        }
        let execute = |_, tell: oneshot::Sender<ThreadId>| {
            hands.execute(async move { tell.send(here()).unwrap() });
        };
        let threads = threads_of(3 * cores, execute).await;
        assert_eq!(threads.into_values().collect::<Vec<_>>(), vec![3; cores]);
    }

    #[tokio::test]
    async fn a_queue_is_as_long_as_the_work_that_waits_in_it() {
        let crew = Crew::gather();
        assert!(crew.queue().await < Duration::from_secs(1));
        let work = Work { takes: Duration::from_millis(2), is_over: Arc::default() };
        crew.hands.members[0].runtime.spawn(work.clone().go_on());
        assert!(crew.queue().await >= work.takes);
        work.is_over.store(true, Ordering::Relaxed);
    }

    /// Is ready again as soon as it was done.
    #[derive(Clone)]
    struct Work {
        takes: Duration,
        is_over: Arc<AtomicBool>,
    }

    impl Work {
        fn go_on(self) -> BoxFuture<'static, ()> {
            Box::pin(async move {
                let before = worked();
                while worked() < before + self.takes {}
                if !self.is_over.load(Ordering::Relaxed) {
                    tokio::spawn(self.go_on());
                }
            })
        }
    }

    #[tokio::test]
    async fn at_the_end_nothing_is_left_of_what_was_begun() {
        let crew = Crew::gather();
        let (held, is_held) = oneshot::channel::<()>();
        let (begun, has_begun) = oneshot::channel();
        crew.hands().serve(async move {
            tokio::spawn(async move {
                begun.send(()).unwrap();
                std::future::pending::<()>().await;
                drop(held);
            });
        });
        has_begun.await.unwrap();
        crew.end().await;
        assert!(is_held.await.is_err());
    }
}
