//! What a peer that lists addresses of others can make this side do (RFC 5062), and what it cannot.

use crate::support::raw::Raw;
use crate::support::watch;
use core::time::Duration;
use neater_sctp::{AssociationConfig, PathState, StreamId};
use neater_sctp_wire::chunk::{Abort, CookieEcho, Data, Heartbeat, Init};
use neater_sctp_wire::parameter::{Ipv4Address, Ipv6Address};
use neater_sctp_wire::{Causes, Chunk, Parameter, Parameters, Ppid, Ssn, StreamId as WireStream, Tag, Tsn};
use std::net::{IpAddr, SocketAddr};

/// Bytes below SCTP: IPv4 and UDP.
const HEADERS: usize = 28;

/// A server, what it sends where, and how many bytes have come to it.
struct Attack {
    raw: Raw,
    from: SocketAddr,
    sent: Vec<(SocketAddr, Vec<u8>)>,
    received: usize,
}

impl Attack {
    /// An association whose peer at `from` lists these addresses.
    fn new(from: &str, listed: &[IpAddr]) -> Self {
        Self::on(Raw::listening(AssociationConfig::default()), from, listed)
    }

    fn on(raw: Raw, from: &str, listed: &[IpAddr]) -> Self {
        let mut attack = Self { raw, from: from.parse().unwrap(), sent: Vec::new(), received: 0 };
        let list: Vec<Parameter<'_>> = listed.iter().map(parameter).collect();
        let init = Init {
            tag: Tag(7),
            a_rwnd: 100_000,
            outbound_streams: 10,
            inbound_streams: 10,
            initial_tsn: Tsn(1000),
            parameters: Parameters::new(&list),
        };
        attack.raw.give_from(attack.from, Tag::ZERO, &init);
        attack.received += 12 + 20 + 8 * listed.len() + HEADERS;
        attack.take();
        let (mut tag, mut cookie) = (Tag::ZERO, Vec::new());
        let answer = attack.sent.pop().unwrap().1;
        watch::each(&[answer], |_, chunk| {
            if let Chunk::InitAck(ack) = chunk {
                tag = ack.0.tag;
                let of = |p: Parameter<'_>| if let Parameter::StateCookie(c) = p { Some(c.0.to_vec()) } else { None };
                cookie = ack.0.parameters.iter().flatten().find_map(of).unwrap_or_default();
            }
        });
        attack.raw.tag = tag;
        attack.raw.give_from(attack.from, tag, &CookieEcho { cookie: &cookie });
        attack.received += 16 + cookie.len() + HEADERS;
        attack.take();
        attack.raw.id = core::iter::from_fn(|| attack.raw.server.poll_event()).next().map(|(id, _)| id);
        assert!(attack.raw.id.is_some(), "the association is up");
        attack
    }

    fn take(&mut self) {
        let mut buffer = vec![0; 2000];
        while let Some(t) = self.raw.server.poll_transmit(self.raw.now, &mut buffer) {
            self.sent.push((t.route.remote, buffer[..t.len].to_vec()));
        }
    }

    fn wait(&mut self, time: Duration) {
        let end = self.raw.now + time;
        while let Some(next) = self.raw.server.next_timeout().filter(|n| *n <= end) {
            self.raw.now = self.raw.now.max(next);
            self.raw.server.handle_timeout(self.raw.now);
            self.take();
        }
        self.raw.now = end;
    }

    /// What has gone to others than the peer itself.
    fn elsewhere(&self) -> impl Iterator<Item = &(SocketAddr, Vec<u8>)> {
        self.sent.iter().filter(|(to, _)| *to != self.from)
    }
}

fn parameter(address: &IpAddr) -> Parameter<'static> {
    match *address {
        IpAddr::V4(a) => Ipv4Address(a).into(),
        IpAddr::V6(a) => Ipv6Address(a).into(),
    }
}

fn ips(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|a| a.parse().unwrap()).collect()
}

#[test]
fn addresses_within_this_host_or_its_site_are_not_knocked_at_for_a_stranger() {
    let bad = [
        "127.0.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "0.0.0.0",
        "10.1.2.3",
        "192.168.0.1",
        "169.254.1.1",
        "100.64.0.1",
    ];
    let mut attack = Attack::new("198.51.100.7:9899", &ips(&bad));
    attack.wait(Duration::from_secs(60));
    assert_eq!(attack.elsewhere().count(), 0, "{:?}", attack.sent);
    assert_eq!(attack.raw.server.paths(attack.raw.id.unwrap()).len(), 1);
    // A peer within the site may name others there, but nothing on this host.
    let mut neighbour = Attack::new("192.168.0.7:9899", &ips(&["192.168.0.8", "127.0.0.1"]));
    neighbour.wait(Duration::from_secs(5));
    assert!(neighbour.elsewhere().count() > 0);
    assert!(neighbour.elsewhere().all(|(to, _)| to.ip() == ips(&["192.168.0.8"])[0]));
}

#[test]
fn others_are_asked_at_most_for_three_times_what_the_peer_has_sent_and_never_get_data() {
    let victims: Vec<IpAddr> = (1..=40).map(|n| IpAddr::from([203, 0, 113, n])).collect();
    let mut attack = Attack::new("198.51.100.7:9899", &victims);
    let id = attack.raw.id.unwrap();
    let options = neater_sctp::SendOptions::default();
    for _ in 0..50 {
        attack.raw.server.send(id, StreamId(0), vec![7; 1000].into(), options).unwrap();
    }
    attack.take();
    attack.wait(Duration::from_secs(600));
    let paths = attack.raw.server.paths(id);
    assert!(paths.len() <= 8 && paths[1..].iter().all(|p| p.state == PathState::Unconfirmed), "{paths:?}");
    let (mut bytes, mut count) = (0, 0);
    for (to, packet) in attack.elsewhere() {
        bytes += packet.len() + HEADERS;
        count += 1;
        assert!(victims.contains(&to.ip()));
        watch::each(core::slice::from_ref(packet), |_, chunk| {
            assert!(matches!(chunk, Chunk::Heartbeat(_)), "{chunk:?}")
        });
    }
    assert!(count > 0 && bytes <= 3 * attack.received, "{bytes} bytes for {}", attack.received);
}

/// Over a layer that authenticates each path has a peer of its own: one that has a session of its
/// own and has guessed or learnt the tag is another one, and moves nothing.
#[test]
fn a_tag_proves_nothing_on_the_session_of_another_peer() {
    let layer = neater_sctp::Layer { authenticates: true, ..neater_sctp::Layer::udp() };
    for authenticates in [true, false] {
        let mut config = crate::support::config(1, 1, AssociationConfig::default());
        config.layers = vec![neater_sctp::Layer { authenticates, ..layer }];
        let mut attack = Attack::on(Raw::over(config), "198.51.100.7:9899", &[]);
        let id = attack.raw.id.unwrap();
        let thief: SocketAddr = "203.0.113.66:9899".parse().unwrap();
        let data = Data {
            tsn: Tsn(1000),
            stream: WireStream(0),
            ssn: Ssn(0),
            ppid: Ppid(0),
            unordered: false,
            beginning: true,
            ending: true,
            immediate: true,
            payload: b"forged",
        };
        let tag = attack.raw.tag;
        attack.raw.give_from(thief, tag, &Heartbeat { info: b"who is there?" });
        attack.raw.give_from(thief, tag, &data);
        attack.raw.give_from(thief, tag, &Abort { reflected: false, causes: Causes::EMPTY });
        attack.wait(Duration::from_secs(5));
        let untouched = attack.elsewhere().count() == 0
            && attack.raw.server.paths(id).len() == 1
            && core::iter::from_fn(|| attack.raw.server.poll_event()).next().is_none();
        // In the clear a packet's source proves nothing either way, and its tag is all that there
        // is (RFC 9260 section 8.5).
        assert_eq!(untouched, authenticates, "{:?}", attack.sent);
    }
}

#[test]
fn an_address_is_asked_once_in_a_retransmission_timeout() {
    let mut attack = Attack::new("198.51.100.7:9899", &ips(&["203.0.113.5"]));
    attack.sent.clear();
    attack.wait(Duration::from_millis(900));
    assert!(attack.elsewhere().count() <= 1, "the first timeout is a second (RFC 9260 section 16)");
}
