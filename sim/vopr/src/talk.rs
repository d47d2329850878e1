//! What both sides of a flow do once they have it: speak, listen, dawdle, and end as their plan says.

use crate::content::{self, Way};
use crate::ledger::Fate;
use crate::pipe::{Pipe, Stop};
use crate::plan::{Answer, AppPlan, Ending};
use core::time::Duration;
use futures_util::future::{Either, select};

/// How often a slow reader sleeps at most.
const NAPS: u32 = 20;

/// One side's part.
pub(crate) struct Part<'a> {
    pub(crate) pipe: &'a Pipe,
    pub(crate) app: &'a AppPlan,
    pub(crate) ending: Ending,
    pub(crate) slow: u64,
}

type Outcome = Result<(), Stop>;

impl Part<'_> {
    /// Gives up, if the plan wants that now.
    fn check_ending(&self) -> Outcome {
        let moved = self.pipe.said() + self.pipe.heard();
        match self.ending {
            Ending::AbortAt(at) if moved >= at => {
                self.pipe.abort();
                Err(Stop::GaveUp)
            }
            Ending::ReleaseAt(at) if moved >= at => Err(Stop::GaveUp),
            _ => Ok(()),
        }
    }

    /// A framed message comes whole.
    fn check_boundary(&self, at: u64, n: usize) {
        let total = if self.pipe.hears == Way::Up { self.app.up } else { self.app.down };
        let len = content::message_len(self.pipe.flow, self.pipe.hears, at, self.app.piece);
        let len = len.min(total.saturating_sub(at) as usize);
        if self.pipe.framed && n != len {
            self.pipe.ledger.fail(|| {
                format!("flow {}: a message of {n} bytes at {at}, where one of {len} was said", self.pipe.flow)
            });
        }
    }

    /// Says `total` bytes of its own.
    async fn speak(&self, total: u64) -> Outcome {
        let way = self.pipe.speaks;
        while self.pipe.said() < total {
            self.check_ending()?;
            let len = content::message_len(self.pipe.flow, way, self.pipe.said(), self.app.piece);
            let len = len.min((total - self.pipe.said()) as usize);
            self.pipe.say(way, len).await?;
        }
        Ok(())
    }

    /// Listens until `enough` bytes have come, or to the end. True if it was the end.
    async fn listen(&self, enough: Option<u64>) -> Result<bool, Stop> {
        let mut naps = 0;
        while enough.is_none_or(|n| self.pipe.heard() < n) {
            self.check_ending()?;
            let at = self.pipe.heard();
            let Some(n) = self.pipe.hear().await? else { return Ok(true) };
            self.check_boundary(at, n);
            if self.slow > 0 && naps < NAPS {
                naps += 1;
                self.pipe.clock.sleep(Duration::from_millis(self.slow)).await;
            }
        }
        Ok(false)
    }

    /// Sends back what comes, until the end.
    async fn echo(&self) -> Outcome {
        loop {
            self.check_ending()?;
            let at = self.pipe.heard();
            let Some(n) = self.pipe.hear().await? else { return Ok(()) };
            self.check_boundary(at, n);
            // What it heard is what it says: the content of the other way.
            self.pipe.say(Way::Up, n).await?;
        }
    }

    /// Ends, when everything is said.
    async fn end(&self, ended: bool) -> Outcome {
        self.check_ending()?;
        match self.ending {
            Ending::Close => {
                self.pipe.at("closing");
                self.pipe.close().await
            }
            Ending::Finish => {
                self.pipe.at("finishing");
                self.pipe.finish().await?;
                self.pipe.at("waiting for the end");
                if !ended {
                    self.listen(None).await?;
                }
                Ok(())
            }
            // What was never reached is a plain release.
            _ => Ok(()),
        }
    }

    /// The part of whoever opened the flow.
    pub(crate) async fn client(&self) -> Outcome {
        let expected = if self.app.answer == Answer::Echo { self.app.up } else { self.app.down };
        if self.app.answer == Answer::AfterEnd {
            self.pipe.at("speaking");
            self.speak(self.app.up).await?;
            self.pipe.at("ending its part");
            self.check_ending()?;
            self.pipe.finish().await?;
            self.pipe.at("listening");
            let ended = self.listen(Some(expected)).await?;
            return self.end(ended).await;
        }
        self.pipe.at("speaking and listening");
        let ended = self.both(self.app.up, Some(expected)).await?;
        self.end(ended).await
    }

    /// The part of whoever took it.
    ///
    /// `came`: what came together with the head.
    pub(crate) async fn server(&self, came: &[u8]) -> Outcome {
        if !came.is_empty() {
            self.pipe.check(came);
            if self.app.answer == Answer::Echo {
                self.pipe.say(Way::Up, came.len()).await?;
            }
        }
        match self.app.answer {
            Answer::Echo => {
                self.pipe.at("echoing");
                self.echo().await?;
                self.end(true).await
            }
            Answer::AtOnce => {
                self.pipe.at("speaking and listening");
                // A client that only closes after it has seen our end must see it.
                let ended = self.both(self.app.down, Some(self.app.up)).await?;
                self.end(ended).await
            }
            Answer::AfterEnd => {
                self.pipe.at("listening");
                self.listen(None).await?;
                self.pipe.at("answering");
                self.speak(self.app.down).await?;
                self.end(true).await
            }
        }
    }

    /// Speaks and listens at the same time; whoever gives up ends both.
    async fn both(&self, say: u64, hear: Option<u64>) -> Result<bool, Stop> {
        let (speak, listen) = (core::pin::pin!(self.speak(say)), core::pin::pin!(self.listen(hear)));
        match select(speak, listen).await {
            Either::Left((spoken, listen)) => {
                spoken?;
                listen.await
            }
            Either::Right((heard, speak)) => {
                let ended = heard?;
                speak.await?;
                Ok(ended)
            }
        }
    }
}

/// Writes down how a side has ended.
pub(crate) fn conclude(pipe: &Pipe, outcome: Outcome) {
    let fate = match outcome {
        Ok(()) => Fate::Done,
        Err(Stop::GaveUp) => Fate::GaveUp,
        Err(Stop::Failed(e)) => Fate::Failed(e),
    };
    let who = if pipe.speaks == Way::Up { "client" } else { "server" };
    pipe.ledger.note(pipe.clock.now(), || {
        format!("flow {} {who}: {fate:?}, {} said, {} heard", pipe.flow, pipe.said(), pipe.heard())
    });
    pipe.ledger.set_fate(pipe.clock.now(), pipe.flow, pipe.speaks as usize, fate);
}
