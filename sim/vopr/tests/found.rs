//! What random worlds have found in the public API, each made small. (In the engine: `sim/testkit/tests/all/found.rs`.)

use neater::{EngineConfig, LocalEndpoint, Neater, Reason, RemoteEndpoint, SecurityParameters, Stack};
use neater_base::Rng;
use neater_base::net::InterfaceKind;
use neater_link::LinkConfig;
use neater_netsim::{HostId, World};
use neater_testkit::{Executor, security};
use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);

fn host(executor: &mut Executor, name: &str, addr: IpAddr, seed: u64) -> (Neater, HostId) {
    let world = executor.world().clone();
    let host = world.add_host(name);
    let iface = world.add_interface(host, "eth0", InterfaceKind::Wired, &[addr]);
    let link = LinkConfig::delay(Duration::from_millis(5));
    world.attach(iface, link.clone(), link);
    let config = EngineConfig::new(Rng::from_number(seed).seed(), security::crypto(seed, 1));
    let (flag, wake) = Executor::wake_flag();
    let (neater, turner) = Neater::over(world.net(host), config, wake);
    executor.drive(host, flag, move || turner.turn());
    (neater, host)
}

#[test]
fn a_connection_that_was_over_before_it_was_accepted_tells_so() {
    for stack in [Stack::Quic, Stack::Tls, Stack::Tcp] {
        let mut executor = Executor::new(World::new(1));
        let addr: IpAddr = neater_testkit::town::SERVER_V4.parse().unwrap();
        let (near, _) = host(&mut executor, "client", "203.0.113.7".parse().unwrap(), 1);
        let (far, _) = host(&mut executor, "server", addr, 2);
        let clear = SecurityParameters::disabled;
        let secure = |on| if stack.is_secure() { on } else { clear() };
        let listener = far
            .preconnection()
            .local(LocalEndpoint::new().with_port(443))
            .security(secure(security::server_security()))
            .stacks(&[stack])
            .listen()
            .unwrap();
        let pre = near
            .preconnection()
            .remote(RemoteEndpoint::new().with_ip_address(addr).with_port(443))
            .security(secure(security::client_security()))
            .stacks(&[stack]);
        let clock = executor.clock();
        executor.spawn(async move {
            let connection = pre.initiate().await.unwrap();
            connection.send("there is something to accept").await.unwrap();
            clock.sleep(S).await;
            connection.abort();
        });
        let (clock, over) = (executor.clock(), Rc::new(Cell::new(false)));
        let done = over.clone();
        executor.spawn(async move {
            // It comes, and ends, while nobody takes it.
            clock.sleep(5 * S).await;
            let connection = listener.accept().await.unwrap();
            // Over TCP an abandoned connection is noticed by using it, or reported as the error that it is.
            let _ = connection.receive().await;
            let _ = connection.receive().await;
            assert!(connection.closed().await.is_err(), "{stack}: it was aborted");
            assert!(connection.close().await.is_err());
            assert!(connection.next_event().await.is_none());
            done.set(true);
        });
        executor.run(60 * S);
        assert!(over.get(), "{stack}: it waits for an event that has passed");
    }
}

#[test]
fn a_first_message_does_not_hide_why_there_is_no_connection() {
    let mut executor = Executor::new(World::new(1));
    let (near, id) = host(&mut executor, "client", "203.0.113.7".parse().unwrap(), 1);
    executor.world().set_max_sockets(id, 0);
    let addr: IpAddr = neater_testkit::town::SERVER_V4.parse().unwrap();
    let pre = near
        .preconnection()
        .remote(RemoteEndpoint::new().with_ip_address(addr).with_port(443))
        .security(SecurityParameters::disabled())
        .stacks(&[Stack::Tcp]);
    let reasons = Rc::new(Cell::new(None));
    let told = reasons.clone();
    executor.spawn(async move {
        let plain = pre.initiate().await.unwrap_err().reason;
        let context = neater::MessageContext::new();
        let first = pre.initiate_with_send("hello", &context).await.unwrap_err().reason;
        told.set(Some((plain, first)));
    });
    assert!(executor.run(60 * S));
    assert_eq!(reasons.get(), Some((Reason::EstablishmentFailed, Reason::EstablishmentFailed)));
    assert_eq!(near.stats().connections, 0);
}
