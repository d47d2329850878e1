//! Congestion control: how much a sender may have in flight, and how fast it may send it.
//!
//! *Responsible for* the congestion window, the slow start threshold, the send quota of a recovery
//! and the pacing rate. *Not responsible for* finding out what was delivered or lost (the
//! transport's scoreboard does), for sequence numbers, retransmission timers or flow control.
//! Everything counts bytes, so that TCP, SCTP, QUIC and uTP can share it; a transport that thinks
//! in packets multiplies by its segment size.
//!
//! Key types: [`Congestion`] is what a transport holds, one per path: it reports what was sent,
//! acknowledged and lost, and asks [`Congestion::window`]. The policy inside is a [`Controller`]:
//! [`NewReno`], [`Cubic`], or one of the transport's own. [`Prr`], [`HyStart`] and [`Pacer`] are
//! the parts, usable alone.
//!
//! ```
//! use neater_base::Instant;
//! use neater_cc::{Ack, Config, Congestion, Cubic, CubicConfig};
//! use std::time::Duration;
//!
//! let cubic = Cubic::new(CubicConfig::rfc9438());
//! let mut cc = Congestion::new(Config::default(), Box::new(cubic), 1448);
//! let now = Instant::ZERO + Duration::from_millis(50);
//! assert_eq!(cc.window(), 14_480);
//! cc.on_sent(Instant::ZERO, 14_480, 0);
//! let ack = Ack { acked: 1448, delivered: 1448, in_flight: 13_032, ..Ack::at(now) };
//! cc.on_ack(&Ack { limited: true, ..ack });
//! assert_eq!(cc.window(), 14_480 + 1448);
//! ```
//!
//! *Invariants*: the window is never below one segment; a run is a function of the calls and their
//! arguments, bit for bit (floating point is used for the cubic function alone, and only operations
//! that IEEE 754 defines exactly).

#![forbid(unsafe_code)]

mod congestion;
mod controller;
mod coupled;
mod cubic;
mod hystart;
mod newreno;
mod pacing;
mod prr;

pub use congestion::{Config, Congestion, IdleRule, InitialWindow, Reduction};
pub use controller::{Ack, Base, Cause, Controller, Loss, Window};
pub use coupled::{Coupled, Coupling, Part};
pub use cubic::{Cubic, CubicConfig, Friendliness};
pub use hystart::{Exit, HyStart, HyStartConfig};
pub use newreno::{Counting, NewReno, NewRenoConfig};
pub use pacing::{Pacer, PacingConfig};
pub use prr::{Prr, PrrAck};
