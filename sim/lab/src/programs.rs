//! The programs that are measured: where they are, how they are built, how they are called.
//!
//! *Responsible for* compiling the C peers (once per contents, by the system's compiler) and the Rust peers (by cargo, in
//! release). *Invariants*: a peer that cannot be built is reported as
//! missing with the reason, and the others are measured.

use crate::measure::process::{need, run};
use crate::measure::{Exit, MeasureError, Result, failed};
use neater_base::Rng;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The name that the neater peers connect to: two A and two AAAA records in a hosts file of our own.
pub const HOST: &str = "lab.test";
/// `::1` is what the race chooses (RFC 6724: same scope, highest precedence), and what the other peers connect to.
const HOSTS: &str = "::1 lab.test\n127.0.0.1 lab.test\n127.0.0.2 lab.test\n2001:db8::1 lab.test\n";

const COMMON: &str = include_str!("../peers/common.h");
const C_PEERS: [(&str, &str, &[&str]); 2] =
    [("epoll", include_str!("../peers/epoll.c"), &[]), ("libuv", include_str!("../peers/libuv.c"), &["-luv"])];
/// Only the experiments with SCTP need it, so that it may be missing.
const USRSCTP: (&str, &str, &[&str]) = ("usrsctp", include_str!("../peers/usrsctp.c"), &["-lusrsctp"]);
/// Needs the library that is built here.
const LIBNEAT: (&str, &str) = ("libneat", include_str!("../peers/libneat.c"));
/// Its library, as cargo calls it, and as programs that are linked with it look for it.
const LIBNEAT_LIBRARY: (&str, &str) = ("libneat.so", "libneat.so.0");
const RUST_PEERS: [&str; 8] =
    ["peer-tokio", "peer-quinn", "peer-noq", "peer-neater", "peer-sctp", "peer-policy", "peer-messages", "peer-paced"];
/// The one that opens flows through the whole API.
const FLOW_PEER: &str = "peer-neater";
/// The command that users run.
const NEATER: &str = "neater";
/// Building everything from nothing takes minutes on a small machine.
const BUILD: Duration = Duration::from_secs(3600);

/// A program on one API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// Sockets and epoll, in C.
    Epoll,
    /// libuv, in C.
    Libuv,
    /// tokio, in Rust; TLS by tokio-rustls.
    Tokio,
    /// quinn on tokio.
    Quinn,
    /// noq, a QUIC with several paths, on tokio.
    Noq,
    /// usrsctp over UDP, in C.
    Usrsctp,
    /// This project's SCTP over UDP, without the rest of it.
    Sctp,
    /// This project's policy manager alone.
    Policy,
    /// Messages by this project's Rust API, both ends in one thread.
    Messages,
    /// Messages by a plan, over every path there is, by this project's Rust API.
    Paced,
    /// This project, driven by its descriptor.
    NeaterFd,
    /// This project, through its futures on tokio.
    Neater,
    /// This project, through NEAT's interface in C.
    Libneat,
}

impl Program {
    /// The name in figures and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Libuv => "libuv",
            Self::Tokio => "tokio",
            Self::Quinn => "quinn",
            Self::Noq => "noq",
            Self::Usrsctp => "usrsctp",
            Self::Sctp => "neater-sctp",
            Self::Policy => "neater-policy",
            Self::Messages => "rust-api",
            Self::Paced => "neater-paced",
            Self::NeaterFd => "neater-fd",
            Self::Neater => "neater",
            Self::Libneat => "libneat",
        }
    }

    const fn binary(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Libuv => "libuv",
            Self::Tokio => "peer-tokio",
            Self::Quinn => "peer-quinn",
            Self::Noq => "peer-noq",
            Self::Usrsctp => "usrsctp",
            Self::Sctp => "peer-sctp",
            Self::Policy => "peer-policy",
            Self::Messages => "peer-messages",
            Self::Paced => "peer-paced",
            Self::NeaterFd | Self::Neater => "peer-neater",
            Self::Libneat => "libneat",
        }
    }

    /// Whether it is this project's, by its whole API in Rust.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::NeaterFd | Self::Neater)
    }
}

/// How the programs in Rust come to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Build {
    /// All are built by one command, whatever is wanted: what is built together shares its
    /// dependencies with their features, and a program is the same in every experiment.
    #[default]
    All,
    /// Without the `neater` command where it is not wanted, which takes half of the time.
    Wanted,
    /// Those that lie beside this program, as they are. Nothing is built.
    Beside,
}

/// Which programs are needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The peers on other people's APIs, and ours.
    pub peers: bool,
    /// Of those, where only what is wanted is built, the one of ours that opens flows, and those in C.
    pub flows: bool,
    /// Of the peers, those in Rust, and none in C.
    pub rust: bool,
    /// The `neater` command.
    pub neater: bool,
    /// Where those in Rust come from.
    pub build: Build,
}

/// All programs, ready to be called.
#[derive(Debug)]
pub struct Programs {
    neater: std::result::Result<PathBuf, String>,
    paths: BTreeMap<&'static str, std::result::Result<PathBuf, String>>,
    hosts: PathBuf,
    credentials: PathBuf,
}

impl Programs {
    /// Builds what is wanted and not built yet. `dir` keeps the C peers, the hosts file and the certificate of the run.
    ///
    /// # Errors
    /// [`MeasureError::MissingTool`] without a C compiler or libuv's headers; the files cannot be written.
    pub fn prepare(dir: &Path, wanted: Wanted, progress: &dyn Fn(&str)) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let mut paths = BTreeMap::new();
        if wanted.peers || wanted.flows {
            for (name, source, libraries) in C_PEERS {
                progress(&format!("compiling the {name} peer"));
                paths.insert(name, Ok(compile(dir, name, source, libraries)?));
            }
            let (name, source, libraries) = USRSCTP;
            progress(&format!("compiling the {name} peer"));
            let compiled = compile(dir, name, source, libraries).map_err(|e| e.to_string());
            if let Err(why) = &compiled {
                progress(why);
            }
            paths.insert(name, compiled);
        }
        let in_rust = wanted.peers || wanted.flows || wanted.rust;
        let rust = match (in_rust, wanted.neater) {
            (false, false) => Ok(BTreeMap::new()),
            _ => rust_programs(wanted, progress).map_err(|e| e.to_string()),
        };
        let found = |name: &'static str| match &rust {
            Ok(found) => found.get(name).cloned().ok_or_else(|| format!("{name} was not built")),
            Err(why) => Err(why.clone()),
        };
        if wanted.peers || wanted.flows {
            let (name, source) = LIBNEAT;
            progress(&format!("compiling the {name} peer"));
            let library = found(LIBNEAT_LIBRARY.0);
            let compiled = library.and_then(|l| with_libneat(dir, &l, name, source).map_err(|e| e.to_string()));
            if let Err(why) = &compiled {
                progress(why);
            }
            paths.insert(name, compiled);
        }
        if in_rust {
            paths.extend(RUST_PEERS.map(|name| (name, found(name))));
        }
        let neater = if wanted.neater { found(NEATER) } else { Err("it was not asked for".to_owned()) };
        let hosts = dir.join("hosts");
        fs::write(&hosts, HOSTS)?;
        neater_peers::credentials::generate(dir)?;
        Ok(Self { neater, paths, hosts, credentials: dir.to_owned() })
    }

    /// The `neater` command.
    ///
    /// # Errors
    /// [`MeasureError::MissingPeer`].
    pub fn neater(&self) -> Result<&Path> {
        let missing = |why: &String| MeasureError::MissingPeer(format!("the neater command is not available: {why}"));
        self.neater.as_deref().map_err(missing)
    }

    /// Where the certificate and the key of the run are.
    #[must_use]
    pub fn credentials(&self) -> &Path {
        &self.credentials
    }

    /// `program mode`.
    ///
    /// # Errors
    /// [`MeasureError::MissingPeer`].
    pub fn command(&self, program: Program, mode: &str) -> Result<Command> {
        let missing = |why: &str| MeasureError::MissingPeer(format!("{} is not available: {why}", program.name()));
        let path = match self.paths.get(program.binary()) {
            Some(Ok(path)) => path,
            Some(Err(why)) => return Err(missing(why)),
            None => return Err(missing("unknown program")),
        };
        let mut command = Command::new(path);
        command.arg(mode);
        if program.is_ours() {
            command.args(["--api", if program == Program::NeaterFd { "fd" } else { "async" }]);
        }
        Ok(command)
    }

    /// `program mode --addr ADDR`, for the side that connects; ours connects by name, and `addr` is what the race chooses.
    ///
    /// # Errors
    /// [`MeasureError::MissingPeer`].
    pub fn connecting(&self, program: Program, mode: &str, addr: SocketAddr) -> Result<Command> {
        let mut command = self.command(program, mode)?;
        command.args(["--addr", &addr.to_string()]);
        if program.is_ours() || program == Program::Libneat {
            command.args(["--name", HOST, "--hosts"]).arg(&self.hosts);
        }
        Ok(command)
    }

    /// Adds where the certificate of the run is.
    pub fn add_credentials(&self, command: &mut Command) {
        command.arg("--credentials").arg(&self.credentials);
    }
}

/// Compiles the peer on this project's libneat, and links it with the library where that is.
fn with_libneat(dir: &Path, library: &Path, name: &str, source: &str) -> Result<PathBuf> {
    let dir = fs::canonicalize(dir)?;
    for link in [LIBNEAT_LIBRARY.0, LIBNEAT_LIBRARY.1] {
        let link = dir.join(link);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(fs::canonicalize(library)?, link)?;
    }
    let header = include_str!("../../../io/libneat/include/neat.h");
    fs::write(dir.join("neat.h"), header)?;
    let (at, path) = (format!("-L{}", dir.display()), format!("-Wl,-rpath,{}", dir.display()));
    compile(&dir, name, source, &[&at, "-lneat", "-luv", &path])
}

/// Compiles a C peer into `dir`, unless the same source is compiled there already.
fn compile(dir: &Path, name: &str, source: &str, libraries: &[&str]) -> Result<PathBuf> {
    need("cc", "gcc")?;
    let out = dir.join(format!("{name}-{:016x}", hash(&[COMMON, source])));
    if out.is_file() {
        return Ok(out);
    }
    fs::write(dir.join("common.h"), COMMON)?;
    let c = dir.join(format!("{name}.c"));
    fs::write(&c, source)?;
    let unfinished = dir.join(format!("{name}.new"));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-o"]).arg(&unfinished).arg(&c).args(libraries);
    match run(&mut cc, Duration::from_secs(120)) {
        Ok(_) => {}
        Err(e) if e.to_string().contains("uv.h") || e.to_string().contains("-luv") => {
            return Err(MeasureError::MissingTool { tool: "uv.h".to_owned(), package: "libuv1-dev".to_owned() });
        }
        Err(e) if e.to_string().contains("usrsctp.h") || e.to_string().contains("-lusrsctp") => {
            let package = "libusrsctp-dev".to_owned();
            return Err(MeasureError::MissingTool { tool: "usrsctp.h".to_owned(), package });
        }
        Err(e) => return Err(e),
    }
    fs::rename(&unfinished, &out)?;
    Ok(out)
}

/// A number that changes with the texts (FNV-1a).
fn hash(texts: &[&str]) -> u64 {
    texts
        .iter()
        .flat_map(|t| t.bytes())
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// The programs in Rust as cargo builds them, or, where there is no cargo or no source, those beside this program.
///
/// What is built already takes cargo a second. What cargo refuses to build is not replaced by what lies beside this program: that
/// would be measured for what it is not.
fn rust_programs(wanted: Wanted, progress: &dyn Fn(&str)) -> Result<BTreeMap<String, PathBuf>> {
    let names = || RUST_PEERS.into_iter().chain([NEATER]);
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let source = if manifest.is_file() { Ok(()) } else { failed(format!("{} is not there", manifest.display())) };
    let beside = wanted.build == Build::Beside;
    let able = if beside { failed("the programs beside this one were asked for") } else { source };
    if let Err(why) = need("cargo", "cargo").and(able) {
        let here = std::env::current_exe()?;
        let all = names().chain([LIBNEAT_LIBRARY.0]).map(|name| (name.to_owned(), here.with_file_name(name)));
        let found: BTreeMap<_, _> = all.filter(|(_, path)| path.is_file()).collect();
        return if found.is_empty() { Err(why) } else { Ok(found) };
    }
    progress("building what has changed of neater and the peers in Rust, in release (minutes, the first time)");
    let mut cargo = Command::new("cargo");
    // One that does not build keeps none of the others away.
    cargo.args(["build", "--release", "--keep-going", "-q", "--message-format=json-render-diagnostics"]);
    cargo.args(["--manifest-path"]).arg(&manifest);
    let all = wanted.build == Build::All;
    match wanted {
        Wanted { peers: true, .. } | Wanted { rust: true, .. } => cargo.args(["-p", "neater-peers", "--bins"]),
        _ if all => cargo.args(["-p", "neater-peers", "--bins"]),
        Wanted { flows: true, .. } => cargo.args(["-p", "neater-peers", "--bin", FLOW_PEER]),
        _ => &mut cargo,
    };
    // Linking it takes minutes: where only what is wanted is built, do without.
    if wanted.peers || all {
        cargo.args(["-p", "libneat", "--lib"]);
    }
    if all || wanted.neater {
        // `neater pm` executes a program of its own, which lies beside it.
        cargo.args(["-p", "neater-cli", "-p", "neater-pm", "--bin", NEATER, "--bin", "neater-pm"]);
    }
    let (ended, text) = cargo_output(&mut cargo)?;
    let found = executables(&text);
    match ended {
        Err(e) if found.is_empty() => Err(e),
        Err(e) => {
            let missing: Vec<_> = names().filter(|name| !found.contains_key(*name)).collect();
            progress(&format!("cargo has not built {}: {e}", missing.join(", ")));
            Ok(found)
        }
        Ok(_) => Ok(found),
    }
}

/// How cargo ended, and what it said while it built; it may say more than a peer, so it goes through a file.
fn cargo_output(cargo: &mut Command) -> Result<(Result<Exit>, String)> {
    let file = std::env::temp_dir()
        .join(format!("neater-lab-{:016x}.json", Rng::from_number(u64::from(std::process::id())).u64()));
    let mut sh = Command::new("sh");
    sh.args(["-c", "out=$1; shift; exec \"$@\" >\"$out\"", "sh"])
        .arg(&file)
        .arg(cargo.get_program())
        .args(cargo.get_args());
    let ended = run(&mut sh, BUILD);
    let text = fs::read_to_string(&file);
    let _ = fs::remove_file(&file);
    match text {
        Ok(text) => Ok((ended, text)),
        // Why there is no text is what the shell says, if it says something.
        Err(e) => Err(ended.err().unwrap_or(e.into())),
    }
}

/// The shared library that a message of cargo's is about, by its name, if it is the one that a peer is linked with.
fn shared_library(message: &Value) -> Option<(String, PathBuf)> {
    let mut files = message["filenames"].as_array()?.iter().filter_map(Value::as_str).map(PathBuf::from);
    let library = files.find(|f| f.file_name().is_some_and(|n| n == LIBNEAT_LIBRARY.0))?;
    Some((LIBNEAT_LIBRARY.0.to_owned(), library))
}

/// The executables in cargo's messages, by name of their target, and the shared library.
fn executables(messages: &str) -> BTreeMap<String, PathBuf> {
    messages
        .lines()
        .filter_map(|l| serde_json::from_str::<Value>(l).ok())
        .filter_map(|m| match m["executable"].as_str() {
            Some(program) => Some((m["target"]["name"].as_str()?.to_owned(), PathBuf::from(program))),
            None => shared_library(&m),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_in_cargos_messages() {
        let text = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"libc\"},\"executable\":null}\n\
                    not json\n\
                    {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"peer-tokio\"},\"executable\":\"x/peer-tokio\"}\n\
                    {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"neat\"},\"executable\":null,\
                     \"filenames\":[\"y/libneat.so\",\"y/libneat.rlib\"]}\n\
                    {\"reason\":\"build-finished\",\"success\":true}\n";
        let expected = [("peer-tokio", "x/peer-tokio"), ("libneat.so", "y/libneat.so")];
        assert_eq!(executables(text), expected.map(|(name, at)| (name.to_owned(), PathBuf::from(at))).into());
    }

    #[test]
    fn a_changed_source_is_compiled_anew() {
        assert_ne!(hash(&["a", "b"]), hash(&["a", "c"]));
        assert_eq!(hash(&["a", "b"]), hash(&["a", "b"]));
    }
}
