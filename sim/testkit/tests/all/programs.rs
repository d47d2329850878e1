//! Scenarios whose traffic programs on the engine carry.

use neater_netsim::FlowStats;
use neater_scenario::{Scenario, shipped};
use neater_testkit::Programs;
use std::time::Duration;

fn scenario(set: &[(&str, &str)]) -> Scenario {
    let set: Vec<_> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Scenario::parse(shipped("programs").expect("shipped"), &set).expect("parses")
}

fn ran(set: &[(&str, &str)], seed: u64) -> Programs {
    let mut programs = Programs::build(&scenario(set), seed).expect("builds");
    programs.run(|_| true).expect("runs");
    programs
}

fn flow(programs: &Programs, name: &str) -> FlowStats {
    let index = programs.network().scenario().traffic.iter().position(|t| t.name == name);
    programs.flows().into_iter().find(|f| Some(f.traffic) == index).expect("the flow")
}

const SHORT: [(&str, &str); 2] = [("warm-up", "2 s"), ("duration", "6 s")];

#[test]
fn whatever_carries_a_program_it_shares_the_bottleneck_and_a_run_is_a_function_of_its_seed() {
    for over in ["quic", "tls", "tcp", "sctp"] {
        let set = [SHORT[0], SHORT[1], ("over", over)];
        let programs = ran(&set, 3);
        let [own, cubic] = ["program", "cubic"].map(|name| flow(&programs, name));
        let [a, b] = [&own, &cubic].map(|f| f.goodput(Duration::from_secs(6)) / 1e6);
        assert!(a > 2.0 && b > 2.0 && (9.0..9.8).contains(&(a + b)), "{over}: {a} and {b} of 10 Mbit/s");
        assert!(own.failures == 0 && own.measured < own.delivered, "{own:?}");
        assert!((0.05..0.12).contains(&own.rtt.mean) && (60..=61).contains(&own.rtt.count), "{own:?}");
        let again = ran(&set, 3);
        assert_eq!(again.network().world.digest(), programs.network().world.digest(), "{over}");
        assert_eq!(again.flows(), programs.flows());
        assert_ne!(ran(&set, 4).network().world.digest(), programs.network().world.digest());
    }
}

#[test]
fn a_size_an_end_and_a_stop_are_kept_and_what_cannot_connect_counts_as_failed() {
    let bytes = |size| [SHORT[0], SHORT[1], ("traffic.program.bytes", size), ("traffic.cubic.start", "1 h")];
    for over in ["quic", "sctp", "tls"] {
        let mut set = bytes("1 MB").to_vec();
        set.push(("over", over));
        let programs = ran(&set, 1);
        let own = flow(&programs, "program");
        let took = own.finished.expect("it arrives whole") - own.started.expect("it began");
        // 0.8 s at the rate, headers, and some round trips.
        assert!(own.delivered == 1_000_000 && own.failures == 0, "{over}: {own:?}");
        assert!((0.85..1.6).contains(&took.as_secs_f64()), "{over}: {took:?}");
    }
    let stopped = ran(&[SHORT[0], SHORT[1], ("traffic.program.stop", "3 s")], 1);
    let own = flow(&stopped, "program");
    assert!(own.finished.is_none() && own.failures == 0 && own.measured > 0, "{own:?}");
    let (whole, rate) = (flow(&ran(&SHORT, 1), "program"), 10e6 / 8.0);
    assert!(own.delivered < whole.delivered && (own.delivered as f64) < 3.1 * rate, "{own:?} {whole:?}");
    // So short that the engine has all of it at once, and that it is over before anybody looks again.
    for over in ["tcp", "tls", "quic", "sctp"] {
        let mut set = bytes("10 kB").to_vec();
        set.extend([("over", over), ("rtt", "10 ms")]);
        let own = flow(&ran(&set, 1), "program");
        assert!(own.delivered == 10_000 && own.finished.is_some() && own.failures == 0, "{over}: {own:?}");
        set.push(("loss", "100 %"));
        set.push(("duration", "120 s"));
        let own = flow(&ran(&set, 1), "program");
        assert_eq!((own.delivered, own.failures), (0, 1), "{over}: {own:?}");
    }
    let mut set = bytes("200 kB").to_vec();
    set.extend([("rate", "100 kbit/s"), ("traffic.program.stop", "3 s")]);
    let own = flow(&ran(&set, 1), "program");
    assert!(own.delivered < 45_000 && own.finished.is_none(), "it ends when it is to stop: {own:?}");
    let down = ran(&[SHORT[0], SHORT[1], ("loss", "100 %"), ("duration", "120 s")], 1);
    let own = flow(&down, "program");
    assert_eq!((own.delivered, own.failures), (0, 1), "{own:?}");
}

#[test]
fn several_flows_of_one_host_are_told_apart_over_either_family() {
    for over in ["quic", "tls", "tcp", "sctp"] {
        let set = [
            ("over", over),
            ("traffic.program.flows", "3"),
            ("traffic.program.bytes", "300 kB"),
            ("traffic.program.start-within", "200 ms"),
            ("traffic.program.ip", "6"),
            ("traffic.cubic.start", "1 h"),
            SHORT[0],
            SHORT[1],
        ];
        let programs = ran(&set, 5);
        let own: Vec<_> = programs.flows().into_iter().filter(|f| f.delivered > 0).collect();
        assert_eq!(own.len(), 3, "{over}: {own:?}");
        for f in own {
            assert!(f.delivered == 300_000 && f.finished.is_some() && f.failures == 0, "{over}: {f:?}");
        }
    }
}

#[test]
fn probes_and_traces_show_a_program_and_change_nothing() {
    let mut programs = ran(&SHORT, 1);
    let unseen = ran(&[SHORT[0], SHORT[1], ("probe", "[]")], 1);
    assert_eq!(programs.network().world.digest(), unseen.network().world.digest());
    let samples = programs.take_samples();
    let table = |name: &str| samples.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no table {name}"));
    let (own, goodput) = (table("program"), table("goodput"));
    assert_eq!(own.subjects, ["program.0"]);
    assert!(own.rows.len() > 70 && own.rows.iter().all(|r| r.values[0] > 0.0), "{} rows", own.rows.len());
    assert_eq!(goodput.subjects, ["cubic.0", "program.0"]);
    assert!(goodput.rows.windows(2).all(|w| w[0].at <= w[1].at), "in the order of time");
    let sum: f64 = goodput.rows.iter().filter(|r| r.subject == 1).map(|r| r.values[0]).sum();
    let delivered = flow(&programs, "program").delivered as f64;
    assert!((sum / delivered - 1.0).abs() < 0.05, "{sum} of {delivered}");
    let qlogs = programs.into_qlogs();
    let names: Vec<_> = qlogs.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["trace-l1-client-0.qlog", "trace-r1-server-1.qlog"]);
    for (name, bytes) in &qlogs {
        let text = String::from_utf8_lossy(bytes);
        assert!(text.contains("recovery:metrics_updated") || text.contains("transport:packet_sent"), "{name}");
    }
}

#[test]
fn what_makes_no_sense_is_said() {
    let wrong = |set: &[(&str, &str)]| {
        let set: Vec<_> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Scenario::parse(shipped("programs").expect("shipped"), &set).map(|_| ()).expect_err("refused").to_string()
    };
    assert!(wrong(&[("over", "carrier pigeon")]).contains("model"), "{}", wrong(&[("over", "carrier pigeon")]));
    for over in ["quic", "tls"] {
        assert!(wrong(&[("over", over), ("traffic.program.tcp.congestion", "cubic")]).contains("TCP of its host"));
    }
    let many = Programs::build(&scenario(&[("traffic.program.flows", "1001")]), 1).expect_err("too many");
    assert!(many.contains("1000 flows with programs"), "{many}");
}
