//! The advice of policies for connections, between the engine and its [`Adviser`].
//!
//! An engine without an adviser asks none, and pays nothing. With one, a connection that is
//! initiated, and each clone, is opened as advised: by which interfaces, from which addresses, with
//! which stacks in which order and with which options. What worked is remembered for each advice by
//! itself; where the advice binds interfaces or addresses, an outcome is not used again, because it
//! does not record which of them it used.

mod asked;

use crate::event::{EstablishmentError, Reason};
use crate::measured::{Flows, MAX_TOLD, TELL};
use crate::request::Compiled;
use crate::{LocalEndpoint, RemoteEndpoint, Request};
pub(crate) use asked::Asked;
use core::hash::BuildHasher;
use neater_base::net::{Interface, Net};
use neater_base::{Instant, WallTime};
use neater_policy::advice::{Advice, AdvisedPath, Adviser, Ask, Bound, Denied, Fact, Story};
use neater_policy::manager::Tables;
use neater_policy::manager::{FileKind, Report, SourceFile};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The advice of a connection, one for each of its remote endpoints; `None`: there is no way there.
pub(crate) type AdviceOf = Arc<[Option<Arc<Advice>>]>;

/// A way of a piece of advice.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    advice: Arc<Advice>,
    at: usize,
}

impl Way {
    /// The first way of advice that binds nothing: the cached outcome goes there.
    pub(crate) fn first_of(advice: Option<&AdviceOf>) -> Option<Self> {
        let advice = advice?.first()?.clone()?;
        Some(Self { advice, at: 0 })
    }

    pub(crate) fn path(&self) -> Option<&AdvisedPath> {
        self.advice.paths.get(self.at)
    }
}

/// All ways of a piece of advice, best first.
pub(crate) fn ways(advice: &Arc<Advice>) -> impl Iterator<Item = Way> + '_ {
    (0..advice.paths.len()).map(|at| Way { advice: advice.clone(), at })
}

/// What the outcome cache's key of a remote endpoint is changed by.
pub(crate) fn number(advice: Option<&AdviceOf>, remote: usize) -> u64 {
    advice.and_then(|a| a.get(remote)?.as_ref()).map_or(0, |a| a.number)
}

/// Whether every way leaves interface and address to the system.
pub(crate) fn binds_nothing(advice: &AdviceOf) -> bool {
    let free = |p: &AdvisedPath| p.interface.is_none() && p.local.is_none();
    advice.iter().flatten().all(|a| a.paths.iter().all(free))
}

/// The advice of policies for an engine's connections, and the connections' measurements for
/// policies.
#[derive(Default)]
pub(crate) struct Policies {
    /// Policies, and what they call this program.
    adviser: Option<Box<(Adviser, Box<str>)>>,
    pub(crate) flows: Flows,
}

impl Policies {
    /// Whether policies are asked.
    #[inline]
    pub(crate) const fn are_asked(&self) -> bool {
        self.adviser.is_some()
    }

    pub(crate) fn adviser(&mut self) -> Option<&mut Adviser> {
        self.adviser.as_deref_mut().map(|(adviser, _)| adviser)
    }

    pub(crate) fn set_interfaces(&mut self, interfaces: &[Interface], wall: WallTime) {
        if let Some(adviser) = self.adviser() {
            adviser.set_interfaces(interfaces, wall);
        }
    }

    /// The explanation of policies for a connection that is to be opened, for people; `None`: they
    /// are not asked.
    pub(crate) fn story_of(
        &mut self,
        request: &Request,
        remote: &RemoteEndpoint,
        locals: &[LocalEndpoint],
        wall: WallTime,
    ) -> Option<Result<Story, Denied>> {
        let (adviser, app) = self.adviser.as_deref_mut()?;
        let bound = bound_to(remote, locals);
        Some(adviser.explain(&ask(&request.0, remote, &bound, app), wall))
    }

    /// The advice for a connection that is to be opened; `None`: there are no policies, or they
    /// change nothing.
    ///
    /// # Errors
    /// [`Reason::PolicyProhibited`], and which rules left no way to any of the endpoints.
    pub(crate) fn advice_for(
        &mut self,
        request: &Request,
        remotes: &[RemoteEndpoint],
        locals: &[LocalEndpoint],
        wall: WallTime,
    ) -> Result<Option<AdviceOf>, EstablishmentError> {
        let Some((adviser, app)) = self.adviser.as_deref_mut() else { return Ok(None) };
        let (mut advice, mut denied) = (Vec::with_capacity(remotes.len()), None);
        for remote in remotes {
            let number = foldhash::fast::FixedState::with_seed(request.0.asked.number).hash_one(remote.hash).max(1);
            let bound = bound_to(remote, locals);
            // What is bound is asked each time.
            let number = if bound.is_empty() { number } else { 0 };
            match adviser.advise(&ask(&request.0, remote, &bound, app), number, wall) {
                Ok(one) => advice.push(Some(one)),
                Err(why) => {
                    denied = Some(why);
                    advice.push(None);
                }
            }
        }
        if let (Some(why), true) = (denied, advice.iter().all(Option::is_none)) {
            return Err(EstablishmentError::new(Reason::PolicyProhibited, why.to_string()));
        }
        let changes = advice.iter().any(|a| a.as_ref().is_none_or(|a| !a.is_neutral()));
        Ok(changes.then(|| advice.into()))
    }
}

/// The policies of an engine, to be given and to be asked: see
/// [`Engine::policies`](crate::Engine::policies).
pub struct PolicyAccess<'a, N> {
    pub(crate) policies: &'a mut Policies,
    pub(crate) net: &'a N,
    pub(crate) now: Instant,
}

impl<N> core::fmt::Debug for PolicyAccess<'_, N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PolicyAccess").field("asked", &self.policies.are_asked()).finish_non_exhaustive()
    }
}

impl<N: Net> PolicyAccess<'_, N> {
    /// Has connections opened as policies advise, or without policies. `app` is what policies call
    /// this program.
    pub fn set_adviser(&mut self, adviser: Option<Adviser>, app: &str) {
        self.policies.adviser = adviser.map(|adviser| Box::new((adviser, app.into())));
        self.policies.set_interfaces(self.net.interfaces(), self.net.wall());
    }

    /// Whether policies are asked.
    #[must_use]
    pub fn are_asked(&self) -> bool {
        self.policies.are_asked()
    }

    /// Takes policy, profile and CIB files in place of those it was given before: see
    /// [`Loader::load`](neater_policy::manager::Loader::load). Without an adviser nothing is taken.
    pub fn load(&mut self, pib: &[SourceFile<'_>], cib: &[SourceFile<'_>]) -> Report {
        let wall = self.net.wall();
        self.policies.adviser().map(|a| a.load(pib, cib, wall)).unwrap_or_default()
    }

    /// Takes the tables of a daemon in place of those it was given before. Without an adviser
    /// nothing is taken.
    pub fn share(&mut self, tables: Tables) {
        let wall = self.net.wall();
        if let Some(adviser) = self.policies.adviser() {
            adviser.share(tables, wall);
        }
    }

    /// The values of `profile` that any profile or policy wants to see.
    #[must_use]
    pub fn profiles(&mut self) -> BTreeSet<String> {
        self.policies.adviser().map(|a| a.profiles()).unwrap_or_default()
    }

    /// The file that defines a rule, by the name under which it was given.
    #[must_use]
    pub fn file(&mut self, kind: FileKind, uid: &str) -> Option<String> {
        self.policies.adviser()?.file_of(kind, uid)
    }

    /// The explanation of policies for a connection that is to be opened, for people; `None`: they
    /// are not asked.
    pub fn story(&mut self, request: &Request, remote: &RemoteEndpoint) -> Option<Result<Story, Denied>> {
        self.policies.story_of(request, remote, &[], self.net.wall())
    }

    /// Whether facts for other programs of this user may be published now: at most once a second.
    #[must_use]
    pub fn has_facts(&mut self) -> bool {
        self.now >= self.policies.flows.tell && self.policies.adviser().is_some_and(|a| a.has_news())
    }

    /// The measurements of connections that have not been published, a bounded number of facts.
    pub fn take_facts(&mut self) -> Vec<Fact> {
        self.hold_facts();
        let wall = self.net.wall();
        self.policies.adviser().map_or_else(Vec::new, |adviser| adviser.take_news(MAX_TOLD, wall))
    }

    /// Nothing can be published now: the next attempt is due in a second.
    pub fn hold_facts(&mut self) {
        self.policies.flows.tell = self.now + TELL;
    }

    /// Takes what connections of other programs have seen. Without an adviser nothing is taken.
    pub fn share_facts(&mut self, facts: Vec<Fact>) {
        let wall = self.net.wall();
        if let Some(adviser) = self.policies.adviser() {
            adviser.hear(facts, wall);
        }
    }

    /// What was reported is to be reported again: the daemon has forgotten it.
    pub fn report_facts_again(&mut self) {
        if let Some(adviser) = self.policies.adviser() {
            adviser.tell_again();
        }
    }
}

/// What a connection is bound to: by its local endpoints, or by the zone of the remote one.
fn bound_to<'a>(remote: &'a RemoteEndpoint, locals: &'a [LocalEndpoint]) -> Vec<Bound<'a>> {
    let of_local = |local: &'a LocalEndpoint| match (local.interface.as_deref(), local.addr) {
        (Some(name), _) => Bound::Interface(name),
        (None, Some(addr)) if !addr.is_unspecified() => Bound::Address(addr),
        _ => Bound::Anywhere,
    };
    let zone = remote.interface.as_deref().map(Bound::Interface);
    let bound: Vec<_> = locals.iter().map(of_local).collect();
    // One that leaves everything to the system goes by the zone, if there is one.
    match zone {
        Some(zone) if bound.iter().all(|b| *b == Bound::Anywhere) => vec![zone],
        None if bound.iter().all(|b| *b == Bound::Anywhere) => Vec::new(),
        _ => bound,
    }
}

fn ask<'a>(request: &'a Compiled, remote: &'a RemoteEndpoint, bound: &'a [Bound<'a>], app: &'a str) -> Ask<'a> {
    Ask {
        bound,
        needs: &request.policy.needs,
        stacks: &request.asked.stacks,
        app,
        host: remote.host.as_deref(),
        addr: remote.addr,
        port: remote.port,
        extra: &request.asked.extra,
    }
}
