//! One UDP socket of `neater-net` under endpoints: trains of packets out, trains of packets in, and waiting.

use crate::args::Args;
use neater_base::Instant;
use neater_base::net::{
    Ecn, ErrorKind, Net, NetError, NetEvent, RecvBatch, Sock, SocketOption, SocketOptions, Token, Transmit,
};
use neater_net::OsNet;
use neater_sctp::{Endpoint, LayerId, Route, Train};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

/// The most that the kernel takes at once.
const OUT: usize = 65_535;

/// The socket, and what is on its way through it.
pub(crate) struct Driver {
    net: OsNet,
    sock: Sock,
    batch: Option<RecvBatch>,
    events: Vec<NetEvent>,
    out: Box<[u8]>,
    /// A train that the socket had no room for.
    waiting: Option<Train>,
    segments: usize,
    /// Datagrams sent.
    pub(crate) sent: u64,
    /// Datagrams received.
    pub(crate) received: u64,
}

/// `InvalidInput` and its like, for people.
fn other(error: NetError) -> io::Error {
    io::Error::other(error.to_string())
}

/// What an ICMP error for an earlier datagram becomes: nothing that a peer of UDP minds.
fn harmless(error: NetError) -> bool {
    matches!(error.kind, ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)
}

impl Driver {
    /// A socket bound to `local`.
    pub(crate) fn open(local: SocketAddr, args: &Args) -> io::Result<Self> {
        let mut net = OsNet::new()?;
        let mut options = SocketOptions { local: Some(local), ..SocketOptions::default() };
        options.set.push(SocketOption::DontFragment(true));
        if args.socket_buffer > 0 {
            options.set.push(SocketOption::ReceiveBuffer(args.socket_buffer));
            options.set.push(SocketOption::SendBuffer(args.socket_buffer));
        }
        let sock = net.udp(Token(0), local, &options).map_err(other)?;
        let segments = if args.gso { net.max_segments(sock) } else { 1 };
        Ok(Self {
            net,
            sock,
            batch: Some(RecvBatch::default()),
            events: Vec::new(),
            out: vec![0; OUT].into_boxed_slice(),
            waiting: None,
            segments,
            sent: 0,
            received: 0,
        })
    }

    pub(crate) fn local(&self) -> io::Result<SocketAddr> {
        self.net.local_addr(self.sock).map_err(other)
    }

    pub(crate) fn now(&self) -> Instant {
        self.net.now()
    }

    /// Sends what an endpoint has to send, as far as the socket takes it.
    pub(crate) fn transmit(&mut self, endpoint: &mut Endpoint, now: Instant) -> io::Result<()> {
        loop {
            let train = match self.waiting.take() {
                Some(train) => train,
                None => match endpoint.poll_train(now, &mut self.out, self.segments) {
                    Some(train) => train,
                    None => return Ok(()),
                },
            };
            let transmit = Transmit {
                destination: train.route.remote,
                source: None,
                interface: None,
                ecn: Ecn::NotEct,
                segment_size: (train.len > train.segment).then_some(train.segment),
                contents: &self.out[..train.len],
            };
            match self.net.send(self.sock, &transmit) {
                Ok(()) => self.sent += train.len.div_ceil(train.segment) as u64,
                Err(e) if e.is_would_block() => {
                    self.waiting = Some(train);
                    return Ok(());
                }
                Err(e) if harmless(e) => {}
                Err(e) => return Err(other(e)),
            }
        }
    }

    /// The buffers to receive into, for as long as their contents are looked at.
    pub(crate) fn take_batch(&mut self) -> Option<RecvBatch> {
        self.batch.take()
    }

    /// Gives the buffers back.
    pub(crate) fn give_batch(&mut self, batch: RecvBatch) {
        self.batch = Some(batch);
    }

    /// Receives what is there; false: nothing.
    pub(crate) fn receive_into(&mut self, batch: &mut RecvBatch) -> io::Result<bool> {
        match self.net.recv(self.sock, batch) {
            Ok(_) => {
                let datagrams = batch.metas.iter().map(|m| m.len.div_ceil(m.stride.max(1)) as u64);
                self.received += datagrams.sum::<u64>();
                Ok(true)
            }
            Err(e) if e.is_would_block() => Ok(false),
            Err(e) if harmless(e) => {
                batch.metas.clear();
                Ok(true)
            }
            Err(e) => Err(other(e)),
        }
    }

    /// Waits until the socket is worth another try, or the deadline has come.
    pub(crate) fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let left = deadline.map(|at| at - self.net.now());
        let time = left.map(|left| libc::timespec {
            tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(left.subsec_nanos() as i32),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let mut poll = libc::pollfd { fd: self.net.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd is passed with the count 1; the time is null or lives until the call returns; no mask.
        if unsafe { libc::ppoll(&mut poll, 1, time, std::ptr::null()) } < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        if poll.revents != 0 {
            self.events.clear();
            self.net.poll(&mut self.events);
        }
        Ok(())
    }
}

/// Where packets to an address go.
pub(crate) const fn route(remote: SocketAddr) -> Route {
    Route { layer: LayerId(0), remote }
}
