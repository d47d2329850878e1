//! Provisioning domains (RFC 8801): the socket that receives router advertisements, and the
//! requests for documents. Which domains there are and what is asked when is
//! `neater_policy::pvd`'s.

mod fetch;

use super::{Shared, now};
use neater::tls::certificates_from_pem;
use neater::{SecurityParameters, Trust};
use neater_base::net::{Interface, InterfaceKind};
use neater_base::{Instant, Rng, WallTime};
use neater_command::failure::{Exit, Failure};
use neater_net::{MAX_MESSAGE, Role, RouterDiscovery};
use neater_policy::pvd::{Domains, Failure as NoDocument, Fetch, Heard, Provisioned};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// How often the routers of an interface that came up are asked, and how long after one another
/// (RFC 4861 section 10: `MAX_RTR_SOLICITATIONS` and `RTR_SOLICITATION_INTERVAL`).
const SOLICITATIONS: (u32, Duration) = (3, Duration::from_secs(4));
/// How often the clock on the wall is looked at, while there are domains.
const LOOK: Duration = Duration::from_secs(2);
/// Messages that are taken in one turn; the rest waits.
const MESSAGES: usize = 64;
/// Answers that may wait.
const ANSWERS: usize = 32;

/// What a request came to.
type Answer = (u64, Result<Vec<u8>, NoDocument>);

/// Receives router advertisements and requests documents.
pub(super) struct Listener {
    socket: AsyncFd<RouterDiscovery>,
    domains: Domains,
    /// The interfaces whose routers are asked: how often still, and when.
    asking: BTreeMap<u32, (u32, Option<Instant>)>,
    answers: mpsc::Receiver<Answer>,
    answered: mpsc::Sender<Answer>,
    /// Taken from the channel, and not yet handled.
    arrived: Option<Answer>,
    readable: bool,
    security: SecurityParameters,
    buffer: Vec<u8>,
    /// The last report.
    known: Vec<Provisioned>,
}

impl Listener {
    /// Begins to listen. `None` without the permission: a user's manager receives no router
    /// advertisements.
    ///
    /// # Errors
    /// There is no such socket here, no randomness, or `ca` is no certificate.
    pub(super) fn begin(ca: Option<&Path>, shared: &Shared) -> Result<Option<Self>, Failure> {
        let failed = |why: String| Failure::new(Exit::Failed, "local", format!("router advertisements: {why}"));
        let mut security = SecurityParameters::new();
        if let Some(path) = ca {
            let authorities = certificates_from_pem(&neater_command::file::read(path)?)
                .map_err(|e| Failure::usage(format!("--pvd-ca {}: {e}", path.display())))?;
            security.trust = Trust::Only(authorities);
        }
        let socket = match RouterDiscovery::open(Role::Host) {
            Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) => {
                let why = "provisioning domains are not received: that takes CAP_NET_RAW";
                if shared.output.json {
                    shared.output.event(&json!({"event": "provisioning", "listens": false, "why": why}));
                } else if shared.output.verbose || ca.is_some() {
                    shared.output.note(why);
                }
                return Ok(None);
            }
            socket => socket.map_err(|e| failed(e.to_string()))?,
        };
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| failed("the system has no random numbers".into()))?;
        // What takes its place is unsafe; the socket owns its descriptor and keeps it open, which
        // is what that asks for.
        #[expect(deprecated, reason = "the command has no unsafe code")]
        let socket = AsyncFd::try_new(socket).map_err(|e| failed(e.to_string()))?;
        let (answered, answers) = mpsc::channel(ANSWERS);
        Ok(Some(Self {
            socket,
            domains: Domains::new(Rng::new(seed)),
            asking: BTreeMap::new(),
            answers,
            answered,
            arrived: None,
            readable: false,
            security,
            buffer: vec![0; MAX_MESSAGE],
            known: Vec::new(),
        }))
    }

    /// Takes the interfaces as they are now; the routers of those that have come up are asked.
    pub(super) fn set_interfaces(&mut self, interfaces: &[Interface]) {
        let there = |i: &&Interface| i.up && i.kind != InterfaceKind::Loopback;
        self.asking.retain(|index, _| interfaces.iter().filter(there).any(|i| i.index == *index));
        for interface in interfaces.iter().filter(there) {
            self.asking.entry(interface.index).or_insert((SOLICITATIONS.0, Some(Instant::ZERO)));
        }
        self.domains.set_interfaces(interfaces);
    }

    /// When there is something to do without a router advertisement.
    fn due(&self) -> Option<Instant> {
        let asking = self.asking.values().filter_map(|(_, at)| *at);
        asking.chain(self.domains.next_timeout()).min()
    }

    /// Waits until there is something to do: a message, an answer, or the time has come.
    pub(super) async fn next(&mut self, time: Instant) {
        // A change of the wall clock is not reported: it is polled where anything ends by it.
        let look = (!self.domains.is_empty()).then_some(LOOK);
        let due = self.due().map(|at| at.saturating_since(time));
        let wait = due.into_iter().chain(look).min();
        let sleep = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ready = self.socket.readable() => if let Ok(mut ready) = ready {
                // Whether there is more is seen by reading; until then it counts as readable.
                ready.retain_ready();
                self.readable = true;
            },
            answer = self.answers.recv() => self.arrived = answer,
            () = sleep => {}
        }
    }

    /// Does what is due, and gives the domains as they are now.
    pub(super) fn turn(&mut self, time: Instant, wall: WallTime, shared: &Arc<Shared>) -> Vec<Provisioned> {
        self.solicit(time);
        if std::mem::take(&mut self.readable) {
            self.hear(time, shared);
        }
        while let Some((ticket, answer)) = self.arrived.take().or_else(|| self.answers.try_recv().ok()) {
            if let Err(why) = self.domains.fetched(time, wall, ticket, answer) {
                report_fault(shared, "a document of a provisioning domain does not count", &why);
            }
        }
        self.domains.handle_timeout(time);
        while let Some(fetch) = self.domains.poll_fetch(time) {
            self.ask(fetch, shared);
        }
        let domains = self.domains.provisioned(time, wall);
        let alike = |(a, b): (&Provisioned, &Provisioned)| {
            (&a.id, &a.interface, &a.addrs, &a.properties) == (&b.id, &b.interface, &b.addrs, &b.properties)
        };
        if domains.len() != self.known.len() || !domains.iter().zip(&self.known).all(alike) {
            announce(&domains, shared);
            self.known.clone_from(&domains);
        }
        domains
    }

    fn solicit(&mut self, time: Instant) {
        let socket = self.socket.get_ref();
        for (index, (left, at)) in &mut self.asking {
            if at.is_none_or(|at| at > time) {
                continue;
            }
            *left = left.saturating_sub(1);
            *at = (*left > 0).then(|| time + SOLICITATIONS.1);
            // An interface without a link-local address cannot ask: routers advertise now and then
            // without.
            if let Err(e) = socket.solicit(*index) {
                tracing::debug!(target: "neater::pm", "asking the routers of interface {index}: {e}");
            }
        }
    }

    fn hear(&mut self, time: Instant, shared: &Shared) {
        for _ in 0..MESSAGES {
            let received = self.socket.get_ref().receive(&mut self.buffer);
            let (message, from) = match received {
                Ok(Some(received)) => received,
                empty => {
                    if let Err(e) = empty {
                        tracing::debug!(target: "neater::pm", "router advertisements: {e}");
                    }
                    // Nothing is left: the next message makes it readable again.
                    let nothing = |_: &RouterDiscovery| Err::<(), _>(ErrorKind::WouldBlock.into());
                    let _ = self.socket.try_io(tokio::io::Interest::READABLE, nothing);
                    return;
                }
            };
            match self.domains.heard(time, from.interface, from.source, from.hop_limit, message) {
                Ok(Heard::New | Heard::Known) => {
                    // The routers have answered.
                    self.asking.insert(from.interface, (0, None));
                }
                Ok(Heard::NoDomain | Heard::Withdrawn) => {}
                Ok(Heard::Full) => {
                    report_fault(shared, "a router advertisement does not count", "there are too many domains")
                }
                Err(why) => {
                    let what = format!("a router advertisement of {} does not count", from.source);
                    report_fault(shared, &what, &why.to_string());
                }
            }
        }
    }

    fn ask(&self, fetch: Fetch, shared: &Arc<Shared>) {
        let (security, answered) = (self.security.clone(), self.answered.clone());
        let folder = shared.folder.clone();
        tokio::spawn(async move {
            let ticket = fetch.ticket;
            let answer = fetch::document(fetch, security, &folder).await;
            let _ = answered.send((ticket, answer)).await;
        });
    }
}

/// Reports the known domains.
fn announce(domains: &[Provisioned], shared: &Shared) {
    let one = |d: &Provisioned| {
        let stated = d.properties.iter().map(|p| (p.key.clone(), p.value.to_json()));
        let properties: serde_json::Map<String, serde_json::Value> = stated.collect();
        let addrs: Vec<String> = d.addrs.iter().map(ToString::to_string).collect();
        json!({"id": d.id, "interface": d.interface, "addresses": addrs, "properties": properties})
    };
    if shared.output.json {
        let all: Vec<_> = domains.iter().map(one).collect();
        shared.output.event(&json!({"event": "domains", "domains": all}));
    } else {
        let all: Vec<String> = domains.iter().map(|d| format!("{} ({})", d.id, d.interface)).collect();
        let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        shared.output.note(&format!("provisioning domains: {all}"));
    }
}

/// Reports a fault of a network, in verbose mode.
fn report_fault(shared: &Shared, what: &str, why: &str) {
    tracing::info!(target: "neater::pm", "{what}: {why}");
    if shared.output.verbose {
        if shared.output.json {
            shared
                .output
                .event(&json!({"event": "provisioning", "what": what, "why": why, "at": now().0.as_secs_f64()}));
        } else {
            shared.output.note(&format!("{what}: {why}"));
        }
    }
}
