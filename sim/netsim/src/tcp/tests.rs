//! Two machines against each other, and against segments that no machine would send.

use super::*;
use bytes::Bytes;

const MTU: u32 = 1500;

fn now(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(1000 + ms)
}

fn output(conn: &mut Conn) -> Vec<Segment> {
    std::iter::from_fn(|| conn.take_output()).collect()
}

/// Hands segments over until both are silent. Nothing is lost.
fn exchange(a: &mut Conn, b: &mut Conn, at: Instant) {
    for _ in 0..1000 {
        let (from_a, from_b) = (output(a), output(b));
        if from_a.is_empty() && from_b.is_empty() {
            return;
        }
        from_a.iter().for_each(|s| b.on_segment(at, s, true));
        from_b.iter().for_each(|s| a.on_segment(at, s, true));
    }
    panic!("never silent");
}

fn established() -> (Conn, Conn) {
    established_with(TcpConfig::linux())
}

fn established_with(tcp: TcpConfig) -> (Conn, Conn) {
    let options = Options { tcp, ..Options::default() };
    let mut a = Conn::connect(now(0), Seq(1000), MTU, 20, options);
    let syn = output(&mut a).remove(0);
    let mut b = Conn::accept(now(0), &syn, Seq(5000), MTU, 20, options);
    exchange(&mut a, &mut b, now(0));
    assert_eq!((a.state(), b.state()), (State::Established, State::Established));
    (a, b)
}

fn read(conn: &mut Conn, at: Instant) -> Result<Vec<u8>, ErrorKind> {
    let mut buf = [0; 4096];
    conn.read(at, &mut buf).map(|n| buf[..n].to_vec())
}

#[test]
fn a_simultaneous_open_makes_one_connection() {
    let mut a = Conn::connect(now(0), Seq(1000), MTU, 20, Options::default());
    let mut b = Conn::connect(now(0), Seq(5000), MTU, 20, Options::default());
    exchange(&mut a, &mut b, now(10));
    assert_eq!((a.state(), b.state()), (State::Established, State::Established));
    a.write(now(20), [&b"both"[..]]).unwrap();
    exchange(&mut a, &mut b, now(20));
    assert_eq!(read(&mut b, now(20)).unwrap(), b"both");
}

#[test]
fn a_simultaneous_close_passes_through_closing() {
    let (mut a, mut b) = established();
    a.shutdown_write(now(10)).unwrap();
    b.shutdown_write(now(10)).unwrap();
    let (from_a, from_b) = (output(&mut a), output(&mut b));
    from_a.iter().for_each(|s| b.on_segment(now(20), s, true));
    from_b.iter().for_each(|s| a.on_segment(now(20), s, true));
    assert_eq!((a.state(), b.state()), (State::Closing, State::Closing));
    exchange(&mut a, &mut b, now(30));
    assert_eq!((a.state(), b.state()), (State::TimeWait, State::TimeWait));
    assert_eq!(a.next_timeout(), Some(now(30) + timer::MSL * 2));
    a.on_timeout(now(30) + timer::MSL);
    assert_eq!(a.state(), State::TimeWait, "early: no effect");
    a.on_timeout(now(30) + timer::MSL * 2);
    assert!(a.is_closed());
}

#[test]
fn a_reset_must_have_the_exact_number() {
    let (mut a, _) = established();
    let reset = |seq| Segment { seq: Seq(seq), rst: true, ..Segment::default() };
    a.on_segment(now(10), &reset(5002), true);
    let answer = output(&mut a);
    assert_eq!((a.state(), answer.len(), answer[0].ack), (State::Established, 1, Some(Seq(5001))));
    a.on_segment(now(10), &reset(4000), true);
    a.on_segment(now(10), &reset(5_000_000), true);
    assert_eq!((a.state(), output(&mut a).len()), (State::Established, 0));
    a.on_segment(now(10), &reset(5001), true);
    assert!(a.is_closed());
    assert_eq!(read(&mut a, now(10)), Err(ErrorKind::ConnectionReset));
}

#[test]
fn a_syn_on_a_connection_is_asked_about_and_changes_nothing() {
    let (mut a, _) = established();
    a.on_segment(now(10), &Segment { seq: Seq(5001), syn: true, ..Segment::default() }, true);
    let answer = output(&mut a);
    assert_eq!((a.state(), answer.len(), answer[0].rst), (State::Established, 1, false));
}

#[test]
fn an_acknowledgment_of_what_was_never_sent_is_not_believed() {
    let (mut a, _) = established();
    let lie = Segment { seq: Seq(5001), ack: Some(Seq(9_999_999)), window: 1000, ..Segment::default() };
    a.on_segment(now(10), &lie, true);
    assert_eq!(output(&mut a).len(), 1);
    a.write(now(10), [&b"data"[..]]).unwrap();
    assert_eq!(output(&mut a)[0].payload, Bytes::from_static(b"data").into());
}

#[test]
fn a_syn_that_is_answered_with_a_wrong_acknowledgment_resets_the_answer() {
    let mut a = Conn::connect(now(0), Seq(1000), MTU, 20, Options::default());
    output(&mut a);
    let stale = Segment { seq: Seq(7), ack: Some(Seq(77)), syn: true, ..Segment::default() };
    a.on_segment(now(10), &stale, true);
    let answer = output(&mut a);
    assert_eq!((a.state(), answer.len(), answer[0].rst, answer[0].seq), (State::SynSent, 1, true, Seq(77)));
    let blind = Segment { seq: Seq(7), ack: Some(Seq(77)), rst: true, ..Segment::default() };
    a.on_segment(now(10), &blind, true);
    assert_eq!(a.state(), State::SynSent);
}

#[test]
fn the_smaller_segment_size_of_both_is_used() {
    let mut a = Conn::connect(now(0), Seq(1000), 1280, 20, Options::default());
    let syn = output(&mut a).remove(0);
    assert_eq!(syn.mss, Some(1240));
    let mut b = Conn::accept(now(0), &syn, Seq(5000), 9000, 20, Options::default());
    exchange(&mut a, &mut b, now(0));
    b.write(now(10), [&[0; 50_000][..]]).unwrap();
    let sent = output(&mut b);
    assert_eq!((sent.len(), sent[0].payload.len()), (10, 1228), "the initial window is ten segments");
}

#[test]
fn data_for_an_application_that_has_gone_is_answered_with_a_reset() {
    let (mut a, mut b) = established();
    a.close(now(10));
    exchange(&mut a, &mut b, now(10));
    assert_eq!(a.state(), State::FinWait2);
    b.write(now(20), [&b"too late"[..]]).unwrap();
    exchange(&mut a, &mut b, now(20));
    assert!(a.is_closed() && b.is_closed());
    assert_eq!(read(&mut b, now(20)), Ok(Vec::new()), "what the peer had closed had ended before");
}

#[test]
fn an_abandoned_half_closed_connection_ends_after_a_minute() {
    let (mut a, mut b) = established();
    a.close(now(10));
    exchange(&mut a, &mut b, now(10));
    assert_eq!(a.next_timeout(), Some(now(10) + timer::FIN_WAIT_2_TIMEOUT));
    a.on_timeout(now(10) + timer::FIN_WAIT_2_TIMEOUT);
    assert!(a.is_closed());
}

#[test]
fn a_timeout_sends_the_first_segment_and_the_rest_follows_the_acknowledgments() {
    let (mut a, mut b) = established();
    a.write(now(10), [&[5; 14_480][..]]).unwrap();
    assert_eq!(output(&mut a).len(), 10);
    // First a probe of the tail, then the timeout.
    let at = a.next_timeout().unwrap();
    a.on_timeout(at);
    let probe = output(&mut a);
    assert_eq!((probe.len(), probe[0].seq), (1, Seq(1001 + 9 * 1448)));
    let at = a.next_timeout().unwrap();
    a.on_timeout(at);
    let again = output(&mut a);
    assert_eq!((again.len(), again[0].seq), (1, Seq(1001)));
    // Backed off: the next one comes later.
    assert!(a.next_timeout().unwrap() - at >= Duration::from_millis(400));
    again.iter().for_each(|s| b.on_segment(at, s, true));
    b.on_timeout(at + ack_policy::MIN_DELAY);
    exchange(&mut a, &mut b, at + ack_policy::MIN_DELAY);
    for ms in 1..200 {
        let t = at + Duration::from_millis(100 * ms);
        a.on_timeout(t);
        b.on_timeout(t);
        exchange(&mut a, &mut b, t);
    }
    let mut got = 0;
    while let Ok(bytes) = read(&mut b, now(30_000)) {
        assert!(bytes.iter().all(|x| *x == 5));
        got += bytes.len();
    }
    assert_eq!((got, a.info(now(30_000)).in_flight), (14_480, Some(0)));
}

#[test]
fn calling_a_timeout_early_or_twice_does_nothing() {
    let (mut a, _) = established();
    a.write(now(10), [&b"data"[..]]).unwrap();
    output(&mut a);
    let at = a.next_timeout().unwrap();
    a.on_timeout(at - Duration::from_millis(1));
    assert_eq!((output(&mut a).len(), a.next_timeout()), (0, Some(at)));
    a.on_timeout(at);
    assert_eq!(output(&mut a).len(), 1);
    a.on_timeout(at);
    assert_eq!(output(&mut a).len(), 0);
}
