//! Programs that are started, watched and ended.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A program that runs beside the test and is killed, by its process id, when this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    output: Arc<(Mutex<String>, Condvar)>,
    name: String,
}

impl Running {
    /// Starts a program; what it says on both channels is kept.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{name} does not start: {e}"));
        let output = Arc::new((Mutex::new(String::new()), Condvar::new()));
        listen_to(child.stdout.take(), output.clone());
        listen_to(child.stderr.take(), output.clone());
        Self { stdin: child.stdin.take(), child, output, name }
    }

    /// What it has said so far.
    #[must_use]
    pub fn said(&self) -> String {
        self.output.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it has said since the first `from` bytes.
    #[must_use]
    pub fn said_from(&self, from: usize) -> String {
        self.output.0.lock().unwrap_or_else(PoisonError::into_inner).get(from..).unwrap_or_default().to_owned()
    }

    /// Waits until it has said something, and returns the rest of that line.
    ///
    /// # Panics
    /// When it has not after ten seconds.
    #[must_use]
    pub fn wait_to_say(&self, words: &str) -> String {
        let until = Instant::now() + Duration::from_secs(10);
        let mut said = self.output.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some((_, rest)) = said.split_once(words)
                && let Some((line, _)) = rest.split_once('\n')
            {
                return line.trim().to_owned();
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} did not say {words:?} but:\n{said}", self.name);
            said = self.output.1.wait_timeout(said, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes to its standard input.
    ///
    /// # Panics
    /// When it does not take it.
    pub fn tell(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("its input is open");
        stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush()).expect("it takes input");
    }

    /// Ends its standard input.
    pub fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Ends it at once, by its process id, and waits until it is gone.
    pub fn kill(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // By its process id; it cannot have been given away, since nobody has waited for it.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// When it has not within `limit`.
    pub fn finish(&mut self, limit: Duration) -> Finished {
        let until = Instant::now() + limit;
        loop {
            match self.child.try_wait().expect("it can be waited for") {
                Some(status) => {
                    // Its last words may still be on their way through the pipes.
                    thread::sleep(Duration::from_millis(50));
                    return Finished { status, said: self.said() };
                }
                None if Instant::now() >= until => {
                    panic!("{} has not ended after {limit:?}; it said:\n{}", self.name, self.said())
                }
                None => thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("---- {} said:\n{}", self.name, self.said());
        }
    }
}

fn listen_to(from: Option<impl Read + Send + 'static>, output: Arc<(Mutex<String>, Condvar)>) {
    let Some(from) = from else { return };
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while matches!(from.read_until(b'\n', &mut line), Ok(1..)) {
            let (text, more) = &*output;
            text.lock().unwrap_or_else(PoisonError::into_inner).push_str(&String::from_utf8_lossy(&line));
            more.notify_all();
            line.clear();
        }
    });
}

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it said.
    pub said: String,
}

/// Runs a program to its end.
///
/// # Panics
/// When it cannot be started or has not ended within `limit`.
pub fn run(command: &mut Command, limit: Duration) -> Finished {
    let mut running = Running::start(command);
    running.end_input();
    running.finish(limit)
}

/// A port that nobody has, for TCP and UDP.
///
/// # Panics
/// When the system has none.
#[must_use]
pub fn free_port() -> u16 {
    for _ in 0..100 {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = tcp.local_addr().expect("bound").port();
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free for both TCP and UDP");
}

/// Waits until somebody listens on a TCP port.
///
/// # Panics
/// When nobody does after ten seconds.
pub fn wait_for(port: u16) {
    for _ in 0..1000 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("nobody listens on port {port}");
}

/// A directory of a test's own, removed with all that is in it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one, beside the test's program.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let exe = std::env::current_exe().expect("a program");
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = exe.with_file_name(format!("interop-{name}-{}-{n}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        Self(dir)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Puts a file into it and returns where.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, contents).expect("a file");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
