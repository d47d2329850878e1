//! The sessions that a client may resume.
//!
//! One store serves an engine. It is divided by isolation key (RFC 9622's `isolateSession`), and
//! within that by what was negotiated under: how the peer is authenticated, our own identity, the
//! protocols offered, TCP or QUIC. A session is only ever offered in the division it came from, so
//! neither can one isolation key be linked to another, nor can a session that was made without
//! authentication pass for an authenticated one.
//!
//! rustls resumes only under the *same* verifier object, so the store also keeps the verifiers: two
//! configurations made from equal parameters share one.

use crate::provider::{Clock, Crypto};
use core::fmt;
use core::time::Duration;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ClientSessionStore, ResolvesClientCert, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::{NamedGroup, RootCertStore};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many sessions a store holds by default; also how many servers it remembers anything of.
///
/// A session is some 300 bytes plus the server's ticket and certificate chain: typically 3 kB.
pub const MAX_SESSIONS: usize = 1024;
/// How many TLS 1.3 tickets are kept for one server. Each serves one connection; servers usually
/// send two.
pub const MAX_TICKETS_PER_SERVER: usize = 4;
/// The longest time for which a session is kept: what RFC 8446 section 4.6.1 allows a ticket, seven
/// days.
pub const MAX_LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How many verifiers are kept: as many kinds of security parameters can be in use at once and
/// still resume.
const MAX_VERIFIERS: usize = 64;

/// A SHA-256 over everything that must be equal.
pub(crate) type Digest = [u8; 32];

/// What authenticates the peer and ourselves.
#[derive(Clone)]
pub(crate) struct Authentication {
    pub(crate) verifier: Arc<dyn ServerCertVerifier>,
    pub(crate) resolver: Arc<dyn ResolvesClientCert>,
    /// Kept alive, because the digest that finds this distinguishes providers and anchors by
    /// address.
    pub(crate) _held: (Arc<CryptoProvider>, Arc<RootCertStore>),
}

/// The division of the store that a configuration reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Scope {
    isolation: u64,
    context: Digest,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Server {
    scope: Scope,
    name: String,
}

struct Timed<T> {
    until: u64,
    session: T,
}

#[derive(Default)]
struct Memory {
    /// When it was last written, as a sequence number.
    touched: u64,
    group: Option<NamedGroup>,
    tls12: Option<Timed<Tls12ClientSessionValue>>,
    tls13: VecDeque<Timed<Tls13ClientSessionValue>>,
}

impl Memory {
    fn sessions(&self) -> usize {
        self.tls13.len() + usize::from(self.tls12.is_some())
    }
}

#[derive(Default)]
struct Table {
    servers: BTreeMap<Server, Memory>,
    by_age: BTreeMap<u64, Server>,
    verifiers: BTreeMap<Digest, (u64, Authentication)>,
    sessions: usize,
    sequence: u64,
}

impl Table {
    fn tick(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn forget(&mut self, server: &Server) {
        if let Some(memory) = self.servers.remove(server) {
            self.sessions -= memory.sessions();
            self.by_age.remove(&memory.touched);
        }
    }

    /// Changes what is known of `server` and makes it the youngest.
    fn edit(&mut self, server: Server, change: impl FnOnce(&mut Memory)) {
        let sequence = self.tick();
        let memory = self.servers.entry(server.clone()).or_default();
        let (before, touched) = (memory.sessions(), memory.touched);
        change(memory);
        memory.touched = sequence;
        self.sessions = self.sessions + memory.sessions() - before;
        self.by_age.remove(&touched);
        self.by_age.insert(sequence, server);
    }

    fn in_scope(&self, scope: Scope) -> impl Iterator<Item = (&Server, &Memory)> {
        let from = Server { scope, name: String::new() };
        self.servers.range(from..).take_while(move |(s, _)| s.scope == scope)
    }

    /// Forgets the oldest servers until at most `max` sessions of at most `max` servers are left.
    fn shrink(&mut self, max: usize) {
        while self.sessions > max || self.servers.len() > max {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            self.forget(&oldest);
        }
    }

    /// The same within one scope.
    fn shrink_scope(&mut self, scope: Scope, max: usize) {
        loop {
            let sessions: usize = self.in_scope(scope).map(|(_, m)| m.sessions()).sum();
            if sessions <= max {
                return;
            }
            let holding = self.in_scope(scope).filter(|(_, m)| m.sessions() > 0);
            let Some(oldest) = holding.min_by_key(|(_, m)| m.touched).map(|(s, _)| s.clone()) else { return };
            self.forget(&oldest);
        }
    }
}

/// The sessions that clients of one engine may resume. A clone is the same store.
///
/// Bounded in number and time; the sessions of servers that were talked to longest ago make room.
/// Its contents are as secret as keys, and never printed.
#[derive(Clone)]
pub struct SessionStore {
    table: Arc<Mutex<Table>>,
    clock: Arc<Clock>,
    max: usize,
    scope_max: usize,
    lifetime: Duration,
    scope: Scope,
}

impl SessionStore {
    /// An empty store with the default bounds, judging age by `clock`. Its isolation key is 0.
    #[must_use]
    pub fn new(clock: Arc<Clock>) -> Self {
        Self::with_limits(clock, MAX_SESSIONS, MAX_LIFETIME)
    }

    /// An empty store of at most `max` sessions, each kept for at most `lifetime` (never longer
    /// than [`MAX_LIFETIME`]).
    #[must_use]
    pub fn with_limits(clock: Arc<Clock>, max: usize, lifetime: Duration) -> Self {
        let scope = Scope { isolation: 0, context: [0; 32] };
        let lifetime = lifetime.min(MAX_LIFETIME);
        Self { table: Arc::default(), clock, max, scope_max: max, lifetime, scope }
    }

    /// The part of the store of `crypto` that belongs to an isolation key: what an engine's clients
    /// share.
    #[must_use]
    pub fn global(crypto: &Crypto, isolation: u64) -> Self {
        crypto.sessions.isolated(isolation)
    }

    /// The part of this store that belongs to an isolation key. The bounds hold for all parts
    /// together.
    #[must_use]
    pub fn isolated(&self, key: u64) -> Self {
        Self { scope: Scope { isolation: key, ..self.scope }, ..self.clone() }
    }

    /// Forgets all sessions of this isolation key.
    pub fn forget(&self) {
        let mut table = self.lock();
        let isolation = self.scope.isolation;
        let gone: Vec<Server> = table.servers.keys().filter(|s| s.scope.isolation == isolation).cloned().collect();
        for server in &gone {
            table.forget(server);
        }
    }

    /// How many sessions there are, of all isolation keys, expired ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().sessions
    }

    /// Whether there is no session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part that belongs to one kind of configuration, with bounds that may be tighter.
    pub(crate) fn scoped(&self, context: Digest, max: Option<usize>, lifetime: Option<Duration>) -> Self {
        Self {
            scope: Scope { context, ..self.scope },
            scope_max: max.unwrap_or(self.max).min(self.max),
            lifetime: lifetime.unwrap_or(self.lifetime).min(self.lifetime),
            ..self.clone()
        }
    }

    /// The verifier and identity kept under `digest`, made now if there are none.
    pub(crate) fn authentication<E>(
        &self,
        digest: Digest,
        make: impl FnOnce() -> Result<Authentication, E>,
    ) -> Result<Authentication, E> {
        let mut table = self.lock();
        let now = table.tick();
        if let Some((used, kept)) = table.verifiers.get_mut(&digest) {
            *used = now;
            return Ok(kept.clone());
        }
        let made = make()?;
        if table.verifiers.len() >= MAX_VERIFIERS {
            let oldest = table.verifiers.iter().min_by_key(|(_, (used, _))| *used).map(|(d, _)| *d);
            oldest.and_then(|d| table.verifiers.remove(&d));
        }
        table.verifiers.insert(digest, (now, made.clone()));
        Ok(made)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn server(&self, name: &ServerName<'_>) -> Server {
        Server { scope: self.scope, name: name.to_str().to_ascii_lowercase() }
    }

    fn timed<T>(&self, session: T) -> Timed<T> {
        Timed { until: self.clock.seconds().saturating_add(self.lifetime.as_secs()), session }
    }

    fn store(&self, name: &ServerName<'_>, change: impl FnOnce(&mut Memory)) {
        if self.scope_max == 0 {
            return;
        }
        let mut table = self.lock();
        table.edit(self.server(name), change);
        if self.scope_max < self.max {
            table.shrink_scope(self.scope, self.scope_max);
        }
        table.shrink(self.max);
    }
}

impl ClientSessionStore for SessionStore {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.store(&name, |m| m.group = Some(group));
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.lock().servers.get(&self.server(name)).and_then(|m| m.group)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        let value = self.timed(value);
        self.store(&name, |m| m.tls12 = Some(value));
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let now = self.clock.seconds();
        let table = self.lock();
        let kept = table.servers.get(&self.server(name))?.tls12.as_ref()?;
        (now <= kept.until).then(|| kept.session.clone())
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        let mut table = self.lock();
        if let Some(m) = table.servers.get_mut(&self.server(name))
            && m.tls12.take().is_some()
        {
            table.sessions -= 1;
        }
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        let value = self.timed(value);
        let most = MAX_TICKETS_PER_SERVER.min(self.scope_max);
        self.store(&name, |m| {
            m.tls13.push_back(value);
            while m.tls13.len() > most {
                m.tls13.pop_front();
            }
        });
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let now = self.clock.seconds();
        let mut table = self.lock();
        loop {
            // The youngest first: it has the best chance to be accepted and to allow early data.
            let kept = table.servers.get_mut(&self.server(name))?.tls13.pop_back()?;
            table.sessions -= 1;
            if now <= kept.until {
                return Some(kept.session);
            }
        }
    }
}

impl fmt::Debug for SessionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionStore")
            .field("isolation", &self.scope.isolation)
            .field("max", &self.max)
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}
