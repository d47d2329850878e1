//! Peers made of the standard library's sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A TCP server that sends back what it receives, each direction closed after the other.
#[derive(Debug)]
pub struct EchoServer {
    port: u16,
    over: Arc<AtomicBool>,
}

impl EchoServer {
    /// Where it listens, on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // One more connection lets it look.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Starts an [`EchoServer`].
///
/// # Panics
/// When no port is free.
#[must_use]
pub fn echo_server() -> EchoServer {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let over = Arc::new(AtomicBool::new(false));
    let stop = over.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            if let Ok(stream) = stream {
                thread::spawn(move || echo(stream));
            }
        }
    });
    EchoServer { port, over }
}

/// The end of input, an error or a minute of silence ends it.
fn echo(mut stream: TcpStream) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
    let _ = stream.set_nodelay(true);
    let mut buf = vec![0; 65_536];
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        if stream.write_all(&buf[..n]).is_err() {
            return;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
}

/// A TCP port that answers no SYN: a listener whose queue is full and that accepts nobody.
#[derive(Debug)]
pub struct BlackHole {
    listener: TcpListener,
    _fillers: Vec<TcpStream>,
}

impl BlackHole {
    /// Where nobody answers, on 127.0.0.1.
    ///
    /// # Panics
    /// Never while the listener is open.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.listener.local_addr().expect("bound").port()
    }
}

/// Makes a [`BlackHole`], or `None` where the kernel answers even then.
///
/// # Panics
/// When no port is free.
#[must_use]
pub fn black_hole() -> Option<BlackHole> {
    use std::os::fd::AsRawFd;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    // SAFETY: the descriptor is open; listen(2) on a listening socket only changes the length of its queue.
    if unsafe { libc::listen(listener.as_raw_fd(), 0) } != 0 {
        return None;
    }
    let addr = listener.local_addr().ok()?;
    let mut fillers = Vec::new();
    for _ in 0..8 {
        match TcpStream::connect_timeout(&addr, Duration::from_millis(150)) {
            Ok(s) => fillers.push(s),
            Err(_) => return Some(BlackHole { listener, _fillers: fillers }),
        }
    }
    None
}
