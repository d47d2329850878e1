//! Which stacks may serve, and in which order.
//!
//! *Responsible for* the filter (Require, Prohibit, duplicates, security) and for the score. *Not
//! for* the past, which [`Request::standing`] adds for each connection, nor for paths.
//!
//! *Invariants*: the filter comes first and no score undoes it; the weights are such that no sum of
//! lesser reasons outweighs a greater one, which the compiler checks. Without a framer a connection
//! that is initiated has candidates that keep messages apart, or candidates that carry a stream of
//! bytes, and never both (decision 0034).

use crate::request::{Excluded, NoCandidates, Ranked, Reason, Request, Verdict};
use crate::stack::{Shape, StackFeatures};
use core::cmp::Reverse;
use neater_property::{
    Fingerprint, Needs, Preference, PropertySet, Role, SecurityLevel, SecurityNeed, SelectionProperty as P,
};

/// How much each kind of reason counts.
///
/// A step up this list outweighs everything below it together, so that what the program states is
/// never outvoted by defaults, history or the engine's taste, and one thing it prefers outweighs
/// all it would rather avoid.
pub mod weight {
    /// A stack without a handshake, where another one may serve: it cannot know whether its peer is
    /// there, and goes last.
    pub const NO_HANDSHAKE: i32 = 1_000_000;
    /// A stack that encrypts, where security is opportunistic.
    pub const OPPORTUNISTIC_SECURITY: i32 = 100_000;
    /// A property that the program prefers, and the stack has.
    pub const PREFERRED: i32 = 4000;
    /// A property that the program avoids, and the stack has.
    pub const AVOIDED: i32 = 250;

    /// No message of one stream waits for a lost one of another, where delay matters.
    pub const NO_HEAD_OF_LINE_BLOCKING: i32 = 10;
    /// One round trip before the first byte, where delay matters.
    pub const ROUND_TRIP: i32 = 10;
    /// More round trips than this make no difference.
    pub const MAX_ROUND_TRIPS: u8 = 3;
    /// Few instructions per byte, where capacity matters.
    pub const CHEAP_BYTES: i32 = 20;
    /// A property that is preferred by default, and the stack has.
    pub const PREFERRED_BY_DEFAULT: i32 = 10;
    /// A property that is avoided by default, and the stack has.
    pub const AVOIDED_BY_DEFAULT: i32 = 2;
    /// The most that the engine's own order counts, either way.
    pub const MAX_BASE: i32 = 20;
    /// An attempt that succeeded, or failed (NEAT counted the same).
    pub const OUTCOME: i32 = 5;
    /// More outcomes than this make no difference.
    pub const MAX_OUTCOMES: usize = 10;

    const PROPERTIES: i32 = neater_property::SelectionProperty::COUNT as i32;
    /// The most by which two stacks can differ in everything below [`AVOIDED`]. Of the properties
    /// that are preferred by default only multistreaming is one of stacks.
    const BELOW: i32 = NO_HEAD_OF_LINE_BLOCKING
        + ROUND_TRIP * MAX_ROUND_TRIPS as i32
        + CHEAP_BYTES
        + PREFERRED_BY_DEFAULT
        + 2 * MAX_BASE
        + 2 * OUTCOME * MAX_OUTCOMES as i32;
    const _: () = assert!(AVOIDED > BELOW);
    const _: () = assert!(PREFERRED > AVOIDED * (PROPERTIES - 1) + BELOW);
    const _: () = assert!(OPPORTUNISTIC_SECURITY > PREFERRED * PROPERTIES + BELOW);
    const _: () = assert!(NO_HANDSHAKE > OPPORTUNISTIC_SECURITY + PREFERRED * PROPERTIES + BELOW);
}

/// Ranks `stacks` for `needs`: those that break a Require or a Prohibit, or are less secure than
/// `security` asks, are excluded; the others are ordered by what is preferred and avoided and by
/// the capacity profile. `bytes_needed` excludes stacks that carry messages only. Without a framer,
/// stacks that keep messages apart and stacks that join them are not ranked beside each other,
/// except for a listener, whose peers choose.
///
/// # Errors
/// [`NoCandidates`] when every stack is excluded: it names the properties that excluded each.
///
/// # Spec
/// RFC 9622 sections 6.2 and 9.1.3.4; RFC 9621 section 3.3; RFC 9623 section 3.1.
pub fn compile(
    needs: &Needs,
    security: SecurityNeed,
    bytes_needed: bool,
    stacks: &[StackFeatures],
) -> Result<Request, NoCandidates> {
    compile_with(needs, security, Shape { bytes_needed, framer: false }, stacks)
}

/// As [`compile`], for a program that may bring a framer.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(
    needs: &Needs,
    security: SecurityNeed,
    shape: Shape,
    stacks: &[StackFeatures],
) -> Result<Request, NoCandidates> {
    let mut ranked = Vec::new();
    let mut excluded = Vec::new();
    for stack in stacks {
        let candidate = Candidate::new(stack, shape);
        let reasons = candidate.exclusions(needs, security, shape);
        if reasons.is_empty() {
            let reasons = candidate.preferences(needs, security);
            let score = reasons.iter().map(|r| r.verdict.points()).sum();
            ranked.push(Ranked { stack: stack.id, name: stack.name, score, reasons });
        } else {
            excluded.push(Excluded { stack: stack.id, name: stack.name, reasons });
        }
    }
    if !shape.bytes_needed && !shape.framer && needs.role != Role::Listen {
        excluded.extend(one_kind(&mut ranked, stacks));
    }
    excluded.sort_by_key(|e| e.stack);
    if ranked.is_empty() {
        return Err(NoCandidates { stacks: excluded });
    }
    put_unanswered_last(&mut ranked, stacks);
    ranked.sort_by_key(|r| (Reverse(r.score), r.stack));
    Ok(Request {
        ranked,
        excluded,
        needs: needs.clone(),
        security,
        shape,
        capacity_profile: needs.connection.capacity_profile,
        fingerprint: fingerprint(needs, security, shape),
    })
}

/// Takes out the stacks that make something else of a message than the others do, with the reason.
/// Without a framer a stack that carries bytes joins messages, so that it would depend on the
/// network what the peer receives.
///
/// The kind stays that what the program states speaks for; if it speaks for neither, messages stay
/// what they are.
fn one_kind(ranked: &mut Vec<Ranked>, stacks: &[StackFeatures]) -> Vec<Excluded> {
    let keeps = |r: &Ranked| stacks.iter().any(|s| s.id == r.stack && s.messages);
    // Lesser reasons are defaults and taste.
    let stated = |r: &Ranked| -> i32 {
        r.reasons.iter().map(|reason| reason.verdict.points()).filter(|points| points.abs() >= weight::AVOIDED).sum()
    };
    let best = |apart: bool| {
        let of_kind = ranked.iter().filter(|r| keeps(r) == apart);
        of_kind.map(|r| (stated(r), r.score, Reverse(r.stack), r.name)).max()
    };
    let (Some(apart), Some(joined)) = (best(true), best(false)) else { return Vec::new() };
    let stay_apart = apart.0 >= joined.0;
    let (property, preference, verdict) =
        (P::PreserveMsgBoundaries.name(), Preference::NoPreference, Verdict::Excludes);
    let excluded = ranked.extract_if(.., |r| keeps(r) != stay_apart).map(|r| {
        let text = if stay_apart {
            format!(
                "without a message framer {} joins messages that {} keeps apart: set a framer to have both",
                r.name, apart.3
            )
        } else {
            format!(
                "without a message framer {} keeps messages apart that {} joins: set a framer to have both",
                r.name, joined.3
            )
        };
        let reasons = vec![Reason { property, preference, verdict, text }];
        Excluded { stack: r.stack, name: r.name, reasons }
    });
    excluded.collect()
}

/// A stack without a handshake is established whether or not its peer is there: every other one
/// goes before it.
fn put_unanswered_last(ranked: &mut [Ranked], stacks: &[StackFeatures]) {
    let unanswered = |r: &Ranked| stacks.iter().any(|s| s.id == r.stack && s.handshake_rtts == 0);
    let alone = ranked.iter().all(unanswered);
    for r in ranked.iter_mut().filter(|r| unanswered(r)) {
        let (verdict, text) = if alone {
            (Verdict::Adds(0), "no handshake: that the peer is there is not known before it sends")
        } else {
            (Verdict::Subtracts(weight::NO_HANDSHAKE), "no handshake: chosen only if no peer answers one")
        };
        let (property, preference) = ("stack", Preference::NoPreference);
        r.reasons.push(Reason { property, preference, verdict, text: text.into() });
        r.score += verdict.points();
    }
}

fn fingerprint(needs: &Needs, security: SecurityNeed, shape: Shape) -> u64 {
    let mut f = Fingerprint::default();
    f.number(needs.fingerprint());
    f.text(&security.to_string());
    f.byte(u8::from(shape.bytes_needed));
    f.byte(u8::from(shape.framer));
    f.finish()
}

/// A stack with what the program brings along.
struct Candidate<'a> {
    stack: &'a StackFeatures,
    /// What it always has.
    fixed: PropertySet,
    /// What it can have.
    possible: PropertySet,
}

impl<'a> Candidate<'a> {
    fn new(stack: &'a StackFeatures, shape: Shape) -> Self {
        let mut provides = stack.provides;
        let mut configurable = stack.configurable;
        if stack.messages {
            provides.insert(P::PreserveMsgBoundaries);
        } else if stack.bytes && shape.framer {
            // The framer draws the boundaries or does not: the stack stands for either.
            configurable.insert(P::PreserveMsgBoundaries);
        }
        Self { stack, fixed: provides - configurable, possible: provides | configurable }
    }

    /// Everything that rules the stack out.
    fn exclusions(&self, needs: &Needs, security: SecurityNeed, shape: Shape) -> Vec<Reason> {
        let name = self.stack.name;
        let mut reasons = Vec::new();
        let mut exclude = |property, preference, text| {
            reasons.push(Reason { property, preference, verdict: Verdict::Excludes, text });
        };
        for p in (needs.require - self.possible).iter().filter(|p| !p.is_of_paths()) {
            let hint = if p == P::PreserveMsgBoundaries && self.stack.bytes && !shape.bytes_needed {
                " without a message framer"
            } else {
                ""
            };
            let text = format!("required{}, {name} has none{hint}", by_default(needs, p));
            exclude(p.name(), Preference::Require, text);
        }
        for p in (needs.prohibit & self.fixed).iter().filter(|p| !p.is_of_paths()) {
            exclude(p.name(), Preference::Prohibit, format!("prohibited, {name} always has it"));
        }
        if shape.bytes_needed && !self.stack.bytes {
            let text = format!("a byte stream is needed, {name} carries messages");
            exclude(P::PreserveMsgBoundaries.name(), Preference::Prohibit, text);
        }
        if self.stack.duplicates && !needs.message.safely_replayable {
            let text = format!("not stated, {name} may deliver a message twice");
            exclude("safelyReplayable", Preference::Require, text);
        }
        match security {
            SecurityNeed::Required { minimum } => {
                let best = self.stack.security;
                if !self.stack.secure || best == SecurityLevel::None {
                    exclude("security", Preference::Require, format!("required, {name} is cleartext"));
                } else if best < minimum {
                    exclude(
                        "security",
                        Preference::Require,
                        format!("{minimum} required, {name} gives {best} at best"),
                    );
                }
            }
            SecurityNeed::Disabled if self.stack.secure => {
                exclude(
                    "security",
                    Preference::Prohibit,
                    format!("disabled, {name} always encrypts and needs a certificate"),
                );
            }
            SecurityNeed::Disabled | SecurityNeed::Opportunistic => {}
        }
        reasons
    }

    /// What speaks for the stack and against it.
    fn preferences(&self, needs: &Needs, security: SecurityNeed) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let mut add = |property, preference, verdict, text| {
            reasons.push(Reason { property, preference, verdict, text });
        };
        if security == SecurityNeed::Opportunistic && self.stack.secure {
            let text = format!("opportunistic, {} encrypts", self.stack.name);
            add("security", Preference::Prefer, Verdict::Adds(weight::OPPORTUNISTIC_SECURITY), text);
        }
        for p in (needs.prefer & self.possible).iter().filter(|p| !p.is_of_paths()) {
            let explicit = needs.explicit.contains(p);
            let points = if explicit { weight::PREFERRED } else { weight::PREFERRED_BY_DEFAULT };
            let text = format!("preferred{}", by_default(needs, p));
            add(p.name(), Preference::Prefer, Verdict::Adds(points), text);
        }
        for p in (needs.avoid & self.fixed).iter().filter(|p| !p.is_of_paths()) {
            let explicit = needs.explicit.contains(p);
            let points = if explicit { weight::AVOIDED } else { weight::AVOIDED_BY_DEFAULT };
            let text = format!("avoided{}", by_default(needs, p));
            add(p.name(), Preference::Avoid, Verdict::Subtracts(points), text);
        }
        self.profile_reasons(needs, &mut add);
        let base = self.stack.base_score.clamp(-weight::MAX_BASE, weight::MAX_BASE);
        if base != 0 {
            let verdict = if base > 0 { Verdict::Adds(base) } else { Verdict::Subtracts(-base) };
            add("stack", Preference::NoPreference, verdict, "the engine's own order".into());
        }
        reasons
    }

    /// The reasons from the capacity profile (RFC 9622 section 8.1.6).
    fn profile_reasons(&self, needs: &Needs, add: &mut impl FnMut(&'static str, Preference, Verdict, String)) {
        const PROFILE: &str = "connCapacityProfile";
        let profile = needs.connection.capacity_profile;
        if profile.is_low_latency() {
            let trips = self.stack.handshake_rtts.min(weight::MAX_ROUND_TRIPS);
            if trips > 0 {
                let s = if trips == 1 { "" } else { "s" };
                let text = format!("{trips} round trip{s} before the first byte");
                add(PROFILE, Preference::Prefer, Verdict::Subtracts(weight::ROUND_TRIP * i32::from(trips)), text);
            }
            if self.possible.contains(P::Multistreaming) || !self.fixed.contains(P::PreserveOrder) {
                let verdict = Verdict::Adds(weight::NO_HEAD_OF_LINE_BLOCKING);
                add(
                    PROFILE,
                    Preference::Prefer,
                    verdict,
                    "no head-of-line blocking between streams or messages".into(),
                );
            }
        }
        // One byte stream and nothing else is what kernels and network cards offload: TCP, and TLS
        // above it.
        let is_offloaded = self.stack.bytes && !self.stack.messages && !self.possible.contains(P::Multistreaming);
        if profile == neater_property::CapacityProfile::CapacitySeeking && is_offloaded {
            let text = "a plain byte stream is cheapest per byte".into();
            add(PROFILE, Preference::Prefer, Verdict::Adds(weight::CHEAP_BYTES), text);
        }
    }
}

/// The remark on a property that the program did not state itself.
fn by_default(needs: &Needs, property: P) -> &'static str {
    if needs.explicit.contains(property) { "" } else { " by default" }
}
