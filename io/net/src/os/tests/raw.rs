//! Packets of other IP protocols. Without the privilege for raw sockets the tests print that and
//! pass.

use super::*;
use neater_base::net::{Ecn, ErrorKind, RecvBatch, SocketOption, Transmit};

/// For experiments (RFC 3692 section 2.1): no other process on this machine listens for it.
const PROTOCOL: u8 = 253;

fn may(net: &mut OsNet) -> bool {
    let obstacle = net.raw_obstacle(PROTOCOL);
    if let Some(why) = obstacle {
        eprintln!("skipped: {why}");
        // The reason is the one that the system gives.
        let refused = net.raw(Token(9), PROTOCOL, at(V4), &SocketOptions::default()).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::PermissionDenied);
        assert!(why.contains("CAP_NET_RAW"));
    }
    obstacle.is_none()
}

#[test]
fn packets_arrive_without_their_ip_header_and_with_all_that_is_known_of_them() {
    let mut net = OsNet::new().unwrap();
    if !may(&mut net) {
        return;
    }
    for ip in families() {
        let sock = net.raw(Token(1), PROTOCOL, at(ip), &bound(ip)).unwrap();
        assert_eq!(net.local_addr(sock).unwrap(), at(ip), "no port");
        assert_eq!(net.max_segments(sock), 1);
        let mut batch = RecvBatch::default();
        assert!(net.recv(sock, &mut batch).unwrap_err().is_would_block());
        // A port in the destination means nothing.
        let destination = SocketAddr::new(ip, 4711);
        let contents = [7; 1234];
        let one = Transmit {
            destination,
            source: Some(ip),
            interface: None,
            ecn: Ecn::Ect0,
            segment_size: None,
            contents: &contents,
        };
        net.send(sock, &one).unwrap();
        // A train is cut up by us.
        net.send(sock, &Transmit { segment_size: Some(500), ..one }).unwrap();
        let mut lengths = Vec::new();
        while lengths.len() < 4 {
            match net.recv(sock, &mut batch) {
                Ok(_) => {
                    for (meta, data) in batch.filled() {
                        assert!(data.iter().all(|b| *b == 7) && meta.stride == data.len());
                        assert_eq!((meta.source, meta.local, meta.ecn), (at(ip), Some(ip), Ecn::Ect0));
                        lengths.push(data.len());
                    }
                }
                Err(_) => assert!(readable(net.as_raw_fd(), PATIENCE) && !net.poll(&mut Vec::new())),
            }
        }
        assert_eq!(lengths, [1234, 500, 500, 234]);
        net.close(sock);
    }
}

#[test]
fn an_error_of_the_network_quotes_the_packet() {
    let mut net = OsNet::new().unwrap();
    if !may(&mut net) {
        return;
    }
    for ip in families() {
        let options = SocketOptions { set: vec![SocketOption::IcmpErrors(true)], ..bound(ip) };
        let sock = net.raw(Token(1), PROTOCOL, at(ip), &options).unwrap();
        // An address of this host that the socket does not listen to: no socket has the protocol
        // there.
        let nobody: IpAddr = if ip.is_ipv4() { [127, 0, 0, 77].into() } else { continue };
        let contents: Vec<u8> = (0..100).collect();
        let destination = SocketAddr::new(nobody, 0);
        let transmit = Transmit {
            destination,
            source: None,
            interface: None,
            ecn: Ecn::NotEct,
            segment_size: None,
            contents: &contents,
        };
        net.send(sock, &transmit).unwrap();
        let error = loop {
            if let Some(error) = net.take_icmp_error(sock) {
                break error;
            }
            assert!(readable(net.as_raw_fd(), PATIENCE) && !net.poll(&mut Vec::new()));
        };
        assert_eq!((error.icmp_type, error.icmp_code), (3, 2), "protocol unreachable (RFC 792)");
        assert_eq!(error.destination.map(|d| d.ip()), Some(nobody));
        assert_eq!(error.quoted.as_slice(), &contents[..error.quoted.as_slice().len()]);
        assert!(error.quoted.as_slice().len() >= 8);
        net.close(sock);
    }
}
