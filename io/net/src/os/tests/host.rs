//! Interfaces, routes and name files, as they change under us.

use super::super::OsNetOptions;
use super::*;
use neater_base::net::InterfaceKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs a test on a thread with a network of its own: a loopback that is down, and nothing else.
pub(super) fn elsewhere(test: impl FnOnce() + Send + 'static) {
    std::thread::spawn(|| {
        // SAFETY: moves this thread, which is about to end, into a new network namespace.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            eprintln!("skipped: not allowed to make a network namespace");
            return;
        }
        test();
    })
    .join()
    .unwrap();
}

/// Runs ip(8), which inherits the thread's network.
pub(super) fn ip(arguments: &str) -> bool {
    let run = Command::new("ip").args(arguments.split(' ')).stderr(Stdio::inherit()).status();
    let done = run.is_ok_and(|status| status.success());
    if !done {
        eprintln!("skipped: cannot run ip {arguments}");
    }
    done
}

fn changed(net: &mut OsNet) {
    let events = until(net, "PathsChanged", |events| events.contains(&NetEvent::PathsChanged));
    assert_eq!(events.len(), 1, "{events:?}");
}

/// No more events for a while.
fn quiet(net: &mut OsNet) {
    let (mut events, end) = (Vec::new(), net.now() + Duration::from_millis(150));
    while net.now() < end {
        readable(net.as_raw_fd(), Duration::from_millis(20));
        net.poll(&mut events);
    }
    assert_eq!(events, []);
}

#[test]
fn changes_of_addresses_and_routes_are_told_together_and_once() {
    elsewhere(|| {
        let mut net = OsNet::new().unwrap();
        let [lo] = net.interfaces() else { panic!("{:?}", net.interfaces()) };
        assert!(lo.kind == InterfaceKind::Loopback && !lo.up && lo.addrs.is_empty());
        let far = IpAddr::from([198, 51, 100, 1]);
        assert_eq!(net.source_for(far), None);

        if !ip("link set lo up") {
            return;
        }
        changed(&mut net);
        let lo = &net.interfaces()[0];
        assert!(lo.up && !lo.default_v4);
        assert!(lo.addrs.iter().any(|a| a.addr == V4 && a.prefix == 8 && !a.temporary && !a.deprecated));
        quiet(&mut net);

        assert!(ip("addr add 192.0.2.7/24 dev lo") && ip("route add default dev lo src 192.0.2.7"));
        changed(&mut net);
        assert!(net.interfaces()[0].default_v4);
        assert_eq!(net.source_for(far), Some(IpAddr::from([192, 0, 2, 7])));
        quiet(&mut net);

        // A route that is no default changes sources, though no interface.
        assert!(ip("addr add 192.0.2.8/32 dev lo"));
        changed(&mut net);
        assert!(ip("route add 198.51.100.0/24 dev lo src 192.0.2.8"));
        changed(&mut net);
        assert_eq!(net.source_for(far), Some(IpAddr::from([192, 0, 2, 8])));

        assert!(ip("link set lo down"));
        changed(&mut net);
        assert!(!net.interfaces()[0].up && !net.interfaces()[0].default_v4);
        assert_eq!(net.source_for(far), None);
    });
}

#[test]
fn virtual_links_are_told_apart_and_come_and_go() {
    elsewhere(|| {
        let mut net = OsNet::new().unwrap();
        assert_eq!(net.interfaces().len(), 1);
        if !ip("link add lan0 type veth peer name lan1") {
            return;
        }
        changed(&mut net);
        let kinds: Vec<_> = net.interfaces().iter().map(|i| (i.name.clone(), i.kind)).collect();
        assert_eq!(kinds.len(), 3);
        assert!(
            kinds[1..].iter().all(|(name, kind)| name.starts_with("lan") && *kind == InterfaceKind::Wired),
            "{kinds:?}"
        );
        assert!(ip("link del lan0"));
        changed(&mut net);
        assert_eq!(net.interfaces().len(), 1);
    });
}

#[test]
fn the_source_towards_an_address_is_the_one_a_socket_would_have() {
    let mut net = OsNet::new().unwrap();
    assert_eq!(net.source_for(V4), Some(V4));
    assert_eq!(net.source_for(IpAddr::from([127, 9, 9, 9])), Some(V4).or(net.source_for(V4)));
    assert_eq!(net.source_for(V4), Some(V4), "and asking again does not change it");
    for family in families() {
        assert_eq!(net.source_for(family), Some(family));
    }
    assert_eq!(net.source_for(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into()), Some(V4));
}

#[test]
fn what_is_not_asked_for_is_not_opened() {
    let net = OsNet::new().unwrap();
    assert_eq!(format!("{:?}", net.paths), format!("{:?}", super::super::paths::Paths::default()));
    assert!(net.names.known().is_none() && net.udp.is_none());
}

/// A directory of its own that goes away.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("neater-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn names(resolv_conf: &Path, hosts: &Path) -> OsNet {
    OsNet::with_options(OsNetOptions { resolv_conf: resolv_conf.into(), hosts: hosts.into() }).unwrap()
}

fn names_changed(net: &mut OsNet) {
    let events = until(net, "NamesChanged", |events| events.contains(&NetEvent::NamesChanged));
    assert_eq!(events.len(), 1, "{events:?}");
}

#[test]
fn name_files_are_told_and_told_again_when_their_contents_change() {
    let dir = Dir::new("names");
    let resolv = dir.write("resolv.conf", "nameserver 192.0.2.1\n");
    let hosts = dir.0.join("hosts");
    let mut net = names(&resolv, &hosts);
    assert_eq!(net.name_config().resolv_conf, b"nameserver 192.0.2.1\n");
    assert_eq!(net.name_config().hosts, b"");
    quiet(&mut net);

    // Written into, created, replaced, removed.
    dir.write("resolv.conf", "nameserver 192.0.2.2\n");
    names_changed(&mut net);
    assert_eq!(net.name_config().resolv_conf, b"nameserver 192.0.2.2\n");
    dir.write("hosts", "127.0.0.1 here\n");
    names_changed(&mut net);
    assert_eq!(net.name_config().hosts, b"127.0.0.1 here\n");
    std::fs::rename(dir.write("new", "nameserver 192.0.2.3\n"), &resolv).unwrap();
    names_changed(&mut net);
    assert_eq!(net.name_config().resolv_conf, b"nameserver 192.0.2.3\n");
    std::fs::remove_file(&hosts).unwrap();
    names_changed(&mut net);
    assert_eq!(net.name_config().hosts, b"");

    // Neither another file nor the same contents are a change.
    dir.write("other", "x");
    dir.write("resolv.conf", "nameserver 192.0.2.3\n");
    quiet(&mut net);
}

#[test]
fn a_name_file_behind_a_link_is_watched_where_it_is_and_where_it_moves_to() {
    let (etc, run, later) = (Dir::new("etc"), Dir::new("run"), Dir::new("later"));
    let link = etc.0.join("resolv.conf");
    std::os::unix::fs::symlink(run.write("stub.conf", "one"), &link).unwrap();
    let mut net = names(&link, &etc.0.join("hosts"));
    assert_eq!(net.name_config().resolv_conf, b"one");
    run.write("stub.conf", "two");
    names_changed(&mut net);
    assert_eq!(net.name_config().resolv_conf, b"two");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(later.write("real.conf", "three"), &link).unwrap();
    names_changed(&mut net);
    assert_eq!(net.name_config().resolv_conf, b"three");
    later.write("real.conf", "four");
    names_changed(&mut net);
    assert_eq!(net.name_config().resolv_conf, b"four");
    run.write("stub.conf", "nobody looks here any more");
    quiet(&mut net);
}

#[test]
fn the_clocks_go_forward() {
    let net = OsNet::new().unwrap();
    let (a, b) = (net.now(), net.now());
    assert!(b >= a && a > neater_base::Instant::ZERO);
    let system = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(net.wall().0.abs_diff(system) < PATIENCE);
}

#[test]
fn a_process_that_was_stopped_is_told_for_how_long() {
    let mut net = OsNet::new().unwrap();
    let at = net.now() + Duration::from_millis(5);
    net.arm(Some(at), false);
    assert!(readable(net.as_raw_fd(), PATIENCE));
    // As if the deadline had come long ago.
    net.armed.as_mut().unwrap().at = at - Duration::from_secs(60);
    let mut events = Vec::new();
    net.poll(&mut events);
    assert!(matches!(events[..], [NetEvent::Resumed { gap }] if gap >= Duration::from_secs(60)), "{events:?}");
    net.poll(&mut events);
    assert_eq!(events.len(), 1, "told once");
}
