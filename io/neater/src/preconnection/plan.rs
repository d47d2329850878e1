//! What a connection would be tried over, without trying.

use crate::{
    AttemptError, CandidateOutcome, Connection, Doubt, EstablishmentError, Fate, Preconnection, Reason, Stack, Step,
    TimelineEntry,
};
use core::time::Duration;
use neater_property::Role;
use std::net::SocketAddr;

/// What [`Preconnection::initiate`] would try at this moment, if no peer ever answered: see
/// [`Preconnection::plan`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// Every candidate, in the order in which they take their turns: those that are good first.
    pub candidates: Vec<PlannedCandidate>,
    /// How it was found out: the answers about names, the advice of policies, and when each
    /// candidate would be started.
    pub timeline: Vec<TimelineEntry>,
    /// What went wrong with names.
    pub resolution: Vec<String>,
    /// Stacks that are not eligible, each with the properties that rule it out.
    pub excluded: Vec<String>,
}

impl Plan {
    /// What has worked before and would be tried alone, before all candidates; they follow if it
    /// fails or takes too long.
    #[must_use]
    pub fn cached(&self) -> Option<(Stack, SocketAddr)> {
        self.timeline.iter().find_map(|entry| match entry.step {
            Step::FromCache { stack, addr } => Some((stack, addr)),
            _ => None,
        })
    }
}

/// A candidate of a [`Plan`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlannedCandidate {
    /// The protocol stack.
    pub stack: Stack,
    /// The remote address.
    pub addr: SocketAddr,
    /// When it would be started, from the call on, while those before it are silent; sooner if one
    /// of them fails. `None`: not within the time that establishment may take.
    pub starts: Option<Duration>,
    /// The outcome history against it, if it was deprioritised for that.
    pub doubt: Option<Doubt>,
    /// Why this host would refuse it, if it would: no route, no right to the protocol.
    pub refused: Option<AttemptError>,
}

impl From<CandidateOutcome> for PlannedCandidate {
    fn from(c: CandidateOutcome) -> Self {
        let refused = if let Fate::Failed(why) = c.fate { Some(why) } else { None };
        Self { stack: c.stack, addr: c.addr, starts: c.started, doubt: c.doubt, refused }
    }
}

impl Preconnection {
    /// What [`Preconnection::initiate`] would try at this moment, in which order and when, if no
    /// peer ever answered: the same resolution, the same policies and the same race (RFC 9623
    /// section 4). Names are asked for as they are for a connection; nothing is sent to a peer, and
    /// nothing is learnt for later connections but the answers about names.
    ///
    /// # Errors
    /// Why there would be nothing to try: as [`Preconnection::initiate`] for what can be known
    /// before, [`Reason::ResolutionFailed`], [`Reason::EstablishmentFailed`] where this host would
    /// refuse every candidate.
    pub async fn plan(&self) -> Result<Plan, EstablishmentError> {
        let request = self.request(Role::Initiate)?;
        crate::policies::look(&self.handle);
        let id = self.handle.with(|s| {
            let id = s.engine.plan(&request, &self.remotes, &self.locals).map_err(Box::new)?;
            s.adopt(id);
            Ok::<_, Box<EstablishmentError>>(id)
        });
        let connection = Connection::new(self.handle.clone(), id.map_err(|e| *e)?);
        let e = match connection.ready().await {
            Err(e) if e.reason == Reason::Planned => e,
            Err(e) => return Err(e),
            Ok(()) => return Err(super::invalid("a plan cannot be carried out")),
        };
        Ok(Plan {
            candidates: e.candidates.into_iter().map(Into::into).collect(),
            timeline: connection.timeline(),
            resolution: e.resolution,
            excluded: e.excluded,
        })
    }
}
