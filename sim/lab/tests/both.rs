//! The same scenario file in the simulator and in the lab: what hosts see of it is the same, NAT boxes and schedules included.

mod places;

use neater_scenario::{Scenario, shipped};
use places::{Live, Place, Simulated, possible};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// The same play in both places, if there can be a lab here.
fn alike(scenario: &Scenario, play: impl Fn(&mut dyn Place) -> String) {
    let simulated = play(&mut Simulated::new(scenario));
    println!("{simulated}");
    if possible() {
        let live = play(&mut Live::new(scenario));
        assert_eq!(live, simulated, "lab (left) and simulator differ");
    }
}

fn home(kind: &str) -> Scenario {
    let set = [("kind", kind), ("timeout", "1500 ms"), ("rebind", "6 s"), ("restart", "8 s"), ("move", "10 s")];
    let set = set.map(|(k, v)| (k.to_owned(), v.to_owned()));
    Scenario::parse(shipped("home-nat").expect("shipped"), &set).expect("parses")
}

fn only(all: Vec<SocketAddr>) -> SocketAddr {
    assert_eq!(all.len(), 1, "{all:?}");
    all[0]
}

/// A packet from the phone to port 53 of a host: from where it comes there.
fn outside(p: &mut dyn Place, host: &str) -> SocketAddr {
    let to = p.address(host);
    p.send("phone", 7000, (to, 53).into()).expect("leaves");
    only(p.soon(host, 53))
}

/// Who gets in, and what peers see: in words that do not depend on ports drawn at random.
fn who_gets_in(p: &mut dyn Place) -> String {
    let mut told = String::new();
    for (host, port) in [("phone", 7000), ("server", 53), ("server", 54), ("stranger", 53)] {
        p.open(host, port);
    }
    let seen = outside(p, "server");
    writeln!(told, "the server sees {}", seen.ip()).expect("room");
    for (host, port) in [("server", 53), ("server", 54), ("stranger", 53)] {
        p.send(host, port, seen).expect("leaves");
        let from = p.soon("phone", 7000);
        assert!(from.iter().all(|a| *a == SocketAddr::new(p.address(host), port)), "{from:?}");
        writeln!(told, "{host}:{port} gets in: {}", !from.is_empty()).expect("room");
    }
    let other = outside(p, "stranger");
    writeln!(told, "the stranger sees the same: {}", other == seen).expect("room");
    // Nobody is at the port: the error comes back through the box, in the words of the inside.
    let server = p.address("server");
    writeln!(told, "refused: {}", p.refused("laptop", 7100, (server, 9).into())).expect("room");
    told
}

/// When a mapping is over, by itself and by the schedule.
fn how_it_changes(p: &mut dyn Place) -> String {
    let mut told = String::new();
    p.open("phone", 7000);
    p.open("server", 53);
    let first: IpAddr = "203.0.113.1".parse().expect("an address");
    let seen = outside(p, "server");
    // Silence for longer than the binding lasts.
    p.wait(1700 * MS);
    p.send("server", 53, seen).expect("leaves");
    writeln!(told, "in after the timeout: {}", p.soon("phone", 7000).len()).expect("room");

    // Kept alive, the mapping changes only when the schedule says so.
    let mut last = None;
    for (until, what) in [(5500, "before"), (7000, "rebound"), (9000, "restarted"), (11000, "moved")] {
        // The mapping is kept alive until well before the next change, and the last packet well after this one is told of.
        let mut now = None;
        while now.is_none() || p.now() < until * MS {
            now = Some(outside(p, "server"));
            p.wait(200 * MS);
        }
        let now = now.expect("time for one packet");
        let old = last.replace(now);
        writeln!(
            told,
            "{what}: {} first address, port kept: {}",
            now.ip() == first,
            old.map(|o| o.port()) == Some(now.port())
        )
        .expect("room");
        if what == "rebound" {
            // The old outside endpoint leads nowhere.
            p.send("server", 53, old.expect("one before")).expect("leaves");
            writeln!(told, "in by the old port: {}", p.soon("phone", 7000).len()).expect("room");
        }
    }
    told
}

#[test]
fn a_full_cone_lets_everybody_in() {
    alike(&home("full-cone"), |p| {
        let told = who_gets_in(p);
        assert!(told.contains("server:54 gets in: true") && told.contains("stranger:53 gets in: true"), "{told}");
        told
    });
}

#[test]
fn a_restricted_cone_lets_addresses_in() {
    alike(&home("restricted-cone"), |p| {
        let told = who_gets_in(p);
        assert!(told.contains("server:54 gets in: true") && told.contains("stranger:53 gets in: false"), "{told}");
        told
    });
}

#[test]
fn a_port_restricted_cone_lets_endpoints_in() {
    alike(&home("port-restricted-cone"), |p| {
        let told = who_gets_in(p);
        assert!(told.contains("server:53 gets in: true") && told.contains("server:54 gets in: false"), "{told}");
        assert!(told.contains("sees the same: true") && told.contains("refused: true"), "{told}");
        told
    });
}

#[test]
fn a_binding_ends_by_silence_and_a_box_does_what_the_schedule_says() {
    alike(&home("port-restricted-cone"), |p| {
        let told = how_it_changes(p);
        assert!(told.contains("in after the timeout: 0"), "{told}");
        assert!(told.contains("rebound: true first address, port kept: false"), "{told}");
        assert!(told.contains("in by the old port: 0") && told.contains("moved: false first address"), "{told}");
        told
    });
}

#[test]
fn a_symmetric_box_shows_each_peer_another_port() {
    alike(&home("symmetric"), |p| {
        let told = who_gets_in(p);
        assert!(told.contains("sees the same: false") && told.contains("server:54 gets in: false"), "{told}");
        told
    });
}

/// An interface that is down is seen by its host; a link that is down is not.
#[test]
fn interfaces_and_links_go_down_and_up_when_the_schedule_says_so() {
    let scenario = Scenario::parse(
        "name = 'down'\n[host.a]\n[host.b]\n[router.r]\n[link.x]\nfrom = 'a.wlan0'\nto = 'r'\ndelay = '5 ms'\n\
         [link.y]\nfrom = 'b'\nto = 'r'\n\
         [[schedule]]\nat = '1500 ms'\ninterface = 'a.wlan0'\nup = false\n\
         [[schedule]]\nat = '3 s'\ninterface = 'a.wlan0'\nup = true\n\
         [[schedule]]\nat = '4500 ms'\nlink = 'x'\ndown = true\n\
         [[schedule]]\nat = '6 s'\nlink = 'x'\ndown = false\n",
        &[],
    )
    .expect("parses");
    alike(&scenario, |p| {
        p.open("a", 7000);
        p.open("b", 7000);
        let (a, b) = (p.address("a"), p.address("b"));
        let mut told = String::new();
        for step in 0..5u32 {
            p.until(step * 1500 * MS + 400 * MS);
            let sent = p.send("a", 7000, (b, 7000).into()).is_ok();
            let answered = p.send("b", 7000, (a, 7000).into()).is_ok();
            let (there, back) = (p.soon("b", 7000).len(), p.soon("a", 7000).len());
            writeln!(told, "{step}: a may send {sent}, b may {answered}; {there} arrived at b, {back} at a")
                .expect("room");
        }
        let expected = "0: a may send true, b may true; 1 arrived at b, 1 at a\n\
            1: a may send false, b may true; 0 arrived at b, 0 at a\n\
            2: a may send true, b may true; 1 arrived at b, 1 at a\n\
            3: a may send true, b may true; 0 arrived at b, 0 at a\n\
            4: a may send true, b may true; 1 arrived at b, 1 at a\n";
        assert_eq!(told, expected);
        told
    });
}

/// Of two interfaces, the one that is up carries what is sent from no address in particular.
#[test]
fn a_second_interface_takes_over_and_gives_back() {
    let scenario = Scenario::parse(
        "name = 'two'\n[host.a]\n[host.b]\n[router.r]\n[link.x]\nfrom = 'a.wlan0'\nto = 'r'\n[link.z]\nfrom = 'a.wwan0'\nto = 'r'\n\
         metric = 2\n[link.y]\nfrom = 'b'\nto = 'r'\n\
         [[schedule]]\nat = '1 s'\ninterface = 'a.wlan0'\nup = false\n\
         [[schedule]]\nat = '2 s'\ninterface = 'a.wlan0'\nup = true\n",
        &[],
    )
    .expect("parses");
    alike(&scenario, |p| {
        p.open("a", 7000);
        p.open("b", 7000);
        let b = p.address("b");
        let mut told = String::new();
        for step in 0..3u32 {
            p.until(step * 1000 * MS + 400 * MS);
            p.send("a", 7000, (b, 7000).into()).expect("one of them is up");
            writeln!(told, "{step}: {}", only(p.soon("b", 7000)).ip()).expect("room");
        }
        assert_eq!(told, "0: 10.0.0.1\n1: 10.0.1.1\n2: 10.0.0.1\n");
        told
    });
}

/// A link that follows a file in mahimahi's format delivers what the file lets through, in both places.
#[test]
fn a_trace_file_beside_the_scenario_is_the_rate_in_both() {
    let dir = std::env::temp_dir().join(format!("neater-lab-trace-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("traces")).expect("made");
    // One packet of 1,500 bytes every 200 ms; then nothing for a second.
    let times = "200\n400\n600\n800\n1000\n2000\n";
    std::fs::write(dir.join("traces/slow.trace"), times).expect("written");
    let text = "name = 'traced'\n[host.a]\n[host.b]\n[link.x]\nfrom = 'a'\nto = 'b'\n\
                forward = { rate = { trace-file = 'traces/slow.trace' } }\n";
    let file = dir.join("traced.toml");
    std::fs::write(&file, text).expect("written");
    let source = neater_lab::source::Source::open(&file).expect("opens");
    let scenario = source.parse(&[]).expect("parses");
    std::fs::remove_dir_all(&dir).expect("removed");
    alike(&scenario, |p| {
        p.open("a", 7000);
        p.open("b", 7000);
        let b = p.address("b");
        // At the beginning of a round of the trace, ten packets that take an opportunity each.
        p.until(2010 * MS);
        for _ in 0..10 {
            p.send_large("a", 7000, (b, 7000).into()).expect("leaves");
        }
        let mut told = String::new();
        for until in [2500, 3500, 4100, 4700, 5500] {
            p.until(until * MS);
            writeln!(told, "by {until} ms: {}", p.senders("b", 7000).len()).expect("room");
        }
        assert_eq!(told, "by 2500 ms: 2\nby 3500 ms: 3\nby 4100 ms: 1\nby 4700 ms: 3\nby 5500 ms: 1\n");
        told
    });
}

/// Which of many datagrams arrive, each from a port of its own.
fn who_arrives(p: &mut dyn Place, count: u16) -> String {
    p.open("b", 53);
    let b = p.address("b");
    let mut arrived = Vec::new();
    for n in 0..count {
        p.open("a", 7000 + n);
        p.send("a", 7000 + n, (b, 53).into()).expect("leaves");
        if n % 20 == 19 {
            p.wait(30 * MS);
            arrived.extend(p.senders("b", 53).iter().map(SocketAddr::port));
        }
    }
    p.wait(200 * MS);
    arrived.extend(p.senders("b", 53).iter().map(SocketAddr::port));
    arrived.sort_unstable();
    format!("{arrived:?}")
}

/// The same scenario and seed lose the same packets, by chance and in runs.
#[test]
fn the_same_packets_are_lost() {
    let bursts = "loss = { to-bad = '10 %', to-good = '30 %' }";
    for loss in ["loss = '20 %'", bursts] {
        let text = format!("name='lost'\n[host.a]\n[host.b]\n[link.x]\nfrom='a'\nto='b'\ndelay='5 ms'\n{loss}\n");
        let scenario = Scenario::parse(&text, &[]).unwrap_or_else(|e| panic!("{e}"));
        alike(&scenario, |p| {
            let told = who_arrives(p, 200);
            assert!((100..190).contains(&told.split(',').count()), "some are lost: {told}");
            told
        });
    }
}

/// Of equal ways a flow takes the same.
#[test]
fn flows_take_the_same_of_equal_ways() {
    let text = "name='ways'\n[host.a]\n[host.b]\n[router.r]\n[router.s]\n[link.in]\nfrom='a'\nto='r'\n[link.out]\nfrom='s'\nto='b'\n\
        [link.one]\nfrom='r'\nto='s'\ndelay='5 ms'\n[link.two]\nfrom='r'\nto='s'\ndelay='5 ms'\ndown=true\n";
    let scenario = Scenario::parse(text, &[]).unwrap_or_else(|e| panic!("{e}"));
    alike(&scenario, |p| {
        let told = who_arrives(p, 100);
        assert!((30..70).contains(&told.split(',').count()), "half of them go by each: {told}");
        told
    });
}

/// A host knows of the MTU of its own link, and of a black hole's it does not: what is not to be cut leaves, and never arrives.
#[test]
fn hosts_know_of_an_mtu_and_not_of_a_black_hole() {
    for (kind, told) in [("report", "true 1 false 0"), ("black-hole", "true 1 true 0")] {
        let text = format!(
            "name='mtu'\n[host.a]\n[host.b]\n[link.x]\nfrom='a'\nto='b'\ndelay='5 ms'\nmtu=1300\ntoo-big='{kind}'\n"
        );
        let scenario = Scenario::parse(&text, &[]).unwrap_or_else(|e| panic!("{e}"));
        alike(&scenario, |p| {
            p.open_whole("a", 7000);
            p.open("b", 7000);
            let b = p.address("b");
            let sent = p.send("a", 7000, (b, 7000).into()).is_ok();
            let small = p.soon("b", 7000).len();
            let sent_large = p.send_large("a", 7000, (b, 7000).into()).is_ok();
            let large = p.soon("b", 7000).len();
            let seen = format!("{sent} {small} {sent_large} {large}");
            assert_eq!(seen, told, "{kind}");
            seen
        });
    }
}
