//! The inputs that targets start from: one that gets far into the code for each of its branches, and no more.

type Seeds = &'static [&'static [u8]];

/// Questions for A, AAAA and HTTPS, the last with an OPT record.
pub(crate) const DNS_ANSWER: Seeds = &[
    b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x04test\x00\x00\x01\x00\x01",
    b"\x12\x35\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07example\x04test\x00\x00\x1c\x00\x01",
    b"\x12\x36\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\x07example\x04test\x00\x00\x41\x00\x01\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00",
];

pub(crate) const DNS_CONFIG: Seeds = &[
    b"nameserver 192.0.2.1\nnameserver 2001:db8::1#5353\nsearch example.com test\noptions ndots:2 timeout:3 attempts:4 rotate use-vc edns0 trust-ad\n",
    b"domain a.b\nnameserver fe80::1%3\nnameserver [2001:db8::1]:53\n; comment\n",
];

pub(crate) const DNS_HOSTS: Seeds = &[
    b"127.0.0.1 localhost\n::1 localhost ip6-localhost # loop\n192.0.2.7 Host.Example. alias\n",
    b"10.0.0.1 a\n10.0.0.2 a a.\n",
];

/// Triples of operation and arguments: lookups, true and damaged answers, TCP, failure, time.
pub(crate) const DNS_RESOLVER: Seeds = &[
    b"\x00\x00\x07\x01\x00\x00\x01\x01\x00\x01\x02\x00\x07\x00\x00",
    b"\x00\x01\x03\x02\x00\x02\x02\x04\x00\x01\x04\x01\x01\x00\x05\x40\x00\x01\x02\x00",
    b"\x00\x02\x07\x01\x00\x00\x01\x01\x00\x01\x02\x00\x01\x03\x00\x06\x00\x00\x00\x05\x03",
    b"\x00\x00\x01\x04\x00\x00\x05\xff\x00\x03\x00\x04abcd\x00\x03\x07\x01\x00\x00",
];

pub(crate) const DNS_ZONE: Seeds = &[
    b"$TTL 30\n$NEGATIVE 10\nexample.test A 10.0.0.1\nexample.test 5 AAAA 2001:db8::1\nwww.example.test CNAME example.test\n",
    b"example.test HTTPS 1 . alpn=h3,h2 port=443 ipv4hint=10.0.0.1 ipv6hint=2001:db8::1 # best\ns.test HTTPS 0 example.test\n",
];

/// The first byte chooses width and limit.
pub(crate) const FRAMING_LENGTH: Seeds =
    &[b"\x01\x03abc\x00\x02de", b"\x02\x00\x03abc\x00\x00", b"\x78\0\0\0\0\0\0\0\x01a"];

/// Commands with either end, a line at its limit, and one that is not whole.
pub(crate) const FRAMING_LINES: Seeds = &[b"\0EHLO a\r\nQUIT\n\r\n", b"\x155 byt\r\n5 byt\r6 byte\n", b"\x02a\nb"];

/// A request, a profile, a policy and a node; the byte before each file says what it is.
pub(crate) const POLICY_MANAGER: Seeds = &[
    b"[{\"transport\":{\"value\":[\"TCP\",\"SCTP\"]},\"a\":[{\"value\":1},{\"value\":2}]}]\0\x33{\"match\":{},\"properties\":{\"a\":{\"value\":1,\"precedence\":0}}}\0\x31{\"match\":{\"a\":{\"value\":{\"start\":0,\"end\":5}}},\"properties\":[[{\"b\":{\"score\":1}},{\"a\":{\"value\":1,\"precedence\":2}}]]}\0\x32{\"root\":true,\"expire\":-1,\"properties\":{\"i\":{\"value\":\"if0\",\"precedence\":2},\"b\":{}}}",
    b"[[{\"local_endpoint\":{\"value\":\"1@i\"}},[{\"transport\":{}},{\"transport\":{\"value\":\"x\"}}]]]\0\x32{\"uid\":\"B\",\"link\":true,\"match\":[{}],\"properties\":{}}\0\x32{\"uid\":\"A\",\"root\":true}",
];

/// The example of RFC 8801 with a document of its domain; routes and search lists of an advertisement without one.
#[rustfmt::skip]
pub(crate) const POLICY_PVD: Seeds = &[
    b"\x38\x86\x00\x00\x00\x40\x00\x07\x08\x00\x00\x00\x00\x00\x00\x00\x00\x15\x0c\x80\x01\x00\x7b\x07\x65\x78\x61\x6d\x70\x6c\x65\x03\x6f\x72\x67\x00\x00\x00\x00\x00\x00\x19\x05\x00\x00\x00\x00\x0e\x10\x20\x01\x0d\xb8\xca\xfe\x00\x00\x00\x00\x00\x00\x00\x00\x00\x53\x20\x01\x0d\xb8\xf0\x0d\x00\x00\x00\x00\x00\x00\x00\x00\x00\x53\x03\x04\x40\xc0\x00\x01\x51\x80\x00\x00\x38\x40\x00\x00\x00\x00\x20\x01\x0d\xb8\xf0\x0d\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x26\x7b\x22\x69\x64\x65\x6e\x74\x69\x66\x69\x65\x72\x22\x3a\x22\x65\x78\x61\x6d\x70\x6c\x65\x2e\x6f\x72\x67\x22\x2c\x22\x65\x78\x70\x69\x72\x65\x73\x22\x3a\x22\x32\x31\x30\x30\x2d\x30\x31\x2d\x30\x31\x54\x30\x30\x3a\x30\x30\x3a\x30\x30\x5a\x22\x2c\x22\x70\x72\x65\x66\x69\x78\x65\x73\x22\x3a\x5b\x22\x32\x30\x30\x31\x3a\x64\x62\x38\x3a\x3a\x2f\x33\x32\x22\x5d\x2c\x22\x76\x65\x6e\x64\x6f\x72\x2d\x6e\x65\x61\x74\x65\x72\x22\x3a\x7b\x22\x63\x61\x70\x61\x63\x69\x74\x79\x22\x3a\x31\x2c\x22\x69\x6e\x74\x65\x72\x66\x61\x63\x65\x22\x3a\x22\x78\x22\x7d\x7d\x20\x20\x20\x20\x20\x20\x20\x03\xc8\x38\x86\x00\x00\x00\x40\x00\x07\x08\x00\x00\x00\x00\x00\x00\x00\x00\x15\x0c\x80\x01\x00\x7b\x07\x65\x78\x61\x6d\x70\x6c\x65\x03\x6f\x72\x67\x00\x00\x00\x00\x00\x00\x19\x05\x00\x00\x00\x00\x0e\x10\x20\x01\x0d\xb8\xca\xfe\x00\x00\x00\x00\x00\x00\x00\x00\x00\x53\x20\x01\x0d\xb8\xf0\x0d\x00\x00\x00\x00\x00\x00\x00\x00\x00\x53\x03\x04\x40\xc0\x00\x01\x51\x80\x00\x00\x38\x40\x00\x00\x00\x00\x20\x01\x0d\xb8\xf0\x0d\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
    b"\x1d\x86\x00\x00\x00\x40\x00\x07\x08\x00\x00\x00\x00\x00\x00\x00\x00\x18\x02\x20\x00\x00\x00\x01\x00\x20\x01\x0d\xb8\x00\x00\x00\x00\x1f\x03\x00\x00\x00\x00\x01\x00\x01\x61\x07\x65\x78\x61\x6d\x70\x6c\x65\x00\x00\x00\x00\x00\x00",
];

pub(crate) const PROPERTY_NEAT: Seeds = &[
    br#"{"transport":{"value":["SCTP","TCP"],"precedence":2,"score":1.5,"banned":["UDP"]},"mtu":{"value":{"start":100,"end":1500},"precedence":1}}"#,
    br#"[[{"a":{"value":true}},{"b":{"value":1}}],{"c":{"value":null,"evaluated":true}}]"#,
    br#"{"match":{"value":"x","precedence":1},"n":{"value":-0.5}}"#,
];

pub(crate) const PROPERTY_PARSE: Seeds = &[
    b"reliable,encrypted,low-delay,multistreaming=avoid",
    b"reliable-datagram no-zeroRttMsg, preserveMsgBoundaries connTimeout=5 interface=require:eth0",
];

/// Pauses, answers of both families, services, progress of candidates.
pub(crate) const RACE_EVENTS: Seeds = &[
    b"\x01\x00\x20\x01\x02\x01\x04\x20\x01\x02\x60\x06\x00\x41\x06\x10",
    b"\x00\x01\x10\x07\x05\x04\x10\x09\x7f\x02\x00\x41\x0e\x00\x7f\x06\x10",
    b"\x00\x08\x00\x00\x0c\x00\x00\x08\x01\x00\x0c\x01\x00\x21\x00",
];

/// Lines of a file of outcomes below its header, at 1,000,000 s; behind `=`, a header as well.
pub(crate) const RACE_SAVED: Seeds = &[
    b"k 1 2 ffffffffffffffff 1 999999000\no 5 192.0.2.1:443 0 1000000500 1 1234000\nb 6 [fe80::1%3]:443 1 3 999990000 1000000000 2\nend\n",
    b"r 1 2 5 113000000 1086399000\nk 1 2 3 0 0\nb 6 [2001:db8::1]:443 6 0 999999999 1000599999 0\nk 2 2 3 0 0\no 1 192.0.2.1:80 0 1000600000 0 0\nend\n",
    b"=neater-outcomes 1 0.1.0 1000000000 5\nend\n",
];

/// Packets of usrsctp, from the captures in `crates/sctp-wire/tests/golden`.
pub(crate) const SCTP_WIRE_PACKET: Seeds = &[
    include_bytes!("../seeds/sctp/abort.bin"),
    include_bytes!("../seeds/sctp/auth.bin"),
    include_bytes!("../seeds/sctp/cookie_echo.bin"),
    include_bytes!("../seeds/sctp/data.bin"),
    include_bytes!("../seeds/sctp/forward_tsn.bin"),
    include_bytes!("../seeds/sctp/heartbeat.bin"),
    include_bytes!("../seeds/sctp/i_data.bin"),
    include_bytes!("../seeds/sctp/i_forward_tsn.bin"),
    include_bytes!("../seeds/sctp/init.bin"),
    include_bytes!("../seeds/sctp/init_ack.bin"),
    include_bytes!("../seeds/sctp/re_config.bin"),
    include_bytes!("../seeds/sctp/sack_gaps.bin"),
    include_bytes!("../seeds/sctp/shutdown.bin"),
];

pub(crate) const TLS_PEM: Seeds = &[
    b"-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n",
    b"-----BEGIN PRIVATE KEY-----\nMAMCAQE=\n-----END PRIVATE KEY-----\n-----BEGIN EC PRIVATE KEY-----\nMAMCAQE=\n-----END EC PRIVATE KEY-----\n",
    b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAMCAQE=\n-----END ENCRYPTED PRIVATE KEY-----\n",
];

/// Connections of every kind that talk and part.
pub(crate) const ENGINE_COMMANDS: &[&[u8]] = &[
    // Open each kind, wait, send, wait, receive, close.
    b"\x00\x00\x3f\x06\x08\x00\x10\x3f\x06\x13\x00\x20\x3f\x06\x1a\x00\x3f\x0b",
    b"\x00\x01\x3f\x07\x08\x00\x10\x3f\x06\x13\x00\x20\x3f\x06\x1e\x00\x3f\x0b",
    b"\x00\x02\x3f\x07\x08\x00\x10\x20\x00\x00\x3f\x06\x22\x00\x13\x00\x20\x26\x00\x00\x3f\x0b",
    b"\x40\x04\x3f\x07\x08\x00\x16\x3f\x06\x1c\x00\x07\x3f\x0b\x40\x04\x3f\x0b",
    b"\x00\x05\x08\x00\x10\x3f\x06\x13\x00\x20\x00\x06\x3f\x07\x08\x01\x10\x3f\x06",
    b"\x00\x02\x3f\x07\x2c\x42\x08\x00\x20\x3f\x0b\x2c\x02\x30\x3f\x0b\x2e\x02\x05garba\x2a\x82\x3f\x08",
];

/// A line for each field: Range and Content-Range, If-Range, If-Match, If-None-Match, two dates, the length of the file.
pub(crate) const HTTP_CONDITIONS: Seeds = &[
    b"0bytes=1-5\n1\"a\"",
    b"0bytes=-5\n2*\n3W/\"b\", \"a\"\nx\x01\x02",
    b"0bytes=5-\n1Sun, 09 Sep 2001 01:46:40 GMT\n4Sun, 09 Sep 2001 01:46:40 GMT\n5Sun, 09 Sep 2001 01:46:39 GMT",
    b"0bytes 5-9/10\n0bytes */10\n0bytes 5-9/*",
];

/// A URL, NUL, a Location.
pub(crate) const HTTP_URL: Seeds = &[
    b"https://example.com:8443/a/./b/../c%20d?q=1#frag\0../x?y",
    b"[2001:db8::1]:443?x\0//other/path",
    b"http://[fe80::1%25eth0]/\0?only",
    b"h/\xc3\xbc \0https://h:1/%2e%2e/x",
];

/// A kind of box, its range of ports and its table; then pairs of operation and who.
pub(crate) const LINK_NAT: Seeds = &[
    b"\x00\xff\x40\x03\x01\x03\x22\x02\x04\x00\x64\x01\x00\x03\x01\x02\x07",
    b"\x2a\x03\x03\x1b\x01\x2a\x01\x6b\x01\x03\x81\x01\x01\x03\x81",
];

/// A configuration, byte by byte; then operations: changes, time, packets.
pub(crate) const LINK_PACKETS: Seeds = &[
    b"\x05\x32\x01\x05\x05\x02\x04\x00\x00\x00\x01\x01\x00\x00\x00\x0a\x04\xff\x02\x00\x00\xf4\xff\xf4\xff\x01\x05\xf4\xff\x02\x02",
    b"\x00\x00\x03\x10\x20\x30\x40\x05\x01\x03\x00\x00\x03\x01\x03\x04\x02\x02\x00\x40\x01\x00\x00\xfc\x80\xfc\x80\x02\x02\x01\x07",
];

pub(crate) const LINK_TRACE: Seeds = &[b"0\n1\n1\n7\n", b"12\n15\n15\n\n4294967295\n"];

/// Configuration, then commands: connect, deliver, send, read, wait, shut down; with changes of addresses, streams and keys.
pub(crate) const SCTP_COMMANDS: Seeds = &[
    b"\x20\x00\x00\x08\x09\x08\x09\x08\x09\x08\x09\x02\x10\x00\x03\x20\x00\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x02\x10\x01\x03\x20\x01\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x02\x10\x02\x03\x20\x02\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x02\x10\x03\x03\x20\x03\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x2c\x08\x09\x08\x09\x08\x09",
    b"\x36\x70\x00\x08\x09\x08\x09\x08\x09\x08\x09\x02\x10\x00\x03\x20\x00\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x02\x10\x01\x03\x20\x01\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x02\x10\x02\x03\x20\x02\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x02\x10\x03\x03\x20\x03\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x36\x01\x08\x09\x08\x09\x08\x09\x08\x09\x2c\x08\x09\x08\x09\x08\x09",
    b"\x2e\xf0\x00\x08\x09\x08\x09\x08\x09\x08\x09\x02\x10\x00\x03\x20\x00\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x02\x10\x01\x03\x20\x01\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x02\x10\x02\x03\x20\x02\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x02\x10\x03\x03\x20\x03\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x30\x80\x35\x31\x26\x26\x26\x2c\x08\x09\x08\x09\x08\x09",
    b"\x70\x01\x00\x08\x09\x08\x09\x08\x09\x08\x09\x02\x10\x00\x03\x20\x00\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x02\x10\x01\x03\x20\x01\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x02\x10\x02\x03\x20\x02\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x02\x10\x03\x03\x20\x03\x08\x08\x08\x08\x09\x09\x09\x09\x28\x29\x20\x00\xc8\x08\x08\x09\x09\x14\x26\x39\x20\x3a\xaa\x1c\x04\x06\x00\x00\x04\x2c\x08\x09\x08\x09\x08\x09",
];

/// The first byte chooses the versions; then pairs of what and which: a handshake to its end, with a message; with the first
/// flight lost and time passing; with damage and forgery.
pub(crate) const DTLS_SESSION: Seeds = &[
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\x21\x00\x00\x87\x22\x00\x00",
    b"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\x21\x00\x00\x87\x22\x00\x00",
    b"\x02\x02\x00\x06\xff\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\x21\x00\x00",
    b"\x02\x00\x00\x04\x01\x09\x06\xff\x05\x03\x16\xfe\xfd\x00\x00\x00\x00\x00\x00\x00\x00",
];

/// Pieces of a first byte and what is said: nodes, policies and profiles of two users, a question in the compact form, REST.
pub(crate) const POLICY_DAEMON: Seeds = &[
    b"\x02{\"uid\": \"eth0\", \"root\": true, \"properties\": {\"interface\": {\"value\": \"eth0\"}, \"security\": {\"value\": false}}}\0\x05{\"uid\": \"p\", \"match\": {\"transport\": {\"value\": \"TCP\"}}, \"properties\": {\"x\": {\"value\": 1, \"score\": 3}}}\0\x04[{\"transport\": {\"value\": \"TCP\"}}]",
    b"\x01{\"uid\": \"q\", \"policy_type\": \"profile\", \"match\": {\"security\": {\"value\": true}}, \"replace_matched\": true, \"properties\": {\"security\": {\"value\": false}}}\0\x06{\"uid\": \"tun0\", \"root\": true, \"expire\": -1, \"properties\": {\"interface\": {\"value\": \"tun0\", \"score\": 9}}}",
    b"\x80site\n{\"match\": {\"app\": {\"value\": \"x\"}}, \"properties\": {\"dscp\": {\"value\": 10}}}\0\x81eth0\n{\"root\": true}\0\x82site\0\x85a\n{}\0\x87a",
    b"\x14\xb5\x01\x07\x1a\x10\x1a\x1a\x1a\x01\x1a\x01\x1a\x01\x1ak\x1a\x1a\x1a\x1a\x1a\x1a\x1a\x1a\x1a\x02\0\x07{\"interface\": \"wwan0\", \"mode\": \"4G\", \"rsrp\": -87, \"ttl\": 60}\x0a{\"interface\": 3}\x0a",
];

/// Pieces of a head and what follows: tables in three pages, tables that change on the way, a page cut short, bytes that are none.
pub(crate) const POLICY_FOLLOWER: Seeds = &[
    b"\x05\x01\x30{\"uid\": \"p\", \"properties\": {}}\0\x09\x02\x31{\"uid\": \"q\", \"match\": {}, \"properties\": {\"x\": {\"value\": 1}}}\0\x0d\x02\x32{\"uid\": \"n\", \"root\": true, \"properties\": {\"interface\": {\"value\": \"eth0\"}}}\n\x31{}",
    b"\x05\x01\0\x0a\x02\0\x0e\x01\x30{\"uid\": \"p\", \"properties\": {}}",
    b"\x45\x01\x30{\"uid\": \"p\"}\0\xff\xb5\x83\x1a\x1a\x0d\x1a\x1a\x1a\x01\x1a\x1a\x1a\x1a\x1a\x1a\x1a\x03\x1a\x1a\x1a\x1a",
    b"\xff\xb5\x83\x1a\x1a\x0d\x1a\x1a\x1a\x01\x1a\x1a\x1a\x1a\x1a\x1a\x1a\x03\x1a\x1a\x1a\x1a",
];

/// Hosts with ports.
pub(crate) const ENGINE_ENDPOINT: Seeds =
    &[b"example.com:443", b"192.0.2.1:80", b"[2001:db8::1]:9899", b"[fe80::1%eth0]:1", b"xn--bcher-kva.example.:65535"];

/// Documents of sources: a node, two, one that ends by itself, rows of a modem.
pub(crate) const POLICY_SOURCE: Seeds = &[
    b"\x3c{\"uid\": \"a\", \"root\": true, \"properties\": {\"interface\": {\"value\": \"a\"}}}\0\x3d[{\"uid\": \"b\", \"root\": true, \"expire\": -1, \"properties\": {\"interface\": {\"value\": \"b\"}, \"mtu\": {\"value\": 1500}}}]",
    b"\x02[{\"uid\": \"a\", \"root\": true, \"properties\": {}}, {\"uid\": \"b\", \"root\": true, \"link\": [\"a\"], \"properties\": {}}]\0\x02[]",
    b"\x08{\"uid\": \"w\", \"link\": [{\"interface\": {\"value\": \"wwan0\"}}], \"priority\": 3, \"properties\": [{\"rsrp\": {\"value\": -87}}]}",
];

/// Scenarios: a dumbbell, a network of one's own, with values laid over them.
pub(crate) const SCENARIO_TEXT: Seeds = &[
    b"name = \"d\"\nduration = \"3 s\"\n[parameters]\nrate = { default = \"10 Mbit/s\", help = \"rate\" }\n[topology]\nkind = \"dumbbell\"\npairs = 2\nbottleneck = { rate = \"$rate\", delay = \"25 ms\", queue = \"1 BDP\", loss = \"1 %\" }\n[traffic.a]\nfrom = \"l1\"\nto = \"r1\"\nover = \"quic\"\n[[probe]]\nqueue = \"bottleneck\"\ninterval = \"100 ms\"\0rate\x005 Mbit/s",
    b"name = \"c\"\nduration = \"1 min\"\n[nodes]\nhosts = [\"a\", \"b\"]\nrouters = [\"r\"]\n[[link]]\nbetween = [\"a\", \"r\"]\nrate = \"1 Mbit/s\"\n[[link]]\nbetween = [\"r\", \"b\"]\njitter = { law = \"normal\", deviation = \"1 ms\" }\n[traffic.w]\nkind = \"web\"\nfrom = \"a\"\nto = \"b\"\nthink = { law = \"pareto\", mean = \"1 s\", shape = 1.5 }\n[[schedule]]\nat = \"10 s\"\nlink = \"a\"\nup = false",
];
