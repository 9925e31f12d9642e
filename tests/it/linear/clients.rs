//! Clients that buy, give back, sell and count at once, as the shop's own callers do, and record
//! what they were told.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use vitrina::error::{Error, ErrorCode};
use vitrina::inventory::model::{self as shop, RawChange, RawEntry};
use vitrina::inventory::service::{Reserved, Standing};

use super::history::Begun;
use super::model::{Answer, Call, Name};
use super::scene::{Instance, MAX_TRIES, Scene, seen_level, seen_row, token};
use crate::contract::inventory::{ZONE, key, reservation};
use crate::support::Random;

/// Of so many calls, one is left alone by its client before it is answered.
const VANISHES: u64 = 12;
/// Of so many, one is slow to look at what it was told; others are faster meanwhile.
const DAWDLES: u64 = 4;
/// The longest time between two such looks, in milliseconds.
const MAX_DAWDLE: u64 = 8;
/// The most that a client waits that goes away: so often it lets others go first.
const MAX_YIELDS: u64 = 40;

/// How a client's order stands, as far as it knows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stand {
    /// Refused, or told nothing: it may ask again or give up.
    Open,
    Held,
    /// It has recorded that it is held, and does not ask for it any more.
    Recorded,
    /// It is to end like this; whether it has is not known.
    Ending(End),
    Ended(End),
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Released,
    Sold,
}

struct Order {
    name: Name,
    units: i64,
    rows: Vec<String>,
    /// Others ask for it too, so it is never settled: a row does not know it any more then.
    is_shared: bool,
    stand: Stand,
}

/// A client of one instance.
pub struct Client {
    who: String,
    instance: Instance,
    scene: Arc<Scene>,
    random: Random,
    orders: Vec<Order>,
    /// Whether it sometimes goes away before it is told, or looks at it late.
    is_fickle: bool,
}

impl Client {
    pub fn new(number: usize, instance: &Instance, scene: &Arc<Scene>, seed: u64) -> Self {
        let who = format!("{}/{number}", instance.name);
        let (instance, scene, random) = (instance.clone(), scene.clone(), Random(seed));
        Self { who, instance, scene, random, orders: Vec::new(), is_fickle: true }
    }

    /// Does so many things, one after the other, each at random.
    pub async fn live(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.random.below(16) {
                0..=3 => self.order_something().await,
                4..=8 => self.go_on().await,
                9 | 10 => self.ask_for_anothers().await,
                11 | 12 => self.adjust().await,
                13 if self.random.below(3) == 0 => {
                    let quantity = i64::try_from(3 + self.random.below(8)).unwrap();
                    let row = self.any_row();
                    self.change(&row, Call::Set(quantity)).await;
                }
                _ => self.look().await,
            }
        }
    }

    /// Comes to an end with all that is open, now that nothing stands in the way. Like a checkout
    /// that found no answer, it gives up what it does not know to be held.
    pub async fn come_to_an_end(&mut self) {
        self.is_fickle = false;
        for at in 0..self.orders.len() {
            for _ in 0..MAX_TRIES {
                match self.orders[at].stand {
                    Stand::Open => self.give_up(at).await,
                    Stand::Ending(end) => self.end(at, end).await,
                    _ => break,
                }
            }
        }
    }

    fn any_row(&mut self) -> String {
        let rows = &self.scene.rows;
        rows[usize::try_from(self.random.below(rows.len() as u64)).unwrap()].clone()
    }

    /// What came of a call, unless its client has gone away or was told nothing.
    async fn told<T>(&mut self, call: impl Future<Output = Result<T, Error>>) -> Option<T> {
        let told = if self.is_fickle && self.random.below(VANISHES) == 0 {
            let yields = self.random.below(MAX_YIELDS);
            let patience = async {
                for _ in 0..yields {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! { biased; told = call => told, () = patience => return None }
        } else if self.is_fickle && self.random.below(DAWDLES) == 0 {
            let pause = Duration::from_millis(1 + self.random.below(MAX_DAWDLE));
            let mut call = pin!(call);
            loop {
                if let Some(told) = call.as_mut().now_or_never() {
                    break told;
                }
                tokio::time::sleep(pause).await;
            }
        } else {
            call.await
        };
        match told {
            Ok(told) => Some(told),
            Err(error) => {
                if matches!(error, Error::Internal) {
                    self.scene.was_odd();
                }
                self.scene.recorder.failed(&self.who, &error);
                None
            }
        }
    }

    async fn order_something(&mut self) {
        let units = i64::try_from(1 + self.random.below(3)).unwrap();
        let name = self.scene.name();
        // One of several rows is driven by one client alone, as the service demands.
        let is_wide = self.scene.rows.len() > 1 && self.random.below(4) == 0;
        let rows = if is_wide { self.scene.rows.clone() } else { vec![self.any_row()] };
        let is_shared = !is_wide && self.random.below(3) == 0;
        if is_shared {
            let call = (rows[0].clone(), Call::Reserve(name, units));
            self.scene.shared.lock().unwrap().push(call);
        }
        self.orders.push(Order { name, units, rows, is_shared, stand: Stand::Open });
        self.ask_for(self.orders.len() - 1).await;
    }

    /// The next step of an order.
    async fn go_on(&mut self) {
        let open: Vec<_> =
            (0..self.orders.len()).filter(|at| self.orders[*at].stand != Stand::Over).collect();
        if open.is_empty() {
            return self.order_something().await;
        }
        let at = open[usize::try_from(self.random.below(open.len() as u64)).unwrap()];
        let (coin, other_coin) = (self.random.below(2) == 0, self.random.below(2) == 0);
        let end = if coin { End::Sold } else { End::Released };
        match self.orders[at].stand.clone() {
            Stand::Open | Stand::Held if coin && other_coin => self.ask_for(at).await,
            Stand::Open => self.give_up(at).await,
            Stand::Held if self.orders[at].is_shared && coin => self.end(at, End::Sold).await,
            Stand::Held if self.orders[at].is_shared || coin => self.give_up(at).await,
            Stand::Held | Stand::Recorded if other_coin => self.settle(at).await,
            Stand::Held => self.end(at, End::Sold).await,
            Stand::Recorded => self.end(at, end).await,
            Stand::Ending(end) => self.end(at, end).await,
            Stand::Ended(end) if coin => self.end(at, end).await,
            Stand::Ended(_) if self.orders[at].is_shared => self.orders[at].stand = Stand::Over,
            Stand::Ended(_) => self.close(at).await,
            Stand::Over => {}
        }
    }

    fn lines(&self, at: usize) -> shop::Reservation {
        let Order { name, units, rows, .. } = &self.orders[at];
        let lines: Vec<_> = rows.iter().map(|row| (row.as_str(), *units)).collect();
        reservation(&token(*name), &lines)
    }

    fn begin(&self, at: usize, call: impl Fn(Name, i64) -> Call) -> Vec<Begun> {
        let Order { name, units, rows, .. } = &self.orders[at];
        let begin = |row: &String| self.scene.recorder.begin(&self.who, row, call(*name, *units));
        rows.iter().map(begin).collect()
    }

    /// Asks for an order. A service whose write was not answered asks its row again; so a call that
    /// is told `Undone` may have held its units for a while, until they were released. That is
    /// recorded as a call before, which was never answered.
    async fn ask_for(&mut self, at: usize) {
        let lines = self.lines(at);
        let rows = self.orders[at].rows.clone();
        let before = self.begin(at, Call::Reserve);
        let begun = self.begin(at, Call::Reserve);
        let name = self.orders[at].name;
        let scene = self.scene.clone();
        let take_back = |(row, after): (&String, &Begun)| {
            scene.recorder.begin_after(&self.who, row, Call::TakeBack(name), Some(*after))
        };
        // A single row has nothing to take back: it is refused as a whole or not at all.
        let taken_back: Vec<_> = match rows.len() {
            1 => Vec::new(),
            _ => rows.iter().zip(&begun).map(take_back).collect(),
        };
        let service = self.instance.service.clone();
        let told = self.told(service.reserve(&lines)).await;
        let recorder = &scene.recorder;
        if told != Some(Reserved::Undone) {
            recorder.never(&before);
        }
        let Some(told) = told else { return };
        match told {
            Reserved::Held => {
                recorder.done(&begun);
                recorder.never(&taken_back);
                self.orders[at].stand = Stand::Held;
            }
            Reserved::Short(short) => {
                // The first one was refused, so those before it were held and taken back, and the
                // others were never asked.
                let refused = lines.lines().iter().position(|line| line.key == short[0].key);
                for (line, begun) in begun.iter().enumerate() {
                    match line.cmp(&refused.unwrap()) {
                        std::cmp::Ordering::Less => recorder.end(*begun, Answer::Done),
                        std::cmp::Ordering::Equal => {
                            recorder.end(*begun, Answer::Short(short[0].available));
                        }
                        std::cmp::Ordering::Greater => recorder.never(&[*begun]),
                    }
                }
                recorder.done(&taken_back);
            }
            Reserved::Undone => {
                // Of several rows it is not said which one has refused.
                if let [begun] = begun[..] {
                    recorder.end(begun, Answer::Undone);
                }
                self.orders[at].stand = Stand::Over;
            }
        }
    }

    /// Runs a call that is done in every row, or told nothing of; whether it was done.
    async fn done(
        &mut self,
        begun: Vec<Begun>,
        call: impl Future<Output = Result<(), Error>>,
    ) -> bool {
        let is_done = self.told(call).await.is_some();
        if is_done {
            self.scene.recorder.done(&begun);
        }
        is_done
    }

    async fn give_up(&mut self, at: usize) {
        let (lines, service) = (self.lines(at), self.instance.service.clone());
        let begun = self.begin(at, |name, units| Call::Release { name, units, recorded: false });
        let is_done = self.done(begun, service.release(&lines, Standing::Unknown)).await;
        // What is not known to be free is given up again, and not asked for any more.
        self.orders[at].stand = if is_done { Stand::Over } else { Stand::Open };
    }

    async fn settle(&mut self, at: usize) {
        let (lines, service) = (self.lines(at), self.instance.service.clone());
        self.orders[at].stand = Stand::Recorded;
        let begun = self.begin(at, |name, _| Call::Settle(name));
        self.done(begun, service.settle(&lines)).await;
    }

    async fn end(&mut self, at: usize, end: End) {
        let (lines, service) = (self.lines(at), self.instance.service.clone());
        let is_done = match end {
            End::Sold => {
                let begun = self.begin(at, Call::Commit);
                self.done(begun, service.commit(&lines)).await
            }
            End::Released => {
                let begun =
                    self.begin(at, |name, units| Call::Release { name, units, recorded: true });
                self.done(begun, service.release(&lines, Standing::Recorded)).await
            }
        };
        self.orders[at].stand = if is_done { Stand::Ended(end) } else { Stand::Ending(end) };
    }

    async fn close(&mut self, at: usize) {
        let (lines, service) = (self.lines(at), self.instance.service.clone());
        let begun = self.begin(at, |name, _| Call::Close(name));
        self.done(begun, service.close(&lines)).await;
        self.orders[at].stand = Stand::Over;
    }

    /// What somebody else asks for, too: a click that came twice, through two instances.
    async fn ask_for_anothers(&mut self) {
        let shared = self.scene.shared.lock().unwrap().clone();
        if shared.is_empty() {
            return self.look().await;
        }
        let (row, call) =
            shared[usize::try_from(self.random.below(shared.len() as u64)).unwrap()].clone();
        let Call::Reserve(name, units) = call else {
            return self.change(&row, call).await;
        };
        // See `ask_for`.
        let before = self.scene.recorder.begin(&self.who, &row, call.clone());
        let begun = self.scene.recorder.begin(&self.who, &row, call);
        let (lines, service) =
            (reservation(&token(name), &[(&row, units)]), self.instance.service.clone());
        let told = self.told(service.reserve(&lines)).await;
        if told != Some(Reserved::Undone) {
            self.scene.recorder.never(&[before]);
        }
        let answer = match told {
            Some(Reserved::Held) => Answer::Done,
            Some(Reserved::Short(short)) => Answer::Short(short[0].available),
            Some(Reserved::Undone) => Answer::Undone,
            None => return,
        };
        self.scene.recorder.end(begun, answer);
    }

    async fn adjust(&mut self) {
        let delta = [-2, -1, 1, 2, 3][usize::try_from(self.random.below(5)).unwrap()];
        let (row, call) = (self.any_row(), Call::Adjust(self.scene.name(), delta));
        self.scene.shared.lock().unwrap().push((row.clone(), call.clone()));
        self.change(&row, call).await;
    }

    /// Changes the quantity as staff do; the answer also tells of the row as it was afterwards.
    async fn change(&mut self, row: &str, call: Call) {
        let change = match call {
            Call::Set(quantity) => RawChange::Set(quantity),
            Call::Adjust(name, delta) => {
                RawChange::Adjust { delta, reason: None, key: name.to_string() }
            }
            _ => unreachable!("{call} does not change the quantity"),
        };
        let entry = RawEntry { product: row.to_owned(), zone: ZONE.to_owned(), change };
        let scene = self.scene.clone();
        let begun = scene.recorder.begin(&self.who, row, call);
        let seen = scene.recorder.begin_after(&self.who, row, Call::Read, Some(begun));
        let (service, batch) = (self.instance.service.clone(), [entry]);
        let Some((changed, faults)) = self.told(service.change(&batch, &[])).await else { return };
        match (&changed[..], &faults[..]) {
            ([(_, level)], []) => {
                scene.recorder.end(begun, Answer::Done);
                scene.recorder.end(seen, Answer::Seen(seen_level(*level)));
            }
            ([], [fault]) if fault.code == ErrorCode::BelowReserved => {
                scene.recorder.end(begun, Answer::Below);
            }
            told => panic!("{told:?}"),
        }
    }

    /// Reads the row from the store, as whoever has to know it does.
    async fn look(&mut self) {
        let row = self.any_row();
        let begun = self.scene.recorder.begin(&self.who, &row, Call::Read);
        let (store, key) = (self.instance.store.clone(), key(&row));
        let seen = if self.random.below(2) == 0 {
            let read = async { Ok(store.stock_levels(&[key]).await?) };
            self.told(read).await.map(|levels| seen_level(levels[0].unwrap()))
        } else {
            let read = async { Ok(store.stock_row(&key).await?) };
            self.told(read).await.map(|row| seen_row(&row.unwrap()))
        };
        if let Some(seen) = seen {
            self.scene.recorder.end(begun, Answer::Seen(seen));
        }
    }
}
