use super::super::*;
use super::world::*;

/// Both families have answered at once.
fn dual(names: &str) -> World {
    World::with(names).at(0, v4("4.1")).at(0, v6("6.1"))
}

/// TCP over IPv4 starts at 250 and is established at 290: the grace for QUIC lasts 20 ms,
/// until 310.
const TCP: (&str, Script) = ("T4.1", Script { reachable: None, established: Some(40), failed: None });

#[test]
fn a_better_candidate_that_becomes_reachable_within_the_grace_is_waited_for() {
    let mut world = dual("QT").scripted(|name, _| match name {
        "Q6.1" => connects(350).answers(300, 40),
        _ => connects(40),
    });
    let log = world.run();
    assert_eq!(log, ["0 start Q6.1", "250 start T4.1", "350 won Q6.1", "350 cancel T4.1"]);
    assert_eq!(world.outcome("T4.1"), CandidateOutcome::Superseded);
    assert_eq!(world.outcome("Q6.1"), CandidateOutcome::Won);
    assert_eq!(world.outcome("Q4.1"), CandidateOutcome::NotStarted);
}

#[test]
fn the_grace_ends_without_an_answer_from_the_better_one() {
    let mut world = dual("QT").scripted(|name, _| match name {
        "Q6.1" => connects(350).answers(320, 40),
        _ => connects(40),
    });
    assert_eq!(world.run()[2..], ["310 won T4.1", "310 cancel Q6.1"]);
    assert_eq!(world.outcome("Q6.1"), CandidateOutcome::Cancelled);
}

#[test]
fn a_reachable_better_one_is_waited_for_two_of_its_round_trips_and_no_longer() {
    let mut world = dual("QT").scripted(|name, _| match name {
        "Q6.1" => connects(381).answers(300, 40),
        _ => connects(40),
    });
    assert_eq!(world.run()[2..], ["380 won T4.1", "380 cancel Q6.1"]);
}

#[test]
fn for_one_that_is_reachable_already_the_two_round_trips_count_from_the_establishment() {
    let mut world = dual("QT").scripted(|name, _| match name {
        "Q6.1" => connects(1000).answers(280, 5),
        _ => connects(40),
    });
    assert_eq!(world.run()[2..], ["300 won T4.1", "300 cancel Q6.1"]);
}

#[test]
fn the_grace_is_never_longer_than_the_attempt_delay() {
    let mut world = dual("QT").scripted(|name, _| if name == "T4.1" { connects(2000) } else { SILENT });
    let log = world.run();
    assert_eq!(log[4..], ["2500 won T4.1", "2500 cancel Q6.1", "2500 cancel Q4.1", "2500 cancel T6.1"]);
}

#[test]
fn when_every_better_one_has_failed_the_win_is_at_once() {
    let mut world = dual("QT").scripted(|name, _| if name == "Q6.1" { fails(295) } else { connects(40) });
    assert_eq!(world.run(), ["0 start Q6.1", "250 start T4.1", "295 won T4.1"]);
}

#[test]
fn another_address_of_the_same_stack_is_not_waited_for() {
    let mut world = dual("T").attempts(&[TCP]);
    assert_eq!(world.run()[2..], ["290 won T4.1", "290 cancel T6.1"]);
}

#[test]
fn a_better_one_that_has_not_been_started_is_not_waited_for() {
    let mut world = dual("QT").scripted(|name, _| if name == "Q6.1" { fails(100) } else { connects(50) });
    assert_eq!(world.run(), ["0 start Q6.1", "100 start T4.1", "150 won T4.1"]);
}

#[test]
fn a_better_path_is_waited_for_like_a_better_stack() {
    let mut world = World::new(Config::default(), vec![path(0), path(1)], stacks("T"))
        .at(0, answer(1, Family::V6, "6.1"))
        .at(0, v6("6.1"))
        .scripted(|name, _| if name == "T6.1" { connects(340).answers(310, 30) } else { connects(200) });
    // The worse path is established at 450 only: no grace is needed.
    assert_eq!(world.run()[2..], ["340 won T6.1", "340 cancel p1/T6.1"]);
    let mut world = World::new(Config::default(), vec![path(0), path(1)], stacks("T"))
        .at(0, answer(1, Family::V6, "6.1"))
        .at(0, v6("6.1"))
        .scripted(|name, _| if name == "T6.1" { connects(340).answers(310, 30) } else { connects(60) });
    assert_eq!(world.run()[2..], ["340 won T6.1", "340 cancel p1/T6.1"]);
}

#[test]
fn without_grace_the_first_established_wins() {
    let config = Config { grace: false, ..Config::default() };
    let mut world = World::new(config, vec![path(0)], stacks("QT"))
        .at(0, v4("4.1"))
        .at(0, v6("6.1"))
        .scripted(|name, _| if name == "Q6.1" { connects(291) } else { connects(40) });
    assert_eq!(world.run()[2..], ["290 won T4.1", "290 cancel Q6.1"]);
}

#[test]
fn nothing_is_started_during_the_grace() {
    let mut world = dual("QT").scripted(|name, _| match name {
        "Q6.1" => connects(900).answers(299, 200),
        _ => connects(40),
    });
    // Q4.1 would be due at 500.
    assert_eq!(world.run()[2..], ["699 won T4.1", "699 cancel Q6.1"]);
}

#[test]
fn when_the_would_be_winner_fails_during_the_grace_the_race_goes_on() {
    let mut world = dual("QT").scripted(|name, _| match name {
        "T4.1" => connects(40).then_fails(50),
        "Q4.1" => connects(100),
        _ => SILENT,
    });
    let log = world.run();
    assert_eq!(log[1..], ["250 start T4.1", "300 start Q4.1", "400 won Q4.1", "400 cancel Q6.1"]);
    assert_eq!(world.outcome("T4.1"), CandidateOutcome::Failed("failed"));
}

#[test]
fn the_next_one_established_has_a_grace_of_its_own() {
    let mut world = dual("QT").at(0, v4("4.1 4.2")).scripted(|name, _| match name {
        "T4.1" => connects(40).then_fails(50),
        "T6.1" => connects(100),
        _ => SILENT,
    });
    // T4.1 fails at 300, so Q4.1 starts then and T6.1 at 550; its own grace is 50 ms.
    assert_eq!(world.run()[3..5], ["550 start T6.1", "700 won T6.1"]);
}

/// RFC 8305 section 5: "Once one of the connection attempts succeeds (generally when the TCP
/// handshake completes), all other connections attempts that have not yet succeeded SHOULD be
/// canceled."
#[test]
fn a_win_cancels_each_other_attempt_once_and_starts_none() {
    let mut world = dual("T").at(0, v4("4.1 4.2 4.3")).scripted(|name, _| match name {
        "T4.2" => connects(20),
        _ => SILENT,
    });
    let log = world.run();
    assert_eq!(log[3..], ["520 won T4.2", "520 cancel T6.1", "520 cancel T4.1"]);
    assert!(world.race.is_over());
    assert_eq!(world.race.next_timeout(), None);
}

#[test]
fn when_every_candidate_has_failed_the_race_is_lost_once() {
    let mut world = dual("QT").scripted(|_, _| fails(10));
    let log = world.run();
    assert_eq!(log.iter().filter(|l| l.ends_with("lost")).count(), 1);
    assert_eq!(log.last().map(String::as_str), Some("40 lost"));
    let failed = CandidateOutcome::Failed("failed");
    assert!(world.race.report().iter().all(|r| r.outcome == failed && r.ended_at.is_some()));
}

#[test]
fn while_an_answer_is_outstanding_the_race_is_not_lost() {
    let mut world = World::with("T").at(0, v6("6.1")).at(5000, v4("4.1")).scripted(|_, _| fails(10));
    assert_eq!(world.run(), ["0 start T6.1", "5000 start T4.1", "5010 lost"]);
}

#[test]
fn without_any_address_the_race_is_lost_with_the_last_answer() {
    let mut world = World::with("T").at(10, v6("")).at(20, v4(""));
    assert_eq!(world.run(), ["20 lost"]);
}

#[test]
fn without_a_path_or_a_stack_the_race_is_lost_at_once() {
    assert_eq!(World::new(Config::default(), Vec::new(), stacks("T")).run(), ["0 lost"]);
    assert_eq!(World::new(Config::default(), vec![path(0)], Vec::new()).run(), ["0 lost"]);
}

#[test]
fn at_the_deadline_what_runs_is_cancelled_and_then_the_race_is_lost() {
    let config = Config { deadline: Some(World::instant(300)), ..Config::default() };
    let mut world = World::new(config, vec![path(0)], stacks("T")).at(0, v6("6.1 6.2 6.3"));
    let log = world.run();
    assert_eq!(log[2..], ["300 cancel T6.1", "300 cancel T6.2", "300 lost"]);
    let mut unresolved = World::new(config, vec![path(0)], stacks("T"));
    assert_eq!(unresolved.run(), ["300 lost"]);
    let past = Config { deadline: Some(Instant::ZERO), ..Config::default() };
    assert_eq!(World::new(past, vec![path(0)], stacks("T")).run(), ["0 lost"]);
}

#[test]
fn a_deadline_within_the_grace_is_a_win() {
    let config = Config { deadline: Some(World::instant(300)), ..Config::default() };
    let mut world = World::new(config, vec![path(0)], stacks("QT")).at(0, v4("4.1")).at(0, v6("6.1")).attempts(&[TCP]);
    assert_eq!(world.run()[2..], ["300 won T4.1", "300 cancel Q6.1"]);
}

#[test]
fn inputs_after_the_end_and_about_strangers_change_nothing() {
    let mut world = dual("T").attempts(&[("T6.1", connects(20))]);
    world.race.handle_input(World::instant(0), answer(9, Family::V6, "6.1"));
    let stranger = CandidateId(77);
    world
        .race
        .handle_input(World::instant(0), Input::Progress { candidate: stranger, progress: Progress::Established });
    assert!(!world.race.is_over());
    assert_eq!(world.run(), ["0 start T6.1", "20 won T6.1"]);
    let report = world.race.report();
    let now = World::instant(900);
    for progress in [Progress::Failed("late"), Progress::Established] {
        world.race.handle_input(now, Input::Progress { candidate: report[0].candidate.id, progress });
    }
    world.race.handle_input(now, v6("6.7"));
    world.race.handle_timeout(now);
    assert_eq!(world.race.poll_output(now), None);
    assert_eq!(world.race.report(), report);
}

#[test]
fn a_report_tells_when_what_happened() {
    let mut world = dual("QT").scripted(|name, _| match name {
        "Q6.1" => connects(350).answers(300, 40),
        _ => connects(40),
    });
    world.run();
    let report = world.race.report();
    let quic = &report[0];
    assert_eq!(quic.started_at, Some(World::instant(0)));
    assert_eq!(quic.reachable_at, Some(World::instant(300)));
    assert_eq!(quic.established_at, Some(World::instant(350)));
    assert_eq!(quic.ended_at, Some(World::instant(350)));
    assert_eq!(quic.rtt, Some(Duration::from_millis(40)));
    assert_eq!(report[1].established_at, Some(World::instant(290)));
    assert_eq!(report[1].reachable_at, Some(World::instant(290)), "who is established has answered");
    assert_eq!(report[1].rtt, None);
    assert_eq!(report[2].started_at, None);
}
