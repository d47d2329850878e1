//! The peer on noq, a QUIC with several paths (draft-ietf-quic-multipath): a server that sends the
//! bytes or the messages that it is asked for, and a client that fetches them over a path from each of
//! its addresses.
//!
//! The window of the stream is larger than noq's default, which is meant for 100 Mbit/s and 100 ms
//! on one path; everything else is its default.

mod args;
mod sockets;

use args::{Args, Mode};
use neater_peers::credentials;
use neater_peers::paced::{Arrivals, Asked, Load, MESSAGE, Messages, REQUEST};
use neater_peers::peer::{SERVER_NAME, fail, next_piece, payload};
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{ClientConfig, Connection, Endpoint, EndpointConfig, FourTuple, Incoming, Path, PathError, PathId};
use noq::{PathStatus, ReadExactError, RecvStream, SendStream, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use serde_json::json;
use sockets::{Local, Sockets};
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const ALPN: &[u8] = b"neater";
/// Of a stream. noq closes a connection whose stream has more than 1,024 gaps, and packets of 1,200
/// bytes that come by two paths in turn make 900 of them in this: with 16 MiB, one transfer in ten
/// on loopback ended so.
const WINDOW: u32 = 2 << 20;
/// Paths of a connection.
const PATHS: u32 = 8;
/// How often it is tried to open a path while the peer's connection IDs for it are under way.
const TICK: Duration = Duration::from_millis(2);

fn main() {
    let args = Args::from_env();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap_or_else(|e| fail("runtime", &e));
    let limit = args.limit;
    let work = async {
        match args.mode {
            Mode::Serve => serve(&args).await,
            Mode::Get => get(&args).await,
        }
    };
    match runtime.block_on(async { tokio::time::timeout(limit, work).await }) {
        Ok(Ok(())) => {}
        Ok(Err(e)) => fail("noq", &reasons(&e)),
        Err(_) => fail("noq", &format!("not done after {limit:?}")),
    }
}

/// An error with what it comes from: noq's errors of streams say that the connection was lost, and
/// their source why.
fn reasons(error: &io::Error) -> String {
    let mut text = error.to_string();
    let mut error: &dyn Error = error;
    while let Some(source) = error.source() {
        text = format!("{text}: {source}");
        error = source;
    }
    text
}

fn transport(args: &Args) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config.max_concurrent_multipath_paths(PATHS);
    config.stream_receive_window(VarInt::from_u32(WINDOW)).max_outgoing_bytes_per_second(args.rate);
    if let Some(idle) = args.path_idle {
        config.default_path_max_idle_timeout(Some(idle)).default_path_keep_alive_interval(Some(idle / 3));
    }
    Arc::new(config)
}

async fn serve(args: &Args) -> io::Result<()> {
    let tls = credentials::server(&args.credentials, &[ALPN])?;
    let crypto = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(transport(args));
    let endpoint = Endpoint::server(config, args.addr)?;
    println!("{}", json!({ "listening": endpoint.local_addr()?.to_string() }));
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            if let Err(e) = answer(incoming).await {
                eprintln!("a connection has failed: {}", reasons(&e));
            }
        });
    }
    Ok(())
}

/// Sends what the first bytes of a stream ask for.
async fn answer(incoming: Incoming) -> io::Result<()> {
    let connection = incoming.await?;
    let (mut send, mut recv) = connection.accept_bi().await?;
    let mut request = [0; REQUEST];
    recv.read_exact(&mut request).await.map_err(io::Error::other)?;
    match Asked::decode(&request) {
        Some(Asked::Bytes(mut left)) => {
            while left > 0 {
                let piece = payload(next_piece(left, left));
                send.write_all(piece).await?;
                left -= piece.len() as u64;
            }
        }
        Some(Asked::Messages(load, time)) => send_messages(&connection, &mut send, load, time).await?,
        None => return Err(io::Error::other("it asked for nothing")),
    }
    send.finish()?;
    // The client closes when it has everything.
    connection.closed().await;
    Ok(())
}

async fn send_messages(connection: &Connection, send: &mut SendStream, load: Load, time: Duration) -> io::Result<()> {
    let paths = || {
        let each = (0..PATHS).filter_map(|id| connection.path(PathId::from(id)));
        each.filter_map(|p| Some((p.remote_address().ok()?.ip(), Some(p.stats().rtt)))).collect()
    };
    let mut messages = Messages::new(load, time);
    while let Some(message) = messages.next(paths).await {
        send.write_all(&message).await?;
    }
    Ok(())
}

/// Reads messages to the end of the stream, and prints when they came.
async fn take_messages(recv: &mut RecvStream) {
    let (mut arrivals, mut message) = (Arrivals::default(), [0; MESSAGE]);
    let whole = loop {
        match recv.read_exact(&mut message).await {
            Ok(()) => arrivals.note(&message),
            Err(ReadExactError::FinishedEarly(n)) => break n == 0,
            Err(e) => {
                eprintln!("{}", reasons(&io::Error::other(e)));
                break false;
            }
        }
    };
    arrivals.print(whole);
}

async fn get(args: &Args) -> io::Result<()> {
    let tls = credentials::client(&args.credentials, &[ALPN])?;
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).map_err(io::Error::other)?));
    config.transport_config(transport(args));
    let sockets = Box::new(Sockets::bind(&args.local)?);
    let endpoint =
        Endpoint::new_with_abstract_socket(EndpointConfig::default(), None, sockets, Arc::new(TokioRuntime))?;
    let begin = Instant::now();
    let connection = endpoint.connect_with(config, args.addr, SERVER_NAME).map_err(io::Error::other)?.await?;
    // Its statistics are kept as long as this is.
    let first = connection.path(PathId::ZERO).map(|path| (path, Instant::now()));
    let further = args.local.iter().skip(1).map(|local| {
        let path = FourTuple::new(args.addr, Some(local.ip));
        tokio::spawn(open(connection.clone(), path))
    });
    let further: Vec<_> = further.collect();
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(&args.asked.encode()).await?;
    send.finish()?;
    let wanted = match args.asked {
        Asked::Bytes(n) => n,
        Asked::Messages(..) => {
            println!("{}", json!({ "open": true }));
            take_messages(&mut recv).await;
            connection.close(0u32.into(), b"");
            endpoint.wait_idle().await;
            return Ok(());
        }
    };
    let mut bytes = 0;
    while let Some(chunk) = recv.read_chunk(usize::MAX).await? {
        bytes += chunk.len() as u64;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let mut paths = vec![first];
    for opening in further {
        paths.push(opened(opening).await);
    }
    let carried = args.local.iter().zip(&paths).map(|(local, path): (&Local, _)| {
        let received = path.as_ref().map_or(0, |(path, _)| path.stats().udp_rx.bytes);
        let opened = path.as_ref().map(|(_, at)| at.duration_since(begin).as_secs_f64());
        json!({ "local": local.ip.to_string(), "opened": opened, "bytes": received })
    });
    let carried: Vec<_> = carried.collect();
    println!("{}", json!({ "peer": "noq", "bytes": bytes, "seconds": seconds, "paths": carried }));
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    if bytes == wanted { Ok(()) } else { Err(io::Error::other("not as many bytes came as were asked for")) }
}

/// Opens a path, as soon as the peer has given connection IDs for it.
async fn open(connection: Connection, path: FourTuple) -> Result<(Path, Instant), PathError> {
    loop {
        match connection.open_path(path, PathStatus::Available).await {
            Err(PathError::RemoteCidsExhausted) => tokio::time::sleep(TICK).await,
            opened => return opened.map(|path| (path, Instant::now())),
        }
    }
}

/// The path, if it was opened before the transfer was over.
async fn opened(opening: JoinHandle<Result<(Path, Instant), PathError>>) -> Option<(Path, Instant)> {
    if !opening.is_finished() {
        opening.abort();
    }
    match opening.await {
        Ok(Ok(opened)) => Some(opened),
        Ok(Err(e)) => {
            eprintln!("a path was not opened: {e}");
            None
        }
        Err(_) => None,
    }
}
