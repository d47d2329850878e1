//! `neater get --multi`: one file by two interfaces of a namespace, with one of them failing before
//! and in the middle.

mod common;

use common::{Folder, neater, noise, of, parse, run, say_skipped};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Two namespaces with two links between them, a server in one, and what is served. They go with
/// this.
struct Two {
    spaces: [String; 2],
    servers: Vec<Child>,
    folder: Folder,
    file: Vec<u8>,
}

/// Waits until something is so, but not for ever.
fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(60), "it never came to pass that {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The number of pieces that a note records.
fn noted(path: &Path) -> u32 {
    let note: Value = serde_json::from_slice(&std::fs::read(path).unwrap_or_default()).unwrap_or_default();
    let digits = note["there"].as_str().unwrap_or_default();
    digits.chars().filter_map(|c| c.to_digit(16)).map(u32::count_ones).sum()
}

fn ip(args: &[&str]) -> bool {
    Command::new("ip").args(args).output().is_ok_and(|out| out.status.success())
}

impl Two {
    /// `None` where that is not allowed. Both links carry `mbit`, and the file has so many bytes.
    fn new(name: &str, mbit: u32, bytes: usize) -> Option<Self> {
        let mut two = Self::links(name, mbit, bytes)?;
        two.serve("0.0.0.0", "www");
        Some(two)
    }

    /// The same without a server.
    fn links(name: &str, mbit: u32, bytes: usize) -> Option<Self> {
        let spaces = ["a", "b"].map(|side| format!("neater-multi-{name}-{}-{side}", std::process::id()));
        if !ip(&["netns", "add", &spaces[0]]) {
            say_skipped(&format!("get --multi, {name}: making namespaces is for root"));
            return None;
        }
        let two = Self { spaces, servers: Vec::new(), folder: Folder::new(name), file: noise(bytes, 7) };
        let [here, there] = two.spaces.clone();
        let mut done = ip(&["netns", "add", &there]);
        for n in ["1", "2"] {
            let (a, b) = (format!("a{n}"), format!("b{n}"));
            done &= ip(&["-n", &here, "link", "add", &a, "type", "veth", "peer", "name", &b, "netns", &there]);
            for (space, link, host) in [(&here, &a, "1"), (&there, &b, "2")] {
                done &= ip(&["-n", space, "address", "add", &format!("10.78.{n}.{host}/24"), "dev", link]);
                done &= ip(&["-n", space, "link", "set", link, "up"]);
            }
            let rate = format!("{mbit}mbit");
            let shaped = [
                "-n", &there, "qdisc", "add", "dev", &b, "root", "tbf", "rate", &rate, "burst", "64k", "latency",
                "100ms",
            ];
            if !Command::new("tc").args(shaped).stderr(Stdio::null()).status().is_ok_and(|s| s.success()) {
                say_skipped(&format!(
                    "get --multi, {name}: this kernel has no token bucket (sch_tbf), or there is no tc"
                ));
                return None;
            }
        }
        assert!(done, "the namespace is there, but not what belongs into it");
        two.folder.put("www/big", &two.file);
        two.folder.put("hosts", "10.78.1.2 two.test\n10.78.2.2 two.test\n");
        Some(two)
    }

    /// Serves a folder of ours at an address of the other side.
    fn serve(&mut self, at: &str, folder: &str) {
        self.serve_over("TCP", at, folder);
    }

    /// The same over these transports.
    fn serve_over(&mut self, transports: &str, at: &str, folder: &str) {
        let mut server = self
            .inside(&self.spaces[1])
            .args(["serve", "--json", "--plain", "--port", "8080", "--transport", transports, "--bind", at])
            .arg(self.folder.path(folder))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a server");
        let mut first = String::new();
        BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut first).expect("it says where it is");
        self.servers.push(server);
    }

    /// What stands in the way on the first link: whatever is asked for there, this is the answer.
    /// A socket on the other side, for a server that is not `neater serve`.
    fn listener(&self, at: &'static str) -> TcpListener {
        let space = std::fs::File::open(format!("/run/netns/{}", self.spaces[1])).expect("a namespace");
        let listener = std::thread::spawn(move || {
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&space), kind).expect("for root");
            // Addresses are announced on their own link alone: this one is not to be had by the
            // other.
            std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1").expect("ours");
            TcpListener::bind(at).expect("bound")
        });
        listener.join().expect("bound")
    }

    fn portal(&self, answer: &'static [u8]) {
        let listener = self.listener("10.78.1.2:8080");
        std::thread::spawn(move || {
            for mut c in listener.incoming().flatten() {
                let _ = c.read(&mut [0; 4096]);
                let _ = c.write_all(answer);
            }
        });
    }

    /// A server of the file that sends no more than `most` bytes at once, whatever is asked for.
    fn stingy(&self, at: &'static str, most: usize) {
        let (listener, file) = (self.listener(at), self.file.clone());
        std::thread::spawn(move || {
            for mut c in listener.incoming().flatten() {
                let file = file.clone();
                std::thread::spawn(move || {
                    let (mut buf, mut asked) = ([0; 4096], String::new());
                    while let Ok(n @ 1..) = c.read(&mut buf) {
                        asked.push_str(&String::from_utf8_lossy(&buf[..n]));
                        if !asked.ends_with("\r\n\r\n") {
                            continue;
                        }
                        let range = asked.split("bytes=").nth(1).and_then(|r| r.split_once("\r\n")).expect("a range").0;
                        let (first, last) = range.split_once('-').expect("a range");
                        let (first, last): (usize, usize) =
                            (first.parse().expect("a number"), last.parse().expect("a number"));
                        let last = last.min(first + most - 1);
                        let head = format!(
                            "HTTP/1.1 206 Partial Content\r\nETag: \"v\"\r\nContent-Length: {}\r\n\
                             Content-Range: bytes {first}-{last}/{}\r\n\r\n",
                            last + 1 - first,
                            file.len()
                        );
                        let _ = c.write_all(&[head.as_bytes(), &file[first..=last]].concat());
                        asked.clear();
                    }
                });
            }
        });
    }

    fn inside(&self, space: &str) -> Command {
        let mut c = Command::new("ip");
        c.args(["netns", "exec", space, env!("CARGO_BIN_EXE_neater")])
            .env_remove("NEATER_POLICY")
            .env("NEATER_CACHE", "");
        c
    }

    fn get(&self, more: &[&str]) -> Command {
        let mut c = self.inside(&self.spaces[0]);
        c.args(["get", "--json", "--multi", "--timeout", "3", "--hosts"]).arg(self.folder.path("hosts"));
        c.args(more).arg("-o").arg(self.folder.path("out")).arg("http://two.test:8080/big");
        c
    }

    /// From now on, nothing comes back by the first link.
    fn cut(&self) {
        assert!(ip(&["-n", &self.spaces[1], "route", "add", "blackhole", "10.78.1.1/32"]));
    }

    /// The pieces that the interfaces brought, and that the whole is there and nothing else.
    fn pieces(&self, code: Option<i32>, out: &str) -> Vec<(String, u64)> {
        assert_eq!(code, Some(0), "{out}");
        assert!(self.folder.read("out") == self.file, "the file is another");
        assert!(!self.folder.path("out.multi").exists());
        let events = parse(out);
        let way =
            |w: &&Value| (w["interface"].as_str().unwrap_or_default().to_owned(), w["pieces"].as_u64().unwrap_or(0));
        of(&events, "way").iter().map(way).collect()
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        for space in &self.spaces {
            ip(&["netns", "delete", space]);
        }
    }
}

#[test]
fn both_interfaces_bring_pieces_and_a_policy_chooses_among_them() {
    let Some(two) = Two::new("both", 80, 6 << 20) else { return };
    let ran = run(&mut two.get(&["--no-policy"]));
    let mut brought = two.pieces(Some(ran.code), &ran.out);
    brought.sort();
    assert_eq!(brought.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a1", "a2"]);
    assert!(brought.iter().all(|(_, pieces)| *pieces >= 3), "{brought:?}");

    let denied = r#"{"uid": "not-a1", "match": {"interface": {"value": "a1"}}, "properties": [[]]}"#;
    two.folder.put("policy/not-a1.policy", denied);
    let policy = two.folder.path("policy").display().to_string();
    let ran = run(&mut two.get(&["--policy", &policy]));
    // One way needs no pieces.
    let events = common::parse(&ran.out);
    let one = common::of(&events, "one-way");
    let named = one.first().and_then(|e| e["message"].as_str()).unwrap_or_default();
    assert!(ran.code == 0 && named.contains("only a2"), "{}{}", ran.out, ran.err);
}

/// Over SCTP one association has a path by each interface, and `neater paths` shows what they
/// carry.
#[test]
fn over_sctp_one_association_has_both_interfaces_and_its_paths_are_shown() {
    let Some(mut two) = Two::links("one", 20, 12 << 20) else { return };
    two.serve_over("TCP,SCTP", "0.0.0.0", "www");
    carried_by_both(&two, &["--multi", "--transport", "SCTP"]);
}

/// Over MPTCP the system opens the second path, once it knows the second interface.
#[test]
fn over_mptcp_one_connection_has_both_interfaces_and_its_paths_are_shown() {
    let Some(mut two) = Two::links("mptcp", 20, 12 << 20) else { return };
    let manage = |space: &str, args: &[&str]| {
        let ran = run(two.inside(space).args(["mptcp", "--json", "--subflows", "2"]).args(args));
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        ran.events().pop().unwrap_or_default()
    };
    if !std::path::Path::new("/proc/sys/net/mptcp").exists() {
        say_skipped("get over MPTCP: this kernel has none");
        return;
    }
    manage(&two.spaces[1], &[]);
    for _ in 0..2 {
        let told = manage(&two.spaces[0], &["--use", "a2"]);
        let endpoints = told["endpoints"].as_array().cloned().unwrap_or_default();
        assert_eq!((endpoints.len(), &told["subflows"]), (1, &Value::from(2)), "{told}");
        assert_eq!((&endpoints[0]["address"], &endpoints[0]["interface"]), (&"10.78.2.1".into(), &"a2".into()));
        assert_eq!(endpoints[0]["purposes"], serde_json::json!(["subflow"]));
    }
    two.serve_over("TCP", "0.0.0.0", "www");
    carried_by_both(&two, &["--transport", "TCP", "--needs", "multipath=Active"]);
    let told = run(two.inside(&two.spaces[0]).args(["mptcp", "--json", "--forget", "a2"])).events().pop();
    assert_eq!(told.expect("an event")["endpoints"], serde_json::json!([]));
    let refused = run(two.inside(&two.spaces[0]).args(["mptcp", "--use", "nothing"]));
    assert!(refused.code == 1 && refused.err.contains("there is no interface nothing"), "{}", refused.err);
}

/// Fetches the file over one connection, and sees that both interfaces carry a good part of it.
fn carried_by_both(two: &Two, how: &[&str]) {
    // Both interfaces lead to the address that is asked for, the first one more directly.
    for (via, metric) in [(&["dev", "a1"][..], "100"), (&["via", "10.78.2.2", "dev", "a2"][..], "200")] {
        let route = [&["-n", &two.spaces[0], "route", "add", "10.78.1.2/32"], via, &["metric", metric]].concat();
        assert!(ip(&route), "{route:?}");
    }
    let run_dir = two.folder.path("run");
    std::fs::create_dir_all(&run_dir).expect("a folder");
    let mut get = two.inside(&two.spaces[0]);
    get.args(["get", "--json", "--no-policy"]).args(how).arg("-o").arg(two.folder.path("out"));
    get.arg("http://10.78.1.2:8080/big").env("XDG_RUNTIME_DIR", &run_dir).stdout(Stdio::piped());
    let get = get.spawn().expect("started");
    // Where the transfer fails there is nothing to wait for.
    let mut paths = Command::new("timeout");
    paths.args(["60", env!("CARGO_BIN_EXE_neater"), "paths", "--json", "--wait", "--interval", "0.5"]);
    let shown = run(paths.env("XDG_RUNTIME_DIR", &run_dir));
    let output = get.wait_with_output().expect("it ends");
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}");
    assert!(two.folder.read("out") == two.file, "the file is another");
    assert_eq!(shown.code, 0, "{}", shown.err);
    let events = parse(&out);
    for (by, objects) in [("get", of(&events, "paths")), ("paths", of(&shown.events(), "paths"))] {
        let last = objects.last().unwrap_or_else(|| panic!("{by} says nothing of paths: {out}"));
        let mut both: Vec<_> = last["paths"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|p| {
                assert_eq!(p["state"], "in use", "{by}: {p}");
                (p["interface"].as_str().unwrap_or_default().to_owned(), p["received"].as_u64().unwrap_or(0))
            })
            .collect();
        both.sort();
        let carried: u64 = both.iter().map(|(_, received)| received).sum();
        assert_eq!(both.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a1", "a2"], "{by}");
        assert!(both.iter().all(|(_, received)| *received * 10 > carried * 3), "{by}: {both:?} {last}");
    }
    assert!(std::fs::read_dir(run_dir.join("neater")).expect("a folder").next().is_none(), "nothing is left");
}

#[test]
fn an_interface_that_leads_nowhere_leaves_its_pieces_to_the_other() {
    let Some(two) = Two::new("dead", 200, 4 << 20) else { return };
    two.cut();
    let ran = run(&mut two.get(&["--no-policy"]));
    let brought = two.pieces(Some(ran.code), &ran.out);
    let of = |name: &str| brought.iter().find(|(n, _)| n == name).map(|(_, pieces)| *pieces);
    assert_eq!(of("a1"), Some(0), "{brought:?}");
    assert!(of("a2").is_some_and(|pieces| pieces > 0));
}

#[test]
fn an_interface_that_fails_in_the_middle_leaves_the_rest_to_the_other() {
    // 16 MB at twice 20 Mbit/s are more than three seconds.
    let Some(two) = Two::new("middle", 20, 16 << 20) else { return };
    let mut child = two.get(&["--no-policy"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(child.try_wait().expect("a state").is_none(), "it is on its way");
    two.cut();
    let mut out = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut out).expect("text");
    let code = child.wait().expect("ended").code();
    let brought = two.pieces(code, &out);
    let of = |name: &str| brought.iter().find(|(n, _)| n == name).map_or(0, |(_, pieces)| *pieces);
    assert!(of("a1") > 0 && of("a2") > of("a1"), "{brought:?}");
}

#[test]
fn what_cannot_be_taken_apart_is_fetched_as_usual_and_what_makes_no_sense_refused() {
    let folder = Folder::new("multi-plain");
    folder.put("www/a", noise(300_000, 3));
    let serving = common::Serving::new(&folder.path("www"), &folder.path("state"), &["--plain"]);
    let url = format!("http://localhost:{}/a", serving.port);
    let ran = run(neater().args(["get", "--multi", "--json", "-o"]).arg(folder.path("out")).arg(&url));
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(folder.read("out"), noise(300_000, 3));
    let ran = run(neater().args(["get", "--multi", &url]));
    assert_eq!(ran.code, 2, "standard output takes no pieces: {}", ran.err);
    let missing = format!("http://localhost:{}/none", serving.port);
    let ran = run(neater().args(["get", "--multi", "-o"]).arg(folder.path("none")).arg(&missing));
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert!(!folder.path("none").exists() && !folder.path("none.multi").exists());
    // What lies there is perhaps another's.
    folder.put("out.multi", "mine");
    let ran = run(neater().args(["get", "--multi", "-o"]).arg(folder.path("out")).arg(&url));
    assert_eq!(ran.code, 4, "{}", ran.err);
    assert_eq!(folder.read("out.multi"), b"mine");
}

#[test]
fn what_came_before_an_interrupt_is_not_fetched_again() {
    let Some(two) = Two::new("again", 20, 16 << 20) else { return };
    // An interface from which nothing leads to the server.
    assert!(ip(&["-n", &two.spaces[0], "link", "add", "d0", "type", "veth", "peer", "name", "d1"]));
    assert!(ip(&["-n", &two.spaces[0], "address", "add", "198.51.100.1/24", "dev", "d0"]));
    for end in ["d0", "d1"] {
        assert!(ip(&["-n", &two.spaces[0], "link", "set", end, "up"]));
    }
    let mut child = two.get(&["--no-policy"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
    std::thread::sleep(Duration::from_millis(1800));
    common::signal(&child, "-INT");
    let mut out = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut out).expect("text");
    assert_eq!(child.wait().expect("ended").code(), Some(130), "{out}");
    assert!(out.contains("go on with") && out.contains("-C"), "{out}");
    let summary = parse(&out).into_iter().find(|e| e["event"] == "summary").expect("a sum");
    assert_eq!((&summary["files"], &summary["failed"]), (&1.into(), &1.into()), "{summary}");
    assert!(
        two.folder.path("out.multi").exists()
            && two.folder.path("out.multi.json").exists()
            && !two.folder.path("out").exists()
    );
    // Without -C nothing of it is touched.
    let ran = run(&mut two.get(&["--no-policy"]));
    assert!(ran.code != 0 && ran.out.contains("-C goes on with it"), "{}", ran.out);

    let ran = run(&mut two.get(&["--no-policy", "-C"]));
    let mut brought = two.pieces(Some(ran.code), &ran.out);
    brought.sort();
    assert_eq!(brought.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a1", "a2"], "d0 leads elsewhere");
    let events = parse(&ran.out);
    let done = of(&events, "done")[0];
    assert_eq!(done["outcome"], "continued");
    assert!(done["received"].as_u64().is_some_and(|n| n < 15 << 20), "{done}");
    assert!(!two.folder.path("out.multi.json").exists());
}

#[test]
fn what_came_before_a_run_was_killed_is_not_fetched_again() {
    // 24 MB at twice 20 Mbit/s are five seconds, and each second is noted what has come.
    let Some(two) = Two::new("killed", 20, 24 << 20) else { return };
    let mut child = two.get(&["--no-policy"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
    wait_for("four pieces are noted", || {
        assert!(child.try_wait().expect("a state").is_none(), "it is on its way");
        noted(&two.folder.path("out.multi.json")) >= 4
    });
    common::signal(&child, "-KILL");
    let _ = child.wait();
    assert!(two.folder.path("out.multi").exists() && two.folder.path("out.multi.json").exists());
    let ran = run(&mut two.get(&["--no-policy", "-C"]));
    two.pieces(Some(ran.code), &ran.out);
    let events = parse(&ran.out);
    let done = of(&events, "done")[0];
    assert_eq!(done["outcome"], "continued");
    // Four pieces of 32, and each way may fetch again what the other is at.
    assert!(done["received"].as_u64().is_some_and(|n| n < 22 << 20), "{done}");
    // What is complete is not fetched again either.
    let ran = run(&mut two.get(&["--no-policy", "-C"]));
    let events = parse(&ran.out);
    assert_eq!((ran.code, &of(&events, "done")[0]["outcome"]), (0, &"already-there".into()), "{}", ran.out);
}

#[test]
fn a_portal_in_the_way_of_one_interface_spoils_nothing() {
    let Some(mut two) = Two::links("portal", 80, 6 << 20) else { return };
    two.serve("10.78.2.2", "www");
    two.portal(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlogin");
    let ran = run(&mut two.get(&["--no-policy"]));
    let brought = two.pieces(Some(ran.code), &ran.out);
    let of = |name: &str| brought.iter().find(|(n, _)| n == name).map(|(_, pieces)| *pieces);
    assert_eq!(of("a1"), Some(0), "{brought:?}");
    assert!(of("a2").is_some_and(|pieces| pieces > 0));
}

#[test]
fn answers_that_hold_less_than_was_asked_for_are_put_together() {
    let Some(two) = Two::links("stingy", 20, 3 << 20) else { return };
    two.stingy("10.78.1.2:8080", 50_000);
    two.stingy("10.78.2.2:8080", 70_001);
    let ran = run(&mut two.get(&["--no-policy"]));
    let brought = two.pieces(Some(ran.code), &ran.out);
    assert!(brought.iter().all(|(_, pieces)| *pieces > 0), "{brought:?} {}", ran.out);
    assert!(of(&parse(&ran.out), "way").iter().all(|w| w["failures"] == 0), "{}", ran.out);
}

#[test]
fn pieces_outlive_answers_of_another_version() {
    let Some(mut two) = Two::links("versions", 20, 16 << 20) else { return };
    let other = noise(16 << 20, 8);
    two.folder.put("www2/big", &other);
    two.serve("10.78.1.2", "www");
    two.serve("10.78.2.2", "www2");
    // Two servers with a version each: one way brings all of one of them.
    let ran = run(&mut two.get(&["--no-policy"]));
    assert_eq!(ran.code, 0, "{}", ran.out);
    let got = two.folder.read("out");
    assert!(got == two.file || got == other, "a mixture");
    std::fs::remove_file(two.folder.path("out")).expect("there");

    // The file changes in the middle, by all ways: it is reported, and what came stays until more
    // than one path has confirmed it.
    for folder in ["www", "www2"] {
        std::fs::remove_file(two.folder.path(&format!("{folder}/big"))).expect("there");
    }
    let first = two.folder.put("www/big", &two.file);
    std::fs::hard_link(&first, two.folder.path("www2/big")).expect("linked");
    let child = two.get(&["--no-policy", "--retries", "1"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let child = child.expect("started");
    let second = two.folder.put("new", &other);
    let third = two.folder.path("newer");
    std::fs::hard_link(&second, &third).expect("linked");
    // Something has come of the first version: that is worth keeping.
    wait_for("a piece is noted", || noted(&two.folder.path("out.multi.json")) > 0);
    std::fs::rename(&second, &first).expect("renamed");
    std::fs::rename(&third, two.folder.path("www2/big")).expect("renamed");
    let out = child.wait_with_output().expect("ended");
    let out = (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned());
    let events = parse(&out.1);
    assert_eq!((out.0, &of(&events, "failed")[0]["kind"]), (Some(1), &"changed".into()), "{}", out.1);
    assert!(two.folder.path("out.multi").exists() && out.1.contains("what came is kept"), "{}", out.1);
    let ran = run(&mut two.get(&["--no-policy", "-C"]));
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(two.folder.read("out") == other, "begun anew");
}

#[test]
fn a_folder_that_is_not_there_is_named_as_what_is_wrong() {
    let Some(two) = Two::new("nofolder", 80, 1 << 20) else { return };
    let mut c = two.inside(&two.spaces[0]);
    c.args(["get", "--json", "--multi", "--no-policy", "--hosts"]).arg(two.folder.path("hosts"));
    let ran = run(c.arg("-o").arg(two.folder.path("nowhere/out")).arg("http://two.test:8080/big"));
    assert!(ran.code != 0 && !ran.out.contains("another neater"), "{}", ran.out);
    // One version over one transport is reported once.
    let mut c = two.inside(&two.spaces[0]);
    c.args(["get", "--multi", "--no-policy", "--hosts"]).arg(two.folder.path("hosts"));
    let ran = run(c.arg("-o").arg(two.folder.path("out")).arg("http://two.test:8080/big"));
    assert!(ran.code == 0 && ran.err.matches("over TCP").count() >= 1 && !ran.err.contains(", then"), "{}", ran.err);
}
