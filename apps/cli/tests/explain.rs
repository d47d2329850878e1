//! `neater explain`, `lab`, `completions` and the help of the command itself.

mod common;

use common::{Folder, Serving, neater, noise, of, run};
use std::os::unix::fs::PermissionsExt;

#[test]
fn an_address_is_explained_word_for_word() {
    let r = run(neater().args(["explain", "192.0.2.1:53", "--needs", "datagrams,cleartext"]));
    assert_eq!(r.code, 0, "{}", r.err);
    let expected = "To 192.0.2.1:53
Require: preserveMsgBoundaries
Require by default: fullChecksumSend, fullChecksumRecv
Prefer by default: multistreaming, useTemporaryLocalAddress
Avoid: reliability, preserveOrder
Security: disabled
Capacity profile: Default
1. UDP, score 0: stack +0 (no handshake: that the peer is there is not known before it sends)
-  TCP is ruled out by preserveMsgBoundaries (required, TCP has none without a message framer)
-  TLS/TCP is ruled out by preserveMsgBoundaries (required, TLS/TCP has none without a message framer) and \
                    security (disabled, TLS/TCP always encrypts and needs a certificate)
-  QUIC is ruled out by preserveMsgBoundaries (required, QUIC has none without a message framer) and \
                    security (disabled, QUIC always encrypts and needs a certificate)
-  QUIC datagrams is ruled out by security (disabled, QUIC datagrams always encrypts and needs a certificate)
-  DTLS/UDP is ruled out by security (disabled, DTLS/UDP always encrypts and needs a certificate)
-  not tried unless asked for: SCTP/UDP, SCTP/IP, SCTP/DTLS (by name, --transport, or by --needs \
                    \"preserve-msg-boundaries, multistreaming\")
Order, as long as no candidate answers; where one fails the next follows at once (--try shows the race itself)
";
    let (words, order) = r.out.split_at(r.out.len().min(expected.len()));
    assert_eq!(words, expected);
    // A machine without a route refuses it by itself.
    assert!(order.starts_with("  1. ") && order.contains(" ms  UDP to 192.0.2.1:53"), "{order}");
    assert_eq!(order.lines().count(), 1, "{order}");
}

#[test]
fn every_part_of_an_explanation_is_an_object_for_programs() {
    let f = Folder::new("explain-json");
    let hosts = f.put("hosts", "192.0.2.7 h.test\n2001:db8::7 h.test\n");
    let needs = "reliable, encrypted, low-delay";
    let r = run(neater().args(["explain", "--json", "h.test:443", "--needs", needs, "--hosts"]).arg(&hosts));
    assert_eq!(r.code, 0, "{}", r.err);
    let events = r.events();
    let names: Vec<_> = of(&events, "candidate").iter().map(|c| c["transport"].clone()).collect();
    assert_eq!(names, ["QUIC", "TLS/TCP"]);
    let excluded = of(&events, "excluded");
    assert!(excluded.iter().all(|e| e["reasons"].as_array().is_some_and(|r| !r.is_empty())), "{events:?}");
    assert_eq!(
        of(&events, "aside").iter().map(|a| a["transport"].clone()).collect::<Vec<_>>(),
        ["SCTP/UDP", "SCTP/IP", "SCTP/DTLS"]
    );
    let mut addresses: Vec<_> =
        of(&events, "planned").iter().map(|a| a["address"].as_str().unwrap_or_default()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses, ["192.0.2.7:443", "[2001:db8::7]:443"]);
}

#[test]
fn a_name_without_an_answer_is_said_to_have_none() {
    let f = Folder::new("explain-names");
    // There is no server: the port is closed, and refusal comes at once.
    let resolv = f.put("resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n");
    let r = run(neater().args(["explain", "--timeout", "4", "no.such.test:1", "--resolv-conf"]).arg(&resolv));
    assert_eq!(r.code, 1, "{}", r.err);
    let last = r.out.lines().last().unwrap_or_default();
    assert!(last.starts_with("Nothing to try: ") && last.contains("SERVFAIL") | last.contains("refused"), "{last}");
}

#[test]
fn a_race_against_a_server_is_told_and_drawn() {
    let f = Folder::new("explain-try");
    f.put("srv/a", "a");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let target = format!("localhost:{}", server.port);
    let r = run(neater().args(["explain", "--try", &target, "--ca"]).arg(&server.ca));
    assert_eq!(r.code, 0, "{}", r.err);
    assert!(r.out.contains("The race") && r.out.contains("won") && r.out.contains('*'), "{}", r.out);
    let last = r.out.lines().last().unwrap_or_default();
    assert!(last.starts_with("Chosen: QUIC to 127.0.0.1:") && last.contains("h3"), "{last}");
    let r = run(neater()
        .args(["explain", "--try", "--json", "--transport", "TLS", &server.url(""), "--ca"])
        .arg(&server.ca));
    let events = r.events();
    let chosen = of(&events, "chosen")[0];
    assert_eq!((&chosen["transport"], &chosen["alpn"]), (&"TLS/TCP".into(), &"h2".into()));
    assert_eq!(of(&events, "attempt").iter().filter(|a| a["won"] == true).count(), 1);
    let r = run(neater().args(["explain", "--try", &target]));
    assert_eq!((r.code, r.err.contains("--ca FILE")), (6, true), "{}", r.err);
    let r = run(neater().args(["explain", "--try", "127.0.0.1:1"]));
    assert_eq!((r.code, r.out.contains('x')), (1, true), "{}", r.out);
}

#[test]
fn needs_and_targets_that_make_no_sense_say_why() {
    for (args, word) in [
        (&["h:1", "--needs", "relaible"][..], "did you mean reliable"),
        (&["h"], "port is missing"),
        (&["h:0"], "port 0"),
        (&["h:1", "--needs", "datagrams", "--transport", "TCP"], "ruled out"),
        (&["gopher://h/"], "gopher"),
    ] {
        let r = run(neater().arg("explain").args(args));
        assert_eq!((r.code, r.err.contains(word)), (2, true), "{args:?}: {}", r.err);
    }
}

#[test]
fn what_has_no_effect_is_said_to_have_none() {
    let r = run(neater().args(["explain", "192.0.2.1:1", "--needs", "minSendRate=5000,connTimeout=5"]));
    assert!(r.code == 0 && r.out.contains("minSendRate has no effect: "), "{}", r.out);
    assert!(r.out.contains("connTimeout has an effect in part: TCP, TLS, QUIC and SCTP support it"), "{}", r.out);
    let needs = "groupConnLimit=2,msgOrdered=false,msgReliable=false,noSegmentation=true,multipath=Active";
    let r = run(neater().args(["explain", "--json", "192.0.2.1:1", "--transport", "TLS", "--needs", needs]));
    let events = r.events();
    let told: Vec<_> =
        of(&events, "effect_in_part").iter().map(|e| e["property"].as_str().unwrap_or_default()).collect();
    assert_eq!(told, ["multipath", "groupConnLimit", "msgOrdered", "msgReliable", "noSegmentation"], "{}", r.out);
    let r = run(neater().args(["explain", "--json", "192.0.2.1:1", "--needs", "minSendRate=5000"]));
    assert_eq!(of(&r.events(), "no_effect")[0]["property"], "minSendRate");
}

#[test]
fn reliability_by_message_is_what_sctp_has_and_nothing_else() {
    let explain = |transport| {
        let all = ["explain", "192.0.2.1:1", "--needs", "cleartext,partial-reliability", "--transport", transport];
        run(neater().args(all))
    };
    let r = explain("SCTP");
    assert!(
        r.code == 0 && r.out.contains("SCTP/UDP") && !r.out.contains("perMsgReliability (req"),
        "{}{}",
        r.out,
        r.err
    );
    let r = explain("TCP");
    assert!(r.code == 2 && r.err.contains("perMsgReliability (required, TCP has none)"), "{}{}", r.out, r.err);
}

#[test]
fn the_laboratory_is_run_where_it_is_found() {
    let f = Folder::new("lab");
    let r = run(neater().args(["lab", "list"]).env("PATH", f.path("")));
    // Where a build has put neater-lab beside neater, that one runs; then there is nothing to look
    // for.
    if !std::path::Path::new(env!("CARGO_BIN_EXE_neater")).with_file_name("neater-lab").exists() {
        assert_eq!((r.code, r.err.contains("cargo install --locked --path sim/lab")), (1, true), "{}", r.err);
        let lab = f.put("neater-lab", "#!/bin/sh\necho \"$@\"\nexit 7\n");
        std::fs::set_permissions(&lab, std::fs::Permissions::from_mode(0o755)).expect("allowed");
        let r = run(neater().args(["lab", "run", "A", "--seed", "5"]).env("PATH", f.path("")));
        assert_eq!((r.code, r.out.as_str()), (7, "run A --seed 5\n"), "{}", r.err);
    }
}

#[test]
fn help_teaches_and_completions_complete() {
    let r = run(neater().arg("--help"));
    assert!(r.code == 0 && r.out.contains("Exit codes:") && r.out.contains("130"), "{}", r.out);
    for command in ["get", "serve", "explain"] {
        let r = run(neater().args([command, "--help"]));
        assert!(r.code == 0 && r.out.contains("Examples:") && r.out.contains("JSON events:"), "{command}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let r = run(neater().args(["completions", shell]));
        assert!(r.code == 0 && r.out.contains("resolv-conf"), "{shell}");
    }
    // For programs, all of it is objects.
    for (args, event, word) in [
        (&["--json", "completions", "bash"][..], "completions", "resolv-conf"),
        (&["--json", "help"], "help", "Exit codes:"),
        (&["--json", "get", "--help"], "help", "Examples:"),
        (&["--json", "--version"], "version", "neater"),
    ] {
        let r = run(neater().args(args));
        let events = r.events();
        let said = events[0]["text"].as_str().or(events[0]["script"].as_str()).unwrap_or_default();
        assert!(
            r.code == 0 && events.len() == 1 && events[0]["event"] == event && said.contains(word),
            "{args:?}: {}",
            r.out
        );
    }
    assert_eq!(run(&mut neater()).code, 2);
    assert_eq!(run(neater().arg("nonsense")).code, 2);
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let f = Folder::new("man");
    let r = run(neater().arg("man").arg(f.path("man1")));
    assert!(r.code == 0 && r.out.contains("neater-get.1"), "{}{}", r.out, r.err);
    for (page, says) in
        [("neater.1", "Transport services"), ("neater-get.1", "resolv"), ("neater-policy-check.1", "neater")]
    {
        let text = std::fs::read_to_string(f.path("man1").join(page)).expect(page);
        assert!(text.starts_with(".ie") && text.contains(".TH") && text.contains(says), "{page}: {text}");
    }
    let r = run(neater().args(["man", "/dev/null/x"]));
    assert!(r.code == 4 && r.err.contains("/dev/null/x"), "{} {}", r.code, r.err);
}

#[test]
fn what_is_no_name_is_an_error() {
    let long = "a".repeat(64);
    for name in ["a..b", &long] {
        let r = run(neater().args(["explain", &format!("{name}:443"), "--resolv-conf", "/dev/null"]));
        assert_eq!(r.code, 2, "{name}: {}{}", r.out, r.err);
        assert!(r.err.contains("not a valid name"), "{name}: {}", r.err);
    }
}

/// A name server whose answers over UDP are all truncated (RFC 1035 section 4.1.1), with the whole
/// ones over TCP (RFC 7766).
fn truncating() -> std::net::SocketAddr {
    use std::io::{Read, Write};
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let at = tcp.local_addr().expect("bound");
    let udp = std::net::UdpSocket::bind(at).expect("free for UDP, too");
    std::thread::spawn(move || {
        let mut buf = [0; 1500];
        while let Ok((n, from)) = udp.recv_from(&mut buf) {
            // An answer, cut, with nothing but the question.
            buf[2] |= 0x82;
            let _ = udp.send_to(&buf[..n], from);
        }
    });
    std::thread::spawn(move || {
        let zone = neater_dns::Zone::parse("h.test A 192.0.2.9\nh.test AAAA 2001:db8::9\n").expect("a zone");
        for mut c in tcp.incoming().flatten() {
            let zone = zone.clone();
            std::thread::spawn(move || {
                let mut length = [0; 2];
                while c.read_exact(&mut length).is_ok() {
                    let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
                    let Some(reply) = c.read_exact(&mut query).ok().and_then(|()| neater_dns::answer(&query, &zone))
                    else {
                        return;
                    };
                    let length = u16::try_from(reply.len()).expect("short").to_be_bytes();
                    // In two pieces, as TCP may bring it.
                    let _ = c.write_all(&length).and_then(|()| c.write_all(&reply));
                }
            });
        }
    });
    at
}

#[test]
fn answers_that_do_not_fit_into_a_datagram_are_asked_for_again() {
    let f = Folder::new("truncated");
    let at = truncating();
    let resolv = f.put("resolv.conf", format!("nameserver {}#{}\n", at.ip(), at.port()));
    let hosts = f.put("hosts", "");
    let mut c = neater();
    c.args(["explain", "--json", "h.test:443", "--resolv-conf"]).arg(&resolv).arg("--hosts").arg(&hosts);
    let r = run(&mut c);
    assert_eq!(r.code, 0, "{}", r.err);
    let events = r.events();
    let mut addresses: Vec<_> =
        of(&events, "planned").iter().map(|a| a["address"].as_str().unwrap_or_default()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses, ["192.0.2.9:443", "[2001:db8::9]:443"], "{}", r.out);
}

#[test]
fn programs_learn_of_a_policy_that_forbids_all_and_of_one_that_is_broken() {
    let f = Folder::new("forbidden");
    f.put("policy/none.policy", r#"{"uid": "none", "match": {}, "properties": [[]]}"#);
    let explain = || run(neater().args(["explain", "--json", "127.0.0.1:1", "--policy"]).arg(f.path("policy")));
    let r = explain();
    let events = r.events();
    assert_eq!((r.code, &of(&events, "failed")[0]["kind"]), (1, &"policy".into()), "{}", r.out);
    assert!(of(&events, "policies")[0]["prohibited"].is_string(), "{}", r.out);
    f.put("policy/none.policy", "broken");
    let strict = ["explain", "--json", "--strict-policies", "127.0.0.1:1", "--policy"];
    let r = run(neater().args(strict).arg(f.path("policy")));
    let events = r.events();
    assert_eq!((r.code, &of(&events, "failed")[0]["kind"]), (1, &"policy".into()), "{}", r.out);
    let r = run(neater()
        .args(["pm", "--strict", "--no-rest", "--sock"])
        .arg(f.path("sock"))
        .arg("--pib")
        .arg(f.path("policy")));
    assert_eq!((r.code, r.err.contains("none.policy:1:1"), r.err.contains("--strict")), (1, true, true), "{}", r.err);
    // Profiles must be there, and the connection's own properties cannot be stated.
    for (property, why) in [("profile=confidental", "no such profile, but"), ("security=true", "the connection's own")]
    {
        let r = run(neater().args(["explain", "--property", property, "127.0.0.1:1"]).env("NEATER_POLICY", ""));
        assert_eq!((r.code, r.err.contains(why)), (2, true), "{}", r.err);
    }
    // Without any policies of the host's, what a program states counts.
    let stated = ["explain", "--json", "--property", "profile=confidential", "http://127.0.0.1:1/"];
    let r = run(neater().args(stated).env("NEATER_POLICY", "").env("NEAT_PM_SOCKET", ""));
    assert!(of(&r.events(), "policies")[0]["prohibited"].is_string(), "{}", r.out);
    let r = explain();
    let events = r.events();
    let fault = of(&events, "fault")[0];
    assert_eq!((r.code, fault["line"].as_u64(), r.err.as_str()), (0, Some(1), ""), "{}", r.out);
}

#[test]
fn the_systems_resolver_is_asked_where_that_is_wanted() {
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let lines = hosts.lines().map(|l| l.split('#').next().unwrap_or_default().split_whitespace().collect::<Vec<_>>());
    let here = lines.filter(|w| w.first().is_some_and(|a| a.starts_with("127."))).flat_map(|w| w.into_iter().skip(1));
    let Some(name) = here.into_iter().find(|n| !n.starts_with("localhost")) else {
        return println!("SKIPPED: the system's resolver: /etc/hosts has no name for 127.x but localhost");
    };
    let r = run(neater().args(["explain", "--json", &format!("{name}:443"), "--system-names"]));
    let addresses: Vec<_> = r.events().into_iter().filter(|e| e["event"] == "planned").collect();
    assert!(
        r.code == 0 && addresses.iter().any(|a| a["address"].as_str().is_some_and(|a| a.starts_with("127."))),
        "{addresses:?}"
    );
    let r = run(neater().args(["explain", "h.test:443", "--system-names", "--hosts", "/etc/hosts"]));
    assert_eq!(r.code, 2, "one or the other");
}

/// DTLS carries no application protocol of HTTP's: with ALPN it would be ruled out.
#[test]
fn dtls_by_name_is_a_candidate() {
    let r = run(neater().args(["explain", "--json", "192.0.2.1:443", "--transport", "dtls", "--needs", "datagrams"]));
    assert_eq!(r.code, 0, "{}", r.err);
    let events = r.events();
    let names: Vec<_> = of(&events, "candidate").iter().map(|c| c["transport"].clone()).collect();
    assert_eq!(names, ["DTLS/UDP"], "{events:?}");
}

#[test]
fn of_what_serves_equally_well_the_faster_goes_first() {
    let f = Folder::new("rates");
    f.put("root/file", noise(3_000_000, 1));
    f.put("root/small", noise(900_000, 2));
    let server = Serving::new(&f.path("root"), &f.path("state"), &[]);
    let kept = f.path("cache/outcomes");
    let cached = |command: &mut std::process::Command| run(command.env("NEATER_CACHE", f.path("cache")));
    let get = |file: &str, more: &[&str]| {
        let r = cached(server.get().args(["--json", "-v", "-o", "/dev/null", &server.url(file)]).args(more));
        assert_eq!(r.code, 0, "{}\n{}", r.out, r.err);
        let line = |l: &str| l.strip_prefix("r ").map(str::to_owned);
        let text = std::fs::read_to_string(&kept).unwrap_or_default();
        (r, text.lines().filter_map(line).collect::<Vec<_>>())
    };
    assert_eq!(get("small", &[]).1, Vec::<String>::new(), "too short to be measured");
    assert_eq!(get("file", &["--limit-rate", "20M"]).1, Vec::<String>::new(), "it was slowed down");
    assert_eq!(get("file", &["--needs", "_neater.measuredRates=false"]).1, Vec::<String>::new());
    // On a busy machine the program may have been slower than the network, and nothing is learnt.
    let measured = |stack: &str, count| {
        let mut gets = (0..20).map(|_| get("file", &["--transport", stack]).1);
        gets.find(|rates| rates.len() == count).unwrap_or_else(|| panic!("no rate of {stack}"))
    };
    measured("QUIC", 1);
    let rates = measured("TLS", 2);

    // Machines differ, so the file records the speed of each.
    let text = f.read("cache/outcomes");
    let text = String::from_utf8(text).expect("text");
    let with = |rate: &str, per_second: &str| {
        let mut words: Vec<_> = rate.split(' ').collect();
        words[3] = per_second;
        format!("r {}", words.join(" "))
    };
    let (quic, tls) = (format!("r {}", rates[0]), format!("r {}", rates[1]));
    let text = text.replace(&quic, &with(&rates[0], "113000000")).replace(&tls, &with(&rates[1], "430000000"));
    f.put("cache/outcomes", &text);
    let by_rate = |r: &common::Ran| {
        let events = r.events();
        let step = events.iter().find(|e| e["step"] == "by-rate");
        step.map(|e| e["text"].as_str().unwrap_or_default().to_owned())
    };
    let why = "TLS/TCP first: earlier transfers from this host: TLS/TCP 430.0 MB/s, QUIC 113.0 MB/s";
    let explain = |more: &[&str]| {
        let mut explain = neater();
        explain.args(["explain", "--json", &server.url("file"), "--ca"]).arg(&server.ca).args(more);
        by_rate(&cached(&mut explain))
    };
    assert_eq!(explain(&[]).as_deref(), Some(why));
    assert_eq!(explain(&["--needs", "_neater.measuredRates=false"]), None);
    // One race in 20 begins with the other.
    let first = |text: Option<String>| text.is_some_and(|t| t == why);
    assert!((0..4).any(|_| first(by_rate(&get("small", &[]).0))));
}
