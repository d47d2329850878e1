//! A chat: the server relays what one person writes to all others.
//!
//! Shows reliable, ordered messages that are lines, and tasks that wait for two things at once: `receive` is cancel-safe.
//!
//! ```text
//! cargo run -p neater-examples --bin chat                                       # the server and three people, by itself
//! cargo run -p neater-examples --bin chat -- serve 4433 chat.der                # the server; writes its certificate
//! cargo run -p neater-examples --bin chat -- join localhost:4433 chat.der Ann   # sends what is typed, prints the rest
//! ```
//!
//! By itself it prints who joins over which protocol, each line as it arrives (`Ann reads: Ben: line 1`), and a summary.
use neater::tls::CertificateDer;
use neater::{Connection, ConnectionId, FramerSpec, Listener, LocalEndpoint, Neater, Preconnection, RemoteEndpoint};
use neater::{SecurityParameters, Trust};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::sync::{broadcast, mpsc};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let framer = FramerSpec::Lines { max: 1 << 16, crlf: false };
    let chat = Neater::new()?.preconnection().needs("reliable, ordered, low-delay")?.framer(framer);
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => {
            let chat = chat.security(neater::self_signed(&["localhost", "127.0.0.1", "::1"])?);
            let listener = chat.clone().local(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).listen()?;
            let server = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port()));
            tokio::spawn(relay(listener));
            three_people(&chat.remote(server)).await
        }
        ["serve", port, file] => {
            let security = neater::self_signed(&["localhost", "127.0.0.1", "::1"])?;
            std::fs::write(file, &security.server_certificates[0].chain[0])?;
            relay(chat.local(LocalEndpoint::new().with_port(port.parse()?)).security(security).listen()?).await;
            Ok(())
        }
        ["join", server, file, name] => {
            let mut security = SecurityParameters::new();
            security.trust = Trust::Only(vec![CertificateDer::from(std::fs::read(file)?)]);
            talk(join(&chat.remote(server.parse::<RemoteEndpoint>()?).security(security), name).await?).await
        }
        _ => Err("usage: chat [serve PORT CERT.der | join HOST:PORT CERT.der NAME]".into()),
    }
}

/// The server: a task for each person, and a channel that all of them share.
async fn relay(listener: Listener) {
    let (lines, _) = broadcast::channel(256);
    while let Some(person) = listener.accept().await {
        let lines = lines.clone();
        tokio::spawn(async move { attend(person, lines).await.inspect_err(|e| eprintln!("chat: {e}")) });
    }
}

/// The server's side of one connection. The first message is the name.
async fn attend(person: Connection, lines: broadcast::Sender<(ConnectionId, String)>) -> Outcome {
    let name = read(&person).await?;
    let mut all = lines.subscribe();
    person.send(format!("welcome, {name}")).await?;
    loop {
        tokio::select! {
            text = read(&person) => { lines.send((person.id(), format!("{name}: {}", text?)))?; }
            line = all.recv() => {
                let (from, line) = line?;
                if from != person.id() {
                    person.send(line).await?;
                }
            }
        }
    }
}

/// Connects and sends the name. The answer shows that the server relays to this connection from now on.
async fn join(pre: &Preconnection, name: &str) -> Outcome<Connection> {
    let connection = pre.initiate().await?;
    connection.send(name.to_owned()).await?;
    println!("{} (over {})", read(&connection).await?, connection.stack().ok_or("not established")?);
    Ok(connection)
}

async fn read(connection: &Connection) -> Outcome<String> {
    let message = connection.receive().await?.ok_or("the peer has left")?;
    Ok(String::from_utf8_lossy(&message).into_owned())
}

/// Sends what is typed and prints what others write, until the input ends.
async fn talk(connection: Connection) -> Outcome {
    let (typed, mut typing) = mpsc::unbounded_channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| typed.send(line)));
    loop {
        tokio::select! {
            line = typing.recv() => {
                let Some(line) = line else { return Ok(connection.close().await?) };
                connection.send(line).await?;
            }
            line = read(&connection) => println!("{}", line?),
        }
    }
}

/// Three people who write three lines each, and read those of the others.
async fn three_people(pre: &Preconnection) -> Outcome {
    let mut people = Vec::new();
    for name in ["Ann", "Ben", "Cleo"] {
        people.push((name, join(pre, name).await?));
    }
    for n in 1..=3 {
        for (_, connection) in &people {
            connection.send(format!("line {n}")).await?;
        }
    }
    for (name, connection) in &people {
        let mut lines = Vec::new();
        while lines.len() < 6 {
            lines.push(read(connection).await?);
            println!("{name} reads: {}", lines[lines.len() - 1]);
        }
        // The lines of two people may alternate. Those of one keep their order, which this sort does not change.
        lines.sort_by(|a, b| a.split(':').next().cmp(&b.split(':').next()));
        let others = people.iter().filter(|(other, _)| other != name);
        let expected: Vec<String> =
            others.flat_map(|(other, _)| (1..=3).map(move |n| format!("{other}: line {n}"))).collect();
        assert_eq!(lines, expected);
    }
    println!("all lines arrived, in order");
    Ok(())
}
