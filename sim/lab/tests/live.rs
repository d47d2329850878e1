//! The live lab, with real packets in namespaces. Skips loudly without the privileges it needs.

use neater_emulator::{Cmd, Lab, LiveError, Options, Plan, pcap, pid_namespace, privileges};
use neater_link::{Filter, LinkConfig, Match, Protocol, QueueLimit};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// Whether there can be a lab here.
fn possible() -> bool {
    match privileges::check() {
        Ok(()) => true,
        Err(e) => {
            println!("SKIP: no live lab: {e}");
            false
        }
    }
}

fn tool(name: &str) -> bool {
    let there = privileges::need(name, name).is_ok();
    if !there {
        println!("SKIP: no {name} here");
    }
    there
}

fn up(plan: &Plan) -> Lab {
    Lab::up(plan, &Options::default()).expect("a lab")
}

fn slow() -> LinkConfig {
    LinkConfig::rate(10_000_000, Duration::from_millis(10)).with_queue(QueueLimit::Packets(100))
}

#[test]
fn hosts_see_each_other_by_name_over_both_families_and_the_delay_is_the_links() {
    if !possible() || !tool("ping") {
        return;
    }
    let lab = up(&Plan::dumbbell(1, slow(), slow(), 1));
    for family in ["-4", "-6"] {
        let start = Instant::now();
        let out = lab.run("client1", Cmd::new("ping").args([family, "-c", "3", "-i", "0.02", "server1"]).limit(LIMIT));
        let out = out.and_then(neater_emulator::Output::success).expect("answers");
        assert!(out.text().contains("3 received"), "{}", out.text());
        assert!(start.elapsed() >= Duration::from_millis(60), "three round trips take 20 ms each");
        let least: f64 =
            out.text().split("mdev = ").nth(1).and_then(|t| t.split('/').next()?.parse().ok()).expect("rtt");
        assert!((20.0..30.0).contains(&least), "{least} ms");
    }
    let links = lab.links().expect("counters");
    assert_eq!(
        (links[0].link.as_str(), links[0].delivered, links[1].delivered),
        ("middle", 6, 6),
        "and no packet more"
    );
    // The way through the routers is seen by who counts hops.
    if tool("tracepath") {
        for (family, last_router) in [("-4", "10.0.0.2"), ("-6", "fd00::2")] {
            let out = lab.run("client1", Cmd::new("tracepath").args([family, "-n", "server1"]).limit(LIMIT));
            let text = out.expect("runs").text();
            assert!(text.contains(last_router), "{text}");
        }
    }
}

#[test]
fn a_command_that_leaves_a_process_in_a_session_of_its_own_ends_and_the_lab_ends_that_process() {
    if !possible() || !tool("setsid") {
        return;
    }
    let lab = up(&Plan::dumbbell(1, slow(), slow(), 1));
    let start = Instant::now();
    let out = lab.run("client1", Cmd::shell("setsid sleep 1000 & echo $!").limit(LIMIT)).expect("runs");
    assert!(!out.timed_out && out.code == 0 && start.elapsed() < LIMIT / 2, "{out:?} after {:?}", start.elapsed());
    assert!(out.text().trim().parse::<u32>().is_ok_and(|pid| pid > 1), "{}", out.text());
    drop(lab);
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
}

#[test]
fn tcp_gets_the_rate_of_the_link_and_its_settings() {
    if !possible() || !tool("iperf3") {
        return;
    }
    let mut plan = Plan::dumbbell(1, slow(), slow(), 1);
    plan.sysctl_everywhere("net.ipv4.tcp_congestion_control", "reno");
    let lab = up(&plan);
    let got = lab.netns("client1").and_then(|n| n.read_sysctl("net.ipv4.tcp_congestion_control")).expect("readable");
    assert_eq!(got, "reno");
    let _server = lab.serve("server1", Cmd::new("iperf3").arg("-s"), 5201, LIMIT).expect("listens");
    let out = lab.run("client1", Cmd::new("iperf3").args(["-c", "server1", "-t", "2", "-J"]).limit(LIMIT));
    let out = out.and_then(neater_emulator::Output::success).expect("runs");
    let json: serde_json::Value = serde_json::from_str(&out.text()).expect("JSON");
    let rate = json["end"]["sum_received"]["bits_per_second"].as_f64().expect("a rate");
    // 1,448 bytes of 1,500 with timestamps; the machine may be busy, so the lower bound is generous.
    assert!((6e6..9.66e6).contains(&rate), "{rate}");
    assert_eq!(json["end"]["sender_tcp_congestion"], "reno");
    let dir = std::env::temp_dir().join(format!("neater-lab-test-{}", std::process::id()));
    lab.keep_record(&dir, &[out], &[]).expect("written");
    let record: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(dir.join("run.json")).expect("there")).expect("JSON");
    assert_eq!(record["settings"]["client1"]["net.ipv4.tcp_congestion_control"], "reno");
    assert!(record["versions"]["kernel"].is_string() && record["emulator"]["cpu"].is_number());
    std::fs::remove_dir_all(&dir).expect("removed");
}

#[test]
fn a_link_that_rejects_or_is_too_narrow_tells_the_sender() {
    if !possible() || !tool("ping") {
        return;
    }
    let narrow =
        slow().with_mtu(1300, neater_link::TooBig::Report).with_filter(Filter::reject(Match::Protocol(Protocol::Tcp)));
    let lab = up(&Plan::dumbbell(1, narrow, LinkConfig::default(), 1));
    for (family, from, said) in [("-4", "10.0.0.1", "mtu = 1300"), ("-6", "fd00::1", "mtu=1300")] {
        let ping = ["-n", family, "-M", "do", "-s", "1372", "-c", "1", "-W", "2", "server1"];
        let big = lab.run("client1", Cmd::new("ping").args(ping).limit(LIMIT)).expect("runs").text();
        assert!(big.contains(from) && big.contains(said), "{big}");
    }
    if !tool("bash") {
        return;
    }
    let start = Instant::now();
    let refused = Cmd::new("bash").args(["-c", "exec 3<>/dev/tcp/10.0.2.1/80"]).limit(LIMIT);
    let refused = lab.run("client1", refused).expect("runs");
    assert!(refused.errors().contains("No route to host"), "{}", refused.errors());
    assert!(start.elapsed() < Duration::from_secs(5), "at once, not after a timeout");
}

#[test]
fn the_kernels_tcp_and_ping_cross_a_nat_box() {
    if !possible() || !tool("ping") {
        return;
    }
    let scenario = neater_scenario::Scenario::parse(neater_scenario::shipped("home-nat").expect("shipped"), &[]);
    let lab = up(&Plan::from_scenario(&scenario.expect("parses"), 1).expect("a plan"));
    // Two hosts at once, so that identifiers and ports meet.
    for host in ["phone", "laptop"] {
        let out = lab.run(host, Cmd::new("ping").args(["-4", "-n", "-c", "2", "-i", "0.1", "server"]).limit(LIMIT));
        let text = out.and_then(neater_emulator::Output::success).expect("answers").text();
        assert!(text.contains("2 received"), "{text}");
    }
    let server = lab.address("server", false).expect("address");
    let listener = lab.netns("server").and_then(|n| n.with(|| Ok(TcpListener::bind((server, 80)).expect("bound"))));
    let listener = listener.expect("listens");
    let answer = std::thread::spawn(move || {
        let (mut stream, peer) = listener.accept().expect("accepts");
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("reads");
        stream.write_all(&got).expect("writes");
        peer
    });
    let connect = || {
        let mut stream = TcpStream::connect((server, 80)).expect("connects");
        let sent: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
        stream.write_all(&sent).expect("writes");
        stream.shutdown(Shutdown::Write).expect("ends");
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("reads");
        Ok(got == sent)
    };
    assert!(lab.netns("laptop").and_then(|n| n.with(connect)).expect("runs"), "every byte, there and back");
    assert_eq!(answer.join().expect("ends").ip().to_string(), "203.0.113.1", "the box's address, not the laptop's");
    let report = lab.emulator().expect("answers");
    let nat = &report.nats[0];
    assert!(nat.router == "home" && nat.mapped >= 3 && nat.out > 100 && nat.inward > 100, "{nat:?}");
}

#[test]
fn captures_have_every_packet_with_its_time() {
    if !possible() || !tool("tcpdump") || !tool("ping") {
        return;
    }
    let lab = up(&Plan::pair(LinkConfig::delay(Duration::from_millis(5)), LinkConfig::default(), 1));
    let dir = std::env::temp_dir().join(format!("neater-lab-capture-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("made");
    let all = lab.capture_all(&dir, 64).expect("begin");
    let ping = Cmd::new("ping").args(["-c", "5", "-i", "0.01", "server"]).limit(LIMIT);
    lab.run("client", ping).and_then(neater_emulator::Output::success).expect("answers");
    let mut files = Vec::new();
    for c in all {
        let caught = c.stop().expect("ends");
        assert_eq!((caught.packets, caught.missed), (10, 0));
        files.push(pcap::read(&caught.file).expect("readable"));
    }
    for (sent, seen) in files[0].iter().zip(&files[1]).filter(|(a, _)| a.bytes[12..16] == [10, 0, 0, 1]) {
        assert_eq!(sent.bytes, seen.bytes);
        assert!(seen.at - sent.at >= 5_000_000, "{} ns", seen.at - sent.at);
    }
    std::fs::remove_dir_all(&dir).expect("removed");
}

#[test]
fn commands_end_when_they_are_told_to_and_take_their_children_with_them() {
    if !possible() {
        return;
    }
    let lab = up(&Plan::pair(LinkConfig::default(), LinkConfig::default(), 1));
    let start = Instant::now();
    let out = lab.run("client", Cmd::shell("echo before; sleep 60").limit(Duration::from_millis(200))).expect("runs");
    assert!(out.timed_out && out.text() == "before\n" && start.elapsed() < Duration::from_secs(10), "{out:?}");
    assert!(out.success().is_err());
    let out = lab.run("client", Cmd::shell("echo $X; exit 3").env("X", "y").limit(LIMIT)).expect("runs");
    assert_eq!((out.code, out.text().as_str()), (3, "y\n"));
    assert!(matches!(lab.run("client", Cmd::new("/no/such/program")), Err(LiveError::Usage(_))));
    let error = lab.run("nobody", Cmd::new("true")).expect_err("no such host").to_string();
    assert!(error.contains("client, server"), "{error}");
    // What left its process group is gone with the lab.
    let out = lab.run("client", Cmd::shell("setsid sleep 61 >/dev/null 2>&1 & echo $!").limit(LIMIT)).expect("runs");
    assert_eq!(out.code, 0);
    let init = lab.init_pid();
    drop(lab);
    assert!(pid_namespace::gone(init, Duration::ZERO));
    assert!(!running("sleep 61"));
}

/// Whether a process with this command line exists.
fn running(line: &str) -> bool {
    let all = std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    all.filter_map(|e| std::fs::read(e.path().join("cmdline")).ok())
        .any(|c| String::from_utf8_lossy(&c).replace('\0', " ").trim() == line)
}

fn processes() -> Vec<u32> {
    let all = std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    all.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// The parent of a process, behind the name that is in parentheses.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn a_killed_lab_leaves_no_process_and_no_namespace() {
    if !possible() {
        return;
    }
    let namespace = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    // Other labs may run on this machine: those of the lab's own descendants are looked at.
    let namespaces = |root: u32| {
        let parents: Vec<(u32, u32)> = processes().into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
        let mut family = vec![root];
        let mut at = 0;
        while let Some(&one) = family.get(at) {
            family.extend(parents.iter().filter(|(_, parent)| *parent == one).map(|(pid, _)| *pid));
            at += 1;
        }
        family.into_iter().filter_map(namespace).collect::<Vec<_>>()
    };
    let ours = std::fs::read_link("/proc/self/ns/net").expect("there");
    let mut lab = Command::new(env!("CARGO_BIN_EXE_neater-lab"))
        .args(["net", "dumbbell", "-b", "r1: sleep 62", "--", "l1: echo up; setsid sleep 63 & sleep 64"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(lab.stdout.take().expect("piped")), &mut line)
        .expect("reads");
    assert_eq!(line, "up\n");
    let inside: Vec<_> = ["sleep 62", "sleep 63", "sleep 64"]
        .iter()
        .flat_map(|l| {
            let end = Instant::now() + LIMIT;
            while !running(l) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(running(l), "{l}");
            namespaces(lab.id())
        })
        .filter(|n| *n != ours)
        .collect();
    assert!(!inside.is_empty());
    lab.kill().expect("killed");
    lab.wait().expect("dead");
    let end = Instant::now() + Duration::from_secs(5);
    while ["sleep 62", "sleep 63", "sleep 64"].iter().any(|l| running(l)) {
        assert!(Instant::now() < end, "processes outlive the lab");
        std::thread::sleep(Duration::from_millis(5));
    }
    let end = Instant::now() + LIMIT;
    while processes().into_iter().filter_map(namespace).any(|n| inside.contains(&n)) {
        assert!(Instant::now() < end, "a namespace outlives the lab");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A list that is read by `head` is no failure.
#[test]
fn a_list_whose_reader_has_gone_ends_in_order() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_neater-lab"));
    child.arg("list").stdin(Stdio::null()).stderr(Stdio::piped());
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let ended = child.stdout(writer).spawn().expect("runs").wait_with_output().expect("ends");
    let err = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && err.is_empty(), "{:?}: {err}", ended.status);
}

/// One request of HTTP/1.1 to the page of `watch`; its body, if the answer is a success.
fn page(port: u16, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    write!(stream, "{request} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 20").then(|| body.to_owned())
}

/// The demonstration of the founding document: TCP over one network, SCTP over both, and over one again.
#[test]
fn a_page_shows_one_transfer_over_two_networks_and_its_switches_act() {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_neater-lab"));
    if !possible() {
        return;
    }
    if !program.with_file_name("neater").is_file() {
        println!("SKIP: the command neater is not beside neater-lab: cargo build --bin neater");
        return;
    }
    let mut watch = Command::new(program)
        .args(["watch", "E5", "--port", "0", "--unoptimised"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(watch.stdout.take().expect("a pipe")), &mut line)
        .expect("its address");
    let port: u16 = line.trim().trim_end_matches('/').rsplit(':').next().and_then(|p| p.parse().ok()).expect("a port");
    let state = || page(port, "GET /state").and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
    let wait = |what: &str, is: &dyn Fn(f64, f64, &str) -> bool| {
        let start = Instant::now();
        loop {
            let seen = state().unwrap_or_default();
            let last = &seen["samples"].as_array().and_then(|s| s.last().cloned()).unwrap_or_default();
            let rate = |name: &str| last[name].as_f64().unwrap_or(0.0);
            if is(rate("one"), rate("two"), seen["transfer"]["over"].as_str().unwrap_or_default()) {
                return;
            }
            assert!(start.elapsed() < LIMIT, "{what}: {last} {}", seen["events"]);
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    wait("TCP has one network", &|one, two, over| one > 5.0 && two == 0.0 && over.ends_with("TCP"));
    assert!(page(port, "POST /sctp/on").is_some());
    wait("SCTP has both", &|one, two, over| one > 5.0 && two > 5.0 && over.contains("SCTP"));
    assert!(page(port, "POST /two/off").is_some());
    wait("one is left", &|one, two, over| one > 5.0 && two == 0.0 && over.contains("SCTP"));
    if tool("chromium") {
        let url = format!("http://127.0.0.1:{port}/");
        let looked = Command::new("timeout")
            .args([
                "60",
                "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--virtual-time-budget=3000",
                "--dump-dom",
                &url,
            ])
            .output()
            .expect("started");
        let seen = String::from_utf8_lossy(&looked.stdout);
        assert!(seen.contains("network two swallows everything") && seen.contains("<polygon"), "{seen}");
    }
    let pid = watch.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().is_ok_and(|s| s.success()));
    assert!(watch.wait().expect("ours").success());
    assert!(!std::env::temp_dir().join(format!("neater-lab-watch-{pid}")).exists(), "nothing is left");
}
