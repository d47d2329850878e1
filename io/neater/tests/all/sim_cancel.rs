//! Futures are cancel-safe: 10,000 random cancellations in the simulator lose nothing, take nothing
//! and leave nothing.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use neater::{
    Connection, EngineConfig, FramerSpec, LocalEndpoint, Neater, Preconnection, RemoteEndpoint, SecurityParameters,
    Stack,
};
use neater_base::Rng;
use neater_base::net::InterfaceKind;
use neater_link::LinkConfig;
use neater_netsim::World;
use neater_testkit::{Executor, security};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Polls a future up to `polls` times and gives it up if it is not over then.
struct Impatient<F> {
    future: Pin<Box<F>>,
    polls: u64,
}

impl<F: Future> Future for Impatient<F> {
    type Output = Option<F::Output>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.future.as_mut().poll(cx) {
            Poll::Ready(v) => Poll::Ready(Some(v)),
            Poll::Pending if self.polls <= 1 => Poll::Ready(None),
            Poll::Pending => {
                self.polls -= 1;
                Poll::Pending
            }
        }
    }
}

/// A source of impatience that several tasks share.
#[derive(Clone)]
struct Cancel {
    rng: Arc<Mutex<Rng>>,
    cancelled: Arc<AtomicUsize>,
}

impl Cancel {
    fn below(&self, n: u64) -> u64 {
        self.rng.lock().expect("not poisoned").below(n)
    }

    /// Tries `make`'s future again and again, giving it up at random, until one is over.
    async fn patiently<F: Future>(&self, mut make: impl FnMut() -> F) -> F::Output {
        loop {
            // Every other time it is waited for, so that time passes.
            let polls = if self.below(2) == 0 { u64::MAX } else { 1 + self.below(3) };
            match (Impatient { future: Box::pin(make()), polls }).await {
                Some(v) => return v,
                None => drop(self.cancelled.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }
}

fn host(
    executor: &mut Executor,
    world: &World,
    name: &str,
    addrs: &[IpAddr],
    seed: u64,
) -> (Neater, neater_netsim::HostId) {
    let host = world.add_host(name);
    let iface = world.add_interface(host, "eth0", InterfaceKind::Wired, addrs);
    let link = LinkConfig::rate(20_000_000, Duration::from_millis(5));
    world.attach(iface, link.clone(), link);
    let config = EngineConfig::new(Rng::from_number(seed).seed(), security::crypto(seed, 1));
    let (flag, wake) = Executor::wake_flag();
    let (neater, turner) = Neater::over(world.net(host), config, wake);
    executor.drive(host, flag, move || turner.turn());
    (neater, host)
}

async fn echo(connection: Connection, cancel: Cancel) {
    loop {
        // A received message is held by this task alone: it must be sent whatever is given up on
        // the way.
        match cancel.patiently(|| connection.receive()).await {
            Ok(Some(m)) => {
                if cancel.patiently(|| connection.send(m.data.clone())).await.is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

async fn client(pre: Preconnection, cancel: Cancel, messages: u32, stack: Stack) {
    let connection = cancel.patiently(|| pre.initiate()).await.expect("the server is there");
    assert_eq!(connection.stack(), Some(stack));
    let mut asked = 0;
    let mut heard = 0;
    while heard < messages {
        while asked < messages && asked < heard + 4 {
            let size = cancel.below(20_000) as usize;
            let mut data = vec![asked as u8; 4 + size];
            data[..4].copy_from_slice(&asked.to_be_bytes());
            let data = bytes::Bytes::from(data);
            cancel.patiently(|| connection.send(data.clone())).await.expect("sent");
            asked += 1;
        }
        let m = cancel.patiently(|| connection.receive()).await.expect("alive").expect("an echo");
        assert_eq!(m[..4], heard.to_be_bytes(), "in order, none lost, none twice");
        assert!(m[4..].iter().all(|b| *b == heard as u8));
        heard += 1;
    }
    connection.close().await.expect("closed");
}

/// As [`client`], with several tasks that send and several that receive at the same time.
async fn crowd(pre: Preconnection, cancel: Cancel, messages: u32, stack: Stack) {
    let connection = cancel.patiently(|| pre.initiate()).await.expect("the server is there");
    assert_eq!(connection.stack(), Some(stack));
    let (connection, heard) = (&connection, &AtomicUsize::new(0));
    let mut tasks: FuturesUnordered<Pin<Box<dyn Future<Output = ()>>>> = FuturesUnordered::new();
    for sender in 0..4u8 {
        let cancel = &cancel;
        tasks.push(Box::pin(async move {
            for _ in 0..messages / 4 {
                let data = bytes::Bytes::from(vec![sender; 20_000 + cancel.below(40_000) as usize]);
                cancel.patiently(|| connection.send(data.clone())).await.expect("sent");
            }
        }));
        tasks.push(Box::pin(async move {
            while heard.load(Ordering::Relaxed) < messages as usize {
                match cancel.patiently(|| connection.receive()).await.expect("alive") {
                    Some(m) => {
                        assert!(m.iter().all(|b| *b == m[0]), "a message is in one piece");
                        if heard.fetch_add(1, Ordering::Relaxed) + 1 == messages as usize {
                            // The others are notified of the end.
                            connection.finish().expect("open");
                        }
                    }
                    None => return,
                }
            }
        }));
    }
    while tasks.next().await.is_some() {}
    assert_eq!(heard.load(Ordering::Relaxed), messages as usize, "none lost, none twice");
    connection.close().await.expect("closed");
}

/// One world: returns how many futures were given up.
fn run(seed: u64, stack: Stack) -> usize {
    let world = World::new(seed);
    let mut executor = Executor::new(world.clone());
    let addrs: Vec<IpAddr> = vec!["203.0.113.77".parse().expect("literal"), "2001:db8:77::1".parse().expect("literal")];
    let (near, near_host) = host(&mut executor, &world, "client", &addrs, seed);
    let addrs: Vec<IpAddr> = vec![
        neater_testkit::town::SERVER_V4.parse().expect("literal"),
        neater_testkit::town::SERVER_V6.parse().expect("literal"),
    ];
    let (far, far_host) = host(&mut executor, &world, "server", &addrs, seed + 1);
    let clear = !stack.is_secure();
    let framer = FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 };
    let secure = |on| if clear { SecurityParameters::disabled() } else { on };
    let listener = far
        .preconnection()
        .local(LocalEndpoint::new().with_port(443))
        .security(secure(security::server_security()))
        .framer(framer.clone())
        .stacks(&[stack])
        .listen()
        .expect("listening");
    let cancel = Cancel { rng: Arc::new(Mutex::new(Rng::from_number(seed))), cancelled: Arc::new(AtomicUsize::new(0)) };
    let remaining = Arc::new(AtomicUsize::new(4));
    let server_waker: Arc<Mutex<Option<std::task::Waker>>> = Arc::default();
    for n in 0..4 {
        let pre = near
            .preconnection()
            .remote(RemoteEndpoint::new().with_ip_address(addrs[n % 2]).with_port(443))
            .security(secure(security::client_security()))
            .framer(framer.clone())
            .stacks(&[stack]);
        let (cancel, remaining, server) = (cancel.clone(), remaining.clone(), server_waker.clone());
        executor.spawn(async move {
            match n {
                3 => crowd(pre, cancel, 60, stack).await,
                _ => client(pre, cancel, 60, stack).await,
            }
            remaining.fetch_sub(1, Ordering::Relaxed);
            if let Some(w) = server.lock().expect("not poisoned").take() {
                w.wake();
            }
        });
    }
    // Connections that were given up may have reached the server: every client is served until it
    // leaves.
    let cancels = cancel.clone();
    executor.spawn(async move {
        let mut servers: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
        core::future::poll_fn(move |cx| {
            while let Poll::Ready(Some(c)) = listener.poll_accept(cx) {
                servers.push(Box::pin(echo(c, cancels.clone())));
            }
            servers.retain_mut(|s| s.as_mut().poll(cx).is_pending());
            let over = remaining.load(Ordering::Relaxed) == 0 && servers.is_empty();
            *server_waker.lock().expect("not poisoned") = Some(cx.waker().clone());
            if over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    });
    let finished = executor.run(Duration::from_secs(600));
    let (a, b) = (near.stats(), far.stats());
    assert!(finished, "seed {seed}, {stack}: something hangs; client {a:?}, server {b:?}");
    // What lingers, lingers for a bounded time.
    executor.run(Duration::from_secs(60));
    executor.spawn(Idle { polls: 0 });
    executor.run(Duration::from_secs(60));
    for (side, stats, host) in [("client", near.stats(), near_host), ("server", far.stats(), far_host)] {
        assert_eq!(
            (stats.connections, stats.channels, stats.quic_connections, stats.bytes_queued),
            (0, 0, 0, 0),
            "seed {seed}, {stack}: left on the {side}: {stats:?}"
        );
        assert_eq!(world.open_sockets(host), 0, "seed {seed}, {stack}: sockets left on the {side}");
    }
    cancel.cancelled.load(Ordering::Relaxed)
}

/// Never over: lets the world run on.
struct Idle {
    polls: u32,
}
impl Future for Idle {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.polls += 1;
        Poll::Pending
    }
}

#[test]
fn ten_thousand_random_cancellations_lose_nothing() {
    let mut cancelled = 0;
    let first = std::env::var("SIM_SEED").ok().and_then(|s| s.parse().ok());
    for seed in first.unwrap_or(1).. {
        for stack in [Stack::Tcp, Stack::Tls, Stack::Quic] {
            cancelled += run(seed, stack);
        }
        if cancelled >= 10_000 || first.is_some() {
            break;
        }
        assert!(seed < 100, "only {cancelled} cancellations in 100 worlds");
    }
    println!("{cancelled} futures were given up");
}
