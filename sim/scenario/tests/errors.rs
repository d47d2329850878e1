//! What is wrong is told with its place and with what is allowed, and nothing makes the parser panic.

use neater_scenario::{MAX_DOCUMENT, Scenario};
use proptest::prelude::*;

fn error(text: &str) -> String {
    Scenario::parse(text, &[]).expect_err(text).to_string()
}

const GOOD: &str = "[topology]\nkind = 'dumbbell'\npairs = 1\nbottleneck = { rate = '1 Mbit/s', delay = '5 ms' }\n\
    [traffic.t]\nfrom = 'l1'\nto = 'r1'\n";

#[test]
fn errors_name_line_column_key_and_what_is_allowed() {
    let cases: &[(&str, &[&str])] = &[
        ("name = 3", &["line 1, column 8", "name", "a number", "string"]),
        ("name = 'a b'", &["not a name"]),
        ("x = 1", &["line 1, column 1", "x", "unknown key", "topology", "traffic"]),
        ("[topology]\nkind = 'ring'", &["line 2, column 8", "topology.kind", "dumbbell", "fat-tree"]),
        ("[topology]\nkind = 'dumbbell'\npiars = 3", &["line 3, column 1", "topology.piars", "pairs"]),
        ("[host.a]\n[host.b]\n[link.x]\nfrom='a'\nto='b'\nrate = '5 Mbps'", &["line 6", "link.x.rate", "Mbit/s"]),
        ("[host.a]\n[host.b]\n[link.x]\nfrom='a'\nto='b'\nrate = 5", &["line 6", "link.x.rate", "10 Mbit/s"]),
        ("[host.a]\n[host.b]\n[link.x]\nfrom='a'\nto='c'", &["line 5", "no node \"c\""]),
        ("[host.a]\n[link.x]\nfrom='a'\nto='a'", &["link.x", "to itself"]),
        ("[host.a]\n[host.b]\n[link.x]\nfrom='a'\nto='b'\nbdp_rtt='1 s'", &["line 6", "did you mean bdp-rtt"]),
        ("[host.a]\n[host.b]\n[link.x]\nfrom='a'\nto='b'\nqueue='1 BDP'", &["link.x.queue", "needs a rate"]),
        ("[host.a]\n[router.a]", &["router.a", "already"]),
        ("[host.a]\n[host.b]\n[link.x]\nfrom='a'\nto='b'\nfrom-addresses='10.0.0.1'", &["line 6", "prefix"]),
        (
            "[host.a]\n[host.b]\n[link.x]\nfrom='a'\nto='b'\nfrom-addresses='10.0.0.1/24'\nto-addresses='10.0.0.1/24'",
            &["used twice"],
        ),
        ("name = '$x'", &["line 1, column 8", "no parameter $x"]),
        ("a = [", &["line 1", "not TOML"]),
        ("duration = 2026-01-01", &["line 1", "dates"]),
        ("[topology]\nkind='fat-tree'\nk=5", &["even"]),
        ("[topology]\nkind='access-tree'\nfan-out=[1000,1000]", &["levels"]),
        ("[topology]\nkind='dumbbell'\nbottleneck={loss='101 %'}", &["line 3", "topology.bottleneck.loss", "100 %"]),
    ];
    for (text, parts) in cases {
        let message = error(text);
        for part in *parts {
            assert!(message.contains(part), "{text:?}: {message:?} lacks {part:?}");
        }
    }
    let more: &[(&str, &[&str])] = &[
        ("[traffic.u]\nfrom='l1'\nto='nobody'", &["line 10", "traffic.u.to", "l1, r1"]),
        ("[traffic.u]\nfrom='l1'\nto='left'", &["no host \"left\""]),
        ("[traffic.u]\nkind='video'\nfrom='l1'\nto='r1'", &["needs a rate"]),
        ("[traffic.u]\nkind='web'\nfrom='l1'\nto='r1'\nobject={law='pareto',shape=0.9,mean='1 kB'}", &["no mean"]),
        ("[[schedule]]\nat='1 s'\nlink='nothing'\nrate='1 Mbit/s'", &["line 10", "bottleneck"]),
        ("[[schedule]]\nat='1 s'\nevery='1 ns'\nlink='bottleneck'", &["every"]),
        ("[[probe]]\ntcp='u'", &["no traffic \"u\"", "t"]),
        ("[[route]]\nnode='left'\nto='r1'\nvia='r1'", &["[links at the node]: bottleneck, l1"]),
        ("[[schedule]]\nat='1 s'\ninterface='l1.eth7'\nup=false", &["no interface"]),
        ("[[schedule]]\nat='1 s'\ninterface='left.eth0'\nup=false", &["line 10", "at a router", "down = true"]),
        ("[[schedule]]\nat='1 s'\ninterface=[]\nup=false", &["line 8", "interface needs one"]),
        ("[[schedule]]\nat='1 s'\nrate='1 Mbit/s'", &["line 8", "needs link", "rebind"]),
        ("[[schedule]]\nat='1 s'\nrebind='left'", &["line 10", "].rebind", "no NAT box"]),
        ("[[schedule]]\nat='1 s'\nrebind='left'\nrestart='left'", &["either"]),
        ("[router.left.nat]\noutside='r1'\n", &["router.left.nat", "not at this router"]),
        (
            "[router.left.nat]\noutside='bottleneck'\n[[schedule]]\nat='1 s'\nrebind='left'\naddress='10.9.9.9'",
            &["line 13", "].address", "bottleneck"],
        ),
    ];
    for (text, parts) in more {
        let message = error(&format!("{GOOD}{text}"));
        for part in *parts {
            assert!(message.contains(part), "{text:?}: {message:?} lacks {part:?}");
        }
    }
}

#[test]
fn an_override_that_means_nothing_is_named() {
    let with = |k: &str, v: &str| Scenario::parse(GOOD, &[(k.into(), v.into())]).map_err(|e| e.to_string());
    assert!(with("bottleneck", "1 Mbit/s").unwrap_err().starts_with("--set bottleneck: neither a parameter"));
    assert!(
        with("link.bottleneck.rate", "fast")
            .unwrap_err()
            .starts_with("--set link.bottleneck.rate: link.bottleneck.rate:")
    );
    assert!(with("topology..x", "1").unwrap_err().contains("empty name"));
    assert!(with("topology.kind.x", "1").unwrap_err().contains("not a table"));
    let changed = with("link.bottleneck.rate", "2 Mbit/s").unwrap();
    assert_eq!(changed.links[0].directions[0].config.rate, neater_link::Rate::Fixed(2_000_000));
    assert_eq!(with("seed", "7").unwrap().seed, 7);
}

#[test]
fn sizes_are_bounded() {
    assert!(error(&" ".repeat(MAX_DOCUMENT + 1)).contains("longer than"));
    let deep = format!("x = {}{}", "[".repeat(50_000), "]".repeat(50_000));
    assert!(error(&deep).contains("TOML"));
    let many = format!("{GOOD}[traffic.u]\nfrom='l1'\nto='r1'\nflows=100000");
    assert!(error(&many).contains("100000 flows"));
}

#[test]
fn schedules_are_bounded_before_they_are_made() {
    // Each entry alone is allowed; the sixth of them would take them past what a scenario may have.
    let nat = "[router.left.nat]\noutside='bottleneck'\n";
    for (what, first) in
        [("interface='l1.eth0'\nup=false", 8), ("rebind='left'", 10), ("link='bottleneck'\nmtu=1400", 8)]
    {
        let head = if what.starts_with("rebind") { nat } else { "" };
        let entry = format!("[[schedule]]\nat='0 s'\nevery='1 ms'\nuntil='19 s'\n{what}\n");
        let error = error(&format!("duration='20 s'\n{GOOD}{head}{}", entry.repeat(20)));
        assert!(error.contains("more than 100000 changes"), "{what}: {error}");
        let line: usize = error.split("line ").nth(1).and_then(|t| t.split(',').next()?.parse().ok()).expect(&error);
        let lines = entry.lines().count();
        // A link's change is one event for each direction.
        let last = if what.starts_with("link") { 2 } else { 5 };
        assert_eq!(line, first + 1 + last * lines, "{what}: {error}");
    }
    let filters = "'udp',".repeat(40);
    let rules = format!("[[schedule]]\nat='0 s'\nevery='1 ms'\nuntil='19 s'\nlink='bottleneck'\ndrop=[{filters}]\n");
    let error = error(&format!("duration='20 s'\n{GOOD}{rules}"));
    assert!(error.contains("filters in all changes"), "{error}");
}

#[test]
fn changes_share_what_is_large() {
    let packets: String = (0..100_000).map(|n| format!("{n},")).collect();
    let change = "[[schedule]]\nat='0 s'\nevery='1 ms'\nuntil='19 s'\nlink='bottleneck'\n";
    let text = format!("duration='20 s'\n{GOOD}{change}loss={{packets=[{packets}]}}\n");
    let scenario = Scenario::parse(&text, &[]).expect("allowed");
    let sets = scenario.events.iter().filter_map(|e| match &e.action {
        neater_scenario::Action::Link { config, .. } => match &config.config.loss {
            neater_link::Loss::Indices(set) => Some(set),
            _ => None,
        },
        _ => None,
    });
    let sets: Vec<_> = sets.collect();
    assert_eq!(sets.len(), 2 * 19_001);
    assert!(sets.iter().all(|set| std::sync::Arc::ptr_eq(set, sets[0])));
}

proptest! {
    #[test]
    fn no_document_makes_the_parser_panic(text in "[ -~\\n]{0,200}") {
        let _ = Scenario::parse(&text, &[]);
    }

    #[test]
    fn no_change_of_a_good_document_makes_the_parser_panic(at in 0usize..150, with in "[ -~\\n]{0,8}", cut in 0usize..8) {
        let at = at.min(GOOD.len());
        let end = (at + cut).min(GOOD.len());
        let text = format!("{}{with}{}", &GOOD[..at], &GOOD[end..]);
        let _ = Scenario::parse(&text, &[]);
    }

    #[test]
    fn no_override_makes_the_parser_panic(key in "[a-z.$]{0,20}", value in "[ -~]{0,20}") {
        let _ = Scenario::parse(GOOD, &[(key, value)]);
    }
}

#[test]
fn what_would_mean_something_else_than_it_says_is_refused() {
    let two = "[host.a]\n[host.b]\n[link.l]\nfrom='a'\nto='b'\n";
    for (text, why) in [
        (format!("{two}[traffic.t]\nfrom='a'\nto='b'\nip=5\n"), "ip is 4 or 6"),
        (format!("{two}[router.r]\ntcp={{sack=true}}\n"), "tcp is for hosts"),
        (format!("{two}[[route]]\nnode='a'\nto='b'\non=['l','l']\nvia='l'\n"), "one link"),
        ("[host.a]\nlab={sysctl={'kernel.panic'=1}}\n".to_owned(), "network namespace"),
        ("[host.a]\nlab={sysctl={'net.../../x'='1'}}\n".to_owned(), "network namespace"),
        ("[host.a]\nlab={congestion='a b'}\n".to_owned(), "kernel's name"),
        ("[host.a]\n[router.r]\nnat={outside='l',first-port=9,last-port=8}\n".to_owned(), "above last-port"),
    ] {
        let said = error(&text);
        assert!(said.contains(why), "{text}: {said}");
    }
}
