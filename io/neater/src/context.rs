//! The transport system as a program holds it.

use crate::policies::{Watch, Whence};
use crate::shared::{AnyEngine, Driving, Handle, Shared};
use crate::{EngineShards, Lookup, Preconnection, SavedOutcomesError};
use neater_engine::{EngineConfig, EngineStats, Limits};
use neater_net::{OsNet, OsNetOptions};
use neater_property::Role;
use neater_tls::rustls::ClientConfig;
use neater_tls::{Crypto, SecurityError, SecurityParameters, SessionStore};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// One transport system: its connections, listeners and caches. There is no global one; a program
/// may have several, which share nothing.
///
/// Cheap to clone. On tokio, [`Neater::new`] starts its driver as a task; without tokio,
/// [`Builder::without_driver`] gives a [`Driver`] with one descriptor to poll. It lives as long as
/// any object made from it, and until what was sent on released connections is delivered.
#[derive(Clone, Debug)]
pub struct Neater {
    pub(crate) handle: Handle,
}

/// The settings of a new [`Neater`].
#[derive(Debug, Default)]
pub struct Builder {
    limits: Limits,
    seed: Option<[u8; 32]>,
    engine: u8,
    shared_secret: Option<[u8; 32]>,
    reset_secret: Option<[u8; 32]>,
    sctp_ecn: bool,
    strict: bool,
    shards: Option<EngineShards>,
    resolv_conf: Option<PathBuf>,
    hosts: Option<PathBuf>,
    key_log: Option<PathBuf>,
    qlog: Option<PathBuf>,
    names: Option<crate::names::Answers>,
    policies: Option<Whence>,
    application: Option<String>,
    /// No policies apply.
    unadvised: bool,
}

impl Builder {
    /// Limits in place of the default ones. The untaken connections and the unfinished handshakes
    /// of a listener are each limited to a quarter of the descriptors of this process
    /// (`RLIMIT_NOFILE`), so that the program keeps some.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Seeds all randomness in place of the operating system. For tests.
    #[must_use]
    pub fn seed(mut self, seed: [u8; 32]) -> Self {
        self.seed = Some(seed);
        self
    }

    /// One of several engines of this process that share ports, one per core for example: see
    /// [`EngineShards`].
    #[must_use]
    pub fn shard_of(mut self, shards: &EngineShards) -> Self {
        self.shards = Some(shards.clone());
        self
    }

    /// This engine's number among those that share a port, and the secret that they share. For
    /// engines of several processes, which do not pass datagrams on; within one process,
    /// [`Builder::shard_of`] does more.
    #[must_use]
    pub fn engine(mut self, number: u8, shared_secret: [u8; 32]) -> Self {
        self.engine = number;
        self.shared_secret = Some(shared_secret);
        self
    }

    /// A secret that a server keeps from one run to the next: with it, the next packet of an
    /// earlier run's QUIC client is answered by a reset (stateless reset, RFC 9000 section 10.3);
    /// without it clients wait for their idle timeout, 30 s. 32 random bytes that are secret, and
    /// that no other machine has which may serve at the same address and port.
    #[must_use]
    pub fn reset_secret(mut self, secret: [u8; 32]) -> Self {
        self.reset_secret = Some(secret);
        self
    }

    /// Whether SCTP associations over UDP and over IP offer congestion marks (ECN, RFC 3168 and RFC
    /// 4960 appendix A). Where the peer offers them too, as Linux' SCTP and usrsctp do, a queue on
    /// the path that marks packets reduces the sender's window without a loss. Off by default: RFC
    /// 9260 has removed the appendix and only reserves its chunks. Over DTLS it has no effect.
    #[must_use]
    pub fn sctp_ecn(mut self, offered: bool) -> Self {
        self.sctp_ecn = offered;
        self
    }

    /// Another resolver configuration than the system's.
    #[must_use]
    pub fn resolv_conf(mut self, path: impl Into<PathBuf>) -> Self {
        self.resolv_conf = Some(path.into());
        self
    }

    /// Another hosts file than the system's.
    #[must_use]
    pub fn hosts(mut self, path: impl Into<PathBuf>) -> Self {
        self.hosts = Some(path.into());
        self
    }

    /// Names are looked up by this function instead of at name servers: for names that no name
    /// server knows, or a directory of the program's own. It is called by the driver of the engine,
    /// once for all connections that wait for a name at the time, and should not block: it may
    /// answer at once, or hand the [`Lookup`] to a task or thread that does so later.
    ///
    /// Names of the hosts file and special ones (`localhost`) are not asked for, nor are HTTPS
    /// records, so that HTTP/3 has to be known by other means.
    ///
    /// A function that panics has failed to answer; the waiting connections fail with that reason.
    #[must_use]
    pub fn names_by(mut self, answer: impl Fn(Lookup) + Send + Sync + 'static) -> Self {
        self.names = Some(crate::names::Answers::by(answer));
        self
    }

    /// Names are looked up by the system's resolver (`getaddrinfo`) instead of at name servers:
    /// with the sources of nsswitch.conf, such as multicast DNS (`.local`) or a directory service.
    /// It blocks, so that each lookup is made in a helper thread, of which there are at most 16 at
    /// a time and none while there are no lookups. The system does not report how long an answer is
    /// valid: ten seconds are assumed. It cannot query through one interface, so that all
    /// interfaces have the same answer; link-local addresses, which mean nothing without an
    /// interface, are left out.
    #[must_use]
    pub fn names_by_system(mut self) -> Self {
        self.names = Some(crate::names::Answers::by(crate::names::system()));
        self
    }

    /// Writes the keys of all TLS and QUIC sessions to the file that the environment names in
    /// `SSLKEYLOGFILE`, if set, appending to it: then tools such as Wireshark can decrypt captures,
    /// and so can any reader of the file. Without the variable nothing is written. Parameters with
    /// a `key_log` of their own keep it.
    #[must_use]
    pub fn key_log_from_environment(mut self) -> Self {
        self.key_log = crate::logs::key_file();
        self
    }

    /// Writes a log of each QUIC connection to a file of its own in this folder, which must exist:
    /// `neater-PROCESS-NUMBER-client.sqlog` or `-server.sqlog`, in the qlog format
    /// (draft-ietf-quic-qlog-main-schema), for tools such as qvis. It records sizes, times and
    /// losses of packets, not their contents. A file is complete when its connection is gone. The
    /// log costs time, and one descriptor per connection.
    #[must_use]
    pub fn qlog_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.qlog = Some(folder.into());
        self
    }

    /// Has connections opened by the policies of these folders, of which each must exist; later
    /// ones take precedence. The default is the folders of the variable `NEATER_POLICY` (with `:`
    /// between them; empty, none), and without that `/etc/neater/policy` and `neater/policy` in the
    /// user's configuration folder, where they exist. Files that change are read again, a second
    /// later at most, when the next connection is opened.
    ///
    /// No policy makes a connection less secure than the program asked.
    #[must_use]
    pub fn policies(mut self, folders: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.policies = Some(Whence::These(folders.into_iter().map(Into::into).collect()));
        self
    }

    /// The transport system does not start while a file of policies cannot be used: its policies
    /// would not apply, and what it denies would be allowed. Building fails with
    /// [`io::ErrorKind::InvalidData`] and the first such file. While the program runs, a file that
    /// becomes invalid leaves its earlier policies in force, and a new one that cannot be used is
    /// reported ([`Neater::policy_faults`]) and ignored.
    #[must_use]
    pub const fn strict_policies(mut self) -> Self {
        self.strict = true;
        self
    }

    /// No policies, wherever there are any.
    #[must_use]
    pub fn without_policies(mut self) -> Self {
        self.unadvised = true;
        self
    }

    /// The name of this program for policies (`app`), instead of the name of its file.
    #[must_use]
    pub fn application(mut self, name: impl Into<String>) -> Self {
        self.application = Some(name.into());
        self
    }

    fn engine_over(&self, net: OsNet) -> io::Result<AnyEngine> {
        let key_log = self.key_log.as_deref().map(crate::logs::KeyFile::open).transpose()?;
        let crypto = Crypto { key_log, ..Crypto::system() };
        let seed = match self.seed {
            Some(seed) => seed,
            None => {
                let mut seed = [0; 32];
                let random = crypto.provider.secure_random.fill(&mut seed);
                random.map_err(|_| io::Error::other("the operating system gives no random numbers"))?;
                seed
            }
        };
        let config = EngineConfig {
            engine: self.engine,
            shared_secret: self.shared_secret,
            reset_secret: self.reset_secret,
            sctp_ecn: self.sctp_ecn,
            limits: within_descriptors(self.limits),
            qlog: self.qlog.as_deref().map(crate::logs::qlog).transpose()?,
            ..EngineConfig::new(seed, crypto)
        };
        Ok(AnyEngine::new(Box::new(net), config))
    }

    fn net(&self) -> io::Result<OsNet> {
        let mut options = OsNetOptions::default();
        if let Some(p) = &self.resolv_conf {
            options.resolv_conf.clone_from(p);
        }
        if let Some(p) = &self.hosts {
            options.hosts.clone_from(p);
        }
        OsNet::with_options(options)
    }

    /// A transport system that the caller drives, with the descriptor to wait for.
    ///
    /// # Errors
    /// The system has no descriptor or memory left.
    pub fn without_driver(mut self) -> io::Result<(Neater, Driver)> {
        let shards = self.shards.take();
        if let Some(shards) = &shards {
            return shards.join(|number, secret| {
                self.engine = number;
                self.shared_secret = Some(secret);
                self.make(Some(shards.clone()))
            });
        }
        self.make(None)
    }

    fn make(&self, shards: Option<EngineShards>) -> io::Result<(Neater, Driver)> {
        let watch = match &self.policies {
            _ if self.unadvised => None,
            whence => Watch::begin(whence.clone().unwrap_or_default())?,
        };
        let net = self.net()?;
        let fd = std::os::fd::AsFd::as_fd(&net).try_clone_to_owned()?;
        let waker = net.waker();
        let engine = self.engine_over(net)?;
        let guard = waker.clone();
        let forked = Box::new(move || guard.is_forked());
        let shared = Shared::new(engine, shards, Box::new(move || waker.wake()), forked);
        let neater = Neater { handle: Handle::new(shared.clone()) };
        if let Some(names) = &self.names {
            crate::names::install(&shared, names);
        }
        let name = || self.application.clone().unwrap_or_else(crate::policies::own_name);
        match watch {
            Some(watch) => {
                neater.follow(watch, &name());
                if let Some(fault) = neater.policy_faults().into_iter().find(|f| self.strict && !f.harmless) {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, fault.to_string()));
                }
            }
            // The folders may appear later only where the program has named none.
            None if !self.unadvised && !matches!(self.policies, Some(Whence::These(_))) => neater.follow_later(name()),
            None => {}
        }
        Ok((neater, Driver { shared: Driving(shared), fd }))
    }

    /// A transport system driven by a task on the current tokio runtime.
    ///
    /// # Errors
    /// There is no tokio runtime here, or the system has no descriptor or memory left.
    #[cfg(feature = "tokio")]
    pub fn build(self) -> io::Result<Neater> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
            io::Error::other("there is no tokio runtime here: call it within one, or use Builder::without_driver and drive it yourself")
        })?;
        let (neater, driver) = self.without_driver()?;
        let _guard = runtime.enter();
        let task = driver.into_task()?;
        runtime.spawn(task);
        Ok(neater)
    }
}

impl Neater {
    /// A transport system driven by a task on the current tokio runtime.
    ///
    /// # Errors
    /// As [`Builder::build`].
    #[cfg(feature = "tokio")]
    pub fn new() -> io::Result<Self> {
        Builder::default().build()
    }

    /// The builder of a transport system with other settings.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A transport system over another network than the operating system's: the simulator's, or one
    /// that injects faults. `wake` must make the driver call [`Driver::turn`]; it is called from
    /// any thread. Direct streams ([`DirectStream`](neater_base::net::DirectStream)) of such a
    /// network are not used: all bytes go by the engine.
    pub fn over<N: neater_base::net::Net + Send + 'static>(
        net: N,
        config: EngineConfig,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> (Self, Turner) {
        let engine = AnyEngine::new(Box::new(net), config);
        let shared = Shared::new(engine, None, Box::new(wake), Box::new(|| false));
        (Self { handle: Handle::new(shared.clone()) }, Turner { shared })
    }

    /// The beginning of a connection or a listener.
    #[must_use]
    pub fn preconnection(&self) -> Preconnection {
        Preconnection::new(self)
    }

    /// Figures of the engine.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        self.handle.with(|s| s.engine.stats())
    }

    /// Forgets names, outcomes of races and nothing else: the next connection resolves names and
    /// races again.
    pub fn flush_caches(&self) {
        self.handle.with(|s| s.engine.caches().flush());
    }

    /// The outcome history of this transport system, as text for [`Neater::import_outcomes`] in a
    /// later process of this host; `None` if it has nothing beyond what was imported. It has at
    /// most 1 MiB, and is valid for minutes: successes for ten at most, and no longer than the name
    /// server allows for the address; failures for one to ten.
    ///
    /// There are addresses of servers in it, and numbers from which their names and this host's
    /// networks can be guessed: keep it where only the user can read it. Of connections with
    /// `isolateSession` there is nothing in it.
    #[must_use]
    pub fn export_outcomes(&self) -> Option<String> {
        self.handle.with(|s| s.engine.caches().export_outcomes())
    }

    /// Imports the outcome history of an earlier process: see [`Neater::export_outcomes`]. Entries
    /// of this process stay. Returns how many entries were imported; expired ones are not.
    ///
    /// # Errors
    /// The text is damaged, of another version, or from the future. Nothing has changed.
    pub fn import_outcomes(&self, text: &str) -> Result<usize, SavedOutcomesError> {
        self.handle.with(|s| s.engine.caches().import_outcomes(text))
    }

    /// What connections over TLS are configured with by these parameters: trust, identity,
    /// versions, remembered sessions and the key log are the same. For TLS over a byte stream that
    /// this transport system carries, and that leads to another peer than the one that was
    /// connected to, as a tunnel through a proxy does. Early data is never sent. Certificates are
    /// judged by the time of the engine's last turn: ask for it when the stream is there.
    ///
    /// # Errors
    /// What is wrong with the parameters. Nothing was sent.
    pub fn tls_client(&self, security: &SecurityParameters) -> Result<Arc<ClientConfig>, SecurityError> {
        crate::roots::provide(&self.handle, security, Role::Initiate);
        let crypto = self.handle.with(|s| s.engine.crypto());
        let mut parameters = security.clone();
        parameters.early_data = false;
        let sessions = SessionStore::global(&crypto, 0);
        neater_tls::client_config(&parameters, &crypto, &[], false, &sessions)
    }

    /// Replaces the system's roots of trust, for all requests compiled from now on.
    pub fn set_roots(&self, roots: neater_tls::rustls::RootCertStore) {
        self.handle.with(|s| {
            let crypto = s.engine.crypto().with_roots(roots, None);
            s.engine.set_crypto(crypto);
            s.roots_loaded = true;
        });
    }
}

/// Drives a transport system without tokio: wait until the descriptor is readable, then call
/// [`Driver::turn`]. There is nothing else to wait for: the descriptor becomes readable at every
/// deadline, too. It may be watched level-triggered, edge-triggered or one-shot, from inside
/// another epoll or event loop.
///
/// After calls on public objects it is not necessary to call `turn`: they make the descriptor
/// readable if they must.
///
/// When it is dropped, or the future that [`Driver::into_task`] makes of it, as at the end of the
/// runtime on which [`Neater::new`] was called, the transport system has no driver any more: its
/// connections end with that error, and all further calls fail with it.
#[derive(Debug)]
pub struct Driver {
    shared: Driving,
    fd: std::os::fd::OwnedFd,
}

impl Driver {
    /// Does what there is to do now; never blocks.
    pub fn turn(&self) {
        self.shared.turn(None);
    }

    /// Whether there is nothing left to drive: every object is dropped and what was sent is
    /// delivered.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.shared.is_idle()
    }

    /// A future that drives on tokio, until [`Driver::is_done`].
    ///
    /// # Errors
    /// When there is no tokio runtime here.
    #[cfg(feature = "tokio")]
    pub fn into_task(self) -> io::Result<impl Future<Output = ()> + Send + 'static> {
        crate::reactor_waker::task(self.shared, self.fd)
    }
}

impl std::os::fd::AsFd for Driver {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::os::fd::AsRawFd for Driver {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.fd)
    }
}

/// Drives a transport system that was made with [`Neater::over`].
#[derive(Debug)]
pub struct Turner {
    shared: Arc<Shared>,
}

impl Turner {
    /// Does what there is to do now; never blocks.
    pub fn turn(&self) {
        self.shared.turn(None);
    }

    /// Whether there is nothing left to drive.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.shared.is_idle()
    }
}

/// Leaves descriptors to the program: a listener may not hold more than a quarter of them in either
/// way. Of handshakes there may be as many again that have not begun.
#[allow(unsafe_code, reason = "asking how many descriptors there may be")]
fn within_descriptors(mut limits: Limits) -> Limits {
    let mut descriptors = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `getrlimit` writes one `rlimit`, which `descriptors` is.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut descriptors) } == 0 {
        let quarter = usize::try_from(descriptors.rlim_cur / 4).unwrap_or(usize::MAX).max(1);
        limits.untaken = limits.untaken.min(quarter);
        limits.handshakes = limits.handshakes.min((quarter / 2).max(1));
    }
    limits
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared").field("users", &self.users).finish_non_exhaustive()
    }
}
