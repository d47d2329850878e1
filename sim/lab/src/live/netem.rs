//! A link as the kernel's queueing disciplines can be told it: for `--emulator netem`.
//!
//! *Responsible for* the words for `tc`, and for saying what `tc` has no words for. A pure function: nothing is run here, so
//! it is tested where the kernel has no netem.
//!
//! A direction of a link is two stages, as in our own model: the queue in front of the rate (a token bucket at the sender's
//! device, with the discipline below it), and the wire behind it (netem at the device towards the receiver). One netem for
//! both would count packets that travel as packets that wait.

use neater_link::{Discipline, Jitter, LinkConfig, Loss, QueueLimit, Rate};
use std::fmt::Write as _;
use std::time::Duration;

/// An Ethernet header, which the kernel counts with a packet and rates here do not.
const ETHERNET: u64 = 14;
/// Packets that may travel on a wire at once: as many as are ever needed. It is a bound, not a queue.
const WIRE_PACKETS: u32 = 1_000_000;
/// The rate of a wire that lets no packet overtake another: netem keeps the order where there is a rate. A packet of 1,500
/// bytes takes 0.12 ns.
const KEEPS_ORDER: &str = "100gbit";

/// What is put at the two devices of a direction, in the words of `tc qdisc add dev DEVICE`. An empty list puts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// At the sender's device: the queue and the rate.
    pub queue: Vec<String>,
    /// At the device towards the receiver: what happens on the wire.
    pub wire: Vec<String>,
}

impl Stages {
    /// The kinds of queueing disciplines that the kernel must have for it.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        let known = ["netem", "tbf", "pfifo_head_drop", "pfifo", "bfifo", "fq_codel", "codel"];
        let of = move |line: &String| known.into_iter().find(|k| line.split(' ').any(|word| word == *k));
        self.queue.iter().chain(&self.wire).filter_map(of)
    }
}

/// The words for a direction of a link whose devices take packets of up to `mtu` bytes.
///
/// # Errors
/// Everything of it that the kernel cannot be told, in words. Nothing is left out silently.
pub fn stages(config: &LinkConfig, mtu: u32) -> Result<Stages, Vec<String>> {
    let mut wrong = Vec::new();
    let mut no = |what: &str| wrong.push(what.to_owned());
    if !config.filters.is_empty() {
        no("a firewall in a link (drop, reject)");
    }
    if config.mtu < mtu {
        no("an MTU that is smaller than that of the interfaces at its ends");
    }
    if config.corrupt > 0.0 {
        no("corruption: netem flips bits of link and IP headers too");
    }
    let queue = queue(config, &mut no);
    let wire = wire(config, &mut no);
    if wrong.is_empty() { Ok(Stages { queue, wire }) } else { Err(wrong) }
}

fn queue(config: &LinkConfig, no: &mut dyn FnMut(&str)) -> Vec<String> {
    let rate = match &config.rate {
        Rate::Unlimited => return Vec::new(),
        Rate::Fixed(0) => return Vec::new(),
        Rate::Fixed(rate) => *rate,
        Rate::Steps(_) => {
            no("a rate that changes in steps: use [[schedule]]");
            return Vec::new();
        }
        Rate::Trace(_) => {
            no("a rate that follows a trace");
            return Vec::new();
        }
    };
    // A packet of the largest size must fit into the bucket, and no more than half a millisecond at the rate: what is in the
    // bucket leaves at once.
    let burst = (rate / 8 / 2000).max(u64::from(config.mtu) + ETHERNET);
    // `stab` makes the kernel count IP packets: without the Ethernet header.
    let bucket = |limit: u64| {
        format!(
            "root handle 1: stab overhead -{ETHERNET} linklayer ethernet tbf rate {rate}bit burst {burst} limit {limit}"
        )
    };
    let plenty = 1 << 30;
    match (config.discipline, config.queue) {
        (Discipline::DropTail, QueueLimit::Bytes(limit)) => vec![bucket(limit.max(burst))],
        (Discipline::DropTail, QueueLimit::Packets(n)) => {
            vec![bucket(plenty), format!("parent 1: handle 2: pfifo limit {n}")]
        }
        (Discipline::HeadDrop, QueueLimit::Packets(n)) => {
            vec![bucket(plenty), format!("parent 1: handle 2: pfifo_head_drop limit {n}")]
        }
        (Discipline::Codel(c), QueueLimit::Packets(n)) => {
            let (target, interval, ecn) = (us(c.target), us(c.interval), ecn(c.ecn));
            vec![
                bucket(plenty),
                format!("parent 1: handle 2: codel limit {n} target {target} interval {interval} {ecn}"),
            ]
        }
        (Discipline::FqCodel(fq), QueueLimit::Packets(n)) => {
            let (target, interval, ecn) = (us(fq.codel.target), us(fq.codel.interval), ecn(fq.codel.ecn));
            let (flows, quantum) = (fq.flows, fq.quantum);
            vec![
                bucket(plenty),
                format!(
                    "parent 1: handle 2: fq_codel limit {n} flows {flows} quantum {quantum} target {target} interval \
                     {interval} {ecn}"
                ),
            ]
        }
        (Discipline::HeadDrop | Discipline::Codel(_) | Discipline::FqCodel(_), QueueLimit::Bytes(_)) => {
            no("a queue in bytes with this discipline: the kernel counts packets there");
            Vec::new()
        }
        (Discipline::Red(_), _) => {
            no("RED as it is here: the kernel's has no weight and no gentle mode of its own");
            Vec::new()
        }
    }
}

fn wire(config: &LinkConfig, no: &mut dyn FnMut(&str)) -> Vec<String> {
    let mut words = String::new();
    let (delay, spread, law) = match config.jitter {
        Jitter::None => (config.delay, Duration::ZERO, ""),
        // netem's is around the delay, ours on top of it.
        Jitter::Uniform(most) => (config.delay + most / 2, most / 2, ""),
        Jitter::Normal(deviation) => (config.delay, deviation, " distribution normal"),
        Jitter::Pareto { .. } => {
            no("Pareto jitter of a shape: netem has one table of one shape");
            (config.delay, Duration::ZERO, "")
        }
        Jitter::Values(_) => {
            no("jitter from a list");
            (config.delay, Duration::ZERO, "")
        }
    };
    if config.jitter_correlation > 0.0 && config.jitter != Jitter::None {
        no("correlated jitter: netem correlates before it shapes, and the spread shrinks");
    }
    if !delay.is_zero() {
        let _ = write!(words, " delay {}", us(delay));
        if !spread.is_zero() {
            let _ = write!(words, " {}{law}", us(spread));
        }
    }
    let down = config.down || config.rate == Rate::Fixed(0);
    match &config.loss {
        _ if down => words.push_str(" loss random 100%"),
        Loss::None => {}
        Loss::Random(p) => {
            let _ = write!(words, " loss random {}", percent(*p));
        }
        Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
            // netem's third number is 1 - h, the loss in the bad state, and its fourth 1 - k, that in the good one.
            let [p, r, bad, good] = [to_bad, to_good, loss_bad, loss_good].map(|p| percent(*p));
            let _ = write!(words, " loss gemodel {p} {r} {bad} {good}");
        }
        Loss::EveryNth(_) => no("the loss of every nth packet"),
        Loss::Indices(_) => no("the loss of packets by their numbers"),
        Loss::Bursts { .. } | Loss::BurstsAt { .. } => no("losses in runs of a length"),
    }
    if config.duplicate > 0.0 {
        let _ = write!(words, " duplicate {}", percent(config.duplicate));
    }
    if let Some(overtaking) = config.overtaking {
        if delay.is_zero() {
            no("overtaking without a delay");
        }
        let _ = write!(words, " reorder {}", percent(overtaking.probability));
        if overtaking.gap > 1 {
            let _ = write!(words, " gap {}", overtaking.gap);
        }
    }
    if !spread.is_zero() && !config.reorder {
        let _ = write!(words, " rate {KEEPS_ORDER}");
    }
    if words.is_empty() { Vec::new() } else { vec![format!("root handle 1: netem limit {WIRE_PACKETS}{words}")] }
}

fn us(time: Duration) -> String {
    format!("{}us", time.as_nanos().div_ceil(1000))
}

const fn ecn(on: bool) -> &'static str {
    if on { "ecn" } else { "noecn" }
}

/// Six digits behind the point: netem's own resolution is 1 in 2³².
fn percent(p: f64) -> String {
    let text = format!("{:.6}", p * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_link::{Codel, Filter, FqCodel, Match, Overtaking, Red, TooBig};

    const MS: Duration = Duration::from_millis(1);

    fn told(config: &LinkConfig) -> (String, String) {
        let s = stages(config, 1500).expect("can be told");
        (s.queue.join("; "), s.wire.join("; "))
    }

    #[test]
    fn a_rate_a_delay_and_a_queue_are_two_stages() {
        assert_eq!(told(&LinkConfig::default()), (String::new(), String::new()));
        let link = LinkConfig::rate(10_000_000, 25 * MS);
        let (queue, wire) = told(&link.clone().with_queue(QueueLimit::Bytes(62_500)));
        let bucket = "root handle 1: stab overhead -14 linklayer ethernet tbf rate 10000000bit burst 1514 limit";
        assert_eq!(queue, format!("{bucket} 62500"));
        assert_eq!(wire, "root handle 1: netem limit 1000000 delay 25000us");
        let (queue, _) = told(&link.clone().with_queue(QueueLimit::Packets(50)));
        assert_eq!(queue, format!("{bucket} 1073741824; parent 1: handle 2: pfifo limit 50"));
        // At a gigabit the bucket holds half a millisecond.
        let fast = LinkConfig::rate(1_000_000_000, Duration::ZERO).with_queue(QueueLimit::Bytes(1000));
        assert!(told(&fast).0.ends_with("burst 62500 limit 62500"), "{}", told(&fast).0);
    }

    #[test]
    fn disciplines_are_below_the_bucket() {
        let link = |d| LinkConfig::rate(1_000_000, MS).with_queue(QueueLimit::Packets(100)).with_discipline(d);
        let below = |d| told(&link(d)).0.split("; ").nth(1).expect("two").to_owned();
        assert_eq!(below(Discipline::HeadDrop), "parent 1: handle 2: pfifo_head_drop limit 100");
        let codel = Codel { ecn: true, ..Codel::default() };
        assert_eq!(
            below(Discipline::Codel(codel)),
            "parent 1: handle 2: codel limit 100 target 5000us interval 100000us ecn"
        );
        let fq = FqCodel { codel: Codel { ecn: false, ..Codel::default() }, ..FqCodel::default() };
        let words = below(Discipline::FqCodel(fq));
        assert!(words.contains("fq_codel limit 100 flows 1024 quantum 1514") && words.ends_with("noecn"), "{words}");
        let kinds: Vec<_> =
            stages(&link(Discipline::FqCodel(fq)), 1500).expect("told").kinds().map(str::to_owned).collect();
        assert_eq!(kinds, ["tbf", "fq_codel", "netem"]);
    }

    #[test]
    fn what_happens_on_the_wire_is_in_netems_words() {
        let wire = |c: LinkConfig| told(&c).1.replace("root handle 1: netem limit 1000000 ", "");
        let link = LinkConfig::delay(20 * MS);
        assert_eq!(wire(link.clone().with_jitter(5 * MS)), "delay 22500us 2500us rate 100gbit");
        let normal = LinkConfig { jitter: Jitter::Normal(2 * MS), reorder: true, ..link.clone() };
        assert_eq!(wire(normal), "delay 20000us 2000us distribution normal");
        assert_eq!(wire(link.clone().with_loss(0.001)), "delay 20000us loss random 0.1%");
        let ge = Loss::GilbertElliott { to_bad: 0.01, to_good: 0.2, loss_good: 0.0, loss_bad: 0.5 };
        assert_eq!(wire(LinkConfig { loss: ge, ..link.clone() }), "delay 20000us loss gemodel 1% 20% 50% 0%");
        assert_eq!(wire(link.clone().with_down(true)), "delay 20000us loss random 100%");
        let overtaking = Some(Overtaking { probability: 0.25, gap: 5 });
        let c = LinkConfig { overtaking, duplicate: 0.005, ..link };
        assert_eq!(wire(c), "delay 20000us duplicate 0.5% reorder 25% gap 5");
    }

    #[test]
    fn everything_that_has_no_words_is_named() {
        let all = LinkConfig {
            rate: Rate::Trace(neater_link::DeliveryTrace::parse("1\n").expect("a trace").into()),
            jitter: Jitter::Pareto { scale: MS, shape: 2.0 },
            jitter_correlation: 0.5,
            loss: Loss::EveryNth(10),
            corrupt: 0.1,
            overtaking: Some(Overtaking { probability: 0.1, gap: 0 }),
            filters: vec![Filter::drop(Match::Any)],
            mtu: 1300,
            too_big: TooBig::BlackHole,
            ..LinkConfig::default()
        };
        let wrong = stages(&all, 1500).expect_err("none of it");
        assert_eq!(wrong.len(), 8, "{wrong:#?}");
        for part in ["firewall", "MTU", "corruption", "trace", "Pareto", "correlated", "every nth", "overtaking"] {
            assert!(wrong.iter().any(|w| w.contains(part)), "{part}: {wrong:?}");
        }
        let red = LinkConfig::rate(1_000_000, MS).with_discipline(Discipline::Red(Red::new(5, 15)));
        assert!(stages(&red, 1500).is_err());
        let bytes = LinkConfig::rate(1_000_000, MS)
            .with_queue(QueueLimit::Bytes(1000))
            .with_discipline(Discipline::Codel(Codel::default()));
        assert!(stages(&bytes, 1500).expect_err("no")[0].contains("bytes"));
    }
}
