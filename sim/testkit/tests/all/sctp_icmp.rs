//! What ICMP may do to associations: nothing, unless it quotes a packet of theirs with its tag (RFC 9260 section 10).

use neater_engine::{SendOptions, Stack};
use neater_netsim::ForgedIcmp;
use neater_testkit::{Ask, Fault, Manner, Over, Plan};
use std::net::SocketAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

const KINDS: [ForgedIcmp; 4] =
    [ForgedIcmp::PortUnreachable, ForgedIcmp::HostUnreachable, ForgedIcmp::Prohibited, ForgedIcmp::TooBig(600)];

/// An INIT as a stranger may guess it: everything but the tag that it begins with.
fn guessed(source: u16, destination: u16, tag: u32) -> Vec<u8> {
    let mut packet = Vec::new();
    packet.extend(source.to_be_bytes());
    packet.extend(destination.to_be_bytes());
    packet.extend([0; 8]);
    packet.extend([1, 0, 0, 20]);
    packet.extend(tag.to_be_bytes());
    packet.extend([0; 12]);
    packet
}

#[test]
fn a_stranger_ends_neither_an_attempt_nor_an_association() {
    for stack in [Stack::Sctp, Stack::SctpDtls] {
        let ask = Ask::over(&[stack]);
        let mut town = Plan::new(1).build();
        town.listen(&ask, 443, Manner::echo());
        let c = town.open(&ask, Manner::patient());
        // A session that shakes hands takes the network's word, as QUIC does.
        town.play.run_for(if stack == Stack::Sctp { 5 * MS } else { S });
        let there: SocketAddr = "198.51.100.1:9899".parse().unwrap();
        for round in 0..2 {
            // Whichever UDP port the client has.
            for port in 32_768..=60_999 {
                let from = SocketAddr::new("192.0.2.1".parse().unwrap(), port);
                let begins = guessed(50_000, 443, 0x0102_0304);
                if !town.play.world().forge_icmp_about(from, there, &begins, KINDS[usize::from(port) % 4]) {
                    panic!("the client has another address");
                }
            }
            town.play.run_for(10 * MS);
            assert!(
                town.play.run_until(5 * S, |p| p.flow(c).is_ready()),
                "{stack} {round}: {:?}",
                town.play.flow(c).end()
            );
        }
        town.play.say(c, "still here", SendOptions::default());
        assert!(town.play.run_until(5 * S, |p| p.flow(c).messages.len() == 1), "{stack}");
        town.play.end();
    }
}

#[test]
fn a_refusal_that_quotes_the_attempt_ends_it_at_once() {
    let ask = Ask::over(&[Stack::Sctp]);
    let mut town = Plan::new(2).fault(Fault::UdpRejected).build();
    town.listen(&ask, 443, Manner::echo());
    let c = town.open(&ask, Manner::patient());
    assert!(town.play.run_until(S, |p| p.flow(c).is_over()), "by its timers it would take a minute");
    assert!(matches!(town.play.flow(c).end(), Some(Over::NotEstablished(_))));
    town.play.end();
}
