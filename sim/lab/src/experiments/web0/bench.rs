//! Where WEB0 works: files to serve, a certificate, servers on one processor and clients on another.
//!
//! *Invariants*: all servers run from the first row to the last, so that none of them is measured while it starts; they end, and what was
//! written goes, with [`Bench`].

use super::Side;
use crate::experiments::{LIMIT, Lab};
use crate::measure::{Child, Exit, MeasureError, Result, failed, process, wrap};
use neater_base::Rng;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Bytes of the large file: full and quick. It is a hole, so that the disk takes no part.
const LARGE: (u64, u64) = (1 << 30, 128 << 20);
/// How many small files there are: full and quick.
const SMALL_FILES: (usize, usize) = (2000, 200);
/// Bytes of each.
pub(super) const SMALL: usize = 20_000;
/// Files that are served: name and bytes.
const SERVED: [(&str, usize); 3] = [("byte", 1), ("1kB", 1000), ("10MB", 10_000_000)];
/// The cipher that nginx is limited to, and that h2load prefers.
pub(super) const CIPHER: &str = "TLS_AES_128_GCM_SHA256";
/// A server listens within this time.
const START: Duration = Duration::from_secs(20);
/// From one look at a server that starts to the next.
const LOOK: Duration = Duration::from_millis(20);
/// The most characters of an output that an error repeats.
const REPEATED: usize = 300;
/// Variables by which a user changes what these programs do.
const SETTINGS: [&str; 9] = [
    "NEATER_CACHE",
    "NEATER_POLICY",
    "NEATER_QLOG",
    "NEAT_PM_SOCKET",
    "RUST_LOG",
    "SSLKEYLOGFILE",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
];
/// Output goes to a file: the reader of a pipe is woken for each line, on a processor that is measured.
const INTO_FILE: &str = "out=$1; shift; exec \"$@\" >\"$out\" 2>&1";

/// Folders, which go with this.
struct Place {
    /// Files to serve, certificate, configuration.
    dir: PathBuf,
    /// For what clients write: in memory, where there is such a folder.
    work: PathBuf,
}

impl Place {
    fn new(lab: &Lab) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let memory = if memory.is_dir() { memory } else { lab.scratch.as_path() };
        let work = memory.join(format!("neater-web0-{}", std::process::id()));
        let place = Self { dir: lab.scratch.join("web0"), work };
        place.clear();
        fs::create_dir_all(place.site().join("small"))?;
        fs::create_dir_all(&place.work)?;
        place.fill(large(lab), small_files(lab))?;
        Ok(place)
    }

    fn clear(&self) {
        let _ = fs::remove_dir_all(&self.dir);
        let _ = fs::remove_dir_all(&self.work);
    }

    fn site(&self) -> PathBuf {
        self.dir.join("site")
    }

    fn cert(&self) -> PathBuf {
        self.dir.join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.dir.join("key.pem")
    }

    /// Writes the files and the certificate.
    fn fill(&self, large: u64, small: usize) -> Result<()> {
        let mut rng = Rng::from_number(0x7765_6230);
        // Nothing that a program could compress.
        let mut data = |size: usize| -> Vec<u8> {
            (0..size.div_ceil(8)).flat_map(|_| rng.u64().to_le_bytes()).take(size).collect()
        };
        let site = self.site();
        for (name, size) in SERVED {
            fs::write(site.join(name), data(size))?;
        }
        for i in 0..small {
            fs::write(site.join(small_name(i)), data(SMALL))?;
        }
        File::create(site.join("large"))?.set_len(large)?;
        // The address is in the certificate, so that no name is looked up.
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).map_err(|e| MeasureError::Failed(e.to_string()))?;
        fs::write(self.cert(), made.cert.pem())?;
        fs::write(self.key(), made.signing_key.serialize_pem())?;
        Ok(())
    }

    /// One worker, with what a server of files turns on, without a cache of open files; connections are kept for any number of requests,
    /// as ours are.
    fn nginx(&self, [clear, secure]: [u16; 2]) -> String {
        let (site, cert, key) = (self.site(), self.cert(), self.key());
        let (site, cert, key, dir) = (site.display(), cert.display(), key.display(), self.dir.display());
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("  {kind}_temp_path {dir}/{kind};\n"))
            .collect();
        format!(
            "daemon off;\nmaster_process off;\npid {dir}/nginx.pid;\nerror_log stderr;\nevents {{ worker_connections 1024; }}\n\
             http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  open_file_cache off;\n\
             \x20 keepalive_requests 1000000000;\n{temporary}\
             \x20 ssl_certificate {cert};\n  ssl_certificate_key {key};\n  ssl_protocols TLSv1.3;\n\
             \x20 ssl_conf_command Ciphersuites {CIPHER};\n  root {site};\n\
             \x20 server {{\n    listen 127.0.0.1:{clear};\n    listen 127.0.0.1:{secure} ssl http2;\n  }}\n}}\n"
        )
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The path of a small file below what is served.
fn small_name(i: usize) -> String {
    format!("small/s{i:04}")
}

/// Bytes of the large file.
pub(super) fn large(lab: &Lab) -> u64 {
    if lab.quick { LARGE.1 } else { LARGE.0 }
}

/// How many small files there are.
pub(super) fn small_files(lab: &Lab) -> usize {
    if lab.quick { SMALL_FILES.1 } else { SMALL_FILES.0 }
}

/// Everything that rows share.
pub(super) struct Bench<'a> {
    pub(super) lab: &'a Lab,
    nginx: Child,
    /// In the clear, and over TLS.
    neater: [Child; 2],
    /// In the clear and over TLS, of neater and of nginx.
    ports: [[u16; 2]; 2],
    /// Processors of servers and of clients.
    processors: [usize; 2],
    // Behind the servers, which end first.
    place: Place,
}

impl<'a> Bench<'a> {
    /// Writes the files and starts the servers.
    pub(super) fn new(lab: &'a Lab) -> Result<Self> {
        let processors = match allowed(&fs::read_to_string("/proc/self/status")?)[..] {
            [server, client, ..] => [server, client],
            _ => {
                let why = "servers and clients need a processor each, and this process may use one only";
                return Err(MeasureError::NotPossible(why.to_owned()));
            }
        };
        (lab.progress)("writing files and starting servers");
        let place = Place::new(lab)?;
        let (nginx, theirs) = start_nginx(&place, processors[0])?;
        let (clear, clear_port) = start_neater(lab, &place, processors[0], false)?;
        let (secure, secure_port) = start_neater(lab, &place, processors[0], true)?;
        let ports = [[clear_port, secure_port], theirs];
        Ok(Self { lab, nginx, neater: [clear, secure], ports, processors, place })
    }

    /// The server process of a side.
    pub(super) fn server(&self, side: Side, tls: bool) -> &Child {
        match side {
            Side::Ours => &self.neater[usize::from(tls)],
            Side::Reference => &self.nginx,
        }
    }

    /// Where a side serves a file.
    pub(super) fn url(&self, side: Side, tls: bool, file: &str) -> String {
        let ports = self.ports[usize::from(side == Side::Reference)];
        let scheme = if tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}/{file}", ports[usize::from(tls)])
    }

    /// Where nginx serves the small files.
    pub(super) fn small_urls(&self, tls: bool) -> Vec<String> {
        (0..small_files(self.lab)).map(|i| self.url(Side::Reference, tls, &small_name(i))).collect()
    }

    /// For what clients write.
    pub(super) fn work(&self) -> &Path {
        &self.place.work
    }

    /// A download command without its files: over HTTP/1.1, quiet.
    pub(super) fn client(&self, side: Side, tls: bool) -> Result<Command> {
        let mut command = match side {
            Side::Ours => {
                let mut neater = Command::new(self.lab.programs.neater()?);
                neater.args(["get", "--noproxy", "*", "--quiet", "--http", "1.1"]);
                neater
            }
            Side::Reference => {
                let mut curl = Command::new("curl");
                // Without a configuration of the user's.
                curl.args(["-q", "--noproxy", "*", "--silent", "--show-error", "--fail", "--http1.1"]);
                curl
            }
        };
        if tls {
            command.arg(if side == Side::Ours { "--ca" } else { "--cacert" }).arg(self.place.cert());
        }
        as_new_user(&mut command, &self.place);
        Ok(command)
    }

    /// `command` on the clients' processor.
    pub(super) fn on_client(&self, command: &Command) -> Command {
        on(self.processors[1], command)
    }

    /// Runs a command on the clients' processor to its end: how it ended, and its output.
    pub(super) fn run(&self, command: &Command) -> Result<(Exit, String)> {
        let file = self.place.work.join("output");
        let name = file.display().to_string();
        let quiet = wrap(command, "sh", &["-c", INTO_FILE, "sh", &name]);
        let ended = process::run(&mut self.on_client(&quiet), LIMIT);
        let bytes = fs::read(&file).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match ended {
            Ok(exit) => Ok((exit, text)),
            // The command may have thousands of arguments.
            Err(e) => {
                let program = command.get_program().to_string_lossy().into_owned();
                failed(format!("{program}: {} {}", end_of(&e.to_string()), end_of(text.trim())))
            }
        }
    }
}

/// Without what a user may have set up.
fn as_new_user(command: &mut Command, place: &Place) {
    command.env("HOME", &place.dir);
    for name in SETTINGS {
        command.env_remove(name);
    }
}

/// `command` on this processor, as the same process.
fn on(processor: usize, command: &Command) -> Command {
    wrap(command, "taskset", &["-c", &processor.to_string()])
}

fn start_nginx(place: &Place, processor: usize) -> Result<(Child, [u16; 2])> {
    // Both are held until both are known, so that they differ.
    let held = [TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?];
    let ports = [held[0].local_addr()?.port(), held[1].local_addr()?.port()];
    drop(held);
    let configuration = place.dir.join("nginx.conf");
    fs::write(&configuration, place.nginx(ports))?;
    let mut nginx = Command::new("nginx");
    nginx.arg("-p").arg(&place.dir).arg("-c").arg(&configuration).args(["-e", "stderr"]);
    let mut child = Child::start(&mut on(processor, &nginx))?;
    let end = Instant::now() + START;
    for port in ports {
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            // Why it has ended is in the error, if it has.
            child.line_if_any()?;
            if Instant::now() > end {
                return failed("nginx does not listen");
            }
            std::thread::sleep(LOOK);
        }
    }
    Ok((child, ports))
}

fn start_neater(lab: &Lab, place: &Place, processor: usize, tls: bool) -> Result<(Child, u16)> {
    let mut neater = Command::new(lab.programs.neater()?);
    neater.args(["--json", "serve", "--bind", "127.0.0.1", "--port", "0"]);
    if tls {
        neater.arg("--cert").arg(place.cert()).arg("--key").arg(place.key());
    } else {
        neater.arg("--plain");
    }
    neater.arg(place.site());
    as_new_user(&mut neater, place);
    let mut child = Child::start(&mut on(processor, &neater))?;
    let line = child.line(START)?;
    match line["urls"][0].as_str().and_then(port_of) {
        Some(port) => Ok((child, port)),
        None => failed(format!("neater serve starts with {line}, without a URL")),
    }
}

/// The port of a URL that ends with it.
fn port_of(url: &str) -> Option<u16> {
    url.trim_end_matches('/').rsplit_once(':')?.1.parse().ok()
}

/// The processors that a process may use, as its status lists them.
fn allowed(status: &str) -> Vec<usize> {
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let range = |part: &str| match part.split_once('-') {
        Some((first, last)) => Some(number(first)?..=number(last)?),
        None => number(part).map(|n| n..=n),
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// The last characters of a text.
fn end_of(text: &str) -> String {
    let count = text.chars().count();
    text.chars().skip(count.saturating_sub(REPEATED)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_of_a_process_are_listed() {
        let of = |list: &str| allowed(&format!("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{list}\nMems:\t1\n"));
        assert_eq!(of("0-1"), [0, 1]);
        assert_eq!(of("2,4-6"), [2, 4, 5, 6]);
        assert_eq!(of("3"), [3]);
        assert!(of("").is_empty() && allowed("").is_empty());
    }

    #[test]
    fn ports_and_ends_are_found() {
        assert_eq!(port_of("https://localhost:4433/"), Some(4433));
        assert_eq!(port_of("http://localhost/"), None);
        assert_eq!(end_of("short"), "short");
        assert_eq!(end_of(&"x".repeat(1000)).len(), REPEATED);
    }

    #[test]
    fn the_configuration_of_nginx_names_both_ports_and_the_cipher() {
        // No folder is made: what is dropped finds nothing to remove.
        let here = std::env::temp_dir().join(format!("neater-web0-test-{}", std::process::id()));
        let place = Place { dir: here.join("dir"), work: here.join("work") };
        let text = place.nginx([8080, 4433]);
        for part in
            ["listen 127.0.0.1:8080;", "listen 127.0.0.1:4433 ssl http2;", CIPHER, "sendfile on;", "access_log off;"]
        {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(text.matches('{').count(), text.matches('}').count());
        assert!(text.contains("\n  ssl_certificate ") && text.contains("\n  root "), "{text}");
    }
}
