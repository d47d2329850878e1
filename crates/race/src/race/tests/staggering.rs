use super::super::*;
use super::world::*;

/// Both families have answered at once.
fn dual(names: &str) -> World {
    World::with(names).at(0, v4("4.1")).at(0, v6("6.1"))
}

/// RFC 8305 section 5: "one connection attempt to a single address is started first, followed by
/// the others in the list, one at a time."
#[test]
fn attempts_start_one_delay_apart_and_leave_a_dead_family_and_a_blocked_protocol_first() {
    let mut world = dual("QT");
    let expected = ["0 start Q6.1", "250 start T4.1", "500 start Q4.1", "750 start T6.1"];
    assert_eq!(world.run_until(10_000), expected);
}

#[test]
fn with_udp_and_ipv6_both_dead_the_connection_takes_one_delay_and_its_handshake() {
    let mut world = dual("QT").attempts(&[("T4.1", connects(40))]);
    let log = world.run();
    // The grace is half the handshake: QUIC is better and still running.
    assert_eq!(log, ["0 start Q6.1", "250 start T4.1", "310 won T4.1", "310 cancel Q6.1"]);
}

/// RFC 8305 section 5: "Starting a new connection attempt does not affect previous attempts, as
/// multiple connection attempts may occur in parallel."
#[test]
fn a_path_of_400_ms_works_although_the_delay_is_250_ms() {
    let mut world = dual("T").scripted(|_, _| connects(400));
    assert_eq!(world.run(), ["0 start T6.1", "250 start T4.1", "400 won T6.1", "400 cancel T4.1"]);
}

#[test]
fn a_path_of_1500_ms_works_too() {
    let mut world = World::with("T").at(0, v6("6.1 6.2 6.3")).scripted(|_, _| connects(1500));
    let expected =
        ["0 start T6.1", "250 start T6.2", "500 start T6.3", "1500 won T6.1", "1500 cancel T6.2", "1500 cancel T6.3"];
    assert_eq!(world.run(), expected);
}

#[test]
fn a_failure_starts_the_next_attempt_at_once() {
    let mut world = dual("QT").attempts(&[("Q6.1", fails(30))]);
    assert_eq!(world.run_until(300), ["0 start Q6.1", "30 start T4.1", "280 start Q4.1"]);
}

#[test]
fn attempts_that_fail_as_they_start_cost_no_time() {
    let mut world =
        dual("QT").attempts(&[("Q6.1", fails(0)), ("T4.1", fails(0)), ("Q4.1", fails(0)), ("T6.1", connects(9))]);
    let log = world.run();
    assert_eq!(log, ["0 start Q6.1", "0 start T4.1", "0 start Q4.1", "0 start T6.1", "9 won T6.1"]);
}

#[test]
fn each_of_two_failures_at_once_starts_one_attempt() {
    let mut world = dual("QT").at(0, v6("6.1 6.2")).attempts(&[("Q6.1", fails(300)), ("T4.1", fails(50))]);
    let log = world.run_until(550);
    let expected = ["0 start Q6.1", "250 start T4.1", "300 start Q4.1", "300 start T6.1", "550 start Q6.2"];
    assert_eq!(log, expected);
}

#[test]
fn a_driver_that_wakes_late_keeps_the_distance_from_the_actual_start() {
    let mut world = dual("T");
    world.run_until(0);
    world.race.handle_timeout(World::instant(1000));
    assert!(matches!(world.race.poll_output(World::instant(1000)), Some(Output::Start(_))));
    let mut race = World::with("T").at(0, v6("6.1 6.2 6.3"));
    race.run_until(0);
    race.race.handle_timeout(World::instant(1000));
    assert!(race.race.poll_output(World::instant(1000)).is_some());
    assert_eq!(race.race.poll_output(World::instant(1000)), None);
    assert_eq!(race.race.next_timeout(), Some(World::instant(1250)));
}

#[test]
fn a_dead_path_is_left_after_its_own_candidates() {
    let mut world = World::new(Config::default(), vec![path(0), path(1)], stacks("T"))
        .at(0, v6("6.1"))
        .at(0, v4("4.1"))
        .at(0, answer(1, Family::V6, "6.1"))
        .attempts(&[("p1/T6.1", connects(20))]);
    let expected = ["0 start T6.1", "250 start T4.1", "500 start p1/T6.1", "530 won p1/T6.1"];
    assert_eq!(world.run()[..4], expected);
}

#[test]
fn a_path_with_many_addresses_leaves_room_for_the_next_one() {
    let config = Config { max_candidates: 4, ..Config::default() };
    let many: String = (1..=16).map(|n| format!("6.{n} ")).collect();
    let mut world = World::new(config, vec![path(0), path(1)], stacks("QT"))
        .at(0, answer(1, Family::V6, "6.1"))
        .at(0, v6(&many))
        .scripted(|_, _| fails(0));
    let log = world.run_until(0);
    assert_eq!(log, ["0 start Q6.1", "0 start T6.1", "0 start p1/Q6.1", "0 start p1/T6.1"]);
}

#[test]
fn while_a_candidate_is_reachable_nothing_worse_is_started() {
    let mut world = dual("QT").attempts(&[("Q6.1", connects(590).answers(200, 200))]);
    assert_eq!(world.run(), ["0 start Q6.1", "590 won Q6.1"]);
}

#[test]
fn a_reachable_candidate_that_stalls_holds_the_others_for_two_round_trips_or_the_delay() {
    let mut slow = dual("QT").attempts(&[("Q6.1", SILENT.answers(200, 200))]);
    assert_eq!(slow.run_until(800), ["0 start Q6.1", "600 start T4.1"]);
    let mut fast = dual("QT").attempts(&[("Q6.1", SILENT.answers(200, 10))]);
    assert_eq!(fast.run_until(600), ["0 start Q6.1", "450 start T4.1"]);
    let mut absurd = dual("QT").attempts(&[("Q6.1", SILENT.answers(200, 1 << 40))]);
    assert_eq!(absurd.run_until(10_000)[..2], ["0 start Q6.1", "2200 start T4.1"]);
}

#[test]
fn when_a_reachable_candidate_fails_the_next_starts_at_once() {
    let mut world = dual("QT").attempts(&[("Q6.1", fails(550).answers(200, 200))]);
    assert_eq!(world.run_until(700), ["0 start Q6.1", "550 start T4.1"]);
}

#[test]
fn a_reachable_candidate_does_not_hold_back_better_ones() {
    let mut world = dual("QT").attempts(&[("T4.1", SILENT.answers(100, 100))]);
    assert_eq!(world.run_until(700), ["0 start Q6.1", "250 start T4.1", "500 start Q4.1"]);
}

#[test]
fn a_failure_elsewhere_does_not_release_what_a_reachable_candidate_holds() {
    let mut world = dual("QT").attempts(&[("Q6.1", SILENT.answers(270, 200)), ("T4.1", fails(50))]);
    assert_eq!(world.run_until(900), ["0 start Q6.1", "250 start T4.1", "670 start Q4.1"]);
}

/// An outcome that was tried alone first is part of the race that follows, and nothing waits for it
/// a second time.
#[test]
fn an_attempt_that_was_under_way_before_the_race_counts_from_its_own_start() {
    let begun_before = |world: &mut World| {
        let Some((_, Output::Start(candidate))) = world.outputs.last().copied() else { panic!("nothing was started") };
        let since = world.now - Duration::from_millis(250);
        world.race.began_before(world.now, candidate.id, since);
    };
    let mut world = dual("QT");
    world.run_until(0);
    begun_before(&mut world);
    let expected = ["0 start Q6.1", "0 start T4.1", "250 start Q4.1", "500 start T6.1"];
    assert_eq!(world.run_until(10_000), expected);
    // Also where it is not the first in the list: the last start counts.
    let mut world = dual("QT");
    world.run_until(250);
    begun_before(&mut world);
    let expected = ["0 start Q6.1", "250 start T4.1", "250 start Q4.1", "500 start T6.1"];
    assert_eq!(world.run_until(10_000), expected);
}
