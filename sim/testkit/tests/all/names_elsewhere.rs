//! Names that the program is asked for, instead of name servers.

use neater_engine::{Fate, NameFailure, NameQuestion, RemoteEndpoint, Stack};
use neater_testkit::town::{SERVER_V4, SERVER_V6};
use neater_testkit::{Ask, FlowId, Manner, Plan, Town};
use std::net::IpAddr;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// There and back between the client and the server.
const RTT: Duration = Duration::from_millis(20);

fn town(seed: u64) -> Town {
    let mut town = Plan::new(seed).build();
    town.listen(&Ask::over(&[]), 443, Manner::echo());
    let client = town.client;
    town.play.engine(client).ask_program_for_names(true);
    town
}

/// Opens a connection to a name, over TCP alone.
fn open(town: &mut Town, name: &str) -> FlowId {
    let remote = RemoteEndpoint::new().with_host_name(name).with_port(443);
    town.open_to(&Ask::over(&[Stack::Tcp]), &[remote], Manner::default())
}

fn questions(town: &mut Town) -> Vec<NameQuestion> {
    let client = town.client;
    town.play.engine(client).take_name_questions()
}

fn answer(town: &mut Town, id: u64, answer: Result<&[IpAddr], NameFailure>, lifetime: Duration) {
    let client = town.client;
    town.play.engine(client).answer_name(id, answer, lifetime);
}

fn both() -> [IpAddr; 2] {
    [SERVER_V4, SERVER_V6].map(|a| a.parse().unwrap())
}

#[test]
fn a_name_that_no_server_knows_is_asked_of_the_program_once_for_all_who_wait() {
    let mut town = town(1);
    let flows = [open(&mut town, "Printer.local"), open(&mut town, "printer.LOCAL")];
    town.play.run_for(300 * MS);
    let asked = questions(&mut town);
    let [q] = &asked[..] else { panic!("one question: {asked:?}") };
    assert_eq!((q.name.as_str(), q.interface), ("Printer.local", None));
    assert!(questions(&mut town).is_empty(), "asked once");
    answer(&mut town, q.id, Ok(&both()), 10 * S);
    assert!(town.play.run_until(S, |p| flows.iter().all(|f| p.flow(*f).is_ready())));
    for flow in flows {
        assert_eq!(town.play.flow(flow).establishment(), Some(300 * MS + RTT), "the race begins with the answer");
        assert_eq!(
            town.play.engine(flow.node).remote_addr(flow.conn).unwrap().ip(),
            both()[1],
            "RFC 6724 prefers IPv6"
        );
    }
    // It holds for ten seconds, then it is asked for again.
    let third = open(&mut town, "printer.local.");
    assert!(town.play.run_until(S, |p| p.flow(third).is_ready()));
    assert!(questions(&mut town).is_empty());
    town.play.run_for(10 * S);
    let fourth = open(&mut town, "printer.local");
    town.play.run_for(MS);
    assert_eq!(questions(&mut town).len(), 1, "what was told no longer holds, nor does the outcome that came of it");
    answer(&mut town, 1, Ok(&both()[..1]), Duration::ZERO);
    assert!(town.play.run_until(S, |p| p.flow(fourth).is_ready()));
    assert_eq!(town.play.engine(fourth.node).remote_addr(fourth.conn).unwrap().ip(), both()[0]);
    town.play.end();
}

/// To say it once more changes nothing, and to take it back leaves those who wait their answers.
#[test]
fn questions_under_way_survive_whoever_says_again_who_is_asked() {
    for ask in [true, false] {
        let mut town = town(7);
        let flow = open(&mut town, "printer.local");
        town.play.run_for(MS);
        let client = town.client;
        let asked = if ask { Vec::new() } else { questions(&mut town) };
        town.play.engine(client).ask_program_for_names(ask);
        let asked = if ask { questions(&mut town) } else { asked };
        answer(&mut town, asked[0].id, Ok(&both()), S);
        assert!(town.play.run_until(S, |p| p.flow(flow).is_ready()), "{ask}");
        town.play.end();
    }
}

#[test]
fn what_the_program_cannot_find_out_is_said_and_nobody_waits_for_ever() {
    let mut town = town(2);
    let said =
        |town: &Town, flow| town.play.flow(flow).establishment_error().map(ToString::to_string).unwrap_or_default();
    let wrong = open(&mut town, "nobody.example");
    town.play.run_for(MS);
    let id = questions(&mut town)[0].id;
    answer(&mut town, id, Err(NameFailure::NoSuchName), S);
    // Once more, and one that was never asked.
    answer(&mut town, id, Ok(&both()), S);
    answer(&mut town, 999, Ok(&both()), S);
    assert!(town.play.run_until(S, |p| p.flow(wrong).is_over()));
    assert!(said(&town, wrong).contains("no such name"), "{}", said(&town, wrong));

    let broken = open(&mut town, "broken.example");
    town.play.run_for(MS);
    let id = questions(&mut town)[0].id;
    answer(&mut town, id, Err(NameFailure::Failed), S);
    assert!(town.play.run_until(S, |p| p.flow(broken).is_over()));
    assert!(said(&town, broken).contains("resolver of the program or of the system"), "{}", said(&town, broken));

    let empty = open(&mut town, "empty.example");
    town.play.run_for(MS);
    let id = questions(&mut town)[0].id;
    answer(&mut town, id, Ok(&[]), S);
    assert!(town.play.run_until(S, |p| p.flow(empty).is_over()), "a name without addresses");

    let forgotten = open(&mut town, "forgotten.example");
    assert!(!town.play.run_until(29 * S, |p| p.flow(forgotten).is_over()));
    assert!(town.play.run_until(2 * S, |p| p.flow(forgotten).is_over()));
    assert!(questions(&mut town).is_empty(), "over, before anybody has taken it");
    town.play.end();
}

#[test]
fn who_has_gone_is_not_told_and_questions_have_a_bound() {
    let mut town = town(3);
    let gone = open(&mut town, "slow.example");
    town.play.run_for(MS);
    let id = questions(&mut town)[0].id;
    town.play.abort(gone);
    town.play.release(gone);
    town.play.run_for(MS);
    answer(&mut town, id, Ok(&both()), S);
    town.play.run_for(S);
    assert_eq!(town.play.stats(gone.node).connections, 0);

    let flows: Vec<_> = (0..1100).map(|i| open(&mut town, &format!("n{i}.example"))).collect();
    town.play.run_for(MS);
    let refused = flows.iter().filter(|f| town.play.flow(**f).is_over()).count();
    assert_eq!(refused, 1100 - 1024, "too many");
    let asked = questions(&mut town);
    assert_eq!(asked.len(), 1024);
    for q in asked {
        answer(&mut town, q.id, Err(NameFailure::NoSuchName), S);
    }
    assert!(town.play.run_until(S, |p| flows.iter().all(|f| p.flow(*f).is_over())));
    town.play.end();
}

#[test]
fn names_of_this_host_and_addresses_are_nobody_elses_business() {
    let mut town = town(4);
    let local = open(&mut town, "localhost");
    let literal = town.open(&Ask::over(&[Stack::Tcp]), Manner::default());
    town.play.run_for(S);
    assert!(questions(&mut town).is_empty());
    assert!(town.play.flow(literal).is_ready());
    assert!(town.play.flow(local).is_over(), "nobody listens there");
    town.play.abort(literal);
    town.play.end();
}

#[test]
fn a_race_tells_where_its_addresses_came_from_and_other_protocols_take_part() {
    let mut town = town(5);
    let remote = RemoteEndpoint::new().with_host_name("server.test").with_port(443);
    let flow = town.open_to(&Ask::over(&[Stack::Quic, Stack::Tls]), &[remote], Manner::default());
    town.play.run_for(MS);
    let id = questions(&mut town)[0].id;
    answer(&mut town, id, Ok(&both()), S);
    assert!(town.play.run_until(S, |p| p.flow(flow).is_ready()));
    assert_eq!(town.play.engine(flow.node).stack(flow.conn), Some(Stack::Quic));
    let fates = town.play.engine(flow.node).candidates(flow.conn);
    assert!(fates.iter().any(|c| matches!(c.fate, Fate::Won)), "{fates:?}");
    town.play.end();
}

#[test]
fn what_was_asked_on_another_network_is_asked_anew_and_not_kept() {
    let mut town = town(9);
    let first = open(&mut town, "printer.local");
    let asked = questions(&mut town);
    let moved: IpAddr = "192.0.2.77".parse().unwrap();
    let moved = neater_base::net::InterfaceAddr { addr: moved, prefix: 24, temporary: false, deprecated: false };
    town.play.world().add_address(town.client_iface, moved);
    town.play.run_for(10 * MS);
    let second = open(&mut town, "printer.local");
    let again = questions(&mut town);
    assert_eq!((asked.len(), again.len()), (1, 1), "another printer may be here");
    answer(&mut town, asked[0].id, Ok(&both()), 10 * S);
    assert!(!town.play.run_until(S, |p| p.flow(first).is_ready() || p.flow(second).is_ready()), "that one was there");
    let third = open(&mut town, "printer.local");
    assert!(questions(&mut town).is_empty(), "the second question is under way");
    answer(&mut town, again[0].id, Ok(&both()), 10 * S);
    assert!(town.play.run_until(S, |p| [first, second, third].iter().all(|f| p.flow(*f).is_ready())));
    town.play.end();
}
