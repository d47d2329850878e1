//! Framers that talk before the program may: what their words cost is room, and comes back.

use bytes::Bytes;
use neater_engine::{Limits, SendOptions, Stack};
use neater_framing::{Framer, FramerError, FramerSpec, Input, Outbound, Readiness};
use neater_testkit::{Ask, Manner, Plan};
use std::sync::Arc;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Says more at first than windows take, and waits for an answer.
struct Talker;

impl Framer for Talker {
    fn name(&self) -> &str {
        "talker"
    }
    fn start(&mut self, out: &mut Outbound) -> Result<Readiness, FramerError> {
        out.send(vec![7; 8 << 20]);
        Ok(Readiness::Handshaking)
    }
    fn new_sent_message(&mut self, out: &mut Outbound, data: Bytes, _: bool, _: bool) -> Result<(), FramerError> {
        out.send(data);
        Ok(())
    }
    fn handle_received_data(&mut self, _: &mut Input<'_>) -> Result<Readiness, FramerError> {
        Ok(Readiness::Handshaking)
    }
}

/// Nothing of their own brings those back who have nothing queued and found no room.
#[test]
fn a_task_that_waits_for_room_gets_what_a_framer_handshake_has_kept_when_that_is_over() {
    for ends in ["by the program", "with its time"] {
        let mut plan = Plan::new(1);
        plan.client_limits = Limits { engine_bytes: 1 << 20, send_buffer: 64 << 10, ..Limits::default() };
        let mut town = plan.build();
        let framed = Ask::over(&[Stack::Tcp]).framed();
        town.listen(&framed, 443, Manner::stalled());
        let mut talking = framed.clone();
        talking.options.framer = FramerSpec::Custom(Arc::new(|| Box::new(Talker)));
        let talker = town.open(&talking, Manner::patient());
        town.play.run_for(S);
        let server = town.server;
        town.play.serve(server, Manner::patient());
        let other = town.open(&framed, Manner::patient());
        assert!(town.play.run_until(S, |p| p.flow(other).is_ready()), "{ends}");
        town.play.run_for(S);
        town.play.say(other, vec![1; 100 << 10], SendOptions::default());
        town.play.run_for(10 * S);
        assert!(town.play.flow(other).sent.is_empty() && !town.play.flow(talker).is_over(), "{ends}: there is no room");
        match ends {
            "by the program" => town.play.abort(talker),
            _ => assert!(town.play.run_until(30 * S, |p| p.flow(talker).is_over())),
        }
        assert!(town.play.run_until(S, |p| p.flow(other).sent.len() == 1), "{ends}: there is room again");
        town.play.close(other);
        town.play.end();
    }
}

/// Waits for the other side, which refuses.
struct Refused;

impl Framer for Refused {
    fn name(&self) -> &str {
        "refused"
    }
    fn start(&mut self, _: &mut Outbound) -> Result<Readiness, FramerError> {
        Ok(Readiness::Handshaking)
    }
    fn new_sent_message(&mut self, out: &mut Outbound, data: Bytes, _: bool, _: bool) -> Result<(), FramerError> {
        out.send(data);
        Ok(())
    }
    fn handle_received_data(&mut self, _: &mut Input<'_>) -> Result<Readiness, FramerError> {
        Err(FramerError("the server says no".into()))
    }
}

#[test]
fn what_the_peer_said_before_a_reset_is_the_framers_although_it_shakes_hands() {
    let plain = Ask::over(&[Stack::Tcp]);
    let mut town = Plan::new(2).build();
    town.listen(&plain, 443, Manner { greeting: Some("no".into()), ..Manner::stalled() });
    let mut refused = plain;
    refused.options.framer = FramerSpec::Custom(Arc::new(|| Box::new(Refused)));
    let c = town.open(&refused, Manner::patient());
    let server = town.server;
    assert!(town.play.run_until(S, |p| !p.accepted(server).is_empty()));
    // The word and the reset arrive together, so that the client finds them in one turn.
    let s = town.play.accepted(server)[0];
    town.play.abort(s);
    let world = town.play.world().clone();
    world.run_until(world.now() + 20 * MS);
    assert!(town.play.run_until(S, |p| p.flow(c).is_over()));
    let error = town.play.flow(c).establishment_error().map(ToString::to_string);
    assert!(error.as_ref().is_some_and(|e| e.contains("the server says no")), "{error:?}");
    town.play.end();
}
