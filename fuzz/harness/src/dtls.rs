//! Targets in `crates/dtls`: a session whose datagrams somebody else writes, and a pair on a link that the bytes rule.

use core::time::Duration;
use neater_base::{Instant, Rng, WallTime};
use neater_dtls::{ClientConfig, Event, ServerConfig, Session, Tuning, look};
use neater_tls::{Crypto, SecurityParameters, ServerName, TlsVersion, Trust};
use std::sync::OnceLock;

const NAME: &str = "server.example";
/// More steps than this add no new state, and each may cost a signature.
const STEPS: usize = 200;

/// Both ends' configurations: 1.2 alone, 1.3 alone, both.
fn configs() -> &'static [(ClientConfig, ServerConfig)] {
    static CONFIGS: OnceLock<Vec<(ClientConfig, ServerConfig)>> = OnceLock::new();
    CONFIGS.get_or_init(|| {
        let wall = WallTime(Duration::from_secs(1_700_000_000));
        // One key for good, so that an input that failed fails again; signatures differ, and nothing depends on them.
        let identity = neater_tls::self_signed_p256(&[NAME], wall).expect("a certificate");
        let crypto = Crypto::system();
        crypto.clock.set(wall);
        let ranges = [
            (TlsVersion::Tls12, TlsVersion::Tls12),
            (TlsVersion::Tls13, TlsVersion::Tls13),
            (TlsVersion::Tls12, TlsVersion::Tls13),
        ];
        let make = |(min, max)| {
            let mut p = SecurityParameters::new();
            (p.min_version, p.max_version) = (min, max);
            p.trust = Trust::Only(identity.chain.clone());
            let client = ClientConfig::new(&p, &crypto, Tuning::default()).expect("a client");
            p.server_certificates = vec![identity.clone()];
            (client, ServerConfig::new(&p, &crypto, Tuning::default()).expect("a server"))
        };
        ranges.into_iter().map(make).collect()
    })
}

/// What is in flight, and what has been said by either end.
struct Link {
    ends: [Session; 2],
    flying: Vec<(usize, Vec<u8>)>,
    sent: Vec<Vec<u8>>,
    connected: [bool; 2],
}

impl Link {
    fn collect(&mut self) {
        for (from, end) in self.ends.iter_mut().enumerate() {
            while let Some(datagram) = end.poll_transmit() {
                self.flying.push((1 - from, datagram));
            }
            while let Some(event) = end.poll_event() {
                self.connected[from] |= event == Event::Connected;
            }
            while let Some(message) = end.recv() {
                assert!(self.connected[from], "no message before the end of the handshake");
                assert!(self.sent.iter().any(|m| m[..] == message[..]), "only what was sent is received");
            }
        }
        // What is forgotten is lost.
        let excess = self.flying.len().saturating_sub(64);
        self.flying.drain(..excess);
    }
}

/// Two sessions and a link on which `data` delivers, repeats, drops, damages and forges datagrams, and lets time pass. A
/// message comes out only if it went in, and nothing panics.
pub fn dtls_session(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let configs = configs();
    let (client, server) = &configs[usize::from(*first) % configs.len()];
    let mut rng = Rng::from_number(u64::from(*first));
    let mut now = Instant::ZERO + Duration::from_secs(1000);
    let name = ServerName::try_from(NAME).expect("a name").to_owned();
    let ends = [Session::client(client, name, now, &mut rng), Session::server(server, now, &mut rng)];
    let mut link = Link { ends, flying: Vec::new(), sent: Vec::new(), connected: [false; 2] };
    link.collect();
    let mut bytes = rest.iter().copied();
    for _ in 0..STEPS {
        let (Some(what), Some(which)) = (bytes.next(), bytes.next()) else { break };
        let chosen = (!link.flying.is_empty()).then(|| usize::from(which) % link.flying.len().max(1));
        match (what % 8, chosen) {
            // Delivered: twice as likely as anything else, so that handshakes come through.
            (0 | 1, Some(i)) => {
                let (to, datagram) = link.flying.remove(i);
                link.ends[to].handle_datagram(now, &datagram);
            }
            (2, Some(i)) => drop(link.flying.remove(i)),
            // Repeated, or reflected to who has sent it.
            (3, Some(i)) => {
                let (to, datagram) = link.flying[i].clone();
                let to = if what & 0x80 == 0 { to } else { 1 - to };
                link.ends[to].handle_datagram(now, &datagram);
            }
            // Damaged.
            (4, Some(i)) => {
                let (to, mut datagram) = link.flying.remove(i);
                let at = bytes.next().unwrap_or(0);
                let n = datagram.len().max(1);
                if let Some(byte) = datagram.get_mut(usize::from(at) * 7 % n) {
                    *byte ^= which | 1;
                }
                link.ends[to].handle_datagram(now, &datagram);
            }
            // Forged.
            (5, _) => {
                let forged: Vec<u8> = bytes.by_ref().take(usize::from(which)).collect();
                let _ = look(&forged);
                link.ends[usize::from(what >> 7)].handle_datagram(now, &forged);
            }
            (6, _) => {
                now += Duration::from_millis(u64::from(which) * 20);
                link.ends.iter_mut().for_each(|end| end.handle_timeout(now));
            }
            (7, _) => {
                let message = vec![which; usize::from(what)];
                if link.ends[usize::from(what >> 7)].send(now, &message).is_ok() {
                    link.sent.push(message);
                }
            }
            _ => {}
        }
        link.collect();
    }
    link.ends.iter_mut().for_each(|end| end.close(now));
    assert!(link.ends.iter().all(|end| end.is_over() && end.next_timeout().is_none()));
}
