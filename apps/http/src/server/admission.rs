//! Whose request is answered next when not all can be.
//!
//! *Responsible for* how many answers there are at once, in all and for one address, for fairness
//! between addresses and between the connections of one, and for ending answers that are not read.
//! *Not responsible for* what an answer is.
//!
//! *Invariants*: never more admissions than the bounds allow; a client with fewer comes first, so
//! that no client can keep others waiting by asking more often; an answer that does not progress is
//! ended when a client waits that has fewer, and in any case after [`Bounds::idle`].

use crate::lock;
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// How many waiting requests are made room for at a time.
const AT_A_TIME: usize = 16;

/// How many, and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Admissions in all.
    pub(crate) total: usize,
    /// Admissions of one address.
    pub(crate) per_address: usize,
    /// How long an admission may make no progress while a client with fewer waits.
    pub(crate) stall: Duration,
    /// How long an admission may not move at all.
    pub(crate) idle: Duration,
}

/// The client. Of IPv6 the first 64 bits count: a host with one address there has them all (RFC
/// 4291 section 2.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientKey {
    address: Option<IpAddr>,
    connection: u64,
}

impl ClientKey {
    pub(crate) fn new(address: Option<IpAddr>, connection: u64) -> Self {
        Self { address: address.map(prefix), connection }
    }

    /// The address, or of IPv6 its network.
    pub(crate) const fn address(self) -> Option<IpAddr> {
        self.address
    }
}

fn prefix(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// The admissions of a server.
#[derive(Debug)]
pub(crate) struct Admission {
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    held: BTreeMap<u64, Held>,
    addresses: BTreeMap<Option<IpAddr>, usize>,
    connections: BTreeMap<u64, usize>,
    /// Each queue in the order in which they came; none is empty.
    waiting: BTreeMap<ClientKey, BTreeMap<u64, Waiter>>,
}

/// One that waits, and how to notify it later that its admission has to end.
#[derive(Debug)]
struct Waiter {
    tell: oneshot::Sender<Admitted>,
    end: Arc<Notify>,
}

/// A place in a queue; given up when it is dropped.
struct Place<'a> {
    admission: &'a Admission,
    client_key: ClientKey,
    id: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        drop(lock(&self.admission.state).leave(self.client_key, self.id));
    }
}

#[derive(Debug)]
struct Held {
    client_key: ClientKey,
    moved: Instant,
    /// Asked to end, and not yet gone.
    ending: bool,
    end: Arc<Notify>,
}

/// The right to answer one request; over when it is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    id: u64,
    admission: Option<Arc<Admission>>,
}

impl Admitted {
    /// The answer moves.
    pub(crate) fn moves(&self) {
        if let Some(admission) = &self.admission
            && let Some(h) = lock(&admission.state).held.get_mut(&self.id)
        {
            h.moved = Instant::now();
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some(admission) = self.admission.take() {
            let mut state = lock(&admission.state);
            state.release(self.id);
            admission.settle(&mut state);
        }
    }
}

impl Admission {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, state: Mutex::default() })
    }

    /// Waits for an admission. `end` is notified when it has to be over: its holder drops it then.
    pub(crate) async fn wait(self: &Arc<Self>, client_key: ClientKey, end: Arc<Notify>) -> Option<Admitted> {
        let (tell, granted) = oneshot::channel();
        let _place = {
            let mut state = lock(&self.state);
            let id = state.next;
            state.next += 1;
            // Most requests find room, and none before them: no queue then, which costs more than
            // all else here.
            let room = state.held.len() < self.bounds.total && state.of_address(client_key) < self.bounds.per_address;
            if room && state.waiting.is_empty() {
                state.hold(id, client_key, end);
                return Some(Admitted { id, admission: Some(self.clone()) });
            }
            state.waiting.entry(client_key).or_default().insert(id, Waiter { tell, end });
            self.settle(&mut state);
            Place { admission: self, client_key, id }
        };
        granted.await.ok()
    }

    /// All answers of a connection move: what keeps them is its transport, and that delivers.
    pub(crate) fn all_move(&self, client_key: ClientKey) {
        let now = Instant::now();
        lock(&self.state).held.values_mut().filter(|h| h.client_key == client_key).for_each(|h| h.moved = now);
    }

    /// Ends what has not moved for too long. Wanted at least as often as [`Admission::pace`].
    pub(crate) fn look_around(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        let now = Instant::now();
        for h in state.held.values_mut().filter(|h| !h.ending && now - h.moved >= self.bounds.idle) {
            h.ending = true;
            h.end.notify_one();
        }
        self.settle(&mut state);
    }

    /// How often it has to be looked around for the limits to be kept with some precision.
    pub(crate) fn pace(&self) -> Duration {
        (self.bounds.stall.min(self.bounds.idle) / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// Admits the requests that are due, and ends answers that block others.
    fn settle(self: &Arc<Self>, state: &mut State) {
        while let Some(client_key) = state.first_waiting(self.bounds.per_address) {
            if state.held.len() >= self.bounds.total {
                break;
            }
            state.grant(self, client_key);
        }
        self.make_room(state);
    }

    /// A waiting request that cannot be admitted replaces an answer that makes no progress, if that
    /// answer's client has more.
    fn make_room(&self, state: &mut State) {
        if state.waiting.is_empty() {
            return;
        }
        let now = Instant::now();
        let full = state.held.len() >= self.bounds.total;
        let stalled = state.held.iter().filter(|(_, h)| !h.ending && now - h.moved >= self.bounds.stall);
        let mut stalled: Vec<_> =
            stalled.map(|(id, h)| (state.has(h.client_key), now - h.moved, h.client_key, *id)).collect();
        if stalled.is_empty() {
            return;
        }
        // Of the clients with most answers, the one that has stalled for longest.
        stalled.sort_unstable();
        let mut needy: Vec<_> = state.waiting.keys().map(|w| (state.has(*w), *w)).collect();
        needy.sort_unstable();
        // What is ending already is for the first of them.
        let ending = state.held.values().filter(|h| h.ending).count();
        for ((mine, own), client_key) in needy.into_iter().take(AT_A_TIME).skip(ending) {
            let better_off = |((theirs, of_one), _, holder, _): &&((usize, usize), Duration, ClientKey, u64)| {
                // Of another address only what makes room: at the bound of an address that would
                // not.
                if holder.address == client_key.address { *of_one > own + 1 } else { full && *theirs > mine + 1 }
            };
            let Some(id) = stalled.iter().rev().find(better_off).map(|s| s.3) else { continue };
            stalled.retain(|s| s.3 != id);
            if let Some(h) = state.held.get_mut(&id) {
                h.ending = true;
                h.end.notify_one();
            }
        }
    }
}

impl State {
    fn of_address(&self, client_key: ClientKey) -> usize {
        self.addresses.get(&client_key.address).copied().unwrap_or(0)
    }

    /// How many admissions the address has, and how many of them the connection.
    fn has(&self, client_key: ClientKey) -> (usize, usize) {
        (self.of_address(client_key), self.connections.get(&client_key.connection).copied().unwrap_or(0))
    }

    /// The client with fewest answers of those that may have one more.
    fn first_waiting(&self, per_address: usize) -> Option<ClientKey> {
        let may = self.waiting.keys().filter(|w| self.of_address(**w) < per_address);
        may.min_by_key(|w| (self.has(**w), **w)).copied()
    }

    /// Takes a place out of its queue.
    fn leave(&mut self, client_key: ClientKey, id: u64) -> Option<Waiter> {
        let queue = self.waiting.get_mut(&client_key)?;
        let left = queue.remove(&id);
        if queue.is_empty() {
            self.waiting.remove(&client_key);
        }
        left
    }

    fn grant(&mut self, admission: &Arc<Admission>, client_key: ClientKey) {
        let first = self.waiting.get(&client_key).and_then(|q| q.keys().next().copied());
        let Some((id, waiter)) = first.and_then(|id| Some((id, self.leave(client_key, id)?))) else { return };
        self.hold(id, client_key, waiter.end);
        if let Err(mut admitted) = waiter.tell.send(Admitted { id, admission: Some(admission.clone()) }) {
            // Its destructor would want the lock that we hold.
            admitted.admission = None;
            self.release(id);
        }
    }

    fn hold(&mut self, id: u64, client_key: ClientKey, end: Arc<Notify>) {
        self.held.insert(id, Held { client_key, moved: Instant::now(), ending: false, end });
        *self.addresses.entry(client_key.address).or_default() += 1;
        *self.connections.entry(client_key.connection).or_default() += 1;
    }

    fn release(&mut self, id: u64) {
        let Some(h) = self.held.remove(&id) else { return };
        less(&mut self.addresses, &h.client_key.address);
        less(&mut self.connections, &h.client_key.connection);
    }
}

fn less<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(n) = counts.get_mut(key) {
        *n -= 1;
        if *n == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::future::{Future, poll_fn};
    use core::pin::Pin;
    use core::task::Poll;

    const BOUNDS: Bounds =
        Bounds { total: 10, per_address: 8, stall: Duration::from_secs(2), idle: Duration::from_secs(60) };

    fn client_key(host: u8, connection: u64) -> ClientKey {
        ClientKey::new(Some(IpAddr::from([192, 0, 2, host])), connection)
    }

    struct Waiting {
        admitted: Pin<Box<dyn Future<Output = Option<Admitted>>>>,
        end: Arc<Notify>,
    }

    struct Answering {
        admitted: Admitted,
        end: Arc<Notify>,
    }

    fn ask(admission: &Arc<Admission>, client_key: ClientKey) -> Waiting {
        let (admission, end) = (admission.clone(), Arc::new(Notify::new()));
        let told = end.clone();
        Waiting { admitted: Box::pin(async move { admission.wait(client_key, told).await }), end }
    }

    async fn granted(waiting: &mut Waiting) -> Option<Answering> {
        let end = waiting.end.clone();
        poll_fn(|cx| match waiting.admitted.as_mut().poll(cx) {
            Poll::Ready(admitted) => Poll::Ready(admitted.map(|admitted| Answering { admitted, end: end.clone() })),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    async fn is_told_to_end(a: &Answering) -> bool {
        poll_fn(|cx| Poll::Ready(core::pin::pin!(a.end.notified()).poll(cx).is_ready())).await
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_never_has_more_than_its_share_and_all_never_more_than_there_are() {
        let admission = Admission::new(BOUNDS);
        let mut held = Vec::new();
        for i in 0..8 {
            held.push(granted(&mut ask(&admission, client_key(1, i))).await.expect("a turn"));
        }
        let mut ninth = ask(&admission, client_key(1, 9));
        assert!(granted(&mut ninth).await.is_none());
        for i in 0..2 {
            held.push(granted(&mut ask(&admission, client_key(2, 100 + i))).await.expect("a turn"));
        }
        let mut eleventh = ask(&admission, client_key(3, 200));
        assert!(granted(&mut eleventh).await.is_none());
        // The first that comes free is for the client with fewest, though another has waited
        // longer.
        held.remove(0);
        assert!(granted(&mut ninth).await.is_none());
        let admitted = granted(&mut eleventh).await.expect("a turn");
        drop(admitted);
        assert!(granted(&mut ninth).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_waits_with_a_hundred_requests_does_not_keep_another_waiting() {
        let admission = Admission::new(BOUNDS);
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(granted(&mut ask(&admission, client_key(1, 1))).await.expect("a turn"));
        }
        let mut queue: Vec<_> = (0..92).map(|_| ask(&admission, client_key(1, 1))).collect();
        for w in &mut queue {
            assert!(granted(w).await.is_none());
        }
        let mut other = ask(&admission, client_key(1, 2));
        assert!(granted(&mut other).await.is_none());
        held.pop();
        assert!(granted(&mut other).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_move_makes_room_for_who_has_less_and_what_moves_does_not() {
        let admission = Admission::new(BOUNDS);
        let mut held = Vec::new();
        for i in 0..8 {
            held.push(granted(&mut ask(&admission, client_key(1, i / 4))).await.expect("a turn"));
        }
        for _ in 0..2 {
            held.push(granted(&mut ask(&admission, client_key(2, 9))).await.expect("a turn"));
        }
        let mut waiting = ask(&admission, client_key(3, 10));
        assert!(granted(&mut waiting).await.is_none());
        tokio::time::advance(Duration::from_secs(3)).await;
        // All but one move.
        held.iter().enumerate().filter(|(i, _)| *i != 5).for_each(|(_, a)| a.admitted.moves());
        admission.look_around();
        for (i, t) in held.iter().enumerate() {
            assert_eq!(is_told_to_end(t).await, i == 5, "{i}");
        }
        // The bound holds until it has ended.
        assert!(granted(&mut waiting).await.is_none());
        held.remove(5);
        assert!(granted(&mut waiting).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_answers_of_a_connection_whose_transport_delivers_move_and_those_of_another_do_not() {
        let admission = Admission::new(BOUNDS);
        let held = [
            granted(&mut ask(&admission, client_key(1, 1))).await.expect("a turn"),
            granted(&mut ask(&admission, client_key(1, 1))).await.expect("a turn"),
            granted(&mut ask(&admission, client_key(1, 2))).await.expect("a turn"),
        ];
        tokio::time::advance(Duration::from_secs(59)).await;
        admission.all_move(client_key(1, 1));
        tokio::time::advance(Duration::from_secs(2)).await;
        admission.look_around();
        for (i, t) in held.iter().enumerate() {
            assert_eq!(is_told_to_end(t).await, i == 2, "{i}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_with_a_single_answer_loses_it_to_another() {
        let admission = Admission::new(Bounds { total: 2, ..BOUNDS });
        let held = [
            granted(&mut ask(&admission, client_key(1, 1))).await.expect("a turn"),
            granted(&mut ask(&admission, client_key(2, 2))).await.expect("a turn"),
        ];
        let mut waiting = ask(&admission, client_key(3, 3));
        assert!(granted(&mut waiting).await.is_none());
        tokio::time::advance(Duration::from_secs(30)).await;
        admission.look_around();
        assert!(!is_told_to_end(&held[0]).await && !is_told_to_end(&held[1]).await);
        // Only the end of all patience ends it.
        tokio::time::advance(Duration::from_secs(30)).await;
        held[1].admitted.moves();
        admission.look_around();
        assert!(is_told_to_end(&held[0]).await && !is_told_to_end(&held[1]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_stops_waiting_leaves_nothing_behind() {
        let admission = Admission::new(Bounds { total: 1, ..BOUNDS });
        let held = granted(&mut ask(&admission, client_key(1, 1))).await.expect("a turn");
        let mut gone = ask(&admission, client_key(2, 2));
        assert!(granted(&mut gone).await.is_none());
        drop(gone);
        let mut other = ask(&admission, client_key(3, 3));
        assert!(granted(&mut other).await.is_none());
        drop(held);
        drop(granted(&mut other).await.expect("a turn"));
        let state = lock(&admission.state);
        assert!(state.held.is_empty() && state.addresses.is_empty() && state.connections.is_empty());
        assert!(state.waiting.is_empty());
    }

    #[test]
    fn all_addresses_of_one_ipv6_network_are_one() {
        let w = |a: &str| ClientKey::new(Some(a.parse().expect("an address")), 1);
        assert_eq!(w("2001:db8::1"), w("2001:db8::ffff:0:1"));
        assert_ne!(w("2001:db8::1"), w("2001:db8:0:1::1"));
        assert_eq!(w("::ffff:192.0.2.1"), w("192.0.2.1"));
    }
}
