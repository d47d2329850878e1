//! Commands in hosts: started, listened to, waited for with a limit, and ended with all they have started.

use super::error::{LiveError, Result, failed};
use super::netns::Netns;
use super::pid_namespace::PidNamespace;
use super::sys;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most of a command's output, and of its errors, that is kept, in bytes.
const OUTPUT_MAX: usize = 16 << 20;
/// How long a command has between being asked to end and being killed.
const GRACE: Duration = Duration::from_millis(500);
/// How long its output is listened to when it has ended and nobody of its group is left: a process that has made itself a
/// session of its own may hold the pipes for as long as the lab lives.
const LINGER: Duration = Duration::from_secs(1);
/// The limit of a command that names none.
pub const LIMIT: Duration = Duration::from_secs(600);

/// A command to be run in a host.
#[derive(Clone, Debug)]
pub struct Cmd {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    limit: Duration,
    interactive: bool,
    directory: Option<PathBuf>,
    input: Option<PathBuf>,
}

impl Cmd {
    /// A program, looked for on the PATH.
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            // A proxy of this machine's is not of the laboratory's networks.
            env: vec![("no_proxy".into(), "*".into())],
            limit: LIMIT,
            interactive: false,
            directory: None,
            input: None,
        }
    }

    /// A line for the shell.
    #[must_use]
    pub fn shell(line: &str) -> Self {
        Self::new("sh").args(["-c", line])
    }

    /// With one more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// With more arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// With one more variable in its environment.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((key.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Ended when it takes longer.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// In a directory.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// With a file as its input, instead of nothing.
    #[must_use]
    pub fn input(mut self, file: impl Into<PathBuf>) -> Self {
        self.input = Some(file.into());
        self
    }

    /// With this process's terminal: input, output and errors are not captured, and interrupts reach it.
    #[must_use]
    pub fn interactive(mut self) -> Self {
        self.interactive = true;
        self
    }

    /// As it would be typed, for messages.
    #[must_use]
    pub fn text(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.args);
        words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Output {
    /// What was run.
    pub command: String,
    /// Its exit code, or 128 and the number of the signal that ended it, as a shell has it.
    pub code: i32,
    /// The lab ended it because its limit was over.
    pub timed_out: bool,
    /// What it wrote to its output; empty if it was interactive.
    pub stdout: Vec<u8>,
    /// What it wrote to its error output.
    pub stderr: Vec<u8>,
    /// From start to end.
    pub wall: Duration,
}

impl Output {
    /// Its output as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Its error output as text.
    #[must_use]
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// This, if it ended with 0 in time.
    ///
    /// # Errors
    /// It did not; the end of what it said is told.
    pub fn success(self) -> Result<Self> {
        if self.timed_out {
            return failed(&self.command, format!("not done after {:.1?}", self.wall));
        }
        if self.code != 0 {
            let said = if self.stderr.is_empty() { self.text() } else { self.errors() };
            let from = said.len().saturating_sub(2000);
            let tail = said.get(from..).unwrap_or(&said).trim();
            return failed(&self.command, format!("exit code {}: {tail}", self.code));
        }
        Ok(self)
    }
}

/// What a stream has brought so far.
#[derive(Debug, Default)]
struct Said {
    bytes: Vec<u8>,
    /// The stream has ended.
    over: bool,
    /// Nobody wants to know what still comes.
    unheard: bool,
}

/// What a stream has brought so far, for those who wait for more.
#[derive(Debug, Default)]
struct Heard {
    said: Mutex<Said>,
    more: Condvar,
}

impl Heard {
    /// Listens to a stream on a thread of its own, which ends with the stream.
    fn listen(mut stream: impl Read + Send + 'static) -> Arc<Self> {
        let heard = Arc::new(Self::default());
        let ours = Arc::clone(&heard);
        std::thread::spawn(move || {
            let mut piece = vec![0; 64 << 10];
            loop {
                let n = match stream.read(&mut piece) {
                    Ok(0) => break,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => break,
                    Ok(n) => n,
                };
                let mut said = ours.lock();
                let room = if said.unheard { 0 } else { OUTPUT_MAX.saturating_sub(said.bytes.len()) };
                said.bytes.extend_from_slice(piece.get(..n.min(room)).unwrap_or_default());
                ours.more.notify_all();
            }
            ours.lock().over = true;
            ours.more.notify_all();
        });
        heard
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for words; false when the stream ends or `limit` is over without them.
    fn wait_for(&self, words: &str, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut said = self.lock();
        loop {
            if said.bytes.windows(words.len().max(1)).any(|w| w == words.as_bytes()) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if said.over || left.is_zero() {
                return false;
            }
            said = self.more.wait_timeout(said, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.lock().bytes)
    }

    /// All that it has brought, when it has ended or at `end`; what comes later is read and forgotten.
    fn last(&self, end: Instant) -> Vec<u8> {
        let mut said = self.lock();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if said.over || left.is_zero() {
                said.unheard = true;
                return std::mem::take(&mut said.bytes);
            }
            said = self.more.wait_timeout(said, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A command that runs. Dropping it ends it, with all that it has started and that has stayed in its process group.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pid: libc::pid_t,
    pidfd: OwnedFd,
    name: String,
    limit: Duration,
    started: Instant,
    streams: Option<[Arc<Heard>; 2]>,
    interactive: bool,
    buried: bool,
}

impl Running {
    /// The process id, as seen from outside the lab.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it has not ended yet.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.buried && !sys::readable(&self.pidfd, Duration::ZERO)
    }

    /// Waits until it has written these words to its error output.
    ///
    /// # Errors
    /// It ended, or `limit` is over.
    pub fn wait_for_error_output(&mut self, words: &str, limit: Duration) -> Result<()> {
        self.wait_for(1, words, limit)
    }

    /// Waits until it has written these words to its output.
    ///
    /// # Errors
    /// It ended, or `limit` is over.
    pub fn wait_for_output(&mut self, words: &str, limit: Duration) -> Result<()> {
        self.wait_for(0, words, limit)
    }

    fn wait_for(&mut self, stream: usize, words: &str, limit: Duration) -> Result<()> {
        let Some(streams) = &self.streams else { return failed(&self.name, "its output is the terminal's") };
        if streams[stream].wait_for(words, limit) {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&streams[1].take()).into_owned();
        failed(&self.name, format!("did not say {words:?} within {limit:?}: {}", said.trim()))
    }

    /// Sends it a signal, with all in its process group.
    pub fn signal(&self, signal: i32) {
        if !self.buried {
            let whom = if self.interactive { self.pid } else { -self.pid };
            sys::kill(whom, signal);
        }
    }

    /// Waits until it has ended, and ends it when its limit is over.
    ///
    /// # Errors
    /// The kernel does not tell how it ended.
    pub fn wait(mut self) -> Result<Output> {
        let left = self.limit.saturating_sub(self.started.elapsed());
        let in_time = sys::readable(&self.pidfd, left);
        self.finish(!in_time)
    }

    /// Asks it to end (with this signal first), makes it, and tells how it ended.
    ///
    /// # Errors
    /// The kernel does not tell how it ended.
    pub fn stop(mut self, signal: i32) -> Result<Output> {
        self.signal(signal);
        if !sys::readable(&self.pidfd, GRACE * 4) {
            self.signal(libc::SIGKILL);
        }
        self.finish(false)
    }

    fn finish(&mut self, timed_out: bool) -> Result<Output> {
        if timed_out {
            self.signal(libc::SIGTERM);
            if !sys::readable(&self.pidfd, GRACE) {
                self.signal(libc::SIGKILL);
            }
        }
        // The group outlives its leader while members of it do; they hold the pipes, too. Until the leader is buried, its
        // number is nobody else's.
        sys::readable(&self.pidfd, GRACE * 20);
        let wall = self.started.elapsed();
        if !self.interactive {
            sys::kill(-self.pid, libc::SIGKILL);
        }
        let status = self.child.wait();
        self.buried = true;
        let status = match status {
            Ok(status) => status,
            Err(e) => return failed(&self.name, e),
        };
        let code = status.code().or(status.signal().map(|s| 128 + s)).unwrap_or(-1);
        let until = Instant::now() + LINGER;
        let [stdout, stderr] = self.streams.take().map_or_else(Default::default, |all| all.map(|s| s.last(until)));
        Ok(Output { command: self.name.clone(), code, timed_out, stdout, stderr, wall })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.buried {
            self.signal(libc::SIGTERM);
            if !sys::readable(&self.pidfd, GRACE) {
                self.signal(libc::SIGKILL);
            }
            let _ = self.finish(false);
        }
    }
}

/// Where a command runs.
pub(crate) struct Place<'a> {
    pub pid_namespace: &'a PidNamespace,
    pub netns: &'a Netns,
    /// What it finds as `/etc/hosts`.
    pub hosts: &'a str,
    /// For messages.
    pub host: &'a str,
}

/// Starts a command in a host.
pub(crate) fn start(place: &Place<'_>, cmd: &Cmd) -> Result<Running> {
    let name = format!("{}: {}", place.host, cmd.text());
    let mut command = Command::new(&cmd.program);
    // What one run of `neater get` has learnt decides nothing in the next one.
    command.env("NEATER_CACHE", "");
    command.args(&cmd.args).envs(cmd.env.iter().map(|(k, v)| (k, v)));
    if let Some(directory) = &cmd.directory {
        command.current_dir(directory);
    }
    if !cmd.interactive {
        let input = match &cmd.input {
            None => Stdio::null(),
            Some(file) => match std::fs::File::open(file) {
                Ok(file) => file.into(),
                Err(e) => return failed(&file.to_string_lossy(), e),
            },
        };
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    }
    let netns = place.netns.raw();
    let files = Files::new(place.hosts)?;
    // SAFETY: between fork and exec the closure calls nothing but system calls on memory that was prepared before.
    unsafe {
        command.pre_exec(move || enter(netns, &files));
    }
    let started = Instant::now();
    let born = sys::on_thread(|| {
        place.pid_namespace.adopt_children()?;
        command.spawn().or_else(|e| match e.kind() {
            io::ErrorKind::NotFound => Err(LiveError::Usage(format!("{name}: there is no such program"))),
            _ => failed(&name, e),
        })
    });
    let mut child = born?;
    let pid = libc::pid_t::try_from(child.id()).or_else(|e| failed(&name, e))?;
    let streams = match (child.stdout.take(), child.stderr.take()) {
        (Some(out), Some(err)) => Some([Heard::listen(out), Heard::listen(err)]),
        _ => None,
    };
    let pidfd = sys::pidfd(pid)?;
    let interactive = cmd.interactive;
    Ok(Running { child, pid, pidfd, name, limit: cmd.limit, started, streams, interactive, buried: false })
}

/// Waits until somebody listens at a TCP address of a host, asked from inside that host.
pub(crate) fn wait_for_tcp(netns: &Netns, address: SocketAddr, limit: Duration) -> Result<()> {
    netns.with(|| {
        let end = Instant::now() + limit;
        loop {
            match TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
                Ok(_) => return Ok(()),
                Err(e) if Instant::now() >= end => return failed(&format!("nobody listens at {address}"), e),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    })
}

/// What a command sees instead of the machine's own files.
struct Files {
    hosts: CString,
}

impl Files {
    fn new(hosts: &str) -> Result<Self> {
        CString::new(hosts).map(|hosts| Self { hosts }).or_else(|e| failed("the hosts file", e))
    }
}

/// Moves a child that has not become its program yet into its host: the network, and mounts of its own, so that `/proc`
/// and `/sys` tell of the host and names of hosts resolve. Only system calls here.
fn enter(netns: libc::c_int, files: &Files) -> io::Result<()> {
    let check = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    let none: *const libc::c_char = std::ptr::null();
    let mount = |source: &CStr, target: &CStr, kind: *const libc::c_char, flags: libc::c_ulong| {
        // SAFETY: all strings end with a zero and live during the call.
        check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, std::ptr::null()) })
    };
    // SAFETY: numbers only.
    check(unsafe { libc::setns(netns, libc::CLONE_NEWNET) })?;
    // SAFETY: as above.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    mount(c"none", c"/", none, libc::MS_REC | libc::MS_PRIVATE)?;
    // The files live in a file system of their own, mounted for a moment where there will be something else anyway.
    mount(c"neater-lab", c"/proc", c"tmpfs".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV)?;
    for (path, target, text) in [
        (c"/proc/hosts", c"/etc/hosts", files.hosts.as_bytes()),
        // No name server: the file is empty, and nobody listens at the address that is then asked.
        (c"/proc/resolv.conf", c"/etc/resolv.conf", b"".as_slice()),
    ] {
        // SAFETY: the string ends with a zero; the buffer lives and has the length given; the descriptor is closed once.
        let written = unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC, 0o644 as libc::c_uint);
            let written = fd >= 0 && libc::write(fd, text.as_ptr().cast(), text.len()) == text.len() as isize;
            libc::close(fd);
            written
        };
        if !written {
            return Err(io::Error::last_os_error());
        }
        match mount(path, target, none, libc::MS_BIND) {
            // A machine without the file has nothing to hide.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
            other => other?,
        }
    }
    // SAFETY: the string ends with a zero.
    check(unsafe { libc::umount2(c"/proc".as_ptr(), libc::MNT_DETACH) })?;
    mount(c"proc", c"/proc", c"proc".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC)?;
    mount(c"sysfs", c"/sys", c"sysfs".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_said_is_heard_though_somebody_holds_the_pipe() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let held = writer.try_clone().expect("a second end");
        let heard = Heard::listen(reader);
        writer.write_all(b"the end\n").expect("writes");
        drop(writer);
        assert!(heard.wait_for("the end", Duration::from_secs(20)));
        let before = Instant::now();
        assert_eq!(heard.last(before + Duration::from_millis(50)), b"the end\n");
        assert!(before.elapsed() < Duration::from_secs(20), "nobody waits for whoever holds it");
        drop(held);
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let heard = Heard::listen(reader);
        writer.write_all(b"all").expect("writes");
        drop(writer);
        assert_eq!(heard.last(Instant::now() + Duration::from_secs(600)), b"all", "at once when it has ended");
    }
}
