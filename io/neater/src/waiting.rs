//! Waiters: any number of tasks on one object, each of which is woken.
//!
//! *Responsible for* keeping wakers apart, waking all waiters for the same thing at once, and
//! forgetting those that have given up. *Not responsible for* which waiter gets the result: the
//! first to look does, and the others wait on.
//!
//! *Invariants*: a future that is dropped leaves no waker behind; callers that poll by hand
//! (`poll_receive` and its like) have one place between them for each thing, which is the last
//! one's, as it is with `AsyncRead`.

use crate::shared::{Handle, State, Wait};
use crate::{ConnectionId, GroupId, ListenerId};
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Context, Poll};
use std::task::Waker;

/// The identity of a waiter. 0 is a caller that polls by hand.
pub(crate) type Ticket = u64;

/// A waiter.
pub(crate) struct Waiter {
    pub(crate) ticket: Ticket,
    pub(crate) waker: Waker,
}

/// A caller that asks, and waits if the answer is not there yet.
pub(crate) struct Who<'a> {
    pub(crate) waker: &'a Waker,
    /// `None`: by hand. 0: a future that has not waited yet.
    pub(crate) ticket: Option<&'a mut Ticket>,
    /// There is more for him at once, but it is time for others: he is to be woken when the lock is
    /// free.
    pub(crate) again: bool,
}

impl<'a> Who<'a> {
    pub(crate) fn new(waker: &'a Waker, ticket: Option<&'a mut Ticket>) -> Self {
        Self { waker, ticket, again: false }
    }

    /// Asks on behalf of a caller that polls by hand.
    pub(crate) fn by_hand<T>(
        handle: &Handle,
        cx: &Context<'_>,
        ask: impl FnOnce(&mut State, &mut Who<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let (answer, again) = handle.with(|s| {
            let mut who = Who::new(cx.waker(), None);
            (ask(s, &mut who), who.again)
        });
        if again {
            cx.waker().wake_by_ref();
        }
        answer
    }
}

/// How many answers in a row a program gets from one object before others have their turn.
const IN_A_ROW: u32 = 128;

/// Counts the answers that an object has given in a row: a task for which there is always something
/// would never let the others of its thread run, neater's own among them. A count that two threads
/// lose makes that a little later.
#[derive(Debug, Default)]
pub(crate) struct Turns(AtomicU32);

impl Turns {
    /// Counts one; true: it is time for others, and `who` comes back after them.
    #[inline]
    pub(crate) fn are_over(&self, who: &mut Who<'_>) -> bool {
        let n = self.0.load(Ordering::Relaxed);
        who.again = n >= IN_A_ROW;
        self.0.store(if who.again { 0 } else { n + 1 }, Ordering::Relaxed);
        who.again
    }

    /// Passes on an answer: a waiter does not keep other callers from their turn.
    #[inline]
    pub(crate) fn note<T>(&self, answer: Poll<T>) -> Poll<T> {
        if answer.is_pending() {
            self.0.store(0, Ordering::Relaxed);
        }
        answer
    }
}

/// Where a task may be waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Connection(ConnectionId),
    Listener(ListenerId),
    Group(GroupId),
}

/// A future that asks again whenever it is woken.
pub(crate) struct Waiting<'a, F> {
    handle: &'a Handle,
    place: Place,
    ticket: Ticket,
    ask: F,
}

impl<'a, T, F> Waiting<'a, F>
where
    F: FnMut(&mut State, &mut Who<'_>) -> Poll<T> + Unpin,
{
    /// `ask` answers, or notes a waiter at `place`.
    pub(crate) fn new(handle: &'a Handle, place: Place, ask: F) -> Self {
        Self { handle, place, ticket: 0, ask }
    }
}

impl<T, F> Future for Waiting<'_, F>
where
    F: FnMut(&mut State, &mut Who<'_>) -> Poll<T> + Unpin,
{
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Self { handle, place, ticket, ask } = self.get_mut();
        let (answer, again) = handle.with(|s| {
            let mut who = Who::new(cx.waker(), Some(ticket));
            let answer = ask(s, &mut who);
            let again = who.again;
            if answer.is_ready() && *ticket != 0 {
                // Mostly it has been woken, and is not there any more.
                s.forget_waiter(*place, core::mem::take(ticket));
            }
            (answer, again)
        });
        if again {
            cx.waker().wake_by_ref();
        }
        answer
    }
}

impl<F> Drop for Waiting<'_, F> {
    fn drop(&mut self) {
        if self.ticket != 0 {
            self.handle.look(|s| s.forget_waiter(self.place, self.ticket));
        }
    }
}

/// The waiters for the same thing, in the order in which they came.
#[derive(Default)]
pub(crate) struct Waiters(Vec<Waiter>);

impl Waiters {
    /// Adds a waiter; returns the waker that it left last time, if it is another one.
    #[must_use]
    pub(crate) fn add(&mut self, ticket: Ticket, waker: &Waker) -> Option<Waker> {
        match self.0.iter_mut().find(|w| w.ticket == ticket) {
            Some(w) if w.waker.will_wake(waker) => None,
            Some(w) => Some(core::mem::replace(&mut w.waker, waker.clone())),
            None => {
                self.0.push(Waiter { ticket, waker: waker.clone() });
                None
            }
        }
    }

    #[must_use]
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Waker> {
        let at = self.0.iter().position(|w| w.ticket == ticket)?;
        Some(self.0.remove(at).waker)
    }

    /// Hands over all of them.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Waker> + '_ {
        self.0.drain(..).map(|w| w.waker)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Which waiters of a connection are woken together.
pub(crate) const WAITS: usize = Wait::Event as usize + 1;
