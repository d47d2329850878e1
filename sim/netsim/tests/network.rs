//! Worlds that are built from scenarios: routes, routers, traffic, samples, records.

use neater_base::net::{Ecn, ErrorKind, Net, RecvBatch, SocketOptions, Token, Transmit};
use neater_netsim::{FlowStats, Network, TraceVerdict, World};
use neater_scenario::{Scenario, shipped};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, &[]).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn shipped_with(name: &str, set: &[(&str, &str)]) -> Scenario {
    let set: Vec<_> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Scenario::parse(shipped(name).unwrap(), &set).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn run(s: &Scenario, seed: u64) -> Network {
    let network = World::build(s, seed).unwrap();
    network.run(|_| true);
    network
}

fn flow(network: &Network, name: &str) -> FlowStats {
    let index = network.scenario().traffic.iter().position(|t| t.name == name).unwrap();
    network.flows().into_iter().find(|f| f.traffic == index).unwrap()
}

fn address(network: &Network, node: &str) -> IpAddr {
    let s = network.scenario();
    s.address(s.node(node).unwrap(), true).unwrap()
}

fn datagram(destination: SocketAddr, contents: &[u8]) -> Transmit<'_> {
    Transmit { destination, source: None, interface: None, ecn: Ecn::NotEct, segment_size: None, contents }
}

const DUMBBELL: &str = "[topology]\nkind='dumbbell'\npairs=2\naccess={rate='100 Mbit/s',delay='1 ms'}\n\
    bottleneck={rate='10 Mbit/s',delay='8 ms',queue='1 BDP'}\n";

#[test]
fn two_bulk_transfers_fill_a_bottleneck_and_share_it() {
    let text = format!(
        "{DUMBBELL}warm-up='5 s'\nduration='20 s'\n[traffic.a]\nfrom='l1'\nto='r1'\n[traffic.b]\nfrom='l2'\nto='r2'\n"
    );
    // Keys of the top level stand before the first table.
    let text = text.replace(
        &format!("{DUMBBELL}warm-up='5 s'\nduration='20 s'\n"),
        &format!("warm-up='5 s'\nduration='20 s'\n{DUMBBELL}"),
    );
    let s = scenario(&text);
    let network = run(&s, 1);
    let [a, b] = ["a", "b"].map(|n| flow(&network, n).goodput(s.duration) / 1e6);
    // 1448 of 1500 bytes are payload: 9.653, and what had arrived out of order before the warm-up ended.
    assert!((9.0..=9.7).contains(&(a + b)), "{a} + {b}");
    let jain = (a + b).powi(2) / (2.0 * (a * a + b * b));
    assert!(jain > 0.8, "{a} against {b}");
    let rtt = flow(&network, "a").rtt;
    assert!(rtt.min >= 0.0199 && rtt.max < 0.060, "{rtt:?}");
    // Every packet of the bottleneck also crossed two access links.
    let counters = network.counters();
    let bottleneck: u64 = counters[0].iter().map(|c| c.delivered).sum();
    assert!(network.packet_hops() >= 3 * bottleneck);
}

#[test]
fn a_run_is_a_function_of_scenario_and_seed() {
    let s = shipped_with("dual-dumbbell", &[("duration", "3 s"), ("warm-up", "2 s")]);
    let [a, b, c] = [1, 1, 2].map(|seed| {
        let n = run(&s, seed);
        (n.world.digest(), n.flows(), n.take_samples())
    });
    assert_eq!(a, b);
    assert_ne!(a.0, c.0);
    assert!(a.1.iter().any(|f| f.object_time.count > 0));
}

#[test]
fn probes_and_records_change_nothing() {
    let with = shipped_with("dumbbell", &[("duration", "2 s"), ("warm-up", "0 s")]);
    let without = Scenario { probes: Vec::new(), ..with.clone() };
    let mut network = World::build(&with, 3).unwrap();
    network.capture(0, 96);
    network.run(|_| true);
    assert_eq!(network.world.digest(), run(&without, 3).world.digest());
    let samples = network.take_samples();
    let names: Vec<_> = samples.iter().map(|s| (s.name, s.rows.len())).collect();
    assert_eq!(names, [("queue", 40), ("tcp", 40), ("goodput", 40)]);
    let queue = samples[0].to_csv();
    assert!(queue.starts_with("time_s,subject,bytes,packets\n0.100000000,bottleneck.forward,"), "{queue}");
    // The queue never holds more than its limit, and fills.
    let most = samples[0].rows.iter().map(|r| r.values[0]).fold(0.0, f64::max);
    assert!((30_000.0..=62_500.0).contains(&most), "{most}");
    let records = network.captures_so_far();
    let names: Vec<_> = records.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["bottleneck-left", "bottleneck-right"]);
}

#[test]
fn packets_spread_over_equal_paths_by_flow_and_stay_on_them() {
    let s = shipped_with("fat-tree", &[("duration", "200 ms"), ("traffic.a.flows", "64")]);
    let network = run(&s, 5);
    let sent = |link: &str| network.world.link_counters(network.link(link).unwrap()[0]).delivered;
    // 64 flows from the edge switch over two aggregation switches, then two core links each.
    let up: Vec<u64> = ["e1-1-a1", "e1-1-a2", "a1-1-c1", "a1-1-c2", "a1-2-c3", "a1-2-c4"].map(sent).to_vec();
    assert!(up.iter().all(|n| *n > 100), "{up:?}");
    // Nothing was sent again: a flow that changed its path in between would see its packets overtake each other.
    let s = shipped_with("fat-tree", &[("duration", "200 ms"), ("topology.link.queue", "100000 packets")]);
    let network = run(&s, 5);
    assert!(network.flows().iter().all(|f| f.retransmits == Some(0)));
}

#[test]
fn a_circle_of_routes_ends_with_the_hop_limit_and_the_sender_hears_of_it() {
    let s = scenario(
        "[host.a]\n[host.b]\n[router.x]\n[router.y]\n[link.ax]\nfrom='a'\nto='x'\n[link.xy]\nfrom='x'\nto='y'\n\
         [link.yb]\nfrom='y'\nto='b'\n[link.side]\nfrom='x'\nto='y'\n\
         [[route]]\nnode='y'\nto='b'\nvia='side'\n[[route]]\nnode='x'\nto='b'\nvia='side'\n\
         [[route]]\nnode='y'\nto='a'\nvia='xy'\n",
    );
    // A router that has the subnet itself delivers: the circle needs a destination that neither has.
    assert_eq!(neater_scenario::Routes::compute(&s).path(&s, 0, 2).map(|p| p.len()), Some(3));
    let s = scenario(
        "[host.a]\n[host.b]\n[router.x]\n[router.y]\n[router.z]\n[link.ax]\nfrom='a'\nto='x'\n[link.xy]\nfrom='x'\nto='y'\n\
         [link.yz]\nfrom='y'\nto='z'\n[link.zb]\nfrom='z'\nto='b'\n[[route]]\nnode='y'\nto='b'\nvia='xy'\n",
    );
    let network = World::build(&s, 1).unwrap();
    let mut a = network.world.net(network.host("a").unwrap());
    let to = SocketAddr::new(address(&network, "b"), 9);
    let sock = a.connect(Token(1), to, &SocketOptions::default()).unwrap();
    network.world.trace(true);
    network.world.run_until(network.start() + Duration::from_secs(1));
    assert_eq!(a.connect_result(sock).unwrap_err().kind, ErrorKind::HostUnreachable);
    let trace = network.world.take_trace();
    assert!(trace.iter().any(|e| e.verdict == TraceVerdict::Expired));
    // One link from the host, and one each time a router passed it on: the 64th hop is not made.
    let crossed = trace.iter().filter(|e| e.to == to && matches!(e.verdict, TraceVerdict::Crossed { .. })).count();
    assert_eq!(crossed, 64);
}

#[test]
fn routers_refuse_and_report() {
    let s = scenario(
        "[host.a]\n[host.b]\n[router.x]\nreject=['tcp/80']\ndrop=[{what='udp',after=2}]\n[router.y]\n[link.ax]\nfrom='a'\nto='x'\n\
         [link.xy]\nfrom='x'\nto='y'\nmtu=1400\n[link.yb]\nfrom='y'\nto='b'\n",
    );
    let network = World::build(&s, 1).unwrap();
    let (mut a, mut b) = (network.world.net(network.host("a").unwrap()), network.world.net(network.host("b").unwrap()));
    let to = |port| SocketAddr::new(address(&network, "b"), port);
    let options = SocketOptions::default();
    let refused = a.connect(Token(1), to(80), &options).unwrap();
    b.listen(Token(9), to(81), &options).unwrap();
    let open = a.connect(Token(2), to(81), &options).unwrap();
    let udp = a.udp(Token(3), to(0), &options).unwrap();
    let sink = b.udp(Token(4), to(5), &SocketOptions { local: Some(to(5)), ..options }).unwrap();
    for _ in 0..5 {
        a.send(udp, &datagram(to(5), b"two of five")).unwrap();
    }
    network.world.run_until(network.start() + Duration::from_secs(1));
    assert_eq!(a.connect_result(refused).unwrap_err().kind, ErrorKind::HostUnreachable);
    assert!(a.connect_result(open).is_ok());
    let mut batch = RecvBatch::default();
    assert_eq!(b.recv(sink, &mut batch), Ok(2));
    // What does not fit through the second link is reported by the router before it.
    let bytes = vec![1; 20_000];
    a.write(open, &[std::io::IoSlice::new(&bytes)]).unwrap();
    network.world.run_until(network.start() + Duration::from_secs(3));
    assert_eq!(a.stream_info(open).unwrap().path_mtu, Some(1400));
}

#[test]
fn hosts_with_two_interfaces_use_the_path_of_the_address_they_send_from() {
    let s = shipped_with("two-paths", &[("traffic", "{}")]);
    let network = World::build(&s, 1).unwrap();
    let host = network.host("a").unwrap();
    let mut a = network.world.net(host);
    let b1 = SocketAddr::new(address(&network, "b"), 9);
    let own: Vec<IpAddr> = a.interfaces()[1..].iter().map(|i| i.addrs[0].addr).collect();
    let send = |a: &mut neater_netsim::SimNet, own| {
        let options = SocketOptions { local: Some(SocketAddr::new(own, 0)), ..SocketOptions::default() };
        a.udp(Token(1), b1, &options).and_then(|sock| a.send(sock, &datagram(b1, b"x")))
    };
    assert!(send(&mut a, own[0]).is_ok());
    // b's first address is on path 1, which the second interface of a does not reach: hosts do not forward.
    assert_eq!(send(&mut a, own[1]).unwrap_err().kind, ErrorKind::NetworkUnreachable);
}

#[test]
fn traffic_of_every_kind_does_what_it_says() {
    let s = scenario(&format!(
        "warm-up='2 s'\nduration='20 s'\n{DUMBBELL}\
         [traffic.web]\nkind='web'\nfrom='r1'\nto='l1'\nflows=5\nstart-within='2 s'\n\
         [traffic.video]\nkind='video'\nfrom='l1'\nto='r1'\nrate='1 Mbit/s'\n\
         [traffic.burst]\nkind='on-off'\nfrom='l1'\nto='r2'\nrate='2 Mbit/s'\non='500 ms'\noff='500 ms'\npackets=[[1000,1]]\n\
         [traffic.ping]\nkind='ping'\nfrom='l2'\nto='r2'\ninterval='50 ms'\n\
         [traffic.file]\nfrom='l1'\nto='r1'\nbytes='2 MB'\nstart='3 s'\n[traffic.six]\nip=6\nfrom='l1'\nto='r1'\nbytes='10 kB'\n\
         [traffic.stopped]\nfrom='l2'\nto='r2'\nstop='1 s'\n"
    ));
    let network = run(&s, 7);
    let seconds = s.duration;
    let video = flow(&network, "video");
    // The transfers beside it fill the queue now and then.
    assert!((video.goodput(seconds) / 1e6 - 1.0).abs() < 0.03, "{video:?}");
    assert!(video.loss().unwrap() < 0.03, "{video:?}");
    // Half of the time at 2 Mbit/s of IP packets, of which 28 bytes in 1,000 are headers.
    let burst = flow(&network, "burst").goodput(seconds) / 1e6;
    assert!((burst - 0.972).abs() < 0.06, "{burst}");
    let ping = flow(&network, "ping");
    assert!(ping.rtt.count >= 390 && ping.rtt.min > 0.020 && ping.rtt.min < 0.0205, "{ping:?}");
    let file = flow(&network, "file");
    let took = (file.finished.unwrap() - file.started.unwrap()).as_secs_f64();
    assert_eq!(file.delivered, 2_000_000);
    assert!((1.6..6.0).contains(&took), "{took}");
    assert_eq!(flow(&network, "six").delivered, 10_000);
    assert!(network.flows().iter().filter(|f| f.traffic == 0).all(|f| f.page_time.count > 0 && f.failures == 0));
    // Each object that counts is there by itself.
    for f in network.flows().iter().filter(|f| f.traffic == 0) {
        let all = network.objects();
        let own: Vec<f64> = all.iter().filter(|o| (o.0, o.1) == (0, f.flow)).map(|o| o.2.seconds).collect();
        let mean = own.iter().sum::<f64>() / own.len() as f64;
        assert_eq!(own.len() as u64, f.object_time.count);
        assert!((mean - f.object_time.mean).abs() < 1e-9 && all.iter().all(|o| o.2.bytes > 0), "{mean}");
    }
    let stopped = flow(&network, "stopped");
    assert!(stopped.delivered > 200_000 && stopped.measured == 0, "{stopped:?}");
}

#[test]
fn flows_start_at_random_times_of_their_own() {
    let s = scenario(&format!(
        "duration='3 s'\n{DUMBBELL}[traffic.v]\nkind='video'\nfrom='l1'\nto='r1'\nflows=20\nrate='100 kbit/s'\nstart='1 s'\nstart-within='1 s'\n"
    ));
    let network = run(&s, 1);
    let mut starts: Vec<_> =
        network.flows().iter().map(|f| (f.started.unwrap() - network.start()).as_secs_f64()).collect();
    starts.sort_by(f64::total_cmp);
    starts.dedup();
    assert_eq!(starts.len(), 20);
    assert!(starts[0] >= 1.0 && starts[19] <= 2.0 && starts[19] - starts[0] > 0.5, "{starts:?}");
}

#[test]
fn the_schedule_changes_links_and_interfaces() {
    let s = scenario(&format!(
        "duration='6 s'\n{DUMBBELL}[traffic.v]\nkind='video'\nfrom='l1'\nto='r1'\nrate='1 Mbit/s'\n\
         [[schedule]]\nat='2 s'\nlink='bottleneck'\ndown=true\n[[schedule]]\nat='3 s'\nlink='bottleneck'\ndown=false\n\
         [[schedule]]\nat='5 s'\ninterface='l1.eth0'\nup=false\n[[probe]]\ngoodput='v'\ninterval='500 ms'\n"
    ));
    let network = run(&s, 1);
    let rates: Vec<_> = network.take_samples()[0].rows.iter().map(|r| r.values[1] > 0.5).collect();
    let expected = [true, true, true, true, false, false, true, true, true, true, false, false];
    assert_eq!(rates, expected);
}

#[test]
fn a_router_can_be_a_nat_box() {
    let s = scenario(
        "[host.a]\n[host.b]\n[router.home]\nnat={outside='dsl',kind='symmetric'}\n[router.x]\n[link.lan]\nfrom='a'\nto='home'\n\
         [link.dsl]\nfrom='home'\nto='x'\n[link.xb]\nfrom='x'\nto='b'\n\
         [traffic.up]\nfrom='a'\nto='b'\nbytes='100 kB'\n[traffic.six]\nip=6\nfrom='b'\nto='a'\nbytes='10 kB'\n\
         [traffic.down]\nfrom='b'\nto='a'\nbytes='10 kB'\n",
    );
    let network = World::build(&s, 1).unwrap();
    let (mut a, mut b) = (network.world.net(network.host("a").unwrap()), network.world.net(network.host("b").unwrap()));
    let to = SocketAddr::new(address(&network, "b"), 7000);
    let options = SocketOptions::default();
    let listener = b.listen(Token(1), to, &options).unwrap();
    a.connect(Token(2), to, &options).unwrap();
    network.world.run_until(network.start() + Duration::from_secs(5));
    let (_, seen) = b.accept(listener, Token(3)).unwrap();
    let outside = s.links[s.link("dsl").unwrap()].ends[0].addresses[0].0;
    assert_eq!(seen.ip(), outside);
    // Data flow both ways over what was opened from inside; IPv6 is not translated; nothing gets in to an inside address.
    assert_eq!(flow(&network, "up").delivered, 100_000);
    assert_eq!(flow(&network, "six").delivered, 10_000);
    assert_eq!(flow(&network, "down").delivered, 0);
}

#[test]
fn calls_and_uploads_cross_a_nat_box_that_rebinds_restarts_and_moves() {
    let s = shipped_with("home-nat", &[("duration", "10 s")]);
    let network = World::build(&s, 1).unwrap();
    network.run(|_| true);
    let flows = network.flows();
    let call = &flows[0];
    let (sent, back) = call.datagrams;
    // Each change of the box costs what was on its way back, at 20 ms a packet and some 30 ms of way; and the upload's queue.
    assert!(sent >= 499 && sent - back <= 40, "{back} of {sent}");
    let counters = network.world.with_nat(network.nat("home").unwrap(), |nat, _| nat.counters());
    assert!(counters.dropped_in > 0 && counters.mapped >= 3, "{counters:?}");
    assert!(flows[1].delivered > 0);
}

#[test]
fn what_happens_in_the_warm_up_is_not_measured() {
    // Everything is lost until the warm-up ends; of TCP, everything is sent again and again.
    let s = scenario(
        "warm-up='4 s'\nduration='5 s'\n[host.a]\n[host.b]\n[link.l]\nfrom='a'\nto='b'\ndelay='20 ms'\nrate='10 Mbit/s'\n\
         loss='20 %'\n[[schedule]]\nat='3900 ms'\nlink='l'\nloss='0 %'\n\
         [traffic.echo]\nkind='ping'\nfrom='a'\nto='b'\ninterval='10 ms'\n\
         [traffic.film]\nkind='video'\nfrom='a'\nto='b'\nrate='1 Mbit/s'\n\
         [traffic.bulk]\nfrom='b'\nto='a'\nstop='3 s'\n",
    );
    let network = run(&s, 3);
    for name in ["echo", "film"] {
        let f = flow(&network, name);
        assert!(f.datagrams.1 + 50 < f.datagrams.0, "lost before: {f:?}");
        // What is under way at the end is not lost.
        assert_eq!(f.loss(), Some(0.0), "{f:?}");
        assert!(f.measured_datagrams.0 > 400 && f.measured_datagrams.0 == f.measured_datagrams.1, "{f:?}");
        assert_eq!(f.retransmits, None);
    }
    assert_eq!(flow(&network, "bulk").retransmits, Some(0), "it has ended before");
    let (all, measured) = (network.counters()[0], network.measured()[0]);
    for way in 0..2 {
        assert!(all[way].lost > 30 && measured[way].lost == 0, "{:?} {:?}", all[way], measured[way]);
        assert!(measured[way].delivered + 300 < all[way].delivered && measured[way].offered > 400);
    }
}

#[test]
fn the_fullest_queue_is_that_of_the_time_that_is_measured() {
    let s = scenario(
        "warm-up='4 s'\nduration='2 s'\n[host.a]\n[host.b]\n[link.l]\nfrom='a'\nto='b'\ndelay='5 ms'\nrate='10 Mbit/s'\n\
         queue='200 packets'\n[traffic.flood]\nkind='video'\nfrom='a'\nto='b'\nrate='20 Mbit/s'\nstop='2 s'\n\
         [traffic.echo]\nkind='ping'\nfrom='a'\nto='b'\ninterval='10 ms'\n",
    );
    let network = run(&s, 1);
    let (all, measured) = (network.counters()[0][0], network.measured()[0][0]);
    assert!(measured.max_queued_bytes < 1_000 && measured.queue_full == 0, "{measured:?}");
    assert!(all.queue_full > 100, "{all:?}");
}

#[test]
fn lost_and_doubled_datagrams_are_told_apart() {
    let with = |keys: &str| {
        let s = scenario(&format!(
            "duration='20 s'\n[host.a]\n[host.b]\n[link.l]\nfrom='a'\nto='b'\ndelay='20 ms'\n{keys}\n\
             [traffic.film]\nkind='video'\nfrom='a'\nto='b'\nrate='2 Mbit/s'\n"
        ));
        flow(&run(&s, 5), "film").loss().expect("datagrams were sent")
    };
    let lost = with("loss='5 %'");
    assert!((0.03..0.07).contains(&lost), "{lost}");
    let both = with("loss='5 %'\nduplicate='50 %'");
    assert!((0.03..0.07).contains(&both), "copies are no datagrams that arrived: {both}");
}

#[test]
fn a_managed_queue_says_what_it_dropped_and_marked() {
    let with = |tcp: &str, ecn: bool| {
        let s = scenario(&format!(
            "duration='10 s'\n[host.a]\n{tcp}\n[host.b]\n{tcp}\n[link.l]\nfrom='a'\nto='b'\ndelay='10 ms'\nrate='5 Mbit/s'\n\
             queue='1000 packets'\ndiscipline={{kind='codel',ecn={ecn}}}\n[traffic.bulk]\nfrom='a'\nto='b'\n"
        ));
        run(&s, 1).measured()[0][0]
    };
    let dropped = with("", false);
    assert!(dropped.managed > 5 && dropped.marked == 0 && dropped.queue_full == 0, "{dropped:?}");
    let marked = with("tcp={ecn=true}", true);
    assert!(marked.managed == 0 && marked.marked > 5, "{marked:?}");
}
