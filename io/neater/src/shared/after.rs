//! What must happen after the lock is released: nothing of the program's runs while the engine is borrowed.

use super::slots::Slot;
use crate::EventHandler;
use crate::waiting::Waiter;
use bytes::Bytes;
use neater_engine::{ForeignDatagram, Spent};
use std::task::Waker;

/// What must happen after the lock is released: nothing of the program's runs while the engine is borrowed.
#[derive(Default)]
pub(super) struct After {
    pub(super) wakers: Wakers,
    /// Events wait for the program's own functions.
    pub(super) calls: bool,
    pub(super) wake_fd: bool,
    /// This is a child of `fork`: whoever is waiting waits in the parent.
    pub(super) forked: bool,
    pub(super) discarded: Vec<Discarded>,
    /// What has arrived here and is for other engines.
    pub(super) foreign: Vec<ForeignDatagram>,
    /// The program's data that the engine has finished with, likewise.
    pub(super) spent: Option<Spent>,
    /// And what it had finished with before this turn.
    pub(super) earlier: Option<Spent>,
}

/// Who is to be woken: mostly one, or nobody, which takes no memory.
#[derive(Default)]
pub(super) struct Wakers {
    pub(super) first: Option<Waker>,
    pub(super) more: Vec<Waker>,
}

impl Wakers {
    pub(super) fn push(&mut self, waker: Waker) {
        if self.first.is_none() {
            self.first = Some(waker);
        } else {
            self.more.push(waker);
        }
    }

    pub(super) fn wake(self) {
        // Not chained: what that keeps account of costs more than it does for one.
        if let Some(waker) = self.first {
            waker.wake();
        }
        if !self.more.is_empty() {
            self.more.into_iter().for_each(Waker::wake);
        }
    }
}

impl Extend<Waker> for Wakers {
    fn extend<T: IntoIterator<Item = Waker>>(&mut self, wakers: T) {
        for waker in wakers {
            self.push(waker);
        }
    }
}

impl After {
    #[inline]
    pub(super) fn wake(&mut self, waiter: Option<Waiter>) {
        if let Some(waiter) = waiter {
            self.wakers.push(waiter.waker);
        }
    }
}

/// Something of the program's, to be dropped when the lock is released.
#[allow(dead_code, reason = "it is only dropped")]
pub(super) enum Discarded {
    Waker(Waker),
    Slot(Box<Slot>),
    Handler(EventHandler),
    Data(Bytes),
}
