//! The peer on plain quinn: one connection, one stream per flow, defaults everywhere (segmentation offload is one).

use neater_peers::credentials;
use neater_peers::peer::{Args, Mode, SERVER_NAME, Tally, fail, pull, push};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, ServerConfig};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

const ALPN: &[u8] = b"neater";

fn main() {
    let args = Args::from_env();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap_or_else(|e| fail("runtime", &e));
    runtime.block_on(async {
        let result = match args.mode {
            Mode::Send => send(&args).await,
            Mode::Recv => recv(&args).await,
            Mode::Client | Mode::Server => Err(io::Error::other("this peer only sends and receives")),
        };
        match result {
            Ok(tally) => tally.report("quinn", &args),
            Err(e) => fail("quinn", &e),
        }
    });
}

async fn send(args: &Args) -> io::Result<Tally> {
    let tls = credentials::client(&args.credentials, &[ALPN])?;
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).map_err(io::Error::other)?));
    let local: SocketAddr = if args.addr.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let endpoint = Endpoint::client(local)?;
    let mut tally = Tally::new(args);
    let connection = endpoint
        .connect_with(config, args.addr, SERVER_NAME)
        .map_err(io::Error::other)?
        .await
        .map_err(io::Error::other)?;
    let streams: Vec<_> = (0..args.flows)
        .map(|_| {
            let (connection, args) = (connection.clone(), args.clone());
            tokio::spawn(async move {
                let mut stream = connection.open_uni().await.map_err(io::Error::other)?;
                push(&mut stream, &args).await
            })
        })
        .collect();
    for stream in streams {
        tally.bytes += stream.await.map_err(io::Error::other)??;
        tally.done += 1;
    }
    // The receiver closes when it has everything.
    connection.closed().await;
    endpoint.wait_idle().await;
    Ok(tally)
}

async fn recv(args: &Args) -> io::Result<Tally> {
    let tls = credentials::server(&args.credentials, &[ALPN])?;
    let config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).map_err(io::Error::other)?));
    let endpoint = Endpoint::server(config, args.addr)?;
    args.say_listening(endpoint.local_addr()?);
    let mut tally = Tally::new(args);
    let incoming = endpoint.accept().await.ok_or_else(|| io::Error::other("the endpoint is closed"))?;
    let connection = incoming.await.map_err(io::Error::other)?;
    let mut streams = Vec::new();
    for _ in 0..args.flows {
        let mut stream = connection.accept_uni().await.map_err(io::Error::other)?;
        streams.push(tokio::spawn(async move { pull(&mut stream).await }));
    }
    for stream in streams {
        tally.bytes += stream.await.map_err(io::Error::other)??;
        tally.done += 1;
    }
    // Waiting for the peer to have heard of the end is not part of the transfer.
    tally.stop();
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(tally)
}
