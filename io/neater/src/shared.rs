//! The engine behind its lock, and its waiters.

mod after;
mod dispatch;
mod handle;
mod slots;

#[cfg(feature = "tokio")]
use after::Wakers;
use after::{After, Discarded};
pub(crate) use handle::{Driving, Handle};
use slots::{GroupSlot, ListenerSlot, adopt, listener_of, slot_of};
pub(crate) use slots::{Incoming, Slot, Wait};

use crate::gather::Gathered;
use crate::waiting::{Place, Ticket, Waiter, Who};
use crate::{EngineShards, EventHandler, GroupId, ListenerId};
use bytes::Bytes;
use neater_base::net::Net;
use neater_engine::{ConnectionId, ConnectionState, Engine, Event, Spent};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::task::Waker;

/// The engine over any network: the public objects name none, a program compiles one engine, and
/// the simulator puts its own network under the same objects. Each operation of a socket is an
/// indirect call. A byte stream does not pay it for each piece: it finds the sockets' direct stream
/// by its type, and uses none over any other network.
pub(crate) type AnyEngine = Engine<Box<dyn Net + Send>>;

/// What the public objects share: one engine, one lock.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// How many public objects there are; the driver ends after the last of them.
    pub(crate) users: AtomicUsize,
    /// The engines that share ports with this one.
    shards: Option<EngineShards>,
    /// Makes the pollable descriptor readable, from any thread.
    wake_fd: Box<dyn Fn() + Send + Sync>,
    /// Whether this process is a child of the one that made the engine, without its lock.
    forked: Box<dyn Fn() -> bool + Send + Sync>,
    /// Where policies come from, if there are any.
    pub(crate) policies: OnceLock<Mutex<crate::policies::Watch>>,
    /// Looks for them where there are none yet.
    pub(crate) later: OnceLock<crate::policies::Later>,
    /// The external resolver of names, if there is one.
    pub(crate) names: OnceLock<crate::names::ExternalResolver>,
    /// What stands in such a child for what another thread of the parent's had locked.
    after_fork: OnceLock<Box<Mutex<State>>>,
    callbacks: Mutex<crate::reentrancy::Callbacks>,
    /// What was let go of while the engine was borrowed: dropping it may run the program's code.
    outside: Mutex<Vec<Box<dyn Send>>>,
    /// There is something.
    has_outside: AtomicBool,
}

pub(crate) struct State {
    pub(crate) engine: AnyEngine,
    pub(crate) conns: Vec<Slot>,
    listeners: Vec<ListenerSlot>,
    /// Those that have stopped and still have a place, where the engine has given their index to
    /// another one.
    stopped: Vec<ListenerSlot>,
    groups: Vec<GroupSlot>,
    /// The driver's task, when it is a task.
    pub(crate) driver: Option<Waker>,
    /// The driver was notified of work, and has not had a turn since: another notification would be
    /// useless.
    notified: bool,
    pub(crate) roots_loaded: bool,
    /// The last that was given out.
    tickets: Ticket,
    /// Events on their way to the program's own functions, in order.
    calls: VecDeque<(EventHandler, Event)>,
    /// One of these functions is being run.
    calling: bool,
    /// Wakers and handlers that are not needed any more. Dropping them may run the program's code,
    /// which must not find the engine borrowed.
    discarded: Vec<Discarded>,
}

/// Registers a waker, without cloning one that is there already; returns the one that it replaces.
#[must_use]
#[inline]
fn register(slot: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match slot {
        Some(w) if w.will_wake(waker) => None,
        _ => slot.replace(waker.clone()),
    }
}

/// The result of [`Shared::poll_fast`].
#[cfg(feature = "tokio")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastPoll {
    /// Everything is done.
    Done,
    /// A turn has something to do.
    More,
    /// Another thread has the engine, and the network was not polled: a turn must do it, after
    /// [`Shared::poll_again`].
    Busy,
}

impl Shared {
    pub(crate) fn new(
        engine: AnyEngine,
        shards: Option<EngineShards>,
        wake_fd: Box<dyn Fn() + Send + Sync>,
        forked: Box<dyn Fn() -> bool + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Self {
            shards,
            state: Mutex::new(State::new(engine)),
            users: AtomicUsize::new(0),
            wake_fd,
            forked,
            policies: OnceLock::new(),
            later: OnceLock::new(),
            names: OnceLock::new(),
            after_fork: OnceLock::new(),
            callbacks: Mutex::default(),
            outside: Mutex::default(),
            has_outside: AtomicBool::new(false),
        })
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => self.lock_slowly(),
        }
    }

    #[cold]
    fn lock_slowly(&self) -> MutexGuard<'_, State> {
        crate::reentrancy::check(self.address());
        if (self.forked)() {
            // Its holder may be a thread that does not exist in this process. Behind the lock there
            // is nothing but refusals in any case.
            let elsewhere = || Box::new(Mutex::new(State::new(crate::after_fork::engine())));
            return self.after_fork.get_or_init(elsewhere).lock().unwrap_or_else(PoisonError::into_inner);
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What distinguishes this engine from others while it lives.
    pub(crate) fn address(&self) -> usize {
        core::ptr::from_ref(&self.state).addr()
    }

    /// As [`Shared::address`], of one that may be gone.
    pub(crate) fn address_of(engine: &Weak<Self>) -> usize {
        // Only compared, and only while there is one.
        engine.as_ptr().addr().wrapping_add(core::mem::offset_of!(Self, state))
    }

    /// Drops something of the program's, now or when the engine is not borrowed.
    pub(crate) fn drop_outside(&self, thing: Box<dyn Send>) {
        if matches!(self.state.try_lock(), Err(TryLockError::WouldBlock)) {
            self.outside.lock().unwrap_or_else(PoisonError::into_inner).push(thing);
            self.has_outside.store(true, Ordering::Release);
            // The thread that has the engine may be about to release it without another poll.
            (self.wake_fd)();
        }
    }

    /// Drops what was let go of while the engine was borrowed.
    #[cold]
    fn clear_outside(&self) {
        self.has_outside.store(false, Ordering::Relaxed);
        let things = core::mem::take(&mut *self.outside.lock().unwrap_or_else(PoisonError::into_inner));
        if self.is_forked() {
            // Copies of the parent's: see `finish`.
            return core::mem::forget(things);
        }
        for thing in things {
            // A panic is that destructor's alone, as it is with handlers.
            if catch_unwind(AssertUnwindSafe(|| drop(thing))).is_err() {
                tracing::error!(target: "neater::event", "a destructor of what the program had given has panicked");
            }
        }
    }

    /// Does something with the engine, then notifies every task that it concerns.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = f(&mut state);
        // Most calls concern no task, and leave nothing to be done or dropped.
        if state.engine.after_call() || !state.discarded.is_empty() || !state.calls.is_empty() {
            self.notify(state);
        } else {
            drop(state);
        }
        if self.has_outside.load(Ordering::Relaxed) {
            self.clear_outside();
        }
        result
    }

    /// As [`Shared::with`], for a caller that holds a lock which a function of the program's might
    /// want: the driver notifies the tasks that it concerns.
    pub(crate) fn with_later<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = f(&mut state);
        let concerns = state.engine.after_call() || !state.discarded.is_empty() || !state.calls.is_empty();
        drop(state);
        if concerns {
            self.kick();
        }
        result
    }

    /// As [`Shared::with`], for what asks nothing of the engine.
    #[inline]
    pub(crate) fn look<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = f(&mut state);
        if !state.discarded.is_empty() {
            self.notify(state);
        }
        result
    }

    /// Notifies every task that a call concerns.
    #[inline(never)]
    fn notify(&self, mut state: MutexGuard<'_, State>) {
        let mut after = After::default();
        state.dispatch(&mut after.wakers);
        after.calls = !state.calls.is_empty();
        after.forked = state.engine.is_forked();
        if state.engine.needs_settling() {
            // Gathering what several calls have to send is the driver's business.
            if !core::mem::replace(&mut state.notified, true) {
                match state.driver.take() {
                    Some(driver) => after.wakers.push(driver),
                    None => after.wake_fd = true,
                }
            }
        } else {
            state.engine.rearm();
        }
        after.discarded = core::mem::take(&mut state.discarded);
        after.spent = state.spent();
        drop(state);
        self.finish(after);
    }

    /// A turn of the engine. `driver` is woken when calls leave work to do.
    pub(crate) fn turn(&self, driver: Option<&Waker>) {
        let mut after = After::default();
        let (facts, names);
        {
            let mut state = self.lock();
            state.notified = false;
            // A turn drops what was not taken, which must not happen here.
            after.earlier = state.spent();
            state.engine.turn();
            state.dispatch(&mut after.wakers);
            after.calls = !state.calls.is_empty();
            after.forked = state.engine.is_forked();
            // Without policies there is nothing to ask.
            names = !after.forked && state.engine.has_name_questions();
            facts = self.policies.get().is_some() && !after.forked && state.engine.policies().has_facts();
            if self.shards.is_some() {
                after.misrouted = state.engine.take_misrouted();
            }
            if let Some(w) = driver {
                let replaced = register(&mut state.driver, w);
                state.discard(replaced);
            }
            after.discarded = core::mem::take(&mut state.discarded);
            after.spent = state.spent();
        }
        self.finish(after);
        if self.has_outside.load(Ordering::Acquire) {
            self.clear_outside();
        }
        if names {
            crate::names::ask(self);
        }
        if facts {
            crate::policies::publish(self);
        }
    }

    /// Wakes the tasks that wait for bytes of plain streams, for one to be connected as the last
    /// one was, or for one to be accepted, and does nothing else: no function or destructor of the
    /// program's runs, and it never blocks. So it may be called from within another library's
    /// reactor, where a turn may not.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll_fast(&self) -> FastPoll {
        let Ok(mut state) = self.state.try_lock() else { return FastPoll::Busy };
        if state.engine.is_forked() {
            return FastPoll::More;
        }
        let mut wakers = Wakers::default();
        let done = state.engine.poll_fast();
        let mut more = true;
        while more {
            let (readable, left) = state.engine.poll_readable();
            match readable {
                Some(id) => state.readable(id, &mut wakers),
                // Something else comes first, and is dispatched with all that comes after it.
                None => state.dispatch(&mut wakers),
            }
            more = left && readable.is_some();
        }
        let nothing = state.calls.is_empty() && state.discarded.is_empty() && !self.has_outside.load(Ordering::Relaxed);
        let done = done && nothing && !state.engine.has_spent();
        drop(state);
        wakers.wake();
        if done { FastPoll::Done } else { FastPoll::More }
    }

    /// The next turn polls the descriptor, even if [`Shared::poll_fast`] has left it events.
    #[cfg(feature = "tokio")]
    #[cold]
    pub(crate) fn poll_again(&self) {
        self.lock().engine.poll_again();
    }

    /// The driver of the engine has stopped: all waiting tasks are woken with an error.
    fn orphan(&self) {
        let mut after = After::default();
        {
            let mut state = self.lock();
            if state.engine.is_forked() {
                return;
            }
            state.engine.orphan();
            state.dispatch(&mut after.wakers);
            after.calls = !state.calls.is_empty();
            for group in &mut state.groups {
                after.wakers.extend(group.waiters.take());
            }
            after.discarded = core::mem::take(&mut state.discarded);
            after.spent = state.spent();
        }
        self.finish(after);
        if self.has_outside.load(Ordering::Acquire) {
            self.clear_outside();
        }
    }

    /// Whether there is nothing left to drive.
    pub(crate) fn is_idle(&self) -> bool {
        self.users.load(Ordering::Acquire) == 0 && self.with(|s| s.engine.stats().connections == 0)
    }

    /// Whether this process is a child of the one that made the engine.
    pub(crate) fn is_forked(&self) -> bool {
        (self.forked)()
    }

    /// Makes the driver look, from wherever.
    pub(crate) fn kick(&self) {
        let (driver, forked) = {
            let mut state = self.lock();
            (state.driver.take(), state.engine.is_forked())
        };
        match driver {
            Some(w) if forked => core::mem::forget(w),
            Some(w) => w.wake(),
            None => (self.wake_fd)(),
        }
    }

    fn finish(&self, after: After) {
        if after.forked {
            // Wakers, functions and data are copies of the parent's. Their code may lock what a
            // thread of the parent's has locked, and there is no such thread here to unlock it.
            return core::mem::forget(after);
        }
        after.wakers.wake();
        if let Some(shards) = &self.shards {
            shards.pass_on(after.misrouted, self);
        }
        if after.calls {
            self.call();
        }
        if after.wake_fd {
            (self.wake_fd)();
        }
    }

    /// Passes an event without a connection to a function of the program's, in its turn.
    #[cold]
    pub(crate) fn report(&self, handler: EventHandler, event: Event) {
        self.lock().calls.push_back((handler, event));
        self.call();
    }

    /// Runs the program's functions in the order of their events, one after the other. A caller
    /// that finds another thread, or an outer call of this one, at it leaves its events to that.
    fn call(&self) {
        /// Lets others have their turn, whatever happens in a program's function.
        struct Turn<'a>(&'a Shared);
        impl Drop for Turn<'_> {
            fn drop(&mut self) {
                self.0.lock().calling = false;
            }
        }
        loop {
            let (handler, event) = {
                let mut state = self.lock();
                if state.calling {
                    return;
                }
                let Some(next) = state.calls.pop_front() else { return };
                state.calling = true;
                next
            };
            let _turn = Turn(self);
            // A panic is that function's alone: the driver, whose stack this may be, serves other
            // connections, too. The lock is free, and nothing of ours is half done.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(move || handler(&event))) {
                let reason = panic.downcast_ref::<&str>().copied();
                let reason =
                    reason.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
                tracing::error!(target: "neater::event", "a function given to on_event has panicked: {reason}");
            }
        }
    }
}

impl State {
    fn new(engine: AnyEngine) -> Self {
        Self {
            engine,
            conns: Vec::new(),
            listeners: Vec::new(),
            stopped: Vec::new(),
            groups: Vec::new(),
            driver: None,
            notified: false,
            roots_loaded: false,
            tickets: 0,
            calls: VecDeque::new(),
            calling: false,
            discarded: Vec::new(),
        }
    }

    /// What the engine has finished with.
    #[inline]
    fn spent(&mut self) -> Option<Spent> {
        self.engine.has_spent().then(|| self.engine.take_spent())
    }

    /// Makes room for a connection's waiters.
    #[inline]
    pub(crate) fn adopt(&mut self, id: ConnectionId) {
        adopt(&mut self.conns, id.index(), |slot| {
            if slot.bits != 0 {
                *slot = Slot::default();
            }
            slot.bits = id.to_bits();
        });
    }

    /// As [`State::adopt`], of a connection that was received. It may have ended while it waited to
    /// be taken, and its events were not delivered then.
    pub(crate) fn adopt_received(&mut self, id: ConnectionId, handler: Option<&EventHandler>) {
        self.adopt(id);
        let ending = self.engine.ending(id);
        let Some(slot) = self.slot(id) else { return };
        slot.outcome = Some(Ok(()));
        if let Some(handler) = handler {
            slot.rare().handler = Some(handler.clone());
            if let Some(ending) = &ending {
                let last = ending.clone().map_or_else(|e| Event::ConnectionError(*e), |()| Event::Closed);
                self.calls.push_back((handler.clone(), last));
            }
        }
        if let Some(slot) = self.slot(id) {
            slot.ended = ending;
        }
    }

    /// Reports the events of a connection to this function from now on, and first what has become
    /// of it already.
    pub(crate) fn report_to(&mut self, id: ConnectionId, handler: &EventHandler) {
        let Some(slot) = self.slot(id) else { return };
        let outcome = slot.outcome.clone().map(|o| o.map_or_else(Event::EstablishmentError, |()| Event::Ready));
        let ended = slot.ended.clone().map(|e| e.map_or_else(|e| Event::ConnectionError(*e), |()| Event::Closed));
        let replaced = slot.rare().handler.replace(handler.clone());
        self.discarded.extend(replaced.map(Discarded::Handler));
        self.calls.extend(outcome.into_iter().chain(ended).map(|event| (handler.clone(), event)));
    }

    /// Takes a connection that the program has added to a group.
    pub(crate) fn adopt_opened(&mut self, id: ConnectionId) {
        self.adopt(id);
        if self.engine.state(id) == ConnectionState::Established
            && let Some(slot) = self.slot(id)
        {
            slot.outcome = Some(Ok(()));
        }
    }

    #[inline]
    pub(crate) fn slot(&mut self, id: ConnectionId) -> Option<&mut Slot> {
        slot_of(&mut self.conns, id.index(), id.to_bits())
    }

    /// What a connection has gathered of a message, if anything.
    #[inline]
    pub(crate) fn gathered(&mut self, id: ConnectionId) -> Option<&mut Gathered> {
        self.slot(id)?.rare.as_mut().map(|r| &mut r.gathered)
    }

    /// Registers the waker of a caller that polls by hand, for when a connection has what it waits
    /// for.
    #[inline]
    pub(crate) fn wait(&mut self, id: ConnectionId, wait: Wait, waker: &Waker) {
        self.wait_as(id, wait, &mut Who::new(waker, None));
    }

    /// Registers a waiter, for when a connection has what it waits for.
    #[inline]
    pub(crate) fn wait_as(&mut self, id: ConnectionId, wait: Wait, who: &mut Who<'_>) {
        let ticket = self.ticket(who);
        let Some(slot) = self.slot(id) else { return };
        let first = match wait {
            Wait::Readable => Some(&mut slot.readable),
            Wait::Writable => Some(&mut slot.writable),
            Wait::Changed => Some(&mut slot.changed),
            Wait::Event => None,
        };
        let replaced = match first {
            Some(Some(w)) if w.ticket == ticket && w.waker.will_wake(who.waker) => None,
            Some(Some(w)) if w.ticket == ticket => Some(core::mem::replace(&mut w.waker, who.waker.clone())),
            Some(first @ None) => {
                *first = Some(Waiter { ticket, waker: who.waker.clone() });
                // It has moved up, and a waiter is in one place only.
                slot.rare.as_mut().and_then(|rare| rare.more[wait as usize].remove(ticket))
            }
            _ => slot.rare().more[wait as usize].add(ticket, who.waker),
        };
        self.discard(replaced);
    }

    /// The number of a task that is about to wait.
    #[inline]
    fn ticket(&mut self, who: &mut Who<'_>) -> Ticket {
        match &mut who.ticket {
            None => 0,
            Some(ticket) => {
                if **ticket == 0 {
                    self.tickets += 1;
                    **ticket = self.tickets;
                }
                **ticket
            }
        }
    }

    /// A waiter has given up.
    pub(crate) fn forget_waiter(&mut self, place: Place, ticket: Ticket) {
        let waker = match place {
            Place::Connection(id) => self.slot(id).and_then(|slot| slot.forget_waiter(ticket)),
            Place::Listener(id) => {
                listener_of(&mut self.listeners, &mut self.stopped, id).and_then(|slot| slot.waiters.remove(ticket))
            }
            Place::Group(id) => {
                slot_of(&mut self.groups, id.index(), id.to_bits()).and_then(|slot| slot.waiters.remove(ticket))
            }
        };
        self.discard(waker);
    }

    pub(crate) fn discard_data(&mut self, data: Bytes) {
        self.discarded.push(Discarded::Data(data));
    }

    #[inline]
    fn discard(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.discarded.push(Discarded::Waker(waker));
        }
    }

    #[inline]
    pub(crate) fn disown(&mut self, id: ConnectionId) {
        let Some(slot) = self.slot(id) else { return };
        let light = slot.is_light();
        let mut old = core::mem::take(slot);
        if light {
            // There is nothing in it to be dropped, and finding that out field by field costs 100
            // instructions.
            core::mem::forget(old);
        } else if old.rare.as_ref().is_some_and(|r| r.handler.is_some() || r.more.iter().any(|m| !m.is_empty())) {
            self.discarded.push(Discarded::Slot(Box::new(old)));
        } else {
            for waiter in [old.readable.take(), old.writable.take(), old.changed.take()] {
                self.discard(waiter.map(|w| w.waker));
            }
        }
    }

    pub(crate) fn adopt_listener(&mut self, id: ListenerId, handler: Option<EventHandler>) {
        adopt(&mut self.listeners, id.index(), |s| {
            let new = ListenerSlot { bits: id.to_bits(), handler, ..ListenerSlot::default() };
            let old = core::mem::replace(s, new);
            if old.bits != 0 {
                self.stopped.push(old);
            }
        });
    }

    /// Takes what a listener received first; `Err`: it has stopped, or it listens in another
    /// process.
    pub(crate) fn next_incoming(&mut self, id: ListenerId, who: &mut Who<'_>) -> Result<Option<Incoming>, ()> {
        if self.engine.unusable().is_some() {
            return Err(());
        }
        let ticket = self.ticket(who);
        let slot = listener_of(&mut self.listeners, &mut self.stopped, id).ok_or(())?;
        match slot.queue.pop_front() {
            Some(i) => {
                self.engine.taken(id);
                Ok(Some(i))
            }
            None if slot.stopped => Err(()),
            None => {
                let replaced = slot.waiters.add(ticket, who.waker);
                self.discard(replaced);
                Ok(None)
            }
        }
    }

    /// The program does not listen any more; what it has not taken is closed.
    pub(crate) fn disown_listener(&mut self, id: ListenerId) {
        self.engine.stop(id);
        let Some(slot) = listener_of(&mut self.listeners, &mut self.stopped, id) else { return };
        let mut old = core::mem::take(slot);
        self.stopped.retain(|slot| slot.bits != 0);
        self.discarded.extend(old.waiters.take().map(Discarded::Waker));
        self.discarded.extend(old.handler.take().map(Discarded::Handler));
        for incoming in old.queue {
            match incoming {
                Incoming::Connection(c) => self.engine.release(c),
                Incoming::Group(g) => {
                    self.engine.close_group(g);
                    self.disown_group(g);
                }
            }
        }
    }

    pub(crate) fn adopt_group(&mut self, id: GroupId) {
        if slot_of(&mut self.groups, id.index(), id.to_bits()).is_none() {
            adopt(&mut self.groups, id.index(), |s| {
                *s = GroupSlot { bits: id.to_bits(), ..GroupSlot::default() };
            });
        }
        if let Some(slot) = slot_of(&mut self.groups, id.index(), id.to_bits()) {
            slot.handles += 1;
        }
    }

    pub(crate) fn next_stream(&mut self, id: GroupId, who: &mut Who<'_>) -> Option<ConnectionId> {
        if self.engine.unusable().is_some() {
            return None;
        }
        let ticket = self.ticket(who);
        let slot = slot_of(&mut self.groups, id.index(), id.to_bits())?;
        let next = slot.queue.pop_front();
        if next.is_some() {
            self.engine.taken_stream(id);
        } else {
            let replaced = slot.waiters.add(ticket, who.waker);
            self.discard(replaced);
        }
        next
    }

    pub(crate) fn disown_group(&mut self, id: GroupId) {
        if let Some(slot) = slot_of(&mut self.groups, id.index(), id.to_bits()) {
            slot.handles -= 1;
            if slot.handles > 0 {
                return self.engine.release_group(id);
            }
            let mut old = core::mem::take(slot);
            self.discarded.extend(old.waiters.take().map(Discarded::Waker));
            for conn in old.queue {
                self.engine.release(conn);
            }
        }
        self.engine.release_group(id);
    }

    /// Wakes the tasks that wait for streams of a group, because its session may have ended.
    pub(crate) fn wake_group(&mut self, id: GroupId) -> Vec<Waker> {
        slot_of(&mut self.groups, id.index(), id.to_bits()).map_or_else(Vec::new, |s| s.waiters.take().collect())
    }
}
