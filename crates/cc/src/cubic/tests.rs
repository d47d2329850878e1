use super::*;
use proptest::prelude::*;

const MSS: u64 = 1000;

fn at(secs: f64) -> Instant {
    Instant::ZERO + Duration::from_secs(10) + Duration::from_secs_f64(secs)
}

fn loss(now: Instant) -> Loss {
    Loss { now, cause: Cause::Loss, flight: 100 * MSS }
}

fn alone() -> CubicConfig {
    CubicConfig { friendliness: Friendliness::Off, hystart: None, base: Base::Window, ..CubicConfig::rfc9438() }
}

/// Acknowledges a full window, segment by segment, once per `rtt`, and returns the windows in
/// segments at the end of each round trip.
fn rounds(cubic: &mut Cubic, w: &mut Window, from: Instant, rtt: f64, n: usize) -> Vec<f64> {
    (0..n)
        .map(|i| {
            let segments = w.segments();
            for j in 0..segments {
                let now = from + Duration::from_secs_f64(rtt * (i as f64 + j as f64 / segments as f64));
                let rtt = Some(Duration::from_secs_f64(rtt));
                cubic.on_sample(w, &Ack { rtt, srtt: rtt, ..Ack::at(now) });
                cubic.grow(w, &Ack { acked: MSS, delivered: MSS, rtt, srtt: rtt, limited: true, ..Ack::at(now) });
            }
            w.cwnd as f64 / MSS as f64
        })
        .collect()
}

#[test]
fn the_cube_root_is_exact_to_the_last_digits() {
    for x in [1e-9, 0.001, 0.5, 1.0, 8.0, 27.0, 75.0, 1e6, 1e12] {
        let y = cube_root(x);
        assert!(((y * y * y - x) / x).abs() < 1e-14, "{x}: {y}");
    }
    assert_eq!(cube_root(0.0), 0.0);
}

#[test]
fn the_window_follows_the_equation_of_the_rfc() {
    // 100 segments, reduced to 70; K = cbrt(30 / 0.4) = 4.217 s. With a short round trip the window
    // is the curve.
    let mut cubic = Cubic::new(alone());
    let mut w = Window { cwnd: 100 * MSS, ssthresh: 50 * MSS, mss: MSS };
    let ssthresh = cubic.threshold(&w, &loss(at(0.0)));
    assert_eq!(ssthresh, 70 * MSS);
    w.cwnd = ssthresh;
    w.ssthresh = ssthresh;
    let course = rounds(&mut cubic, &mut w, at(0.0), 0.01, 800);
    let k = 75f64.cbrt();
    for (i, seen) in course.iter().enumerate().skip(50) {
        let t = 0.01 * (i + 1) as f64;
        let expected = 0.4 * (t - k).powi(3) + 100.0;
        assert!((seen - expected).abs() < 0.02 * expected, "at {t} s: {seen}, not {expected}");
    }
}

#[test]
fn fast_convergence_lowers_the_plateau_when_windows_shrink() {
    let mut cubic = Cubic::new(alone());
    let w = Window { cwnd: 100 * MSS, ssthresh: 0, mss: MSS };
    cubic.threshold(&w, &loss(at(0.0)));
    assert_eq!(cubic.curve.w_max, 100.0);
    cubic.threshold(&Window { cwnd: 80 * MSS, ..w }, &loss(at(1.0)));
    assert!((cubic.curve.w_max - 80.0 * 0.85).abs() < 1e-9, "{}", cubic.curve.w_max);
    let mut slow = Cubic::new(CubicConfig { fast_convergence: false, ..alone() });
    slow.threshold(&w, &loss(at(0.0)));
    slow.threshold(&Window { cwnd: 80 * MSS, ..w }, &loss(at(1.0)));
    assert_eq!(slow.curve.w_max, 80.0);
}

#[test]
fn on_short_paths_it_grows_like_reno() {
    // Ten segments and 10 ms: the cubic curve is flat, Reno's is not. alpha = 3 * 0.3 / 1.7 = 0.529
    // segments a round trip.
    let mut cubic = Cubic::new(CubicConfig { friendliness: Friendliness::Constant, ..alone() });
    let mut w = Window { cwnd: 10 * MSS, ssthresh: 50 * MSS, mss: MSS };
    w.ssthresh = cubic.threshold(&w, &loss(at(0.0)));
    w.cwnd = w.ssthresh;
    let course = rounds(&mut cubic, &mut w, at(0.0), 0.01, 40);
    let growth = course[39] - 7.0;
    assert!((growth - 40.0 * 0.529).abs() < 2.0, "{growth}");
    // RFC 9438: one segment a round trip once the window of before the congestion is reached.
    let mut cubic = Cubic::new(CubicConfig { friendliness: Friendliness::Rfc9438, ..alone() });
    let mut w = Window { cwnd: 10 * MSS, ssthresh: 50 * MSS, mss: MSS };
    w.ssthresh = cubic.threshold(&w, &loss(at(0.0)));
    w.cwnd = w.ssthresh;
    let course = rounds(&mut cubic, &mut w, at(0.0), 0.01, 40);
    let late = course[39] - course[19];
    assert!((late - 20.0).abs() < 1.5, "{late}");
}

#[test]
fn a_timeout_forgets_the_plateau() {
    let mut cubic = Cubic::new(alone());
    let w = Window { cwnd: 100 * MSS, ssthresh: 0, mss: MSS };
    let ssthresh = cubic.threshold(&w, &Loss { cause: Cause::Timeout, ..loss(at(0.0)) });
    assert_eq!((ssthresh, cubic.curve.w_max), (70 * MSS, 0.0));
}

#[test]
fn a_spurious_congestion_brings_the_curve_back() {
    let mut cubic = Cubic::new(alone());
    let w = Window { cwnd: 120 * MSS, ssthresh: 0, mss: MSS };
    cubic.threshold(&w, &loss(at(0.0)));
    cubic.threshold(&Window { cwnd: 100 * MSS, ..w }, &loss(at(1.0)));
    cubic.on_spurious(&w);
    assert_eq!(cubic.curve.w_max, 120.0);
}

#[test]
fn slow_start_ends_by_delay_at_the_window_of_the_moment() {
    let mut cubic = Cubic::new(CubicConfig::linux());
    let mut w = Window { cwnd: 40 * MSS, ssthresh: Window::UNKNOWN, mss: MSS };
    for i in 0..40u64 {
        let rtt = Some(Duration::from_millis(if i < 10 { 50 } else { 60 }));
        let ack = Ack { acked: MSS, rtt, acked_to: i, sent_to: 9 + i, limited: true, ..Ack::at(at(0.005 * i as f64)) };
        cubic.on_sample(&mut w, &ack);
        if !w.in_slow_start() {
            break;
        }
        cubic.grow(&mut w, &ack);
    }
    assert!(!w.in_slow_start() && w.ssthresh == w.cwnd, "{w:?}");
}

#[test]
fn idle_time_does_not_move_along_the_curve() {
    let mut cubic = Cubic::new(alone());
    let mut w = Window { cwnd: 100 * MSS, ssthresh: 0, mss: MSS };
    w.cwnd = cubic.threshold(&w, &loss(at(0.0)));
    rounds(&mut cubic, &mut w, at(0.0), 0.1, 3);
    let before = cubic.curve.epoch.unwrap();
    cubic.on_idle(at(9.0), Duration::from_secs(7));
    assert_eq!(cubic.curve.epoch.unwrap() - before, Duration::from_secs(7));
}

proptest! {
    /// Whatever happens, a window is finite and never below what it was before growth, and a
    /// threshold at least two segments.
    #[test]
    fn prop_windows_stay_sane(
        start in 1u64..100_000_000,
        events in proptest::collection::vec((0u64..2_000_000, 0u64..3_000_000, 0u8..12), 1..200),
        linux in any::<bool>(),
    ) {
        let mut cubic = Cubic::new(if linux { CubicConfig::linux() } else { CubicConfig::rfc9438() });
        let mut w = Window { cwnd: start.max(MSS), ssthresh: Window::UNKNOWN, mss: MSS };
        let mut now = at(0.0);
        for (us, acked, what) in events {
            now += Duration::from_micros(us);
            let rtt = Some(Duration::from_micros(us));
            let before = w.cwnd;
            match what {
                0 => { w.ssthresh = cubic.threshold(&w, &loss(now)); w.cwnd = w.ssthresh; prop_assert!(w.cwnd >= 2 * MSS); }
                1 => { w.ssthresh = cubic.threshold(&w, &Loss { cause: Cause::Timeout, ..loss(now) }); w.cwnd = MSS; }
                2 => cubic.on_spurious(&w),
                _ => {
                    let ack = Ack { acked, delivered: acked, rtt, srtt: rtt, limited: true, ..Ack::at(now) };
                    cubic.on_sample(&mut w, &ack);
                    cubic.grow(&mut w, &ack);
                    prop_assert!(w.cwnd >= before && w.cwnd <= before + acked + MSS);
                }
            }
        }
    }
}

#[test]
fn while_nothing_is_known_the_window_grows_by_a_share_of_itself() {
    // Slow start was left at 100 segments, long before the path was full.
    let course = |unknown_growth| {
        let mut cubic = Cubic::new(CubicConfig { unknown_growth, ..alone() });
        let mut w = Window { cwnd: 100 * MSS, ssthresh: 100 * MSS, mss: MSS };
        rounds(&mut cubic, &mut w, at(0.0), 0.05, 20)
    };
    let (rfc, linux) = (course(None), course(Some(20)));
    // The curve alone: 0.4 segments after the first second.
    assert!(rfc[19] < 102.0, "{rfc:?}");
    assert!((104.0..106.0).contains(&linux[0]) && linux[19] > 240.0, "{linux:?}");
    // Once there was congestion it is the curve that counts.
    let mut cubic = Cubic::new(CubicConfig { unknown_growth: Some(20), ..alone() });
    let mut w = Window { cwnd: 100 * MSS, ssthresh: 50 * MSS, mss: MSS };
    w.cwnd = cubic.threshold(&w, &loss(at(0.0)));
    w.ssthresh = w.cwnd;
    let after = rounds(&mut cubic, &mut w, at(0.0), 0.05, 200);
    assert!(after[199] < 180.0, "{after:?}");
}
