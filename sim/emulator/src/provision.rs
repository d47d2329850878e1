//! A router that provisions its hosts: router advertisements, a DNS server, and the documents of provisioning domains over
//! HTTPS (RFC 8801). Advertisements and names are this process's, on sockets of the router's namespace; HTTPS is nginx's.

use super::error::{LiveError, Result, failed};
use super::netns::Netns;
use super::{Cmd, Lab, Running};
use neater_dns::Zone;
use neater_net::{Role, RouterDiscovery};
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv6Addr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread waits for a question before it looks at everything else.
const LOOK: Duration = Duration::from_millis(20);
/// The largest question.
const QUESTION: usize = 1500;

/// What is advertised now, and whether it is to be said at once.
#[derive(Default)]
struct Said {
    messages: Vec<Vec<u8>>,
    now: bool,
}

/// A router's advertisements and names. Dropping it ends both.
pub struct Provisioner {
    stop: Arc<AtomicBool>,
    said: Arc<Mutex<Said>>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Provisioner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provisioner").finish_non_exhaustive()
    }
}

impl Provisioner {
    /// Advertises on an interface of a host that forwards, every so often and to whoever asks, and answers questions about
    /// the names of a zone (`example.test AAAA 2001:db8::1`, one a line) on all its addresses.
    ///
    /// # Errors
    /// The sockets cannot be had, or the zone makes no sense.
    pub fn start(netns: &Netns, interface: &str, messages: Vec<Vec<u8>>, zone: &str, every: Duration) -> Result<Self> {
        let zone = Zone::parse(zone).map_err(|e| LiveError::Usage(format!("the zone of a router: {e}")))?;
        let (discovery, questions) = netns.with(|| {
            let open = || -> std::io::Result<(RouterDiscovery, UdpSocket)> {
                let discovery = RouterDiscovery::open(Role::Router)?;
                discovery.bind_to(interface)?;
                let questions = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 53))?;
                questions.set_read_timeout(Some(LOOK))?;
                Ok((discovery, questions))
            };
            open().or_else(|e| failed("the sockets of a router", e))
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let said = Arc::new(Mutex::new(Said { messages, now: true }));
        let (stopped, says) = (stop.clone(), said.clone());
        let run = move || {
            let mut next = Instant::now();
            let mut buffer = [0; QUESTION];
            while !stopped.load(Ordering::Relaxed) {
                let mut asked = false;
                while let Ok(Some(_)) = discovery.receive(&mut buffer) {
                    asked = true;
                }
                let mut says = says.lock().unwrap_or_else(PoisonError::into_inner);
                if std::mem::take(&mut says.now) || asked || Instant::now() >= next {
                    next = Instant::now() + every;
                    // A link that is down hears the next one.
                    says.messages.iter().for_each(|m| drop(discovery.advertise(0, m)));
                }
                drop(says);
                if let Ok((len, from)) = questions.recv_from(&mut buffer)
                    && let Some(answer) = neater_dns::answer(&buffer[..len], &zone)
                {
                    let _ = questions.send_to(&answer, from);
                }
            }
        };
        match std::thread::Builder::new().name("router".into()).spawn(run) {
            Ok(thread) => Ok(Self { stop, said, thread: Some(thread) }),
            Err(e) => failed("a thread for a router", e),
        }
    }

    /// Advertises something else from now on.
    pub fn advertise(&self, messages: Vec<Vec<u8>>) {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Said { messages, now: true };
    }
}

impl Drop for Provisioner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A domain's document on its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The domain's name.
    pub id: String,
    /// Whose requests are answered, as a prefix; others are refused with 403 (RFC 8801 section 4.2).
    pub prefix: String,
    /// The document.
    pub text: String,
}

/// Starts nginx in a host with these documents, for `https://ID/.well-known/pvd` at port 443 of all its addresses. `dir` is
/// where it keeps its files, `cert.pem` and `key.pem` among them already.
///
/// # Errors
/// The files cannot be written, or nginx does not listen.
pub fn serve_documents(lab: &Lab, host: &str, dir: &Path, documents: &[Document]) -> Result<Running> {
    let told = |e: std::io::Error| LiveError::Failed(format!("{}: {e}", dir.display()));
    let here = dir.display();
    let mut servers = String::new();
    for (i, document) in documents.iter().enumerate() {
        fs::write(dir.join(format!("pvd-{i}.json")), &document.text).map_err(told)?;
        let (id, prefix) = (&document.id, &document.prefix);
        let _ = write!(
            servers,
            "  server {{\n    listen [::]:443 ssl;\n    server_name {id};\n    location = /.well-known/pvd {{\n      \
             default_type application/pvd+json;\n      alias {here}/pvd-{i}.json;\n      allow {prefix};\n      deny all;\n    \
             }}\n  }}\n"
        );
    }
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("  {kind}_temp_path {here}/{kind};\n"))
        .collect();
    let conf = format!(
        "daemon off;\nmaster_process off;\npid {here}/nginx.pid;\nerror_log stderr;\nevents {{ worker_connections 64; }}\nhttp {{\n  \
         access_log {here}/access.log;\n{temporary}  ssl_certificate {here}/cert.pem;\n  ssl_certificate_key \
         {here}/key.pem;\n{servers}}}\n"
    );
    fs::write(dir.join("nginx.conf"), conf).map_err(told)?;
    let cmd = Cmd::new("nginx").arg("-p").arg(dir).arg("-c").arg(dir.join("nginx.conf")).args(["-e", "stderr"]);
    let running = lab.spawn(host, cmd.limit(Duration::from_secs(3600)))?;
    let address = lab.address(host, true)?;
    lab.wait_for(host, std::net::SocketAddr::new(address, 443), Duration::from_secs(10))?;
    Ok(running)
}
