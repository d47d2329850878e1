//! What programs without futures use: functions that answer at once, and events by a function of
//! each connection.

use crate::common::{LIMIT, loopback};
use neater::{Accepted, Driver, Event, FramerSpec, MessageContext, Neater, SecurityParameters, Stack};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Drives until there is an answer.
fn until<T>(driver: &Driver, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        driver.turn();
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn each_connection_reports_to_its_own_function_and_first_what_it_has_become() {
    let (neater, driver) = Neater::builder().without_driver().expect("engine");
    let pre = neater.preconnection().stacks(&[Stack::Tcp]).security(SecurityParameters::disabled());
    let pre = pre.framer(FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 });
    let listener = pre.clone().local(loopback(0)).listen().expect("listening");
    let ours = pre.remote(loopback(listener.port())).initiate().connection().expect("begun");
    let mut cx = Context::from_waker(Waker::noop());
    let theirs = until(&driver, || match listener.poll_accept_any(&mut cx) {
        Poll::Ready(Some(Accepted::Connection(c))) => Some(c),
        Poll::Ready(other) => panic!("{other:?}"),
        Poll::Pending => None,
    });
    until(&driver, || matches!(ours.poll_ready(&mut cx), Poll::Ready(Ok(()))).then_some(()));
    let events: Arc<Mutex<Vec<(bool, Event)>>> = Arc::default();
    for (c, mine) in [(&ours, true), (&theirs, false)] {
        let to = events.clone();
        c.on_event(move |e| to.lock().expect("whole").push((mine, e.clone())));
    }
    let of = |mine: bool| -> Vec<Event> {
        events.lock().expect("whole").iter().filter(|(m, _)| *m == mine).map(|(_, e)| e.clone()).collect()
    };
    assert_eq!((of(true), of(false)), (vec![Event::Ready], vec![Event::Ready]), "though both were ready before");

    let part = |text: &str, end| ours.try_send_partial(text.to_owned(), &MessageContext::new(), end);
    let id = part("one ", false).expect("room");
    assert_eq!(part("message", true).expect("room"), id, "of one message");
    let message = until(&driver, || match theirs.poll_receive(&mut cx, usize::MAX, true) {
        Poll::Ready(m) => Some(m.expect("whole").expect("a message")),
        Poll::Pending => None,
    });
    assert_eq!(&*message, b"one message");
    assert!(of(true).contains(&Event::Sent(id)) && !of(false).contains(&Event::Sent(id)), "{events:?}");

    ours.abort();
    until(&driver, || matches!(of(true).last(), Some(Event::ConnectionError(_))).then_some(()));
    let late: Arc<Mutex<Vec<Event>>> = Arc::default();
    let to = late.clone();
    ours.on_event(move |e| to.lock().expect("whole").push(e.clone()));
    let late = late.lock().expect("whole");
    assert!(matches!(late[..], [Event::Ready, Event::ConnectionError(_)]), "{late:?}");
}
