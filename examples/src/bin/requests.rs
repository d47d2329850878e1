//! Many requests at once over one connection: each on a stream of its own, so that a slow answer holds up no other.
//!
//! Shows `Connection::clone_connection`, which adds a connection to the group of another one: with QUIC that is a stream and
//! costs no handshake. The server takes the group, and its streams from it. `streams` asks for a transport that has them;
//! without it a clone may also be a transport connection of its own.
//!
//! ```text
//! cargo run -p neater-examples --bin requests                                        # both sides, by itself
//! cargo run -p neater-examples --bin requests -- serve 4433 requests.der             # writes its certificate
//! cargo run -p neater-examples --bin requests -- ask localhost:4433 requests.der 50  # 50 requests
//! ```
//!
//! It prints how many streams the group has, each answer as it comes (the first request is slow, and its answer comes last),
//! and the time that it took.
use neater::tls::CertificateDer;
use neater::{Accepted, Connection, FramerSpec, Group, Listener, LocalEndpoint, Neater, Preconnection, RemoteEndpoint};
use neater::{SecurityParameters, Trust};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How long the server takes for a slow request.
const SLOW: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let framer = FramerSpec::LengthPrefixed { width: 4, max: 1 << 16 };
    let pre = Neater::new()?.preconnection().needs("reliable, low-delay, streams")?.framer(framer);
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => {
            let pre = pre.security(neater::self_signed(&["localhost", "127.0.0.1", "::1"])?);
            let listener = pre.clone().local(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).listen()?;
            let server = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port()));
            tokio::spawn(serve(listener));
            let answers = ask_all(&pre.remote(server), 20).await?;
            assert_eq!(answers.len(), 20);
            assert_eq!(answers[19], "slow 0: done", "the slow answer has held up no other");
            Ok(())
        }
        ["serve", port, file] => {
            let security = neater::self_signed(&["localhost", "127.0.0.1", "::1"])?;
            std::fs::write(file, &security.server_certificates[0].chain[0])?;
            serve(pre.local(LocalEndpoint::new().with_port(port.parse()?)).security(security).listen()?).await;
            Ok(())
        }
        ["ask", server, file, count] => {
            let mut security = SecurityParameters::new();
            security.trust = Trust::Only(vec![CertificateDer::from(std::fs::read(file)?)]);
            let pre = pre.remote(server.parse::<RemoteEndpoint>()?).security(security);
            ask_all(&pre, count.parse()?).await?;
            Ok(())
        }
        _ => Err("usage: requests [serve PORT CERT.der | ask HOST:PORT CERT.der COUNT]".into()),
    }
}

/// A task for each transport connection.
async fn serve(listener: Listener) {
    listener.deliver_groups(true);
    while let Some(accepted) = listener.accept_any().await {
        // The needs exclude transports without streams.
        if let Accepted::Group(group) = accepted {
            tokio::spawn(serve_group(group));
        }
    }
}

/// A task for each stream of a transport connection.
async fn serve_group(group: Group) {
    while let Ok(stream) = group.accept().await {
        tokio::spawn(async move { answer(stream).await.inspect_err(|e| eprintln!("server: {e}")) });
    }
}

async fn answer(stream: Connection) -> Outcome {
    while let Some(question) = stream.receive().await? {
        let question = String::from_utf8_lossy(&question).into_owned();
        if question.starts_with("slow") {
            tokio::time::sleep(SLOW).await;
        }
        stream.send(format!("{question}: done")).await?;
    }
    Ok(())
}

/// Sends so many requests at once. Returns the answers in the order in which they came.
async fn ask_all(pre: &Preconnection, count: usize) -> Outcome<Vec<String>> {
    let connection = pre.initiate().await?;
    let begun = Instant::now();
    let mut asking = JoinSet::new();
    for n in 0..count {
        let speed = if n == 0 { "slow" } else { "quick" };
        asking.spawn(ask(connection.clone_connection()?, format!("{speed} {n}")));
    }
    let group = connection.group()?;
    println!("{} streams over {}", group.len(), group.stack().ok_or("the session is over")?);
    assert_eq!(group.len(), count + 1, "one was there before, and each request has its own");
    let mut answers = Vec::new();
    while let Some(answer) = asking.join_next().await {
        answers.push(answer??);
        println!("{}", answers[answers.len() - 1]);
    }
    println!("{count} requests in {} ms", begun.elapsed().as_millis());
    group.close();
    connection.closed().await?;
    Ok(answers)
}

async fn ask(stream: Connection, question: String) -> Outcome<String> {
    stream.send(question).await?;
    // The request is complete: the server reads the end of it, and this side can still receive.
    stream.finish()?;
    let answer = stream.receive().await?.ok_or("no answer")?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
