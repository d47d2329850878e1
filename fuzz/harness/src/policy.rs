//! Targets in `crates/policy`: files and requests of the policy manager, and what networks say of themselves.

use neater_base::net::{Interface, InterfaceAddr, InterfaceKind};
use neater_base::{Instant, Rng, WallTime};
use neater_policy::manager::{
    FileKind, Limits, Loader, MAX_UID, Manager, Ranked, Requests, SourceFile, Stage, Tables, check, test, to_text,
    told, vectors,
};
use neater_policy::protocol::wire::{self, Frame, Kind, Malformed};
use neater_policy::protocol::{Door, Follower};
use neater_policy::pvd::{Advertisement, Domains, MAX_DOMAINS};
use neater_policy::rows::network_nodes;
use neater_policy_daemon::{Daemon, Options, Session};
use neater_property::neat::{NeatArray, NeatError, NeatValue, locate, read};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

const NOW: WallTime = WallTime(Duration::from_secs(1_000_000));

/// Cuts `data` at zero bytes: the first piece is a request, the others are files, whose kinds their first bytes tell. What is
/// read is decided by both forms of the manager, which must agree; what is wrong has a place within its file.
pub fn policy_manager(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut pieces = text.split('\0');
    let request = pieces.next().unwrap_or_default();
    let (mut pib, mut cib) = (Vec::new(), Vec::new());
    for (i, text) in pieces.take(16).enumerate() {
        let kind = ["profile", "policy", "cib"][text.bytes().next().unwrap_or_default() as usize % 3];
        let file = (format!("{i}.{kind}"), text.get(1..).unwrap_or_default().to_string());
        if kind == "cib" { cib.push(file) } else { pib.push(file) }
    }
    let sources = |files| -> Vec<SourceFile<'_>> {
        let files: &[(String, String)] = files;
        files.iter().map(|(name, text)| SourceFile { name, text }).collect()
    };
    let mut manager = Manager::default();
    let report = Loader::default().load(&mut manager, &sources(&pib), &sources(&cib), NOW);
    for fault in &report.faults {
        let (_, text) = pib.iter().chain(&cib).find(|(name, _)| *name == fault.file).expect("a fault names its file");
        assert!(fault.line <= text.matches('\n').count() + 1, "{fault} in {text:?}");
    }
    for file in sources(&pib).iter().chain(&sources(&cib)) {
        assert!(FileKind::of(file.name).is_some());
        let wrong = check(file, NOW).iter().any(|f| !f.harmless);
        let said = report.faults.iter().any(|f| f.file == file.name && !f.harmless);
        assert_eq!(wrong, said, "{} alone and among others", file.name);
    }
    match Requests::from_text(request) {
        Ok(requests) => match (manager.explain(&requests, NOW), manager.decide_anew(&requests, NOW)) {
            (Ok((plain, trace)), Ok(fast)) => {
                assert_eq!(plain, fast.ranked(), "{request} over {pib:?} and {cib:?}");
                let candidates: Vec<NeatArray> = plain.iter().map(|r| told(&r.properties)).collect();
                assert!(read(&to_text(&candidates)).is_ok(), "the answer is JSON");
                assert!(requests.pre_resolve || !trace.lines().is_empty());
                let again = manager.decide(&requests, NOW).expect("as before");
                assert_eq!(*again, fast, "what is kept is what was decided");
            }
            (plain, fast) => assert!(plain.is_err(), "only the fast form fails: {fast:?}"),
        },
        Err(e) => in_the_text(request, &e),
    }
    let _ = test(&mut manager, request, NOW);
    let _ = vectors::run(request);
}

/// The first byte of a piece says what it is: which socket it comes to, by whom and how it is cut; or a document and its uid. No
/// user may make another one's candidates differ, and whatever a program requires for its security stays.
pub fn policy_daemon(data: &[u8]) {
    const OWNER: u32 = 900;
    const ANN: u32 = 1000;
    const BOB: u32 = 1001;
    let options = Options { limits: Limits::default(), owner: OWNER, ready: false, keeps_rules: true };
    let mut daemon = Daemon::new(options);
    let asked = r#"[{"transport": {"value": ["TCP", "SCTP"]}, "security": {"value": true, "precedence": 2}}]"#;
    let asked = Requests::from_text(asked).expect("JSON");
    for piece in data.split(|b| *b == 0).take(24) {
        let Some((head, text)) = piece.split_first() else { continue };
        let of_bob = decided(&mut daemon, BOB, &asked);
        let user = [OWNER, ANN, 0, ANN][usize::from(head >> 2) % 4];
        if head & 0x80 != 0 {
            let text = String::from_utf8_lossy(text);
            let (uid, body) = text.split_once('\n').unwrap_or((&text, ""));
            match head % 4 {
                0 => drop(daemon.put_rules_of(body, Some(uid), user, NOW)),
                1 => drop(daemon.put_nodes_of(body, Some(uid), user, NOW)),
                2 => drop(daemon.remove_rule(user, Stage::Policy, uid)),
                _ => drop(daemon.remove_node(user, uid)),
            }
        } else {
            let mut session = Session::new(Door::ALL[usize::from(*head) % Door::ALL.len()], user);
            // Escaped, so that frames may hold zero bytes.
            let bytes: Vec<u8> = text.iter().map(|b| if *b == 0x1a { 0 } else { *b }).collect();
            for part in bytes.chunks(1 + usize::from(head >> 4) * 3) {
                session.receive(part, &mut daemon, NOW);
                session.proceed(&mut daemon, NOW);
            }
            session.end(&mut daemon, NOW);
            assert!(session.is_closed());
        }
        let _ = daemon.take_effects();
        assert!(daemon.guests() <= 1, "Ann alone has said something");
        if user == ANN {
            assert_eq!(decided(&mut daemon, BOB, &asked), of_bob, "what Ann says steers Ann");
        }
        for user in [ANN, BOB, OWNER] {
            for candidate in decided(&mut daemon, user, &asked).unwrap_or_default() {
                let held = candidate.properties.get("security").expect("required");
                assert_eq!((held.precedence, &held.value), (2, &NeatValue::Bool(true)));
            }
        }
    }
    assert!(daemon.metrics(NOW).lines().count() > 8);
}

/// Pieces are documents of two sources in turns, by the first bit of their first byte; the others say how long each is believed. What
/// is refused changes nothing, what is taken is there as a whole, and when all have gone silent nothing is left.
pub fn policy_source(data: &[u8]) {
    let options = Options { limits: Limits::default(), owner: 900, ready: false, keeps_rules: true };
    let mut daemon = Daemon::new(options);
    let uids = |daemon: &mut Daemon, now| -> Vec<String> {
        let mut all: Vec<String> = daemon.rows(now).rows.iter().flat_map(|row| row.path.clone()).collect();
        all.sort();
        all
    };
    let mut now = NOW;
    for piece in data.split(|b| *b == 0).take(16) {
        let Some((head, text)) = piece.split_first() else { continue };
        let (source, silence) = (["one", "two"][usize::from(head & 1)], Duration::from_secs(u64::from(head >> 1)));
        let before = uids(&mut daemon, now);
        match daemon.set_source(source, &String::from_utf8_lossy(text), silence, now) {
            Ok(count) => assert!(count <= text.len(), "{count} nodes out of {} bytes", text.len()),
            Err(why) => {
                assert!(!why.is_empty());
                assert_eq!(uids(&mut daemon, now), before, "what is refused changes nothing");
            }
        }
        now = WallTime(now.0 + Duration::from_secs(1));
    }
    for source in ["one", "two"] {
        assert_eq!(daemon.set_source(source, "[]", Duration::ZERO, now), Ok(0));
    }
    assert!(uids(&mut daemon, now).is_empty(), "nothing stays of what is gone");
}

/// Pieces that a daemon says to a program: bytes as they are where the first byte is above 127, and else a page of tables of
/// which it tells version, next table and, at 64, that it is cut short; the second byte is the next entry, then come texts.
/// How a stream is cut does not matter; a program asks once for each page, and again only when it may go on.
pub fn policy_follower(data: &[u8]) {
    let mut said = Vec::new();
    for piece in data.split(|b| *b == 0).take(64) {
        match piece {
            [] => {}
            [head, raw @ ..] if head & 0x80 != 0 => said.extend(raw.iter().map(|b| if *b == 0x1a { 0 } else { *b })),
            [head, texts @ ..] => wire::frame(&mut said, Kind::Page, 0, |out| {
                let (from, texts) = texts.split_first().unwrap_or((&0, &[]));
                out.extend(u64::from(head & 3).to_le_bytes());
                out.push(head >> 2 & 3);
                out.extend(u32::from(*from).to_le_bytes());
                for text in texts.split(|b| *b == b'\n') {
                    out.push(text.first().unwrap_or(&0) % 4);
                    out.extend((text.len().saturating_sub(1) as u32).to_le_bytes());
                    out.extend(text.get(1..).unwrap_or_default());
                }
                let whole = out.len() - usize::from(head & 0x40 != 0);
                out.truncate(whole);
            }),
        }
    }
    let (whole, asked) = followed(&said, said.len().max(1));
    for size in [1, 7, 64] {
        let (parts, questions) = followed(&said, size);
        match (&whole, &parts) {
            (Ok(tables), Ok(last)) => {
                assert_eq!(tables, last, "in pieces of {size} bytes");
                assert_eq!(asked, questions);
            }
            (whole, parts) => {
                assert_eq!(whole.is_err(), parts.is_err(), "in pieces of {size} bytes: {whole:?}, {parts:?}")
            }
        }
    }
}

/// The last tables that a program has after hearing `said` in pieces of this size, and what it asked.
fn followed(said: &[u8], size: usize) -> (Result<Option<Tables>, Malformed>, Vec<u8>) {
    let (mut follower, mut asked, mut last) = (Follower::new(), Vec::new(), None);
    follower.ask(&mut asked);
    for piece in said.chunks(size) {
        match follower.receive(piece, &mut asked, NOW) {
            Ok(heard) => last = heard.tables.or(last),
            Err(e) => return (Err(e), asked),
        }
    }
    let pages = frames(said, Kind::Page);
    let questions = frames(&asked, Kind::Tables);
    assert!(questions <= pages + 1, "{questions} questions for {pages} pages");
    let (answers, news) = (frames(said, Kind::Facts), frames(&asked, Kind::News));
    assert!(news <= answers + 1, "{news} questions for {answers} answers");
    let awaited = questions == pages + 1 || news == answers + 1;
    assert!(awaited || !follower.is_asking(), "an answer is awaited that has come");
    (Ok(last), asked)
}

/// How many whole frames of one kind there are.
fn frames(mut bytes: &[u8], kind: Kind) -> usize {
    let mut count = 0;
    while let Ok(Some(frame)) = Frame::first(bytes) {
        count += usize::from(frame.kind == kind);
        bytes = &bytes[frame.len()..];
    }
    count
}

/// What one user's request comes to.
fn decided(daemon: &mut Daemon, user: u32, requests: &Requests) -> Option<Vec<Ranked>> {
    daemon.decide(user, requests, NOW).ok().map(|d| d.ranked())
}

/// An error lies within its text.
fn in_the_text(text: &str, error: &NeatError) {
    let (line, column) = locate(text, error.pointer());
    assert!(line >= 1 && column >= 1 && line <= text.matches('\n').count() + 1, "{error}");
}

/// A network that says what it likes: each piece begins with what it is (an advertisement of one of two routers, a document,
/// time that passes). What is read is written and read again; the domains stay within bounds and are asked about no more often
/// than RFC 8801 section 4.1 allows; and no network speaks in the place of the system.
pub fn policy_pvd(data: &[u8]) {
    let host = Interface {
        index: 2,
        name: "eth0".into(),
        kind: InterfaceKind::Wired,
        up: true,
        addrs: ["2001:db8:f00d::7", "2001:db8:1::7", "192.0.2.7"]
            .iter()
            .map(|a| InterfaceAddr { addr: a.parse().expect("one"), prefix: 64, temporary: false, deprecated: false })
            .collect(),
        mtu: 1500,
        default_v4: true,
        default_v6: true,
    };
    let mut domains = Domains::new(Rng::from_number(1));
    domains.set_interfaces(std::slice::from_ref(&host));
    let (mut ms, mut ticket, mut asked) = (0_u64, 0, Vec::new());
    let mut rest = data;
    while let Some((head, more)) = rest.split_first() {
        let (at, wall) = (Instant::from_nanos(ms * 1_000_000), WallTime(NOW.0 + Duration::from_millis(ms)));
        let len = more.len().min(match head & 3 {
            0 | 1 => usize::from(head >> 2) * 8,
            2 => usize::from(head >> 2) * 16,
            _ => 1,
        });
        let (piece, left) = more.split_at(len);
        rest = left;
        match head & 3 {
            0 | 1 => {
                let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, u16::from(head & 3));
                if let Ok(read) = Advertisement::parse(source, 255, piece) {
                    let again = Advertisement::parse(source, 255, &read.to_bytes());
                    assert_eq!(again, Ok(read), "what is read is written and read again");
                }
                let _ = domains.heard(at, 2, source, 255, piece);
            }
            2 => drop(domains.fetched(at, wall, ticket, Ok(piece.to_vec()))),
            _ => ms += u64::from(piece.first().copied().unwrap_or(1)) * 100,
        }
        domains.handle_timeout(at);
        while let Some(fetch) = domains.poll_fetch(at) {
            ticket = fetch.ticket;
            asked.push(ms);
            assert!(!fetch.dns.is_empty() && host.addrs.iter().any(|a| a.addr == IpAddr::V6(fetch.source)));
        }
        assert!(asked.iter().filter(|t| **t + 10_000 > ms).count() <= 5, "{asked:?}");
        assert!(domains.len() <= MAX_DOMAINS);
        for node in network_nodes(std::slice::from_ref(&host), &domains.provisioned(at, wall)) {
            assert!(node.uid.len() <= MAX_UID);
            for row in &node.alternatives {
                let interface = row.get("interface").expect("there");
                assert_eq!(interface.value, NeatValue::Text("eth0".into()));
            }
        }
    }
}
