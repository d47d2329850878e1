//! `neater pm` as people, programs and other users meet it.

#[path = "../../cli/tests/common/mod.rs"]
mod common;

use common::{Folder, Ran, neater, program, run, signal};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A running manager.
struct Manager {
    child: Child,
    events: Receiver<Value>,
    folder: Folder,
    port: u16,
}

impl Manager {
    fn start(name: &str, more: &[&str]) -> Self {
        let folder = Folder::new(name);
        for dir in ["pib", "cib"] {
            std::fs::create_dir_all(folder.path(dir)).expect("made");
        }
        Self::again(folder, more)
    }

    fn again(folder: Folder, more: &[&str]) -> Self {
        let mut c = neater();
        c.args(["pm", "--json", "-v", "--bare", "--no-interfaces", "--rest", "127.0.0.1:0", "--sock"])
            .arg(folder.path("sock"));
        c.arg("--pib").arg(folder.path("pib")).arg("--cib").arg(folder.path("cib")).args(more);
        let mut child = c.stdout(Stdio::piped()).spawn().expect("started");
        let events = lines(child.stdout.take().expect("a pipe"));
        let mut manager = Self { child, events, folder, port: 0 };
        let told = manager.event("managing");
        let port = told["rest"].as_str().and_then(|url| url.rsplit(':').next()).and_then(|p| p.parse().ok());
        manager.port = port.unwrap_or_default();
        manager
    }

    /// The next event of a kind.
    fn event(&self, kind: &str) -> Value {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let event = self.events.recv_timeout(left).unwrap_or_else(|e| panic!("no {kind}: {e}"));
            if event["event"] == kind {
                return event;
            }
        }
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.folder.path("sock").join(name)
    }

    fn connect(&self, name: &str) -> UnixStream {
        UnixStream::connect(self.socket(name)).expect("connected")
    }

    /// What is answered to a document.
    fn say(&self, name: &str, text: &str) -> String {
        let mut stream = self.connect(name);
        stream.write_all(text.as_bytes()).expect("sent");
        stream.shutdown(Shutdown::Write).expect("half closed");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// The values of one property of the candidates.
    fn candidates(&self, key: &str) -> Vec<Value> {
        let answer = self.say("neat_pm_socket", r#"[{"transport": {"value": "TCP"}}]"#);
        let list: Vec<Value> = serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{e}: {answer}"));
        list.iter().map(|c| c[key]["value"].clone()).collect()
    }

    fn token(&self) -> String {
        std::fs::read_to_string(self.socket("rest_token")).expect("a token").trim().to_owned()
    }

    /// A request over HTTP, and its status and body.
    fn http(&self, head: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connected");
        let length = body.len();
        write!(stream, "{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        assert!(!answer.to_lowercase().contains("access-control"), "no page of another origin may read this");
        (status, answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.http(&format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}", self.port), "")
    }

    fn write(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let (port, token) = (self.port, self.token());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json"
        );
        self.http(&head, body)
    }

    /// Ends it by a signal, and gives back its folder.
    fn stop(mut self, name: &str) -> (i32, Folder) {
        signal(&self.child, name);
        let code = self.child.wait().expect("ended").code().unwrap_or(-1);
        (code, std::mem::replace(&mut self.folder, Folder::new("pm-empty")))
    }

    fn memory(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a status");
        let line = text.lines().find(|l| l.starts_with("RssAnon:")).expect("its memory");
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("kB")
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(out: ChildStdout) -> Receiver<Value> {
    let (tell, events) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let event = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
            if tell.send(event).is_err() {
                return;
            }
        }
    });
    events
}

fn interface(name: &str) -> String {
    json!({"uid": name, "root": true, "expire": -1, "properties": {"interface": {"value": name, "score": 1}}})
        .to_string()
}

#[test]
fn files_count_as_they_change_and_a_broken_one_as_it_was() {
    let m = Manager::start("pm-files", &[]);
    m.folder.put("cib/eth0.cib", interface("eth0"));
    assert_eq!(m.event("loaded")["nodes"], 1);
    assert_eq!(m.candidates("interface"), [json!("eth0"), json!(null)]);
    m.folder.put("pib/mark.policy", r#"{"match": {}, "properties": {"dscp": {"value": 10}}}"#);
    assert_eq!(m.event("loaded")["policies"], 1);
    assert_eq!(m.candidates("dscp"), [10, 10]);
    // In place, of the same length.
    m.folder.put("pib/mark.policy", r#"{"match": {}, "properties": {"dscp": {"value": 12}}}"#);
    m.event("loaded");
    assert_eq!(m.candidates("dscp"), [12, 12]);
    m.folder.put("pib/mark.policy", "{\"match\": {},\n \"properties\": {\"dscp\": {\"value\": ]}}}");
    let fault = m.event("fault");
    assert_eq!((&fault["file"], &fault["line"]), (&json!("mark.policy"), &json!(2)));
    assert!(fault["why"].as_str().expect("why").contains("stays in force"));
    assert_eq!(m.candidates("dscp"), [12, 12]);
    // A fault is reported once, however often it is looked at.
    std::thread::sleep(Duration::from_millis(2500));
    assert!(m.events.try_iter().all(|e| e["event"] != "fault"));
    std::fs::remove_file(m.folder.path("pib/mark.policy")).expect("removed");
    assert_eq!(m.event("loaded")["policies"], 0);
    assert_eq!(m.candidates("dscp"), [json!(null), json!(null)]);
}

#[test]
fn rest_does_what_its_description_says_and_only_for_this_host() {
    let m = Manager::start("pm-rest", &[]);
    let policy = r#"{"match": {}, "properties": {"dscp": {"value": 10}}}"#;
    assert_eq!(m.write("PUT", "/pib/Site", policy), (200, "OK".into()));
    assert_eq!(m.candidates("dscp"), [10]);
    assert_eq!(m.get("/pib"), (200, "[\"site\"]\n".into()));
    assert!(m.folder.path("pib/site.policy").is_file(), "it is there after a restart");
    let (status, why) =
        m.http(&format!("PUT /pib/x HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json", m.port), policy);
    assert!(status == 401 && why.contains("rest_token"), "{why}");
    assert_eq!(m.http(&format!("GET /pib HTTP/1.1\r\nHost: evil.example:{}", m.port), "").0, 421);
    assert_eq!(m.http(&format!("GET /pib HTTP/1.1\r\nHost: localhost:{}", m.port), "").0, 421);
    assert_eq!(m.http(&format!("GET /pib HTTP/1.1\r\nHost: 127.0.0.1:{0}\r\nHost: 127.0.0.1:{0}", m.port), "").0, 421);
    assert_eq!(m.write("PUT", "/pib/deep", &"[".repeat(100_000)).0, 400);
    assert_eq!(m.write("PUT", "/pib/huge", &" ".repeat((1 << 20) + 10)).0, 413);
    assert_eq!(m.write("GET", "/reload", ""), (200, "PM repositories reloaded.".into()));
    assert_eq!(m.write("DELETE", "/pib/site", ""), (200, "Policy removed".into()));
    assert_eq!(m.write("GET", "/reload", "").0, 200);
    assert_eq!(m.get("/pib"), (200, "[]\n".into()));
    assert!(!m.folder.path("pib/site.policy").exists());
    let openapi: Value = serde_json::from_str(&m.get("/openapi.json").1).expect("JSON");
    assert_eq!(openapi["openapi"], "3.1.0");
    assert!(m.get("/metrics").1.contains("neater_pm_decisions_total 1"), "{}", m.get("/metrics").1);
}

#[test]
fn permissions_are_as_they_should_be_and_one_place_has_one_manager() {
    let m = Manager::start("pm-modes", &[]);
    let mode = |name: &str| std::fs::metadata(m.socket(name)).expect("there").permissions().mode() & 0o777;
    let root = std::fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m)).expect("ours") == 0;
    for socket in ["neat_pm_socket", "neat_pib_socket", "neat_cib_socket", "neater_metadata_socket"] {
        assert_eq!(mode(socket), if root { 0o666 } else { 0o600 });
    }
    assert_eq!(mode("rest_token"), 0o600);
    let second = run(neater().args(["pm", "--no-rest", "--sock"]).arg(m.folder.path("sock")));
    assert_eq!(second.code, 1);
    assert!(second.err.contains("listens on") && second.err.contains("--sock DIR"), "{}", second.err);
    let far = run(neater().args(["pm", "--rest", "0.0.0.0:0", "--sock"]).arg(m.folder.path("other")));
    assert!(far.code == 2 && far.err.contains("not of the loopback"), "{}", far.err);
    assert_eq!(m.candidates("interface").len(), 1);
    let (code, folder) = m.stop("-TERM");
    assert_eq!(code, 0);
    assert!(!folder.path("sock/neat_pm_socket").exists());
}

/// The command as another user, from a place where that user may run it.
fn as_nobody(folder: &Folder, args: &[&str]) -> Ran {
    let program = folder.path("neater");
    if !program.exists() {
        std::fs::copy(common::program(), &program).expect("copied");
        std::fs::copy(env!("CARGO_BIN_EXE_neater-pm"), folder.path("neater-pm")).expect("copied");
    }
    let mut c = Command::new(program);
    run(c.args(args).current_dir(folder.path(".")).uid(65534).gid(65534).stdin(Stdio::null()))
}

#[test]
fn what_another_user_tells_steers_that_user_alone() {
    let m = Manager::start("pm-users", &["--shared"]);
    if as_nobody(&m.folder, &["--version"]).code != 0 {
        eprintln!("SKIP: only root can be another user");
        return;
    }
    m.folder.put("cib/eth0.cib", interface("eth0"));
    m.event("loaded");
    m.folder.put("tun0.cib", interface("tun0"));
    m.folder.put("eth0.cib", interface("eth0"));
    let told = as_nobody(&m.folder, &["policy", "publish", "--sock", "sock", "tun0.cib"]);
    assert!(told.code == 0 && told.out == "tun0.cib: the manager has taken it\n", "{}{}", told.out, told.err);
    let asked = as_nobody(&m.folder, &["policy", "ask", "--sock", "sock", r#"[{"transport": {"value": "TCP"}}]"#]);
    assert!(asked.code == 0 && asked.out.contains("tun0") && asked.out.contains("eth0"), "{}{}", asked.out, asked.err);
    assert_eq!(m.candidates("interface"), [json!("eth0"), json!(null)]);
    let told = as_nobody(&m.folder, &["policy", "publish", "--sock", "sock", "eth0.cib"]);
    assert!(told.code == 1 && told.err.contains("belongs to another user"), "{}", told.err);
    let (code, _) = (as_nobody(&m.folder, &["policy", "publish", "--sock", "sock", "nothing.cib"]).code, ());
    assert_eq!(code, 4);
    // Why, for each of the two.
    let request = r#"[{"transport": {"value": "TCP"}}]"#;
    let explained = as_nobody(&m.folder, &["policy", "explain", "--running", "--sock", "sock", request]);
    assert!(explained.code == 0 && explained.out.contains("tun0"), "{}{}", explained.out, explained.err);
    let own = run(neater()
        .args(["policy", "explain", "--json", "--running", "--sock"])
        .arg(m.folder.path("sock"))
        .arg(request));
    assert!(
        own.out.contains("\"decision\"") && own.out.contains("eth0") && !own.out.contains("tun0"),
        "{}{}",
        own.out,
        own.err
    );
    // The token is for the manager's own user.
    let read = Command::new("cat").arg(m.socket("rest_token")).uid(65534).stderr(Stdio::null()).status();
    assert!(!read.expect("cat").success());
}

/// A folder that is gone with the test.
struct Gone(PathBuf);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn programs_of_all_users_believe_a_service_that_has_a_user_of_its_own() {
    let folder = Folder::new("pm-service");
    if as_nobody(&folder, &["--version"]).code != 0 {
        eprintln!("SKIP: only root can be another user, and give a folder under /run away");
        return;
    }
    let first = json!({"uid": "tcp-first", "match": {"transport": {"value": "TCP"}},
        "properties": {"transport": {"value": "TCP", "score": 10}}});
    folder.put("pib/tcp-first.policy", first.to_string());
    // As systemd makes it for the unit's User= and RuntimeDirectory=.
    let run_dir = Gone(PathBuf::from(format!("/run/neater-pm-test-{}", std::process::id())));
    std::fs::create_dir(&run_dir.0).expect("made");
    std::os::unix::fs::chown(&run_dir.0, Some(65534), Some(65534)).expect("given away");
    let mut c = Command::new(folder.path("neater"));
    c.args(["pm", "--json", "--shared", "--bare", "--no-interfaces", "--no-rest", "--sock"]).arg(&run_dir.0);
    c.arg("--pib").arg(folder.path("pib")).current_dir(folder.path(".")).uid(65534).gid(65534);
    let mut child = c.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("started");
    let events = lines(child.stdout.take().expect("a pipe"));
    let managing =
        (0..20).any(|_| events.recv_timeout(Duration::from_secs(20)).is_ok_and(|event| event["event"] == "managing"));
    let explain = |uid: u32| {
        let mut c = Command::new(folder.path("neater"));
        c.args(["explain", "https://127.0.0.1:9/"]).current_dir(folder.path(".")).uid(uid).gid(uid);
        c.env("NEAT_PM_SOCKET", run_dir.0.join("neat_pm_socket")).env("NEATER_POLICY", "");
        run(c.stdin(Stdio::null())).out
    };
    let said = [0, 1000, 65534].map(explain);
    signal(&child, "-TERM");
    let _ = child.wait();
    assert!(managing);
    for said in said {
        assert!(said.contains("tcp-first"), "{said}");
    }
}

/// Runs a command in the network namespace of a process.
fn beside(child: &Child, args: &[&str]) -> bool {
    let mut c = Command::new("nsenter");
    c.arg("--net").arg("--target").arg(child.id().to_string()).args(args);
    c.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

#[test]
fn interfaces_count_while_they_are_there() {
    if !Command::new("unshare").args(["--net", "ip", "link"]).stdout(Stdio::null()).status().is_ok_and(|s| s.success())
    {
        eprintln!("SKIP: a network namespace needs root, unshare, nsenter and ip");
        return;
    }
    let folder = Folder::new("pm-interfaces");
    let mut c = Command::new("unshare");
    c.arg("--net").arg(program()).args(["pm", "--json", "--bare", "--no-rest", "--sock"]).arg(folder.path("sock"));
    let mut child = c.stdout(Stdio::piped()).spawn().expect("started");
    let events = lines(child.stdout.take().expect("a pipe"));
    let m = Manager { child, events, folder, port: 0 };
    m.event("managing");
    let found = || -> Vec<Value> { m.candidates("interface").into_iter().filter(|v| !v.is_null()).collect() };
    assert_eq!(found(), Vec::<Value>::new());
    let until = |wanted: &[Value]| {
        let end = Instant::now() + Duration::from_secs(20);
        while found() != wanted {
            assert!(Instant::now() < end, "{:?} and not {wanted:?}", found());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    for args in [
        "ip link add v0 mtu 1400 type veth peer name v1",
        "ip addr add 192.0.2.7/24 dev v0",
        "ip link set v1 up",
        "ip link set v0 up",
    ] {
        assert!(beside(&m.child, &args.split(' ').collect::<Vec<_>>()), "{args}");
    }
    until(&[json!("v0")]);
    // The kernel may report the MTU and of the address at different times.
    let told = |key: &str| m.candidates(key).into_iter().find(|v| !v.is_null());
    assert_eq!(told("local_ip"), Some(json!("192.0.2.7")));
    assert_eq!(told("mtu").and_then(|v| v.as_f64()), Some(1400.0));
    assert_eq!(told("metered"), Some(json!(false)), "a cable");
    assert!(beside(&m.child, &["ip", "link", "del", "v0"]));
    until(&[]);
}

#[test]
fn a_rule_takes_no_other_files_place_and_removes_none() {
    let m = Manager::start("pm-names", &[]);
    let (notes, mine) = ("not a policy yet", r#"{"uid": "other", "match": {"x": 1}, "properties": {"y": 1}}"#);
    m.folder.put("pib/foo.policy", mine);
    m.folder.put("pib/bar.policy", notes);
    let policy = r#"{"match": {"app": {"value": "x"}}, "properties": {"dscp": {"value": 10}}}"#;
    for (uid, text) in [("foo", mine), ("bar", notes)] {
        let path = format!("/pib/{uid}");
        let (status, why) = m.write("PUT", &path, policy);
        assert!(status == 500 && why.contains("has other content already"), "{status} {why}");
        assert_eq!(m.get(&path).0, 200, "it counts all the same");
        assert_eq!(m.write("PUT", &path, policy).0, 500, "nor the second time");
        assert_eq!(m.write("DELETE", &path, "").0, 200);
        let told = m.say("neat_pib_socket", &policy.replacen('{', &format!("{{\"uid\": \"{uid}\", "), 1));
        assert!(told.contains("was not written") && told.contains("has other content already"), "{told}");
        assert_eq!(m.write("DELETE", &path, "").0, 200);
        assert_eq!(std::fs::read_to_string(m.folder.path("pib").join(format!("{uid}.policy"))).expect("there"), text);
    }
    // One's own is written, written again and removed.
    let path = m.folder.path("pib/own.policy");
    for dscp in ["10", "12"] {
        assert_eq!(m.write("PUT", "/pib/own", &policy.replace("10", dscp)).0, 200);
        assert!(std::fs::read_to_string(&path).expect("there").contains(dscp));
    }
    assert_eq!(m.write("DELETE", "/pib/own", "").0, 200);
    let left: Vec<_> =
        std::fs::read_dir(m.folder.path("pib")).expect("read").flatten().map(|f| f.file_name()).collect();
    assert!(!path.exists() && left.len() == 2, "{left:?}");
}

#[test]
fn sockets_do_not_lie_where_others_could_put_theirs() {
    let f = Folder::new("pm-open");
    let open = f.path("open");
    std::fs::create_dir(&open).expect("made");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).expect("set");
    let r = run(neater().args(["pm", "--no-rest", "--sock"]).arg(&open));
    assert!(r.code == 4 && r.err.contains("can be changed by other users"), "{} {}", r.code, r.err);
    assert_eq!(std::fs::read_dir(&open).expect("read").count(), 0);
}

#[test]
fn a_thousand_clients_at_once_and_clients_that_die_leave_the_others_alone() {
    let m = Manager::start("pm-thousand", &[]);
    m.folder.put("cib/eth0.cib", interface("eth0"));
    m.event("loaded");
    // Some die within a document, some within a frame, some do not listen.
    for i in 0..200usize {
        let mut stream = m.connect(["neat_pm_socket", "neat_cib_socket", "neat_pib_socket"][i % 3]);
        stream.write_all(&[b"[{\"transport\""[..].to_vec(), vec![0xB5, 1, 0, 0, 40, 0, 0, 0, 1]][i % 2]).expect("sent");
    }
    let request = r#"[{"transport": {"value": ["TCP", "SCTP"]}, "port": {"value": 443}}]"#;
    let mut clients: Vec<UnixStream> = (0..1000).map(|_| m.connect("neat_pm_socket")).collect();
    for client in &mut clients {
        client.write_all(request.as_bytes()).expect("sent");
    }
    for client in &clients {
        client.shutdown(Shutdown::Write).expect("half closed");
    }
    let mut answers: Vec<String> = Vec::new();
    for mut client in clients {
        let mut answer = String::new();
        client.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        client.read_to_string(&mut answer).expect("an answer");
        answers.push(answer);
    }
    assert!(answers[0].contains("eth0") && answers.iter().all(|a| *a == answers[0]), "{}", answers[0]);
    assert!(m.get("/metrics").1.contains("neater_pm_sessions 0"), "{}", m.get("/metrics").1);
}

#[test]
fn news_without_end_do_not_make_it_grow() {
    let m = Manager::start("pm-news", &[]);
    // NEATER_PM_NEWS sets more for a longer run.
    let most: u32 = std::env::var("NEATER_PM_NEWS").ok().and_then(|n| n.parse().ok()).unwrap_or(40_000);
    let mut stream = m.connect("neat_cib_socket");
    let mut answers = stream.try_clone().expect("a second half");
    let reader = std::thread::spawn(move || {
        let mut done = 0;
        let mut head = [0; 8];
        while done < most && answers.read_exact(&mut head).is_ok() {
            assert_eq!(head[1], 0x82, "refused: {head:?}");
            done += 1;
        }
        done
    });
    let node = |i: u32| {
        let text = |out: &mut Vec<u8>, t: &str| {
            out.extend((t.len() as u16).to_le_bytes());
            out.extend(t.as_bytes());
        };
        let mut payload = Vec::new();
        text(&mut payload, &format!("result-{i}"));
        payload.push(2);
        payload.extend(600u32.to_le_bytes());
        // One match, an array of one: interface is eth0.
        payload.extend([1, 0, 1, 0]);
        text(&mut payload, "interface");
        payload.push(1);
        payload.extend(0f64.to_le_bytes());
        payload.push(4);
        text(&mut payload, "eth0");
        // One group of one alternative of one property: rtt is a number.
        payload.extend([1, 0, 1, 0, 1, 0]);
        text(&mut payload, "rtt");
        payload.push(1);
        payload.extend(0f64.to_le_bytes());
        payload.push(3);
        payload.extend(f64::from(i).to_le_bytes());
        let mut frame = vec![0xB5, 2, 0, 0];
        frame.extend((payload.len() as u32).to_le_bytes());
        frame.extend(payload);
        frame
    };
    let mut settled = 0;
    for i in 0..most {
        stream.write_all(&node(i)).expect("taken");
        if i == most / 4 {
            settled = m.memory();
        }
    }
    assert_eq!(reader.join().expect("read"), most);
    let end = m.memory();
    println!("{most} news: {settled} kB after a quarter, {end} kB at the end");
    assert!(end < settled + settled / 4 + 512, "{settled} kB, then {end} kB");
    assert_eq!(m.candidates("interface"), [json!(null)]);
}

#[test]
fn a_modem_is_heard_as_long_as_it_speaks() {
    let m = Manager::start("pm-modem", &[]);
    m.folder.put("cib/wwan0.cib", interface("wwan0"));
    m.event("loaded");
    let mut modem = m.connect("neater_metadata_socket");
    modem.write_all(b"{\"interface\": \"wwan0\", \"mode\": \"4G\", \"ttl\": 6}\n{\"mode\": 1}\n").expect("sent");
    let mut said = String::new();
    BufReader::new(modem.try_clone().expect("a second half")).read_line(&mut said).expect("a line");
    assert!(said.contains("line 2: interface is the name of one"), "{said}");
    assert_eq!(m.candidates("mode"), [json!("4G"), json!(null)]);
    std::thread::sleep(Duration::from_millis(6100));
    assert_eq!(m.candidates("mode"), [json!(null), json!(null)]);
    modem.write_all(b"{\"interface\": \"wwan0\", \"mode\": \"3G\"}\n").expect("sent");
    modem.shutdown(Shutdown::Write).expect("half closed");
    said.clear();
    assert_eq!(modem.read_to_string(&mut said).expect("the end"), 0, "{said}");
    assert_eq!(m.candidates("mode"), [json!("3G"), json!(null)]);
}

/// What `neater explain` reports of policies for a URL, of a program that follows this manager.
fn explained(manager: &Manager, url: &str) -> String {
    let socket = manager.socket("neat_pm_socket");
    let ran = run(neater().args(["explain", url]).env("NEAT_PM_SOCKET", socket).env("NEATER_POLICY", ""));
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.out
}

#[test]
fn what_one_programs_connections_have_seen_another_program_knows() {
    let folder = Folder::new("pm-facts");
    folder.put("www/file", vec![7; 1000]);
    let serving = common::Serving::new(&folder.path("www"), &folder.path("state"), &[]);
    let url = serving.url("file");
    let seen = json!({"uid": "seen", "match": {"measured_rtt": {"value": {"start": 0, "end": "inf"}}},
        "properties": {"measured_rtt": {"value": null, "score": 7}}});
    let won = json!({"uid": "won", "match": {"transport": {"value": "QUIC"}, "measured_won": {"value": "QUIC"}},
        "properties": {"measured_won": {"value": null, "score": 5}}});
    let start = |folder: Option<Folder>| match folder {
        Some(folder) => Manager::again(folder, &[]),
        None => Manager::start("pm-facts-d", &[]),
    };
    let manager = start(None);
    manager.folder.put("pib/seen.policy", seen.to_string());
    manager.folder.put("pib/won.policy", won.to_string());
    while manager.event("loaded")["policies"] != 2 {}
    let fetch = |manager: &Manager| {
        let socket = manager.socket("neat_pm_socket");
        let mut get = serving.get();
        let ran = run(get.args(["-o", "/dev/null", &url]).env("NEAT_PM_SOCKET", socket).env("NEATER_POLICY", ""));
        assert_eq!(ran.code, 0, "{}", ran.err);
    };
    let until = |manager: &Manager, wanted: bool| {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let said = explained(manager, &url);
            if said.contains("measured_rtt") == wanted {
                return said;
            }
            assert!(Instant::now() < end, "{said}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    until(&manager, false);
    fetch(&manager);
    let said = until(&manager, true);
    assert!(said.contains("measured_won"), "{said}");
    let (_, metrics) = manager.get("/metrics");
    assert!(metrics.contains("neater_pm_facts 1\n"), "{metrics}");
    // A manager that restarts knows nothing until it is sent again; no connection waits for it.
    let (code, kept) = manager.stop("-TERM");
    assert_eq!(code, 0);
    let manager = start(Some(kept));
    until(&manager, false);
    fetch(&manager);
    until(&manager, true);
}

#[test]
fn clients_find_it_again_after_it_was_killed() {
    let m = Manager::start("pm-killed", &[]);
    m.folder.put("cib/eth0.cib", interface("eth0"));
    m.event("loaded");
    let (_, folder) = m.stop("-KILL");
    assert!(folder.path("sock/neat_pm_socket").exists(), "a socket that leads nowhere");
    let request = r#"[{"transport": {"value": "TCP"}}]"#;
    let sock = folder.path("sock");
    let ask = || run(neater().args(["policy", "ask", request, "--sock"]).arg(&sock));
    let asked = ask();
    assert!(asked.code == 1 && asked.err.contains("no policy manager at"), "{}", asked.err);
    let m = Manager::again(folder, &[]);
    let asked = ask();
    assert!(asked.code == 0 && asked.out.contains("eth0"), "{}", asked.err);
    // NEAT's library takes a connection without an answer as "decide yourself".
    assert_eq!(m.say("neat_pm_socket", "nonsense"), "");
    assert!(m.event("refused")["why"].as_str().expect("why").contains("line 1 column 2"));
    assert!(m.say("neat_pib_socket", "nonsense").contains("line 1 column 2"));
}

/// A certificate that a server of this folder has made.
fn serving_certificate(folder: &Folder) -> PathBuf {
    common::Serving::new(&folder.path("www"), &folder.path("state"), &[]).ca.clone()
}

#[test]
fn a_file_and_an_endpoint_tell_of_nodes_as_they_change() {
    let folder = Folder::new("pm-sources");
    let node = |uid: &str| {
        json!({"uid": uid, "root": true, "properties": {"interface": {"value": uid, "score": 1}}}).to_string()
    };
    let file = folder.put("modem.json", node("wwan0"));
    std::fs::create_dir_all(folder.path("www")).expect("made");
    folder.put("www/cib.json", format!("[{}]", node("site0")));
    let serving = common::Serving::new(&folder.path("www"), &folder.path("state"), &["--plain"]);
    let url = format!("http://localhost:{}/cib.json", serving.port);
    let file_text = file.display().to_string();
    let mut manager =
        Manager::start("pm-sources-d", &["--source", &file_text, "--source", &url, "--source-every", "0.1"]);
    // As a whole: a source may be looked at while it is written.
    let replace = |text: String| {
        let new = folder.put("modem.new", text);
        std::fs::rename(new, &file).expect("renamed");
    };
    let told = |manager: &Manager, source: &str| loop {
        let event = manager.event("source");
        if event["source"] == source {
            return event;
        }
    };
    let until = |manager: &Manager, wanted: &[&str]| {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let mut seen: Vec<String> =
                manager.candidates("interface").iter().filter_map(|v| Some(v.as_str()?.to_owned())).collect();
            seen.sort();
            if seen == wanted {
                return;
            }
            assert!(Instant::now() < end, "{seen:?}, not {wanted:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until(&manager, &["site0", "wwan0"]);
    // A document takes the place of the one before; a broken one is reported, once and with its
    // place, and changes nothing.
    replace(node("wwan1"));
    until(&manager, &["site0", "wwan1"]);
    replace("{\n  \"uid\": tru}".into());
    let event = loop {
        let event = told(&manager, &file_text);
        if event["why"].is_string() {
            break event;
        }
    };
    assert!(event["why"].as_str().is_some_and(|why| why.contains("line 2")), "{event}");
    until(&manager, &["site0", "wwan1"]);
    std::fs::remove_file(folder.path("www/cib.json")).expect("removed");
    let event = loop {
        let event = told(&manager, &url);
        if event["why"].is_string() {
            break event;
        }
    };
    assert!(event["why"].as_str().is_some_and(|why| why.contains("404")), "{event}");
    until(&manager, &["site0", "wwan1"]);
    replace(format!("[{}, {}]", node("wwan2"), node("site0")));
    let event = told(&manager, &file_text);
    assert!(event["why"].as_str().is_some_and(|why| why.contains("site0 belongs to another writer")), "{event}");
    let _ = manager.child.kill();

    // A pipe in a source's place blocks nothing: the manager goes on to answer.
    let pipe = folder.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let pipe_text = pipe.display().to_string();
    let manager = Manager::start("pm-sources-p", &["--source", &pipe_text, "--source-every", "0.1"]);
    assert!(told(&manager, &pipe_text)["why"].as_str().is_some_and(|why| why.contains("it is no file")));
    assert_eq!(manager.candidates("transport").len(), 1);
    drop(manager);

    for more in
        [["--source", &file_text, "--source-ca", "/nowhere.pem"], ["--source", &url, "--source-ca", "/nowhere.pem"]]
    {
        let ran = run(neater().args(["pm", "--no-rest", "--sock"]).arg(folder.path("s")).args(more));
        assert!(ran.code != 0 && ran.err.contains("/nowhere.pem"), "{}", ran.err);
    }
    let made = folder.put("ca.pem", std::fs::read(serving_certificate(&folder)).expect("a certificate"));
    let made = made.display().to_string();
    let ran = run(neater().args(["pm", "--no-rest", "--sock"]).arg(folder.path("s")).args([
        "--source",
        &file_text,
        "--source-ca",
        &made,
    ]));
    assert!(ran.code == 2 && ran.err.contains("--source-ca"), "{}", ran.err);

    for (source, says) in [("ftp://host/x", "http or https"), ("http://", "--source http://")] {
        let ran = run(neater().args(["pm", "--no-rest", "--sock"]).arg(folder.path("s")).args(["--source", source]));
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains(says), "{}", ran.err);
    }
}

/// The unit of the service: systemd knows every key of it, the manager takes its command line and
/// reports what it lacks, and it may do little else.
#[test]
fn the_systemd_unit_means_what_it_says() {
    const UNIT: &str = include_str!("../systemd/neater-pm.service");
    let folder = Folder::new("unit");
    let start = UNIT.lines().find_map(|l| l.strip_prefix("ExecStart=/usr/bin/neater ")).expect("it starts neater");
    // With folders of this test in place of the host's, and nothing that another manager here could
    // have.
    let own = start.replace("/run/neater", &folder.path("sock").display().to_string());
    let own = own.replace("/etc/neater", &folder.path(".").display().to_string());
    for dir in ["pib", "cib"] {
        std::fs::create_dir_all(folder.path(dir)).expect("made");
    }
    let mut c = neater();
    c.args(own.split_whitespace()).args(["--json", "--no-rest", "--bare", "--no-interfaces"]);
    let mut child = c.stdout(Stdio::piped()).spawn().expect("started");
    let events = lines(child.stdout.take().expect("a pipe"));
    let event = events.recv_timeout(Duration::from_secs(20)).expect("it says that it manages");
    signal(&child, "-TERM");
    let _ = child.wait();
    assert_eq!(event["event"], "managing", "{event}");
    let analyse = |args: &[&str], unit: &str| {
        let path = folder.path("neater-pm.service");
        std::fs::write(&path, unit).expect("written");
        let out = Command::new("systemd-analyze").args(args).arg(&path).output().ok()?;
        Some(format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)))
    };
    // Whether neater is installed here is not what is asked.
    let unit = UNIT.replace("/usr/bin/neater", "/bin/true");
    let Some(said) = analyse(&["verify"], &unit) else {
        println!("SKIP: systemd-analyze is not here");
        return;
    };
    assert!(!said.contains("neater-pm"), "{said}");
    let wrong = analyse(&["verify"], &unit.replace("Restart=", "Restrat=")).unwrap_or_default();
    assert!(wrong.contains("Restrat"), "a wrong key is found: {wrong}");
    let exposed = analyse(&["security", "--offline=true"], &unit).unwrap_or_default();
    let level = exposed.split("service: ").nth(1).and_then(|t| t.split_whitespace().next()?.parse::<f64>().ok());
    if let Some(level) = level {
        assert!(level < 3.0, "an exposure of {level}, where 2.1 was enough");
    }
}

/// A folder of nodes that may not be read takes no rule away, and neither does one of rules that
/// any user may write to from now on; one that any user may write to from the beginning is refused.
#[test]
fn what_cannot_be_looked_at_hides_nothing_else() {
    let folder = Folder::new("closed");
    for dir in ["pib", "cib/sub"] {
        std::fs::create_dir_all(folder.path(dir)).expect("made");
    }
    folder.put("cib/sub/a.cib", r#"{"uid": "a", "root": true, "properties": {"interface": {"value": "a"}}}"#);
    folder.put("pib/deny.policy", r#"{"uid": "deny", "properties": [[]]}"#);
    let set = |dir: &PathBuf, mode| {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).expect("ours");
    };
    let m = Manager::again(folder, &[]);
    let pib = m.folder.path("pib");
    assert!(m.candidates("interface").is_empty(), "denied");
    let said = |word: &str| {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if m.events.recv_timeout(left).expect("it is said").to_string().contains(word) {
                return;
            }
        }
    };
    // Not by its mode, which means nothing to root: a chain of links without end.
    let sub = m.folder.path("cib/sub");
    std::fs::remove_dir_all(&sub).expect("ours");
    std::os::unix::fs::symlink("sub", &sub).expect("made");
    said("cannot read");
    assert!(m.candidates("interface").is_empty(), "rules count whatever becomes of nodes");
    set(&pib, 0o777);
    m.folder.put("pib/more.policy", r#"{"uid": "more", "properties": {}}"#);
    said("every user may write");
    assert!(m.candidates("interface").is_empty(), "the earlier content stays in force");
    let refused = {
        let mut c = neater();
        c.args(["pm", "--bare", "--no-interfaces", "--no-rest", "--sock"]).arg(m.folder.path("sock2"));
        run(c.arg("--pib").arg(&pib).stdin(Stdio::null()))
    };
    assert!(refused.code != 0 && refused.err.contains("every user may write"), "{}", refused.err);
}
