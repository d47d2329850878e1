//! `Net` on the operating system: non-blocking sockets, batched UDP, one epoll.
//!
//! *Responsible for* [`OsNet`], which keeps the contract of [`neater_base::net::Net`] with real
//! sockets, and for [`FaultNet`], which makes any `Net` misbehave within that contract. One
//! descriptor (that of [`OsNet`]'s `AsFd`) becomes readable whenever there is something to do: a
//! socket is ready, the deadline given to `arm` has come, work was left over, another thread called
//! [`Waker::wake`], or the host's networks or name files changed. It is all that a driver needs,
//! level-triggered, edge-triggered or one-shot, directly or through further epolls.
//!
//! [`OsDirectStream`] carries the bytes of one TCP connection around it, from any thread.
//! [`RouterDiscovery`] stands beside it: what routers advertise on the links of this host.
//!
//! *Deliberately not here*: any protocol, any decision, any waiting. Nothing blocks, no thread is
//! started, no signal is raised, nothing is global.
//!
//! *Invariants*
//!
//! * A handle of a closed socket never reaches the socket that inherits its descriptor, and an
//!   event of a closed socket is never reported.
//! * In a child of `fork` every operation fails with `Forked` and touches nothing that the parent
//!   shares.
//! * What only some programs use (interfaces, routes, name files, UDP) costs nothing until it is
//!   first used.
//!
//! *Portability*: `sys/mod.rs` lists what a platform must provide; Linux does, the shell platform
//! compiles anywhere and answers `Unsupported`. Nothing of a platform leaves this crate.

mod fault;
mod os;
mod sys;

pub use fault::{FaultControl, FaultCounts, FaultNet, FaultRates};
pub use os::{MAX_MESSAGE, Neighbour, OsDirectStream, OsNet, OsNetOptions, Role, RouterDiscovery, Waker};
