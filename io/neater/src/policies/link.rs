//! The tables of a policy manager that runs (`neater pm`), followed without ever waiting for it.
//!
//! The manager is asked for what is new when connections are opened, and what it has said by then is taken; the only time that
//! anybody waits for its answer is when a program begins, and then for [`BEGINNING`] at most. Whoever hangs, lies or dies there
//! cannot stall a connection: what was said last goes on to count, as long as it says so itself. Only a manager of root's or of this user's is believed.

use neater_base::WallTime;
use neater_policy::daemon::{Follower, Heard};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// NEAT's own variable for the socket of requests; empty, there is none.
const VARIABLE: &str = "NEAT_PM_SOCKET";
/// The manager of a host, as its unit for systemd says.
const SYSTEM: &str = "/run/neater/neat_pm_socket";
/// How long a program waits for tables when it begins.
const BEGINNING: Duration = Duration::from_millis(100);
/// How often the manager is asked for what is new.
const REST: Duration = Duration::from_secs(1);
/// How often one that is not there is looked for.
pub(super) const ABSENT: Duration = Duration::from_secs(5);

/// A manager that runs, or did.
#[derive(Debug)]
pub(super) struct Link {
    path: PathBuf,
    stream: Option<UnixStream>,
    follower: Follower,
    unsent: Vec<u8>,
    next: Instant,
}

/// Where a manager would be found, if there is one now.
fn socket() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(PathBuf::from(named)).filter(|p| !p.as_os_str().is_empty());
    }
    let own = std::env::home_dir().map(|home| home.join(".neat").join("neat_pm_socket"));
    [own, Some(PathBuf::from(SYSTEM))].into_iter().flatten().find(|p| p.exists())
}

pub(super) fn wall() -> WallTime {
    WallTime(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// Connects at once or not at all, to root or to this user.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
    let peer = rustix::net::sockopt::socket_peercred(&fd)?.uid;
    if !peer.is_root() && peer != rustix::process::geteuid() {
        return Err(io::Error::new(ErrorKind::PermissionDenied, format!("it is user {}'s", peer.as_raw())));
    }
    Ok(UnixStream::from(fd))
}

/// Writes without a signal to the program if nobody is there any more.
pub(super) fn send(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(stream, bytes, rustix::net::SendFlags::NOSIGNAL)?)
}

impl Link {
    /// A link to the manager that runs here, if one does.
    pub(super) fn find() -> Option<Self> {
        socket().map(Self::to)
    }

    /// A link to the manager with this socket.
    fn to(path: PathBuf) -> Self {
        Self { path, stream: None, follower: Follower::new(), unsent: Vec::new(), next: Instant::now() }
    }

    /// Where the manager's socket is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What the manager says within [`BEGINNING`].
    pub(super) fn begin(&mut self) -> Heard {
        let until = Instant::now() + BEGINNING;
        let mut heard = Heard::default();
        loop {
            let more = self.poll();
            heard.tables = more.tables.or(heard.tables);
            heard.facts.extend(more.facts);
            let left = until.saturating_duration_since(Instant::now());
            let Some(stream) = self.stream.as_ref().filter(|_| self.follower.is_asking() && !left.is_zero()) else {
                return heard;
            };
            let wanted = if self.unsent.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
            if rustix::event::poll(&mut [PollFd::new(stream, wanted)], Some(&timeout)).is_err() {
                return heard;
            }
        }
    }

    /// Asks for what is new if it is time to, takes what has come, and never waits.
    pub(super) fn poll(&mut self) -> Heard {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + REST;
            if self.stream.is_none() {
                match connect(&self.path) {
                    Ok(stream) => {
                        // Its versions are not those of one that was here before.
                        (self.stream, self.follower) = (Some(stream), Follower::new());
                        self.unsent.clear();
                    }
                    Err(e) => {
                        tracing::debug!(target: "neater::policy", "no policy manager at {}: {e}", self.path.display());
                        self.next = now + ABSENT;
                        return Heard::default();
                    }
                }
            }
            self.follower.ask(&mut self.unsent);
        }
        match self.exchange() {
            Ok(heard) => heard,
            Err(e) => {
                tracing::debug!(target: "neater::policy", "the policy manager at {}: {e}", self.path.display());
                self.stream = None;
                Heard::default()
            }
        }
    }

    fn exchange(&mut self) -> io::Result<Heard> {
        let Some(stream) = &mut self.stream else { return Ok(Heard::default()) };
        let (mut heard, mut piece) = (Heard::default(), [0; 16 * 1024]);
        loop {
            while !self.unsent.is_empty() {
                match send(stream, &self.unsent) {
                    Ok(n) => drop(self.unsent.drain(..n)),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) => return Err(e),
                }
            }
            match stream.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    let more =
                        self.follower.receive(&piece[..n], &mut self.unsent, wall()).map_err(io::Error::other)?;
                    heard.tables = more.tables.or(heard.tables);
                    heard.facts.extend(more.facts);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(heard),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("neater-link-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_manager_that_hangs_costs_the_beginning_and_nothing_more() {
        let path = place("hangs");
        let listener = UnixListener::bind(&path).unwrap();
        let mut link = Link::to(path.clone());
        let began = Instant::now();
        assert!(link.begin().is_empty());
        assert!(began.elapsed() >= BEGINNING && began.elapsed() < BEGINNING * 5, "{:?}", began.elapsed());
        let began = Instant::now();
        for _ in 0..100 {
            assert!(link.poll().is_empty());
        }
        assert!(began.elapsed() < BEGINNING, "{:?}", began.elapsed());
        drop(listener);
        std::fs::remove_file(&path).unwrap();
        assert!(Link::to(path).begin().is_empty(), "nobody is there");
    }

    #[test]
    fn a_manager_that_talks_nonsense_is_left() {
        let path = place("nonsense");
        let listener = UnixListener::bind(&path).unwrap();
        let talker = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"[{\"transport\"").unwrap();
        });
        let mut link = Link::to(path.clone());
        assert!(link.begin().is_empty());
        assert!(link.stream.is_none());
        talker.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
