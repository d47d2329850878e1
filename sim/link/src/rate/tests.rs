use super::*;

const MS: Duration = Duration::from_millis(1);
const MBIT: u64 = 1_000_000;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// When packets of these sizes leave that are all there from `from` on.
fn ends(rate: &Rate, from: Instant, lens: &[u32]) -> Vec<Instant> {
    let mut transmitter = Transmitter::new(Instant::ZERO);
    lens.iter()
        .map(|len| {
            let start = transmitter.start(rate, from);
            transmitter.send(rate, start, *len)
        })
        .collect()
}

#[test]
fn a_fixed_rate_does_not_drift() {
    // 100 bytes at 7 Mbit/s are 114,285.714... ns.
    let got = ends(&Rate::Fixed(7 * MBIT), at(1), &[100; 7000]);
    assert_eq!(got[0], at(1).after_nanos(114_286));
    for (i, end) in got.iter().enumerate() {
        let exact = (i as u64 + 1) * 800_000_000_000 / 7_000_000;
        assert!((*end - at(1)).as_nanos() as u64 - exact <= 1, "{i}");
    }
    // 64 bytes at 100 Gbit/s are 5.12 ns.
    let got = ends(&Rate::Fixed(100_000 * MBIT), at(0), &[64; 100_000]);
    assert_eq!(got[99_999].as_nanos(), 512_000);
}

#[test]
fn steps_carry_what_lies_under_their_curve() {
    // 1 ms at 8 Mbit/s are 1,000 bytes, 2 ms at 1.6 Mbit/s are 400, 1 ms at 0 none.
    let steps = RateSteps::new([(Duration::ZERO, 8 * MBIT), (MS, 1_600_000), (MS * 3, 0)], Some(MS * 4)).unwrap();
    assert_eq!(
        (steps.at(MS / 2), steps.at(MS * 2), steps.at(MS * 3), steps.at(MS * 4)),
        (8 * MBIT, 1_600_000, 0, 8 * MBIT)
    );
    let rate = Rate::Steps(Arc::new(steps));
    assert_eq!(ends(&rate, at(0), &[1000, 200, 200, 1000]), [at(1), at(2), at(3), at(5)]);
    // Over a pause, over many periods, and from the middle of a pause.
    assert_eq!(ends(&rate, at(0), &[1200, 1200]), [at(2), at(5)]);
    assert_eq!(ends(&rate, at(0), &[140_000, 1000]), [at(399), at(401)]);
    assert_eq!(ends(&rate, at(3), &[500]), [at(4) + MS / 2]);
    let transmitter = Transmitter::new(Instant::ZERO);
    assert_eq!(transmitter.start(&rate, at(3)), at(4));
}

#[test]
fn steps_without_repetition_go_on_with_the_last() {
    let steps = RateSteps::new([(Duration::ZERO, 0), (MS * 10, 8 * MBIT)], None).unwrap();
    assert_eq!(ends(&Rate::Steps(Arc::new(steps)), at(0), &[1000, 1000]), [at(11), at(12)]);
}

#[test]
fn steps_by_which_packets_would_wait_for_ever_are_refused() {
    let new = |steps: &[(Duration, u64)], period| RateSteps::new(steps.iter().copied(), period).unwrap_err();
    assert_eq!(new(&[], None), RateStepsError::Count(0));
    assert_eq!(new(&[(MS, 1)], None), RateStepsError::LateStart);
    assert_eq!(new(&[(Duration::ZERO, 1), (MS, 1), (MS, 2)], None), RateStepsError::OutOfOrder(2));
    assert_eq!(new(&[(Duration::ZERO, 1), (MS, 1)], Some(MS)), RateStepsError::ShortPeriod);
    assert_eq!(new(&[(Duration::ZERO, 1), (MS, 0)], None), RateStepsError::EndsAtZero);
    assert_eq!(new(&[(Duration::ZERO, 0), (MS, 0)], Some(MS * 2)), RateStepsError::EndsAtZero);
}

#[test]
fn a_slow_rate_with_a_short_period_takes_no_long_computation() {
    let steps =
        RateSteps::new([(Duration::ZERO, 1), (Duration::from_nanos(1), 0)], Some(Duration::from_nanos(2))).unwrap();
    // 8 bits at half a bit per second.
    let end = ends(&Rate::Steps(Arc::new(steps)), at(0), &[1])[0];
    assert_eq!(end, at(16_000) - Duration::from_nanos(1));
}

fn trace(text: &str) -> Rate {
    Rate::Trace(Arc::new(DeliveryTrace::parse(text).unwrap()))
}

#[test]
fn a_packet_leaves_with_an_opportunity_of_the_trace() {
    let rate = trace("0\n2\n2\n5\n");
    // The period is 5 ms, so the opportunities are at 0, 2, 2, 5, 5, 7, 7, 10, 10, ...
    assert_eq!(ends(&rate, at(0), &[1500; 9]), [0, 2, 2, 5, 5, 7, 7, 10, 10].map(at));
    assert_eq!(ends(&rate, at(1), &[1500; 2]), [2, 2].map(at));
    assert_eq!(ends(&rate, at(3), &[1500; 2]), [5, 5].map(at));
    assert_eq!(ends(&rate, at(5_000_000), &[1500; 3]), [5_000_000, 5_000_000, 5_000_002].map(at));
    assert_eq!(ends(&rate, at(5).after_nanos(1), &[1500]), [at(7)]);
}

#[test]
fn packets_share_opportunities_and_take_several() {
    let rate = trace("1\n2\n3\n4\n");
    assert_eq!(ends(&rate, at(0), &[500, 500, 500, 500]), [1, 1, 1, 2].map(at));
    // 1,000 bytes at 1; 500 at 1 and 500 at 2; 1,000 at 2.
    assert_eq!(ends(&rate, at(0), &[1000, 1000, 1000, 3001]), [1, 2, 2, 5].map(at));
    // What nobody uses is lost.
    let mut transmitter = Transmitter::new(Instant::ZERO);
    let start = transmitter.start(&rate, at(0));
    assert_eq!((start, transmitter.send(&rate, start, 100)), (at(1), at(1)));
    assert_eq!(transmitter.start(&rate, at(1)), at(1));
    assert_eq!(transmitter.start(&rate, at(1).after_nanos(1)), at(2));
    assert_eq!(transmitter.start(&rate, at(3)), at(3));
}

#[test]
fn the_text_of_a_trace_is_read_and_written() {
    let trace = DeliveryTrace::parse(" 1\r\n\n2 \n2\n").unwrap();
    assert_eq!(trace.to_text(), "1\n2\n2\n");
    assert_eq!(trace.period(), MS * 2);
    assert!((trace.mean_rate() - 18e6).abs() < 1.0);
    let error = |text| DeliveryTrace::parse(text).unwrap_err().to_string();
    assert_eq!(error("1\nx\n"), "line 2: expected a time in whole milliseconds, at most 4294967295");
    assert_eq!(error("1\n+2\n"), "line 2: expected a time in whole milliseconds, at most 4294967295");
    assert_eq!(error("5\n\n4\n"), "line 3: the time is earlier than in the line before: sort the file");
    assert_eq!(error("0\n0\n"), "the trace takes no time: its last line must be greater than 0");
    assert_eq!(error(""), error("0"));
}
