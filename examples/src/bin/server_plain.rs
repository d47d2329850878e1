//! A server without tokio: futures on one thread, which waits for the one descriptor of the transport system.
//!
//! Shows `Builder::without_driver`, and that any executor will do. The one here has 30 lines: it polls its futures, and when
//! none of them can go on it waits with poll(2) and calls `Driver::turn`. There is nothing else to wait for: the descriptor
//! becomes readable at deadlines, too.
//!
//! ```text
//! cargo run -p neater-examples --bin server_plain                       # the server and three clients, by itself
//! cargo run -p neater-examples --bin server_plain -- 4433 server.der    # serves; writes its certificate to server.der
//! cargo run -p neater-examples --bin server_tokio -- visit localhost:4433 server.der 100   # clients for it
//! ```
//!
//! By itself it prints the answers and `9 messages answered`.
use neater::{Connection, Driver, FramerSpec, Listener, LocalEndpoint, Neater, Preconnection};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (neater, driver) = Neater::builder().without_driver()?;
    let framer = FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 };
    let security = neater::self_signed(&["localhost", "127.0.0.1", "::1"])?;
    let certificate = security.server_certificates[0].chain[0].clone();
    let pre = neater.preconnection().needs("reliable, low-delay")?.security(security).framer(framer);
    let (tasks, answered) = (Tasks::default(), Rc::new(Cell::new(0)));
    match args.as_slice() {
        [] => {
            let listener = pre.clone().local(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).listen()?;
            let pre = pre.remote(SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port())));
            tasks.spawn(serve(listener, tasks.clone(), answered.clone()));
            tasks.run(&driver, three_clients(&pre))??;
            assert_eq!(answered.get(), 9, "every message was answered, once");
            println!("{} messages answered", answered.get());
        }
        [port, file] => {
            std::fs::write(file, &certificate)?;
            let listener = pre.local(LocalEndpoint::new().with_port(port.parse()?)).listen()?;
            tasks.run(&driver, serve(listener, tasks.clone(), answered))?;
        }
        _ => return Err("usage: server_plain [PORT CERT.der]".into()),
    }
    Ok(())
}

/// Whether a future can go on. One flag for all is enough for a few hundred futures.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The executor. Clones of it spawn into the same list.
#[derive(Clone, Default)]
struct Tasks(Rc<RefCell<Vec<Task>>>);

impl Tasks {
    fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.0.borrow_mut().push(Box::pin(future));
    }

    /// Runs this future to its end, and meanwhile what was spawned.
    fn run<T>(&self, driver: &Driver, main: impl Future<Output = T>) -> Outcome<T> {
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let mut main = pin!(main);
        let mut running = Vec::new();
        loop {
            if let Poll::Ready(output) = main.as_mut().poll(&mut cx) {
                return Ok(output);
            }
            running.append(&mut self.0.borrow_mut());
            running.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
            if woken.0.swap(false, Ordering::Relaxed) || !self.0.borrow().is_empty() {
                continue;
            }
            retry_on_intr(|| poll(&mut [PollFd::new(driver, PollFlags::IN)], None))?;
            driver.turn();
        }
    }
}

/// A task for each connection.
async fn serve(listener: Listener, tasks: Tasks, answered: Rc<Cell<usize>>) {
    while let Some(connection) = listener.accept().await {
        tasks.spawn(attend(connection, answered.clone()));
    }
}

/// Answers every message of one connection in capitals, until the client sends no more.
async fn attend(connection: Connection, answered: Rc<Cell<usize>>) {
    while let Ok(Some(message)) = connection.receive().await {
        if let Err(e) = connection.send(message.to_ascii_uppercase()).await {
            return eprintln!("a connection has failed: {e}");
        }
        answered.set(answered.get() + 1);
    }
}

/// Three clients that are connected at once, and send three messages each.
async fn three_clients(pre: &Preconnection) -> Outcome {
    let clients = [pre.initiate().await?, pre.initiate().await?, pre.initiate().await?];
    for (n, client) in (1..=3).flat_map(|n| clients.iter().map(move |client| (n, client))) {
        client.send(format!("message {n}")).await?;
        let answer = client.receive().await?.ok_or("the server has left")?;
        println!("{}", String::from_utf8_lossy(&answer));
        assert_eq!(String::from_utf8_lossy(&answer), format!("MESSAGE {n}"));
    }
    for client in clients {
        client.close().await?;
    }
    Ok(())
}
