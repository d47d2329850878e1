//! Who waits for what: any number of tasks on one object, each of which is woken.
//!
//! *Responsible for* keeping wakers apart, waking all who wait for the same thing at once, and forgetting who has given up.
//! *Not responsible for* who gets what they wait for: whoever looks first, and the others wait on.
//!
//! *Invariants*: a future that is dropped leaves no waker behind; those who poll by hand (`poll_receive` and its like) have
//! one place between them for each thing, which is the last one's, as it is with `AsyncRead`.

use crate::shared::{Handle, State, Wait};
use crate::{ConnectionId, GroupId, ListenerId};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::task::Waker;

/// Which of those who wait somebody is. 0 is whoever polls by hand.
pub(crate) type Ticket = u64;

/// One who waits.
pub(crate) struct Waiter {
    pub(crate) ticket: Ticket,
    pub(crate) waker: Waker,
}

/// Somebody who asks, and waits if the answer is not there yet.
pub(crate) struct Who<'a> {
    pub(crate) waker: &'a Waker,
    /// `None`: by hand. 0: a future that has not waited yet.
    pub(crate) ticket: Option<&'a mut Ticket>,
}

impl<'a> Who<'a> {
    pub(crate) fn by_hand(cx: &Context<'a>) -> Self {
        Self { waker: cx.waker(), ticket: None }
    }
}

/// Where somebody may be waiting.
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
    /// `ask` answers, or notes who waits at `place`.
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
        handle.with(|s| {
            let answer = ask(s, &mut Who { waker: cx.waker(), ticket: Some(ticket) });
            if answer.is_ready() && *ticket != 0 {
                // Mostly it has been woken, and is not there any more.
                s.forget_waiter(*place, core::mem::take(ticket));
            }
            answer
        })
    }
}

impl<F> Drop for Waiting<'_, F> {
    fn drop(&mut self) {
        if self.ticket != 0 {
            self.handle.look(|s| s.forget_waiter(self.place, self.ticket));
        }
    }
}

/// Those who wait for the same thing, in the order in which they came.
#[derive(Default)]
pub(crate) struct Waiters(Vec<Waiter>);

impl Waiters {
    /// Adds somebody; returns the waker that he left last time, if it is another one.
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
