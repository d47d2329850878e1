//! A transport system without a driver returns that error: nothing waits for ever.

use crate::common::{LIMIT, loopback, security};
use neater::{Connection, Listener, LocalEndpoint, Neater, SecurityParameters, Stack};
use neater_base::net::ErrorKind;
use std::io::Write;
use std::time::Duration;

fn says_so(what: impl core::fmt::Display) -> bool {
    what.to_string().contains(ErrorKind::NotDriven.as_str())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it waits for ever")
}

fn listen(neater: &Neater, stack: Stack) -> Listener {
    let pre = neater.preconnection().local(LocalEndpoint::from(loopback(0))).stacks(&[stack]);
    let security = if stack == Stack::Tcp { SecurityParameters::disabled() } else { security().1 };
    pre.security(security).listen().expect("listening")
}

/// Both ends of a connection, each in an engine of its own.
async fn pair(client: &Neater, listener: &Listener, stack: Stack) -> (Connection, Connection) {
    let security = if stack == Stack::Tcp { SecurityParameters::disabled() } else { security().0 };
    let pre = client.preconnection().remote(loopback(listener.port())).stacks(&[stack]).security(security);
    let ours = soon(pre.initiate()).await.expect("connected");
    ours.send("hello").await.expect("sent");
    let theirs = soon(listener.accept()).await.expect("accepted");
    assert_eq!(&soon(theirs.receive()).await.expect("open").expect("a message")[..], b"hello");
    (ours, theirs)
}

#[test]
fn what_waits_when_the_runtime_ends_learns_of_it() {
    for stack in [Stack::Tcp, Stack::Tls, Stack::Quic] {
        let (first, second) = (runtime(), runtime());
        let server = second.block_on(async { Neater::new().expect("an engine") });
        let listener = second.block_on(async { listen(&server, stack) });
        let neater = first.block_on(async { Neater::new().expect("an engine") });
        // Both runtimes are needed until the connection is there.
        let (ours, theirs) = std::thread::scope(|threads| {
            let connected = threads.spawn(|| {
                let security = if stack == Stack::Tcp { SecurityParameters::disabled() } else { security().0 };
                let pre = neater.preconnection().remote(loopback(listener.port())).stacks(&[stack]).security(security);
                first.block_on(async {
                    let c = soon(pre.initiate()).await.expect("connected");
                    c.send("hello").await.expect("sent");
                    // For the rest of the handshake.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    c
                })
            });
            let theirs = second.block_on(async {
                let theirs = soon(listener.accept()).await.expect("accepted");
                assert_eq!(&soon(theirs.receive()).await.expect("open").expect("a message")[..], b"hello");
                theirs
            });
            (connected.join().expect("a connection"), theirs)
        });
        let group = ours.group().expect("open");
        let here = first.block_on(async { listen(&neater, stack) });
        second.block_on(async {
            let waiting = async {
                let (received, accepted, taken) = tokio::join!(ours.receive(), here.accept(), group.accept());
                assert!(received.as_ref().is_err_and(says_so), "{stack}: {received:?}");
                assert!(accepted.is_none(), "{stack}");
                assert!(taken.is_err(), "{stack}");
            };
            let end = async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                tokio::task::spawn_blocking(move || drop(first)).await.expect("ended");
            };
            tokio::join!(soon(waiting), end);
            assert!(soon(ours.closed()).await.is_err_and(says_so), "{stack}");
            assert!(soon(ours.send("x")).await.is_err_and(says_so), "{stack}");
            let clear = neater.preconnection().remote(loopback(9)).security(SecurityParameters::disabled());
            assert!(soon(clear.initiate()).await.is_err_and(says_so), "{stack}");
            let local = clear.local(LocalEndpoint::from(loopback(0)));
            assert!(local.listen().is_err_and(says_so), "{stack}");
            // The peer is notified as well, and need not wait for its timers.
            if stack == Stack::Quic {
                soon(theirs.closed()).await.expect_err("the session is over");
            }
            // The other engine, which is driven, is none the worse.
            drop((ours, theirs, group, here, neater));
            let again = Neater::new().expect("an engine");
            let (c, s) = pair(&again, &listener, stack).await;
            soon(c.close()).await.expect("in order");
            drop(s);
        });
    }
}

#[test]
fn an_engine_whose_driver_is_dropped_says_so() {
    let far = std::net::TcpListener::bind(loopback(0)).expect("a port");
    let (neater, driver) = Neater::builder().without_driver().expect("an engine");
    let pre = neater.preconnection().remote(far.local_addr().expect("bound")).security(SecurityParameters::disabled());
    let begun = pre.initiate().connection().expect("begun");
    drop(driver);
    runtime().block_on(async {
        assert!(soon(begun.ready()).await.is_err_and(says_so));
        assert!(soon(begun.receive()).await.is_err());
        let (mut peer, _) = far.accept().expect("it had connected");
        let _ = peer.write_all(b"nobody reads this");
    });
    drop(begun);
    assert_eq!(neater.stats().connections, 0);
}
