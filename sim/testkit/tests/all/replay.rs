//! A run with engines, QUIC, TLS and traffic is repeated byte by byte.

use neater_testkit::replay::replay;

#[test]
fn a_seed_gives_the_same_records_and_another_seed_gives_others() {
    let first = replay(7);
    let names: Vec<_> = first.iter().map(|(n, _)| n.as_str()).collect();
    for wanted in [
        "trace.csv",
        "trace-bottleneck-left.pcapng",
        "trace-bottleneck-right.pcapng",
        "trace-queue.csv",
        "trace-tcp.csv",
        "trace-summary.txt",
    ] {
        assert!(names.contains(&wanted), "{names:?}");
    }
    // The server has an endpoint for each family; only one of them is called.
    for side in ["trace-l1-client", "trace-r1-server"] {
        let own = first.iter().filter(|(n, _)| n.starts_with(side) && n.ends_with(".qlog"));
        let sent = own.map(|(_, bytes)| String::from_utf8_lossy(bytes).matches("packet_sent").count());
        let sent: Vec<_> = sent.collect();
        assert!(sent.iter().any(|n| *n > 100), "{side}: {sent:?}");
    }
    let again = replay(7);
    for ((name, a), (other, b)) in first.iter().zip(&again) {
        assert_eq!(name, other);
        assert!(a == b, "{name} differs at byte {:?}", a.iter().zip(b).position(|(x, y)| x != y));
    }
    assert_eq!(first.len(), again.len());
    let different = replay(8);
    assert!(first[0].1 != different[0].1);
}
