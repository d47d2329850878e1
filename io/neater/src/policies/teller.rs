//! Publishes the measurements of this program's connections to a running policy manager, without
//! ever waiting for it.
//!
//! The manager keeps it for this user's other programs, and forgets it by itself. A manager that
//! does not read delays nothing: the next facts wait until those before are written. A manager that
//! was away receives all facts again.

use super::link::{ABSENT, connect, send, wall};
use neater_policy::advice::Fact;
use neater_policy::protocol::{put_told, wire};
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The socket's name, beside the one for requests.
const SOCKET: &str = "neat_cib_socket";

/// Whether facts can be sent to the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    /// It is connected and has taken everything.
    Yes,
    /// It knows nothing of this program yet.
    Anew,
    /// It has not taken what was sent.
    Busy,
    /// It is not there.
    Absent,
}

/// A connection to the manager's CIB.
#[derive(Debug)]
pub(super) struct Teller {
    path: PathBuf,
    stream: Option<UnixStream>,
    unsent: Vec<u8>,
    next: Instant,
}

impl Teller {
    /// To the manager whose socket for requests this is.
    pub(super) fn beside(requests: &Path) -> Self {
        let path = requests.with_file_name(SOCKET);
        Self { path, stream: None, unsent: Vec::new(), next: Instant::now() }
    }

    /// Whether it is that manager's.
    pub(super) fn is_beside(&self, requests: &Path) -> bool {
        self.path == requests.with_file_name(SOCKET)
    }

    /// Connects if need be, and continues what was not fully sent before.
    pub(super) fn is_ready(&mut self) -> Ready {
        if self.stream.is_some() {
            match self.go_on() {
                Ok(()) if self.unsent.is_empty() => return Ready::Yes,
                Ok(()) => return Ready::Busy,
                Err(e) => self.lost(&e),
            }
        }
        let now = Instant::now();
        if now < self.next {
            return Ready::Absent;
        }
        match connect(&self.path) {
            Ok(stream) => {
                self.stream = Some(stream);
                self.unsent.clear();
                Ready::Anew
            }
            Err(e) => {
                self.lost(&e);
                self.next = now + ABSENT;
                Ready::Absent
            }
        }
    }

    /// Sends the facts, as far as the manager takes them now.
    pub(super) fn publish(&mut self, facts: &[Fact]) {
        if facts.is_empty() {
            return;
        }
        wire::frame(&mut self.unsent, wire::Kind::Seen, 0, |out| put_told(out, facts, wall()));
        if let Err(e) = self.go_on() {
            self.lost(&e);
        }
    }

    fn lost(&mut self, e: &io::Error) {
        tracing::debug!(target: "neater::policy", "cannot send measurements to the policy manager at {}: {e}", self.path.display());
        self.stream = None;
        self.unsent.clear();
    }

    fn go_on(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while !self.unsent.is_empty() {
            match send(stream, &self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        // Whether it was taken is for the manager's own records; what it refuses it would refuse
        // again.
        let mut answers = [0; 1024];
        loop {
            match stream.read(&mut answers) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_policy::advice::{Figure, Known};
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    fn place(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("neater-teller-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir.join("neat_pm_socket")
    }

    fn fact(i: usize) -> Fact {
        let until = neater_base::WallTime(wall().0 + Duration::from_secs(60));
        let known = Known { rtt: Some(Figure { value: 0.1, until }), ..Known::default() };
        Fact { interface: "eth0".into(), end: format!("{i}.{}", "x".repeat(200)), known }
    }

    #[test]
    fn a_manager_that_takes_nothing_keeps_nobody_waiting_and_costs_no_memory() {
        let requests = place("hangs");
        let listener = UnixListener::bind(requests.with_file_name(SOCKET)).unwrap();
        let mut teller = Teller::beside(&requests);
        let began = Instant::now();
        assert_eq!(teller.is_ready(), Ready::Anew);
        let mut told = 0;
        for _ in 0..10_000 {
            let all: Vec<Fact> = (0..64).map(fact).collect();
            teller.publish(&all);
            told += 1;
            if teller.is_ready() == Ready::Busy {
                break;
            }
        }
        assert_eq!(teller.is_ready(), Ready::Busy, "after {told}");
        assert!(teller.unsent.len() < 64 * 512);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        // It ends, and another begins.
        drop(listener);
        std::fs::remove_file(requests.with_file_name(SOCKET)).unwrap();
        assert_eq!(teller.is_ready(), Ready::Absent);
        assert_eq!(teller.is_ready(), Ready::Absent, "it is not looked for each time");
        let _listener = UnixListener::bind(requests.with_file_name(SOCKET)).unwrap();
        teller.next = Instant::now();
        assert_eq!(teller.is_ready(), Ready::Anew);
        std::fs::remove_dir_all(requests.parent().unwrap()).unwrap();
    }
}
