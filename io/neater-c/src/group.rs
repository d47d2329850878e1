//! Connection Groups (RFC 9622 section 7.4).

use crate::border::{Failure, Handle, bytes, check_out, guard, guard_number, guard_or, handle, put};
use crate::connection::{Base, neater_connection};
use crate::error::neater_error;
use crate::event::{Callback, Outgoing, Payload, Subject, neater_event_fn, neater_event_kind as K};
use crate::inbox::{Core, Item, Target, waker};
use crate::listener::Place;
use crate::status::{neater_status, stack_number};
use neater::{Group, StreamDirection};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

/// The connections that share a transport connection.
#[derive(Debug)]
pub struct neater_group {
    pub(crate) base: Base,
    inner: Group,
    waiting: Arc<AtomicUsize>,
    waker: Waker,
    over: AtomicBool,
}

impl Handle for neater_group {
    fn given_back(&self) -> Option<neater_status> {
        self.base.given_back()
    }
}

impl neater_group {
    pub(crate) fn adopt(
        core: &Arc<Core>,
        (user, callback): (*mut c_void, Option<Callback>),
        inner: Group,
    ) -> Arc<Self> {
        let this = Arc::new_cyclic(|me| Self {
            base: Base::new(core, user, callback),
            inner,
            waiting: Arc::default(),
            waker: waker(core, Target::Group(me.clone())),
            over: AtomicBool::new(false),
        });
        core.push(Item::Try(Target::Group(Arc::downgrade(&this))));
        this
    }

    /// Accepts the streams that have come, as far as there are places.
    pub(crate) fn attempt(self: &Arc<Self>) {
        let core = &self.base.core;
        while !self.over.load(Ordering::Acquire) {
            let target = Target::Group(Arc::downgrade(self));
            let Some(place) = Place::take(core, &self.waiting, target) else { return };
            let subject = Subject::Group(Arc::downgrade(self));
            let (kind, payload) = match self.inner.poll_accept(&mut Context::from_waker(&self.waker)) {
                Poll::Pending => return place.leave(),
                Poll::Ready(Ok(c)) => {
                    let c = neater_connection::adopt(core, (self.base.user(), self.base.callback()), c, true);
                    (K::NEATER_EVENT_CONNECTION_RECEIVED, Payload::Connection(c, place))
                }
                Poll::Ready(Err(e)) => {
                    place.leave();
                    self.over.store(true, Ordering::Release);
                    (K::NEATER_EVENT_GROUP_ENDED, Payload::Error(Box::new(neater_error::of_connection(&e)), 0))
                }
            };
            core.publish(Outgoing { subject, kind, payload });
        }
    }
}

/// Gives a group back. NULL is allowed. Its connections go on; streams that the peer opens
/// afterwards come where they came before.
///
/// Ownership: the object is gone afterwards. Thread: any; also from within a callback, and after
/// the context was given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_group_free(group: *mut neater_group) {
    if !group.is_null() {
        guard_or((), || {
            // SAFETY: the caller's promise; a second time is noticed where the library still has
            // it.
            unsafe { handle(group, "group") }?;
            // SAFETY: it came from `Arc::into_raw`, and was not given back before.
            let group = unsafe { Arc::from_raw(group.cast_const()) };
            group.base.freed.store(true, Ordering::Release);
            Ok(())
        });
    }
}

/// Sets what events of the group, and connections that it receives from now on, have as `user`.
///
/// Lifetime: the pointer is the program's; the library never looks behind it. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_group_set_user(group: *mut neater_group, user: *mut c_void) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(group, "group") }?.base.set_user(user);
        Ok(())
    })
}

/// Has the events of the group, and of the connections that it receives from now on, delivered to a
/// function instead of `neater_poll_event`. NULL takes it away.
///
/// Lifetime: `user` must live as long as the group and these connections are not given back.
/// Thread: any; the function is called from the thread that drives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_group_set_callback(
    group: *mut neater_group,
    callback: neater_event_fn,
    user: *mut c_void,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(group, "group") }?.base.set_callback(Callback::of(callback, user));
        Ok(())
    })
}

/// Opens a stream in the group, into `*connection`; with `one_way` only this side sends on it.
///
/// Ownership: the connection is the caller's, to be given back by `neater_connection_free`. Thread:
/// any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_group_open(
    group: *mut neater_group,
    one_way: bool,
    connection: *mut *mut neater_connection,
) -> neater_status {
    guard(|| {
        check_out(connection, "connection")?;
        // SAFETY: the caller's promise.
        let g = unsafe { handle(group, "group") }?;
        let direction = if one_way { StreamDirection::One } else { StreamDirection::Both };
        let made = g.inner.open(direction)?;
        let made = neater_connection::adopt(&g.base.core, (g.base.user(), g.base.callback()), made, false);
        // SAFETY: the caller's promise.
        unsafe { put(connection, Arc::into_raw(made).cast_mut(), "connection") }
    })
}

/// How many connections the group has. Negative: an error.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_group_count(group: *const neater_group) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let g = unsafe { handle(group, "group") }?;
        Ok(i64::try_from(g.inner.len()).unwrap_or(i64::MAX))
    })
}

/// Whether the group lives on a transport with streams.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_group_has_streams(group: *const neater_group) -> bool {
    // SAFETY: the caller's promise.
    guard_or(false, || Ok(unsafe { handle(group, "group") }?.inner.has_streams()))
}

/// The protocol that carries the group, a `neater_stack`; NEATER_STACK_NONE when it is gone.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_group_stack(group: *const neater_group) -> u32 {
    // SAFETY: the caller's promise.
    guard_or(0, || Ok(stack_number(unsafe { handle(group, "group") }?.inner.stack())))
}

/// Closes all connections of the group in order, then their session (`CloseGroup`).
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_group_close(group: *mut neater_group) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(group, "group") }?.inner.close();
        Ok(())
    })
}

/// Aborts all connections of the group (`AbortGroup`).
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_group_abort(group: *mut neater_group) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(group, "group") }?.inner.abort();
        Ok(())
    })
}

/// Ends the session of the group at once, with an application error code and a few words for the
/// peer, where the protocol has them (QUIC, SCTP). 256 bytes of them at most reach a peer.
///
/// Ownership: the bytes are copied. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_group_close_session(
    group: *mut neater_group,
    code: u64,
    reason: *const c_void,
    length: usize,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (g, reason) = unsafe { (handle(group, "group")?, bytes(reason, length, "reason")?) };
        if reason.len() > 256 {
            return Err(Failure::argument("the reason is longer than 256 bytes"));
        }
        g.inner.close_session(code, reason);
        Ok(())
    })
}
