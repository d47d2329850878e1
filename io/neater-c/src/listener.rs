//! Listeners (RFC 9622 section 7.2).

use crate::border::{Failure, Handle, Versioned, fixed_text, guard, guard_number, guard_or, handle, write_sized};
use crate::connection::{Base, neater_connection};
use crate::error::neater_error;
use crate::event::{Callback, Outgoing, Payload, Subject, neater_event_fn, neater_event_kind as K};
use crate::group::neater_group;
use crate::inbox::{Core, Item, Target, waker};
use crate::status::{neater_status, stack_number};
use neater::{Accepted, Event, Listener, NetError};
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};

/// Connections that wait as events of one listener or group: the others wait in the engine, whose
/// limits hold for them.
const WAITING_MAX: usize = 64;

/// A place among them: the next is accepted when it is free.
pub(crate) struct Place {
    target: Target,
    core: Arc<Core>,
    taken: Arc<AtomicUsize>,
    /// An event has it.
    used: bool,
}

impl Place {
    pub(crate) fn take(core: &Arc<Core>, taken: &Arc<AtomicUsize>, target: Target) -> Option<Self> {
        if taken.load(Ordering::Acquire) >= WAITING_MAX {
            return None;
        }
        taken.fetch_add(1, Ordering::AcqRel);
        Some(Self { target, core: core.clone(), taken: taken.clone(), used: true })
    }

    /// Nothing has come for it.
    pub(crate) fn leave(mut self) {
        self.used = false;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.taken.fetch_sub(1, Ordering::AcqRel) == WAITING_MAX && self.used {
            self.core.push(Item::Try(self.target.clone()));
        }
    }
}

/// Receives connections over every eligible protocol.
#[derive(Debug)]
pub struct neater_listener {
    pub(crate) base: Base,
    inner: OnceLock<Listener>,
    /// What its connections have from it.
    inherited: Option<Callback>,
    waiting: Arc<AtomicUsize>,
    waker: Waker,
    over: AtomicBool,
}

impl Handle for neater_listener {
    fn given_back(&self) -> Option<neater_status> {
        self.base.given_back()
    }
}

impl neater_listener {
    pub(crate) fn new(core: &Arc<Core>, user: *mut c_void, callback: Option<Callback>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            base: Base::new(core, user, callback),
            inner: OnceLock::new(),
            inherited: callback,
            waiting: Arc::default(),
            waker: waker(core, Target::Listener(me.clone())),
            over: AtomicBool::new(false),
        })
    }

    /// The function that reports what keeps it from accepting.
    pub(crate) fn reporter(self: &Arc<Self>) -> impl Fn(&Event) + Send + Sync + use<> {
        let (me, core): (Weak<Self>, _) = (Arc::downgrade(self), self.base.core.clone());
        move |event: &Event| {
            if let Event::ListenerError(e) = event {
                core.push(Item::ListenerError(me.clone(), *e));
            }
        }
    }

    /// From now on it accepts.
    pub(crate) fn begin(self: &Arc<Self>, listener: Listener) {
        // It is the only one that sets it.
        let _ = self.inner.set(listener);
        self.base.core.push(Item::Try(Target::Listener(Arc::downgrade(self))));
    }

    pub(crate) fn failed(self: &Arc<Self>, e: NetError) {
        let error = neater_error::new(neater_status::of_network(e.kind), e.to_string());
        self.publish(K::NEATER_EVENT_LISTENER_ERROR, Payload::Error(Box::new(error), 0));
    }

    fn publish(self: &Arc<Self>, kind: K, payload: Payload) {
        let subject = Subject::Listener(Arc::downgrade(self));
        self.base.core.publish(Outgoing { subject, kind, payload });
    }

    /// Accepts what has come, as far as there are places.
    pub(crate) fn attempt(self: &Arc<Self>) {
        let Some(listener) = self.inner.get() else { return };
        let (core, inherits) = (&self.base.core, (self.base.user(), self.inherited));
        while !self.over.load(Ordering::Acquire) {
            let target = Target::Listener(Arc::downgrade(self));
            let Some(place) = Place::take(core, &self.waiting, target) else { return };
            match listener.poll_accept_any(&mut Context::from_waker(&self.waker)) {
                Poll::Pending => return place.leave(),
                Poll::Ready(None) => {
                    place.leave();
                    self.over.store(true, Ordering::Release);
                    self.publish(K::NEATER_EVENT_STOPPED, Payload::None);
                }
                Poll::Ready(Some(Accepted::Connection(c))) => {
                    let c = neater_connection::adopt(core, inherits, c, true);
                    self.publish(K::NEATER_EVENT_CONNECTION_RECEIVED, Payload::Connection(c, place));
                }
                Poll::Ready(Some(Accepted::Group(g))) => {
                    let g = neater_group::adopt(core, inherits, g);
                    self.publish(K::NEATER_EVENT_GROUP_RECEIVED, Payload::Group(g, place));
                }
            }
        }
    }

    fn listener(&self) -> Result<&Listener, Failure> {
        self.inner.get().ok_or_else(|| neater_status::NEATER_ERROR_STATE.into())
    }
}

/// Gives a listener back. NULL is allowed. It stops listening; connections that were taken go on,
/// others are closed. No event of it comes any more.
///
/// Ownership: the object is gone afterwards. Thread: any; also from within a callback, and after
/// the context was given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_listener_free(listener: *mut neater_listener) {
    if !listener.is_null() {
        guard_or((), || {
            // SAFETY: the caller's promise; a second time is noticed where the library still has
            // it.
            unsafe { handle(listener, "listener") }?;
            // SAFETY: it came from `Arc::into_raw`, and was not given back before.
            let listener = unsafe { Arc::from_raw(listener.cast_const()) };
            listener.base.freed.store(true, Ordering::Release);
            Ok(())
        });
    }
}

/// Stops listening (`Stop`). What was received before is still delivered, then
/// NEATER_EVENT_STOPPED.
///
/// Thread: any. The object stays, and is given back by `neater_listener_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_listener_stop(listener: *mut neater_listener) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(listener, "listener") }?.listener()?.stop();
        Ok(())
    })
}

/// Sets what events of the listener, and connections that it receives from now on, have as `user`.
///
/// Lifetime: the pointer is the program's; the library never looks behind it. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_listener_set_user(listener: *mut neater_listener, user: *mut c_void) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(listener, "listener") }?.base.set_user(user);
        Ok(())
    })
}

/// Has the listener's events delivered to a function instead of `neater_poll_event`. NULL takes it
/// away. Its connections have the callback of their preconnection, or one of their own.
///
/// Lifetime: `user` must live as long as the listener is not given back. Thread: any; the function
/// is called from the thread that drives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_listener_set_callback(
    listener: *mut neater_listener,
    callback: neater_event_fn,
    user: *mut c_void,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(listener, "listener") }?.base.set_callback(Callback::of(callback, user));
        Ok(())
    })
}

/// Sets how many connections may still be received (`SetNewConnectionLimit`); UINT64_MAX: any
/// number.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_listener_set_new_connection_limit(
    listener: *mut neater_listener,
    limit: u64,
) -> neater_status {
    guard(|| {
        let limit = (limit != u64::MAX).then_some(limit);
        // SAFETY: the caller's promise.
        unsafe { handle(listener, "listener") }?.listener()?.set_new_connection_limit(limit);
        Ok(())
    })
}

/// Where the transport has streams, delivers groups (NEATER_EVENT_GROUP_RECEIVED) instead of a
/// connection for every stream.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_listener_deliver_groups(listener: *mut neater_listener, groups: bool) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(listener, "listener") }?.listener()?.deliver_groups(groups);
        Ok(())
    })
}

/// The port that all protocols share; 0 if it does not listen any more.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_listener_port(listener: *const neater_listener) -> u16 {
    // SAFETY: the caller's promise.
    guard_or(0, || Ok(unsafe { handle(listener, "listener") }?.listener()?.port()))
}

/// The first UDP port at which SCTP is taken (RFC 6951); 0 if it is not.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_listener_udp_port(listener: *const neater_listener) -> u16 {
    guard_or(0, || {
        // SAFETY: the caller's promise.
        let ports = unsafe { handle(listener, "listener") }?.listener()?.udp_ports();
        Ok(ports.first().copied().unwrap_or(0))
    })
}

/// An address at which a listener listens. `size` is set by the program to
/// `sizeof(neater_listening)`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct neater_listening {
    /// `sizeof(neater_listening)`.
    pub size: usize,
    /// The protocol: a `neater_stack`.
    pub stack: u32,
    /// Not used.
    pub reserved: u32,
    /// Address and port, as text.
    pub address: [c_char; 64],
}

// SAFETY: `repr(C)`, begins with its size, and zeros are a value.
unsafe impl Versioned for neater_listening {
    const FIRST: usize = 80;
}

/// Where the listener listens and with what, by its number, into `*listening`, whose `size` the
/// program has set. NEATER_ERROR_NOT_FOUND beyond the last.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_listener_address(
    listener: *const neater_listener,
    index: usize,
    listening: *mut neater_listening,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let addresses = unsafe { handle(listener, "listener") }?.listener()?.local_addrs();
        let (stack, address) = addresses.get(index).ok_or(neater_status::NEATER_ERROR_NOT_FOUND)?;
        let value = neater_listening {
            size: size_of::<neater_listening>(),
            stack: stack_number(Some(*stack)),
            reserved: 0,
            address: fixed_text(&address.to_string()),
        };
        // SAFETY: the caller's promise.
        unsafe { write_sized(listening, &value, "listening") }
    })
}

/// How many addresses `neater_listener_address` has. Negative: an error.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_listener_address_count(listener: *const neater_listener) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let addresses = unsafe { handle(listener, "listener") }?.listener()?.local_addrs();
        Ok(i64::try_from(addresses.len()).unwrap_or(i64::MAX))
    })
}
