use super::*;
use crate::{PathId, PathSpec, Service, StackId};
use neater_base::Instant;

/// Names of stacks in the tests: rank order as given. "Q" and "S" need UDP (group 0), "T" and "M"
/// do not (group 1).
fn options(names: &str) -> Vec<StackOption> {
    let group = |name| u8::from(matches!(name, 'T' | 'M'));
    let option = |name| StackOption {
        id: StackId(name as u16),
        group: group(name),
        port: None,
        needs_service: false,
        secure: true,
    };
    names.chars().map(option).collect()
}

/// `n` addresses of a family with routes.
fn routed(family: Family, n: u8) -> Vec<Address> {
    (1..=n).map(|i| address(family, i)).collect()
}

fn address(family: Family, i: u8) -> Address {
    let text = match family {
        Family::V4 => (format!("192.0.2.{i}"), "192.0.2.200"),
        Family::V6 => (format!("2001:db8::{i}"), "2001:db8::200"),
    };
    Address::new(text.0.parse().unwrap(), text.1.parse().ok())
}

fn resolved(v6: Vec<Address>, v4: Vec<Address>) -> Resolution<()> {
    let spec = PathSpec { id: PathId(0), port: 443, expect_v4: true, expect_v6: true, expect_services: false };
    let mut r = Resolution::new(spec, [1; 32]);
    r.answer(Instant::ZERO, Family::V6, Ok(v6));
    r.answer(Instant::ZERO, Family::V4, Ok(v4));
    r
}

fn with_services(mut r: Resolution<()>, list: Vec<Service>, stacks: &[StackOption]) -> Resolution<()> {
    r.answer_services(Instant::ZERO, Ok(list), stacks);
    r
}

fn service(priority: u16, stacks: &str, port: Option<u16>) -> Service {
    let stacks = stacks.chars().map(|c| StackId(c as u16)).collect();
    Service { priority, stacks, port, hints: Vec::new(), target: None }
}

/// The plan in short: stack, family, last part of the address, and the port if it is not 443.
fn short(config: &Config, r: &Resolution<()>, stacks: &[StackOption]) -> String {
    let one = |p: &Planned| {
        let stack = char::from_u32(u32::from(stacks[usize::from(p.stack)].id.0)).unwrap();
        let text = p.addr.ip().to_string();
        let last = text.rsplit(['.', ':']).next().unwrap();
        let family = if p.addr.is_ipv4() { 4 } else { 6 };
        let port = if p.addr.port() == 443 { String::new() } else { format!(":{}", p.addr.port()) };
        format!("{stack}{family}.{last}{port}")
    };
    plan(config, 0, r, stacks).iter().map(one).collect::<Vec<_>>().join(" ")
}

fn order(names: &str, v6: u8, v4: u8) -> String {
    let stacks = options(names);
    short(&Config::default(), &resolved(routed(Family::V6, v6), routed(Family::V4, v4)), &stacks)
}

#[test]
fn the_second_attempt_differs_in_protocol_and_in_family() {
    assert_eq!(order("QT", 1, 1), "Q6.1 T4.1 Q4.1 T6.1");
    assert_eq!(order("TQ", 1, 1), "T6.1 Q4.1 T4.1 Q6.1");
    assert_eq!(order("QT", 2, 2), "Q6.1 T4.1 Q4.1 T6.1 Q6.2 T4.2 Q4.2 T6.2");
}

#[test]
fn stacks_of_one_group_do_not_follow_each_other_while_another_group_has_a_turn_left() {
    assert_eq!(order("SQT", 1, 1), "S6.1 T4.1 Q6.1 T6.1 S4.1 Q4.1");
    assert_eq!(order("SQT", 0, 1), "S4.1 T4.1 Q4.1");
}

/// RFC 8305 section 4: "Whichever address family is first in the list should be followed by an
/// address of the other address family"
#[test]
fn one_stack_is_interleaved_as_in_rfc_8305() {
    assert_eq!(order("T", 3, 2), "T6.1 T4.1 T6.2 T4.2 T6.3");
    assert_eq!(order("T", 1, 3), "T6.1 T4.1 T4.2 T4.3");
    assert_eq!(order("T", 0, 2), "T4.1 T4.2");
}

/// RFC 8305 section 4: "The number of contiguous addresses of the first address family will be
/// referred to as the "First Address Family Count" and can be a configurable value."
#[test]
fn the_first_family_leads_by_as_many_attempts_as_configured() {
    let config = Config { first_family_count: 2, ..Config::default() };
    let r = resolved(routed(Family::V6, 4), routed(Family::V4, 2));
    assert_eq!(short(&config, &r, &options("T")), "T6.1 T6.2 T4.1 T6.3 T4.2 T6.4");
    let r = resolved(routed(Family::V6, 1), routed(Family::V4, 1));
    assert_eq!(short(&config, &r, &options("QT")), "Q6.1 T6.1 Q4.1 T4.1");
    let config = Config { first_family_count: 9, ..Config::default() };
    let r = resolved(routed(Family::V6, 2), routed(Family::V4, 2));
    assert_eq!(short(&config, &r, &options("T")), "T6.1 T6.2 T4.1 T4.2");
}

#[test]
fn the_first_family_leads_once_and_not_again_in_every_service() {
    let config = Config { first_family_count: 2, ..Config::default() };
    let stacks = options("T");
    let r =
        with_services(resolved(routed(Family::V6, 3), routed(Family::V4, 1)), vec![service(1, "T", Some(1))], &stacks);
    let order = short(&config, &r, &stacks);
    assert_eq!(order, "T6.1:1 T6.2:1 T4.1:1 T6.3:1 T6.1 T4.1 T6.2 T6.3");
}

#[test]
fn with_one_family_groups_alternate() {
    assert_eq!(order("QT", 0, 3), "Q4.1 T4.1 Q4.2 T4.2 Q4.3 T4.3");
    assert_eq!(order("QT", 2, 0), "Q6.1 T6.1 Q6.2 T6.2");
}

#[test]
fn a_preference_for_ipv4_puts_it_first() {
    let config = Config { preferred_family: Family::V4, ..Config::default() };
    let r = resolved(routed(Family::V6, 1), routed(Family::V4, 1));
    assert_eq!(short(&config, &r, &options("QT")), "Q4.1 T6.1 Q6.1 T4.1");
}

#[test]
fn addresses_without_a_route_stand_behind_all_others() {
    let unrouted = |family| Address { source: None, ..address(family, 9) };
    let v6 = vec![unrouted(Family::V6)];
    let mut v4 = routed(Family::V4, 2);
    v4.insert(0, unrouted(Family::V4));
    let order = short(&Config::default(), &resolved(v6, v4), &options("QT"));
    assert_eq!(order, "Q4.1 T4.1 Q4.2 T4.2 Q6.9 T4.9 Q4.9 T6.9");
}

#[test]
fn where_no_source_address_is_known_the_order_is_the_usual_one() {
    let unrouted = |family| vec![Address { source: None, ..address(family, 1) }];
    let r = resolved(unrouted(Family::V6), unrouted(Family::V4));
    assert_eq!(short(&Config::default(), &r, &options("QT")), "Q6.1 T4.1 Q4.1 T6.1");
}

#[test]
fn services_stand_in_priority_order_before_addresses_without_a_service() {
    let stacks = options("T");
    let r = resolved(routed(Family::V6, 1), routed(Family::V4, 1));
    let r = with_services(r, vec![service(2, "T", Some(8002)), service(1, "T", Some(8001))], &stacks);
    let order = short(&Config::default(), &r, &stacks);
    assert_eq!(order, "T6.1:8001 T4.1:8001 T6.1:8002 T4.1:8002 T6.1 T4.1");
}

#[test]
fn a_stack_is_used_only_with_services_that_list_it() {
    let mut stacks = options("QT");
    let plain = || resolved(routed(Family::V6, 1), Vec::new());
    stacks[0].needs_service = true;
    assert_eq!(short(&Config::default(), &plain(), &stacks), "T6.1");
    let r = with_services(plain(), vec![service(1, "T", Some(1)), service(2, "Q", Some(2))], &stacks);
    assert_eq!(short(&Config::default(), &r, &stacks), "T6.1:1 Q6.1:2 T6.1");
}

#[test]
fn a_service_with_one_protocol_alone_does_not_keep_the_second_attempt_on_it() {
    let stacks = options("QT");
    let r = resolved(routed(Family::V6, 2), routed(Family::V4, 2));
    let r = with_services(r, vec![service(1, "Q", None)], &stacks);
    let order = short(&Config::default(), &r, &stacks);
    assert_eq!(order, "Q6.1 T4.1 Q4.1 Q6.2 Q4.2 T6.1 T4.2 T6.2");
}

#[test]
fn ports_come_from_the_service_then_the_stack_then_the_endpoint() {
    let mut stacks = options("ST");
    stacks[0].port = Some(9899);
    let plain = || resolved(routed(Family::V6, 1), Vec::new());
    assert_eq!(short(&Config::default(), &plain(), &stacks), "S6.1:9899 T6.1");
    let r = with_services(plain(), vec![service(1, "S", Some(77))], &stacks);
    assert_eq!(short(&Config::default(), &r, &stacks), "S6.1:77 T6.1 S6.1:9899");
}

#[test]
fn hints_serve_until_the_addresses_are_known_and_another_target_has_its_own() {
    let stacks = options("T");
    let spec = PathSpec { id: PathId(0), port: 443, expect_v4: true, expect_v6: true, expect_services: true };
    let hinted = Service { hints: vec![address(Family::V4, 7)], ..service(1, "T", None) };
    let target = Some(vec![address(Family::V6, 5)]);
    let elsewhere = Service { target, hints: vec![address(Family::V6, 6)], ..service(2, "T", None) };
    let list = vec![hinted, elsewhere];
    let mut r = with_services(Resolution::new(spec, [1; 32]), list, &stacks);
    assert_eq!(short(&Config::default(), &r, &stacks), "T4.7 T6.5");
    r.answer(Instant::ZERO, Family::V4, Ok(routed(Family::V4, 1)));
    assert_eq!(short(&Config::default(), &r, &stacks), "T4.1 T6.5");
}

#[test]
fn no_candidate_appears_twice() {
    let stacks = options("QT");
    let r = resolved(routed(Family::V6, 3), routed(Family::V4, 3));
    let r = with_services(r, (0..8).map(|n| service(n, "QT", None)).collect(), &stacks);
    let list = plan(&Config::default(), 0, &r, &stacks);
    assert_eq!(list.len(), 12);
    for (i, a) in list.iter().enumerate() {
        assert!(!list[..i].contains(a), "{a:?}");
    }
}

#[test]
fn a_plan_keeps_its_bound() {
    let stacks = options("SQTM");
    let r = resolved(routed(Family::V6, 16), routed(Family::V4, 16));
    assert_eq!(plan(&Config::default(), 0, &r, &stacks).len(), 64);
    let config = Config { max_candidates: 5, ..Config::default() };
    assert_eq!(plan(&config, 0, &r, &stacks).len(), 5);
}

#[test]
fn every_path_has_its_share_and_what_is_left_goes_to_the_better_ones() {
    assert_eq!(shares(64, &[100, 100]), [32, 32]);
    assert_eq!(shares(64, &[100, 4]), [60, 4]);
    assert_eq!(shares(7, &[9, 9, 9]), [3, 2, 2]);
    assert_eq!(shares(1, &[5, 5]), [1, 0]);
    assert_eq!(shares(64, &[3, 4]), [3, 4]);
    assert_eq!(shares(64, &[]), Vec::<usize>::new());
}

#[test]
fn services_with_many_addresses_leave_room_for_what_needs_none() {
    let stacks = options("QT");
    let target = Some(routed(Family::V6, 64));
    let crowd = Service { target, ..service(1, "Q", None) };
    let r = with_services(resolved(routed(Family::V6, 1), routed(Family::V4, 1)), vec![crowd], &stacks);
    let list = plan(&Config::default(), 0, &r, &stacks);
    let tcp = |p: &Planned| p.stack == 1;
    assert!(list.len() <= 64 && list.iter().any(tcp), "TCP is never tried");
    assert!(list.iter().position(tcp).unwrap() < 3, "and not as the last");
}
