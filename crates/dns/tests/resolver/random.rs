//! Random bytes, random timing: every lookup ends with one answer per kind and one `Done`.

use neater_base::net::ErrorKind;
use neater_base::{Instant, Rng};
use neater_dns::{Config, Hosts, Input, LookupId, Output, Question, Resolver, TransportId, Zone, answer};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const ZONE: &str = "\
    a.test A 10.0.0.1\na.test AAAA ::2\na.test HTTPS 1 b.test alpn=h3\na.test HTTPS 2 c.test\n\
    b.test A 10.0.0.2\nb.test HTTPS 0 d.test\nd.test HTTPS 0 b.test\nc.test CNAME c.test\n\
    e.x.test A 10.0.0.3\ne.y.test AAAA ::3\n";
const NAMES: [&str; 8] = ["a.test", "b.test", "c.test", "d.test", "e", "f.test", "localhost", "not ok"];

/// One lookup's bookkeeping: kinds wanted, answers, dones.
type Books = BTreeMap<LookupId, (usize, usize, usize)>;

fn drain(r: &mut Resolver, now: Instant, open: &mut BTreeMap<TransportId, Vec<u8>>, books: &mut Books) {
    while let Some(output) = r.poll_output(now) {
        match output {
            Output::OpenUdp { transport, .. } | Output::OpenTcp { transport, .. } => {
                assert!(open.insert(transport, Vec::new()).is_none());
            }
            Output::Send { transport, data } => *open.get_mut(&transport).expect("open") = data,
            Output::Close { transport } => assert!(open.remove(&transport).is_some()),
            Output::Answer { lookup, .. } => books.get_mut(&lookup).expect("not cancelled").1 += 1,
            Output::ServicesSoFar { lookup, .. } => assert_eq!(books.get(&lookup).expect("not cancelled").2, 0),
            Output::Done { lookup } => books.get_mut(&lookup).expect("not cancelled").2 += 1,
        }
    }
}

/// A reply to what was sent on a transport, true or less so.
fn reply(rng: &mut Rng, sent: &[u8], zone: &Zone) -> Vec<u8> {
    let mut data = match rng.below(8) {
        0 => (0..rng.below(80)).map(|_| rng.u32() as u8).collect(),
        1 => sent.to_vec(),
        _ => answer(sent, zone).unwrap_or_default(),
    };
    if rng.chance(0.3) && !data.is_empty() {
        for _ in 0..=rng.below(3) {
            let at = rng.below(data.len() as u64) as usize;
            data[at] = rng.u32() as u8;
        }
    }
    if rng.chance(0.1) {
        data.truncate(rng.below(data.len() as u64 + 1) as usize);
    }
    data
}

fn run(seed: u64) {
    let mut rng = Rng::from_number(seed);
    let zone = Zone::parse(ZONE).unwrap();
    let config = Config {
        servers: (0..rng.below(4)).map(|i| ([10, 9, 0, i as u8], 53).into()).collect(),
        search: vec!["x.test".into(), "y.test".into()],
        attempts: 1 + rng.below(3) as u8,
        rotate: rng.chance(0.5),
        use_tcp: rng.chance(0.2),
        ..Config::default()
    };
    let mut r = Resolver::new(config.clone(), Hosts::default(), rng.seed());
    let (mut open, mut books) = (BTreeMap::<TransportId, Vec<u8>>::new(), Books::new());
    let mut now = Instant::ZERO + Duration::from_secs(1);
    for _ in 0..200 {
        match rng.below(12) {
            0 | 1 => {
                let name = NAMES[rng.below(NAMES.len() as u64) as usize];
                let https = rng.chance(0.7).then(|| if rng.chance(0.8) { 443 } else { 8443 });
                let q = Question { name, a: rng.chance(0.8), aaaa: rng.chance(0.8), https, interface: None };
                let wanted = usize::from(q.a) + usize::from(q.aaaa) + usize::from(https.is_some());
                let id = r.lookup(now, &q);
                assert!(books.insert(id, (wanted, 0, 0)).is_none());
            }
            2 => {
                if let Some(id) = books.iter().find(|(_, (_, _, done))| *done == 0).map(|(id, _)| *id)
                    && rng.chance(0.3)
                {
                    r.cancel(id);
                    books.remove(&id);
                }
            }
            3 => now += Duration::from_millis(rng.below(4000)),
            4 => r.handle_timeout(now),
            5 if rng.chance(0.1) => {
                let mut other = config.clone();
                other.servers.reverse();
                r.set_config(now, other, Hosts::default());
            }
            _ => {
                let n = rng.below(open.len() as u64 + 1) as usize;
                let Some((transport, sent)) = open.iter().nth(n).map(|(t, s)| (*t, s.clone())) else { continue };
                let error = ErrorKind::HostUnreachable.into();
                let data = reply(&mut rng, &sent, &zone);
                let mut framed = (data.len() as u16).to_be_bytes().to_vec();
                framed.extend(reply(&mut rng, sent.get(2..).unwrap_or_default(), &zone));
                let input = match rng.below(12) {
                    0 => Input::UdpFailed { transport, error },
                    1 => Input::TcpClosed { transport, error: rng.chance(0.5).then_some(error) },
                    2 | 3 => Input::TcpConnected { transport },
                    4 | 5 => Input::TcpReceived { transport, data: &framed },
                    _ => Input::UdpReceived { transport, data: &data },
                };
                r.handle_input(now, input);
            }
        }
        drain(&mut r, now, &mut open, &mut books);
    }
    // Silence from here on: the timers alone must bring everything to its end.
    for _ in 0..5000 {
        let Some(next) = r.next_timeout() else { break };
        now = now.max(next);
        r.handle_timeout(now);
        drain(&mut r, now, &mut open, &mut books);
    }
    assert_eq!(r.next_timeout(), None);
    assert!(open.is_empty(), "left open: {open:?}");
    for (id, (wanted, answers, done)) in books {
        assert_eq!((answers, done), (wanted, 1), "{id:?} with seed {seed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_lookup_ends_with_one_answer_per_kind_and_one_done(seed: u64) {
        run(seed);
    }

    #[test]
    fn the_parsers_take_anything(bytes: Vec<u8>) {
        let (config, _) = Config::parse(&bytes);
        let _ = Hosts::parse(&bytes).lookup("a").count();
        if let Ok(text) = core::str::from_utf8(&bytes) {
            let _ = Zone::parse(text);
        }
        let _ = answer(&bytes, &Zone::default());
        let mut r = Resolver::new(config, Hosts::default(), [1; 32]);
        let now = Instant::ZERO;
        let _ = r.cached(now, &String::from_utf8_lossy(&bytes));
        let name = String::from_utf8_lossy(&bytes).into_owned();
        r.lookup(now, &Question { name: &name, a: true, aaaa: true, https: Some(1), interface: None });
    }

    #[test]
    fn the_parsers_take_anything_that_looks_right(
        words in prop::collection::vec("nameserver|search|domain|options|ndots:9|[0-9a-f.:#%\\[\\]]{1,12}|[a-z.]{1,9}|\n|#|;|HTTPS|CNAME|A|AAAA|0|1|\\.|alpn=[a-z,\\\\\"]{0,4}|port=[0-9]{0,6}|mandatory=[a-z0-9,]{0,9}|ech=[A-Za-z=]{0,6}|ipv4hint=[0-9.,]{0,9}", 0..40)
    ) {
        let text = words.join(" ");
        let (config, _) = Config::parse(text.as_bytes());
        prop_assert!(config.servers.len() <= 8 && config.search.len() <= 6);
        let _ = Hosts::parse(text.as_bytes());
        let _ = Zone::parse(&text);
    }
}
