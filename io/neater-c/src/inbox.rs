//! What a context and its objects share: what has happened and is not looked at yet, and events
//! that wait to be taken.
//!
//! *Responsible for* the queues, and for making the context's descriptor readable while something
//! is in them. *Not responsible for* what becomes of it (`event`, `context`).
//!
//! *Invariants*: the lock is never held while code of the program or of the engine runs; while
//! nothing drives, the descriptor is readable exactly if a queue is not empty.

use crate::connection::neater_connection;
use crate::event::Outgoing;
use crate::group::neater_group;
use crate::listener::neater_listener;
use neater::Event;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};

/// Something that is to be looked at.
pub(crate) enum Item {
    /// An event of a connection's.
    Event(Weak<neater_connection>, Event),
    /// A listener cannot accept for now.
    ListenerError(Weak<neater_listener>, neater::NetError),
    /// One of these may have something.
    Try(Target),
}

/// What is tried.
#[derive(Clone)]
pub(crate) enum Target {
    /// To receive.
    Connection(Weak<neater_connection>),
    /// To accept.
    Listener(Weak<neater_listener>),
    /// To accept a stream.
    Group(Weak<neater_group>),
    /// A task.
    Task(Arc<Task>),
}

/// Something that ends with an event.
pub(crate) struct Task(pub(crate) Mutex<Option<Work>>);

type Work = Pin<Box<dyn Future<Output = Outgoing> + Send>>;

#[derive(Default)]
struct Queues {
    items: VecDeque<Item>,
    ready: VecDeque<Outgoing>,
    /// A thread drives: it looks again before it leaves.
    driven: bool,
    /// The descriptor is readable.
    signalled: bool,
}

/// See the top of the file.
pub(crate) struct Core {
    queues: Mutex<Queues>,
    signal: OwnedFd,
    /// The context was given back.
    pub(crate) gone: AtomicBool,
}

impl core::fmt::Debug for Core {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Core")
    }
}

impl Core {
    pub(crate) fn new() -> std::io::Result<Arc<Self>> {
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { queues: Mutex::default(), signal, gone: AtomicBool::new(false) }))
    }

    pub(crate) fn signal(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, f: impl FnOnce(&mut Queues)) {
        if self.gone.load(Ordering::Acquire) {
            return;
        }
        let mut q = self.lock();
        f(&mut q);
        self.show(&mut q);
    }

    /// Makes the descriptor readable exactly while there is something.
    fn show(&self, q: &mut Queues) {
        let something = !(q.items.is_empty() && q.ready.is_empty());
        if q.driven || something == q.signalled {
            return;
        }
        // Neither fails: the counter is 0 or 1, and the descriptor is ours.
        let _ = match something {
            true => rustix::io::write(&self.signal, &1_u64.to_ne_bytes()),
            false => rustix::io::read(&self.signal, &mut [0; 8]),
        };
        q.signalled = something;
    }

    pub(crate) fn push(&self, item: Item) {
        self.change(|q| q.items.push_back(item));
    }

    pub(crate) fn publish(&self, event: Outgoing) {
        self.change(|q| q.ready.push_back(event));
    }

    /// Puts events back that nothing has taken, before all others.
    pub(crate) fn put_back(&self, events: VecDeque<Outgoing>) {
        self.change(|q| {
            let later = core::mem::replace(&mut q.ready, events);
            q.ready.extend(later);
        });
    }

    pub(crate) fn next_item(&self) -> Option<Item> {
        self.lock().items.pop_front()
    }

    pub(crate) fn next_event(&self) -> Option<Outgoing> {
        self.lock().ready.pop_front()
    }

    /// How many events wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().ready.len()
    }

    /// Whether there is something to be done at once.
    pub(crate) fn is_busy(&self) -> bool {
        let q = self.lock();
        !(q.items.is_empty() && q.ready.is_empty())
    }

    /// A thread begins, or ceases, to drive.
    pub(crate) fn set_driven(&self, driven: bool) {
        let mut q = self.lock();
        q.driven = driven;
        self.show(&mut q);
    }

    /// The context is gone: nothing is kept, and nothing comes any more.
    pub(crate) fn end(&self) {
        self.gone.store(true, Ordering::Release);
        let queues = core::mem::take(&mut *self.lock());
        // Outside the lock: what goes with it may report its end.
        drop(queues);
    }
}

/// Has something tried when the engine reports it.
struct Notify {
    core: Arc<Core>,
    target: Target,
}

impl Wake for Notify {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.core.push(Item::Try(self.target.clone()));
    }
}

/// A waker that has this tried.
pub(crate) fn waker(core: &Arc<Core>, target: Target) -> Waker {
    Waker::from(Arc::new(Notify { core: core.clone(), target }))
}
