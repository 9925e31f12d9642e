//! Short notes that instances send each other through Redis: that something has changed, not what it
//! is now. Who needs to know reads it.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

use super::{Redis, Tiers};

/// Most notes that are being sent at once; one more is left out. Whoever listens also looks by
/// itself now and then.
const MAX_SENDING: usize = 256;

/// A channel for notes. Without Redis it says and hears nothing.
pub struct Notes {
    open: Option<Open>,
}

struct Open {
    redis: Arc<Redis>,
    channel: String,
    hears: watch::Receiver<bool>,
    sending: Arc<Semaphore>,
}

impl Notes {
    /// Opens the channel `name` of a shop. `hear` is told every note, also one's own, and answers
    /// whether it wants to hear more.
    pub fn open(
        tiers: &Tiers,
        shop: &str,
        name: &str,
        hear: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        let open = tiers.redis().map(|redis| {
            let channel = format!("vitrina:{shop}:{name}:n");
            let hears = redis.listen(channel.clone(), move |message| {
                // An empty one only tells that the connection is alive.
                let note = std::str::from_utf8(message).unwrap_or_default();
                hear(note)
            });
            let sending = Arc::new(Semaphore::new(MAX_SENDING));
            Open { redis: redis.clone(), channel, hears, sending }
        });
        Self { open }
    }

    /// Whether the notes of others are heard right now.
    pub fn hears(&self) -> bool {
        self.open.as_ref().is_some_and(|open| *open.hears.borrow())
    }

    /// Sends a note, in the background.
    pub fn send(&self, note: String) {
        let Some(Open { redis, channel, sending, .. }) = &self.open else { return };
        // Without a runtime, as at the end of a process, there is nobody to send it.
        let (Ok(permit), Ok(runtime)) =
            (sending.clone().try_acquire_owned(), Handle::try_current())
        else {
            return;
        };
        let (redis, channel) = (redis.clone(), channel.clone());
        runtime.spawn(async move {
            redis.publish(&channel, note.as_bytes()).await;
            drop(permit);
        });
    }
}
