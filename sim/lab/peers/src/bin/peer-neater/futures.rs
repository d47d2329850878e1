//! Through the public API: futures on one current-thread runtime.

use crate::{SEED, needs, security};
use neater::{LocalEndpoint, Neater, Preconnection, RemoteEndpoint, Role, SecurityParameters, Stack};
use neater_peers::peer::{Args, Mode, Security, Served, Tally, all_at_once, fail, pieces, pull_by};
use std::cell::RefCell;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) fn run(args: &Args) -> ! {
    // What tokio's own peer has; only those that wait at their end need a clock, too.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_io();
    if args.mode == Mode::Client || args.security != Security::None {
        runtime.enable_time();
    }
    let runtime = runtime.build().unwrap_or_else(|e| fail("runtime", &e));
    runtime.block_on(async {
        let result = match args.mode {
            Mode::Client => client(args).await,
            Mode::Send => send(args).await,
            Mode::Server | Mode::Recv => serve(args).await,
        };
        match result {
            Ok(tally) => tally.report("neater", args),
            Err(e) => fail("neater", &e),
        }
    })
}

fn system(args: &Args) -> io::Result<Neater> {
    let builder = Neater::builder().seed(SEED);
    if args.name.is_some() { builder.hosts(&args.hosts).build() } else { builder.build() }
}

/// What this command line asks for, towards where it says.
fn preconnection(neater: &Neater, args: &Args, security: SecurityParameters) -> Preconnection {
    let p = neater.preconnection().properties(needs()).security(security);
    let p = match &args.name {
        Some(name) => p.remote(RemoteEndpoint::new().with_host_name(name).with_port(args.addr.port())),
        None => p.remote(args.addr),
    };
    match args.security {
        Security::None if args.name.is_some() => p,
        Security::None => p.stacks(&[Stack::Tcp]),
        Security::Tls => p.stacks(&[Stack::Tls]),
        Security::Quic => p.stacks(&[Stack::Quic]),
    }
}

async fn client(args: &Args) -> io::Result<Tally> {
    let neater = system(args)?;
    let chosen = if args.name.is_some() { SecurityParameters::opportunistic() } else { security(args)? };
    let mut p = preconnection(&neater, args, chosen);
    p.compile(Role::Initiate).map_err(io::Error::other)?;
    if !args.cold {
        // Resolves and races; what wins is remembered.
        drop(p.initiate().await.map_err(io::Error::other)?);
    }
    args.ready();
    let mut tally = Tally::new(args);
    for _ in 0..args.rounds {
        let n = args.flows as usize;
        let flows = if args.delays {
            let opened = RefCell::new(Vec::with_capacity(n));
            let open = |_| {
                opened.borrow_mut().push(Instant::now());
                p.initiate()
            };
            let noticed = |i: usize| opened.borrow().get(i).into_iter().for_each(|at| tally.delay(*at));
            all_at_once(n, open, noticed).await
        } else {
            // Establishment begins with the call, not with the first look at its future: nothing need look at all of them.
            let begun: Vec<_> = (0..n).map(|_| p.initiate()).collect();
            let mut flows = Vec::with_capacity(n);
            for flow in begun {
                flows.push(flow.await);
            }
            flows
        };
        tally.done += flows.iter().filter(|f| f.is_ok()).count() as u64;
        tally.failed += flows.iter().filter(|f| f.is_err()).count() as u64;
        args.all_open();
    }
    while neater.stats().channels > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(tally)
}

async fn send(args: &Args) -> io::Result<Tally> {
    let neater = system(args)?;
    let p = preconnection(&neater, args, security(args)?);
    args.ready();
    let mut tally = Tally::new(args);
    let tasks: Vec<_> = (0..args.flows)
        .map(|_| {
            let (p, args) = (p.clone(), args.clone());
            tokio::spawn(async move {
                let bytes = p.connect_bytes().await.map_err(io::Error::other)?;
                for piece in pieces(&args) {
                    bytes.write_all(piece).await?;
                }
                bytes.end().await?;
                let sent = args.bytes_per_flow();
                // A process that ends takes unsent data of a session with it; TCP's is the system's.
                if args.security != Security::None {
                    bytes.into_connection().close().await.map_err(io::Error::other)?;
                }
                Ok::<u64, io::Error>(sent)
            })
        })
        .collect();
    for task in tasks {
        tally.bytes += task.await.map_err(io::Error::other)??;
        tally.done += 1;
    }
    Ok(tally)
}

async fn serve(args: &Args) -> io::Result<Tally> {
    let neater = system(args)?;
    let p = neater.preconnection().properties(needs()).security(security(args)?).local(LocalEndpoint::from(args.addr));
    let p = match args.security {
        Security::None => p.stacks(&[Stack::Tcp]),
        Security::Tls => p.stacks(&[Stack::Tls]),
        Security::Quic => p.stacks(&[Stack::Quic]),
    };
    let listener = p.listen().map_err(io::Error::other)?;
    let addr = listener.local_addrs().first().map(|(_, a)| *a);
    args.say_listening(addr.ok_or_else(|| io::Error::other("it listens nowhere"))?);

    let served = Arc::new(Served::default());
    let mut over = pin!(served.over.notified());
    let mut accepted = 0;
    let mut tally = Tally::new(args);
    loop {
        let connection = tokio::select! {
            biased;
            () = &mut over => break,
            c = listener.accept() => c.ok_or_else(|| io::Error::other("the listener has stopped"))?,
        };
        accepted += 1;
        let (served, want) = (served.clone(), args.flows * args.rounds);
        let stream = match connection.into_bytes() {
            Ok(stream) => stream,
            Err((_, e)) => {
                served.ended(&Err(io::Error::other(e)), want);
                continue;
            }
        };
        tokio::spawn(async move {
            let got = pull_by(|cx, buffer| stream.poll_read_bytes(cx, buffer).map_err(io::Error::other)).await;
            served.ended(&got, want);
        });
        if accepted == args.flows && (args.hold || args.leave_open) {
            // Every task has had its first turn before the flows count as open.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            args.all_open();
        }
    }
    tally.stop();
    served.report(&mut tally);
    drop(listener);
    // The peer hears of the end before this process is gone, also if the first word of it is lost; that is not part of the
    // transfer.
    let patience = Instant::now();
    let busy = |s: neater::EngineStats| s.connections + s.quic_connections > 0;
    while args.security != Security::None && busy(neater.stats()) && patience.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(tally)
}

/// How long a receiver waits at most for its peer to hear of the end.
const PATIENCE: Duration = Duration::from_secs(5);
