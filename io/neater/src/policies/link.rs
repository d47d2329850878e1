//! The tables of a policy manager that runs (`neater pm`), followed without ever waiting for it.
//!
//! The manager is asked for what is new when connections are opened, and its answers so far are
//! taken; the engine waits for its answer only when a program begins, and then for [`BEGINNING`] at
//! most. A manager that hangs, sends nonsense or dies cannot stall a connection: its last policies
//! remain in force for as long as they state themselves. While long tables come, a connection may
//! wait some milliseconds for the next page of them, once a second at most where that is late.
//!
//! Believed is a manager of root's, one of this user's, and one of the user to whom the socket's
//! folder belongs where that is for a service which has a user of its own: under `/run`, but not
//! under `/run/user`, where root alone decides whose a folder is. Users have folders elsewhere
//! (their homes, `/run/user/1000`), too, which make no manager of theirs one for others.

use neater_base::WallTime;
use neater_policy::protocol::{Follower, Heard};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// NEAT's own variable for the socket of requests; empty, there is none.
const VARIABLE: &str = "NEAT_PM_SOCKET";
/// The manager of a host, as set by its systemd unit.
const SYSTEM: &str = "/run/neater/neat_pm_socket";
/// How long a program waits for tables when it begins.
const BEGINNING: Duration = Duration::from_millis(100);
/// How often the manager is asked for what is new.
const REST: Duration = Duration::from_secs(1);
/// How long the next page of tables is waited for, and all pages of one look.
const PAGE: Duration = Duration::from_millis(2);
const PAGES: Duration = Duration::from_millis(10);
/// How often one that is not there is looked for.
pub(super) const ABSENT: Duration = Duration::from_secs(5);

/// A manager that runs, or did.
#[derive(Debug)]
pub(super) struct Link {
    /// Where a manager may be, those that come first before the others.
    places: Vec<PathBuf>,
    path: PathBuf,
    stream: Option<UnixStream>,
    follower: Follower,
    unsent: Vec<u8>,
    next: Instant,
    /// It has let a wait expire: nothing waits for it until the next request.
    slow: bool,
    /// Since when there is no manager; `None`: there is one, or none was looked for yet.
    gone: Option<Instant>,
    /// A manager has been connected.
    met: bool,
    /// Why no manager is followed, as far as that is known.
    trouble: Option<String>,
    /// The manager that is followed has sent something.
    answered: bool,
}

/// Where a manager may be: the one that is named, or a user's own and then the host's.
fn places() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(PathBuf::from(named)).into_iter().filter(|p| !p.as_os_str().is_empty()).collect();
    }
    let own = std::env::home_dir().map(|home| home.join(".neat").join("neat_pm_socket"));
    [own, Some(PathBuf::from(SYSTEM))].into_iter().flatten().collect()
}

/// Where a socket is, whether a process listens at it or not; one that is named counts in any case.
fn sockets() -> Vec<PathBuf> {
    let mut places = places();
    if std::env::var_os(VARIABLE).is_none() {
        places.retain(|p| p.exists());
    }
    places
}

/// Whether a process listens; a busy one with a full backlog does.
fn is_alive(connected: &io::Result<UnixStream>) -> bool {
    connected.as_ref().map_or_else(|e| e.kind() == ErrorKind::WouldBlock, |_| true)
}

/// Where a manager would be found, if there is one now. A socket without a listener was left behind
/// by a killed manager: it hides no other.
pub(super) fn socket() -> Option<PathBuf> {
    let places = sockets();
    places.iter().find(|p| is_alive(&connect(p))).or(places.first()).cloned()
}

pub(super) fn wall() -> WallTime {
    WallTime(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// Whether this is where services have their folders, and users none. Without links on the way.
fn is_for_services(folder: &Path) -> bool {
    folder.starts_with("/run") && !folder.starts_with("/run/user")
}

/// Whether the folder of a socket is this user's, in a place that only root could have prepared,
/// for a service: every folder above it is root's, and only root may write there.
fn is_of(folder: &Path, user: u32) -> bool {
    let Ok(folder) = std::fs::canonicalize(folder) else { return false };
    if !is_for_services(&folder) {
        return false;
    }
    let of_root = |above: &Path| std::fs::symlink_metadata(above).is_ok_and(|m| m.uid() == 0 && m.mode() & 0o022 == 0);
    // Its owner alone may put sockets there.
    let of_user = std::fs::symlink_metadata(&folder).is_ok_and(|m| m.uid() == user && m.mode() & 0o022 == 0);
    of_user && folder.ancestors().skip(1).all(of_root)
}

/// Connects at once or not at all, to root, to this user, or to the user to whom root has given the
/// socket's folder.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
    let peer = rustix::net::sockopt::socket_peercred(&fd)?.uid;
    let given = || path.parent().is_some_and(|folder| is_of(folder, peer.as_raw()));
    if !peer.is_root() && peer != rustix::process::geteuid() && !given() {
        return Err(io::Error::new(ErrorKind::PermissionDenied, format!("it is user {}'s", peer.as_raw())));
    }
    Ok(UnixStream::from(fd))
}

/// Writes without a signal to the program if the manager is gone.
pub(super) fn send(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(stream, bytes, rustix::net::SendFlags::NOSIGNAL)?)
}

impl Link {
    /// A link to the manager that runs here, if one does.
    pub(super) fn find() -> Option<Self> {
        // Whether a manager is there is found out when it is followed.
        sockets().into_iter().next().map(Self::to)
    }

    /// A link to the manager with this socket.
    fn to(path: PathBuf) -> Self {
        Self {
            places: places(),
            path,
            stream: None,
            follower: Follower::new(),
            unsent: Vec::new(),
            next: Instant::now(),
            slow: false,
            gone: None,
            met: false,
            trouble: None,
            answered: false,
        }
    }

    /// Whether the manager is followed, in words.
    pub(super) fn state(&self) -> Result<(), String> {
        match &self.trouble {
            Some(why) => Err(why.clone()),
            None if self.answered => Ok(()),
            None if self.met => Err("it has not answered yet".to_owned()),
            None => Err("not reached yet".to_owned()),
        }
    }

    /// Logs why the manager is not followed, once: as a warning where it was named, or where its
    /// user is not trusted.
    fn complain(&mut self, error: &io::Error) {
        let why = error.to_string();
        if self.trouble.as_ref() == Some(&why) {
            return;
        }
        let path = self.path.display();
        if std::env::var_os(VARIABLE).is_some() || error.kind() == ErrorKind::PermissionDenied {
            tracing::warn!(target: "neater::policy", "the policy manager at {path} is not followed: {why}");
        } else {
            tracing::debug!(target: "neater::policy", "the policy manager at {path} is not followed: {why}");
        }
        self.trouble = Some(why);
    }

    /// Where the manager's socket is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The manager's answer within [`BEGINNING`].
    pub(super) fn begin(&mut self) -> Heard {
        let until = Instant::now() + BEGINNING;
        let mut heard = Heard::default();
        loop {
            let more = self.turn();
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

    /// Asks for what is new if it is time to, and takes what has come. It waits for nothing but the
    /// next page of tables that are on their way: a program that opens few connections would not
    /// have them for a long time.
    pub(super) fn poll(&mut self) -> Heard {
        let mut heard = self.turn();
        let until = Instant::now() + PAGES;
        while !self.slow && self.follower.is_fetching() && Instant::now() < until {
            let Some(stream) = &self.stream else { break };
            let wanted = if self.unsent.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(PAGE.subsec_nanos()) };
            if rustix::event::poll(&mut [PollFd::new(stream, wanted)], Some(&timeout)).unwrap_or_default() == 0 {
                self.slow = true;
                break;
            }
            let more = self.turn();
            heard.tables = more.tables.or(heard.tables);
            heard.facts.extend(more.facts);
        }
        self.slow &= self.follower.is_fetching();
        heard
    }

    /// Asks for what is new if it is time to, takes what has come, and never waits.
    fn turn(&mut self) -> Heard {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + REST;
            self.slow = false;
            // A user's own manager comes before the host's, also when it comes again.
            let rank = self.places.iter().position(|p| *p == self.path).unwrap_or(0);
            let alive = |p: &PathBuf| Some((connect(p).ok()?, p.clone()));
            if let Some((stream, path)) = self.places[..rank].iter().find_map(alive) {
                (self.stream, self.follower, self.path) = (Some(stream), Follower::new(), path);
                (self.met, self.trouble, self.answered) = (true, None, false);
                self.unsent.clear();
            }
            if self.stream.is_none() {
                let mut found = connect(&self.path);
                // One that was followed may restart: its policies remain in force until it has been
                // gone for a while.
                let patient = self.met && self.gone.is_none_or(|since| now - since < ABSENT);
                if !is_alive(&found) && !patient {
                    let other = self.places.iter().find_map(alive);
                    if let Some((stream, path)) = other {
                        (self.path, found) = (path, Ok(stream));
                    }
                }
                match &found {
                    Ok(_) => (self.gone, self.met) = (None, true),
                    Err(_) => drop(self.gone.get_or_insert(now)),
                }
                match found {
                    Ok(stream) => {
                        (self.trouble, self.answered) = (None, false);
                        // Its versions are not those of one that was here before.
                        (self.stream, self.follower) = (Some(stream), Follower::new());
                        self.unsent.clear();
                    }
                    Err(e) => {
                        self.complain(&e);
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
                self.complain(&e);
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
                    self.answered = true;
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
    fn ones_own_manager_comes_before_the_hosts_also_when_it_comes_again() {
        let (own, hosts) = (place("own"), place("hosts"));
        let bind = |path: &PathBuf| UnixListener::bind(path).unwrap();
        let first = bind(&own);
        let _second = bind(&hosts);
        let mut link = Link { places: vec![own.clone(), hosts.clone()], ..Link::to(own.clone()) };
        let look = |link: &mut Link, passed: Duration| {
            link.next = Instant::now();
            link.gone = link.gone.map(|since| since.checked_sub(passed).unwrap());
            link.turn();
            link.path.clone()
        };
        assert_eq!(look(&mut link, Duration::ZERO), own);
        // It ends, and takes its socket with it: for a while it may only begin again.
        drop(first);
        std::fs::remove_file(&own).unwrap();
        link.stream = None;
        assert_eq!(look(&mut link, Duration::ZERO), own, "what it said counts");
        assert_eq!(look(&mut link, ABSENT), hosts, "it is gone");
        let _again = bind(&own);
        assert_eq!(look(&mut link, Duration::ZERO), own, "it is there again");
        // A socket that a killed one has left behind.
        let mut link = Link { places: vec![place("dead"), hosts.clone()], ..Link::to(place("dead")) };
        drop(bind(&place("dead")));
        assert_eq!(look(&mut link, Duration::ZERO), hosts);
        for path in [own, hosts, place("dead")] {
            std::fs::remove_file(path).unwrap();
        }
    }

    /// Prints a line where a test must be left out.
    fn is_root() -> bool {
        let root = rustix::process::geteuid().is_root();
        if !root {
            // Not by a macro, of which the test's harness would show nothing.
            let _ = io::stderr().write_all(b"\nSKIPPED: a listener of another user takes root\n");
        }
        root
    }

    /// A listener of user 65534's in this folder.
    #[expect(unsafe_code, reason = "only a thread that is another user's can listen as one")]
    fn of_nobody(path: &Path) -> UnixListener {
        let path = path.to_path_buf();
        let bind = move || {
            // SAFETY: no memory is involved; the call changes the user of this thread alone, which
            // ends soon.
            let set = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
            assert_eq!(set, 0, "{}", io::Error::last_os_error());
            UnixListener::bind(path).unwrap()
        };
        std::thread::spawn(bind).join().unwrap()
    }

    #[test]
    fn a_service_is_believed_to_whom_root_has_given_the_folder_of_its_socket() {
        if !is_root() {
            return;
        }
        use std::os::unix::fs::{PermissionsExt, chown};
        let believed = |base: &str, mode: u32| {
            let dir = PathBuf::from(base).join(format!("neater-link-{}-{mode:o}", std::process::id()));
            std::fs::create_dir(&dir).unwrap();
            chown(&dir, Some(65534), Some(65534)).unwrap();
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
            let _listener = of_nobody(&dir.join("neat_pm_socket"));
            let connected = connect(&dir.join("neat_pm_socket"));
            std::fs::remove_dir_all(dir).unwrap();
            connected.map(drop).map_err(|e| e.to_string())
        };
        assert_eq!(believed("/run", 0o755), Ok(()), "as a service of the system's has it");
        let refused = Err("it is user 65534's".to_owned());
        assert_eq!(believed("/run", 0o777), refused, "anybody could have put it there");
        assert_eq!(believed("/tmp", 0o755), refused, "anybody can make such a folder");
        assert_eq!(believed("/var/lib", 0o755), refused, "as a user has one below /home, of root's making");
    }

    #[test]
    fn folders_of_users_are_none_of_services() {
        let is = |folder: &str| is_for_services(Path::new(folder));
        assert!(is("/run/neater") && is("/run/neater/of/pm") && is("/run/users"));
        assert!(!is("/srv/alice") && !is("/run/user/1000") && !is("/run/user") && !is("/runs/x") && !is("/tmp/run"));
    }

    #[test]
    fn tables_of_many_pages_come_without_many_looks() {
        use neater_policy::manager::{Limits, Rule, Stage};
        use neater_policy::protocol::{Door, wire};
        use neater_policy_daemon::{Daemon, Options, Session};
        let path = place("pages");
        let listener = UnixListener::bind(&path).unwrap();
        let mut daemon = Daemon::new(Options { limits: Limits::default(), owner: 1, ready: false, keeps_rules: false });
        let rule = |i: usize| {
            let text = format!(r#"{{"uid": "rule-{i}", "description": "{}"}}"#, "x".repeat(1000));
            (Stage::Policy, Rule::from_text("", &text).unwrap().0)
        };
        daemon.put_rules(1, (0..500).map(rule).collect(), wall()).unwrap();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut session, mut piece) = (Session::new(Door::Requests, 1), [0; 4096]);
            let mut pages = 0;
            loop {
                match stream.read(&mut piece) {
                    Ok(0) | Err(_) => return pages,
                    Ok(n) => session.receive(&piece[..n], &mut daemon, wall()),
                }
                let output = session.take_output();
                stream.write_all(&output).unwrap();
                let mut rest = &output[..];
                while let Ok(Some(frame)) = wire::Frame::first(rest) {
                    pages += usize::from(frame.kind == wire::Kind::Page);
                    rest = &rest[frame.len()..];
                }
            }
        });
        let mut link = Link::to(path.clone());
        let (began, mut looks) = (Instant::now(), 0);
        let tables = loop {
            // Of a look that finds the first page, and for one without a wait because a page was
            // late, nothing is requested.
            looks += usize::from(link.follower.is_fetching() && !link.slow);
            if let Some(tables) = link.poll().tables {
                break tables;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "they do not come");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(tables.policies.len(), 500);
        drop(link);
        let pages = served.join().unwrap();
        assert!(pages > 2 && looks < pages, "{looks} looks for {pages} pages");
        std::fs::remove_file(&path).unwrap();
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
