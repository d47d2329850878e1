//! Throughput over loss and buffer size, as it was when somebody last looked: a change of behaviour shows as a difference in
//! `sim/netsim/snapshots/throughput.csv`. `SNAPSHOT=overwrite` writes the table anew.

use neater_netsim::World;
use neater_scenario::{Scenario, shipped};
use neater_testkit::Programs;
use std::fmt::Write;
use std::path::Path;

const LOSS: [&str; 5] = ["0 %", "0.1 %", "0.5 %", "1 %", "2.5 %"];
const QUEUE: [&str; 4] = ["0.25 BDP", "0.5 BDP", "1 BDP", "2 BDP"];

/// One NewReno and one CUBIC transfer over 10 Mbit/s and 50 ms, alone, for 20 s after 2 s.
fn row(controller: &str, loss: &str, queue: &str) -> String {
    let set = [("loss", loss), ("queue", queue), ("warm-up", "2 s"), ("duration", "20 s"), ("probe", "[]")];
    let mut set: Vec<_> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    // The other one only starts when it is over.
    let other = if controller == "cubic" { "newreno" } else { "cubic" };
    set.push((format!("traffic.{other}.start"), "1 h".to_owned()));
    let scenario = Scenario::parse(shipped("dumbbell").unwrap_or_default(), &set).unwrap_or_else(|e| panic!("{e}"));
    let network = World::build(&scenario, 1).unwrap_or_else(|e| panic!("{e}"));
    network.run(|_| true);
    let index = scenario.traffic.iter().position(|t| t.name == controller);
    let flow = network.flows().into_iter().find(|f| Some(f.traffic) == index).expect("the flow");
    let goodput = flow.goodput(scenario.duration) / 1e6;
    format!("{controller},{loss},{queue},{goodput:.4},{},{:.2}", flow.retransmits.unwrap_or(0), flow.rtt.mean * 1e3)
}

/// One transfer of our own code over the same path, alone.
fn own_row(over: &str, loss: &str, queue: &str) -> String {
    let set =
        [("over", over), ("loss", loss), ("queue", queue), ("warm-up", "2 s"), ("duration", "20 s"), ("probe", "[]")];
    let mut set: Vec<_> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    set.push(("traffic.cubic.start".to_owned(), "1 h".to_owned()));
    let scenario = Scenario::parse(shipped("programs").unwrap_or_default(), &set).unwrap_or_else(|e| panic!("{e}"));
    let mut programs = Programs::build(&scenario, 1).unwrap_or_else(|e| panic!("{e}"));
    programs.run(|_| true).unwrap_or_else(|e| panic!("{e}"));
    let index = scenario.traffic.iter().position(|t| t.name == "program");
    let flow = programs.flows().into_iter().find(|f| Some(f.traffic) == index).expect("the flow");
    let packets = programs.network().counters().iter().flatten().map(|c| c.offered).sum::<u64>();
    let goodput = flow.goodput(scenario.duration) / 1e6;
    format!("{over},{loss},{queue},{goodput:.4},{packets},{:.2}", flow.rtt.mean * 1e3)
}

#[test]
fn our_own_throughput_over_loss_and_buffer_is_what_it_was() {
    let mut table = String::from("over,loss,queue,goodput_mbit,packets,rtt_ms\n");
    for over in ["quic", "sctp"] {
        for loss in ["0 %", "0.1 %", "1 %"] {
            for queue in ["0.5 BDP", "1 BDP"] {
                let _ = writeln!(table, "{}", own_row(over, loss, queue));
            }
        }
    }
    is_as_known("../testkit/snapshots/programs.csv", &table, "QUIC or SCTP");
}

#[test]
fn throughput_over_loss_and_buffer_is_what_it_was() {
    let mut table = String::from("controller,loss,queue,goodput_mbit,retransmits,rtt_ms\n");
    for controller in ["newreno", "cubic"] {
        for loss in LOSS {
            for queue in QUEUE {
                let _ = writeln!(table, "{}", row(controller, loss, queue));
            }
        }
    }
    is_as_known("../netsim/snapshots/throughput.csv", &table, "the simulated TCP");
}

/// Compares a table with the one that is kept, or keeps it.
fn is_as_known(file: &str, table: &str, what: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var("SNAPSHOT").is_ok_and(|v| v == "overwrite") {
        std::fs::write(&path, table).expect("the table can be written");
        return;
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    let differs: Vec<_> =
        known.lines().zip(table.lines()).filter(|(a, b)| a != b).map(|(a, b)| format!("-{a}\n+{b}")).collect();
    assert!(
        known == table,
        "{what} behaves otherwise than {} says ({} lines):\n{}\nIf that is meant: SNAPSHOT=overwrite cargo test -p neater-testkit \
         --test all snapshots, and say why in the commit",
        path.display(),
        differs.len(),
        differs.join("\n")
    );
}
