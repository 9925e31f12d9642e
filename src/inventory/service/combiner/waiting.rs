//! What a writer does while it is another's turn.

use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use uuid::Uuid;

use super::super::super::model::Errand;
use super::super::errands::{GONE, PATIENCE, REPORT_LOOK, Sent};
use super::super::turns::{Watch, about};
use super::{Doubt, FAILED_PAUSE, Waiting, Writer};

impl Writer {
    /// Waits while it is somebody else's turn, and has that one do what is asked for here.
    pub(super) async fn wait(&mut self) {
        let (store, key) = (self.row.shared.store.clone(), self.row.key.clone());
        let mut watch = Watch::new();
        let mut out: Option<Sent> = None;
        let mut is_heard = true;
        while let Some(holder) = self.turns.look(&mut watch, store.as_ref(), &key).await {
            let next_look = Instant::now() + watch.pause();
            if let Some(errand) = out.take_if(|errand| errand.to != holder) {
                self.take_back(errand).await;
            }
            while Instant::now() < next_look {
                if !is_heard {
                    sleep_until(next_look).await;
                    break;
                }
                if out.is_none() {
                    out = self.send(holder).await;
                }
                let Some(errand) = out.take() else {
                    // Until somebody asks for something, but not for longer than that.
                    let _ = timeout_at(next_look, self.row.queue.came.notified()).await;
                    continue;
                };
                sleep(about(REPORT_LOOK)).await;
                match self.reported(errand).await {
                    Ok(None) => {}
                    Ok(Some(declined)) => return self.put_back(declined),
                    Err(errand) if errand.at.elapsed() < PATIENCE => out = Some(errand),
                    Err(errand) => {
                        is_heard = false;
                        self.take_back(errand).await;
                    }
                }
            }
        }
        if let Some(errand) = out {
            match self.reported(errand).await {
                Ok(declined) => self.put_back(declined.unwrap_or_default()),
                Err(errand) => self.take_back(errand).await,
            }
        }
    }

    /// Gives all who wait to the writer whose turn it is.
    async fn send(&mut self, to: Uuid) -> Option<Sent> {
        self.let_them_come().await;
        let batch = self.gather();
        self.last_round = batch.len();
        if batch.is_empty() {
            return None;
        }
        let sent = Sent { to, number: self.next_number(), at: Instant::now(), batch };
        let asks = sent.batch.iter().map(|waiting| waiting.ask.clone()).collect();
        let errand = Errand { from: self.turns.me(), to, number: sent.number, asks };
        // Where that failed it may be there all the same: it is out until it is taken back.
        let _ = self.row.shared.store.give_errand(&self.row.key, &errand).await;
        Some(sent)
    }

    fn next_number(&mut self) -> i64 {
        self.number = self.row.shared.clock.now().micros().max(self.number + 1);
        self.number
    }

    /// Looks for the report of an errand, and tells those who wait for it. Gives the errand back if
    /// there is none, or its requests if they were declined.
    async fn reported(&mut self, sent: Sent) -> Result<Option<Vec<Waiting>>, Sent> {
        let found = self.row.shared.store.errand_report(&self.row.key, self.turns.me()).await;
        let Ok(Some((_, report))) = found.map(|found| found.filter(|(n, _)| *n == sent.number))
        else {
            return Err(sent);
        };
        let Some((level, told)) = report.level.zip(report.told(sent.batch.len())) else {
            return Ok(Some(sent.batch));
        };
        self.row.shared.counters.handed(sent.batch.len());
        self.changed(level, sent.at);
        self.answer(sent.batch, told).await;
        Ok(None)
    }

    /// Takes an errand back: what is asked for is done here.
    async fn take_back(&mut self, Sent { to, at, batch, .. }: Sent) {
        let errand =
            Errand { from: self.turns.me(), to, number: self.next_number(), asks: Vec::new() };
        while let Err(error) = self.row.shared.store.give_errand(&self.row.key, &errand).await {
            tracing::warn!(row = %self.row.key, %error, "an errand could not be taken back");
            if at.elapsed() > GONE {
                break;
            }
            sleep(about(FAILED_PAUSE)).await;
        }
        self.doubt = Some(Doubt::Before);
        self.put_back(batch);
    }
}
