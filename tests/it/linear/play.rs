//! A history from its beginning to its end: clients on several instances, and what happens to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::Barrier;

use super::clients::Client;
use super::history::History;
use super::model::{Answer, Call};
use super::scene::{Instance, Scene};
use crate::support::Random;

/// How many do how much in a history.
#[derive(Clone, Copy)]
pub struct Plan {
    pub rows: usize,
    pub units: i64,
    /// Clients of each instance.
    pub clients: usize,
    /// Things that each of them does at a stretch.
    pub steps: usize,
    /// Stretches; after each of them everybody rests, and what there is is read.
    pub stretches: usize,
}

/// Lets clients live on these instances, while `trouble` happens to them in each stretch.
pub async fn play(
    instances: &[Instance],
    plan: Plan,
    name: &str,
    random: &mut Random,
    trouble: impl AsyncFn(&Scene, usize),
) -> Arc<Scene> {
    let scene = Scene::begin(instances[0].store.as_ref(), name, plan.rows, plan.units).await;
    let scene = Arc::new(scene);
    let mut clients: Vec<_> = (0..plan.clients)
        .flat_map(|number| instances.iter().map(move |instance| (number, instance)))
        .map(|(number, instance)| Client::new(number, instance, &scene, random.next()))
        .collect();
    for stretch in 0..plan.stretches {
        scene.recorder.rests(false);
        // All begin at once.
        let start = Arc::new(Barrier::new(clients.len()));
        let lives: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                let start = start.clone();
                tokio::spawn(async move {
                    start.wait().await;
                    client.live(plan.steps).await;
                    client
                })
            })
            .collect();
        // Who makes trouble waits for moments of these lives.
        let lives = async {
            let ended = join_all(lives).await;
            scene.recorder.rests(true);
            ended
        };
        let (ended, ()) = tokio::join!(lives, trouble(&scene, stretch));
        clients = ended.into_iter().map(Result::unwrap).collect();
        for client in &mut clients {
            client.come_to_an_end().await;
        }
        scene.at_rest(instances).await;
    }
    scene
}

/// How often each answer was given, to see that histories have something in them.
pub fn tally(history: &History, into: &mut BTreeMap<&'static str, u64>) {
    for operation in &history.operations {
        let what = match (&operation.call, operation.answer()) {
            (Call::Read, None) => continue,
            (_, None) => "never told",
            (Call::Reserve(..), Some(Answer::Done)) => "reserved",
            (Call::Reserve(..), Some(_)) => "refused",
            (Call::Read, Some(_)) => "read",
            (Call::Adjust(..) | Call::Set(_), Some(_)) => "changed",
            (_, Some(_)) => "ended",
        };
        *into.entry(what).or_default() += 1;
    }
}
