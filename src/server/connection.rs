//! One TCP connection: what a client may keep waiting, and for how long.
//!
//! The HTTP library bounds the time until a request's head is there, but counts the quiet time
//! between two requests as part of it, waits for ever for the first byte, and does not bound the time
//! that a client takes to read an answer. Here a client that has begun to speak has little time to
//! finish a head, may be quiet before and between requests for much longer, and must go on reading what
//! is written to it.
//!
//! A connection that is closed while the client still speaks is reset, and the client loses the answer
//! that tells it why. So what it says after the end is read for a moment, and thrown away.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::config::ConnectionLimits;

/// How long a client may take to notice that it was told the last …
const LINGER: Duration = Duration::from_secs(1);
/// … and how much of what it goes on to say is listened to.
const LINGER_BYTES: usize = 256 << 10;
/// As much as is thrown away at once.
const SCRAP: usize = 4 << 10;

/// What is going on, on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Nothing has been asked yet, or since the last answer.
    Quiet,
    /// A request is being worked on; whoever does that minds the time.
    Work,
    /// Several requests share the connection: there are no turns to take. The library asks for signs of
    /// life; one that gives those and asks for nothing may do so for as long as a quiet one.
    Shared,
    /// It is a WebSocket, which minds the time by itself.
    HandedOver,
}

/// The phase of a connection, shared by its bytes and its requests.
#[derive(Clone)]
pub(super) struct Phases(Arc<State>);

struct State {
    phase: AtomicU8,
    /// Requests so far …
    begun: AtomicUsize,
    /// … and those that are not answered.
    under_way: AtomicUsize,
}

impl Phases {
    pub(super) fn new() -> Self {
        let phase = AtomicU8::new(Phase::Quiet as u8);
        let [begun, under_way] = [(); 2].map(|()| AtomicUsize::new(0));
        Self(Arc::new(State { phase, begun, under_way }))
    }

    /// Goes over to a phase. A connection that is shared or handed over stays so.
    pub(super) fn set(&self, phase: Phase) {
        if phase == Phase::Work {
            self.0.begun.fetch_add(1, Ordering::Relaxed);
        }
        if self.is(Phase::Quiet) || self.is(Phase::Work) {
            self.0.phase.store(phase as u8, Ordering::Relaxed);
        }
    }

    fn is(&self, phase: Phase) -> bool {
        self.0.phase.load(Ordering::Relaxed) == phase as u8
    }

    /// A request is under way until what is returned is dropped.
    pub(super) fn begin(&self) -> UnderWay {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        self.0.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    /// Whether a request is under way, or was since so many had begun.
    fn is_used(&self, since: &mut usize) -> bool {
        let begun = self.0.begun.load(Ordering::Relaxed);
        std::mem::replace(since, begun) != begun || self.0.under_way.load(Ordering::Relaxed) > 0
    }
}

/// A request that is not answered yet.
pub(super) struct UnderWay(Phases);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection whose client must not dawdle. It is given to the HTTP library in place of the
/// stream.
pub(super) struct Timed {
    stream: TcpStream,
    phases: Phases,
    /// Runs while a head has begun and is not there.
    head: Timer,
    /// Runs while nothing is said, and while a shared connection is not used for anything.
    quiet: Timer,
    /// Requests that had begun when that was last looked at.
    begun: usize,
    /// Runs while the client takes nothing.
    taking: Timer,
    /// Runs while the client has been told the last and has not hung up.
    lingering: Timer,
    /// What may still be listened to then.
    left: usize,
}

impl Timed {
    pub(super) fn new(stream: TcpStream, phases: Phases, limits: &ConnectionLimits) -> Self {
        let (head, taking) = (Timer::new(limits.head_within), Timer::new(limits.take_within));
        let (quiet, lingering) = (Timer::new(limits.quiet_within), Timer::new(LINGER));
        Self { stream, phases, head, quiet, begun: 0, taking, lingering, left: LINGER_BYTES }
    }

    /// Whether it is for the client to say something.
    fn may_be_quiet(&self) -> bool {
        self.phases.is(Phase::Quiet) || self.phases.is(Phase::Shared)
    }

    /// Ready when the client has hung up, too, or was given time enough for it.
    fn linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut scrap = [0; SCRAP];
            let mut scrap = ReadBuf::new(&mut scrap);
            match Pin::new(&mut self.stream).poll_read(cx, &mut scrap) {
                Poll::Ready(Ok(())) if !scrap.filled().is_empty() => {
                    self.left = self.left.saturating_sub(scrap.filled().len());
                    if self.left == 0 {
                        return Poll::Ready(());
                    }
                }
                // It has hung up.
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.lingering.poll(cx),
            }
        }
    }

    /// What writing came to, unless the client has taken nothing for too long.
    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match written {
            Poll::Pending if self.phases.is(Phase::HandedOver) => Poll::Pending,
            Poll::Ready(written) => {
                self.taking.stop();
                Poll::Ready(written)
            }
            Poll::Pending => {
                ready!(self.taking.poll(cx));
                Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the client reads nothing",
                )))
            }
        }
    }
}

impl AsyncRead for Timed {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        let is_used = this.phases.is_used(&mut this.begun);
        if is_used || !this.phases.is(Phase::Quiet) {
            // A head has become a request, which may have been answered already.
            this.head.stop();
        }
        if is_used || !this.may_be_quiet() {
            this.quiet.stop();
        }
        match read {
            // The first bytes of a head, or more of it: the time goes on from the first.
            Poll::Ready(Ok(())) if buffer.filled().len() > before => {
                if this.phases.is(Phase::Quiet) {
                    this.quiet.stop();
                    this.head.start();
                }
                Poll::Ready(Ok(()))
            }
            Poll::Pending if this.head.is_running() => {
                ready!(this.head.poll(cx));
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "a head takes too long")))
            }
            // On one that is shared, signs of life and pieces of a head do not make it less quiet.
            Poll::Pending if this.may_be_quiet() => {
                ready!(this.quiet.poll(cx));
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "it is not used")))
            }
            read => read,
        }
    }
}

impl AsyncWrite for Timed {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.written(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bytes);
        this.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Nothing changes if it is done again, as it is whenever the client is waited for.
        ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        this.linger(cx).map(Ok)
    }
}

/// A time-out that is rarely waited for to its end. The runtime is told of it once in each such time: where
/// it is begun anew meanwhile, that is seen when the first one is over.
struct Timer {
    after: Duration,
    since: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer {
    fn new(after: Duration) -> Self {
        Self { after, since: None, sleep: None }
    }

    fn is_running(&self) -> bool {
        self.since.is_some()
    }

    /// Lets it run, if it does not yet.
    fn start(&mut self) {
        if self.since.is_none() {
            self.since = Some(Instant::now());
        }
    }

    fn stop(&mut self) {
        self.since = None;
    }

    /// Ready when the time is over; starts it if need be.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.start();
        let until = self.since.unwrap_or_else(Instant::now) + self.after;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(until)));
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= until {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(until);
        }
    }
}
