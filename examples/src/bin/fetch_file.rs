//! A file transfer that resumes: the client names the file and how much of it is there, and the server sends the rest.
//!
//! The client sends the message `OFFSET NAME`. The server answers with the length of the file, or with `error: ...`. Then it
//! sends the bytes from the offset on, in messages of 64 kB, and closes.
//!
//! ```text
//! cargo run -p neater-examples --bin fetch_file                                              # both sides, by itself
//! cargo run -p neater-examples --bin fetch_file -- serve FOLDER 4433 file.der                # writes its certificate
//! cargo run -p neater-examples --bin fetch_file -- get localhost:4433 file.der NAME FOLDER   # resumes NAME.part
//! ```
//! By itself it fetches a file of 3 MB over a connection that breaks after 1 MB, resumes, and compares. It prints a line for
//! each attempt: `film.bin: bytes 1048576 to 3000000 over QUIC`.
use neater::tls::CertificateDer;
use neater::{Connection, FramerSpec, Listener, LocalEndpoint, Neater, Preconnection, RemoteEndpoint};
use neater::{SecurityParameters, Trust};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::fs::{self, File};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
const CHUNK: usize = 64 << 10;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let framer = FramerSpec::LengthPrefixed { width: 4, max: CHUNK as u64 };
    let files = Neater::new()?.preconnection().needs("reliable, ordered, bulk")?.framer(framer);
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => by_itself(files.security(neater::self_signed(&["localhost", "127.0.0.1", "::1"])?)).await,
        ["serve", folder, port, file] => {
            let security = neater::self_signed(&["localhost", "127.0.0.1", "::1"])?;
            std::fs::write(file, &security.server_certificates[0].chain[0])?;
            let listener = files.local(LocalEndpoint::new().with_port(port.parse()?)).security(security).listen()?;
            serve(listener, folder.into()).await;
            Ok(())
        }
        ["get", server, file, name, folder] => {
            let mut security = SecurityParameters::new();
            security.trust = Trust::Only(vec![CertificateDer::from(std::fs::read(file)?)]);
            let files = files.remote(server.parse::<RemoteEndpoint>()?).security(security);
            fetch(&files, name, Path::new(folder), None).await.map(|n| println!("{n} attempts"))
        }
        _ => Err("usage: fetch_file [serve FOLDER PORT CERT.der | get HOST:PORT CERT.der NAME FOLDER]".into()),
    }
}

async fn by_itself(files: Preconnection) -> Outcome {
    let folder = std::env::temp_dir().join(format!("neater-fetch-file-{}", std::process::id()));
    fs::create_dir_all(folder.join("there")).await?;
    let content: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.join("there/film.bin"), &content).await?;
    let listener = files.clone().local(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).listen()?;
    let files = files.remote(SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port())));
    tokio::spawn(serve(listener, folder.join("there")));
    assert_eq!(fetch(&files, "film.bin", &folder, Some(1 << 20)).await?, 2, "the second attempt resumes");
    assert!(fs::read(folder.join("film.bin")).await? == content, "the file has arrived whole");
    assert!(open(&folder, "0 ../film.bin").await.is_err(), "a name does not lead out of the folder");
    Ok(fs::remove_dir_all(folder).await?)
}

async fn serve(listener: Listener, folder: PathBuf) {
    while let Some(connection) = listener.accept().await {
        let folder = folder.clone();
        tokio::spawn(async move { answer(&connection, &folder).await.inspect_err(|e| eprintln!("server: {e}")) });
    }
}

async fn answer(connection: &Connection, folder: &Path) -> Outcome {
    let Some(request) = connection.receive().await? else { return Ok(()) };
    match open(folder, std::str::from_utf8(&request)?).await {
        Err(e) => _ = connection.send(format!("error: {e}")).await?,
        Ok((mut file, length)) => {
            connection.send(length.to_string()).await?;
            let mut chunk = vec![0; CHUNK];
            // Sending waits while the send buffer is full: no more than that is read ahead.
            while let n @ 1.. = file.read(&mut chunk).await? {
                connection.send(chunk[..n].to_vec()).await?;
            }
        }
    }
    Ok(connection.close().await?)
}

/// Opens what is asked for, at the offset. Returns the length of the whole file with it.
async fn open(folder: &Path, request: &str) -> Outcome<(File, u64)> {
    let (offset, name) = request.split_once(' ').ok_or("a request is OFFSET NAME")?;
    if name.starts_with('.') || name.contains('/') {
        return Err("this is no name of a file".into());
    }
    let mut file = File::open(folder.join(name)).await?;
    file.seek(std::io::SeekFrom::Start(offset.parse()?)).await?;
    let length = file.metadata().await?.len();
    Ok((file, length))
}

/// Fetches a file into the folder and returns in how many attempts. The first one ends at `breaks_at`.
async fn fetch(files: &Preconnection, name: &str, folder: &Path, mut breaks_at: Option<u64>) -> Outcome<u32> {
    let part = folder.join(format!("{name}.part"));
    for attempt in 1..=5 {
        match resume(files, name, &part, breaks_at.take()).await {
            Ok(()) => return Ok(fs::rename(&part, folder.join(name)).await.map(|()| attempt)?),
            Err(e) => println!("{name}: {e}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err("given up after five attempts".into())
}

/// One attempt: what has arrived by the time it fails stays in the file.
async fn resume(files: &Preconnection, name: &str, part: &Path, breaks_at: Option<u64>) -> Outcome {
    let mut file = File::options().create(true).append(true).open(part).await?;
    let mut have = file.metadata().await?.len();
    let connection = files.initiate().await?;
    connection.send(format!("{have} {name}")).await?;
    let answer = String::from_utf8_lossy(&connection.receive().await?.ok_or("no answer")?).into_owned();
    let length: u64 = answer.parse().map_err(|_| answer)?;
    println!("{name}: bytes {have} to {length} over {}", connection.stack().ok_or("not established")?);
    while let Some(chunk) = connection.receive().await? {
        file.write_all(&chunk).await?;
        file.flush().await?; // tokio writes in the background
        have += chunk.len() as u64;
        if breaks_at.is_some_and(|at| have >= at) {
            connection.abort();
            return Err(format!("the connection broke after {have} bytes").into());
        }
    }
    if have == length { Ok(()) } else { Err(format!("{have} of {length} bytes have arrived").into()) }
}
