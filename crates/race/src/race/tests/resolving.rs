use super::super::*;
use super::world::*;
use crate::{Record, ResolutionState, Service};

fn with_services() -> World {
    let spec = PathSpec { expect_services: true, ..path(0) };
    World::new(Config::default(), vec![spec], stacks("QT"))
}

/// RFC 8305 section 3: "if a positive AAAA response (a response with at least one valid AAAA
/// record) is received first, the first IPv6 connection attempt is immediately started."
#[test]
fn a_positive_preferred_answer_starts_the_race_at_once() {
    let mut world = World::with("T").at(10, v6("6.1"));
    assert_eq!(world.run_until(1000), ["10 start T6.1"]);
}

/// RFC 8305 section 3: "If a positive AAAA response is received within the Resolution Delay period,
/// the client immediately starts the IPv6 connection attempt."
#[test]
fn an_early_a_answer_waits_for_aaaa() {
    let mut world = World::with("T").at(10, v4("4.1")).at(40, v6("6.1"));
    assert_eq!(world.run_until(100), ["40 start T6.1"]);
}

/// RFC 8305 section 3: "If a negative AAAA response (no error, no data) is received within the
/// Resolution Delay period or the AAAA response has not been received by the end of the Resolution
/// Delay period, the client SHOULD proceed"
#[test]
fn an_a_answer_is_used_after_a_negative_aaaa_answer_or_the_resolution_delay() {
    let mut negative = World::with("T").at(10, v4("4.1")).at(30, v6(""));
    assert_eq!(negative.run_until(100), ["30 start T4.1"]);
    let failed = Input::Answer { path: PathId(0), family: Family::V6, result: Err("servfail") };
    let mut failed = World::with("T").at(10, v4("4.1")).at(30, failed);
    assert_eq!(failed.run_until(100), ["30 start T4.1"]);
    let mut late = World::with("T").at(10, v4("4.1"));
    assert_eq!(late.run_until(100), ["60 start T4.1"]);
}

/// RFC 8305 section 3: "the newly received IPv6 addresses are incorporated into the list of
/// available candidate addresses"
#[test]
fn late_addresses_are_sorted_in_as_if_present_from_the_start() {
    let mut world = World::with("QT").at(0, v4("4.1 4.2")).at(90, v6("6.1"));
    let expected = ["50 start Q4.1", "300 start Q6.1", "550 start T4.1", "800 start T6.1", "1050 start Q4.2"];
    assert_eq!(world.run_until(1100), expected);
    let order: Vec<_> = world.race.report().iter().map(|r| name(&r.candidate)).collect();
    assert_eq!(order, ["Q6.1", "T4.1", "Q4.1", "T6.1", "Q4.2", "T4.2"]);
}

#[test]
fn the_resolution_delay_counts_from_the_first_address_answer_not_from_a_later_one() {
    let mut world = World::with("T").at(10, v4("4.1")).at(40, v4("4.1 4.2"));
    assert_eq!(world.run_until(100), ["60 start T4.1"]);
}

#[test]
fn equal_services_are_shuffled_on_each_path_for_itself() {
    let order = |seed: u8| {
        let spec = |id| PathSpec { expect_services: true, ..path(id) };
        let mut race: Race<Reason> =
            Race::new(Instant::ZERO, Config::default(), vec![spec(0), spec(1)], stacks("T"), [seed; 32]);
        for path in [0, 1] {
            let of = |n: u8| Service { port: Some(n.into()), ..service(1, "T", "6.1") };
            let result = Ok((0..8).map(of).collect());
            race.handle_input(Instant::ZERO, Input::Services { path: PathId(path), result });
        }
        let ports: Vec<u16> = race.report().iter().map(|r| r.candidate.addr.port()).filter(|p| *p < 8).collect();
        assert_eq!(ports.len(), 16);
        ports
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    assert_ne!(order(1)[..8], order(1)[8..]);
}

#[test]
fn a_preference_for_ipv4_waits_for_a_instead() {
    let config = Config { preferred_family: Family::V4, ..Config::default() };
    let mut world = World::new(config, vec![path(0)], stacks("T")).at(10, v6("6.1")).at(40, v4("4.1"));
    assert_eq!(world.run_until(300), ["40 start T4.1", "290 start T6.1"]);
}

#[test]
fn what_is_not_expected_is_not_waited_for() {
    let v4_only = PathSpec { expect_v6: false, ..path(0) };
    let mut world = World::new(Config::default(), vec![v4_only], stacks("T")).at(10, v4("4.1"));
    assert_eq!(world.run_until(20), ["10 start T4.1"]);
}

#[test]
fn addresses_wait_for_services_no_longer_than_the_resolution_delay() {
    let mut never = with_services().at(10, v6("6.1"));
    assert_eq!(never.run_until(100), ["60 start Q6.1"]);
    let mut soon = with_services().at(10, v6("6.1")).at(30, services(vec![service(1, "T", "")]));
    assert_eq!(soon.run_until(100), ["30 start T6.1"]);
    let failed = Input::Services { path: PathId(0), result: Err("timeout") };
    let mut failed = with_services().at(10, v6("6.1")).at(30, failed);
    assert_eq!(failed.run_until(100), ["30 start Q6.1"]);
}

#[test]
fn hints_count_as_answers_until_the_addresses_replace_them() {
    let hinted = services(vec![service(1, "QT", "6.7 4.7")]);
    let mut world = with_services().at(5, hinted).at(20, v6("6.1")).at(30, v4("4.1"));
    assert_eq!(world.run_until(600), ["5 start Q6.7", "255 start Q6.1", "505 start T4.1"]);
}

#[test]
fn hints_of_the_other_family_wait_for_the_preferred_one() {
    let hinted = services(vec![service(1, "QT", "4.7")]);
    let mut world = with_services().at(5, hinted);
    assert_eq!(world.run_until(100), ["55 start Q4.7"]);
}

#[test]
fn the_addresses_of_another_target_come_in_later() {
    let of = |list: &str| Service { target: Some(addresses(list)), ..service(1, "QT", "") };
    let mut world = with_services().at(0, v6("6.1")).at(0, services(vec![of("")])).at(20, services(vec![of("6.9")]));
    assert_eq!(world.run_until(600), ["0 start Q6.1", "250 start Q6.9", "500 start T6.9"]);
}

/// RFC 8305 section 6: "If the removed address had not yet had a connection attempt started, it
/// SHOULD be removed from the list of addresses to try."
#[test]
fn a_removed_address_is_not_tried_but_its_attempt_continues() {
    let mut world = World::with("T")
        .at(0, v6("6.1 6.2"))
        .at(100, v6("6.3"))
        .attempts(&[("T6.1", connects(300)), ("T6.2", fails(0))]);
    assert_eq!(world.run(), ["0 start T6.1", "250 start T6.3", "300 won T6.1", "300 cancel T6.3"]);
}

#[test]
fn a_change_of_addresses_has_a_name_of_its_own() {
    let mut world = World::with("T").at(0, v6("6.1 6.2"));
    world.run_until(100);
    world.now = World::instant(150);
    world.race.changed_addresses(World::instant(150), PathId(0), Family::V6, addresses("6.1 6.4"));
    assert_eq!(world.run_until(300), ["0 start T6.1", "250 start T6.4"]);
}

#[test]
fn a_worse_path_waits_for_a_better_one_no_longer_than_the_resolution_delay() {
    let world = || World::new(Config::default(), vec![path(0), path(1)], stacks("T"));
    let mut soon = world().at(0, answer(1, Family::V6, "6.1")).at(40, v6("6.1"));
    assert_eq!(soon.run_until(300), ["40 start T6.1", "290 start p1/T6.1"]);
    let mut late = world().at(0, answer(1, Family::V6, "6.1")).at(90, v6("6.1"));
    assert_eq!(late.run_until(350), ["50 start p1/T6.1", "300 start T6.1"]);
    let mut hopeless = world().at(0, answer(1, Family::V6, "6.1")).at(20, v6("")).at(30, v4(""));
    assert_eq!(hopeless.run_until(350), ["30 start p1/T6.1"]);
}

#[test]
fn resolution_is_reported_per_path_and_record() {
    let failed = Input::Answer { path: PathId(0), family: Family::V4, result: Err("servfail") };
    let mut world = with_services().at(10, v6("6.1 6.1 6.2")).at(20, failed);
    world.run_until(30);
    let report = world.race.resolution_report();
    let states: Vec<_> = report.into_iter().map(|r| (r.path, r.record, r.state)).collect();
    let expected = [
        (PathId(0), Record::Services, ResolutionState::Pending),
        (PathId(0), Record::Aaaa, ResolutionState::Answered { at: World::instant(10), count: 2 }),
        (PathId(0), Record::A, ResolutionState::Failed { at: World::instant(20), reason: "servfail" }),
    ];
    assert_eq!(states, expected);
}
