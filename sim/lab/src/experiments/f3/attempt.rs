//! One place of the day: all workloads that are still to be done, at once, over one network after the other or where the
//! policy manager says; and what became of each, seen from outside.
//!
//! Whether something was attempted over a network is told by the packets that left the host there for the workload's server,
//! as tcpdump saw them; whether it succeeded, by its program.

use super::Scenario;
use super::day::{Day, Kind, Workload};
use super::network::Place;
use crate::experiments::Lab;
use crate::measure::{MeasureError, Result};
use neater_emulator::{self as live, Cmd, pcap};
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::Path;
use std::time::{Duration, Instant};

/// What became of an attempt, in the document's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Result3 {
    Success,
    Fail,
    NotAttempted,
}

impl Result3 {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Fail => "Fail",
            Self::NotAttempted => "Not Attempted",
        }
    }
}

/// An attempt over a network.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) workload: String,
    pub(super) place: String,
    pub(super) network: String,
    /// From the start of the day's stay at this place, in seconds.
    pub(super) began: f64,
    pub(super) seconds: f64,
    /// Bytes of IP packets to and from the server over this network.
    pub(super) bytes: u64,
    pub(super) result: Result3,
}

/// A day in one deployment scenario.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    pub(super) attempts: Vec<Attempt>,
    /// How long each place took, in seconds.
    pub(super) places: Vec<f64>,
}

impl Course {
    pub(super) fn result(&self, workload: &str, network: &str, place: &str) -> Result3 {
        let of = |a: &&Attempt| (&*a.workload, &*a.network, &*a.place) == (workload, network, place);
        self.attempts.iter().find(of).map_or(Result3::NotAttempted, |a| a.result)
    }

    fn is_done(&self, workload: &str) -> bool {
        self.attempts.iter().any(|a| a.workload == workload && a.result == Result3::Success)
    }
}

/// What a program did.
struct Ran {
    began: f64,
    seconds: f64,
    well: bool,
}

/// The programs of one workload, each over the network that it was bound to, or where it was led.
type Turns = Vec<(Option<usize>, Ran)>;

/// Spends the day. `dir` keeps what each place leaves.
pub(super) fn day(lab: &Lab, day: &Day, scenario: &Scenario, seed: u64, dir: &Path) -> Result<Course> {
    let mut course = Course::default();
    for (i, place) in day.places.iter().enumerate() {
        (lab.progress)(&format!("F3, {}: {}", scenario.title, place.name));
        let folder = dir.join(format!("{}-{i}", scenario.id));
        std::fs::create_dir_all(&folder)?;
        let left: Vec<&Workload> = day.workloads.iter().filter(|w| !course.is_done(&w.name)).collect();
        let there = Place::build(lab, day, scenario, place, seed + i as u64, &folder)?;
        let (attempts, seconds) = stay(lab, day, scenario, &there, &left)?;
        course.attempts.extend(attempts);
        course.places.push(seconds);
        drop(there);
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(course)
}

fn stay(
    lab: &Lab,
    day: &Day,
    scenario: &Scenario,
    there: &Place<'_>,
    left: &[&Workload],
) -> Result<(Vec<Attempt>, f64)> {
    let neater = lab.programs.neater()?;
    let mut captures = Vec::new();
    for i in 0..there.networks() {
        let (name, file) = (format!("eth{i}"), there.dir.join(format!("eth{i}.pcap")));
        captures.push(there.lab.capture("client", &name, "ip6 and not icmp6", 96, &file)?);
    }
    let start = Instant::now();
    // Where nobody tells, one network after the other; where a manager runs, it says.
    let turns: Vec<Option<usize>> = match scenario.domains {
        true => vec![None],
        false => (0..there.networks()).map(Some).collect(),
    };
    let ran: Vec<Result<Turns>> = std::thread::scope(|scope| {
        let threads: Vec<_> = left
            .iter()
            .map(|workload| {
                let turns = &turns;
                let one = move || {
                    let mut all = Vec::new();
                    for turn in turns {
                        let cmd = command(neater, day, there, workload, *turn)?;
                        let began = start.elapsed().as_secs_f64();
                        let out = there.lab.run("client", cmd).map_err(MeasureError::from)?;
                        // What the program could not do for want of a file or an option says nothing of networks.
                        if matches!(out.code, 2 | 4) && !out.timed_out {
                            let said = out.text() + &out.errors();
                            return Err(MeasureError::Failed(format!("{}: {}", out.command, said.trim())));
                        }
                        let well = out.code == 0 && !out.timed_out && is_whole(workload, &out);
                        std::fs::write(there.dir.join(format!("{}.out", workload.id)), out.text() + &out.errors())?;
                        all.push((*turn, Ran { began, seconds: out.wall.as_secs_f64(), well }));
                        if well {
                            break;
                        }
                    }
                    Ok(all)
                };
                scope.spawn(one)
            })
            .collect();
        let failed = || Err(MeasureError::Failed("a thread of F3 panicked".into()));
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| failed())).collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    let mut seen = Vec::new();
    for (i, capture) in captures.into_iter().enumerate() {
        let told = capture.stop()?;
        if told.missed > 0 {
            return Err(MeasureError::Failed(format!("tcpdump missed {} packets: no measurement", told.missed)));
        }
        seen.push((i, count(&pcap::read(&told.file)?)));
    }
    let mut attempts = Vec::new();
    for (workload, ran) in left.iter().zip(ran) {
        let server = there.server(&workload.server)?;
        for (turn, ran) in ran? {
            let over = seen.iter().filter(|(i, _)| turn.is_none_or(|t| t == *i));
            let over: Vec<(usize, Count)> =
                over.filter_map(|(i, by)| Some((*i, *by.get(&server)?))).filter(|(_, c)| c.out > 0).collect();
            // Over several networks at once: the one that carried it.
            let carrier = over.iter().max_by_key(|(_, c)| c.bytes).map(|(i, _)| *i);
            for (i, count) in over {
                let result = if ran.well && carrier == Some(i) { Result3::Success } else { Result3::Fail };
                attempts.push(Attempt {
                    workload: workload.name.clone(),
                    place: there.name.to_owned(),
                    network: there.network(i).to_owned(),
                    began: ran.began,
                    seconds: ran.seconds,
                    bytes: count.bytes,
                    result,
                });
            }
        }
    }
    Ok((attempts, seconds))
}

/// Whether everything came that was asked for, by the bytes that the program says it wrote.
fn is_whole(workload: &Workload, out: &live::Output) -> bool {
    let Kind::Get { objects, bytes } = workload.kind else { return true };
    let text = out.text() + &out.errors();
    let lines = text.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    lines.filter(|l| l["event"] == "done" && l["bytes"].as_u64() == Some(bytes)).count() == objects
}

/// The program of a workload, over a network or where it is led.
fn command(neater: &Path, day: &Day, there: &Place<'_>, workload: &Workload, turn: Option<usize>) -> Result<Cmd> {
    let needs = turn.map(|i| format!("interface=require:eth{i}"));
    let cmd = match workload.kind {
        Kind::Call { seconds, answered, within_ms } => {
            let to = format!("{}:{}", workload.server, super::network::CALL_PORT);
            let cmd = Cmd::new(std::env::current_exe()?).args(["call", "--to", &to]);
            let cmd = cmd.args(["--seconds", &seconds.to_string(), "--within-ms", &within_ms.to_string()]);
            cmd.args(["--answered", &answered.to_string()])
        }
        Kind::Get { objects, .. } => {
            let cmd = Cmd::new(neater).args(["get", "--json", "--retries", "0", "--parallel", "1", "--output-dir"]);
            // A folder of its own: what an earlier attempt left there would be gone on with.
            let folder = there.dir.join(format!("{}-{}", workload.id, turn.map_or(0, |t| t + 1)));
            std::fs::create_dir_all(&folder)?;
            let cmd = cmd.arg(folder);
            let port = super::network::WEB_PORT;
            cmd.args((0..objects).map(|n| format!("http://{}:{port}/{}-{n}", workload.server, workload.id)))
        }
    };
    let cmd = match needs {
        Some(needs) => cmd.args(["--no-policy", "--needs", &needs]),
        None => cmd.args(["--property", &format!("workload={}", workload.id)]),
    };
    let cmd = cmd.env("NEAT_PM_SOCKET", there.manager()).env("NEATER_POLICY", "").env("HOME", &there.dir);
    Ok(cmd.limit(Duration::from_secs(day.limit_seconds)))
}

/// What went to and fro between the host and a server.
#[derive(Clone, Copy, Default)]
struct Count {
    /// Packets of the host's.
    out: u64,
    /// Bytes, both ways.
    bytes: u64,
}

/// By the server's address.
fn count(packets: &[pcap::Packet]) -> BTreeMap<Ipv6Addr, Count> {
    let mut all: BTreeMap<Ipv6Addr, Count> = BTreeMap::new();
    for packet in packets {
        let at = |from: usize| packet.bytes.get(from..).and_then(|b| b.first_chunk::<16>()).map(|b| Ipv6Addr::from(*b));
        let (Some(source), Some(destination)) = (at(8), at(24)) else { continue };
        for (address, out) in [(destination, 1), (source, 0)] {
            let entry = all.entry(address).or_default();
            entry.out += out;
            entry.bytes += u64::from(packet.len);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_counted_by_who_they_are_for() {
        let host: Ipv6Addr = "fd00::1".parse().expect("an address");
        let server: Ipv6Addr = "fd00:0:0:9::1".parse().expect("an address");
        let packet = |from: Ipv6Addr, to: Ipv6Addr, len: u32| {
            let mut bytes = vec![0x60, 0, 0, 0, 0, 0, 6, 64];
            bytes.extend(from.octets());
            bytes.extend(to.octets());
            pcap::Packet { at: 0, len, bytes }
        };
        let mut packets = vec![packet(host, server, 60), packet(server, host, 1500), packet(host, server, 60)];
        packets.push(pcap::Packet { at: 0, len: 9, bytes: vec![0x60; 9] });
        let all = count(&packets);
        assert_eq!((all[&server].out, all[&server].bytes), (2, 1620));
    }
}
