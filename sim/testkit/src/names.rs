//! A name server that answers from a zone, and everything that can be wrong with one.
//!
//! *Responsible for* real messages over UDP and TCP, late, forged, cut or missing as its [`Temper`] says. *Not for* the
//! resolver, which is what is being tested.

use core::time::Duration;
use neater_dns::{Zone, answer, answer_stream};
use neater_netsim::{HostId, TcpAction, World};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The port of name servers.
pub const PORT: u16 = 53;
/// The record type A (RFC 1035 section 3.2.2).
pub const A: u16 = 1;
/// The record type AAAA (RFC 3596 section 2.1).
pub const AAAA: u16 = 28;
/// The record type HTTPS (RFC 9460 section 14.2).
pub const HTTPS: u16 = 65;

/// Forged answers that come before the true one, as those of an attacker beside the path would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    /// None.
    #[default]
    None,
    /// One with another id.
    OtherId,
    /// One to another question.
    OtherName,
    /// Bytes that are no message.
    Garbage,
}

/// What is wrong with a name server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Temper {
    /// Every answer comes this late.
    pub delay: Duration,
    /// Answers about one record type come this much later still.
    pub slow: BTreeMap<u16, Duration>,
    /// Questions about these record types get no answer.
    pub silent: Vec<u16>,
    /// This many datagrams get no answer, whatever they ask.
    pub drop_first: u32,
    /// Nothing gets an answer.
    pub dead: bool,
    /// Questions about these record types get SERVFAIL (RFC 1035 section 4.1.1).
    pub servfail: Vec<u16>,
    /// Every answer over UDP is cut to nothing, so that the asker has to come again over TCP.
    pub truncates: bool,
    /// Forged answers come before the true ones.
    pub lie: Lie,
}

#[derive(Debug)]
struct State {
    zone: Zone,
    temper: Temper,
    questions: u64,
}

/// A name server at port 53 of a host. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct NameServer(Arc<Mutex<State>>);

impl NameServer {
    /// Puts a name server on a host.
    #[must_use]
    pub fn install(world: &World, host: HostId, zone: Zone, temper: Temper) -> Self {
        let server = Self(Arc::new(Mutex::new(State { zone, temper, questions: 0 })));
        let (udp, tcp) = (server.clone(), server.clone());
        world.udp_service(host, PORT, Box::new(move |_, _, query, _| udp.with(|s| s.datagram(query))));
        let stream = move |received: &mut Vec<u8>| tcp.with(|s| s.stream(received));
        world.tcp_service(host, PORT, Box::new(move |_, _, received, _| stream(received)));
        server
    }

    fn with<T>(&self, call: impl FnOnce(&mut State) -> T) -> T {
        call(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes what is wrong with it.
    pub fn set_temper(&self, temper: Temper) {
        self.with(|s| s.temper = temper);
    }

    /// Changes what it knows.
    pub fn set_zone(&self, zone: Zone) {
        self.with(|s| s.zone = zone);
    }

    /// How many questions it was asked.
    #[must_use]
    pub fn questions(&self) -> u64 {
        self.with(|s| s.questions)
    }
}

impl State {
    fn datagram(&mut self, query: &[u8]) -> Vec<(Duration, Vec<u8>)> {
        self.questions += 1;
        let Some(kind) = kind_of(query) else { return Vec::new() };
        if self.temper.drop_first > 0 {
            self.temper.drop_first -= 1;
            return Vec::new();
        }
        let Some(delay) = self.patience(kind) else { return Vec::new() };
        let truth = if self.temper.servfail.contains(&kind) {
            bare(query, 0, 2)
        } else if self.temper.truncates {
            bare(query, 0x02, 0)
        } else {
            answer(query, &self.zone)
        };
        let Some(truth) = truth else { return Vec::new() };
        let mut out = Vec::new();
        if let Some(lie) = self.lie(&truth) {
            out.push((delay / 2, lie));
        }
        out.push((delay, truth));
        out
    }

    fn stream(&mut self, received: &mut Vec<u8>) -> Vec<(Duration, TcpAction)> {
        let mut out = Vec::new();
        while let [a, b, ..] = received[..] {
            let len = usize::from(u16::from_be_bytes([a, b]));
            if received.len() < 2 + len {
                break;
            }
            let query: Vec<u8> = received.drain(..2 + len).skip(2).collect();
            self.questions += 1;
            let Some(kind) = kind_of(&query) else { continue };
            let Some(delay) = self.patience(kind) else { continue };
            let reply = if self.temper.servfail.contains(&kind) {
                bare(&query, 0, 2)
            } else {
                answer_stream(&query, &self.zone)
            };
            if let Some(reply) = reply {
                let mut bytes = (reply.len() as u16).to_be_bytes().to_vec();
                bytes.extend(reply);
                out.push((delay, TcpAction::Send(bytes)));
            }
        }
        out
    }

    /// How late the answer comes; `None`: never.
    fn patience(&self, kind: u16) -> Option<Duration> {
        let t = &self.temper;
        let mute = t.dead || t.silent.contains(&kind);
        (!mute).then(|| t.delay + t.slow.get(&kind).copied().unwrap_or_default())
    }

    fn lie(&self, truth: &[u8]) -> Option<Vec<u8>> {
        let mut lie = truth.to_vec();
        match self.temper.lie {
            Lie::None => return None,
            Lie::OtherId => lie[0] ^= 0x55,
            // The first letter of the name in the question.
            Lie::OtherName => *lie.get_mut(13)? = b'x',
            Lie::Garbage => lie = vec![0xff; 40],
        }
        Some(lie)
    }
}

/// The end of the question section's only question, and its type.
fn question(query: &[u8]) -> Option<(usize, u16)> {
    let mut at = 12;
    loop {
        let len = usize::from(*query.get(at)?);
        at += 1 + len;
        if len == 0 {
            break;
        }
    }
    let kind = query.get(at..at + 2)?;
    Some((at + 4, u16::from_be_bytes([kind[0], kind[1]])))
}

fn kind_of(query: &[u8]) -> Option<u16> {
    question(query).map(|(_, kind)| kind)
}

/// An answer without records: flags of the third byte and a response code (RFC 1035 section 4.1.1).
fn bare(query: &[u8], flags: u8, code: u8) -> Option<Vec<u8>> {
    let (end, _) = question(query)?;
    let mut out = query.get(..end)?.to_vec();
    out[2] = 0x80 | (out[2] & 0x01) | flags;
    out[3] = 0x80 | code;
    out[4..12].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
    Some(out)
}
