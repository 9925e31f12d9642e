use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;

use super::*;
use crate::crew::Crew;

/// Notes the statements it runs; has a row for everything.
#[derive(Default)]
struct Noting {
    statements: Mutex<Vec<Vec<u32>>>,
    /// Whether a statement for several fails, and one for a key by itself.
    several_fail: AtomicBool,
    fails: Option<u32>,
}

impl Noting {
    fn note(&self, keys: &[u32]) {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        self.statements.lock().unwrap().push(keys);
    }

    fn noted(&self) -> Vec<Vec<u32>> {
        std::mem::take(&mut self.statements.lock().unwrap())
    }
}

fn fault() -> StoreError {
    StoreError::Unavailable { call: "test", cause: String::new() }
}

impl Reads for Noting {
    type Key = u32;
    type Row = String;

    async fn one(&self, key: &u32) -> Result<String, StoreError> {
        self.note(&[*key]);
        if self.fails == Some(*key) { Err(fault()) } else { Ok(key.to_string()) }
    }

    async fn several(&self, keys: &[u32]) -> Result<Vec<String>, StoreError> {
        self.note(keys);
        if self.several_fail.load(Ordering::Relaxed) {
            return Err(fault());
        }
        Ok(keys.iter().map(ToString::to_string).collect())
    }
}

/// What those are told who ask for these keys at once on one thread that serves clients.
async fn told(gather: Arc<Gather<Noting>>, keys: Vec<u32>) -> Vec<Result<String, StoreError>> {
    let crew = Crew::gather();
    let (tell, told) = oneshot::channel();
    crew.hands().serve(async move {
        let asks = keys.into_iter().map(|key| {
            let gather = gather.clone();
            tokio::spawn(async move { gather.read(&key).await })
        });
        let asks: Vec<_> = asks.collect();
        let answers = join_all(asks).await.into_iter().map(Result::unwrap).collect();
        assert!(tell.send(answers).is_ok());
    });
    let answers = told.await.unwrap();
    crew.end().await;
    answers
}

fn gather(noting: Noting) -> (Arc<Noting>, Arc<Gather<Noting>>) {
    let reads = Arc::new(noting);
    (reads.clone(), Arc::new(Gather::new(reads)))
}

#[tokio::test]
async fn what_is_asked_for_at_once_is_one_statement_and_each_key_once() {
    let (reads, gather) = gather(Noting::default());
    let answers = told(gather, vec![7, 3, 7, 5]).await;
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, ["7", "3", "7", "5"]);
    assert_eq!(reads.noted(), [vec![3, 5, 7]]);
}

#[tokio::test]
async fn one_key_is_a_statement_of_its_own_and_many_are_several() {
    let (reads, gather) = gather(Noting::default());
    told(gather.clone(), vec![7, 7]).await;
    assert_eq!(reads.noted(), [vec![7]]);
    let keys: Vec<u32> = (0..100).collect();
    let answers = told(gather, keys.clone()).await;
    assert!(answers.into_iter().map(Result::unwrap).eq(keys.iter().map(u32::to_string)));
    let mut read = reads.noted();
    assert!(read.iter().all(|keys| keys.len() <= KEYS_AT_ONCE));
    assert_eq!(read.len(), keys.len().div_ceil(KEYS_AT_ONCE));
    read.sort_unstable();
    let mut read = read.concat();
    read.sort_unstable();
    assert_eq!(read, keys);
}

#[tokio::test]
async fn a_statement_for_several_that_fails_fails_only_those_that_cannot_be_read() {
    let fails = Noting { several_fail: AtomicBool::new(true), fails: Some(3), ..Noting::default() };
    let (_, gather) = gather(fails);
    let answers = told(gather, vec![7, 3, 5]).await;
    let told: Vec<_> = answers.into_iter().map(Result::ok).collect();
    assert_eq!(told, [Some("7".to_owned()), None, Some("5".to_owned())]);
}

#[tokio::test]
async fn whoever_left_is_not_read_for_and_takes_nobody_along() {
    let (reads, gather) = gather(Noting::default());
    let crew = Crew::gather();
    let (tell, told) = oneshot::channel();
    let asking = gather.clone();
    crew.hands().serve(async move {
        // The first to ask leaves before anything is read.
        assert!(asking.read(&1).now_or_never().is_none());
        tell.send(asking.read(&2).await.unwrap()).unwrap();
    });
    assert_eq!(told.await.unwrap(), "2");
    assert_eq!(reads.noted(), [vec![2]]);
    crew.end().await;
}

#[tokio::test]
async fn a_round_that_is_given_up_is_nobodys_wait() {
    let (_, gather) = gather(Noting::default());
    let (tell, told) = oneshot::channel();
    gather.0.waiting(3).insert(1, vec![tell]);
    drop(Round(Some((gather.0.clone(), 3))).read());
    assert!(told.await.is_err());
    assert!(gather.0.waiting(3).is_empty());
}

#[tokio::test]
async fn elsewhere_than_on_a_thread_that_serves_nothing_is_gathered() {
    let (reads, gather) = gather(Noting::default());
    let answers = join_all([1, 2].map(|key| {
        let gather = gather.clone();
        async move { gather.read(&key).await.unwrap() }
    }));
    assert_eq!(answers.await, ["1", "2"]);
    assert_eq!(reads.noted(), [vec![1], vec![2]]);
}
