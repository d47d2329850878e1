//! By the descriptor: the engine over the system's sockets, inside a plain poll loop.

use crate::{SEED, needs};
use neater_engine::{
    ConnectionId, Engine, EngineConfig, Event, LocalEndpoint, RemoteEndpoint, Request, RequestOptions, Source, Stack,
};
use neater_net::{OsNet, OsNetOptions};
use neater_peers::peer::{Args, BUFFER, Mode, Tally, fail, next_piece, payload};
use neater_property::Role;
use neater_tls::{Crypto, SecurityParameters};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

pub(crate) fn run(args: &Args) -> ! {
    let mut peer = Peer::new(args).unwrap_or_else(|e| fail("neater-fd", &e));
    let result = match args.mode {
        Mode::Client => peer.client(args),
        Mode::Send => peer.send(args),
        Mode::Server | Mode::Recv => peer.serve(args),
    };
    match result {
        Ok(tally) => tally.report("neater-fd", args),
        Err(e) => fail("neater-fd", &e),
    }
}

struct Peer {
    engine: Engine<OsNet>,
    fd: RawFd,
    remotes: Arc<[RemoteEndpoint]>,
}

impl Peer {
    fn new(args: &Args) -> io::Result<Self> {
        let mut options = OsNetOptions::default();
        let remote = match &args.name {
            Some(name) => {
                options.hosts.clone_from(&args.hosts);
                RemoteEndpoint::new().with_host_name(name).with_port(args.addr.port())
            }
            None => RemoteEndpoint::from(args.addr),
        };
        let net = OsNet::with_options(options)?;
        let fd = net.as_raw_fd();
        let engine = Engine::new(net, EngineConfig::new(SEED, Crypto::system()));
        Ok(Self { engine, fd, remotes: Arc::new([remote]) })
    }

    /// Waits as an application's own loop would: for the one descriptor.
    fn wait(&mut self) -> io::Result<()> {
        self.engine.settle();
        let mut poll = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd is passed with the count 1.
        if unsafe { libc::poll(&mut poll, 1, -1) } < 0 {
            return Err(io::Error::last_os_error());
        }
        self.engine.turn();
        Ok(())
    }

    fn request(&mut self, role: Role, security: &SecurityParameters, stacks: &[Stack]) -> io::Result<Request> {
        let options = RequestOptions { bytes: true, stacks: stacks.to_vec(), ..RequestOptions::default() };
        self.engine.compile(&needs(), security, role, &options).map_err(io::Error::other)
    }

    fn initiate(&mut self, request: &Request) -> io::Result<ConnectionId> {
        self.engine.initiate(request, &self.remotes, None, None).map_err(io::Error::other)
    }

    fn client(&mut self, args: &Args) -> io::Result<Tally> {
        let request = if args.name.is_some() {
            self.request(Role::Initiate, &SecurityParameters::opportunistic(), &[])?
        } else {
            self.request(Role::Initiate, &SecurityParameters::disabled(), &[Stack::Tcp])?
        };
        if !args.cold {
            // Resolves and races; what wins is remembered.
            self.round(&request, 1, None, &|| {})?;
        }
        args.ready();
        let mut tally = Tally::new(args);
        for _ in 0..args.rounds {
            let delays = args.delays.then_some(&mut tally);
            let (done, failed) = self.round(&request, args.flows, delays, &|| args.all_open())?;
            tally.done += done;
            tally.failed += failed;
        }
        Ok(tally)
    }

    /// Opens flows at once, waits until all are connected, closes them; returns how many succeeded and failed.
    fn round(
        &mut self,
        request: &Request,
        flows: u64,
        mut delays: Option<&mut Tally>,
        open: &dyn Fn(),
    ) -> io::Result<(u64, u64)> {
        let mut ids = Vec::with_capacity(flows as usize);
        let mut opened = BTreeMap::new();
        for _ in 0..flows {
            let before = delays.as_ref().map(|_| Instant::now());
            let id = self.initiate(request)?;
            ids.push(id);
            if let Some(at) = before {
                opened.insert(id.to_bits(), at);
            }
        }
        let (mut done, mut failed) = (0, 0);
        while done + failed < flows {
            self.wait()?;
            while let Some(notice) = self.engine.poll_notice() {
                match (notice.source, notice.event) {
                    (Source::Connection(id), Event::Ready) => {
                        if let (Some(tally), Some(at)) = (&mut delays, opened.get(&id.to_bits())) {
                            tally.delay(*at);
                        }
                        done += 1;
                    }
                    (_, Event::EstablishmentError(_)) => failed += 1,
                    _ => {}
                }
            }
        }
        open();
        for id in ids {
            self.engine.release(id);
        }
        while self.engine.stats().channels > 0 {
            self.wait()?;
            while self.engine.poll_notice().is_some() {}
        }
        Ok((done, failed))
    }

    fn send(&mut self, args: &Args) -> io::Result<Tally> {
        let request = self.request(Role::Initiate, &SecurityParameters::disabled(), &[])?;
        args.ready();
        let mut tally = Tally::new(args);
        let mut flows = BTreeMap::new();
        for _ in 0..args.flows {
            let id = self.initiate(&request)?;
            flows.insert(id.to_bits(), (args.bytes_per_flow(), args.object));
        }
        while tally.done < args.flows {
            self.wait()?;
            while let Some(notice) = self.engine.poll_notice() {
                let Source::Connection(id) = notice.source else { continue };
                match notice.event {
                    Event::Ready | Event::Writable => {
                        let Some((left, object_left)) = flows.get_mut(&id.to_bits()) else { continue };
                        while *left > 0 {
                            let piece = payload(next_piece(*left, *object_left));
                            let Some(n) = self.engine.write(id, &[IoSlice::new(piece)]).map_err(io::Error::other)?
                            else {
                                break;
                            };
                            *left -= n as u64;
                            *object_left -= n as u64;
                            if *object_left == 0 {
                                *object_left = args.object;
                            }
                        }
                        if *left == 0 {
                            flows.remove(&id.to_bits());
                            self.engine.release(id);
                            tally.done += 1;
                            tally.bytes += args.bytes_per_flow();
                        }
                    }
                    Event::EstablishmentError(e) => return Err(io::Error::other(e)),
                    Event::ConnectionError(e) => return Err(io::Error::other(e)),
                    _ => {}
                }
            }
        }
        Ok(tally)
    }

    fn serve(&mut self, args: &Args) -> io::Result<Tally> {
        let request = self.request(Role::Listen, &SecurityParameters::disabled(), &[Stack::Tcp])?;
        let listener = self.engine.listen(&request, &[LocalEndpoint::from(args.addr)]).map_err(io::Error::other)?;
        let addrs = self.engine.listener_addrs(listener);
        args.say_listening(addrs.first().ok_or_else(|| io::Error::other("it listens nowhere"))?.1);
        let mut tally = Tally::new(args);
        let mut buffer = vec![0; BUFFER];
        let mut accepted = 0;
        while tally.done < args.flows * args.rounds {
            self.wait()?;
            while let Some(notice) = self.engine.poll_notice() {
                match (notice.source, notice.event) {
                    (source, Event::ConnectionReceived(id)) => {
                        if let Source::Listener(listener) = source {
                            self.engine.taken(listener);
                        }
                        if accepted == 0 {
                            tally.start = Instant::now();
                        }
                        accepted += 1;
                        self.pull(id, &mut buffer, &mut tally);
                        if accepted == args.flows {
                            args.all_open();
                        }
                    }
                    (Source::Connection(id), Event::Readable) => self.pull(id, &mut buffer, &mut tally),
                    (Source::Connection(_), Event::ConnectionError(e)) => {
                        eprintln!("a flow has failed: {e}");
                        tally.failed += 1;
                        tally.done += 1;
                    }
                    _ => {}
                }
            }
        }
        Ok(tally)
    }

    /// Reads what there is; at the end of the flow, closes it.
    fn pull(&mut self, id: ConnectionId, buffer: &mut [u8], tally: &mut Tally) {
        loop {
            // An error is reported as an event, too.
            match self.engine.read(id, buffer).unwrap_or(None) {
                Some(0) => {
                    self.engine.release(id);
                    tally.done += 1;
                    return;
                }
                Some(n) => tally.bytes += n as u64,
                None => return,
            }
        }
    }
}
