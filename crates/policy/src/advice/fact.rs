//! What is known of the way by one interface to one other end, and how the reports of several
//! programs are merged.

use super::measured::{MEASURED, Seen};
use core::time::Duration;
use neater_base::WallTime;
use neater_property::neat::{NeatArray, NeatProperty, NeatValue};

/// How long something counts after it was seen last, and at most.
pub const LIFETIME: Duration = Duration::from_secs(600);
/// How many outcomes of races are known of one way; the one that ends first goes.
pub const MAX_OUTCOMES: usize = 8;
/// How much a new sample counts that is less than what was seen before, or in doubt.
const WEIGHT: f64 = 0.25;

/// A number, and until when it counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// What was seen: not negative.
    pub value: f64,
    /// When it ends.
    pub until: WallTime,
}

/// What became of a transport in a race.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaceOutcome {
    /// The other end's port.
    pub port: u16,
    /// The transport, as policies call it; `TLS` and `DTLS` with security.
    pub transport: String,
    /// It won; otherwise it was no good, while something else won.
    pub won: bool,
    /// When that counts no more.
    pub until: WallTime,
}

/// What is known of the way by one interface to one other end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// The round trip, in seconds.
    pub rtt: Option<Figure>,
    /// What was carried in the busier direction, in bits per second.
    pub rate: Option<Figure>,
    /// The part of what was sent that was lost, from 0 to 1.
    pub loss: Option<Figure>,
    /// What races came to, at most [`MAX_OUTCOMES`].
    pub outcomes: Vec<RaceOutcome>,
}

/// A fact that one program publishes to others: what it knows of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// The interface, by name.
    pub interface: String,
    /// The other end: its name in lower case, or its address.
    pub end: String,
    /// What is known.
    pub known: Known,
}

/// A round trip in seconds, or a part of what was sent, that is less than this counts as none.
pub(crate) const LEAST: f64 = 1e-9;
/// What a flow that loses nothing forgets of an earlier loss at once, so that this is no news for
/// ever.
const FEW: f64 = 1e-6;

/// Two digits of a number, or 0.
fn two_digits(x: f64) -> f64 {
    if !x.is_finite() || x < LEAST {
        return 0.0;
    }
    let unit = 10f64.powi(x.log10().floor() as i32 - 1);
    // Dividing by a whole number keeps tenths as they are written.
    if unit < 1.0 { (x / unit).round() / (1.0 / unit).round() } else { (x / unit).round() * unit }
}

impl Known {
    /// Of this, what still counts.
    #[must_use]
    pub fn at(&self, now: WallTime) -> Self {
        let counts = |f: &Figure| f.until.0 > now.0;
        Self {
            rtt: self.rtt.filter(counts),
            rate: self.rate.filter(counts),
            loss: self.loss.filter(counts),
            outcomes: self.outcomes.iter().filter(|o| o.until.0 > now.0).cloned().collect(),
        }
    }

    fn ends_of(&self) -> impl Iterator<Item = WallTime> {
        let figures = [self.rtt, self.rate, self.loss].into_iter().flatten().map(|f| f.until);
        figures.chain(self.outcomes.iter().map(|o| o.until))
    }

    /// When the first of it ends; `None` if nothing is known.
    #[must_use]
    pub fn first_end(&self) -> Option<WallTime> {
        self.ends_of().min_by_key(|t| t.0)
    }

    /// When the last of it ends; `None` if nothing is known.
    #[must_use]
    pub fn last_end(&self) -> Option<WallTime> {
        self.ends_of().max_by_key(|t| t.0)
    }

    /// The figures as policies see them: milliseconds, megabits per second and percent, with two
    /// digits.
    pub(super) fn figures(&self) -> [Option<(&'static str, f64)>; 3] {
        [
            self.rtt.map(|f| ("measured_rtt", two_digits(f.value * 1e3))),
            self.rate.map(|f| ("measured_rate", two_digits(f.value / 1e6))),
            self.loss.map(|f| ("measured_loss", two_digits(f.value * 100.0))),
        ]
    }

    /// The properties of a row to this port.
    pub(super) fn properties(&self, port: u16) -> NeatArray {
        let number = |(key, value): (&str, f64)| NeatProperty::new(key, NeatValue::Number(value));
        let transports = |won: bool| {
            let of = self.outcomes.iter().filter(|o| o.won == won && o.port == port);
            let all: Vec<NeatValue> = of.map(|o| NeatValue::Text(o.transport.clone())).collect();
            let key = if won { "won" } else { "failed" };
            let set = NeatValue::set(all.clone()).ok().filter(|_| !all.is_empty());
            set.map(|set| NeatProperty::new(&format!("{MEASURED}{key}"), set))
        };
        let figures = self.figures().into_iter().flatten().map(number);
        let all = figures.chain([transports(true), transports(false)].into_iter().flatten());
        all.map(|p| (p.key.clone(), p)).collect()
    }

    /// Whether policies could see a difference between this and another.
    pub(super) fn looks_like(&self, other: &Self) -> bool {
        let told = |o: &RaceOutcome| (o.port, o.transport.clone(), o.won);
        let mut ours: Vec<_> = self.outcomes.iter().map(told).collect();
        let mut theirs: Vec<_> = other.outcomes.iter().map(told).collect();
        ours.sort_unstable();
        theirs.sort_unstable();
        self.figures() == other.figures() && ours == theirs
    }

    /// Takes what a connection of this program's has seen.
    pub(super) fn learn(&mut self, seen: &Seen, now: WallTime) {
        let until = WallTime(now.0.saturating_add(LIFETIME));
        let figure = |value: f64| Figure { value, until };
        let blend = |old: f64, new: f64| old + WEIGHT * (new - old);
        self.rtt = seen.rtt.map(|rtt| figure(rtt.as_secs_f64())).or(self.rtt);
        // A flow with little to send is no evidence against its path, and a higher rate than before
        // counts.
        let before = |f: &Option<Figure>| f.map(|f| f.value);
        let rate = |new: f64| before(&self.rate).map_or(new, |old| if new > old { new } else { blend(old, new) });
        self.rate = seen.rate.map(rate).map(figure).or(self.rate);
        let loss = |new: f64| before(&self.loss).map_or(new, |old| blend(old, new));
        let loss = |new: f64| Some(loss(new)).filter(|loss| *loss >= FEW).unwrap_or(0.0);
        self.loss = seen.loss.map(loss).map(figure).or(self.loss);
    }

    /// Takes what a race came to, in place of what an earlier one came to.
    pub(super) fn outcome(&mut self, outcome: RaceOutcome) {
        self.outcomes.retain(|o| (o.port, &o.transport) != (outcome.port, &outcome.transport));
        if self.outcomes.len() >= MAX_OUTCOMES
            && let Some(first) = (0..self.outcomes.len()).min_by_key(|i| self.outcomes[*i].until.0)
        {
            self.outcomes.swap_remove(first);
        }
        self.outcomes.push(outcome);
    }

    /// Merges what another program reports of the same path: what was seen later counts, and what
    /// races came to as it comes.
    pub fn absorb(&mut self, told: Self) {
        let later = |ours: Option<Figure>, theirs: Option<Figure>| match (ours, theirs) {
            (Some(ours), Some(theirs)) => Some(if theirs.until.0 >= ours.until.0 { theirs } else { ours }),
            (ours, theirs) => theirs.or(ours),
        };
        self.rtt = later(self.rtt, told.rtt);
        self.rate = later(self.rate, told.rate);
        self.loss = later(self.loss, told.loss);
        told.outcomes.into_iter().for_each(|outcome| self.outcome(outcome));
    }

    /// What this program knows, and otherwise what other programs report.
    pub(super) fn or(mut self, others: &Self) -> Self {
        self.rtt = self.rtt.or(others.rtt);
        self.rate = self.rate.or(others.rate);
        self.loss = self.loss.or(others.loss);
        for o in &others.outcomes {
            if !self.outcomes.iter().any(|own| (own.port, &own.transport) == (o.port, &o.transport)) {
                self.outcomes.push(o.clone());
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime(Duration::from_secs(1_800_000_000));

    fn later(seconds: u64) -> WallTime {
        WallTime(NOW.0 + Duration::from_secs(seconds))
    }

    fn outcome(transport: &str, won: bool, seconds: u64) -> RaceOutcome {
        RaceOutcome { port: 443, transport: transport.into(), won, until: later(seconds) }
    }

    #[test]
    fn two_digits_are_kept() {
        let told: Vec<f64> = [0.0, 0.123, 1.26, 12.4, 99.6, 1234.0, f64::NAN, -1.0].map(two_digits).into();
        assert_eq!(told, [0.0, 0.12, 1.3, 12.0, 100.0, 1200.0, 0.0, 0.0]);
        assert_eq!([1e-300, 1e-320, 5e-324, 2e-6].map(two_digits), [0.0, 0.0, 0.0, 2e-6]);
    }

    #[test]
    fn what_was_lost_once_is_forgotten_by_a_flow_that_loses_nothing() {
        let mut known = Known::default();
        let mut learn = |loss: f64, second: u64| {
            let now = WallTime(core::time::Duration::from_secs(1_000 + second));
            known.learn(&Seen { loss: Some(loss), ..Seen::default() }, now);
            known.loss.expect("learnt").value
        };
        learn(0.5, 0);
        let at = (1..5000).find(|i| learn(0.0, *i) == 0.0).expect("none is left");
        assert!((30..60).contains(&at), "after {at} looks");
        assert_eq!(learn(0.0, 5000), 0.0);
    }

    #[test]
    fn a_transport_that_failed_and_then_won_has_won() {
        let mut known = Known::default();
        known.outcome(outcome("QUIC", false, 60));
        known.outcome(outcome("TLS", true, 600));
        let failed = |known: &Known, port| known.properties(port).get("measured_failed").map(|p| p.value.to_string());
        assert!(failed(&known, 443).is_some_and(|text| text.contains("QUIC")));
        assert_eq!(failed(&known, 8443), None, "another port is another server");
        known.outcome(outcome("QUIC", true, 600));
        assert_eq!(failed(&known, 443), None);
        assert_eq!(known.outcomes.len(), 2);
        for i in 0..100 {
            known.outcome(outcome(&format!("T{i}"), true, i));
        }
        assert_eq!(known.outcomes.len(), MAX_OUTCOMES);
        assert!(known.outcomes.iter().any(|o| o.transport == "QUIC"), "the first to end goes first");
    }

    #[test]
    fn of_two_tellers_the_later_counts_and_ones_own_before_both() {
        let rtt = |ms: f64, seconds| Some(Figure { value: ms / 1e3, until: later(seconds) });
        let mut known = Known { rtt: rtt(10.0, 100), ..Known::default() };
        known.absorb(Known { rtt: rtt(20.0, 50), loss: rtt(1.0, 50), ..Known::default() });
        assert_eq!((known.rtt, known.loss), (rtt(10.0, 100), rtt(1.0, 50)), "it is older, and said of the loss alone");
        known.absorb(Known { rtt: rtt(20.0, 200), ..Known::default() });
        assert_eq!(known.rtt, rtt(20.0, 200));
        let own = Known { rtt: rtt(5.0, 20), ..Known::default() };
        assert_eq!(own.clone().or(&known).rtt, own.rtt);
        assert_eq!(own.or(&known).loss, known.loss);
        assert_eq!(known.at(later(50)).loss, None);
        assert_eq!(known.first_end(), Some(later(50)));
        assert_eq!(known.last_end(), Some(later(200)));
    }
}
