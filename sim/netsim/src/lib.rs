//! `Net` in virtual time: hosts, links, TCP, UDP and UDP-Lite in one thread, as a function of a seed.
//!
//! *Responsible for* a network that behaves as a real one where programs can tell: sizes, delays, losses, queues,
//! handshakes, retransmission, back pressure, refusals, ICMP, readiness. *Not responsible for* what a link is like (that is
//! `neater-link`), for any protocol above TCP and UDP (scripted services know them), or for running hosts: a driver
//! compares [`World::next_event`] with [`World::next_wakeup`], moves time with [`World::step`] or [`World::run_until`], and
//! gives a turn to each host that [`World::has_events`].
//!
//! Key types: [`World`] is everything, [`SimNet`] is `neater_base::net::Net` for one host, [`TraceEvent`] what happened.
//!
//! ```
//! use neater_base::net::{InterfaceKind, Net, SocketOptions, Token};
//! use neater_link::LinkConfig;
//! use neater_netsim::World;
//! use std::time::Duration;
//!
//! let world = World::new(1);
//! let (a, b) = (world.add_host("a"), world.add_host("b"));
//! let access = LinkConfig::rate(10_000_000, Duration::from_millis(10));
//! for (host, addr) in [(a, "192.0.2.1"), (b, "198.51.100.1")] {
//!     let iface = world.add_interface(host, "eth0", InterfaceKind::Wired, &[addr.parse().unwrap()]);
//!     world.attach(iface, access.clone(), access.clone());
//! }
//! let (mut client, mut server) = (world.net(a), world.net(b));
//! server.listen(Token(1), "0.0.0.0:80".parse().unwrap(), &SocketOptions::default()).unwrap();
//! let sock = client.connect(Token(2), "198.51.100.1:80".parse().unwrap(), &SocketOptions::default()).unwrap();
//! while client.connect_result(sock).is_err() {
//!     world.step().unwrap();
//! }
//! assert!(client.stream_info(sock).unwrap().rtt.unwrap() >= Duration::from_millis(40));
//! ```
//!
//! *Invariants*: the run is a function of the seed and of the calls; time moves only by [`World::step`] and
//! [`World::run_until`]; every table and queue has a named bound.

#![forbid(unsafe_code)]

mod agent;
mod build;
pub mod calibration;
mod capture;
mod corrupt;
mod deadlines;
mod export;
mod fabric;
mod host;
mod iface;
mod inject;
mod multipath;
mod nat;
mod net;
mod packet;
mod plan;
mod service;
mod sim;
mod socket;
mod stream;
mod tcp;
mod trace;
mod udp;
mod wire;
mod world;

pub use agent::{FlowStats, MAX_OBJECTS, Summary, WebObject};
pub use build::{Network, NodeId, Program};
pub use capture::MAX_CAPTURE;
pub use fabric::RouterId;
pub use inject::ForgedIcmp;
pub use nat::NatId;
pub use net::SimNet;
pub use plan::{MAX_SAMPLES, Sample, Samples};
pub use service::{MAX_ANSWERS, MAX_UNSENT, MAX_UNTAKEN, TcpAction, TcpService, UdpService};
pub use tcp::{BufferSize, DelayedAck, EcnMode, RtoFloor, TcpConfig, TcpController, TcpPhase, TcpProbe};
pub use trace::{MAX_TRACE, PacketKind, TraceEvent, TraceVerdict};
pub use world::{DEFAULT_START, DEFAULT_WALL, HostId, IfaceId, LinkId, Unroutable, World};
