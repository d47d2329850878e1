//! The Unix sockets.

use super::place::{self, Dir};
use super::{PATIENCE, Shared, now};
use neater_command::failure::{Exit, Failure};
use neater_policy::protocol::Door;
use neater_policy_daemon::{Effect, Session};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant as Moment, Sleep, sleep_until, timeout_at};

/// How many connections one user may have, if that is neither root nor the daemon's own.
const MAX_OF_ONE: usize = 2048;
/// How many connections there may be.
const MAX_SESSIONS: usize = 8192;
/// How many bytes may be held for the connections of one user, if that is neither root nor the
/// daemon's own: documents that are not complete, and answers that were not taken.
const MAX_BYTES_OF_ONE: usize = 32 << 20;
/// How long a connection of the compact form may rest.
const REST: Duration = Duration::from_secs(3600);
/// How much is read at once.
const PIECE: usize = 16 * 1024;

/// A socket that is listened on.
pub(super) struct Listening {
    door: Door,
    listener: UnixListener,
    held: Arc<Held>,
}

/// The connections there are, by user.
#[derive(Default)]
struct Held(Mutex<(usize, BTreeMap<u32, OfOne>)>);

/// What one user has.
#[derive(Clone, Copy, Default)]
struct OfOne {
    connections: usize,
    bytes: usize,
}

/// A place among them, given back when it is dropped.
struct Place {
    held: Arc<Held>,
    user: u32,
    trusted: bool,
    /// How many bytes are held for it.
    bytes: usize,
}

impl Held {
    fn take(self: &Arc<Self>, user: u32, trusted: bool) -> Option<Place> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, by_user) = &mut *held;
        let of_one = by_user.get(&user).copied().unwrap_or_default();
        if *all >= MAX_SESSIONS || (!trusted && of_one.connections >= MAX_OF_ONE) {
            return None;
        }
        *all += 1;
        by_user.entry(user).or_default().connections += 1;
        Some(Place { held: self.clone(), user, trusted, bytes: 0 })
    }
}

impl Place {
    /// So many bytes are held for it now; false if that is more than its user may have.
    fn holds(&mut self, bytes: usize) -> bool {
        let mut held = self.held.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_one = held.1.entry(self.user).or_default();
        of_one.bytes = of_one.bytes - self.bytes + bytes;
        self.bytes = bytes;
        self.trusted || of_one.bytes <= MAX_BYTES_OF_ONE
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.held.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, by_user) = &mut *held;
        *all -= 1;
        if let Some(of_one) = by_user.get_mut(&self.user) {
            of_one.connections -= 1;
            of_one.bytes -= self.bytes;
            if of_one.connections == 0 {
                by_user.remove(&self.user);
            }
        }
    }
}

/// Listens on the sockets.
pub(super) fn listen(dir: &Dir) -> Result<Vec<Listening>, Failure> {
    let held: Arc<Held> = Arc::default();
    let mut all = Vec::new();
    for door in Door::ALL {
        let listener = UnixListener::from_std(place::bind(dir, door)?);
        let listener = listener.map_err(|e| Failure::new(Exit::Failed, "local", format!("sockets: {e}")))?;
        all.push(Listening { door, listener, held: held.clone() });
    }
    Ok(all)
}

/// Takes connections as they come.
pub(super) async fn accept(listening: Listening, shared: Arc<Shared>) {
    loop {
        let stream = match listening.listener.accept().await {
            Ok((stream, _)) => stream,
            Err(e) => {
                // No descriptors, mostly: clients wait in the queue meanwhile.
                shared.refused(listening.door.file(), None, &e.to_string());
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(peer) = stream.peer_cred() else { continue };
        let user = peer.uid();
        let trusted = shared.daemon().is_trusted(user);
        let Some(mut place) = listening.held.take(user, trusted) else {
            shared.daemon().counters.turned_away += 1;
            shared.refused(listening.door.file(), Some(user), "too many connections");
            continue;
        };
        let (door, shared) = (listening.door, shared.clone());
        tokio::spawn(async move {
            shared.daemon().counters.sessions += 1;
            serve(stream, door, &mut place, &shared).await;
            shared.daemon().counters.sessions -= 1;
            drop(place);
        });
    }
}

/// What reading came to.
enum ReadOutcome {
    Something,
    Broken,
    /// Nothing, for too long.
    Late,
}

/// Waits for a piece until the clock has run out, and lets the daemon work on it. The memory for it
/// is not the connection's, of which there may be thousands. A piece that is not full was the last
/// there is, so that the system is not asked for more.
async fn read(
    stream: &mut UnixStream,
    clock: &mut Pin<&mut Sleep>,
    session: &mut Session,
    shared: &Shared,
) -> (ReadOutcome, Vec<Effect>) {
    poll_fn(|context| {
        let mut piece = [const { MaybeUninit::uninit() }; PIECE];
        let mut piece = ReadBuf::uninit(&mut piece);
        match Pin::new(&mut *stream).poll_read(context, &mut piece) {
            Poll::Ready(Ok(())) => Poll::Ready((ReadOutcome::Something, receive(piece.filled(), session, shared))),
            Poll::Ready(Err(_)) => Poll::Ready((ReadOutcome::Broken, Vec::new())),
            Poll::Pending => clock.as_mut().poll(context).map(|()| (ReadOutcome::Late, Vec::new())),
        }
    })
    .await
}

/// Lets the daemon work on what came; nothing is the end.
fn receive(bytes: &[u8], session: &mut Session, shared: &Shared) -> Vec<Effect> {
    let (begin, now) = (Instant::now(), now());
    let mut daemon = shared.daemon();
    if bytes.is_empty() {
        session.end(&mut daemon, now);
    } else {
        session.receive(bytes, &mut daemon, now);
    }
    daemon.counters.worked(begin.elapsed());
    daemon.take_effects()
}

async fn serve(mut stream: UnixStream, door: Door, place: &mut Place, shared: &Shared) {
    let user = place.user;
    let mut session = Session::new(door, user);
    let mut clock = pin!(sleep_until(Moment::now() + PATIENCE));
    while !session.is_closed() {
        let (was_idle, taken) = (session.is_idle(), session.taken());
        let (came, effects) = read(&mut stream, &mut clock, &mut session, shared).await;
        match came {
            ReadOutcome::Something => {}
            ReadOutcome::Broken => return,
            ReadOutcome::Late => {
                if !was_idle {
                    shared.refused(door.file(), Some(user), "it took too long");
                }
                return;
            }
        }
        // A client of NEAT's does not wait for it; the daemon reports it to its administrator, too.
        if let Err(why) = shared.perform(&effects) {
            session.unsaved(&why);
        }
        if !place.holds(session.weight()) {
            shared.refused(door.file(), Some(user), "its connections hold too much that is not complete");
            return;
        }
        session.take_refusals().iter().for_each(|why| shared.refused(door.file(), Some(user), why));
        while session.has_output() {
            if !send(&stream, &session.take_output()).await {
                return;
            }
            session.proceed(&mut shared.daemon(), now());
        }
        // What was sent is held no more.
        place.holds(session.weight());
        if session.is_idle() {
            // Later and later: the runtime's timer need not be moved before it fires.
            clock.as_mut().reset(Moment::now() + REST);
        } else if was_idle || session.taken() != taken {
            // What is read may always end within a frame, on a connection with much traffic.
            clock.as_mut().reset(Moment::now() + PATIENCE);
        }
    }
}

/// Sends everything; false if the client is gone or does not take it.
async fn send(stream: &UnixStream, mut bytes: &[u8]) -> bool {
    let deadline = Moment::now() + PATIENCE;
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                if !matches!(timeout_at(deadline, stream.writable()).await, Ok(Ok(()))) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_that_was_sent_is_charged_to_nobody() {
        use neater_policy::protocol::Follower;
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut client, server) = UnixStream::pair().expect("a pair");
        let held: Arc<Held> = Arc::default();
        let (shared, mut place) = (crate::bare(true), held.take(1000, false).expect("a place"));
        tokio::spawn(async move { serve(server, Door::Requests, &mut place, &shared).await });
        let (mut follower, mut question, mut piece, mut answer) = (Follower::new(), Vec::new(), [0; 4096], 0);
        follower.ask(&mut question);
        while follower.is_asking() {
            client.write_all(&question).await.expect("sent");
            question.clear();
            let n = client.read(&mut piece).await.expect("an answer");
            assert!(n > 0, "it has closed");
            answer += n;
            follower.receive(&piece[..n], &mut question, now()).expect("frames");
        }
        let charged = || held.0.lock().expect("nobody died").1.get(&1000).map_or(0, |of_one| of_one.bytes);
        let until = Instant::now() + Duration::from_secs(10);
        while charged() >= 1000 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // What was read may leave some room to be used again.
        assert!(answer > 4000 && charged() < 1000, "{} bytes for an answer of {answer}", charged());
    }

    #[test]
    fn what_is_held_for_one_user_is_bounded_and_given_back() {
        let held: Arc<Held> = Arc::default();
        let mut places: Vec<Place> = (0..64).filter_map(|_| held.take(1000, false)).collect();
        let took = places.iter_mut().filter_map(|place| place.holds(1 << 20).then_some(())).count();
        assert_eq!(took, MAX_BYTES_OF_ONE >> 20);
        let mut other = held.take(1001, false).expect("a place");
        assert!(other.holds(1 << 20), "another user");
        let mut own = held.take(0, true).expect("a place");
        assert!(own.holds(MAX_BYTES_OF_ONE + 1), "root");
        places.truncate(1);
        assert!(places[0].holds(MAX_BYTES_OF_ONE) && !places[0].holds(MAX_BYTES_OF_ONE + 1));
        drop((places, other, own));
        let left = held.0.lock().expect("nobody died");
        assert!(left.0 == 0 && left.1.is_empty());
    }
}
