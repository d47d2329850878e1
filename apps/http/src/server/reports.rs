//! Reports of connections for which there was no room.
//!
//! *Responsible for* reporting the first at once, and others together, not more often than every
//! [`EVERY`]. *Not responsible for* which connection has to go.

use super::slots::Refused;
use core::time::Duration;
use tokio::time::Instant;

/// The least time between two reports.
const EVERY: Duration = Duration::from_secs(10);

/// Connections for which there was no room, since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnedAway {
    /// Turned away, because there are as many as there may be
    /// ([`super::ServerLimits::connections`]).
    pub refused: u64,
    /// Turned away, because their address has as many as it may have
    /// ([`super::ServerLimits::connections_per_address`]).
    pub of_address: u64,
    /// Ended for others.
    pub ended: u64,
}

type Call = Box<dyn FnMut(TurnedAway) + Send>;

/// The reports of a server.
#[derive(Default)]
pub(crate) struct Reports {
    since: TurnedAway,
    total: TurnedAway,
    last: Option<Instant>,
    call: Option<Call>,
}

impl Reports {
    pub(crate) fn call(&mut self, call: impl FnMut(TurnedAway) + Send + 'static) {
        self.call = Some(Box::new(call));
    }

    pub(crate) fn refused(&mut self, why: Refused) {
        let (since, total) = (&mut self.since, &mut self.total);
        match why {
            Refused::Full => (since.refused, total.refused) = (since.refused + 1, total.refused + 1),
            Refused::Address => (since.of_address, total.of_address) = (since.of_address + 1, total.of_address + 1),
        }
        self.look();
    }

    pub(crate) fn ended(&mut self, connections: u64) {
        self.since.ended += connections;
        self.total.ended += connections;
    }

    /// Reports, if there is something and it is time.
    pub(crate) fn look(&mut self) {
        let now = Instant::now();
        if self.since != TurnedAway::default() && self.last.is_none_or(|last| now >= last + EVERY) {
            self.last = Some(now);
            self.report();
        }
    }

    fn report(&mut self) {
        let TurnedAway { refused, of_address, ended } = self.since;
        tracing::warn!(target: "neater::serve", refused, of_address, ended, "no room for connections");
        if let Some(call) = &mut self.call {
            call(self.since);
        }
        self.since = TurnedAway::default();
    }

    /// Reports what is left; how many were refused in all, and how many ended.
    pub(crate) fn finish(&mut self) -> (u64, u64) {
        if self.since != TurnedAway::default() {
            self.report();
        }
        (self.total.refused + self.total.of_address, self.total.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test(start_paused = true)]
    async fn the_first_is_reported_at_once_and_the_others_together() {
        let (reported, reports_of) = mpsc::channel();
        let mut reports = Reports::default();
        reports.call(move |t| reported.send(t).expect("received"));
        reports.look();
        assert!(reports_of.try_recv().is_err(), "there is nothing to be reported");
        let one = TurnedAway { refused: 1, ..TurnedAway::default() };
        reports.refused(Refused::Full);
        assert_eq!(reports_of.try_recv(), Ok(one));
        for _ in 0..3 {
            reports.refused(Refused::Full);
            reports.refused(Refused::Address);
        }
        reports.ended(5);
        tokio::time::advance(EVERY - Duration::from_secs(1)).await;
        reports.look();
        assert!(reports_of.try_recv().is_err());
        tokio::time::advance(Duration::from_secs(1)).await;
        reports.look();
        assert_eq!(reports_of.try_recv(), Ok(TurnedAway { refused: 3, of_address: 3, ended: 5 }));
        reports.refused(Refused::Full);
        assert_eq!(reports.finish(), (8, 5));
        assert_eq!(reports_of.try_recv(), Ok(one));
    }
}
