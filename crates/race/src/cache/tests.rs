use super::*;
use neater_base::Rng;
use std::collections::BTreeMap;

const MINUTE: Duration = Duration::from_secs(60);

fn key(n: u64) -> CacheKey {
    CacheKey { network: n % 3, endpoint: n, request: 0, isolation: 0 }
}

fn addr(n: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], n))
}

fn outcome(n: u16) -> Outcome {
    Outcome::new(StackId(n), addr(n), PathId(0), Some(Duration::from_millis(20)))
}

fn at(minutes: u32) -> Instant {
    Instant::ZERO + MINUTE * (60 + minutes)
}

#[test]
fn what_worked_is_remembered_for_ten_minutes() {
    let mut cache = OutcomeCache::new(1);
    cache.record_success(at(0), key(1), outcome(5));
    let expected = Outcome { expires: at(10), ..outcome(5) };
    assert_eq!(cache.get(at(9), &key(1)), Some(expected));
    assert_eq!(cache.get(at(10), &key(1)), None);
    cache.record_success(at(10), key(1), outcome(6));
    assert_eq!(cache.get(at(11), &key(1)).map(|o| o.stack), Some(StackId(6)));
}

#[test]
fn every_part_of_the_key_keeps_histories_apart() {
    let mut cache = OutcomeCache::new(1);
    let base = CacheKey { network: 1, endpoint: 2, request: 3, isolation: 4 };
    cache.record_success(at(0), base, outcome(5));
    for other in [
        CacheKey { network: 9, ..base },
        CacheKey { endpoint: 9, ..base },
        CacheKey { request: 9, ..base },
        CacheKey { isolation: 9, ..base },
    ] {
        assert_eq!(cache.get(at(0), &other), None, "{other:?}");
    }
    assert!(cache.get(at(0), &base).is_some());
}

#[test]
fn a_failure_right_after_set_up_drops_the_outcome_and_marks_it_bad_for_a_minute() {
    let mut cache = OutcomeCache::new(1);
    cache.record_success(at(0), key(1), outcome(5));
    cache.record_failure(at(0), key(1), BadCause::Died);
    assert_eq!(cache.get(at(0), &key(1)), None);
    assert!(cache.is_bad(at(0), key(1), StackId(5), addr(5)));
    assert!(!cache.is_bad(at(0), key(1), StackId(5), addr(6)), "another address is not");
    assert!(!cache.is_bad(at(0), key(2), StackId(5), addr(5)), "nor under another key");
    assert!(!cache.is_bad(at(1), key(1), StackId(5), addr(5)), "nor later");
}

#[test]
fn a_bad_candidate_that_wins_again_is_not_told_before_its_minute_is_over() {
    let mut cache = OutcomeCache::new(1);
    cache.record_success(at(0), key(1), outcome(5));
    cache.record_failure(at(0), key(1), BadCause::Died);
    cache.record_success(at(0), key(1), outcome(5));
    assert_eq!(cache.get(at(0), &key(1)), None);
    assert_eq!(cache.get(at(1), &key(1)).map(|o| (o.stack, o.failures)), Some((StackId(5), 1)));
    cache.record_success(at(0), key(1), outcome(6));
    assert_eq!(cache.get(at(0), &key(1)).map(|o| o.stack), Some(StackId(6)), "another one is told at once");
}

#[test]
fn failures_are_counted_until_none_has_happened_for_a_lifetime() {
    let mut cache = OutcomeCache::new(1);
    for minute in 0..3 {
        cache.record_success(at(minute), key(1), outcome(5));
        cache.record_failure(at(minute), key(1), BadCause::Died);
    }
    cache.record_success(at(4), key(1), outcome(6));
    assert_eq!(cache.get(at(4), &key(1)).map(|o| o.failures), Some(3));
    cache.record_success(at(12), key(1), outcome(6));
    assert_eq!(cache.get(at(12), &key(1)).map(|o| o.failures), Some(0));
}

#[test]
fn a_failure_without_an_outcome_changes_nothing() {
    let mut cache = OutcomeCache::new(1);
    cache.record_failure(at(0), key(1), BadCause::Died);
    assert!(cache.is_empty());
    cache.record_success(at(0), key(1), outcome(5));
    cache.record_failure(at(30), key(1), BadCause::Died);
    assert!(!cache.is_bad(at(30), key(1), StackId(5), addr(5)));
}

#[test]
fn of_too_many_bad_candidates_the_latest_are_remembered() {
    let mut cache = OutcomeCache::new(1);
    let time = |n: u16| at(0) + Duration::from_secs(u64::from(n));
    for n in 0..10 {
        cache.record_bad(time(n), key(1), Penalty::new(StackId(n), addr(n), BadCause::Failed));
    }
    let bad: Vec<u16> = (0..10).filter(|n| cache.is_bad(time(10), key(1), StackId(*n), addr(*n))).collect();
    assert_eq!(bad, [2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(cache.marks(time(10), &key(1)).count(), MAX_BAD);
}

#[test]
fn the_one_used_longest_ago_makes_room() {
    let mut cache = OutcomeCache::with_limits(MINUTE, 3, 1);
    for n in 1..=3 {
        cache.record_success(at(0), key(n), outcome(5));
    }
    assert!(cache.get(at(0), &key(1)).is_some(), "used again");
    cache.record_success(at(0), key(4), outcome(5));
    assert_eq!(cache.len(), 3);
    let left: Vec<u64> = (1..=4).filter(|n| cache.get(at(0), &key(*n)).is_some()).collect();
    assert_eq!(left, [1, 3, 4]);
}

#[test]
fn a_network_that_is_left_is_forgotten() {
    let mut cache = OutcomeCache::new(1);
    for n in 0..30 {
        cache.record_success(at(0), key(n), outcome(5));
    }
    cache.flush_network(1);
    let left: Vec<u64> = (0..30).filter(|n| cache.get(at(0), &key(*n)).is_some()).collect();
    assert_eq!(left, (0..30).filter(|n| n % 3 != 1).collect::<Vec<_>>());
    assert_eq!(cache.len(), 20);
}

fn penalty(n: u16, cause: BadCause) -> Penalty {
    Penalty::new(StackId(n), addr(n), cause)
}

/// For how many minutes the candidate stays bad from this minute on.
fn bad_for(cache: &OutcomeCache, from: u32, n: u16) -> u32 {
    (0..100).find(|m| !cache.is_bad(at(from + m), key(1), StackId(n), addr(n))).unwrap()
}

#[test]
fn a_candidate_that_is_bad_again_and_again_is_so_for_longer_but_ten_minutes_at_most() {
    let mut cache = OutcomeCache::new(1);
    let (mut minute, mut lasted) = (0, Vec::new());
    for _ in 0..6 {
        cache.record_bad(at(minute), key(1), penalty(5, BadCause::Silent));
        let minutes = bad_for(&cache, minute, 5);
        lasted.push(minutes);
        minute += minutes;
    }
    assert_eq!(lasted, [1, 2, 4, 8, 10, 10]);
    // Ten minutes after its mark has expired, all is forgiven.
    cache.record_bad(at(minute + 10), key(1), penalty(5, BadCause::Silent));
    assert_eq!(bad_for(&cache, minute + 10, 5), 1);
}

#[test]
fn a_burst_of_failures_makes_a_mark_no_longer_than_one_does() {
    let mut cache = OutcomeCache::new(1);
    for _ in 0..1000 {
        cache.record_bad(at(0), key(1), penalty(5, BadCause::Failed));
    }
    assert_eq!(bad_for(&cache, 0, 5), 1);
    // And when it is bad again after that, it was bad once before.
    cache.record_bad(at(1), key(1), penalty(5, BadCause::Failed));
    assert_eq!(bad_for(&cache, 1, 5), 2);
}

#[test]
fn a_success_refutes_what_was_said_against_reaching_the_candidate() {
    for cause in [BadCause::Failed, BadCause::Silent, BadCause::Stalled] {
        let mut cache = OutcomeCache::new(1);
        cache.record_bad(at(0), key(1), penalty(5, cause));
        cache.record_success(at(0), key(1), outcome(5));
        assert!(!cache.is_bad(at(0), key(1), StackId(5), addr(5)), "{cause}");
        assert!(cache.get(at(0), &key(1)).is_some(), "{cause}");
    }
}

#[test]
fn how_a_candidate_served_is_not_refuted_by_its_set_up_but_by_its_service() {
    for cause in [BadCause::Died, BadCause::Unanswered, BadCause::Broken, BadCause::WantsOther] {
        let mut cache = OutcomeCache::new(1);
        cache.record_success(at(0), key(1), outcome(5));
        let other = Penalty { suspect_group: true, ..penalty(6, cause) };
        cache.record_bad(at(0), key(1), Penalty { suspect_group: true, ..penalty(5, cause) });
        cache.record_bad(at(0), key(1), other);
        assert_eq!(cache.get(at(0), &key(1)), None, "{cause}: the outcome is dropped");
        cache.record_success(at(0), key(1), outcome(5));
        assert!(cache.is_bad(at(0), key(1), StackId(5), addr(5)), "{cause}");
        assert_eq!(cache.get(at(0), &key(1)), None, "{cause}: it is not what is tried first");
        assert!(cache.marks(at(0), &key(1)).all(|m| m.penalty.suspect_group), "{cause}");
        cache.record_served(&key(1), StackId(5), addr(5));
        assert!(!cache.is_bad(at(0), key(1), StackId(5), addr(5)), "{cause}");
        assert!(cache.get(at(0), &key(1)).is_some(), "{cause}");
        assert_eq!(cache.marks(at(0), &key(1)).map(|m| m.penalty).collect::<Vec<_>>(), [other], "{cause}");
    }
}

#[test]
fn a_service_that_is_good_clears_no_failed_set_up() {
    let mut cache = OutcomeCache::new(1);
    cache.record_served(&key(1), StackId(5), addr(5));
    assert!(cache.is_empty());
    cache.record_bad(at(0), key(1), penalty(5, BadCause::Failed));
    cache.record_served(&key(1), StackId(5), addr(5));
    assert!(cache.is_bad(at(0), key(1), StackId(5), addr(5)));
}

#[test]
fn a_refusal_lasts_ten_minutes_and_never_longer() {
    let mut cache = OutcomeCache::new(1);
    cache.record_bad(at(0), key(1), penalty(5, BadCause::WantsOther));
    assert!(cache.is_bad(at(9), key(1), StackId(5), addr(5)) && !cache.is_bad(at(10), key(1), StackId(5), addr(5)));
    cache.record_bad(at(11), key(1), penalty(5, BadCause::WantsOther));
    assert!(cache.is_bad(at(20), key(1), StackId(5), addr(5)) && !cache.is_bad(at(21), key(1), StackId(5), addr(5)));
    cache.record_bad(at(0), key(2), penalty(5, BadCause::Broken));
    assert!(!cache.is_bad(at(1), key(2), StackId(5), addr(5)), "a minute is enough for what may be an accident");
}

#[test]
fn a_success_clears_the_suspicions_of_its_stack_and_of_its_family() {
    let mut cache = OutcomeCache::new(1);
    let v6: SocketAddr = "[2001:db8::1]:443".parse().unwrap();
    let suspect = |stack, addr| Penalty {
        stack,
        addr,
        suspect_group: true,
        suspect_family: true,
        ..penalty(5, BadCause::Silent)
    };
    cache.record_bad(at(0), key(1), suspect(StackId(5), v6));
    cache.record_bad(at(0), key(1), suspect(StackId(6), addr(6)));
    cache.record_success(at(0), key(1), outcome(5));
    let left: Vec<_> =
        cache.marks(at(0), &key(1)).map(|m| (m.penalty.suspect_group, m.penalty.suspect_family)).collect();
    assert_eq!(left, [(false, true), (true, false)]);
}

#[test]
fn a_late_answer_refutes_silence_and_makes_no_history() {
    let mut cache = OutcomeCache::new(1);
    cache.record_answer(&key(1), StackId(5), addr(5));
    assert!(cache.is_empty());
    cache.record_bad(at(0), key(1), penalty(5, BadCause::Silent));
    cache.record_answer(&key(1), StackId(5), addr(5));
    assert!(!cache.is_bad(at(0), key(1), StackId(5), addr(5)));
}

#[test]
fn an_outcome_gives_way_when_the_mark_of_a_better_stack_expires() {
    let better = |a: StackId, b: StackId| a.0 < b.0;
    let mut cache = OutcomeCache::new(1);
    cache.record_bad(at(0), key(1), penalty(4, BadCause::Silent));
    cache.record_bad(at(0), key(1), penalty(6, BadCause::Silent));
    cache.record_success(at(0), key(1), outcome(5));
    cache.give_way(at(0), &key(1), better);
    assert_eq!(cache.get(at(0), &key(1)).map(|o| o.expires), Some(at(1)));
    assert_eq!(cache.get(at(1), &key(1)), None, "the better one is worth another try");
    // A worse one that is bad is no reason.
    cache.record_success(at(1), key(1), outcome(3));
    cache.give_way(at(1), &key(1), better);
    assert_eq!(cache.get(at(1), &key(1)).map(|o| o.expires), Some(at(11)));
}

#[test]
fn marks_are_told_under_their_own_key_while_they_live() {
    let mut cache = OutcomeCache::new(1);
    cache.record_bad(at(0), key(1), penalty(5, BadCause::Stalled));
    let expected = Mark { penalty: penalty(5, BadCause::Stalled), since: at(0), until: at(1) };
    assert_eq!(cache.marks(at(0), &key(1)).collect::<Vec<_>>(), [&expected]);
    assert_eq!(cache.marks(at(1), &key(1)).count(), 0);
    assert_eq!(cache.marks(at(0), &key(2)).count(), 0);
}

/// A map and a list of uses, searched from end to end: slow, and too plain to be wrong.
#[derive(Default)]
struct Model {
    entries: BTreeMap<CacheKey, u16>,
    uses: Vec<CacheKey>,
}

impl Model {
    fn touch(&mut self, key: CacheKey) {
        self.uses.retain(|k| *k != key);
        self.uses.push(key);
    }

    fn record(&mut self, key: CacheKey, n: u16, capacity: usize) {
        if !self.entries.contains_key(&key) && self.entries.len() == capacity {
            let oldest = self.uses.remove(0);
            self.entries.remove(&oldest);
        }
        self.entries.insert(key, n);
        self.touch(key);
    }
}

#[test]
fn it_behaves_like_a_plain_list_under_random_use() {
    for seed in 0..50 {
        let mut rng = Rng::from_number(seed);
        let capacity = 1 + rng.below(8) as usize;
        let mut cache = OutcomeCache::with_limits(MINUTE, capacity, seed);
        let mut model = Model::default();
        for _ in 0..300 {
            let k = key(rng.below(12));
            match rng.below(20) {
                0 => {
                    cache.flush_network(k.network);
                    model.entries.retain(|key, _| key.network != k.network);
                    model.uses.retain(|key| key.network != k.network);
                }
                1..8 => {
                    let n = rng.u16();
                    cache.record_success(at(0), k, outcome(n));
                    model.record(k, n, capacity);
                }
                _ => {
                    let expected = model.entries.get(&k).copied();
                    assert_eq!(cache.get(at(0), &k).map(|o| o.stack.0), expected, "seed {seed}");
                    if expected.is_some() {
                        model.touch(k);
                    }
                }
            }
            assert_eq!(cache.len(), model.entries.len());
            assert!(cache.len() <= capacity);
        }
    }
}
