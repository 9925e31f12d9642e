//! What instances tell each other through Redis: that an entry was changed, and what it is now.

use std::sync::{Arc, Weak};

use futures_util::StreamExt;
use redis::Client;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::redis::{CLOCK_LIFE, CONNECTION_TIMEOUT, PROBE_PAUSE, Redis, connection_info};

/// So many messages of its own that do not come back, and a connection is taken for dead.
const MAX_SILENT: u32 = 2;

impl Redis {
    /// Listens to a channel until `hear` says that nobody wants to any more, on a connection of its
    /// own that is made again whenever it is lost. Answers with whether it is listening.
    pub(super) fn listen(
        self: &Arc<Self>,
        channel: String,
        hear: impl Fn(&[u8]) -> bool + Send + Sync + 'static,
    ) -> watch::Receiver<bool> {
        let (told, listening) = watch::channel(false);
        tokio::spawn(keep_listening(Arc::downgrade(self), channel, hear, told));
        listening
    }
}

async fn keep_listening(
    redis: Weak<Redis>,
    channel: String,
    hear: impl Fn(&[u8]) -> bool + Send + Sync,
    told: watch::Sender<bool>,
) {
    while !told.is_closed() {
        let Some(config) = redis.upgrade().map(|redis| redis.config.clone()) else { return };
        let connect = async {
            let client = Client::open(connection_info(&config)?)?;
            let mut messages = client.get_async_pubsub().await?;
            messages.subscribe(&channel).await?;
            redis::RedisResult::Ok(messages)
        };
        if let Ok(Ok(mut messages)) = timeout(CONNECTION_TIMEOUT, connect).await {
            told.send_replace(true);
            let mut stream = messages.on_message();
            let mut beats = tokio::time::interval(CLOCK_LIFE);
            let mut silent = 0;
            loop {
                tokio::select! {
                    message = stream.next() => {
                        let Some(message) = message else { break };
                        silent = 0;
                        if !hear(message.get_payload_bytes()) {
                            return;
                        }
                    }
                    _ = beats.tick() => {
                        // A connection that is dead and does not know it hears not even itself.
                        let Some(redis) = redis.upgrade() else { return };
                        if silent > MAX_SILENT {
                            break;
                        }
                        silent += 1;
                        redis.publish(&channel, b"").await;
                    }
                }
            }
            told.send_replace(false);
        }
        sleep(PROBE_PAUSE).await;
    }
}

/// A message: an entry's key and its value as it lies in Redis.
pub(super) fn write(key: &str) -> Vec<u8> {
    format!("{} {key}", key.len()).into_bytes()
}

/// Takes a message apart.
pub(super) fn read(message: &[u8]) -> Option<(&str, &[u8])> {
    let space = message.iter().position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&message[..space]).ok()?.parse().ok()?;
    let (key, value) = message[space + 1..].split_at_checked(length)?;
    Some((std::str::from_utf8(key).ok()?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_apart_as_they_were_put_together() {
        let mut message = write("Москва 7");
        message.extend_from_slice(b"1 value");
        assert_eq!(read(&message), Some(("Москва 7", &b"1 value"[..])));
        for rubbish in [&b""[..], b" ", b"9 abc", b"x abc", b"99999999999999999999 a"] {
            assert_eq!(read(rubbish), None);
        }
    }
}
