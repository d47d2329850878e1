//! Programs in C, built as a user builds them, against the library that cargo has made for this
//! test.
#![allow(dead_code, reason = "each file of tests uses a part")]

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Where everything is installed, once.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let name = std::env::current_exe().expect("this test");
        let library = name.parent().expect("a folder").join("libneat.so");
        let prefix = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("libneat-{}", name.file_name().expect("a name").to_string_lossy()));
        run(Command::new(here().join("install")).arg(&prefix).arg(library));
        prefix
    })
}

/// Runs a program that must succeed; returns what it has printed.
pub(crate) fn run(command: &mut Command) -> String {
    let what = format!("{command:?}");
    let output: Output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect(&what), &what);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Waits, and ends a program that takes too long.
fn finish(mut child: Child, what: &str) -> Output {
    let mut out = child.stdout.take().map(|mut o| std::thread::spawn(move || all(&mut o)));
    let mut err = child.stderr.take().map(|mut o| std::thread::spawn(move || all(&mut o)));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect(what) {
            break status;
        }
        if begun.elapsed() > patience() {
            let _ = child.kill();
            let _ = child.wait();
            let err = err.take().map(|t| t.join().expect("reader")).unwrap_or_default();
            panic!("{what} does not end\n{}", String::from_utf8_lossy(&err));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let stdout = out.take().map(|t| t.join().expect("reader")).unwrap_or_default();
    let stderr = err.take().map(|t| t.join().expect("reader")).unwrap_or_default();
    Output { status, stdout, stderr }
}

fn patience() -> Duration {
    if valgrind() { PATIENCE * 10 } else { PATIENCE }
}

fn all(from: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    bytes
}

/// The flags of pkg-config for the library.
pub(crate) fn flags() -> Vec<String> {
    let out = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "libneat"])
        .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
    out.split_whitespace().map(str::to_owned).collect()
}

/// What this run of the tests has built.
static FRESH: std::sync::Mutex<Vec<PathBuf>> = std::sync::Mutex::new(Vec::new());

/// What `cargo xtask sanitize` sets, which has built the library with the same sanitizer.
pub(crate) fn sanitizing() -> Vec<String> {
    let options = std::env::var("NEATER_SANITIZER").unwrap_or_default();
    options.split_whitespace().map(str::to_owned).collect()
}

/// Compiles a program of `examples/` or `tests/c/`.
pub(crate) fn build(source: &str) -> PathBuf {
    build_with(source, "cc", &["-std=c99", "-D_GNU_SOURCE"], "")
}

/// Compiles with this compiler and these options.
pub(crate) fn build_with(source: &str, compiler: &str, options: &[&str], suffix: &str) -> PathBuf {
    let stem = Path::new(source).file_stem().expect("a name").to_string_lossy().into_owned();
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    // The same program may be wanted by several tests at once, and one that runs cannot be written
    // to.
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let program = prefix().join(format!("{stem}{suffix}"));
    if program.exists() && FRESH.lock().expect("not poisoned").contains(&program) {
        return program;
    }
    FRESH.lock().expect("not poisoned").push(program.clone());
    let _ = std::fs::remove_file(&program);
    let mut command = Command::new(compiler);
    command.args(options).args(["-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"]).arg(&program);
    command.args(sanitizing());
    if compiler.ends_with("++") {
        command.args(["-x", "c++"]);
    }
    command.arg(here().join(source)).args(["-x", "none"]).args(flags());
    run(&mut command);
    program
}

/// Compiles a program on another library, as pkg-config describes it. `None` where that is not
/// installed; the Debian package that has it is printed.
pub(crate) fn build_foreign(source: &str, library: &str, package: &str) -> Option<PathBuf> {
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", library]).output().expect("pkg-config");
    if !flags.status.success() {
        eprintln!("SKIPPED: no {library} here (package {package})");
        return None;
    }
    let built = prefix().join(Path::new(source).file_stem().expect("a name"));
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-D_GNU_SOURCE", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", "-o"]);
    command.arg(&built).arg(here().join(source));
    command.args(String::from_utf8_lossy(&flags.stdout).split_whitespace());
    run(&mut command);
    Some(built)
}

/// Whether programs run under valgrind: `NEAT_VALGRIND=1`.
pub(crate) fn valgrind() -> bool {
    std::env::var_os("NEAT_VALGRIND").is_some()
}

/// A program with arguments, ready to run.
pub(crate) fn program(path: &Path, args: &[&str]) -> Command {
    let mut command = if valgrind() {
        let mut command = Command::new("valgrind");
        let leaks =
            ["--leak-check=full", "--errors-for-leak-kinds=definite,possible", "--show-leak-kinds=definite,possible"];
        // The assembly of TLS's cryptography initialises bytes in ways that valgrind does not
        // follow.
        let secure = args.iter().any(|a| a.contains("tls") || a.ends_with(".pem"));
        let undefined = if secure { "--undef-value-errors=no" } else { "--undef-value-errors=yes" };
        command.args(["-q", "--error-exitcode=99", undefined]).args(leaks).arg(path);
        command
    } else {
        Command::new(path)
    };
    command.args(args).env("LD_LIBRARY_PATH", prefix().join("lib"));
    command
}

/// A server in C, which ends when its input does.
pub(crate) struct Server {
    child: Option<Child>,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts it and waits until it listens.
    pub(crate) fn start(path: &Path, args: &[&str]) -> Self {
        let mut child = program(path, args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut this = Self { child: Some(child), input, output };
        let line = this.line();
        assert_eq!(line, "listening", "{}", path.display());
        this
    }

    /// The next line of its output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Ends it in order; it must have found nothing wrong.
    pub(crate) fn stop(mut self) -> String {
        drop(self.input.take());
        let child = self.child.take().expect("it runs");
        let mut rest = String::new();
        let _ = self.output.read_to_string(&mut rest);
        let output = finish(child, "a server");
        assert!(output.status.success(), "a server: {}", output.status);
        rest
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A free port, of TCP and of UDP.
pub(crate) fn port() -> String {
    loop {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = tcp.local_addr().expect("its address").port();
        if UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port.to_string();
        }
    }
}

/// A file with a certificate for localhost and its key: the same one for all tests, which run side
/// by side.
pub(crate) fn pem() -> String {
    static PEM: OnceLock<String> = OnceLock::new();
    let make = || {
        let path = prefix().join("server.pem");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
        let wall = neater_base::WallTime(now);
        let identity = neater_tls::self_signed_p256(&["localhost", "127.0.0.1"], wall).expect("a certificate");
        let text = neater_tls::certificates_to_pem(&identity.chain) + &neater_tls::private_key_to_pem(&identity.key);
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    };
    PEM.get_or_init(make).clone()
}

/// Whether a program is here; if not, what is not looked at is named.
pub(crate) fn has(program: &str) -> bool {
    let here = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    let here = here.is_ok_and(|s| s.success());
    if !here {
        eprintln!("skipped: no {program} here");
    }
    here
}
