//! The resolver's answers for one path, cut down to its bounds, and whether that is enough to begin
//! with.

use crate::{
    Address, Config, Family, PathSpec, Record, ResolutionReport, ResolutionState, Service, StackId, StackOption,
};
use neater_base::{Instant, Rng};

/// How many addresses of one answer, hint or target are used; further ones are left out.
pub const MAX_ADDRESSES: usize = 64;
/// How many services of one answer are used; those with the highest priority numbers are left out.
pub const MAX_SERVICES: usize = 8;

/// One question to the resolver.
#[derive(Clone, Debug, PartialEq)]
enum Question<T, F> {
    NotAsked,
    Pending,
    Answered { at: Instant, items: Vec<T> },
    Failed { at: Instant, reason: F },
}

impl<T, F: Clone> Question<T, F> {
    fn new(expected: bool) -> Self {
        if expected { Self::Pending } else { Self::NotAsked }
    }

    fn is_pending(&self) -> bool {
        matches!(self, Self::Pending)
    }

    fn items(&self) -> &[T] {
        match self {
            Self::Answered { items, .. } => items,
            _ => &[],
        }
    }

    /// What failed to be refreshed is still the best that is known.
    fn settle(&mut self, at: Instant, result: Result<Vec<T>, F>) {
        match (result, &self) {
            (Ok(items), _) => *self = Self::Answered { at, items },
            (Err(_), Self::Answered { .. }) => {}
            (Err(reason), _) => *self = Self::Failed { at, reason },
        }
    }

    fn report(&self) -> Option<ResolutionState<F>> {
        match self {
            Self::NotAsked => None,
            Self::Pending => Some(ResolutionState::Pending),
            Self::Answered { at, items } => Some(ResolutionState::Answered { at: *at, count: items.len() }),
            Self::Failed { at, reason } => Some(ResolutionState::Failed { at: *at, reason: reason.clone() }),
        }
    }
}

/// Resolution on one path.
#[derive(Clone, Debug)]
pub(crate) struct Resolution<F> {
    pub(crate) spec: PathSpec,
    seed: [u8; 32],
    v4: Question<Address, F>,
    v6: Question<Address, F>,
    services: Question<Service, F>,
    /// What is known of them while that is pending.
    so_far: Vec<Service>,
    /// When an address of any kind was first known: the Resolution Delay counts from here.
    first_address_at: Option<Instant>,
    /// Whether its candidates take part. Never taken back.
    pub(crate) open: bool,
}

impl<F: Clone> Resolution<F> {
    pub(crate) fn new(spec: PathSpec, seed: [u8; 32]) -> Self {
        Self {
            spec,
            seed,
            v4: Question::new(spec.expect_v4),
            v6: Question::new(spec.expect_v6),
            services: Question::new(spec.expect_services),
            so_far: Vec::new(),
            first_address_at: None,
            open: false,
        }
    }

    pub(crate) fn answer(&mut self, now: Instant, family: Family, result: Result<Vec<Address>, F>) {
        let result = result.map(|list| bounded(&list, Some(family)));
        match family {
            Family::V4 => self.v4.settle(now, result),
            Family::V6 => self.v6.settle(now, result),
        }
        self.note_addresses(now);
    }

    /// The seed breaks ties of priority, each time in the same way: a list that is given again
    /// (because the addresses of a target are known now) keeps its order.
    pub(crate) fn answer_services(&mut self, now: Instant, result: Result<Vec<Service>, F>, stacks: &[StackOption]) {
        let result = result.map(|list| self.usable(list, stacks));
        self.so_far.clear();
        self.services.settle(now, result);
        self.note_addresses(now);
    }

    /// What is known of the services before [`Resolution::answer_services`]; after it, it has no
    /// effect.
    pub(crate) fn services_so_far(&mut self, now: Instant, list: Vec<Service>, stacks: &[StackOption]) {
        if self.services.is_pending() {
            self.so_far = self.usable(list, stacks);
            self.note_addresses(now);
        }
    }

    /// The services that can be tried, best first.
    fn usable(&self, list: Vec<Service>, stacks: &[StackOption]) -> Vec<Service> {
        let mut rng = Rng::new(self.seed);
        let mut usable: Vec<(u16, u64, Service)> = list
            .into_iter()
            .filter_map(|service| Some((service.priority, rng.u64(), bounded_service(service, stacks)?)))
            .collect();
        usable.sort_by_key(|(priority, tie, _)| (*priority, *tie));
        usable.truncate(MAX_SERVICES);
        usable.into_iter().map(|(_, _, service)| service).collect()
    }

    fn note_addresses(&mut self, now: Instant) {
        if self.first_address_at.is_none() && self.has_addresses() {
            self.first_address_at = Some(now);
        }
    }

    fn question(&self, family: Family) -> &Question<Address, F> {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// Appends the addresses of the name itself in one family; until they are known, the hints of
    /// its services.
    pub(crate) fn own_addresses(&self, family: Family, out: &mut Vec<Address>) {
        match self.question(family) {
            Question::Answered { items, .. } => out.extend_from_slice(items),
            _ => {
                let services = self.services().iter().filter(|s| s.target.is_none());
                for hint in services.flat_map(|s| &s.hints).filter(|a| a.family() == family) {
                    if !out.iter().any(|a| a.addr == hint.addr) {
                        out.push(*hint);
                    }
                }
            }
        }
    }

    /// Appends the addresses that a service is to be tried at.
    pub(crate) fn service_addresses(&self, service: &Service, out: &mut Vec<Address>) {
        match &service.target {
            Some(target) if !target.is_empty() => out.extend_from_slice(target),
            Some(_) => out.extend_from_slice(&service.hints),
            None => {
                for family in [Family::V6, Family::V4] {
                    match self.question(family) {
                        Question::Answered { items, .. } => out.extend_from_slice(items),
                        _ => out.extend(service.hints.iter().filter(|a| a.family() == family)),
                    }
                }
            }
        }
    }

    pub(crate) fn services(&self) -> &[Service] {
        if self.services.is_pending() { &self.so_far } else { self.services.items() }
    }

    /// Whether there is anything to try.
    pub(crate) fn has_addresses(&self) -> bool {
        let hinted = |f: Family| {
            let mut own = self.services().iter().filter(|s| s.target.is_none());
            own.any(|s| s.hints.iter().any(|a| a.family() == f))
        };
        let own = |f: Family| match self.question(f) {
            Question::Answered { items, .. } => !items.is_empty(),
            _ => hinted(f),
        };
        let elsewhere = |s: &Service| s.target.as_ref().is_some_and(|t| !t.is_empty() || !s.hints.is_empty());
        own(Family::V6) || own(Family::V4) || self.services().iter().any(elsewhere)
    }

    /// Whether an answer is still expected.
    pub(crate) fn is_pending(&self) -> bool {
        self.v4.is_pending() || self.v6.is_pending() || self.services.is_pending()
    }

    /// Whether the better answers are in: those of the preferred family, positive or negative, and
    /// those about services. Hints and targets of that family count as its answer.
    pub(crate) fn has_preferred(&self, preferred: Family) -> bool {
        let of_family = |s: &Service| s.hints.iter().chain(s.target.iter().flatten()).any(|a| a.family() == preferred);
        let family_answered = !self.question(preferred).is_pending() || self.services().iter().any(of_family);
        family_answered && !self.services.is_pending()
    }

    /// When addresses have waited long enough for better answers.
    pub(crate) fn delay_ends(&self, config: &Config) -> Option<Instant> {
        self.first_address_at.filter(|_| self.has_addresses()).map(|at| at + config.resolution_delay)
    }

    pub(crate) fn report(&self) -> impl Iterator<Item = ResolutionReport<F>> {
        let all = [
            (Record::Services, self.services.report()),
            (Record::Aaaa, self.v6.report()),
            (Record::A, self.v4.report()),
        ];
        let path = self.spec.id;
        all.into_iter().filter_map(move |(record, state)| Some(ResolutionReport { path, record, state: state? }))
    }
}

/// The first [`MAX_ADDRESSES`] different addresses, of one family if that is asked.
fn bounded(list: &[Address], family: Option<Family>) -> Vec<Address> {
    let mut out: Vec<Address> = Vec::with_capacity(list.len().min(MAX_ADDRESSES));
    for a in list {
        if out.len() == MAX_ADDRESSES {
            break;
        }
        if family.is_none_or(|f| f == a.family()) && !out.iter().any(|b| b.addr == a.addr) {
            out.push(*a);
        }
    }
    out
}

/// A service cut to its bounds; `None` if its ALPN set allows no stack of this race, so that it is
/// not to be tried.
fn bounded_service(service: Service, options: &[StackOption]) -> Option<Service> {
    let listed = |option: &&StackOption| service.stacks.contains(&option.id);
    let stacks: Vec<StackId> = options.iter().filter(listed).map(|option| option.id).collect();
    if stacks.is_empty() {
        return None;
    }
    let hints = bounded(&service.hints, None);
    let target = service.target.as_ref().map(|t| bounded(t, None));
    Some(Service { stacks, hints, target, ..service })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathId;
    use std::net::IpAddr;

    fn v4(n: u8) -> Address {
        Address::new(IpAddr::from([192, 0, 2, n]), None)
    }

    fn resolution() -> Resolution<&'static str> {
        seeded(1)
    }

    fn seeded(seed: u8) -> Resolution<&'static str> {
        let id = PathId(0);
        let spec = PathSpec { id, port: 443, expect_v4: true, expect_v6: true, expect_services: true };
        Resolution::new(spec, [seed; 32])
    }

    fn stack(id: u16) -> StackOption {
        StackOption { id: StackId(id), group: 0, port: None, needs_service: false, secure: true }
    }

    fn service(priority: u16, port: u16) -> Service {
        let stacks = vec![StackId(1)];
        Service { priority, stacks, port: Some(port), hints: Vec::new(), target: None }
    }

    #[test]
    fn an_answer_is_cut_to_its_bound_after_duplicates_and_strangers() {
        let mut r = resolution();
        let mut list: Vec<Address> = (0..200).flat_map(|n| [v4(n), v4(n)]).collect();
        list.insert(0, Address::new("2001:db8::1".parse().unwrap(), None));
        r.answer(Instant::ZERO, Family::V4, Ok(list));
        let mut out = Vec::new();
        r.own_addresses(Family::V4, &mut out);
        assert_eq!(out, (0..MAX_ADDRESSES as u8).map(v4).collect::<Vec<_>>());
    }

    #[test]
    fn of_too_many_services_the_best_are_kept() {
        let mut r = resolution();
        let list = (0..100).rev().map(|n| service(n, n)).collect();
        r.answer_services(Instant::ZERO, Ok(list), &[stack(1)]);
        let ports: Vec<_> = r.services().iter().filter_map(|s| s.port).collect();
        assert_eq!(ports, (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn equal_priorities_are_shuffled_by_the_seed_and_keep_their_order_when_given_again() {
        let order = |seed| {
            let mut r = seeded(seed);
            let mut ports = Vec::new();
            for _ in 0..2 {
                let list = (0..4).map(|n| service(1, n)).collect();
                r.answer_services(Instant::ZERO, Ok(list), &[stack(1)]);
                ports.push(r.services().iter().filter_map(|s| s.port).collect::<Vec<_>>());
            }
            assert_eq!(ports[0], ports[1]);
            ports.remove(0)
        };
        assert_eq!(order(7), order(7));
        let firsts: std::collections::BTreeSet<_> = (0..64).filter_map(|seed| order(seed).first().copied()).collect();
        assert_eq!(firsts.len(), 4, "each of them is first for some seed");
    }

    #[test]
    fn a_service_whose_stacks_are_all_unknown_is_left_out() {
        let mut r = resolution();
        r.answer_services(Instant::ZERO, Ok(vec![service(1, 1)]), &[stack(2)]);
        assert!(r.services().is_empty());
    }

    #[test]
    fn what_is_known_of_services_so_far_can_be_tried_and_answers_nothing() {
        let mut r = resolution();
        let early = Service { hints: vec![v4(9)], target: Some(Vec::new()), ..service(1, 8443) };
        r.services_so_far(Instant::ZERO, vec![early.clone()], &[stack(1)]);
        assert!(r.has_addresses() && r.is_pending() && !r.has_preferred(Family::V4));
        let mut out = Vec::new();
        r.service_addresses(&r.services()[0].clone(), &mut out);
        assert_eq!(out, [v4(9)]);
        assert!(r.delay_ends(&Config::default()).is_some(), "it is not waited for longer than for anything");

        r.answer_services(Instant::ZERO, Ok(Vec::new()), &[stack(1)]);
        assert!(r.services().is_empty() && !r.has_addresses());
        r.services_so_far(Instant::ZERO, vec![early], &[stack(1)]);
        assert!(r.services().is_empty(), "the answer has come");
    }

    #[test]
    fn a_failure_after_a_success_leaves_the_addresses() {
        let mut r = resolution();
        r.answer(Instant::ZERO, Family::V4, Ok(vec![v4(1)]));
        r.answer(Instant::ZERO, Family::V4, Err("servfail"));
        assert!(r.has_addresses());
        r.answer(Instant::ZERO, Family::V4, Ok(Vec::new()));
        assert!(!r.has_addresses());
    }
}
