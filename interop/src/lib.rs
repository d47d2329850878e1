//! Tests against peers that are not ours, and inside event loops that are not ours.
//!
//! *Responsible for* what those tests share: programs that are started, watched and ended ([`Running`], [`run`]), servers
//! of the standard library's own sockets ([`echo_server`], [`black_hole`]), certificates, our SCTP over a socket with
//! usrsctp at the other end ([`sctp`]), and finding compilers and interpreters. *Not here*: any test against
//! a peer; they are in `tests/`, one file per peer, and their programs in `hosts/`, `peers/`, `c/` and `go/`.
//!
//! *Invariants*: all traffic stays on loopback, on ports that were free; whatever is started is ended, by its own process id,
//! when its guard is dropped; a test whose peer is missing says `skipped: ` and why, and never passes in silence.

#![allow(unsafe_code, reason = "a listener with a full queue is made by hand")]

mod plain;
mod process;
pub mod sctp;
mod tls;
mod tools;

pub use plain::{BlackHole, EchoServer, black_hole, echo_server};
pub use process::{Finished, Running, Scratch, free_port, run, wait_for};
pub use tls::{Certificate, certificate, security};
pub use tools::{c_peer, compile, go_peer, here, neater_command, python_with_aioquic, shim_library, which};

use neater::Neater;
use std::future::Future;
use std::time::Duration;

/// No single test lasts longer than this.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Says that a test cannot be done here and returns from it.
#[macro_export]
macro_rules! skip {
    ($($why:tt)*) => {{
        $crate::say_skipped(format_args!($($why)*));
        return;
    }};
}

/// Says it past the test harness, which would keep it to itself: a test that is skipped must be seen.
#[doc(hidden)]
pub fn say_skipped(why: core::fmt::Arguments<'_>) {
    use std::io::Write;
    // One write, on a line of its own, whatever the harness is in the middle of.
    let _ = std::io::stderr().write_all(format!("\nskipped: {why}\n").as_bytes());
}

/// Runs a test's future on a runtime with one thread, within [`LIMIT`].
///
/// # Panics
/// When it lasts longer.
pub fn within_limit<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(LIMIT, future).await.expect("the test is through in time") })
}

/// Waits until an engine holds no connection, socket or QUIC connection any more.
///
/// # Panics
/// When it still does after five seconds.
pub async fn nothing_left(neater: &Neater) {
    for _ in 0..500 {
        let s = neater.stats();
        if s.connections == 0 && s.channels == 0 && s.quic_connections == 0 && s.bytes_queued == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("something is left: {:?}", neater.stats());
}
