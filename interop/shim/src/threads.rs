//! What the test hooks do on threads of their own.
//!
//! *Responsible for* using public objects from outside the thread that drives, and for reporting how that went. *Not*
//! for driving anything. *Invariant*: every thread ends by itself within [`PATIENCE`].

use crate::{NEATER_SHIM_FAILED, NEATER_SHIM_PANIC};
use neater::tls::Trust;
use neater::{ByteStream, Connection, FramerSpec, Neater, SecurityParameters, Stack};
use std::future::Future;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// No thread waits longer than this for its future.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a QUIC connection is left alone: longer than any of its timers but the idle timeout. The longest of the others is
/// the one that the first packet sets, a second, which may fire although it is not needed any more.
const SILENCE: Duration = Duration::from_millis(1200);
/// How long a few bytes may take to go and come on loopback, on a machine that has other things to do.
const PROMPT: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Threads {
    running: Vec<Running>,
    failed: bool,
}

#[derive(Debug)]
struct Running {
    handle: JoinHandle<bool>,
    /// It has what it wanted, and only cleans up: that makes turns in which somebody can look here.
    served: Arc<AtomicBool>,
}

impl Threads {
    fn spawn(&mut self, f: impl FnOnce(&AtomicBool) -> bool + Send + 'static) -> i64 {
        let served = Arc::new(AtomicBool::new(false));
        let theirs = served.clone();
        match thread::Builder::new().spawn(move || f(&theirs)) {
            Ok(handle) => {
                self.running.push(Running { handle, served });
                0
            }
            Err(_) => NEATER_SHIM_FAILED,
        }
    }

    pub(crate) fn send_later(&mut self, stream: Arc<ByteStream>, byte: u8, delay: Duration) -> i64 {
        self.spawn(move |served| {
            thread::sleep(delay);
            served.store(true, Ordering::Release);
            let sent = stream.poll_write_bytes(&mut Context::from_waker(Waker::noop()), &[IoSlice::new(&[byte])]);
            matches!(sent, Poll::Ready(Ok(1)))
        })
    }

    pub(crate) fn quic_echo(&mut self, neater: Neater, bytes: usize) -> i64 {
        self.spawn(move |served| quic_echo(&neater, bytes, served).unwrap_or(false))
    }

    /// 1: all have what they wanted; 0: not yet; negative: one has failed.
    pub(crate) fn done(&mut self) -> i64 {
        let running = core::mem::take(&mut self.running);
        for thread in running {
            if thread.handle.is_finished() {
                match thread.handle.join() {
                    Ok(well) => self.failed |= !well,
                    Err(_) => return NEATER_SHIM_PANIC,
                }
            } else {
                self.running.push(thread);
            }
        }
        match (self.failed, self.running.iter().all(|t| t.served.load(Ordering::Acquire))) {
            (true, _) => NEATER_SHIM_FAILED,
            (false, done) => done.into(),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        for thread in self.running.drain(..) {
            let _ = thread.handle.join();
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future by parking; `None` when it takes too long.
fn block_on<T>(future: impl Future<Output = T>) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, until) = (pin!(future), Instant::now() + PATIENCE);
    loop {
        if let Poll::Ready(v) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(v);
        }
        let left = until.checked_duration_since(Instant::now())?;
        thread::park_timeout(left);
    }
}

fn quic_echo(neater: &Neater, bytes: usize, served: &AtomicBool) -> Option<bool> {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let identity = neater::tls::self_signed(&["127.0.0.1"], neater_base::WallTime(wall), [9; 32]);
    let mut client = SecurityParameters::new();
    client.trust = Trust::Only(vec![identity.chain.first()?.clone()]);
    let mut server = SecurityParameters::new();
    server.server_certificates = vec![identity];
    let framer = FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 };
    let pre = neater.preconnection().stacks(&[Stack::Quic]).framer(framer);
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = pre.clone().local(local).security(server).listen().ok()?;
    let remote = SocketAddr::from(([127, 0, 0, 1], listener.port()));
    let ours = block_on(pre.remote(remote).security(client).initiate())?.ok()?;
    let message: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
    block_on(ours.send(message.clone()))?.ok()?;
    let theirs = block_on(listener.accept())??;
    let mut same = message == echo_back(&ours, &theirs)?;
    // When all timers of the handshake are over, only the call itself can wake the driver.
    thread::sleep(SILENCE);
    let begun = Instant::now();
    block_on(ours.send("still there"))?.ok()?;
    same &= b"still there"[..] == echo_back(&ours, &theirs)?;
    same &= begun.elapsed() < PROMPT;
    served.store(same, Ordering::Release);
    drop(theirs);
    let closed = block_on(ours.close())?.is_ok();
    Some(same && closed)
}

/// Takes a message at the far end, sends it back and returns it as it arrives.
fn echo_back(ours: &Connection, theirs: &Connection) -> Option<Vec<u8>> {
    let received = block_on(theirs.receive())?.ok()??;
    block_on(theirs.send(received.data))?.ok()?;
    Some(block_on(ours.receive())?.ok()??.to_vec())
}
