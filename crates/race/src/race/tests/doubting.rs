//! The outcome history deprioritises candidates, and does no more.

use super::super::*;
use super::world::*;
use crate::BadCause;

/// Both families have answered at once; these are bad.
fn dual(names: &str, bad: &[Mark]) -> World {
    let mut world = World::with(names);
    world.race.pass_history(PathId(0), bad.iter().copied());
    world.at(0, v4("4.1")).at(0, v6("6.1"))
}

/// IPv4 alone.
fn single(names: &str, bad: &[Mark]) -> World {
    let mut world = World::with(names);
    world.race.pass_history(PathId(0), bad.iter().copied());
    world.at(0, v4("4.1")).at(0, v6(""))
}

fn bad(name: &str) -> Mark {
    marked(name, BadCause::Failed, false, false)
}

/// As after a race in which this one was silent, and none of its group or family worked.
fn silent(name: &str) -> Mark {
    marked(name, BadCause::Silent, true, true)
}

fn starts(world: &mut World) -> Vec<String> {
    world.run_until(5000).into_iter().filter(|l| l.contains("start")).collect()
}

#[test]
fn what_is_bad_goes_last_and_is_still_tried() {
    let mut world = dual("QT", &[bad("Q6.1")]);
    assert_eq!(starts(&mut world), ["0 start T4.1", "250 start Q4.1", "500 start T6.1", "750 start Q6.1"]);
}

#[test]
fn where_all_are_bad_the_race_runs_as_usual() {
    let script = |name: &str, _: &Candidate| if name == "Q6.1" { connects(380).answers(299, 40) } else { connects(40) };
    let mut usual = dual("QT", &[]).scripted(script);
    let mut all_bad = dual("QT", &["Q6.1", "Q4.1", "T6.1", "T4.1"].map(bad)).scripted(script);
    let plain =
        |world: &mut World| -> Vec<String> { world.run().into_iter().filter(|l| !l.contains("doubt")).collect() };
    assert_eq!(plain(&mut all_bad), plain(&mut usual), "with its grace, too");
}

#[test]
fn a_silent_candidate_casts_doubt_on_its_protocol_and_on_its_family() {
    // The server has moved: none of its addresses is known.
    let mut world = World::with("QT");
    world.race.pass_history(PathId(0), [silent("Q6.1")].into_iter());
    let mut world = world.at(0, v4("4.9")).at(0, v6("6.9"));
    assert_eq!(starts(&mut world), ["0 start T4.9", "250 start T6.9", "500 start Q4.9", "750 start Q6.9"]);
}

#[test]
fn a_bad_one_that_is_silent_again_is_not_waited_for() {
    // T4.1 is established at 600, after Q6.1 was started; without the mark the grace would last
    // until 750 at least.
    let script = |name: &str, _: &Candidate| if name == "T4.1" { connects(600) } else { SILENT };
    let mut world = single("QT", &[bad("Q4.1")]).scripted(script);
    assert_eq!(world.run()[1..], ["0 start T4.1", "250 start Q4.1", "600 won T4.1", "600 cancel Q4.1"]);
}

#[test]
fn a_bad_one_that_answers_is_waited_for_like_any_other() {
    let mut world = single("QT", &[bad("Q4.1")]).scripted(|name, _| match name {
        "T4.1" => connects(600),
        _ => connects(400).answers(300, 60),
    });
    assert_eq!(world.run()[1..], ["0 start T4.1", "250 start Q4.1", "650 won Q4.1", "650 cancel T4.1"]);
}

#[test]
fn a_reachable_one_holds_back_a_better_stack_that_is_bad() {
    let mut world = single("QT", &[bad("Q4.1")]).scripted(|name, _| match name {
        "T4.1" => connects(590).answers(200, 200),
        _ => SILENT,
    });
    // Two round trips from the answer.
    assert_eq!(world.run()[1..], ["0 start T4.1", "590 won T4.1"]);
    let mut trusted = single("TQ", &[]).attempts(&[("T4.1", connects(590).answers(200, 200))]);
    assert_eq!(trusted.run(), ["0 start T4.1", "590 won T4.1"], "as it would a worse one");
}

#[test]
fn what_is_said_against_encrypted_candidates_lets_none_in_the_clear_go_before_them() {
    let order = |marks: &[Mark]| -> Vec<String> {
        starts(&mut dual("QTC", marks)).iter().filter_map(|l| Some(l.rsplit(' ').next()?.to_owned())).collect()
    };
    let usual = order(&[]);
    assert_eq!(usual.len(), 6, "{usual:?}");
    for which in 0..1_u32 << usual.len() {
        let marked = usual.iter().enumerate().filter(|(i, _)| (which >> i) & 1 == 1);
        let marks: Vec<Mark> = marked.map(|(i, name)| if i % 2 == 0 { bad(name) } else { silent(name) }).collect();
        let now = order(&marks);
        let place = |list: &[String], name: &String| list.iter().position(|n| n == name).expect("a candidate");
        for clear in usual.iter().filter(|n| n.starts_with('C')) {
            for safe in usual.iter().filter(|n| !n.starts_with('C')) {
                let kept = place(&usual, safe) > place(&usual, clear) || place(&now, safe) < place(&now, clear);
                assert!(kept, "{clear} went before {safe}: {now:?}, without marks {usual:?}");
            }
        }
    }
}

#[test]
fn one_in_the_clear_waits_for_an_encrypted_one_that_is_bad_as_it_would_for_a_good_one() {
    let script = |name: &str, _: &Candidate| if name == "T4.1" { connects(300) } else { connects(40) };
    let mut world = single("TC", &[bad("T4.1")]).scripted(script);
    assert_eq!(world.run()[1..], ["0 start T4.1", "250 start C4.1", "300 won T4.1", "300 cancel C4.1"]);
}

#[test]
fn suspicion_does_not_overrule_the_order_of_paths_but_a_bad_mark_does() {
    let mut world = World::new(Config::default(), vec![path(0), path(1)], stacks("T"));
    world.race.pass_history(PathId(0), [silent("T4.1")].into_iter());
    world = world.at(0, answer(0, Family::V4, "4.1 4.2")).at(0, v6(""));
    let mut world = world.at(0, answer(1, Family::V4, "4.1")).at(0, answer(1, Family::V6, ""));
    assert_eq!(starts(&mut world), ["0 start T4.2", "250 start p1/T4.1", "500 start T4.1"]);
}

#[test]
fn a_doubt_is_told_once_and_stands_in_the_report() {
    let mut world = dual("QT", &[silent("Q6.1")]);
    world.run_until(0);
    world.race.changed_addresses(World::instant(0), PathId(0), Family::V4, addresses("4.1 4.2"));
    let log = world.run_until(3000);
    let doubted: Vec<_> = log.iter().filter(|l| l.contains("doubt")).collect();
    assert_eq!(doubted.iter().filter(|l| l.ends_with("Q6.1")).count(), 1, "{doubted:?}");
    let report = world.race.report();
    let of = |wanted: &str| report.iter().find(|r| name(&r.candidate) == wanted).unwrap().doubt;
    assert!(of("Q6.1").is_some_and(|d| d.own && d.mark.penalty.cause == BadCause::Silent));
    assert!(of("Q4.1").is_some_and(|d| !d.own));
    assert_eq!(of("T4.1"), None);
}

#[test]
fn marks_beyond_the_bound_are_not_used() {
    let many: Vec<Mark> = (1..=20).map(|n| bad(&format!("T4.{n}"))).collect();
    let mut world = World::with("T");
    world.race.pass_history(PathId(0), many.into_iter());
    let list: String = (1..=16).map(|n| format!("4.{n} ")).collect();
    let mut world = world.at(0, v4(&list)).at(0, v6(""));
    world.run_until(5000);
    assert_eq!(world.race.report().iter().filter(|r| r.doubt.is_some()).count(), crate::MAX_BAD);
}
