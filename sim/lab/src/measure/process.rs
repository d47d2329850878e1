//! Child processes: started, listened to, waited for with a limit, ended by their id.
//!
//! *Invariants*: a [`Child`] that is dropped is dead and buried; no wait is without limit.

use super::{MeasureError, Result, failed};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most of a child's error output that is kept, in bytes.
const STDERR_MAX: u64 = 64 << 10;
/// The most lines that are taken from a child's standard output.
const LINES_MAX: usize = 1024;

/// A running child.
#[derive(Debug)]
pub struct Child {
    pid: libc::pid_t,
    name: String,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    started: Instant,
    buried: bool,
}

/// How a child ended.
#[derive(Clone, Debug)]
pub struct Exit {
    /// User and system time of the child alone, as the kernel counted it.
    pub cpu: Duration,
    /// From start to end.
    pub wall: Duration,
    /// The last line of its output, if that was JSON.
    pub line: Value,
    /// What it wrote to its error output.
    pub stderr: String,
}

impl Child {
    /// Starts a child with pipes for input, output and errors.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        let name = format!("{command:?}").replace('"', "");
        let started = Instant::now();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| MeasureError::Failed(format!("{name}: {e}")))?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return failed("a child without pipes");
        };
        let (tx, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok).take(LINES_MAX) {
                if tx.send(line).is_err() {
                    break;
                }
            }
        });
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            let mut stderr = stderr;
            let _ = stderr.by_ref().take(STDERR_MAX).read_to_end(&mut text);
            // The rest is read away, so that the child never waits for room.
            let _ = std::io::copy(&mut stderr, &mut std::io::sink());
            String::from_utf8_lossy(&text).into_owned()
        });
        let pid = libc::pid_t::try_from(child.id()).map_err(|e| MeasureError::Failed(e.to_string()))?;
        Ok(Self { pid, name, stdin: child.stdin.take(), lines, stderr: Some(stderr), started, buried: false })
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The next line of its output, as JSON.
    ///
    /// # Errors
    /// None came in time, or it is no JSON; the child's error output is in the message.
    pub fn line(&mut self, limit: Duration) -> Result<Value> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => self.parsed(&line),
            Err(RecvTimeoutError::Timeout) => failed(format!("{}: said nothing for {limit:?}", self.name)),
            Err(RecvTimeoutError::Disconnected) => self.ended_early(),
        }
    }

    /// The next line of its output, as JSON, if it has said one by now.
    ///
    /// # Errors
    /// It is no JSON, or the child has ended; the child's error output is in the message.
    pub fn line_if_any(&mut self) -> Result<Option<Value>> {
        match self.lines.try_recv() {
            Err(TryRecvError::Empty) => Ok(None),
            Ok(line) => self.parsed(&line).map(Some),
            Err(TryRecvError::Disconnected) => self.ended_early(),
        }
    }

    fn parsed(&self, line: &str) -> Result<Value> {
        serde_json::from_str(line).map_err(|e| MeasureError::Failed(format!("{}: {e} in {line:?}", self.name)))
    }

    fn ended_early<T>(&mut self) -> Result<T> {
        let stderr = self.end();
        failed(format!("{}: ended early: {}", self.name, stderr.trim()))
    }

    /// Stops it, until [`Child::resume`].
    ///
    /// # Errors
    /// It is gone.
    pub fn pause(&self) -> Result<()> {
        self.signal(libc::SIGSTOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// It is gone.
    pub fn resume(&self) -> Result<()> {
        self.signal(libc::SIGCONT)
    }

    fn signal(&self, signal: libc::c_int) -> Result<()> {
        // SAFETY: the child is not buried yet, so the pid is still its own.
        if self.buried || unsafe { libc::kill(self.pid, signal) } != 0 {
            return failed(format!("{}: it is gone", self.name));
        }
        Ok(())
    }

    /// User and system time so far, of the child alone.
    ///
    /// # Errors
    /// It is gone.
    pub fn cpu_so_far(&self) -> Result<Duration> {
        let mut clock: libc::clockid_t = 0;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: both calls get pointers to live values; the pid is that of our child, which is not buried.
        let known = unsafe {
            libc::clock_getcpuclockid(self.pid, &mut clock) == 0 && libc::clock_gettime(clock, &mut time) == 0
        };
        match (known, u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
            (true, Ok(secs), Ok(nanos)) => Ok(Duration::new(secs, nanos)),
            _ => failed(format!("{}: the kernel does not tell its CPU time", self.name)),
        }
    }

    /// Hands it a line of input.
    ///
    /// # Errors
    /// It does not take it.
    pub fn say(&mut self, line: &str) -> Result<()> {
        match &mut self.stdin {
            Some(stdin) => Ok(writeln!(stdin, "{line}")?),
            None => failed(format!("{}: its input is closed", self.name)),
        }
    }

    /// Closes its standard input, which ends a peer that holds flows or serves without end.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until a peer that was started with `--mark` has told its result, and then until it has ended. Its CPU time is what it
    /// has used since `before`, up to that result: what a process costs to end is not part of it.
    ///
    /// # Errors
    /// It took too long, or did not end with 0.
    pub fn wait_result(mut self, before: Duration, limit: Duration) -> Result<Exit> {
        let line = self.line(limit)?;
        let cpu = self.cpu_so_far()?.saturating_sub(before);
        Ok(Exit { cpu, line, ..self.wait(limit)? })
    }

    /// Closes its standard input, waits until it has ended, and ends it when `limit` is over.
    ///
    /// # Errors
    /// It took too long, or did not end with 0.
    pub fn wait(mut self, limit: Duration) -> Result<Exit> {
        self.close_stdin();
        let in_time = self.wait_exit(limit);
        if !in_time {
            self.kill();
        }
        let mut status = 0;
        // SAFETY: an all-zero rusage is a valid value of this plain C structure.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pid is that of our child, which nobody else waits for; both pointers are to live values.
        let waited = unsafe { libc::wait4(self.pid, &mut status, 0, &mut usage) };
        self.buried = true;
        if waited != self.pid {
            return failed(format!("{}: {}", self.name, std::io::Error::last_os_error()));
        }
        let wall = self.started.elapsed();
        let stderr = self.take_stderr();
        let last = self.lines.iter().last();
        if !in_time {
            return failed(format!("{}: not done after {limit:?}: {}", self.name, stderr.trim()));
        }
        if !(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0) {
            let how = if libc::WIFSIGNALED(status) {
                format!("signal {}", libc::WTERMSIG(status))
            } else {
                format!("exit code {}", libc::WEXITSTATUS(status))
            };
            return failed(format!("{}: {how}: {} {}", self.name, last.unwrap_or_default(), stderr.trim()));
        }
        let line = last.and_then(|l| serde_json::from_str(&l).ok()).unwrap_or(Value::Null);
        Ok(Exit { cpu: time(usage.ru_utime) + time(usage.ru_stime), wall, line, stderr })
    }

    /// Whether it ends within `limit`; it stays to be buried.
    fn wait_exit(&self, limit: Duration) -> bool {
        // SAFETY: pidfd_open takes a pid and flags and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) };
        let Ok(fd) = libc::c_int::try_from(fd) else { return false };
        if fd < 0 {
            return false;
        }
        let ms = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd is passed with the count 1.
        let n = unsafe { libc::poll(&mut poll, 1, ms) };
        // SAFETY: the descriptor was opened above and is closed once.
        unsafe { libc::close(fd) };
        n == 1
    }

    fn kill(&self) {
        // SAFETY: the child is not buried yet, so the pid is still its own.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }

    fn take_stderr(&mut self) -> String {
        self.stderr.take().and_then(|t| t.join().ok()).unwrap_or_default()
    }

    /// Ends it, whatever it is doing, and returns its error output.
    fn end(&mut self) -> String {
        self.stdin = None;
        if !self.buried {
            self.buried = true;
            if !self.wait_exit(Duration::from_millis(200)) {
                self.kill();
            }
            let mut status = 0;
            // SAFETY: as in `wait`; the child is dead or dying.
            unsafe { libc::waitpid(self.pid, &mut status, 0) };
        }
        self.take_stderr()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

fn time(t: libc::timeval) -> Duration {
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_usec).unwrap_or(0) * 1000)
}

/// Runs a command to its end.
///
/// # Errors
/// As [`Child::start`] and [`Child::wait`].
pub fn run(command: &mut Command, limit: Duration) -> Result<Exit> {
    Child::start(command)?.wait(limit)
}

/// Looks for a tool, so that its absence is told before anything is measured.
///
/// # Errors
/// [`MeasureError::MissingTool`].
pub fn need(tool: &str, package: &str) -> Result<()> {
    let found =
        std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file()));
    if found { Ok(()) } else { Err(MeasureError::MissingTool { tool: tool.to_owned(), package: package.to_owned() }) }
}

/// `command` on one processor, the same for all that are so wrapped. With `batch` it does not displace what runs there when
/// it wakes up, so that a receiver finds all that its sender could hand over, and counts depend less on chance.
///
/// # Errors
/// [`MeasureError::MissingTool`]: `taskset` is not there, or with `batch` `chrt`.
pub fn on_one_processor(command: &Command, batch: bool) -> Result<Command> {
    need("taskset", "util-linux")?;
    if batch {
        need("chrt", "util-linux")?;
    }
    let cpu = last_processor().to_string();
    let more: &[&str] = if batch { &["chrt", "-b", "0"] } else { &[] };
    Ok(super::wrap(command, "taskset", &[&["-c", &cpu], more].concat()))
}

/// `command` on the processor that all have which are so wrapped: for two programs that work at the same time when the
/// processor time of one is taken, or of both. Processors of a virtual machine are often threads of one core, and a second of
/// one is then worth less while the other works too: here by a third, more than what is to be told apart.
///
/// # Errors
/// [`MeasureError::MissingTool`]: `taskset` is not there.
pub fn together(command: &Command) -> Result<Command> {
    on_one_processor(command, false)
}

/// The highest number of a processor that this process may use.
fn last_processor() -> usize {
    // SAFETY: an all-zero cpu_set_t is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live set of the size given; 0 is this process.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) } != 0 {
        return 0;
    }
    let highest = usize::try_from(libc::CPU_SETSIZE).unwrap_or_default();
    // SAFETY: the numbers are below CPU_SETSIZE.
    (0..highest).rev().find(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).unwrap_or_default()
}

/// Lets this process, and so its children, have as many descriptors as the system allows.
pub fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a pointer to a live rlimit.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut c = Command::new("sh");
        c.args(["-c", script]);
        c
    }

    #[test]
    fn the_last_line_and_the_cpu_time_of_a_child_are_reported() {
        let spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo 1; echo '{\"a\":2}'";
        let exit = run(&mut sh(spin), Duration::from_secs(20)).expect("runs");
        assert_eq!(exit.line["a"], 2);
        assert!(exit.cpu > Duration::from_millis(5), "{:?}", exit.cpu);
        assert!(exit.cpu <= exit.wall + Duration::from_millis(20), "{exit:?}");
    }

    #[test]
    fn a_child_that_does_not_end_is_ended() {
        let start = Instant::now();
        let error = run(&mut sh("exec sleep 30"), Duration::from_millis(100)).expect_err("too slow");
        assert!(error.to_string().contains("not done"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_failure_is_told_with_its_error_output() {
        let error = run(&mut sh("echo why >&2; exit 3"), Duration::from_secs(5)).expect_err("fails");
        assert!(error.to_string().contains("exit code 3") && error.to_string().contains("why"), "{error}");
        let mut child = Child::start(&mut sh("echo gone >&2")).expect("starts");
        let error = child.line(Duration::from_secs(5)).expect_err("no line");
        assert!(error.to_string().contains("gone"), "{error}");
    }

    #[test]
    fn cpu_time_so_far_grows_towards_what_is_reported_at_the_end() {
        let mut child =
            Child::start(&mut sh("echo 1; read x; i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done")).expect("starts");
        child.line(Duration::from_secs(5)).expect("a line");
        let before = child.cpu_so_far().expect("alive");
        child.say("go").expect("listens");
        let exit = child.wait(Duration::from_secs(20)).expect("ends");
        assert!(before > Duration::ZERO && before < Duration::from_millis(200), "{before:?}");
        assert!(exit.cpu > before + Duration::from_millis(2), "{before:?} {exit:?}");
    }

    #[test]
    fn a_command_on_one_processor_runs_there_alone() {
        let allowed = "grep Cpus_allowed_list /proc/self/status | tr -dc 0-9,-; echo";
        let mut child = Child::start(&mut on_one_processor(&sh(allowed), true).expect("tools")).expect("starts");
        assert_eq!(child.line(Duration::from_secs(5)).expect("a number"), last_processor());
    }

    #[test]
    fn a_missing_tool_names_its_package() {
        assert!(need("sh", "dash").is_ok());
        let error = need("no-such-tool-at-all", "some-package").expect_err("missing");
        assert!(error.to_string().contains("some-package"), "{error}");
    }
}
