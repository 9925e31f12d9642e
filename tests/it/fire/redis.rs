//! Redis dies, freezes and forgets under a mixed load; shoppers do not notice.

use std::time::Duration;

use super::clients::Crowd;
use super::shop::{Instances, Setting};
use super::siege::{Siege, Times, print_head};
use super::stretch;
use crate::support::redis::PrivateRedis;
use crate::support::stores::{address_of, cassandra_config, drop_keyspace};
use vitrina::config::StoreConfig;

const CROWD: Crowd =
    Crowd { browsing: 8, looking: 0, filling: 2, buying: 2, pause: Duration::from_millis(30) };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_notices_a_redis_that_dies_freezes_or_forgets() {
    let Some(config) = cassandra_config() else { return };
    let Some(redis) = PrivateRedis::start(&[]) else { return };
    let port = redis.port();
    let store = address_of(&config);
    let setting = Setting { cache: format!("redis://127.0.0.1:{port}"), ..Setting::of(&store) };
    let instances = Instances::open(setting, 2).await;
    let times =
        Times { calm: stretch(1.0, 10.0), fault: stretch(2.0, 15.0), after: stretch(2.0, 10.0) };
    let mut siege = Siege::of(instances.front(), CROWD, times);
    print_head();
    let mut outcomes = Vec::new();
    outcomes.push(siege.lay("Redis frozen", async || redis.freeze(), async || redis.thaw()).await);
    let flush = async || {
        let told = redis.command(&["FLUSHALL"]);
        assert_eq!(told.trim(), "OK");
    };
    outcomes.push(siege.lay("Redis flushed", flush, async || {}).await);
    let cell = std::cell::RefCell::new(Some(redis));
    let kill = async || drop(cell.borrow_mut().take());
    let start = async || *cell.borrow_mut() = PrivateRedis::start_on(port, &[]);
    outcomes.push(siege.lay("Redis killed", kill, start).await);
    for outcome in outcomes {
        outcome.assert_nothing_lost();
        for stretch in [&outcome.calm, &outcome.fault, &outcome.after] {
            // A node that makes the tables of other tests meanwhile may not answer in time.
            stretch.assert_no_errors(&["TIMEOUT", "UNAVAILABLE"]);
        }
    }
    drop(instances);
    drop_keyspace(&StoreConfig::Cassandra(config)).await;
}
