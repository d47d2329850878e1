//! One transfer in the lab: a server and a client, real programs, in hosts of their own.

use super::path::Path;
use super::{Stack, Transfer, Work};
use crate::experiments::Lab;
use crate::measure::{MeasureError, Result, failed};
use neater_base::Rng;
use neater_emulator::{self as live, Cmd, LinkReport, Options, Plan, Running};
use serde_json::Value;
use std::fs;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The servers' ports: in the clear, and encrypted.
const PORTS: (u16, u16) = (8080, 4433);
/// A server must listen within this time.
const START: Duration = Duration::from_secs(20);
/// A transfer may take so many times longer than was thought, and so much more.
const PATIENCE: (f64, f64) = (8.0, 60.0);
/// The initial window of one TCP connection, in packets, that several share (RFC 6928).
const INITIAL_WINDOW: u8 = 10;

/// What transfers need: files to serve, a certificate, the command.
#[derive(Debug)]
pub(super) struct Tools {
    neater: Option<PathBuf>,
    /// Where servers find files.
    site: PathBuf,
    /// Certificate and key.
    credentials: PathBuf,
    /// Where each transfer has a directory of its own, for as long as it takes.
    work: PathBuf,
}

/// The name of a file of a work.
fn file_name(work: Work, i: usize) -> String {
    match work {
        Work::One => "f10m".to_owned(),
        Work::Ten => format!("t{i}"),
    }
}

/// Files for transfers that are cut off by time: the start of their names, how many there are, their size in bytes. They
/// have no content that takes room.
const ENDLESS: &str = "endless";
const ENDLESS_STREAMS: usize = 2;
const ENDLESS_SIZE: u64 = 1 << 30;

impl Tools {
    /// Makes the files and the certificate, unless they are there.
    pub(super) fn prepare(lab: &Lab) -> Result<Self> {
        let work = lab.scratch.join("transfers");
        let (site, credentials) = (work.join("site"), work.join("credentials"));
        fs::create_dir_all(&site)?;
        fs::create_dir_all(&credentials)?;
        let mut rng = Rng::from_number(0x7369_7465);
        for kind in [Work::One, Work::Ten] {
            let (n, size) = kind.files();
            for i in 0..n {
                // Nothing that a link or a program could compress.
                let data: Vec<u8> = (0..size.div_ceil(8)).flat_map(|_| rng.u64().to_le_bytes()).collect();
                fs::write(site.join(file_name(kind, i)), &data[..size as usize])?;
            }
        }
        for i in 0..ENDLESS_STREAMS {
            fs::File::create(site.join(format!("{ENDLESS}{i}")))?.set_len(ENDLESS_SIZE)?;
        }
        // Hosts of a dumbbell have addresses of this form; they are in the certificate, so that no name is looked up.
        let names: Vec<String> = (0..=16).flat_map(|n| (1..=2).map(move |i| format!("10.0.{n}.{i}"))).collect();
        let made = rcgen::generate_simple_self_signed(names).map_err(|e| MeasureError::Failed(e.to_string()))?;
        fs::write(credentials.join("cert.pem"), made.cert.pem())?;
        fs::write(credentials.join("key.pem"), made.signing_key.serialize_pem())?;
        Ok(Self { neater: lab.programs.neater().ok().map(FilePath::to_owned), site, credentials, work })
    }

    fn neater(&self) -> Result<&FilePath> {
        self.neater.as_deref().ok_or_else(|| MeasureError::MissingPeer("the neater command is not available".into()))
    }

    fn cert(&self) -> PathBuf {
        self.credentials.join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.credentials.join("key.pem")
    }

    /// A directory for one transfer, which is removed with what this returns.
    pub(super) fn folder(&self) -> Result<Folder> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = self.work.join(format!("run-{}-{n}", std::process::id()));
        fs::create_dir_all(&dir)?;
        Ok(Folder(dir))
    }

    /// Starts the server of a stack in a host, and returns it with the start of its URLs.
    pub(super) fn serve(&self, lab: &live::Lab, host: &str, stack: Stack, dir: &FilePath) -> Result<(Running, String)> {
        let address = lab.address(host, false)?.to_string();
        let clear = matches!(stack, Stack::Tcp | Stack::CurlHttp | Stack::CurlConnections(_));
        let (scheme, port) = if clear { ("http", PORTS.0) } else { ("https", PORTS.1) };
        let cmd = match stack {
            Stack::Quic | Stack::Tls | Stack::TlsStreams | Stack::Tcp => {
                let cmd = Cmd::new(self.neater()?).args(["serve", "--bind", &address, "--port", &port.to_string()]);
                let cmd = if clear {
                    cmd.arg("--plain")
                } else {
                    cmd.arg("--cert").arg(self.cert()).arg("--key").arg(self.key())
                };
                cmd.arg(&self.site)
            }
            Stack::SimulatedQuic | Stack::SimulatedTcp => return failed("a simulated stack has no server in the lab"),
            _ => {
                let conf = dir.join(format!("nginx-{host}.conf"));
                fs::write(&conf, self.nginx(dir, &address, host))?;
                Cmd::new("nginx").arg("-p").arg(dir).arg("-c").arg(conf).args(["-e", "stderr"])
            }
        };
        let cmd = cmd.env("HOME", dir).limit(Duration::from_secs(3600));
        Ok((lab.serve(host, cmd, port, START)?, format!("{scheme}://{address}:{port}")))
    }

    /// nginx as it comes, with what a server of files turns on.
    fn nginx(&self, dir: &FilePath, address: &str, host: &str) -> String {
        let (site, cert, key) = (self.site.display(), self.cert(), self.key());
        let (cert, key, dir) = (cert.display(), key.display(), dir.display());
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("  {kind}_temp_path {dir}/{host}-{kind};\n"))
            .collect();
        format!(
            "daemon off;\nmaster_process off;\npid {dir}/{host}.pid;\nerror_log stderr;\nevents {{ worker_connections 256; }}\n\
             http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  keepalive_requests 1000;\n{temporary}\
             \x20 ssl_certificate {cert};\n  ssl_certificate_key {key};\n  ssl_protocols TLSv1.3;\n  root {site};\n\
             \x20 server {{\n    listen {address}:{clear};\n    listen {address}:{secure} ssl http2;\n  }}\n}}\n",
            clear = PORTS.0,
            secure = PORTS.1,
        )
    }

    /// The client of a stack; what it fetches lands in `dir` under the names of the files.
    fn client(&self, stack: Stack, work: Work, base: &str, dir: &FilePath) -> Result<Cmd> {
        let (n, _) = work.files();
        let urls: Vec<String> = (0..n).map(|i| format!("{base}/{}", file_name(work, i))).collect();
        let neater = |transport: &str, http: &str, parallel: usize| -> Result<Cmd> {
            let cmd = Cmd::new(self.neater()?).args(["get", "--json", "--retries", "0"]);
            let cmd = if transport == "TCP" { cmd } else { cmd.arg("--ca").arg(self.cert()) };
            let cmd = cmd.args(["--transport", transport, "--http", http, "--parallel", &parallel.to_string()]);
            Ok(cmd.arg("--output-dir").arg(dir).args(&urls))
        };
        let curl = |version: &str, parallel: u8| {
            let cmd = Cmd::new("curl").args(["--silent", "--show-error", "--fail", version, "--remote-name-all"]);
            let cmd = cmd.args(["--write-out", "%{time_total}\\n"]).arg("--cacert").arg(self.cert());
            let cmd = cmd.arg("--output-dir").arg(dir);
            let cmd = match parallel {
                1 => cmd,
                n => cmd.args(["--parallel", "--parallel-max", &n.to_string()]),
            };
            cmd.args(&urls)
        };
        Ok(match stack {
            Stack::SimulatedQuic | Stack::SimulatedTcp => return failed("a simulated stack has no client in the lab"),
            Stack::Quic => neater("QUIC", "3", n)?,
            Stack::Tls => neater("TLS", "1.1", 1)?,
            Stack::TlsStreams => neater("TLS", "2", n)?,
            Stack::Tcp => neater("TCP", "1.1", 1)?,
            Stack::CurlHttp | Stack::CurlHttps => curl("--http1.1", 1),
            Stack::CurlStreams => curl("--http2", n as u8),
            Stack::CurlConnections(c) => curl("--http1.1", c),
        }
        .env("HOME", dir))
    }

    /// A client that fetches without end, `streams` at once, until it is ended.
    pub(super) fn endless(&self, stack: Stack, streams: usize, base: &str, dir: &FilePath) -> Result<Cmd> {
        let urls: Vec<String> = (0..streams).map(|i| format!("{base}/{ENDLESS}{i}")).collect();
        Ok(if stack == Stack::Quic {
            let ca = self.cert();
            let cmd =
                Cmd::new(self.neater()?).args(["get", "--json", "--transport", "QUIC", "--http", "3", "--ca"]).arg(ca);
            cmd.args(["--parallel", &streams.to_string(), "--output-dir"]).arg(dir).args(&urls)
        } else {
            Cmd::new("curl")
                .args(["--silent", "--show-error", "--fail", "--http1.1", "--output", "/dev/null"])
                .args(&urls)
        }
        .env("HOME", dir))
    }

    /// Whether what came is what was served.
    fn check(&self, work: Work, dir: &FilePath) -> Result<()> {
        for i in 0..work.files().0 {
            let name = file_name(work, i);
            if fs::read(self.site.join(&name))? != fs::read(dir.join(&name))? {
                return failed(format!("{name} came with other bytes than it was served with"));
            }
        }
        Ok(())
    }
}

/// A directory that goes with its transfer.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn path(&self) -> &FilePath {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The time by the client's own clock; `None` if it tells none that is comparable.
fn own_seconds(stack: Stack, output: &str) -> Option<f64> {
    match stack {
        Stack::CurlHttp | Stack::CurlHttps => {
            let times: Vec<f64> = output.lines().map(|l| l.trim().parse().ok()).collect::<Option<_>>()?;
            (!times.is_empty()).then(|| times.iter().sum())
        }
        Stack::CurlStreams | Stack::CurlConnections(_) => None,
        _ => {
            let events = output.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
            let times: Vec<f64> =
                events.filter(|e| e["event"] == "done").filter_map(|e| Some(e["ms"].as_f64()? / 1e3)).collect();
            let together = matches!(stack, Stack::Quic | Stack::TlsStreams);
            let all = times.iter().copied();
            (!times.is_empty()).then(|| if together { all.fold(0.0, f64::max) } else { all.sum() })
        }
    }
}

fn link<'a>(links: &'a [LinkReport], name: &str, from: &str) -> Result<&'a LinkReport> {
    let found = links.iter().find(|l| l.link == name && l.from == from);
    found.ok_or_else(|| MeasureError::Failed(format!("the lab has no link {name} from {from}")))
}

/// Lets every connection from a host begin with this window, in packets.
fn set_initial_window(lab: &live::Lab, host: &str, packets: u8) -> Result<()> {
    let line = format!(
        "set -e; ip -4 route show | while read -r route; do ip -4 route change $route initcwnd {packets}; done"
    );
    lab.run(host, Cmd::shell(&line).limit(START))?.success()?;
    Ok(())
}

/// Runs one transfer. `Err` within: what disturbed it, which says nothing of who transferred.
///
/// # Errors
/// It does not come to its end, or brings other bytes.
pub(super) fn transfer(
    tools: &Tools,
    path: &Path,
    stack: Stack,
    work: Work,
    seed: u64,
) -> Result<core::result::Result<Transfer, String>> {
    let folder = tools.folder()?;
    let mut plan = Plan::dumbbell(1, path.config(), path.config(), seed);
    plan.sysctl_everywhere("net.ipv4.tcp_congestion_control", "cubic");
    let lab = live::Lab::up(&plan, &Options::default())?;
    if let Stack::CurlConnections(n) = stack {
        set_initial_window(&lab, "server1", (INITIAL_WINDOW / n).max(1))?;
    }
    let (server, base) = tools.serve(&lab, "server1", stack, folder.path())?;
    let limit = Duration::from_secs_f64(path.seconds(work.payload()) * PATIENCE.0 + PATIENCE.1);
    let client = tools.client(stack, work, &base, folder.path())?.limit(limit);
    let output = lab.run("client1", client)?.success()?;
    let links = lab.links()?;
    let report = lab.emulator()?;
    // Lateness is in the row, and judged there.
    let disturbance = lab.disturbance(f64::INFINITY)?;
    server.stop(libc::SIGTERM)?;
    if let Some(why) = disturbance {
        return Ok(Err(why));
    }
    tools.check(work, folder.path())?;
    let sent = link(&links, "server1", "server1")?;
    let back = link(&links, "client1", "client1")?;
    let middle: Vec<&LinkReport> = links.iter().filter(|l| l.link == "middle").collect();
    let seconds = output.wall.as_secs_f64();
    Ok(Ok(Transfer {
        payload: work.payload(),
        seconds,
        own_seconds: own_seconds(stack, &output.text()).unwrap_or(seconds),
        sent: (sent.delivered_bytes, sent.delivered),
        back: (back.delivered_bytes, back.delivered),
        queue_drops: middle.iter().map(|l| l.queue_full).sum(),
        lost: middle.iter().map(|l| l.lost).sum(),
        late_p99_us: report.late_p99_us,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_own_clocks_are_understood() {
        assert_eq!(own_seconds(Stack::CurlHttps, "0.5\n0.25\n"), Some(0.75));
        assert_eq!(own_seconds(Stack::CurlHttps, "curl: (7)\n"), None);
        let done = "{\"event\":\"connected\"}\n{\"event\":\"done\",\"ms\":1500}\n{\"event\":\"done\",\"ms\":500}\n";
        assert_eq!(own_seconds(Stack::Quic, done), Some(1.5));
        assert_eq!(own_seconds(Stack::Tls, done), Some(2.0));
        assert_eq!(own_seconds(Stack::Quic, ""), None);
        assert_eq!(own_seconds(Stack::CurlStreams, "0.5\n"), None);
    }
}
