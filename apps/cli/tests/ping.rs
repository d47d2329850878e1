//! `neater ping` as people and programs call it, on the loopback and by two interfaces of a
//! namespace.

mod common;

use common::{Folder, neater, of, run};
use std::net::TcpListener;
use std::process::Command;

fn ping(target: &str, more: &[&str]) -> common::Ran {
    run(neater().args(["ping", "--json", "-c", "4", "-i", "0.02", "-t", "0.4"]).args(more).arg(target))
}

#[test]
fn every_probe_is_told_and_what_it_comes_to() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let ran = ping(&format!("127.0.0.1:{port}"), &[]);
    let events = ran.events();
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let probes = of(&events, "probe");
    assert_eq!(probes.len(), 4);
    let ways = of(&events, "way");
    assert_eq!(ways.len(), 1);
    let way = ways[0];
    assert_eq!((&way["interface"], &way["local"]), (&"lo".into(), &"127.0.0.1".into()));
    assert_eq!(
        (way["sent"].as_u64(), way["connected"].as_u64(), way["loss_percent"].as_f64()),
        (Some(4), Some(4), Some(0.0))
    );
    let mut times: Vec<f64> = probes.iter().map(|p| p["ms"].as_f64().expect("a time")).collect();
    times.sort_by(f64::total_cmp);
    assert_eq!(way["min_ms"].as_f64(), times.first().copied());
    // The mean of the two in the middle, to the microsecond.
    let median = way["median_ms"].as_f64().expect("a time");
    assert!((median - (times[1] + times[2]) / 2.0).abs() <= 0.0011, "{median} of {times:?}");
    assert_eq!(way["max_ms"].as_f64(), times.last().copied());
    let text = run(neater().args(["ping", "-c", "1", &format!("127.0.0.1:{port}")]));
    assert!(text.out.contains("lo 127.0.0.1 -> 127.0.0.1: 0."), "{}", text.out);
}

#[test]
fn what_does_not_connect_says_why() {
    // A port that has just become free may be another program's by now.
    let ran = ping("127.0.0.1:1", &[]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let events = ran.events();
    let way = of(&events, "way")[0];
    assert_eq!((&way["errors"]["refused"], way["loss_percent"].as_f64()), (&4.into(), Some(100.0)));
    assert!(way["median_ms"].is_null());
    for (args, says) in [
        (&["ping", "127.0.0.1:0"][..], "port 0"),
        (&["ping", "--interface", "no-such", "127.0.0.1:9"], "there are lo"),
        (&["ping", "-c", "0", "127.0.0.1"], "--count"),
        (&["ping", "-i", "0", "127.0.0.1"], "from 0.001"),
    ] {
        let ran = run(neater().args(args));
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(says), "{args:?}: {}", ran.err);
    }
}

/// Two namespaces with two links between them, which go with this.
struct Two([String; 2]);

impl Two {
    /// `None` where that is not allowed.
    fn new() -> Option<Self> {
        let id = std::process::id();
        let [here, there] = ["a", "b"].map(|side| format!("neater-ping-{id}-{side}"));
        if !ip(&["netns", "add", &here]) {
            return None;
        }
        let two = Self([here, there]);
        let [here, there] = &two.0;
        let mut done = ip(&["netns", "add", there]);
        for n in ["1", "2"] {
            let (a, b) = (format!("a{n}"), format!("b{n}"));
            done &= ip(&["-n", here, "link", "add", &a, "type", "veth", "peer", "name", &b, "netns", there]);
            for (space, link, host) in [(here, &a, "1"), (there, &b, "2")] {
                done &= ip(&["-n", space, "address", "add", &format!("10.77.{n}.{host}/24"), "dev", link]);
                done &= ip(&["-n", space, "link", "set", link, "up"]);
            }
        }
        assert!(done, "the namespace is there, but not what belongs into it");
        Some(two)
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        for space in &self.0 {
            ip(&["netns", "delete", space]);
        }
    }
}

fn ip(args: &[&str]) -> bool {
    Command::new("ip").args(args).output().is_ok_and(|out| out.status.success())
}

#[test]
fn whoever_is_ended_says_what_was_found_and_that_it_was_interrupted() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let open = listener.local_addr().expect("an address").to_string();
    for name in ["-TERM", "-INT"] {
        let mut c = neater();
        c.args(["ping", "--json", "-c", "1000", "-i", "0.05", &open]).stdout(std::process::Stdio::piped());
        let child = c.stderr(std::process::Stdio::null()).spawn().expect("started");
        std::thread::sleep(std::time::Duration::from_millis(500));
        common::signal(&child, name);
        let ended = child.wait_with_output().expect("it ends");
        let events = common::parse(&String::from_utf8_lossy(&ended.stdout));
        assert_eq!((ended.status.code(), of(&events, "way").len()), (Some(130), 1), "{name}: {events:?}");

        // There is no answer: the resolver is this test.
        let deaf = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let folder = Folder::new("interrupted");
        let port = deaf.local_addr().expect("an address").port();
        let conf = folder.put("resolv.conf", format!("nameserver 127.0.0.1#{port}\n"));
        let mut c = neater();
        c.args(["explain", "--json", "--try", "nobody.test:443", "--resolv-conf"]).arg(&conf);
        let child =
            c.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().expect("started");
        deaf.recv(&mut [0; 512]).expect("a question");
        common::signal(&child, name);
        let ended = child.wait_with_output().expect("it ends");
        let events = common::parse(&String::from_utf8_lossy(&ended.stdout));
        let failed = of(&events, "failed");
        assert_eq!((ended.status.code(), failed.len()), (Some(130), 1), "{name}: {events:?}");
        assert_eq!(failed[0]["kind"], "interrupted", "{events:?}");
    }
}

#[test]
fn each_interface_is_asked_by_itself_and_the_one_that_works_is_first() {
    let Some(two) = Two::new() else {
        common::say_skipped("ping by two interfaces: making namespaces is for root");
        return;
    };
    let [here, there] = &two.0;
    // What comes by the first link is not answered.
    assert!(ip(&["-n", there, "route", "add", "blackhole", "10.77.1.1/32"]));
    let folder = Folder::new("ping");
    let hosts = folder.put("hosts", "10.77.1.2 two.test\n10.77.2.2 two.test\n");
    let inside = |space: &str| {
        let mut c = Command::new("ip");
        c.args(["netns", "exec", space, env!("CARGO_BIN_EXE_neater")]);
        c
    };
    let mut server = inside(there)
        .args(["serve", "--json", "--plain", "--port", "8080", "--bind", "0.0.0.0"])
        .arg(folder.path("."))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("a server");
    let mut first = String::new();
    let told =
        std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().expect("a pipe")), &mut first);
    let ran = run(inside(here)
        .args(["ping", "--json", "-c", "3", "-i", "0.05", "-t", "0.3", "--hosts"])
        .arg(&hosts)
        .arg("two.test:8080"));
    // `ip` has become the server.
    let _ = server.kill();
    let _ = server.wait();
    told.expect("the server says where it is");
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let events = ran.events();
    let ways = of(&events, "way");
    let seen: Vec<_> = ways
        .iter()
        .map(|w| (w["interface"].as_str(), w["connected"].as_u64(), w["errors"]["timeout"].as_u64()))
        .collect();
    assert_eq!(seen, [(Some("a2"), Some(3), None), (Some("a1"), Some(0), Some(3))], "{}", ran.out);
    assert!(ways[0]["median_ms"].as_f64().is_some_and(|ms| ms < 100.0), "{}", ran.out);
    assert_eq!(ways[1]["local"], "10.77.1.1");
}
