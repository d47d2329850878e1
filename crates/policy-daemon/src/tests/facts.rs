//! What connections have seen, sent by programs and received by others.

use super::*;
use neater_policy::advice::{Fact, Figure, Known, RaceOutcome};

/// A program's fact about a path.
fn fact(interface: &str, end: &str, rtt: f64) -> Fact {
    let until = WallTime(NOW.0 + Duration::from_secs(300));
    let won = RaceOutcome { port: 443, transport: "QUIC".into(), won: false, until };
    let known = Known { rtt: Some(Figure { value: rtt, until }), outcomes: vec![won], ..Known::default() };
    Fact { interface: interface.into(), end: end.into(), known }
}

/// Whether a program was believed.
fn tell_facts(session: &mut Session, daemon: &mut Daemon, facts: &[Fact]) -> bool {
    let mut all = true;
    for some in facts.chunks(MAX_FACTS_OF_FRAME) {
        let mut bytes = Vec::new();
        wire::frame(&mut bytes, Kind::Seen, 0, |out| put_told(out, some, NOW));
        session.receive(&bytes, daemon, NOW);
        let answer = session.take_output();
        all &= Frame::first(&answer).expect("a frame").is_some_and(|f| f.kind == Kind::Done);
    }
    all
}

/// The facts that a program of a user's has after asking as often as there is more.
fn hear_facts(follower: &mut Follower, daemon: &mut Daemon, user: u32) -> Vec<Fact> {
    let (mut session, mut questions, mut facts) = (Session::new(Door::Requests, user), Vec::new(), Vec::new());
    follower.ask(&mut questions);
    while !questions.is_empty() {
        session.receive(&core::mem::take(&mut questions), daemon, NOW);
        for piece in session.take_output().chunks(100) {
            facts.extend(follower.receive(piece, &mut questions, NOW).expect("facts").facts);
        }
    }
    facts
}

#[test]
fn what_connections_of_a_user_have_seen_programs_of_that_user_hear_and_nobody_else() {
    let mut d = daemon();
    let (mut ann, mut root) = (Session::new(Door::Cib, ANN), Session::new(Door::Cib, 0));
    assert!(tell_facts(&mut ann, &mut d, &[fact("eth0", "Example.com", 0.1)]));
    let mut follower = Follower::new();
    assert_eq!(hear_facts(&mut follower, &mut d, ANN), [fact("eth0", "example.com", 0.1)]);
    assert_eq!(hear_facts(&mut follower, &mut d, ANN), [], "it has been told");
    assert_eq!(hear_facts(&mut Follower::new(), &mut d, BOB), [], "it is Ann's");
    assert_eq!(hear_facts(&mut Follower::new(), &mut d, 0), [], "and none of root's business");
    assert!(tell_facts(&mut root, &mut d, &[fact("eth0", "a.example", 0.2)]));
    assert_eq!(hear_facts(&mut follower, &mut d, ANN), [], "to whom root's programs talk is root's business");
    for trusted in [0, OWNER] {
        assert_eq!(hear_facts(&mut Follower::new(), &mut d, trusted), [fact("eth0", "a.example", 0.2)]);
    }
    // More than one frame holds.
    let many: Vec<Fact> = (0..200).map(|i| fact("eth0", &format!("h{i}"), 0.1)).collect();
    assert!(tell_facts(&mut ann, &mut d, &many));
    assert_eq!(hear_facts(&mut follower, &mut d, ANN), many);
}

#[test]
fn facts_stand_in_the_rows_of_their_own_end_and_users_alone() {
    let mut d = daemon();
    tell(&mut d, Door::Cib, 0, &interface("eth0"));
    let slow =
        json!({"uid": "slow", "match": {"measured_rtt": {"value": {"start": 150, "end": "inf"}}}, "properties": [[]]});
    let blocked = json!({"uid": "blocked", "match": {"transport": {"value": "QUIC"}, "measured_failed": {"value": "QUIC"}},
        "properties": [[]]});
    tell(&mut d, Door::Pib, OWNER, &json!([slow, blocked]).to_string());
    let mut ann = Session::new(Door::Cib, ANN);
    assert!(tell_facts(&mut ann, &mut d, &[fact("eth0", "slow.example", 0.2), fact("eth0", "fast.example", 0.01)]));
    let mut ways = |user: u32, host: &str, transport: &str, port: u16| -> Vec<String> {
        let request =
            json!([{"transport": {"value": transport}, "domain_name": {"value": host}, "port": {"value": port}}]);
        let interface = |c: &Value| c["interface"]["value"].as_str().unwrap_or("-").to_owned();
        ask(&mut d, user, &request.to_string()).iter().map(interface).collect()
    };
    for _ in 0..2 {
        assert_eq!(ways(ANN, "slow.example", "TCP", 443), ["-"]);
        assert_eq!(ways(ANN, "fast.example", "TCP", 443), ["eth0", "-"]);
        assert_eq!(ways(ANN, "fast.example", "QUIC", 443), ["-"], "it failed there");
        assert_eq!(ways(ANN, "fast.example", "QUIC", 8443), ["eth0", "-"]);
        assert_eq!(ways(BOB, "slow.example", "TCP", 443), ["eth0", "-"]);
    }
    assert_eq!(d.base().cib().nodes().count(), 1, "nothing is left behind");
}

#[test]
fn facts_are_few_for_each_program_and_user_and_end_when_they_should() {
    let mut d = daemon();
    let of = |i: usize| fact("eth0", &format!("h{i}"), 0.1);
    for client in 0..4 {
        let mut session = Session::new(Door::Cib, ANN);
        let all: Vec<Fact> = (0..MAX_FACTS_OF_CLIENT).map(|i| of(client * 1000 + i)).collect();
        assert!(tell_facts(&mut session, &mut d, &all));
        assert!(!tell_facts(&mut session, &mut d, &[of(client * 1000 + MAX_FACTS_OF_CLIENT)]), "one too many");
        assert!(tell_facts(&mut session, &mut d, &all), "what it told of before it may tell anew");
    }
    assert_eq!(hear_facts(&mut Follower::new(), &mut d, ANN).len(), MAX_FACTS);
    for user in 0..200 {
        tell_facts(&mut Session::new(Door::Cib, 2000 + user), &mut d, &[of(1)]);
    }
    assert!(d.facts.len() <= MAX_FACTS + MAX_GUESTS, "{}", d.facts.len());
    // No client can extend the lifetime of a fact.
    let mut payload = Vec::new();
    let until = WallTime(NOW.0 + Duration::from_secs(60_000));
    let for_ever = Fact { known: Known { rtt: Some(Figure { value: 1.0, until }), ..Known::default() }, ..of(1) };
    put_told(&mut payload, &[for_ever], NOW);
    let told = told(&payload, NOW).expect("a fact");
    assert_eq!(told[0].known.last_end(), Some(WallTime(NOW.0 + neater_policy::advice::LIFETIME)));
}

#[test]
fn what_is_no_fact_is_refused() {
    let until = WallTime(NOW.0 + Duration::from_secs(60));
    let good = fact("eth0", "h", 0.1);
    let with = |rtt: f64, loss: f64| {
        let figure = |value| Some(Figure { value, until });
        Fact { known: Known { rtt: figure(rtt), loss: figure(loss), ..Known::default() }, ..good.clone() }
    };
    let named = |interface: &str, end: &str| Fact { interface: interface.into(), end: end.into(), ..good.clone() };
    let bad = [with(f64::NAN, 0.0), with(-1.0, 0.0), with(1e9, 0.0), with(0.1, 1.1), named("", "h"), named("eth0", "")];
    let bad = bad.into_iter().chain([named(&"x".repeat(65), "h"), named("eth0", &"x".repeat(256)), named("a\n", "h")]);
    for fact in bad {
        let mut payload = Vec::new();
        put_told(&mut payload, std::slice::from_ref(&fact), NOW);
        assert!(told(&payload, NOW).is_err(), "{fact:?}");
    }
    let mut payload = Vec::new();
    put_told(&mut payload, std::slice::from_ref(&good), NOW);
    assert_eq!(told(&payload, NOW), Ok(vec![good]));
    for end in 0..payload.len() {
        assert!(told(&payload[..end], NOW).is_err(), "{end}");
    }
    payload.push(0);
    assert!(told(&payload, NOW).is_err());
}
