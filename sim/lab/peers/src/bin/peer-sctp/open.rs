//! `client` and `server`: associations that are opened and ended, with nothing on them.
//!
//! The client's associations share one socket. Each is an endpoint with an SCTP port of its own, for a peer tells associations
//! apart by address, UDP port and SCTP port; a packet's destination port says whose it is.

use crate::alloc;
use crate::args::Args;
use crate::driver::{Driver, route};
use crate::transfer::{PORT, any, endpoint};
use neater_base::Instant;
use neater_sctp::{AssociationId, CloseReason, Endpoint, Event};
use std::io;
use std::net::SocketAddr;

/// The SCTP port of the client's first association.
const FIRST: u16 = 10_000;

/// One association of the client.
struct Flow {
    endpoint: Endpoint,
    id: AssociationId,
    /// It is up, or was.
    up: bool,
    over: bool,
}

struct Client {
    driver: Driver,
    flows: Vec<Flow>,
    up: u64,
    over: u64,
    failed: u64,
}

impl Client {
    /// Opens `count` associations at once.
    fn open(&mut self, args: &Args) -> io::Result<()> {
        self.flows.clear();
        (self.up, self.over) = (0, 0);
        for i in 0..args.flows {
            let mut endpoint = endpoint(args, FIRST + i as u16, false);
            let now = self.driver.now();
            let id = endpoint.connect(now, PORT, &[route(args.addr)]).map_err(io::Error::other)?;
            self.driver.transmit(&mut endpoint, now)?;
            self.flows.push(Flow { endpoint, id, up: false, over: false });
        }
        Ok(())
    }

    /// What follows for one association from what has happened to it.
    fn settle(&mut self, index: usize, now: Instant) -> io::Result<()> {
        let flow = &mut self.flows[index];
        while let Some((_, event)) = flow.endpoint.poll_event() {
            match event {
                Event::Connected if !flow.up => {
                    flow.up = true;
                    self.up += 1;
                }
                Event::Closed(reason) => {
                    self.failed += u64::from(reason != CloseReason::Shutdown);
                    self.up += u64::from(!flow.up);
                    (flow.up, flow.over) = (true, true);
                    self.over += 1;
                }
                _ => {}
            }
        }
        self.driver.transmit(&mut flow.endpoint, now)
    }

    /// Ends every association in order.
    fn end(&mut self) -> io::Result<()> {
        for index in 0..self.flows.len() {
            let now = self.driver.now();
            let flow = &mut self.flows[index];
            flow.endpoint.shutdown(now, flow.id);
            self.settle(index, now)?;
        }
        Ok(())
    }

    /// Takes packets until there are none, then waits.
    fn turn(&mut self, done: impl Fn(&Self) -> bool) -> io::Result<()> {
        while !done(self) {
            let Some(mut batch) = self.driver.take_batch() else { return Ok(()) };
            while self.driver.receive_into(&mut batch)? {
                for (meta, bytes) in batch.filled() {
                    let now = self.driver.now();
                    for datagram in bytes.chunks(meta.stride.max(1)) {
                        let port = datagram.get(2..4).map_or(0, |p| u16::from_be_bytes([p[0], p[1]]));
                        let index = usize::from(port.wrapping_sub(FIRST));
                        if let Some(flow) = self.flows.get_mut(index) {
                            flow.endpoint.handle_packet(now, route(meta.source), false, datagram);
                            self.settle(index, now)?;
                        }
                    }
                }
            }
            self.driver.give_batch(batch);
            if done(self) {
                break;
            }
            let deadline = self.flows.iter().filter(|f| !f.over).filter_map(|f| f.endpoint.next_timeout()).min();
            self.driver.wait(deadline)?;
            let now = self.driver.now();
            if deadline.is_some_and(|at| at <= now) {
                for index in 0..self.flows.len() {
                    self.flows[index].endpoint.handle_timeout(now);
                    self.settle(index, now)?;
                }
            }
        }
        Ok(())
    }
}

/// Says that everything is prepared, and waits for a line of input.
fn ready(args: &Args) -> io::Result<()> {
    if args.mark {
        println!("{{\"ready\":1}}");
        io::stdin().read_line(&mut String::new())?;
    }
    Ok(())
}

/// Says that all are open, and waits for the end of the input.
fn held(args: &Args, before: u64) -> io::Result<()> {
    if args.hold {
        println!("{{\"held\":{},\"live_bytes\":{}}}", args.flows, alloc::live() - before.min(alloc::live()));
        io::copy(&mut io::stdin(), &mut io::sink())?;
    }
    Ok(())
}

fn report(mode: &str, args: &Args, done: u64, failed: u64, ns: u128, driver: &Driver) {
    println!(
        "{{\"peer\":\"neater-sctp\",\"mode\":\"{mode}\",\"flows\":{},\"rounds\":{},\"done\":{done},\"failed\":{failed},\
         \"bytes\":0,\"ns\":{ns},\"sent\":{},\"received\":{}}}",
        args.flows, args.rounds, driver.sent, driver.received,
    );
}

/// Opens and ends associations.
pub(crate) fn client(args: &Args) -> io::Result<()> {
    let driver = Driver::open(any(args.addr), args)?;
    let mut client = Client { driver, flows: Vec::new(), up: 0, over: 0, failed: 0 };
    ready(args)?;
    let before = alloc::live();
    let start = client.driver.now();
    for _ in 0..args.rounds {
        client.open(args)?;
        client.turn(|c| c.up >= args.flows)?;
        held(args, before)?;
        client.end()?;
        client.turn(|c| c.over >= args.flows)?;
    }
    let ns = (client.driver.now() - start).as_nanos();
    let done = args.flows * args.rounds - client.failed;
    report("client", args, done, client.failed, ns, &client.driver);
    if client.failed > 0 { Err(io::Error::other(format!("{} associations failed", client.failed))) } else { Ok(()) }
}

/// Whether the input has ended.
fn input_ended() -> bool {
    let mut poll = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
    // SAFETY: one live pollfd is passed with the count 1, and nothing is waited for.
    unsafe { libc::poll(&mut poll, 1, 0) > 0 && poll.revents & (libc::POLLIN | libc::POLLHUP) != 0 }
}

/// Takes associations until their peers have ended them.
pub(crate) fn server(args: &Args) -> io::Result<()> {
    let mut driver = Driver::open(args.addr, args)?;
    let local: SocketAddr = driver.local()?;
    let mut endpoint = endpoint(args, PORT, true);
    println!("{{\"listening\":\"{local}\"}}");
    ready(args)?;
    let before = alloc::live();
    let (mut accepted, mut closed, mut failed) = (0u64, 0u64, 0u64);
    let (mut first, mut last) = (None, driver.now());
    let want = args.flows * args.rounds;
    while want == 0 || closed < want {
        let now = driver.now();
        endpoint.handle_timeout(now);
        driver.transmit(&mut endpoint, now)?;
        let Some(mut batch) = driver.take_batch() else { return Ok(()) };
        while driver.receive_into(&mut batch)? {
            for (meta, bytes) in batch.filled() {
                let now = driver.now();
                for datagram in bytes.chunks(meta.stride.max(1)) {
                    endpoint.handle_packet(now, route(meta.source), false, datagram);
                }
                while let Some((_, event)) = endpoint.poll_event() {
                    match event {
                        Event::Accepted => {
                            first.get_or_insert(now);
                            accepted += 1;
                            if args.flows > 0 && accepted == args.flows {
                                driver.transmit(&mut endpoint, now)?;
                                held(args, before)?;
                            }
                        }
                        Event::Closed(reason) => {
                            last = now;
                            closed += 1;
                            failed += u64::from(reason != CloseReason::Shutdown);
                        }
                        _ => {}
                    }
                }
                driver.transmit(&mut endpoint, now)?;
            }
        }
        driver.give_batch(batch);
        if want > 0 && closed >= want {
            break;
        }
        // With no number of flows the end of the input is the end; it is looked for twice a second at the latest.
        let soon = driver.now() + core::time::Duration::from_millis(500);
        let deadline = endpoint.next_timeout();
        let deadline = if want == 0 { Some(deadline.map_or(soon, |at| at.min(soon))) } else { deadline };
        driver.wait(deadline)?;
        if want == 0 && input_ended() {
            break;
        }
    }
    let now = driver.now();
    driver.transmit(&mut endpoint, now)?;
    report("server", args, closed, failed, first.map_or(0, |f| (last - f).as_nanos()), &driver);
    Ok(())
}
