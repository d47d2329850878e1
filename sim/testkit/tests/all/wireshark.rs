//! What the simulator records can be read by Wireshark without complaint. Needs `tshark`; says so, and passes, without it.

use neater_testkit::replay::replay;
use std::process::Command;

#[test]
fn wireshark_finds_nothing_wrong_with_a_record() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no tshark on this machine; install the package of that name to check packet records");
        return;
    }
    let dir = std::env::temp_dir().join(format!("neater-wireshark-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let records: Vec<_> = replay(3).into_iter().filter(|(name, _)| name.ends_with(".pcapng")).collect();
    assert_eq!(records.len(), 2);
    for (name, bytes) in records {
        let path = dir.join(&name);
        std::fs::write(&path, bytes).unwrap();
        let tshark = |filter: &str| {
            let mut command = Command::new("tshark");
            command.arg("-r").arg(&path).args(["-Y", filter]);
            for check in ["ip.check_checksum", "tcp.check_checksum", "udp.check_checksum"] {
                command.args(["-o", &format!("{check}:TRUE")]);
            }
            // Put together again, a stream with retransmissions makes it complain of the overlap, in any network.
            command.args(["-o", "tcp.desegment_tcp_streams:FALSE"]);
            let out = command.output().unwrap();
            assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let wrong = "_ws.malformed or ip.checksum.status==0 or tcp.checksum.status==0 or udp.checksum.status==0";
        let found = tshark(wrong);
        assert!(found.is_empty(), "{name}: {} packets, such as {:?}", found.len(), found.first());
        for kind in ["quic", "tls", "tcp.flags.syn==1", "udp"] {
            assert!(!tshark(kind).is_empty(), "{name}: no {kind}");
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
