//! The content of one HTTPS record, and the combination of several.

use super::*;

/// A record's data: priority, target labels, parameters.
fn data(priority: u16, target: &str, parameters: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = priority.to_be_bytes().to_vec();
    for label in target.split('.').filter(|l| !l.is_empty()) {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    for (k, v) in parameters {
        bytes.extend_from_slice(&k.to_be_bytes());
        bytes.extend_from_slice(&(v.len() as u16).to_be_bytes());
        bytes.extend_from_slice(v);
    }
    bytes
}

fn service(parameters: &[(u16, &[u8])]) -> Option<ServiceRecord> {
    ServiceRecord::read(&data(1, "svc.test", parameters))
}

fn binding(parameters: &[(u16, &[u8])]) -> ServiceBinding {
    match service(parameters) {
        Some(ServiceRecord::Service(b)) => b,
        other => panic!("not a service: {other:?}"),
    }
}

fn walk(host: &str, records: Vec<ServiceRecord>) -> (Walk, Step) {
    let mut walk = Walk::new(host, 443);
    let set = HttpsSet { owner: Some(host.to_owned()), records };
    let step = walk.records(&set, &mut Rng::from_number(1));
    (walk, step)
}

fn with_target(priority: u16, target: &str) -> ServiceRecord {
    ServiceRecord::Service(ServiceBinding { priority, target: target.into(), ..ServiceBinding::default() })
}

#[test]
fn every_known_parameter_is_read() {
    let v6 = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let b = binding(&[
        (0, &[0, 1, 0, 4]),
        (1, b"\x02h3\x02h2"),
        (3, &[0x20, 0xfb]),
        (4, &[10, 0, 0, 1, 10, 0, 0, 2]),
        (5, b"ech"),
        (6, &v6),
        (65400, b"private"),
    ]);
    assert_eq!(b.alpn, [b"h3".to_vec(), b"h2".to_vec(), b"http/1.1".to_vec()]);
    assert_eq!((b.port, b.target.as_str()), (Some(8443), "svc.test"));
    let hints: Vec<String> = b.hints.iter().map(ToString::to_string).collect();
    assert_eq!(hints, ["2001:db8::1", "10.0.0.1", "10.0.0.2"]);
    assert_eq!(b.ech.as_deref(), Some(&b"ech"[..]));
}

#[test]
fn no_default_alpn_leaves_http_1_1_out_and_needs_alpn() {
    assert_eq!(binding(&[(1, b"\x02h3"), (2, b"")]).alpn, [b"h3".to_vec()]);
    assert_eq!(binding(&[]).alpn, [b"http/1.1".to_vec()]);
    assert_eq!(binding(&[(1, b"\x08http/1.1")]).alpn.len(), 1);
    assert_eq!(service(&[(2, b"")]), Some(ServiceRecord::Unusable));
}

#[test]
fn a_protocol_name_need_not_be_text() {
    assert_eq!(binding(&[(1, b"\x02\xda\xda"), (2, b"")]).alpn, [vec![0xda, 0xda]]);
}

#[test]
fn an_unknown_or_absent_mandatory_key_makes_the_record_unusable() {
    assert_eq!(service(&[(0, &[0xff, 0x78]), (0xff78, b"x")]), Some(ServiceRecord::Unusable));
    assert_eq!(service(&[(0, &[0, 3])]), Some(ServiceRecord::Unusable), "port is not there");
    assert_eq!(service(&[(0, &[0, 0])]), Some(ServiceRecord::Unusable), "mandatory lists itself");
}

#[test]
fn malformed_parameters_are_told_from_unusable_ones() {
    for bad in [
        &[(1u16, &b""[..])][..],
        &[(1, b"\x00")],
        &[(1, b"\x05h3")],
        &[(2, b"x")],
        &[(3, b"\x01")],
        &[(3, b"\x01\x02\x03")],
        &[(4, b"\x01\x02\x03")],
        &[(4, b"")],
        &[(6, &[0; 15])],
        &[(0, b"")],
        &[(0, b"\x00")],
        &[(0, &[0, 4, 0, 1]), (1, b"\x02h3"), (4, &[0; 4])],
        &[(3, b"\x01\x02"), (1, b"\x02h3")],
        &[(3, b"\x01\x02"), (3, b"\x01\x02")],
    ] {
        assert_eq!(service(bad), None, "{bad:?}");
    }
    let whole = data(1, "svc.test", &[(1, b"\x02h3"), (3, &[1, 2])]);
    for end in 0..whole.len() {
        // A cut between two parameters leaves a shorter record that is whole.
        if end != data(1, "svc.test", &[(1, b"\x02h3")]).len() && end != data(1, "svc.test", &[]).len() {
            assert_eq!(ServiceRecord::read(&whole[..end]), None, "cut at {end}");
        }
    }
}

#[test]
fn an_alias_hides_services_and_is_followed_four_times() {
    let alias = |t: &str| ServiceRecord::Alias(Some(t.to_owned()));
    let (mut w, mut step) = walk("h.test", vec![with_target(1, "s.test"), alias("a1.test")]);
    for i in 2..=5 {
        assert_eq!(step, Step::Ask(format!("a{}.test", i - 1)));
        let set = HttpsSet { owner: None, records: vec![alias(&format!("a{i}.test"))] };
        step = w.records(&set, &mut Rng::from_number(1));
    }
    assert_eq!(step, Step::Finished(Answer::Failed(ResolveError::Loop)));
}

#[test]
fn an_alias_to_the_root_means_no_service() {
    let (_, step) = walk("h.test", vec![ServiceRecord::Alias(None)]);
    assert_eq!(step, Step::Finished(Answer::Services(Vec::new())));
}

#[test]
fn the_end_of_an_alias_is_an_endpoint_of_its_own() {
    let (mut w, step) = walk("h.test", vec![ServiceRecord::Alias(Some("cdn.test".into()))]);
    assert_eq!(step, Step::Ask("cdn.test".into()));
    let step = w.records(&HttpsSet::default(), &mut Rng::from_number(1));
    assert_eq!(step, Step::Resolve(vec!["cdn.test".into()]));
    let addr = IpAddr::from([10, 0, 0, 9]);
    assert_eq!(w.addresses(0, true, Some(&[])), None);
    let Some(Answer::Services(list)) = w.addresses(0, false, Some(&[addr])) else { panic!("not finished") };
    assert_eq!(list.len(), 1);
    assert_eq!((list[0].target.as_str(), list[0].addresses.as_slice()), ("cdn.test", &[addr][..]));
    // RFC 9460 section 3: no record describes it.
    assert!(list[0].alpn.is_empty() && list[0].foreign);
}

#[test]
fn a_foreign_target_with_hints_and_no_addresses_is_not_the_host() {
    let mut hinted = with_target(1, "cdn.test");
    let ServiceRecord::Service(b) = &mut hinted else { panic!() };
    b.hints = vec![IpAddr::from([10, 0, 0, 9])];
    let (mut w, _) = walk("h.test", vec![hinted, with_target(2, "h.test")]);
    assert_eq!(w.addresses(0, true, Some(&[])), None);
    let Some(Answer::Services(list)) = w.addresses(0, false, Some(&[])) else { panic!("not finished") };
    let got: Vec<_> = list.iter().map(|b| (b.priority, b.foreign, b.addresses.len(), b.hints.len())).collect();
    assert_eq!(got, [(1, true, 0, 1), (2, false, 0, 0)]);
}

#[test]
fn bindings_are_sorted_and_the_owner_stands_for_an_empty_target() {
    let (_, step) = walk("h.test", vec![with_target(9, "h.test"), with_target(2, ""), ServiceRecord::Unusable]);
    let Step::Finished(Answer::Services(list)) = step else { panic!("not finished: {step:?}") };
    let got: Vec<_> = list.iter().map(|b| (b.priority, b.target.as_str())).collect();
    assert_eq!(got, [(2, "h.test"), (9, "h.test")]);
}

#[test]
fn equal_priorities_are_shuffled() {
    let firsts = (0..32).map(|seed| {
        let mut w = Walk::new("h.test", 443);
        let records = (0..4).map(|i| with_target(1, &format!("t{i}.test"))).collect();
        match w.records(&HttpsSet { owner: None, records }, &mut Rng::from_number(seed)) {
            Step::Resolve(names) => names[0].clone(),
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(firsts.collect::<std::collections::BTreeSet<_>>().len(), 4);
}

#[test]
fn foreign_targets_are_bounded_and_useless_ones_dropped() {
    let records = (0..10).map(|i| with_target(i + 1, &format!("t{i}.test"))).collect();
    let (mut w, step) = walk("h.test", records);
    let Step::Resolve(names) = step else { panic!("{step:?}") };
    assert_eq!(names, ["t0.test", "t1.test", "t2.test", "t3.test"]);
    let mut end = None;
    for i in 0..MAX_TARGETS {
        end = end.or(w.addresses(i, true, Some(&[])));
        let list: &[IpAddr] = if i == 2 { &[IpAddr::V4(Ipv4Addr::LOCALHOST)] } else { &[] };
        end = end.or(w.addresses(i, false, Some(list)));
    }
    let Some(Answer::Services(list)) = end else { panic!("not finished") };
    assert_eq!(list.iter().map(|b| b.target.as_str()).collect::<Vec<_>>(), ["t2.test"]);
}

#[test]
fn other_ports_have_names_of_their_own() {
    assert_eq!(query_name("h.test", 443), "h.test");
    assert_eq!(query_name("h.test", 8443), "_8443._https.h.test");
}
