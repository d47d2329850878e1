//! Servers and strangers that lie.

use crate::world::*;
use neater_base::net::ErrorKind;
use neater_dns::{Answer, Input, RecordKind, ResolveError, TransportId};

const ZONE: &str = "h.test A 10.0.0.1\nh.test AAAA 2001:db8::1\nh.test HTTPS 1 . alpn=h3 ipv4hint=10.0.0.1\n";

/// Answers with what `bend` makes of the true answer, before the true one if `honest_too`.
fn bent(honest_too: bool, bend: impl Fn(Vec<u8>) -> Vec<u8> + 'static) -> Server {
    let mut inner = honest(ZONE);
    Box::new(move |q, tcp| {
        let mut acts = Vec::new();
        for (delay, act) in inner(q, tcp) {
            if let Act::Data(d) = &act {
                acts.push((delay, Act::Data(bend(d.clone()))));
            }
            if honest_too {
                acts.push((delay + ms(5), act));
            }
        }
        acts
    })
}

fn other_name(mut d: Vec<u8>) -> Vec<u8> {
    // The question's first label, to which the answer's owner points.
    d[13] = b'x';
    d
}

#[test]
fn a_wrong_id_is_ignored_and_the_true_answer_counts() {
    let mut w = World::new(
        config(1),
        vec![bent(true, |mut d| {
            d[0] ^= 0xff;
            d
        })],
    );
    assert_eq!(text(&w.one(&only_a("h.test"), RecordKind::A)), ["10.0.0.1"]);
    assert_eq!(w.asked.len(), 1);
}

#[test]
fn a_resolver_that_answers_another_name_is_ignored_until_it_times_out() {
    let mut w = World::new(config(1), vec![bent(false, other_name)]);
    assert_eq!(w.one(&only_a("h.test"), RecordKind::A), Answer::Failed(ResolveError::Timeout));
    assert_eq!(w.asked.len(), 2, "it was asked again");
    let now = w.now;
    assert_eq!(w.resolver.cached(now, "x.test"), None);
    let mut w = World::new(config(2), vec![bent(false, other_name), honest(ZONE)]);
    assert_eq!(text(&w.one(&only_a("h.test"), RecordKind::A)), ["10.0.0.1"]);
}

#[test]
fn an_answer_on_another_transport_does_not_count() {
    let mut w = World::new(config(1), vec![dead()]);
    let id = w.lookup(&addresses("h.test"));
    let zone = neater_dns::Zone::parse(ZONE).unwrap();
    let (aaaa, a) = (w.wire[0].clone(), w.wire[1].clone());
    let (aaaa, a) = (neater_dns::answer(&aaaa, &zone).unwrap(), neater_dns::answer(&a, &zone).unwrap());
    let now = w.now;
    for (transport, data) in [(0, &a), (1, &aaaa), (77, &a)] {
        w.resolver.handle_input(now, Input::UdpReceived { transport: TransportId(transport), data });
    }
    w.drain();
    assert_eq!(w.of(id), []);
    w.resolver.handle_input(now, Input::UdpReceived { transport: TransportId(1), data: &a });
    w.drain();
    assert_eq!(w.of(id).len(), 1);
}

#[test]
fn an_unreadable_answer_leads_to_the_next_server() {
    let cut = |mut d: Vec<u8>| {
        d.truncate(d.len() - 20);
        d
    };
    let mut w = World::new(config(2), vec![bent(false, cut), honest(ZONE)]);
    assert_eq!(text(&w.one(&only_a("h.test"), RecordKind::A)), ["10.0.0.1"]);
    let mut w = World::new(config(1), vec![bent(false, cut)]);
    assert_eq!(w.one(&only_a("h.test"), RecordKind::A), Answer::Failed(ResolveError::Malformed));
}

#[test]
fn every_truncation_and_every_broken_byte_ends_the_lookup_properly() {
    let length = {
        let mut w = World::new(config(1), vec![honest(ZONE)]);
        w.resolve(&all("h.test"));
        neater_dns::answer(&w.wire[0], &neater_dns::Zone::parse(ZONE).unwrap()).unwrap().len()
    };
    for at in 0..length {
        for kind in 0..3 {
            let bend = move |mut d: Vec<u8>| {
                match kind {
                    0 => d.truncate(at),
                    1 if at < d.len() => d[at] ^= 0xff,
                    _ if at < d.len() => d[at] = d[at].wrapping_add(1),
                    _ => {}
                }
                d
            };
            let mut w = World::new(config(1), vec![bent(false, bend)]);
            assert_eq!(w.resolve(&all("h.test")).len(), 3);
            assert!(w.done[0].1 - w.asked[0].0 <= config(1).longest_question());
        }
    }
}

#[test]
fn garbage_over_tcp_is_bounded() {
    let flood = |bytes: Vec<u8>| -> Server {
        Box::new(move |q, tcp| {
            if tcp {
                return vec![(ms(0), Act::Raw(bytes.clone())), (ms(1), Act::Fail)];
            }
            let mut reply = with_code(q, 0);
            reply[2] |= 2;
            vec![(ms(0), Act::Data(reply))]
        })
    };
    // Endless empty messages, then one long message that never ends.
    let mut w = World::new(config(1), vec![flood(vec![0; 5000])]);
    assert_eq!(w.one(&only_a("h.test"), RecordKind::A), Answer::Failed(ResolveError::Malformed));
    let mut w = World::new(config(1), vec![flood(vec![0xff; 5000])]);
    let error = ResolveError::Unreachable(ErrorKind::ConnectionRefused.into());
    assert_eq!(w.one(&only_a("h.test"), RecordKind::A), Answer::Failed(error));
}

#[test]
fn a_flood_of_foreign_datagrams_costs_no_memory() {
    let mut w = World::new(config(1), vec![honest(ZONE)]);
    let id = w.lookup(&only_a("h.test"));
    let due = w.resolver.next_timeout();
    let now = w.now;
    for i in 0..10_000u32 {
        w.resolver.handle_input(now, Input::UdpReceived { transport: TransportId(0), data: &i.to_be_bytes() });
        assert_eq!(w.resolver.poll_output(now), None);
    }
    assert_eq!(w.resolver.next_timeout(), due);
    w.run();
    assert_eq!(w.of(id).len(), 1);
}

#[test]
fn inputs_for_transports_that_are_not_open_are_ignored() {
    let mut w = World::new(config(1), vec![dead()]);
    let now = w.now;
    let transport = TransportId(5);
    for input in [
        Input::UdpReceived { transport, data: b"x" },
        Input::UdpFailed { transport, error: ErrorKind::Other.into() },
        Input::TcpConnected { transport },
        Input::TcpReceived { transport, data: b"x" },
        Input::TcpClosed { transport, error: None },
    ] {
        w.resolver.handle_input(now, input);
    }
    assert_eq!(w.resolver.poll_output(now), None);
}
