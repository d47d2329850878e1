//! Provisioning domains (RFC 8801), for real: a router of its own namespace advertises two domains on one link, nginx serves
//! their documents over HTTPS, and `neater pm` tells what it heard. Skips loudly without the privileges it needs.

use neater_emulator::provision::{Document, Provisioner, serve_documents};
use neater_emulator::{Cmd, Kind, Lab, Options, Plan, privileges};
use neater_link::LinkConfig;
use neater_policy::pvd::{Advertisement, Configuration, Header, Prefix, PrefixInfo, PvdOption};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
const HOME: &str = "home.example";
const GARDEN: &str = "garden.example";

/// A folder that is gone with what this stands for.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The `neater` command that cargo has built beside the tests (those of the command need it), or that it builds now.
fn neater() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|me| Some(me.parent()?.parent()?.join("neater")));
    // `neater pm` executes neater-pm, which lies beside it.
    if let Some(neater) = beside.filter(|path| path.is_file() && path.with_file_name("neater-pm").is_file()) {
        return neater;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let args = ["build", "-q", "-p", "neater-cli", "-p", "neater-pm", "--message-format=json", "--manifest-path"];
    let out = Command::new(cargo).args(args).arg(manifest).output().expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout);
    let built = text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let executable =
        built.filter(|m| m["target"]["name"] == "neater").find_map(|m| m["executable"].as_str().map(PathBuf::from));
    executable.expect("cargo tells where it is")
}

fn advertisement(id: &str, prefix: &str, sequence: u16, lifetime: u16) -> Vec<u8> {
    let prefix = Prefix::parse(prefix).expect("a prefix");
    let info = PrefixInfo { prefix, on_link: true, autonomous: false, valid: 3600, preferred: 3600 };
    let configuration = Configuration {
        prefixes: vec![info],
        dns: vec![("fd00::2".parse().expect("an address"), 3600)],
        ..Configuration::default()
    };
    let pvd = PvdOption {
        id: id.into(),
        http: true,
        legacy: id == HOME,
        delay: 0,
        sequence,
        header: Some(Header { lifetime, ..Header::default() }),
        configuration,
    };
    Advertisement { pvd: Some(pvd), ..Advertisement::default() }.to_bytes()
}

fn document(id: &str, prefix: &str, more: &str) -> Document {
    let text =
        format!(r#"{{"identifier": "{id}.", "expires": "2100-01-01T00:00:00Z", "prefixes": ["{prefix}"], {more}}}"#);
    Document { id: id.into(), prefix: prefix.into(), text }
}

/// A client and its router on one link with two prefixes, and link-local addresses, which TUN devices do not make themselves.
fn network() -> Lab {
    let mut plan = Plan::new(1);
    let (client, router) = (plan.add("client", Kind::Host), plan.add("router", Kind::Host));
    plan.connect("link", client, router, LinkConfig::default(), LinkConfig::default());
    for (node, last) in [(client, 1), (router, 2)] {
        let interface = &mut plan.nodes[node].interfaces[0];
        for net in ["fd00:0:1::", "fe80::"] {
            interface.addresses.push((format!("{net}{last}").parse().expect("an address"), 64));
        }
    }
    plan.nodes[router].sysctls.insert("net.ipv6.conf.all.forwarding".into(), "1".into());
    Lab::up(&plan, &Options::default()).expect("a lab")
}

#[test]
fn what_a_router_advertises_is_in_the_cib_with_its_document_and_goes_with_it() {
    let tools = [("nginx", "nginx-light"), ("python3", "python3")];
    let there = || tools.into_iter().try_for_each(|(tool, package)| privileges::need(tool, package));
    if let Err(e) = privileges::check().and_then(|()| there()) {
        return println!("SKIP: no live lab: {e}");
    }
    let neater = neater();
    let folder = Folder(std::env::temp_dir().join(format!("neater-pvd-{}", std::process::id())));
    let dir = folder.0.as_path();
    std::fs::create_dir_all(dir).expect("a folder");
    let made = rcgen::generate_simple_self_signed([HOME.to_owned(), GARDEN.to_owned()]).expect("a certificate");
    std::fs::write(dir.join("cert.pem"), made.cert.pem()).expect("written");
    std::fs::write(dir.join("key.pem"), made.signing_key.serialize_pem()).expect("written");
    let lab = network();
    let zone = format!("{HOME} AAAA fd00::2\n{GARDEN} AAAA fd00:0:1::2\n");
    let documents = [
        document(HOME, "fd00::/64", r#""vendor-neater": {"capacity": 40000000, "cost": 0, "interface": "no"}"#),
        document(GARDEN, "fd00:0:1::/64", r#""noInternet": true, "dnsZones": ["iot.example"], "metered": false"#),
    ];
    let _nginx = serve_documents(&lab, "router", dir, &documents).expect("nginx");
    let told = |sequence: u16, garden: u16| {
        vec![advertisement(HOME, "fd00::/64", sequence, 1800), advertisement(GARDEN, "fd00:0:1::/64", 7, garden)]
    };
    let every = Duration::from_millis(500);
    let router = lab.netns("router").expect("there");
    let router = Provisioner::start(router, "eth0", told(1, 1800), &zone, every).expect("a router");
    let sock = dir.join("sock");
    let pm = Cmd::new(&neater).args(["--json", "-v", "pm", "--no-rest", "--sock"]).arg(&sock).arg("--pvd-ca");
    let mut pm = lab.spawn("client", pm.arg(dir.join("cert.pem")).env("HOME", dir)).expect("runs");
    for words in [r#""capacity":40000000"#, r#""pvd_internet":false"#] {
        pm.wait_for_output(words, LIMIT).expect("it is told");
    }
    let ask = |request: &str| {
        let cmd = Cmd::new(&neater).args(["policy", "ask", "--json", request, "--sock"]).arg(&sock).limit(LIMIT);
        let out = lab.run("client", cmd).and_then(neater_emulator::Output::success).expect("an answer");
        let line: Value = serde_json::from_str(out.text().lines().last().unwrap_or_default()).expect("JSON");
        let all = line["candidates"].as_array().expect("candidates").clone();
        let of = |c: &Value, key: &str| c[key]["value"].clone();
        let rows = all.iter().filter(|c| !c["pvd"].is_null());
        rows.map(|c| (of(c, "pvd"), of(c, "local_ip"), of(c, "cost"))).collect::<Vec<_>>()
    };
    let text = |t: &str| Value::from(t);
    let iot = r#"[{"transport": {"value": "TCP"}, "pvd_dns_zones": {"value": "iot.example", "precedence": 2}}]"#;
    assert_eq!(ask(iot), [(text(GARDEN), text("fd00:0:1::1"), Value::Null)]);
    let free = r#"[{"transport": {"value": "TCP"}, "cost": {"value": 0, "precedence": 2}}]"#;
    let rows = ask(free);
    assert_eq!(rows.len(), 2, "the addresses of IPv6 and, by the L flag, IPv4: {rows:?}");
    assert!(rows.iter().all(|r| r.0 == HOME), "{rows:?}");

    // A program's wish for a domain decides which address it comes from.
    let explain = |needs: &str| {
        let cmd = Cmd::new(&neater).args(["explain", "https://[fd00:0:1::2]/", "--needs", needs]);
        let cmd = cmd.env("NEAT_PM_SOCKET", sock.join("neat_pm_socket")).env("NEATER_POLICY", "").env("HOME", dir);
        let out = lab.run("client", cmd.limit(LIMIT)).expect("it ends");
        (out.code, out.text().to_string())
    };
    for (wanted, from, not) in
        [(HOME, "from fd00::1", "from fd00:0:1::1"), (GARDEN, "from fd00:0:1::1", "from fd00::1")]
    {
        let (code, said) = explain(&format!("pvd=require:{wanted}"));
        assert!(code == 0 && said.contains(from) && !said.contains(not), "{wanted}: {said}");
    }
    let (code, said) = explain("pvd=require:far.example");
    assert!(code != 0 && !said.contains("from fd00:"), "{said}");

    // And so do its connections: what a web server at the other end says of who asked.
    std::fs::create_dir(dir.join("www")).expect("a folder");
    let web = Cmd::new("python3").args(["-u", "-m", "http.server", "8080", "--bind", "::", "--directory"]);
    let mut web = lab.spawn("router", web.arg(dir.join("www"))).expect("runs");
    lab.wait_for("client", "[fd00:0:1::2]:8080".parse().expect("an address"), LIMIT).expect("it serves");
    let get = |needs: &str| {
        let cmd = Cmd::new(&neater).args(["get", "http://[fd00:0:1::2]:8080/", "-o", "/dev/null", "--needs", needs]);
        let cmd = cmd.env("NEAT_PM_SOCKET", sock.join("neat_pm_socket")).env("NEATER_POLICY", "").env("HOME", dir);
        lab.run("client", cmd.limit(LIMIT)).expect("it ends").code
    };
    for (wanted, from) in [(HOME, "fd00::1 - - "), (GARDEN, "fd00:0:1::1 - - ")] {
        // The program has its tables from the daemon only after a while; until then it asks nobody.
        let got = (0..5).any(|_| get(&format!("pvd=require:{wanted}")) == 0);
        assert!(got, "{wanted}");
        web.wait_for_error_output(from, LIMIT).expect("asked from the address of the domain");
    }
    assert_ne!(get("pvd=require:far.example"), 0);
    let web = web.stop(libc::SIGTERM).expect("ends").errors();
    assert_eq!(web.matches("\"GET / ").count(), 2, "nobody else asked: {web}");

    // A new document under the same name: asked for when the sequence number says so.
    std::fs::write(dir.join("pvd-0.json"), documents[0].text.replace("40000000", "5000000")).expect("written");
    router.advertise(told(2, 1800));
    pm.wait_for_output(r#""capacity":5000000"#, Duration::from_secs(40)).expect("it is told");
    // The garden closes.
    router.advertise(told(2, 0));
    let end = std::time::Instant::now() + LIMIT;
    while !ask(iot).is_empty() {
        assert!(std::time::Instant::now() < end, "the domain is still there");
        std::thread::sleep(Duration::from_millis(100));
    }
    let said = pm.stop(libc::SIGTERM).expect("ends");
    assert_eq!(said.code, 0, "{}", said.errors());
    let refused = std::fs::read_to_string(dir.join("access.log")).expect("a log");
    let asked = refused.lines().filter(|l| l.contains("/.well-known/pvd")).count();
    assert_eq!(asked, 3, "one request for each document: {refused}");
    assert!(refused.lines().all(|l| l.contains("\" 200 ")), "each from its own prefix: {refused}");
}
