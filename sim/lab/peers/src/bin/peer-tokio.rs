//! The peer on tokio: one current-thread runtime, one task per accepted flow; TLS by `tokio-rustls`.

use neater_peers::credentials;
use neater_peers::peer::{Args, BACKLOG, Mode, SERVER_NAME, Security, Served, Tally, all_at_once, fail, pull, push};
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

fn main() {
    let args = Args::from_env();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap_or_else(|e| fail("runtime", &e));
    runtime.block_on(async {
        let result = match args.mode {
            Mode::Client => Ok(client(&args).await),
            Mode::Send => send(args.clone()).await,
            Mode::Server | Mode::Recv => serve(args.clone()).await,
        };
        match result {
            Ok(tally) => tally.report("tokio", &args),
            Err(e) => fail("tokio", &e),
        }
    });
}

async fn client(args: &Args) -> Tally {
    args.ready();
    let mut tally = Tally::new(args);
    for _ in 0..args.rounds {
        let flows = if args.delays {
            timed(args, &mut tally).await
        } else {
            all_at_once(args.flows as usize, |_| TcpStream::connect(args.addr), |_| {}).await
        };
        tally.done += flows.iter().filter(|f| f.is_ok()).count() as u64;
        tally.failed += flows.iter().filter(|f| f.is_err()).count() as u64;
        args.all_open();
    }
    tally
}

/// The same with a clock on each flow: from its call until it is seen to be connected.
async fn timed(args: &Args, tally: &mut Tally) -> Vec<io::Result<TcpStream>> {
    let opened = std::cell::RefCell::new(Vec::with_capacity(args.flows as usize));
    all_at_once(
        args.flows as usize,
        |_| {
            opened.borrow_mut().push(Instant::now());
            TcpStream::connect(args.addr)
        },
        |i| {
            if let Some(at) = opened.borrow().get(i) {
                tally.delay(*at);
            }
        },
    )
    .await
}

async fn send(args: Args) -> io::Result<Tally> {
    let tally = Arc::new(Mutex::new(Tally::new(&args)));
    let connector = match args.security {
        Security::None => None,
        _ => Some(TlsConnector::from(Arc::new(credentials::client(&args.credentials, &[])?))),
    };
    args.ready();
    let tasks: Vec<_> = (0..args.flows)
        .map(|_| {
            let (args, connector, tally) = (args.clone(), connector.clone(), tally.clone());
            tokio::spawn(async move {
                let mut tcp = TcpStream::connect(args.addr).await?;
                let bytes = match connector {
                    None => push(&mut tcp, &args).await?,
                    Some(c) => {
                        let name = SERVER_NAME.try_into().map_err(io::Error::other)?;
                        let mut tls = c.connect(name, tcp).await?;
                        let bytes = push(&mut tls, &args).await?;
                        // The peer's answer to our end: everything has arrived.
                        let _ = tls.read(&mut [0]).await;
                        bytes
                    }
                };
                let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                tally.done += 1;
                tally.bytes += bytes;
                Ok::<(), io::Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await.map_err(io::Error::other)??;
    }
    Ok(std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner)))
}

async fn serve(args: Args) -> io::Result<Tally> {
    let socket = if args.addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(args.addr)?;
    let listener = socket.listen(BACKLOG)?;
    args.say_listening(listener.local_addr()?);
    let acceptor = match args.security {
        Security::None => None,
        _ => Some(TlsAcceptor::from(Arc::new(credentials::server(&args.credentials, &[])?))),
    };
    let served = Arc::new(Served::default());
    let mut over = pin!(served.over.notified());
    let mut accepted = 0;
    let mut tally = Tally::new(&args);
    loop {
        let mut tcp = tokio::select! {
            biased;
            () = &mut over => break,
            tcp = listener.accept() => tcp?.0,
        };
        accepted += 1;
        let (served, acceptor, want) = (served.clone(), acceptor.clone(), args.flows * args.rounds);
        tokio::spawn(async move {
            let got = match acceptor {
                None => pull(&mut tcp).await,
                Some(a) => match a.accept(tcp).await {
                    Ok(mut tls) => pull(&mut tls).await,
                    Err(e) => Err(e),
                },
            };
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
    Ok(tally)
}
