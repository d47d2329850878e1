use super::*;
use core::net::SocketAddr;
use proptest::prelude::*;

const BASIS: u64 = 0xb;

fn second(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A process that has run for an hour, at this second of an hour that both clocks have seen begin.
fn at(n: u64) -> (Instant, WallTime) {
    (Instant::ZERO + second(3600 + n), WallTime(second(1_700_000_000 + n)))
}

/// The next process: its own clock began elsewhere.
fn later(n: u64) -> (Instant, WallTime) {
    (Instant::ZERO + second(100_000 + n), at(n).1)
}

fn key(n: u64) -> CacheKey {
    CacheKey { network: n % 3, endpoint: n, request: u64::MAX, isolation: 0 }
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn outcome(n: u16) -> Outcome {
    Outcome::new(StackId(n), addr("192.0.2.1:443"), PathId(1), Some(Duration::from_micros(1234)))
}

fn silent(n: u16) -> Penalty {
    let penalty = Penalty::new(StackId(n), addr("[fe80::1%3]:443"), BadCause::Silent);
    Penalty { suspect_group: true, ..penalty }
}

fn learnt() -> OutcomeCache {
    let mut cache = OutcomeCache::new(1);
    cache.record_success(at(0).0, key(1), outcome(5));
    cache.record_bad(at(0).0, key(1), silent(6));
    cache.record_success(at(0).0, key(2), outcome(7));
    cache
}

fn text_of(cache: &OutcomeCache, n: u64) -> String {
    cache.export(at(n).0, at(n).1, BASIS).unwrap()
}

fn import(text: &str, n: u64) -> (OutcomeCache, Result<usize, SavedError>) {
    let mut cache = OutcomeCache::new(2);
    let done = cache.import(later(n).0, later(n).1, BASIS, text);
    (cache, done)
}

#[test]
fn the_next_process_knows_what_this_one_has_learnt_for_as_long_as_it_would() {
    let text = text_of(&learnt(), 10);
    let (mut cache, done) = import(&text, 20);
    assert_eq!(done, Ok(2));
    let end = later(600).0;
    assert_eq!(cache.get(later(20).0, &key(1)), Some(Outcome { expires: end, ..outcome(5) }));
    assert_eq!(cache.get(later(599).0, &key(2)).map(|o| o.stack), Some(StackId(7)));
    assert_eq!(cache.get(end, &key(2)), None);
    let marks: Vec<_> = cache.marks(later(20).0, &key(1)).copied().collect();
    assert_eq!(marks, [Mark { penalty: silent(6), since: later(0).0, until: later(60).0 }]);
    assert_eq!(cache.marks(later(60).0, &key(1)).count(), 0);
    // Found bad again after that, it is bad for twice as long, as in one process.
    cache.record_bad(later(70).0, key(1), silent(6));
    assert!(cache.is_bad(later(189).0, key(1), StackId(6), silent(6).addr));
}

#[test]
fn what_was_imported_is_not_worth_writing_again_and_what_was_learnt_is() {
    let text = text_of(&learnt(), 0);
    let (mut cache, _) = import(&text, 1);
    let export = |cache: &OutcomeCache, n| cache.export(later(n).0, later(n).1, BASIS);
    assert_eq!(export(&cache, 1), None);
    assert!(cache.get(later(1).0, &key(1)).is_some());
    cache.give_way(later(1).0, &key(1), |_, _| false);
    cache.record_served(&key(1), StackId(5), outcome(5).addr);
    cache.record_answer(&key(1), StackId(5), outcome(5).addr);
    assert_eq!(export(&cache, 1), None);
    cache.record_success(later(2).0, key(3), outcome(9));
    let (merged, done) = import(&export(&cache, 2).unwrap(), 3);
    assert_eq!((done, merged.len()), (Ok(3), 3));
}

#[test]
fn what_is_known_here_stays_and_what_another_process_has_added_is_taken_in() {
    let mut cache = OutcomeCache::new(3);
    cache.record_success(later(5).0, key(1), outcome(1));
    assert_eq!(cache.import(later(5).0, later(5).1, BASIS, &text_of(&learnt(), 0)), Ok(1));
    assert_eq!(cache.get(later(5).0, &key(1)).map(|o| o.stack), Some(StackId(1)));
    assert_eq!(cache.get(later(5).0, &key(2)).map(|o| o.stack), Some(StackId(7)));
    let mut full = OutcomeCache::with_limits(second(600), 1, 3);
    full.record_success(later(5).0, key(9), outcome(1));
    assert_eq!(full.import(later(5).0, later(5).1, BASIS, &text_of(&learnt(), 0)), Ok(0));
}

#[test]
fn the_order_of_use_is_kept() {
    let mut cache = OutcomeCache::with_limits(second(600), 2, 3);
    assert_eq!(cache.import(later(5).0, later(5).1, BASIS, &text_of(&learnt(), 0)), Ok(2));
    cache.record_success(later(5).0, key(9), outcome(1));
    assert!(cache.get(later(5).0, &key(1)).is_none(), "it was used before the other");
    assert!(cache.get(later(5).0, &key(2)).is_some());
}

#[test]
fn rates_are_kept_for_a_day_and_the_later_of_two_counts() {
    let key = RateKey { network: 1, host: u64::MAX, stack: StackId(5) };
    let mut cache = OutcomeCache::new(1);
    cache.record_rate(at(0).0, key, crate::MIN_TRANSFER - 1, second(1));
    assert_eq!(cache.export(at(0).0, at(0).1, BASIS), None, "it was too short to count");
    cache.record_rate(at(0).0, key, 8_000_000, second(2));
    let text = text_of(&cache, 1);
    let rate = |cache: &OutcomeCache, n| cache.rates().get(later(n).0, &key);
    let (read, done) = import(&text, 2);
    assert_eq!(done, Ok(0));
    assert_eq!(rate(&read, 2), Some(Rate { bytes_per_second: 4_000_000, until: later(86_400).0 }));
    assert_eq!(rate(&import(&text, 86_400).0, 86_400), None);
    let mut own = OutcomeCache::new(1);
    own.record_rate(later(1).0, key, 2_000_000, second(2));
    assert_eq!(own.import(later(2).0, later(2).1, BASIS, &text), Ok(0));
    assert_eq!(rate(&own, 2).map(|r| r.bytes_per_second), Some(1_000_000));
    let to_come = text.replacen("1700086400000", "1700086401001", 1);
    assert_eq!(rate(&import(&to_come, 2).0, 2), None);
}

#[test]
fn nothing_of_isolated_sessions_is_written() {
    let mut cache = OutcomeCache::new(1);
    let key = CacheKey { isolation: 7, ..key(1) };
    cache.record_success(at(0).0, key, outcome(5));
    cache.record_bad(at(0).0, key, silent(6));
    assert_eq!(cache.export(at(1).0, at(1).1, BASIS), None);
    cache.forget_outcomes();
    assert_eq!(text_of(&cache, 1).lines().count(), 2, "header and end");
}

#[test]
fn what_has_worked_does_not_count_on_another_basis_but_what_was_no_good_does() {
    let mut cache = OutcomeCache::new(2);
    assert_eq!(cache.import(later(1).0, later(1).1, BASIS + 1, &text_of(&learnt(), 0)), Ok(1));
    assert_eq!(cache.get(later(1).0, &key(1)), None);
    assert_eq!(cache.marks(later(1).0, &key(1)).count(), 1);
}

#[test]
fn no_time_of_the_future_is_believed() {
    let text = text_of(&learnt(), 100);
    assert_eq!(import(&text, 99).1, Err(SavedError::FromTheFuture));
    let worked = |expires: u64| {
        let wall = 1_700_000_100_000_u64 + expires;
        format!("{MAGIC} {VERSION} 1700000100000 b\nk 1 2 3 0 0\no 5 192.0.2.1:443 0 {wall} 0 0\nend\n")
    };
    assert_eq!(import(&worked(600_000), 100).1, Ok(1));
    assert_eq!(import(&worked(600_001), 100).1, Ok(0));
    let bad = |since: u64, until: u64| {
        let wall = 1_700_000_100_000_u64;
        let (since, until) = (wall + since, wall + until);
        format!("{MAGIC} {VERSION} {wall} b\nk 1 2 3 0 0\nb 5 192.0.2.1:443 1 0 {since} {until} 0\nend\n")
    };
    assert_eq!(import(&bad(0, 600_000), 100).1, Ok(1));
    assert_eq!(import(&bad(0, 600_001), 100).1, Ok(0));
    assert_eq!(import(&bad(1, 2), 100).1, Ok(0));
}

#[test]
fn what_is_something_else_is_refused_with_the_reason() {
    let text = text_of(&learnt(), 0);
    assert_eq!(import("", 1).1, Err(SavedError::NotOutcomes));
    assert_eq!(import("neater-outcomes 2 x", 1).1, Err(SavedError::NotOutcomes));
    assert_eq!(import(&text.replace(VERSION, "0.0.0-none"), 1).1, Err(SavedError::OtherVersion));
    assert_eq!(import(&" ".repeat(MAX_SAVED + 1), 1).1, Err(SavedError::TooLong));
    let lines = text.lines().count();
    let cut = text.strip_suffix("end\n").unwrap();
    assert_eq!(import(cut, 1).1, Err(SavedError::Damaged(lines)));
    assert_eq!(import(&format!("{text}more\n"), 1).1, Err(SavedError::Damaged(lines + 1)));
    for (from, to) in [("\nk ", "\nx "), ("\no 7", "\no -7"), ("\no 7", "\no  7"), ("\nb 6", "\nb 66666"), ("443", "")]
    {
        let (cache, done) = import(&text.replacen(from, to, 1), 1);
        assert!(matches!(done, Err(SavedError::Damaged(_))), "{to}");
        assert!(cache.is_empty());
    }
}

#[test]
fn the_text_is_bounded_and_leaves_out_what_was_used_longest_ago() {
    let mut cache = OutcomeCache::new(1);
    for n in 0..4096 {
        for stack in 0..8 {
            cache.record_bad(at(0).0, key(n), Penalty::new(StackId(stack), addr("[2001:db8::1]:443"), BadCause::Died));
        }
    }
    let text = text_of(&cache, 1);
    assert!(text.len() <= MAX_SAVED && text.len() > MAX_SAVED - 2000);
    let (read, done) = import(&text, 2);
    assert_eq!(done, Ok(read.len()));
    assert!(read.is_bad(later(2).0, key(4095), StackId(0), addr("[2001:db8::1]:443")));
    assert!(!read.is_bad(later(2).0, key(0), StackId(0), addr("[2001:db8::1]:443")));
}

proptest! {
    #[test]
    fn damaged_text_does_no_harm(place in any::<prop::sample::Index>(), with in ".{0,4}", length in 0usize..6) {
        let mut text = text_of(&learnt(), 0);
        let from = place.index(text.len());
        text.replace_range(from..(from + length).min(text.len()), &with);
        let (cache, done) = import(&text, 1);
        prop_assert_eq!(cache.len(), done.unwrap_or(0));
    }

    #[test]
    fn any_lines_do_no_harm(lines in prop::collection::vec("[kobr] [0-9a-f .:\\[\\]%]{0,60}", 0..6)) {
        let text = format!("{MAGIC} {VERSION} 0 b\n{}\nend\n", lines.join("\n"));
        let (cache, done) = import(&text, 1);
        prop_assert_eq!(cache.len(), done.unwrap_or(0));
    }
}
