//! The fast path of plain TCP and the general way do the same: one scenario, run both ways, shows a program the same.

use neater_engine::{ConnectionError, ConnectionId, SendError, Stack};
use neater_testkit::{Ask, FlowId, Manner, Node, Plan, Town};
use std::fmt::Write as _;
use std::io::IoSlice;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// How a connection ends.
const ENDS: [End; 6] = [End::Finish, End::Close, End::Abort, End::PeerAborts, End::Unused, End::PeerFinishesFirst];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Finish,
    Close,
    Abort,
    PeerAborts,
    /// It is released without a word.
    Unused,
    PeerFinishesFirst,
}

/// One side of a connection, which writes and reads bytes.
struct Side {
    node: Node,
    conn: ConnectionId,
    left: usize,
    sent: u64,
    got: u64,
    /// Of all bytes that came, in order.
    sum: u64,
    result: Option<Result<(), ConnectionError>>,
}

impl Side {
    fn new(node: Node, conn: ConnectionId, left: usize) -> Self {
        Self { node, conn, left, sent: 0, got: 0, sum: 0, result: None }
    }

    /// Writes and reads what is possible now.
    fn go_on(&mut self, town: &mut Town, piece: usize) {
        let engine = town.play.engine(self.node);
        while self.left > 0 {
            let data: Vec<u8> = (0..piece.min(self.left)).map(|i| ((self.sent + i as u64) % 251) as u8).collect();
            match engine.write(self.conn, &[IoSlice::new(&data)]) {
                Ok(Some(n)) => (self.sent, self.left) = (self.sent + n as u64, self.left - n),
                Ok(None) => break,
                Err(SendError::Connection(e)) => {
                    self.result.get_or_insert(Err(e));
                    break;
                }
                Err(e) => panic!("{e}"),
            }
        }
        let mut buf = vec![0; piece];
        while self.result.is_none() {
            match engine.read(self.conn, &mut buf) {
                Ok(Some(0)) => self.result = Some(Ok(())),
                Ok(Some(n)) => {
                    self.got += n as u64;
                    self.sum = buf[..n].iter().fold(self.sum, |s, b| s.wrapping_mul(31).wrapping_add(u64::from(*b)));
                }
                Ok(None) => return,
                Err(e) => self.result = Some(Err(e)),
            }
        }
    }
}

fn visit(town: &mut Town, ask: &Ask, round: usize, end: End) -> String {
    let flow = town.open(ask, Manner::stalled());
    let known = town.play.accepted(town.server).len();
    let accepted = |town: &Town| town.play.accepted(town.server).get(known).copied();
    let up = town.play.run_until(5 * S, |p| p.flow(flow).is_ready());
    assert!(up, "round {round}");
    town.play.run_for(50 * MS);
    let peer: FlowId = accepted(town).expect("accepted");
    let amount = if end == End::Unused { 0 } else { 40_000 + 7000 * round };
    let mut sides = [Side::new(town.client, flow.conn, amount), Side::new(town.server, peer.conn, amount / 2)];
    let mut text = String::new();
    for step in 0..80 {
        for side in &mut sides {
            side.go_on(town, 700 + 411 * round);
        }
        let (client, server) = (town.client, town.server);
        match (end, step) {
            (End::Unused, 0) => town.play.release(flow),
            (End::Finish, 40) | (End::PeerFinishesFirst, 60) => {
                let _ = town.play.engine(client).finish(flow.conn);
            }
            (End::Finish, 60) | (End::PeerFinishesFirst, 40) => {
                let _ = town.play.engine(server).finish(peer.conn);
            }
            (End::Close, 60) => town.play.close(flow),
            (End::Abort, 20) => town.play.abort(flow),
            (End::PeerAborts, 20) => town.play.abort(peer),
            _ => {}
        }
        // What is called on an engine is settled before it waits.
        town.play.engine(client).settle();
        town.play.engine(server).settle();
        town.play.run_for(20 * MS);
    }
    for side in &sides {
        let stats = town.play.engine(side.node).connection_stats(side.conn);
        let counted = stats.map(|s| (s.bytes_sent, s.bytes_received, s.establishment, s.ended, s.queued));
        let ending = town.play.engine(side.node).ending(side.conn);
        let Side { sent, got, sum, result, .. } = side;
        writeln!(text, "{end:?}: sent {sent}, got {got}, sum {sum}, {result:?}, {counted:?}, {ending:?}")
            .expect("text");
    }
    town.play.release(flow);
    town.play.release(peer);
    town.play.run_for(S);
    text
}

/// What the programs see: bytes, errors and figures of each connection, and all events in order, with their times.
fn run(fast_path: bool) -> (String, u64) {
    let ask = Ask::over(&[Stack::Tcp]);
    let mut town = Plan { fast_path, ..Plan::new(11).rate(4_000_000).delay(5 * MS) }.build();
    town.listen(&ask, 443, Manner::stalled());
    let mut text = String::new();
    for round in 0..2 * ENDS.len() {
        let end = ENDS[round % ENDS.len()];
        text += &visit(&mut town, &ask, round, end);
    }
    // A port at which nobody listens: the cached outcome fails.
    let hits = town.play.stats(town.client).cache_hits;
    for node in [town.client, town.server] {
        for (at, notice) in town.play.log(node) {
            writeln!(text, "{at:?} {notice:?}").expect("text");
        }
    }
    town.play.end();
    (text, hits)
}

#[test]
fn a_program_sees_the_same_by_the_fast_path_and_by_the_general_way() {
    let ((fast, hits), (general, _)) = (run(true), run(false));
    assert!(hits > 5, "all but the first are opened by the cached outcome, {hits} were");
    for (line, (a, b)) in fast.lines().zip(general.lines()).enumerate() {
        assert_eq!(a, b, "line {line} differs (the fast path is on the left)");
    }
    assert_eq!(fast.lines().count(), general.lines().count());
}
