//! The scenarios that are shipped can be read, and are what they say.

use neater_link::{
    Codel, Dependence, Discipline, Filter, FqCodel, Jitter, Loss, Match, Overtaking, PortAllocation, Protocol,
    QueueLimit, Rate,
};
use neater_scenario::{Action, Carrier, NatChange, NodeKind, Routes, Scenario, TrafficKind, shipped};
use std::path::Path;
use std::time::Duration;

fn read(name: &str) -> Scenario {
    read_with(name, &[])
}

fn read_with(name: &str, set: &[(&str, &str)]) -> Scenario {
    let text = shipped(name).unwrap_or_else(|| panic!("no scenario {name}"));
    let set: Vec<_> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Scenario::parse(text, &set).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn every_file_can_be_read_and_has_the_name_of_its_file() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let s = read(&stem);
        assert_eq!(s.name, stem);
        assert!(!s.description.is_empty() && !s.traffic.is_empty(), "{stem}");
        // Whoever sends can reach whom it sends to, and back.
        let routes = Routes::compute(&s);
        for t in &s.traffic {
            for (from, to) in [(t.from, t.to), (t.to, t.from)] {
                let link = s.links_of(to).next().unwrap().0;
                assert!(routes.path(&s, from, link).is_some(), "{stem}: {}", t.name);
            }
        }
    }
}

#[test]
fn a_dumbbell_has_its_parts_and_its_queue_in_bytes() {
    let s = read("dumbbell");
    assert_eq!((s.nodes.len(), s.links.len()), (6, 5));
    let bottleneck = &s.links[s.link("bottleneck").unwrap()];
    let config = &bottleneck.directions[0].config;
    assert_eq!((config.rate.clone(), config.delay), (Rate::Fixed(10_000_000), Duration::from_millis(25)));
    assert_eq!(config.queue, QueueLimit::Bytes(62_500));
    assert_eq!(bottleneck.bdp_rtt, Some(Duration::from_millis(50)));
    let s =
        read_with("dumbbell", &[("rtt", "200 ms"), ("link.bottleneck.backward.rate", "1Mbit/s"), ("duration", "7 s")]);
    let bottleneck = &s.links[s.link("bottleneck").unwrap()];
    assert_eq!(bottleneck.directions[0].config.queue, QueueLimit::Bytes(250_000));
    assert_eq!(bottleneck.directions[1].config.queue, QueueLimit::Bytes(25_000));
    assert_eq!(s.duration, Duration::from_secs(7));
    let rtt = s.parameters.iter().find(|p| p.name == "rtt").unwrap();
    assert_eq!((rtt.value.as_str(), rtt.help.as_str()), ("200 ms", "round trip without queues"));
}

#[test]
fn a_fat_tree_spreads_over_all_its_cores() {
    let s = read("fat-tree");
    // (k/2)^2 cores, k pods of k switches, k^3/4 hosts; k^3/4 links at each of three levels.
    let routers = s.nodes.iter().filter(|n| n.kind == NodeKind::Router).count();
    assert_eq!((routers, s.hosts().count(), s.links.len()), (20, 16, 48));
    let routes = Routes::compute(&s);
    let to = s.link("h3-1-1").unwrap();
    let node = |name: &str| s.node(name).unwrap();
    assert_eq!(routes.next_links(node("h1-1-1"), to).len(), 1);
    assert_eq!(routes.next_links(node("e1-1"), to).len(), 2);
    assert_eq!(routes.next_links(node("a1-1"), to).len(), 2);
    assert_eq!(routes.next_links(node("c1"), to).len(), 1);
    assert_eq!(routes.distance(node("h1-1-1"), to), Some(6));
    assert_eq!(routes.distance(node("h1-1-1"), s.link("h1-1-2").unwrap()), Some(2));
}

#[test]
fn disjoint_paths_stay_disjoint_although_the_hosts_connect_them() {
    let s = read("three-paths");
    let routes = Routes::compute(&s);
    let (a, b) = (s.node("a").unwrap(), s.node("b").unwrap());
    for n in 1..=3 {
        let to = s.link(&format!("b{n}")).unwrap();
        let names: Vec<_> = routes.path(&s, a, to).unwrap().into_iter().map(|l| s.links[l].name.clone()).collect();
        assert_eq!(names, [format!("a{n}"), format!("path{n}"), format!("b{n}")]);
        let other = s.link(&format!("a{}", n % 3 + 1)).unwrap();
        assert_eq!(routes.distance_via(a, other, to), None, "hosts do not forward");
    }
    assert_eq!(routes.distance(b, s.link("a1").unwrap()), Some(3));
}

#[test]
fn what_is_written_by_hand_is_taken_as_it_is() {
    let s = read("custom");
    let cellular = &s.links[s.link("cellular").unwrap()];
    assert_eq!(cellular.ends[0].interface, "wwan0");
    assert_eq!(cellular.ends[0].addresses[0], ("192.0.2.1".parse().unwrap(), 24));
    // The router's IPv6 address is beside the one that was given.
    assert_eq!(cellular.ends[1].addresses[1], ("2001:db8:1::2".parse().unwrap(), 64));
    assert_eq!(cellular.directions[0].config.rate, Rate::Fixed(5_000_000));
    assert!(matches!(cellular.directions[1].config.queue, QueueLimit::Bytes(n) if n > 100_000));
    let rates: Vec<_> = s
        .events
        .iter()
        .filter_map(|e| match &e.action {
            Action::Link { config, direction: 1, .. } => Some((e.at.as_secs(), mbit(&config.config.rate))),
            _ => None,
        })
        .collect();
    assert_eq!(rates, [(10, 2), (20, 20), (30, 2), (40, 20), (50, 2), (60, 20)]);
    let server = &s.nodes[s.node("server").unwrap()];
    assert_eq!(server.tcp.min_rto, Some(Duration::from_secs(1)));
    assert_eq!(s.nodes[s.node("home").unwrap()].filters.len(), 1);
    assert!(s.traffic[0].v6 && s.traffic[0].kind == TrafficKind::Bulk { bytes: Some(5_000_000), over: Carrier::Model });
    assert_eq!(s.captures.len(), 1);
}

#[test]
fn a_trace_is_asked_for_by_its_name_once() {
    let text = "[host.a]\n[host.b]\n[link.x]\nfrom='a'\nto='b'\nforward = { rate = { trace-file = 't' } }\n\
                backward = { rate = { trace-file = 't' } }\n";
    let mut asked = Vec::new();
    let s = Scenario::parse_with(text, &[], |name, kind| {
        asked.push(name.to_owned());
        kind.read("0\n12\n")
    });
    let s = s.unwrap();
    assert_eq!(asked, ["t"]);
    assert!(s.links[0].directions.iter().all(|d| d.config.rate.mean() == Some(2e6)));
    let error = Scenario::parse_with(text, &[], |_, _| Err("line 7: no number".to_owned())).unwrap_err().to_string();
    assert_eq!(error, "line 6, column 35: trace-file: t: line 7: no number");
    let error = Scenario::parse(text, &[]).unwrap_err().to_string();
    assert!(error.contains("t: this scenario was read from no place"), "{error}");
}

#[test]
fn what_happens_to_a_nat_box_is_read_in_order() {
    let s = read("home-nat");
    let home = s.node("home").unwrap();
    let changes: Vec<_> = s
        .events
        .iter()
        .filter_map(|e| match e.action {
            Action::Nat { node, what } if node == home => Some((e.at.as_secs(), what)),
            _ => None,
        })
        .collect();
    let moved = NatChange::Move([203, 0, 113, 77].into());
    assert_eq!(changes, [(4, NatChange::Rebind), (6, NatChange::Restart), (8, moved)]);
    let nat = s.nodes[home].nat.as_ref().unwrap();
    assert_eq!(nat.config.external_v4, Some([203, 0, 113, 1].into()));
    assert_eq!(nat.config.udp_timeout, Duration::from_secs(30));
}

fn mbit(rate: &Rate) -> u64 {
    match rate {
        Rate::Fixed(rate) => rate / 1_000_000,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_model_of_a_link_can_be_said() {
    let s = Scenario::parse(
        "[host.a]\n[host.b]\n[link.x]\nfrom='a'\nto='b'\n\
         rate = { steps = [['0 s', '10 Mbit/s'], ['5 s', '2 Mbit/s']], period = '10 s' }\n\
         jitter = { law = 'normal', deviation = '2 ms' }\njitter-correlation = 0.25\n\
         overtaking = { probability = '1 %', gap = 5 }\nduplicate = '0.5 %'\ncorrupt = '0.1 %'\n\
         loss = { to-bad = '1 %', to-good = '20 %', loss-bad = '50 %' }\n\
         discipline = { kind = 'fq-codel', target = '3 ms', ecn = false }\nqueue = '1 MB'\n\
         drop = ['any', { what = 'udp/443', larger-than = 1200, after = 10 }]\n\
         backward = { rate = { trace = [0, 5, 12] }, loss = { length = 3, at = ['1 s', '2 s'] }, discipline = 'codel',\n\
                      jitter = { law = 'pareto', scale = '1 ms', shape = 2.5 } }\n",
        &[],
    )
    .unwrap();
    let [there, back] = s.links[0].directions.clone().map(|d| d.config);
    assert_eq!(there.rate.mean(), Some(6e6));
    assert_eq!(there.jitter, Jitter::Normal(Duration::from_millis(2)));
    assert_eq!(there.jitter_correlation, 0.25);
    assert_eq!(there.overtaking, Some(Overtaking { probability: 0.01, gap: 5 }));
    assert_eq!((there.duplicate, there.corrupt), (0.005, 0.001));
    assert_eq!(there.loss, Loss::GilbertElliott { to_bad: 0.01, to_good: 0.2, loss_good: 0.0, loss_bad: 0.5 });
    let codel = Codel { target: Duration::from_millis(3), ecn: false, ..Codel::default() };
    assert_eq!(there.discipline, Discipline::FqCodel(FqCodel { codel, ..FqCodel::default() }));
    assert_eq!(there.filters[0], Filter::drop(Match::Any));
    assert_eq!(there.filters[1], Filter::drop(Match::Service(Protocol::Udp, 443)).larger_than(1200).after(10));
    assert!(matches!(back.rate, Rate::Trace(_)));
    assert_eq!(back.loss, Loss::BurstsAt { times: [1, 2].map(Duration::from_secs).into(), length: 3 });
    assert_eq!(back.discipline, Discipline::Codel(Codel::default()));
    assert_eq!(back.jitter, Jitter::Pareto { scale: Duration::from_millis(1), shape: 2.5 });
}

#[test]
fn everything_of_a_nat_box_and_of_a_hosts_kernel_can_be_said() {
    let text = r#"
        [host.a]
        lab = { congestion = "bbr", sysctl = { "net.ipv4.tcp_slow_start_after_idle" = 0, "net.ipv4.tcp_rmem" = "4096 8192 16384" } }
        [host.b]
        [router.r]
        nat = { outside = "out", mapping = "address-and-port-dependent", filtering = "endpoint-independent", ports = "random", first-port = 2000, last-port = 2999, other-timeout = "7 s", udp-refresh-inbound = false, icmp-errors = false, adopts-connections = true, max-mappings = 10 }
        [link.in]
        from = "a"
        to = "r"
        [link.out]
        from = "r"
        to = "b"
    "#;
    let s = Scenario::parse(text, &[]).unwrap_or_else(|e| panic!("{e}"));
    let [a, r] = ["a", "r"].map(|n| &s.nodes[s.node(n).unwrap()]);
    let settings: Vec<(&str, &str)> = a.sysctls.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let expected = [
        ("net.ipv4.tcp_congestion_control", "bbr"),
        ("net.ipv4.tcp_rmem", "4096 8192 16384"),
        ("net.ipv4.tcp_slow_start_after_idle", "0"),
    ];
    assert_eq!(settings, expected);
    let nat = &r.nat.as_ref().unwrap().config;
    assert_eq!((nat.mapping, nat.filtering), (Dependence::AddressAndPortDependent, Dependence::EndpointIndependent));
    assert_eq!((nat.ports, nat.port_range.clone()), (PortAllocation::Random, 2000..=2999));
    assert_eq!((nat.other_timeout.as_secs(), nat.max_mappings), (7, 10));
    assert!(!nat.udp_refresh_inbound && !nat.icmp_errors && nat.adopts_connections);
}
