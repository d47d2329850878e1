//! One DTLS association, as a machine.

use crate::clock::Epoch;
use crate::config::{ClientConfig, Common, ServerConfig};
use crate::error::{DtlsError, SendError, refusal, translate};
use crate::look::goes_on;
use crate::scope::{self, Scope};
use bytes::Bytes;
use core::fmt;
use dimpl::{Dtls, DtlsCertificate, Error, Output, UnexpectedMessageError};
use neater_base::{Instant, Rng};
use neater_tls::{Clock, ServerName, TlsError};
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use std::collections::VecDeque;
use std::sync::Arc;

/// How many bytes a peer may send before the handshake is over: twice what the largest reasonable
/// chain takes.
pub const HANDSHAKE_LIMIT: usize = 128 * 1024;
/// How many bytes of received messages wait to be fetched; what comes then is dropped, as a
/// socket's buffer would.
pub const RECEIVE_LIMIT: usize = 256 * 1024;
/// The longest message: a record's plaintext (RFC 6347 section 4.1.1, RFC 9147 section 4).
pub const MAX_MESSAGE: usize = 1 << 14;
/// The longest datagram worth looking at: the most that UDP carries.
pub const MAX_DATAGRAM: usize = 65_535;
/// What DTLS 1.3 adds to a message: 5 bytes of header, the content type, and 16 of authentication
/// (RFC 9147 section 4).
pub const OVERHEAD_13: usize = 22;
/// What DTLS 1.2 with AES-GCM adds: 13 bytes of header, 8 of nonce, 16 of authentication (RFC 5288
/// section 3).
pub const OVERHEAD_12_GCM: usize = 37;
/// What DTLS 1.2 with ChaCha20-Poly1305 adds: 13 bytes of header, 16 of authentication (RFC 7905
/// section 2).
pub const OVERHEAD_12_CHACHA: usize = 29;

/// What an empty message costs in the receive queue.
const QUEUED: usize = 64;
/// dimpl's largest output of a session that is up: a record with its header.
const BUFFER: usize = MAX_MESSAGE + 512;

/// A version of DTLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// RFC 6347.
    V12,
    /// RFC 9147.
    V13,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V12 => "DTLS 1.2",
            Self::V13 => "DTLS 1.3",
        })
    }
}

/// What has happened to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer has answered for the first time (client only).
    Reachable,
    /// The handshake is over, and the peer has the expected identity.
    Connected,
    /// Messages wait to be fetched.
    Received,
    /// The peer has closed the session (an authenticated `close_notify`).
    Closed,
    /// The session has failed.
    Failed(DtlsError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Handshaking,
    Connected,
    /// Closed by the peer, by us, or failed.
    Over,
}

/// What decides whether the peer has the expected identity.
enum Judge {
    Server(Arc<dyn ServerCertVerifier>, ServerName<'static>),
    Client(Option<Arc<dyn ClientCertVerifier>>),
}

/// One DTLS association.
///
/// Feed it datagrams of its peer and the time; after every call take what it has to send
/// ([`Session::poll_transmit`]), what has happened ([`Session::poll_event`]) and when it wants to
/// be called again ([`Session::next_timeout`]).
pub struct Session {
    dtls: Box<Dtls>,
    scope: Scope,
    epoch: Epoch,
    judge: Judge,
    clock: Arc<Clock>,
    state: State,
    /// The only certificate that will do, if there is another session with the peer.
    same: Option<Box<CertificateDer<'static>>>,
    /// The peer's own certificate, not judged yet.
    leaf: Option<CertificateDer<'static>>,
    /// The peer's chain, once judged.
    peer: Vec<CertificateDer<'static>>,
    answered: bool,
    transmits: VecDeque<Vec<u8>>,
    events: VecDeque<Event>,
    received: VecDeque<Bytes>,
    received_bytes: usize,
    dropped: u64,
    timeout: Option<Instant>,
    /// Bytes of the peer during the handshake.
    taken: usize,
    /// Bytes sent to a peer that has not proved its address.
    risked: usize,
    /// The peer has proved that it receives at its address.
    verified: bool,
    overhead: usize,
    failed: bool,
    buffer: Vec<u8>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("state", &self.state).field("dtls", &self.dtls).finish_non_exhaustive()
    }
}

impl Session {
    /// Begins a handshake with the server of this name; the first datagram is there to be sent.
    #[must_use]
    pub fn client(config: &ClientConfig, name: ServerName<'static>, now: Instant, rng: &mut Rng) -> Self {
        let judge = Judge::Server(config.verifier.clone(), name);
        let mut session = Self::new(&config.common, judge, true, now, rng);
        session.handle_timeout(now);
        session
    }

    /// Begins a handshake with the server of another session, which must be up: the same name is
    /// asked for, and nothing but the same certificate will do. `None`: it is not a client's, or
    /// its server has not proved its identity.
    #[must_use]
    pub fn beside(other: &Self, config: &ClientConfig, now: Instant, rng: &mut Rng) -> Option<Self> {
        let Judge::Server(_, name) = &other.judge else { return None };
        let same = other.peer.first().filter(|_| other.state == State::Connected)?.clone();
        let judge = Judge::Server(config.verifier.clone(), name.clone());
        let mut session = Self::new(&config.common, judge, true, now, rng);
        session.same = Some(Box::new(same));
        session.handle_timeout(now);
        Some(session)
    }

    /// Waits for a ClientHello. Make one only for a datagram that is a [`crate::Look::Hello`], give
    /// it no other's hellos, and bound the number of those that are not
    /// [verified](Session::is_verified): each costs some kilobytes.
    #[must_use]
    pub fn server(config: &ServerConfig, now: Instant, rng: &mut Rng) -> Self {
        Self::new(&config.common, Judge::Client(config.verifier.clone()), false, now, rng)
    }

    fn new(common: &Common, judge: Judge, active: bool, now: Instant, rng: &mut Rng) -> Self {
        let config = common.for_session(rng);
        let own = common.identity.as_ref().and_then(|k| k.cert.first());
        // A side that may speak 1.2 has to have something; without a key it cannot show it (see
        // `NoKey`).
        let nothing = if common.versions().0 { vec![0x30, 0] } else { Vec::new() };
        let certificate = own.map_or(nothing, |c| c.to_vec());
        let certificate = DtlsCertificate { certificate, private_key: Vec::new() };
        let mut scope =
            Scope { identity: common.identity.clone(), schemes: common.schemes.clone(), ..Scope::default() };
        let epoch = Epoch::new(now);
        let dtls = scope::lend(&mut scope, || {
            let now = epoch.theirs(now);
            let mut dtls = match common.versions() {
                (true, false) => Dtls::new_12(config, certificate, now),
                (false, _) => Dtls::new_13(config, certificate, now),
                (true, true) => Dtls::new_auto(config, certificate, now),
            };
            dtls.set_active(active);
            dtls
        });
        Self {
            dtls: Box::new(dtls),
            scope,
            epoch,
            judge,
            clock: common.clock.clone(),
            state: State::Handshaking,
            same: None,
            leaf: None,
            peer: Vec::new(),
            answered: false,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            received: VecDeque::new(),
            received_bytes: 0,
            dropped: 0,
            timeout: None,
            taken: 0,
            risked: 0,
            verified: active,
            overhead: OVERHEAD_12_GCM,
            failed: false,
            buffer: Vec::new(),
        }
    }

    /// Takes a datagram of the peer. Anything may come: what is not authentic is dropped once there
    /// are keys.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) {
        if self.state == State::Over || datagram.is_empty() || datagram.len() > MAX_DATAGRAM {
            return;
        }
        match self.state {
            State::Handshaking => {
                self.taken = self.taken.saturating_add(datagram.len());
                if self.taken > HANDSHAKE_LIMIT {
                    return self.fail(TlsError::HandshakeTooLarge.into());
                }
            }
            // In 1.3 everything after the handshake is encrypted: its records begin with the bits
            // 001 (RFC 9147 section 4). The rest could be from any host.
            State::Connected if self.version() == Some(Version::V13) && datagram[0] & 0xe0 != 0x20 => return,
            State::Connected | State::Over => {}
        }
        let at = self.epoch.theirs(now);
        let dtls = &mut self.dtls;
        let result = scope::lend(&mut self.scope, || {
            // dimpl's clock stands still between its calls; timers that are due come before what is
            // later.
            dtls.handle_timeout(at)?;
            dtls.handle_packet(datagram)
        });
        let unrecognised = Error::UnexpectedMessage(UnexpectedMessageError::UnrecognizedAutoServerResponse);
        match result {
            // Before the version is known dimpl gives up on any datagram that is no answer. It has
            // not touched its state then (0.9.0, `handle_pending_auto_client`), and a host that
            // guesses a port must not be able to end a handshake.
            Err(e) if e == unrecognised => {}
            Ok(()) => {
                if !core::mem::replace(&mut self.answered, true) && matches!(self.judge, Judge::Server(..)) {
                    self.events.push_back(Event::Reachable);
                }
            }
            Err(e) => {
                self.failed(&e);
                return self.refuse(&e, datagram);
            }
        }
        self.drain(now);
    }

    /// Lets time pass. Early or repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.state == State::Over {
            return;
        }
        let (at, dtls) = (self.epoch.theirs(now), &mut self.dtls);
        if let Err(e) = scope::lend(&mut self.scope, || dtls.handle_timeout(at)) {
            return self.failed(&e);
        }
        self.drain(now);
    }

    /// When to call [`Session::handle_timeout`]: for a flight to be sent again, or to give up.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timeout.filter(|_| self.state != State::Over)
    }

    /// The next datagram to send to the peer.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.transmits.pop_front()
    }

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next message of the peer, in the order in which they arrived: as it was sent, or not at
    /// all.
    pub fn recv(&mut self) -> Option<Bytes> {
        let message = self.received.pop_front()?;
        self.received_bytes -= message.len() + QUEUED;
        Some(message)
    }

    /// Sends a message in a datagram of its own, [`Session::overhead`] bytes longer.
    ///
    /// # Errors
    /// [`SendError`]; only [`SendError::TooLarge`] is about this message.
    pub fn send(&mut self, now: Instant, message: &[u8]) -> Result<(), SendError> {
        match self.state {
            State::Handshaking => return Err(SendError::NotConnected),
            State::Over => return Err(SendError::Closed),
            State::Connected => {}
        }
        if message.len() > MAX_MESSAGE {
            return Err(SendError::TooLarge);
        }
        let dtls = &mut self.dtls;
        if let Err(e) = scope::lend(&mut self.scope, || dtls.send_application_data(message)) {
            self.failed(&e);
            return Err(SendError::Closed);
        }
        let before = self.transmits.len();
        self.drain(now);
        if let Some(sent) = self.transmits.get(before) {
            self.overhead = sent.len().saturating_sub(message.len()).clamp(OVERHEAD_13, OVERHEAD_12_GCM);
        }
        Ok(())
    }

    /// Ends the session: with a `close_notify` if it is connected, silently if it is not.
    pub fn close(&mut self, now: Instant) {
        if self.state == State::Over {
            return;
        }
        let dtls = &mut self.dtls;
        let closed = scope::lend(&mut self.scope, || dtls.close());
        if closed.is_ok() {
            self.drain(now);
        }
        self.state = State::Over;
    }

    /// Ends the session without an alert: the host that has the peer's address now does not know
    /// it.
    pub fn forget(&mut self) {
        self.state = State::Over;
        self.transmits.clear();
    }

    /// Whether the peer is known to receive at its address: a server knows it when the client has
    /// returned its cookie (RFC 6347 section 4.2.1, RFC 9147 section 5.1), and has answered with
    /// nothing but the request for it before. Of a server, a client does not doubt it.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.verified
    }

    /// Whether the handshake is still going on.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.state == State::Handshaking
    }

    /// Whether messages can be sent.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.state == State::Connected
    }

    /// Whether the session is over, however it ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Which version is spoken, once that is known.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        let version = self.dtls.protocol_version()?;
        Some(if version == dimpl::ProtocolVersion::DTLS1_2 { Version::V12 } else { Version::V13 })
    }

    /// What a datagram has more than the message in it, in bytes: before the first message, the
    /// most it can be for the version that is spoken.
    #[must_use]
    pub fn overhead(&self) -> usize {
        if self.version() == Some(Version::V13) { OVERHEAD_13 } else { self.overhead }
    }

    /// The longest message that fits into a datagram of so many bytes.
    #[must_use]
    pub fn max_message(&self, datagram: usize) -> usize {
        datagram.saturating_sub(self.overhead()).min(MAX_MESSAGE)
    }

    /// The peer's certificates, its own first, once they are judged; empty for a client that was
    /// not asked for one.
    #[must_use]
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        &self.peer
    }

    /// How many messages were dropped because they were not fetched in time.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Takes from dimpl what it has, until it waits for something.
    fn drain(&mut self, now: Instant) {
        let mut buffer = core::mem::take(&mut self.buffer);
        // During the handshake the peer's certificate comes out, too, and dimpl panics where it
        // does not fit.
        let needed = if self.state == State::Handshaking { HANDSHAKE_LIMIT } else { BUFFER };
        if buffer.len() < needed {
            buffer.resize(needed, 0);
        }
        let before = self.transmits.len();
        loop {
            let dtls = &mut self.dtls;
            match scope::lend(&mut self.scope, || dtls.poll_output(&mut buffer)) {
                Output::Packet(p) => self.transmit(p),
                Output::BufferTooSmall { needed } => {
                    // A record is at most 2¹⁶ bytes; a claim of more would be a defect, and must
                    // not eat memory.
                    if needed > 2 * MAX_DATAGRAM {
                        break;
                    }
                    buffer.resize(needed, 0);
                }
                Output::Timeout(at) => {
                    self.timeout = self.epoch.ours(at, now);
                    break;
                }
                Output::PeerCert(der) => self.leaf = Some(CertificateDer::from(der.to_vec())),
                Output::Connected => self.connected(),
                Output::ApplicationData(data) => self.receive(data),
                Output::CloseNotify => {
                    self.events.push_back(Event::Closed);
                    self.state = State::Over;
                }
                _ => {}
            }
        }
        // Many sessions are never up, or are silent for long.
        if self.state == State::Connected && buffer.len() <= BUFFER {
            self.buffer = buffer;
        }
        if self.state == State::Handshaking {
            self.judge(false);
        }
        if self.failed {
            // Nothing that was made after the certificate came may confirm the handshake to the
            // peer.
            self.transmits.truncate(before);
        }
    }

    fn transmit(&mut self, packet: &[u8]) {
        // A server of ours asks every client for a cookie, and goes on when it has seen it.
        self.verified |= goes_on(packet);
        if !self.verified {
            // An unverified peer gets no more bytes than came from its address.
            if self.risked + packet.len() > self.taken {
                return;
            }
            self.risked += packet.len();
        }
        self.transmits.push_back(packet.to_vec());
    }

    fn receive(&mut self, data: &[u8]) {
        if self.state == State::Handshaking {
            return;
        }
        if self.received_bytes + data.len() + QUEUED > RECEIVE_LIMIT {
            self.dropped += 1;
            return;
        }
        self.received_bytes += data.len() + QUEUED;
        self.received.push_back(Bytes::copy_from_slice(data));
        if self.events.back() != Some(&Event::Received) {
            self.events.push_back(Event::Received);
        }
    }

    /// The cryptographic handshake is over: it is worth what the judgement of the peer's
    /// certificate is.
    fn connected(&mut self) {
        if self.state != State::Handshaking || !self.judge(true) {
            return;
        }
        self.state = State::Connected;
        self.scope.done = true;
        self.scope.chains = Vec::new();
        self.events.push_back(Event::Connected);
    }

    /// Judges the peer's certificate as soon as its chain is known; `last`: or now. False: the
    /// session has failed.
    fn judge(&mut self, last: bool) -> bool {
        let Some(leaf) = self.leaf.take() else {
            let wanted = !matches!(self.judge, Judge::Client(None));
            if last && wanted && self.peer.is_empty() {
                self.fail(TlsError::NoPeerCertificate.into());
                return false;
            }
            return true;
        };
        let chain = self.scope.chains.iter().position(|c| c.first() == Some(&leaf));
        let chain = match chain {
            Some(i) => self.scope.chains.swap_remove(i),
            None if last => vec![leaf],
            None => {
                self.leaf = Some(leaf);
                return true;
            }
        };
        match self.verdict(&chain) {
            Ok(()) => {
                self.peer = chain;
                true
            }
            Err(e) => {
                self.fail(e.into());
                false
            }
        }
    }

    fn verdict(&self, chain: &[CertificateDer<'static>]) -> Result<(), TlsError> {
        let Some((leaf, intermediates)) = chain.split_first() else { return Err(TlsError::NoPeerCertificate) };
        if self.same.as_ref().is_some_and(|same| **same != *leaf) {
            return Err(TlsError::BadCertificate("it is another one than on the first session with this peer".into()));
        }
        let now = self.clock.get().ok_or(TlsError::ClockNotSet)?;
        let now = UnixTime::since_unix_epoch(now.0);
        match &self.judge {
            Judge::Server(verifier, name) => {
                verifier.verify_server_cert(leaf, intermediates, name, &[], now).map(drop).map_err(TlsError::from)
            }
            Judge::Client(Some(verifier)) => {
                verifier.verify_client_cert(leaf, intermediates, now).map(drop).map_err(TlsError::from)
            }
            // A certificate that was not requested proves nothing.
            Judge::Client(None) => Ok(()),
        }
    }

    fn failed(&mut self, error: &Error) {
        let mut error = translate(error, self.state == State::Connected);
        if self.scope.no_key {
            let why = "the server asks for a certificate and there is none: set client_certificates, with an ECDSA key";
            error = TlsError::Local(why.into()).into();
        } else if let Some(why) = self.scope.unsigned.take() {
            error = TlsError::Local(why).into();
        }
        self.fail(error);
    }

    /// An alert for a client with which nothing can be agreed: in the clear, and with fewer bytes
    /// than its hello has.
    fn refuse(&mut self, error: &Error, hello: &[u8]) {
        // Verified are a client's sessions, and those of clients that may have keys.
        let (false, Some(why), Some(number)) = (self.verified, refusal(error), hello.get(5..11)) else { return };
        // A fatal alert of epoch 0, numbered like its hello (RFC 6347 section 4.2.1): above all
        // that was answered before.
        let mut alert = vec![21, 0xfe, 0xfd, 0, 0];
        alert.extend_from_slice(number);
        alert.extend_from_slice(&[0, 2, 2, u8::from(why)]);
        self.transmits.clear();
        self.transmit(&alert);
    }

    fn fail(&mut self, error: DtlsError) {
        if self.state != State::Over {
            (self.state, self.failed) = (State::Over, true);
            self.events.push_back(Event::Failed(error));
        }
    }
}
