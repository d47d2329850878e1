//! The Unix sockets.

use super::place::{self, Dir};
use super::{PATIENCE, Shared, now};
use crate::failure::{Exit, Failure};
use neater_policy::daemon::{Door, Session};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant as Moment, timeout_at};

/// How many connections one user may have, if that is neither root nor the daemon's own.
const MAX_OF_ONE: usize = 2048;
/// How many connections there may be.
const MAX_SESSIONS: usize = 8192;
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
struct Held(Mutex<(usize, BTreeMap<u32, usize>)>);

/// A place among them, given back when it is dropped.
struct Place {
    held: Arc<Held>,
    user: u32,
}

impl Held {
    fn take(self: &Arc<Self>, user: u32, trusted: bool) -> Option<Place> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, by_user) = &mut *held;
        let of_one = by_user.get(&user).copied().unwrap_or_default();
        if *all >= MAX_SESSIONS || (!trusted && of_one >= MAX_OF_ONE) {
            return None;
        }
        *all += 1;
        *by_user.entry(user).or_default() += 1;
        Some(Place { held: self.clone(), user })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.held.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, by_user) = &mut *held;
        *all -= 1;
        if let Some(n) = by_user.get_mut(&self.user) {
            *n -= 1;
            if *n == 0 {
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
        let Some(place) = listening.held.take(user, trusted) else {
            shared.daemon().counters.turned_away += 1;
            shared.refused(listening.door.file(), Some(user), "too many connections");
            continue;
        };
        let (door, shared) = (listening.door, shared.clone());
        tokio::spawn(async move {
            shared.daemon().counters.sessions += 1;
            serve(&stream, door, user, &shared).await;
            shared.daemon().counters.sessions -= 1;
            drop(place);
        });
    }
}

/// What reading came to.
enum Came {
    Something,
    Nothing,
    Broken,
}

/// Reads a piece, and lets the daemon work on it. The memory for it is not the connection's, of which there may be
/// thousands.
fn read(stream: &UnixStream, session: &mut Session, door: Door, user: u32, shared: &Shared) -> Came {
    let mut piece = [0; PIECE];
    let came = match stream.try_read(&mut piece) {
        Ok(n) => n,
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Came::Nothing,
        Err(_) => return Came::Broken,
    };
    let (begin, now) = (Instant::now(), now());
    let effects = {
        let mut daemon = shared.daemon();
        match came {
            0 => session.end(&mut daemon, now),
            n => session.receive(&piece[..n], &mut daemon, now),
        }
        daemon.counters.worked(begin.elapsed());
        daemon.take_effects()
    };
    // A client of NEAT's does not wait for it; whoever runs the daemon is told.
    let _ = shared.perform(&effects);
    session.take_refusals().iter().for_each(|why| shared.refused(door.file(), Some(user), why));
    Came::Something
}

async fn serve(stream: &UnixStream, door: Door, user: u32, shared: &Shared) {
    let mut session = Session::new(door, user);
    let mut deadline = Moment::now() + PATIENCE;
    while !session.is_closed() {
        let Ok(Ok(())) = timeout_at(deadline, stream.readable()).await else {
            if !session.is_idle() {
                shared.refused(door.file(), Some(user), "it took too long");
            }
            return;
        };
        let was_idle = session.is_idle();
        match read(stream, &mut session, door, user, shared) {
            Came::Nothing => continue,
            Came::Broken => return,
            Came::Something => {}
        }
        while session.has_output() {
            if !send(stream, &session.take_output()).await {
                return;
            }
            session.proceed(&mut shared.daemon(), now());
        }
        if session.is_idle() {
            deadline = Moment::now() + REST;
        } else if was_idle {
            deadline = Moment::now() + PATIENCE;
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
