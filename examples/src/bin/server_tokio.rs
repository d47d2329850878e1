//! A server with tokio: one task per connection, and an end in order.
//!
//! Shows the usual shape of a server: a loop that accepts, a `JoinSet` of tasks, and `Listener::stop`, after which no new
//! connection comes and those that are there are served to their end.
//!
//! ```text
//! cargo run -p neater-examples --bin server_tokio                                         # both sides, by itself
//! cargo run -p neater-examples --bin server_tokio -- serve 4433 server.der                # until Ctrl-C
//! cargo run -p neater-examples --bin server_tokio -- visit localhost:4433 server.der 100  # 100 clients at once
//! ```
//!
//! The server writes its certificate to the file. It prints where it listens, and at the end how many messages it has
//! answered; by itself, with 20 clients, `60 messages answered`.
use neater::tls::CertificateDer;
use neater::{Connection, FramerSpec, Listener, LocalEndpoint, Neater, Preconnection, RemoteEndpoint};
use neater::{SecurityParameters, Trust};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::task::JoinSet;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let framer = FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 };
    let pre = Neater::new()?.preconnection().needs("reliable, low-delay")?.framer(framer);
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => {
            let pre = pre.security(neater::self_signed(&["localhost", "127.0.0.1", "::1"])?);
            let listener = pre.clone().local(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).listen()?;
            let pre = pre.remote(SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port())));
            let visits = async {
                let visited = visit(&pre, 20).await;
                listener.stop();
                visited
            };
            let (answered, visited) = tokio::join!(serve(&listener), visits);
            visited?;
            assert_eq!(answered, 20 * 3, "every message was answered, once");
        }
        ["serve", port, file] => {
            let security = neater::self_signed(&["localhost", "127.0.0.1", "::1"])?;
            std::fs::write(file, &security.server_certificates[0].chain[0])?;
            let listener = pre.local(LocalEndpoint::new().with_port(port.parse()?)).security(security).listen()?;
            let interrupt = async {
                let interrupted = tokio::signal::ctrl_c().await;
                listener.stop();
                interrupted
            };
            let (_, interrupted) = tokio::join!(serve(&listener), interrupt);
            interrupted?;
        }
        ["visit", server, file, clients] => {
            let mut security = SecurityParameters::new();
            security.trust = Trust::Only(vec![CertificateDer::from(std::fs::read(file)?)]);
            let pre = pre.remote(server.parse::<RemoteEndpoint>()?).security(security);
            visit(&pre, clients.parse()?).await?;
        }
        _ => return Err("usage: server_tokio [serve PORT CERT.der | visit HOST:PORT CERT.der CLIENTS]".into()),
    }
    Ok(())
}

/// Serves until the listener is stopped and every connection has ended. Returns how many messages were answered.
async fn serve(listener: &Listener) -> usize {
    for (stack, address) in listener.local_addrs() {
        println!("listening: {stack} at {address}");
    }
    let (mut tasks, mut answered) = (JoinSet::new(), 0);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Some(connection) => _ = tasks.spawn(attend(connection)),
                None => break,
            },
            // A task that panics counts for nothing, and disturbs no other.
            Some(ended) = tasks.join_next() => answered += ended.unwrap_or(0),
        }
    }
    while let Some(ended) = tasks.join_next().await {
        answered += ended.unwrap_or(0);
    }
    println!("{answered} messages answered");
    answered
}

/// Answers every message of one connection in capitals, until the client sends no more. Returns how many those were.
async fn attend(connection: Connection) -> usize {
    let mut answered = 0;
    let ended: Outcome = async {
        while let Some(message) = connection.receive().await? {
            connection.send(message.to_ascii_uppercase()).await?;
            answered += 1;
        }
        Ok(())
    }
    .await;
    if let Err(e) = ended {
        eprintln!("a connection has failed: {e}");
    }
    answered
}

/// So many clients at once, each of which sends three messages.
async fn visit(pre: &Preconnection, clients: usize) -> Outcome {
    let mut visits = JoinSet::new();
    for number in 0..clients {
        visits.spawn(client(pre.clone(), number));
    }
    while let Some(visit) = visits.join_next().await {
        visit??;
    }
    Ok(())
}

async fn client(pre: Preconnection, number: usize) -> Outcome {
    let connection = pre.initiate().await?;
    for n in 1..=3 {
        connection.send(format!("message {n} of client {number}")).await?;
        let answer = connection.receive().await?.ok_or("the server has left")?;
        assert_eq!(String::from_utf8_lossy(&answer), format!("MESSAGE {n} OF CLIENT {number}"));
    }
    Ok(connection.close().await?)
}
