//! A client in an event loop of its own, without futures: poll(2) waits for the descriptor of the transport system and for
//! that of the user's input, and after `Driver::turn` everything that may go on is tried.
//!
//! Shows `Builder::without_driver`, `Initiate::connection`, `try_send`, `poll_receive` and `Driver::is_done`.
//!
//! ```text
//! cargo run -p neater-examples --bin poll_loop                                # with input and a server of its own
//! cargo run -p neater-examples --bin poll_loop -- localhost:4433 server.der   # with what is typed and `server_tokio`
//! ```
//!
//! It prints the answer to each line of the input, and which protocol carried them. The input of its own has five lines.
use neater::tls::CertificateDer;
use neater::{FramerSpec, Listener, MessageContext, Neater, Preconnection, RemoteEndpoint, SecurityParameters};
use neater::{SendError, Trust};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => {
            let security = neater::self_signed(&["localhost", "127.0.0.1", "::1"])?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let entered = runtime.enter();
            let pre = needs(&Neater::new()?, security.clone())?;
            let listener = pre.local(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).listen()?;
            let server = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port()));
            drop(entered);
            std::thread::spawn(move || runtime.block_on(serve(listener)));
            let (input, mut user) = UnixStream::pair()?;
            user.write_all(b"line 1\nline 2\nline 3\nline 4\nline 5\n")?;
            drop(user);
            let answers = talk(server.into(), security, OwnedFd::from(input).into())?;
            assert_eq!(answers, ["LINE 1", "LINE 2", "LINE 3", "LINE 4", "LINE 5"]);
        }
        [server, file] => {
            let mut security = SecurityParameters::new();
            security.trust = Trust::Only(vec![CertificateDer::from(std::fs::read(file)?)]);
            talk(server.parse()?, security, std::io::stdin().as_fd().try_clone_to_owned()?.into())?;
        }
        _ => return Err("usage: poll_loop [HOST:PORT CERT.der]".into()),
    }
    Ok(())
}

/// What both sides ask for.
fn needs(neater: &Neater, security: SecurityParameters) -> Outcome<Preconnection> {
    let framer = FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 };
    Ok(neater.preconnection().needs("reliable, low-delay")?.security(security).framer(framer))
}

/// Set when something is left to do at once, which no descriptor shows.
struct Again(AtomicBool);

impl Wake for Again {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends each line of the input, and returns the answers when all are there.
fn talk(server: RemoteEndpoint, security: SecurityParameters, mut input: File) -> Outcome<Vec<String>> {
    let (neater, driver) = Neater::builder().without_driver()?;
    let connection = needs(&neater, security)?.remote(server).initiate().connection()?;
    let again = Arc::new(Again(AtomicBool::new(false)));
    let waker = Waker::from(again.clone());
    let mut cx = Context::from_waker(&waker);
    let (mut typed, mut open, mut sent, mut answers) = (Vec::new(), true, 0, Vec::new());
    while open || typed.contains(&b'\n') || answers.len() < sent {
        // While the connection takes no more, no input is read.
        let reads = open && !typed.contains(&b'\n');
        let mut fds = [PollFd::new(&driver, PollFlags::IN), PollFd::new(&input, PollFlags::IN)];
        let at_once = again.0.swap(false, Ordering::Relaxed).then(Timespec::default);
        retry_on_intr(|| poll(&mut fds[..1 + usize::from(reads)], at_once.as_ref()))?;
        let readable = reads && !fds[1].revents().is_empty();
        driver.turn();
        if let Poll::Ready(Err(e)) = connection.poll_ready(&mut cx) {
            return Err(e.into());
        }
        if readable {
            let mut bytes = [0; 4096];
            let n = input.read(&mut bytes)?;
            typed.extend_from_slice(&bytes[..n]);
            open = n > 0;
        }
        while let Some(end) = typed.iter().position(|b| *b == b'\n') {
            match connection.try_send(typed[..end].to_vec(), &MessageContext::new()) {
                Ok(_) => drop(typed.drain(..=end)),
                Err(SendError::Blocked { .. }) => break, // a later turn makes room
                Err(e) => return Err(e.into()),
            }
            sent += 1;
        }
        while let Poll::Ready(message) = connection.poll_receive(&mut cx, usize::MAX, true) {
            let answer = String::from_utf8_lossy(&message?.ok_or("the server has left")?).into_owned();
            println!("{answer}");
            answers.push(answer);
        }
    }
    println!("carried by {}", connection.stack().ok_or("not established")?);
    drop((connection, neater)); // closes in order, which takes some more turns
    while !driver.is_done() {
        retry_on_intr(|| poll(&mut [PollFd::new(&driver, PollFlags::IN)], None))?;
        driver.turn();
    }
    Ok(answers)
}

/// The server of this example, on tokio. It answers in capitals.
async fn serve(listener: Listener) {
    while let Some(connection) = listener.accept().await {
        tokio::spawn(async move {
            while let Ok(Some(message)) = connection.receive().await {
                connection.send(message.to_ascii_uppercase()).await?;
            }
            Ok::<_, SendError>(())
        });
    }
}
