//! Buckets that instances share: when each will be full again, by Redis's clock.

use std::sync::{Arc, LazyLock};

use redis::Script;

use super::redis::Redis;

/// KEYS: buckets. ARGV: what was taken from each, as the microseconds in which it comes back.
/// Answers with how far each is from being full, the same way. A full one needs no memory.
static TAKE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        local time = redis.call('TIME')
        local now = time[1] * 1000000 + time[2]
        local ahead = {}
        for i, key in ipairs(KEYS) do
            local full = math.max(tonumber(redis.call('GET', key) or 0), now) + ARGV[i]
            ahead[i] = full - now
            redis.call('SET', key, string.format('%.0f', full), 'PX', math.ceil(ahead[i] / 1000) + 1)
        end
        return ahead
        ",
    )
});

impl Redis {
    /// Tells what was taken from buckets, and hears how far each is from being full; in
    /// microseconds. `None` if it did not answer.
    pub(crate) async fn meter(
        self: &Arc<Self>,
        keys: &[String],
        taken: &[u64],
    ) -> Option<Vec<u64>> {
        let mut script = TAKE.prepare_invoke();
        for key in keys {
            script.key(key);
        }
        for taken in taken {
            script.arg(*taken);
        }
        self.ask(&script).await
    }
}
