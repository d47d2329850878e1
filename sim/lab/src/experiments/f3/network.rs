//! A place of the day as a network: the host, its access networks with their gateways, and the servers beyond.
//!
//! The gateways are hosts that forward, because they do what routers do: they advertise, resolve names, serve documents and
//! keep out what their network does not let through. Everything is IPv6.

use super::Scenario;
use super::day::{self, Day, Kind, Workload};
use crate::experiments::Lab;
use crate::measure::{MeasureError, Result, failed};
use neater_emulator::provision::{Document, Provisioner, serve_documents};
use neater_emulator::{self as live, Cmd, Kind as Node, Options, Plan, Running};
use neater_link::{LinkConfig, QueueLimit};
use neater_policy::pvd::{Advertisement, Configuration, Header, Prefix, PrefixInfo, PvdOption};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) const WEB_PORT: u16 = 8080;
pub(super) const CALL_PORT: u16 = 4000;
const START: Duration = Duration::from_secs(20);
/// A server may run for as long as a place can take, several times over.
const STAY: Duration = Duration::from_secs(3600);
/// Advertised lifetimes: longer than a place takes.
const LIFETIME: u16 = 1800;

/// A place that is there. What runs in it ends with it.
pub(super) struct Place<'a> {
    running: Vec<Running>,
    provisioners: Vec<Provisioner>,
    pub(super) lab: live::Lab,
    pub(super) name: &'a str,
    pub(super) dir: PathBuf,
    networks: Vec<&'a day::Network>,
    managed: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.running.clear();
        self.provisioners.clear();
    }
}

/// The prefix of a network's domain: the wire's own for the first, others beside it.
fn prefix(wire: usize, domain: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, domain as u16, wire as u16, 0, 0, 0, 0)
}

fn host(prefix: Ipv6Addr, last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(prefix.to_bits() | u128::from(last)))
}

impl<'a> Place<'a> {
    /// Builds a place, starts its servers and, where the scenario has it, its routers' advertisements and the host's manager.
    pub(super) fn build(
        lab: &Lab,
        day: &'a Day,
        scenario: &Scenario,
        place: &'a day::Place,
        seed: u64,
        dir: &Path,
    ) -> Result<Self> {
        let networks: Vec<&day::Network> = place.networks.iter().take(scenario.networks).collect();
        let (plan, wires) = plan(day, scenario, &networks, seed)?;
        let built = live::Lab::up(&plan, &Options::default())?;
        let dir = dir.canonicalize()?;
        let mut there = Self {
            running: Vec::new(),
            provisioners: Vec::new(),
            lab: built,
            name: &place.name,
            dir,
            networks,
            managed: scenario.domains,
        };
        // TUN devices do not make themselves link-local addresses, from which routers advertise.
        for i in 0..there.networks.len() {
            there.lab.netns("client")?.ip(&format!("addr add fe80::1/64 dev eth{i} nodad\n"))?;
            there.lab.netns(&format!("gate{i}"))?.ip("addr add fe80::2/64 dev eth1 nodad\n")?;
        }
        there.close_gates(day, &wires)?;
        there.serve(day)?;
        if scenario.domains {
            there.provision(&wires)?;
            there.manage(lab, day)?;
        }
        Ok(there)
    }

    pub(super) fn networks(&self) -> usize {
        self.networks.len()
    }

    pub(super) fn network(&self, i: usize) -> &str {
        self.networks.get(i).map_or("", |n| &n.name)
    }

    /// A server's address.
    pub(super) fn server(&self, name: &str) -> Result<Ipv6Addr> {
        match self.lab.address(name, true)? {
            IpAddr::V6(six) => Ok(six),
            IpAddr::V4(_) => failed(format!("{name} has no IPv6 address")),
        }
    }

    /// The manager's socket; empty where none runs.
    pub(super) fn manager(&self) -> PathBuf {
        if self.managed { self.dir.join("sock").join("neat_pm_socket") } else { PathBuf::new() }
    }

    /// Gateways drop what their network does not let through, by where it comes from.
    fn close_gates(&self, day: &Day, wires: &[usize]) -> Result<()> {
        for (i, (network, wire)) in self.networks.iter().zip(wires).enumerate() {
            let mut lines = String::new();
            for (j, domain) in network.domains.iter().enumerate() {
                let served = network.served_by(domain);
                for workload in day.workloads.iter().filter(|w| !served.contains(&w.server)) {
                    let (from, to) = (prefix(*wire, j), self.server(&workload.server)?);
                    let _ = writeln!(lines, "-6 rule add from {from}/64 to {to} priority 10 blackhole");
                }
            }
            self.lab.netns(&format!("gate{i}"))?.ip(&lines)?;
        }
        Ok(())
    }

    fn serve(&mut self, day: &Day) -> Result<()> {
        for workload in &day.workloads {
            let address = self.server(&workload.server)?;
            match workload.kind {
                Kind::Call { .. } => {
                    let echo = SocketAddr::new(address.into(), CALL_PORT).to_string();
                    let cmd = Cmd::new(std::env::current_exe()?).args(["call", "--echo", &echo]).limit(STAY);
                    let mut running = self.lab.spawn(&workload.server, cmd)?;
                    running.wait_for_output("ready", START)?;
                    self.running.push(running);
                }
                Kind::Get { objects, bytes } => {
                    let running = self.files(workload, objects, bytes)?;
                    self.lab.wait_for(&workload.server, SocketAddr::new(address.into(), WEB_PORT), START)?;
                    self.running.push(running);
                }
            }
        }
        Ok(())
    }

    /// nginx with the objects of a workload.
    fn files(&self, workload: &Workload, objects: usize, bytes: u64) -> Result<Running> {
        let dir = self.dir.join(&workload.server);
        fs::create_dir_all(dir.join("site"))?;
        for n in 0..objects {
            fs::File::create(dir.join("site").join(format!("{}-{n}", workload.id)))?.set_len(bytes)?;
        }
        let here = dir.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("  {kind}_temp_path {here}/{kind};\n"))
            .collect();
        let conf = format!(
            "daemon off;\nmaster_process off;\npid {here}/pid;\nerror_log stderr;\nevents {{ worker_connections 64; }}\nhttp {{\n  \
             access_log off;\n  sendfile on;\n{temporary}  server {{\n    listen [::]:{WEB_PORT};\n    root {here}/site;\n  }}\n}}\n"
        );
        fs::write(dir.join("nginx.conf"), conf)?;
        let cmd = Cmd::new("nginx").arg("-p").arg(&dir).arg("-c").arg(dir.join("nginx.conf")).args(["-e", "stderr"]);
        Ok(self.lab.spawn(&workload.server, cmd.limit(STAY))?)
    }

    /// The gateways advertise their domains, know their names and serve their documents.
    fn provision(&mut self, wires: &[usize]) -> Result<()> {
        let ids: Vec<String> = self.networks.iter().flat_map(|n| &n.domains).map(|d| d.id.clone()).collect();
        let made = rcgen::generate_simple_self_signed(ids).map_err(|e| MeasureError::Failed(e.to_string()))?;
        for (i, (network, wire)) in self.networks.clone().into_iter().zip(wires).enumerate() {
            let dir = self.dir.join(format!("gate{i}"));
            fs::create_dir_all(&dir)?;
            fs::write(dir.join("cert.pem"), made.cert.pem())?;
            fs::write(dir.join("key.pem"), made.signing_key.serialize_pem())?;
            fs::write(self.dir.join("ca.pem"), made.cert.pem())?;
            let (mut zone, mut documents, mut messages) = (String::new(), Vec::new(), Vec::new());
            for (j, domain) in network.domains.iter().enumerate() {
                let net = prefix(*wire, j);
                let _ = writeln!(zone, "{} AAAA {}", domain.id, host(net, 2));
                documents.push(document(domain, net));
                messages.push(advertisement(domain, net));
            }
            let name = format!("gate{i}");
            self.running.push(serve_documents(&self.lab, &name, &dir, &documents)?);
            let every = Duration::from_secs(1);
            self.provisioners.push(Provisioner::start(self.lab.netns(&name)?, "eth1", messages, &zone, every)?);
        }
        Ok(())
    }

    /// The host's manager, with what the workloads want; and waits until it knows what all domains say.
    fn manage(&mut self, lab: &Lab, day: &Day) -> Result<()> {
        let (neater, pib) = (lab.programs.neater()?, self.dir.join("pib"));
        fs::create_dir_all(&pib)?;
        for workload in &day.workloads {
            for (name, rule) in rules(day, workload) {
                fs::write(pib.join(name), rule.to_string())?;
            }
        }
        let sock = self.dir.join("sock");
        let cmd =
            Cmd::new(neater).args(["pm", "--json", "-v", "--no-rest", "--sock"]).arg(&sock).arg("--pib").arg(&pib);
        let cmd = cmd.arg("--pvd-ca").arg(self.dir.join("ca.pem")).env("HOME", &self.dir).limit(STAY);
        let mut running = self.lab.spawn("client", cmd)?;
        running.wait_for_output("managing", START)?;
        self.running.push(running);
        let end = Instant::now() + START;
        for domain in self.networks.iter().flat_map(|n| &n.domains) {
            let told = |key: &str, value: Value| (key.to_owned(), json!({"value": value, "precedence": 2}));
            let wanted = [told("pvd", json!(domain.id)), told("latency", Value::Null)];
            let request: serde_json::Map<String, Value> = wanted.into_iter().collect();
            let request = json!([request]).to_string();
            loop {
                let cmd = Cmd::new(neater).args(["policy", "ask", "--json", &request, "--sock"]).arg(&sock);
                let out = self.lab.run("client", cmd.limit(START))?;
                let line = out.text().lines().last().and_then(|l| serde_json::from_str::<Value>(l).ok());
                let known = |c: &Value| c["interface"]["value"].is_string();
                if line.is_some_and(|l| l["candidates"].as_array().is_some_and(|all| all.iter().any(known))) {
                    break;
                }
                if Instant::now() > end {
                    return failed(format!("the manager never knew what {} says: {}", domain.id, out.text().trim()));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }
}

/// The plan, and the wire of each access network.
fn plan(day: &Day, scenario: &Scenario, networks: &[&day::Network], seed: u64) -> Result<(Plan, Vec<usize>)> {
    let mut plan = Plan::new(seed);
    let (client, core) = (plan.add("client", Node::Host), plan.add("core", Node::Router));
    let far = LinkConfig::delay(Duration::from_millis(day.core_ms));
    let (mut wires, mut gates) = (Vec::new(), Vec::new());
    for (i, network) in networks.iter().enumerate() {
        let gate = plan.add(&format!("gate{i}"), Node::Host);
        // The way to the world is its first interface, which its default route takes.
        plan.connect(&format!("far{i}"), gate, core, far.clone(), far.clone());
        let queue = QueueLimit::Bytes((network.rate / 8 * day.queue_ms / 1000).max(15_000));
        let link = LinkConfig::rate(network.rate, Duration::from_millis(network.delay_ms)).with_queue(queue);
        wires.push(plan.wires.len());
        gates.push(gate);
        plan.connect(&network.name, client, gate, link.clone(), link);
        plan.nodes[gate].sysctls.insert("net.ipv6.conf.all.forwarding".into(), "1".into());
    }
    for workload in &day.workloads {
        let server = plan.add(&workload.server, Node::Host);
        plan.connect(&workload.server, server, core, LinkConfig::default(), LinkConfig::default());
    }
    for interface in plan.nodes.iter_mut().flat_map(|n| &mut n.interfaces) {
        interface.addresses.retain(|(a, _)| a.is_ipv6());
    }
    // Beside the addresses of the wire those of further domains, which only a host that knows of domains has.
    for (i, (network, wire)) in networks.iter().zip(&wires).enumerate() {
        let domains = if scenario.domains { network.domains.len() } else { 1 };
        for (node, interface, last) in [(client, i, 1), (gates[i], 1, 2)] {
            let addresses = &mut plan.nodes[node].interfaces[interface].addresses;
            addresses.extend((1..domains).map(|j| (host(prefix(*wire, j), last), 64)));
        }
    }
    // Shortest ways lead through routers only; the host lies behind its gateways.
    let mut routes = plan.routes();
    for (i, gate) in gates.iter().enumerate() {
        let Some(out) = plan.nodes[core].interfaces.iter().position(|c| plan.wires[c.wire.0].ends[0].0 == *gate) else {
            return failed("a gateway without a way to the world");
        };
        for (address, _) in &plan.nodes[client].interfaces[i].addresses {
            routes[core].insert(*address, vec![out]);
        }
    }
    // What a further domain's addresses say to each other stays among them: a route of their own would name another source.
    let further = |a: &IpAddr| matches!(a, IpAddr::V6(six) if six.segments()[2] != 0);
    routes.iter_mut().enumerate().filter(|(n, _)| *n != core).for_each(|(_, r)| r.retain(|a, _| !further(a)));
    plan.given_routes = routes;
    plan.check().map_err(MeasureError::Failed)?;
    Ok((plan, wires))
}

fn advertisement(domain: &day::Domain, net: Ipv6Addr) -> Vec<u8> {
    let forever = u32::from(LIFETIME);
    let prefixes = Prefix::new(net, 64).map(|prefix| PrefixInfo {
        prefix,
        on_link: true,
        autonomous: false,
        valid: forever,
        preferred: forever,
    });
    let IpAddr::V6(gate) = host(net, 2) else { return Vec::new() };
    let configuration = Configuration {
        prefixes: prefixes.into_iter().collect(),
        dns: vec![(gate, forever)],
        ..Configuration::default()
    };
    let header = Some(Header { lifetime: LIFETIME, ..Header::default() });
    let (http, legacy, delay, sequence) = (true, false, 0, 1);
    let pvd = PvdOption { id: domain.id.clone(), http, legacy, delay, sequence, header, configuration };
    Advertisement { pvd: Some(pvd), ..Advertisement::default() }.to_bytes()
}

fn document(domain: &day::Domain, net: Ipv6Addr) -> Document {
    let prefix = format!("{net}/64");
    let mut text = json!({
        "identifier": format!("{}.", domain.id), "expires": "2100-01-01T00:00:00Z", "prefixes": [prefix],
        "noInternet": !domain.internet, "vendor-neater": domain.says,
    });
    if !domain.zones.is_empty() {
        text["dnsZones"] = json!(domain.zones);
    }
    Document { id: domain.id.clone(), prefix, text: text.to_string() }
}

/// What a workload wants, as a profile that begins with the worst and policies that deny what is not good enough: what no
/// network says does not count as met (docs/policy.md).
fn rules(day: &Day, workload: &Workload) -> Vec<(String, Value)> {
    let id = &workload.id;
    let meant = |more: Value| {
        let mut meant = json!({"workload": {"value": id}});
        if let (Some(to), Some(from)) = (meant.as_object_mut(), more.as_object()) {
            to.extend(from.clone());
        }
        meant
    };
    // Where something is wanted of the network, one that says nothing will not do.
    let mut worst = json!({});
    let mut all = Vec::new();
    let mut deny = |name: &str, what: Value| {
        all.push((
            format!("{id}-{name}.policy"),
            json!({"uid": format!("{id}-{name}"), "match": meant(what), "properties": [[]]}),
        ));
    };
    for (want, word) in &workload.wants {
        let bound = day.word(word);
        worst["pvd"] = json!({"value": "", "precedence": 0});
        match want.as_str() {
            "capacity" => {
                worst[want] = json!({"value": 0, "precedence": 0});
                deny(want, json!({want: {"value": {"start": 0, "end": bound * (1.0 - 1e-9)}}}));
            }
            "zone" => worst["pvd_dns_zones"] = json!({"value": word, "precedence": 2}),
            _ => {
                worst[want] = json!({"value": 1e9, "precedence": 0});
                deny(want, json!({want: {"value": {"start": bound * (1.0 + 1e-9) + 1e-9, "end": "inf"}}}));
            }
        }
    }
    if !workload.wants.is_empty() {
        deny("told", json!({"pvd": {"value": ""}}));
    }
    // What a garden without the Internet serves, it tells by its zones.
    if !workload.wants.contains_key("zone") {
        deny("internet", json!({"pvd_internet": {"value": false}}));
    }
    all.push((format!("{id}.profile"), json!({"uid": id, "match": meant(json!({})), "properties": worst})));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_policy::manager::{SourceFile, check};

    #[test]
    fn the_rules_of_every_workload_are_sound() {
        let day = Day::read().expect("sound");
        for workload in &day.workloads {
            for (name, rule) in rules(&day, workload) {
                let text = rule.to_string();
                let faults = check(&SourceFile { name: &name, text: &text }, neater_base::WallTime::default());
                assert!(faults.is_empty(), "{faults:?}");
            }
        }
    }

    #[test]
    fn every_place_can_be_built() {
        let day = Day::read().expect("sound");
        for scenario in &super::super::SCENARIOS {
            for place in &day.places {
                let networks: Vec<_> = place.networks.iter().take(scenario.networks).collect();
                let (plan, wires) = plan(&day, scenario, &networks, 1).expect("sound");
                assert_eq!(wires.len(), scenario.networks);
                let client = plan.node("client").expect("there");
                let core = plan.node("core").expect("there");
                for (address, _) in plan.nodes[client].interfaces.iter().flat_map(|i| &i.addresses) {
                    assert!(address.is_ipv6() && plan.given_routes[core].contains_key(address), "{address}");
                }
            }
        }
    }
}
