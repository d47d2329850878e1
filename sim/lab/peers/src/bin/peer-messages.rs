//! Throughput of 64 kB messages by the Rust API, both ends in one thread: what `io/python/measure/throughput.py` is held
//! against.
//!
//! `peer-messages tcp|tls|quic MEGABYTES` prints a line of JSON: megabytes for each second of CPU time.
use neater::{Driver, FramerSpec, Neater, SecurityParameters, Stack};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

const SIZE: usize = 64_000;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Drives the engine until both have ended.
fn drive(driver: &Driver, futures: [Pin<&mut dyn Future<Output = Outcome>>; 2]) -> Outcome {
    let mut left: Vec<_> = futures
        .into_iter()
        .map(|f| {
            let woken = Arc::new(Woken(AtomicBool::new(true)));
            (f, Waker::from(woken.clone()), woken)
        })
        .collect();
    loop {
        let mut failed = None;
        left.retain_mut(|(future, waker, woken)| {
            if !woken.0.swap(false, Ordering::Relaxed) {
                return true;
            }
            match future.as_mut().poll(&mut Context::from_waker(waker)) {
                Poll::Pending => true,
                Poll::Ready(Ok(())) => false,
                Poll::Ready(Err(e)) => {
                    failed = Some(e);
                    false
                }
            }
        });
        if let Some(e) = failed {
            return Err(e);
        }
        if left.is_empty() {
            return Ok(());
        }
        let at_once = left.iter().any(|(_, _, woken)| woken.0.load(Ordering::Relaxed)).then(Timespec::default);
        rustix::io::retry_on_intr(|| poll(&mut [PollFd::new(driver, PollFlags::IN)], at_once.as_ref()))?;
        driver.turn();
    }
}

fn cpu() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (variant, megabytes) = match args.as_slice() {
        [variant, megabytes] => (variant.as_str(), megabytes.parse::<usize>()?),
        _ => return Err("usage: messages tcp|tls|quic MEGABYTES".into()),
    };
    let stack = match variant {
        "tcp" => Stack::Tcp,
        "tls" => Stack::Tls,
        "quic" => Stack::Quic,
        _ => return Err("the variants are tcp, tls and quic".into()),
    };
    let count = megabytes * 1_000_000 / SIZE;
    let security = match stack {
        Stack::Tcp => SecurityParameters::disabled(),
        _ => neater::self_signed(&["localhost", "127.0.0.1", "::1"])?,
    };
    let (neater, driver) = Neater::builder().without_driver()?;
    let framer = FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 };
    let pre = neater.preconnection().security(security).stacks(&[stack]).framer(framer);
    let listener = pre.clone().local(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).listen()?;
    let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port()));
    let connection = pre.remote(remote).initiate().connection()?;
    let (mut began, mut peer) = (0.0, None);
    {
        let client = pin!(async {
            connection.send("begin").await?;
            Ok(())
        });
        let server = pin!(async {
            let accepted = listener.accept().await.ok_or("the listener has stopped")?;
            accepted.receive().await?;
            peer = Some(accepted);
            Ok(())
        });
        drive(&driver, [client, server])?;
    }
    let peer = peer.ok_or("no connection was accepted")?;
    let data = bytes::Bytes::from(vec![0; SIZE]);
    {
        let sender = pin!(async {
            for _ in 0..count {
                connection.send(data.clone()).await?;
            }
            Ok(())
        });
        let receiver = pin!(async {
            for _ in 0..count {
                let message = peer.receive().await?.ok_or("the end came early")?;
                assert_eq!(message.len(), SIZE);
            }
            Ok(())
        });
        began += cpu();
        drive(&driver, [sender, receiver])?;
    }
    let rate = (count * SIZE) as f64 / 1e6 / (cpu() - began);
    println!(r#"{{"id": "PY", "measure": "throughput", "variant": "rust-{variant}", "mb_per_cpu_s": {rate:.1}}}"#);
    Ok(())
}
