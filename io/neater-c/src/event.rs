//! Events: what has happened, in one tagged union.

use crate::border::{Versioned, guard, guard_or, object_mut, write_sized};
use crate::connection::neater_connection;
use crate::error::neater_error;
use crate::group::neater_group;
use crate::listener::{Place, neater_listener};
use crate::message::neater_message;
use crate::race::neater_race;
use crate::security::User;
use crate::status::neater_status;
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// What has happened (RFC 9622 sections 7 to 11). Beside each: which member of the union is valid.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum neater_event_kind {
    /// Nothing: an event that was cleared.
    NEATER_EVENT_NONE = 0,
    /// The connection is established (`Ready`). No member.
    NEATER_EVENT_READY = 1,
    /// The connection could not be established (`EstablishmentError`): `error`. It is the last
    /// event of the connection.
    NEATER_EVENT_ESTABLISHMENT_ERROR = 2,
    /// A message was handed to the transport (`Sent`): `sent`.
    NEATER_EVENT_SENT = 3,
    /// The lifetime of a message has ended before it was sent (`Expired`): `sent`.
    NEATER_EVENT_EXPIRED = 4,
    /// A message cannot be sent (`SendError`): `error`, with the message's number.
    NEATER_EVENT_SEND_ERROR = 5,
    /// There is room again after NEATER_ERROR_BLOCKED. No member.
    NEATER_EVENT_WRITABLE = 6,
    /// The answer to a receive (`Received`): a whole message, or the last part of one: `received`.
    NEATER_EVENT_RECEIVED = 7,
    /// The answer to a receive (`ReceivedPartial`): more of the message follows, or it is a byte
    /// stream without boundaries: `received`.
    NEATER_EVENT_RECEIVED_PARTIAL = 8,
    /// The answer to a receive: the peer will send no more. No member.
    NEATER_EVENT_RECEIVE_END = 9,
    /// The answer to a receive (`ReceiveError`): `error`.
    NEATER_EVENT_RECEIVE_ERROR = 10,
    /// The network reports something that does not end the connection (`SoftError`): `error`.
    NEATER_EVENT_SOFT_ERROR = 11,
    /// Addresses or paths of the connection have changed (`PathChange`). No member.
    NEATER_EVENT_PATH_CHANGE = 12,
    /// The connection is closed, and what was sent is delivered (`Closed`). No member. It is the
    /// last event of the connection, but for answers to receives.
    NEATER_EVENT_CLOSED = 13,
    /// The connection has failed (`ConnectionError`): `error`. It is the last event of the
    /// connection, but for answers to receives.
    NEATER_EVENT_CONNECTION_ERROR = 14,
    /// A listener, or a group, has a new connection (`ConnectionReceived`): `accepted`.
    NEATER_EVENT_CONNECTION_RECEIVED = 15,
    /// A listener that delivers groups has a new one: `accepted`.
    NEATER_EVENT_GROUP_RECEIVED = 16,
    /// A listener has stopped (`Stopped`). No member. It is the last event of the listener.
    NEATER_EVENT_STOPPED = 17,
    /// A listener cannot take connections for now, and goes on by itself: `error`.
    NEATER_EVENT_LISTENER_ERROR = 18,
    /// The session of a group is over: `error`. It is the last event of the group.
    NEATER_EVENT_GROUP_ENDED = 19,
    /// A plan is ready (`neater_preconnection_plan`): `planned`.
    NEATER_EVENT_PLANNED = 20,
    /// A plan cannot be made, and why: `error`.
    NEATER_EVENT_PLAN_ERROR = 21,
}

use neater_event_kind as K;

/// Which message.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct neater_event_sent {
    /// The number that the sending function gave.
    pub message_id: u64,
}

/// What was received.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct neater_event_received {
    /// The event's own, until it is taken.
    pub message: *mut neater_message,
}

/// What was accepted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct neater_event_accepted {
    /// The new connection: the event's own, until it is taken. NULL for
    /// NEATER_EVENT_GROUP_RECEIVED.
    pub connection: *mut neater_connection,
    /// The new group: the event's own, until it is taken. NULL for
    /// NEATER_EVENT_CONNECTION_RECEIVED.
    pub group: *mut neater_group,
}

/// What has failed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct neater_event_error {
    /// Why: the event's own, until it is taken.
    pub error: *mut neater_error,
    /// Which message, for NEATER_EVENT_SEND_ERROR.
    pub message_id: u64,
}

/// What was planned.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct neater_event_planned {
    /// The candidates in the order in which they would be tried: the event's own, until it is
    /// taken.
    pub race: *mut neater_race,
}

/// What belongs to an event; its `kind` states which member is valid.
#[repr(C)]
#[derive(Clone, Copy)]
pub union neater_event_data {
    /// Of a message that was sent or has expired.
    pub sent: neater_event_sent,
    /// Of a message that was received.
    pub received: neater_event_received,
    /// Of a connection or group that was accepted.
    pub accepted: neater_event_accepted,
    /// Of an error.
    pub error: neater_event_error,
    /// Of a plan.
    pub planned: neater_event_planned,
    /// Room for later versions.
    pub reserved: [u64; 6],
}

/// An event. `size` is set by the program to `sizeof(neater_event)` before the event is taken.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct neater_event {
    /// `sizeof(neater_event)`.
    pub size: usize,
    /// A `neater_event_kind`.
    pub kind: u32,
    /// Not used.
    pub reserved: u32,
    /// The connection whose event it is, or NULL. It stays the program's, and is valid while the
    /// program has not given it back.
    pub connection: *mut neater_connection,
    /// The listener whose event it is, or NULL; likewise.
    pub listener: *mut neater_listener,
    /// The group whose event it is, or NULL; likewise.
    pub group: *mut neater_group,
    /// What the program has set as user of the object.
    pub user: *mut c_void,
    /// What belongs to it.
    pub data: neater_event_data,
}

// SAFETY: `repr(C)`, begins with its size, and zeros are a value.
unsafe impl Versioned for neater_event {
    const FIRST: usize = 96;
}

impl core::fmt::Debug for neater_event {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "neater_event({})", self.kind)
    }
}

/// Called with each event of an object or a context. What belongs to the event is given back when
/// the function returns, unless it was taken (`neater_event_take_message` and its like). The
/// function may call every function of the library, and give back every object, those of the event
/// and the context included; only `neater_process`, `neater_poll_event` and `neater_context_drain`
/// answer NEATER_ERROR_REENTRANT there. It is called from the thread that drives, without any lock
/// held.
pub type neater_event_fn = Option<unsafe extern "C" fn(event: *mut neater_event, user: *mut c_void)>;

/// A callback with what the program gave for it.
#[derive(Clone, Copy)]
pub(crate) struct Callback {
    function: unsafe extern "C" fn(event: *mut neater_event, user: *mut c_void),
    user: User,
}

impl core::fmt::Debug for Callback {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Callback")
    }
}

impl Callback {
    pub(crate) fn of(function: neater_event_fn, user: *mut c_void) -> Option<Self> {
        function.map(|function| Self { function, user: User::new(user) })
    }
}

/// Whose event it is.
#[derive(Clone)]
pub(crate) enum Subject {
    Connection(Weak<neater_connection>),
    Listener(Weak<neater_listener>),
    Group(Weak<neater_group>),
    /// A plan's, with the user that was given for it.
    Plan(User),
}

/// What belongs to an event.
pub(crate) enum Payload {
    None,
    Id(u64),
    Message(Box<neater_message>),
    Error(Box<neater_error>, u64),
    Connection(Arc<neater_connection>, #[allow(dead_code, reason = "it is only dropped")] Place),
    Group(Arc<neater_group>, #[allow(dead_code, reason = "it is only dropped")] Place),
    Race(Box<neater_race>),
}

/// An event on its way to the program.
pub(crate) struct Outgoing {
    pub(crate) subject: Subject,
    pub(crate) kind: neater_event_kind,
    pub(crate) payload: Payload,
}

/// An event whose object the program still has.
pub(crate) struct Living {
    event: neater_event,
    /// The object's own.
    callback: Option<Callback>,
    /// Keeps the object while its callback runs.
    _keeps: Keeps,
}

enum Keeps {
    Connection(#[allow(dead_code, reason = "it is only kept")] Arc<neater_connection>),
    Listener(#[allow(dead_code, reason = "it is only kept")] Arc<neater_listener>),
    Group(#[allow(dead_code, reason = "it is only kept")] Arc<neater_group>),
    Nothing,
}

impl Outgoing {
    pub(crate) fn of(connection: &Arc<neater_connection>, kind: neater_event_kind, payload: Payload) -> Self {
        Self { subject: Subject::Connection(Arc::downgrade(connection)), kind, payload }
    }

    /// Whether the program has a callback for the object.
    pub(crate) fn has_callback(&self) -> bool {
        match &self.subject {
            Subject::Connection(c) => c.upgrade().is_some_and(|c| c.base.callback().is_some()),
            Subject::Listener(l) => l.upgrade().is_some_and(|l| l.base.callback().is_some()),
            Subject::Group(g) => g.upgrade().is_some_and(|g| g.base.callback().is_some()),
            Subject::Plan(_) => false,
        }
    }

    /// The event as C sees it; `None` if the program has given the object back.
    pub(crate) fn living(self) -> Option<Living> {
        let null = core::ptr::null_mut();
        let mut event = neater_event {
            size: size_of::<neater_event>(),
            kind: self.kind as u32,
            reserved: 0,
            connection: null,
            listener: core::ptr::null_mut(),
            group: core::ptr::null_mut(),
            user: core::ptr::null_mut(),
            data: neater_event_data { reserved: [0; 6] },
        };
        let (callback, keeps) = match self.subject {
            Subject::Connection(c) => {
                let c = c.upgrade().filter(|c| !c.base.freed.load(Ordering::Acquire))?;
                (event.connection, event.user) = (Arc::as_ptr(&c).cast_mut(), c.base.user());
                (c.base.callback(), Keeps::Connection(c))
            }
            Subject::Listener(l) => {
                let l = l.upgrade().filter(|l| !l.base.freed.load(Ordering::Acquire))?;
                (event.listener, event.user) = (Arc::as_ptr(&l).cast_mut(), l.base.user());
                (l.base.callback(), Keeps::Listener(l))
            }
            Subject::Group(g) => {
                let g = g.upgrade().filter(|g| !g.base.freed.load(Ordering::Acquire))?;
                (event.group, event.user) = (Arc::as_ptr(&g).cast_mut(), g.base.user());
                (g.base.callback(), Keeps::Group(g))
            }
            Subject::Plan(user) => {
                event.user = user.get();
                (None, Keeps::Nothing)
            }
        };
        match self.payload {
            Payload::None => {}
            Payload::Id(message_id) => event.data.sent = neater_event_sent { message_id },
            Payload::Message(m) => event.data.received = neater_event_received { message: Box::into_raw(m) },
            Payload::Error(e, message_id) => {
                event.data.error = neater_event_error { error: Box::into_raw(e), message_id };
            }
            Payload::Connection(c, _) => {
                let connection = Arc::into_raw(c).cast_mut();
                event.data.accepted = neater_event_accepted { connection, group: core::ptr::null_mut() };
            }
            Payload::Group(g, _) => {
                let group = Arc::into_raw(g).cast_mut();
                event.data.accepted = neater_event_accepted { connection: core::ptr::null_mut(), group };
            }
            Payload::Race(r) => event.data.planned = neater_event_planned { race: Box::into_raw(r) },
        }
        Some(Living { event, callback, _keeps: keeps })
    }
}

impl Living {
    /// Hands it to the object's callback or to this one; false if there is neither.
    pub(crate) fn call(&mut self, otherwise: Option<Callback>) -> bool {
        let Some(callback) = self.callback.or(otherwise) else { return false };
        // SAFETY: the program's own function, with an event that lives until it returns and the
        // pointer that it gave.
        unsafe {
            (callback.function)(&raw mut self.event, callback.user.get());
            clear(&mut self.event);
        }
        true
    }

    /// Hands it to the program.
    ///
    /// # Safety
    /// `out` is NULL, or has as many bytes as it states, which may be written.
    pub(crate) unsafe fn write(mut self, out: *mut neater_event) -> Result<(), crate::border::Failure> {
        // SAFETY: the caller's promise.
        let written = unsafe { write_sized(out, &self.event, "event") };
        if written.is_err() {
            // SAFETY: nothing else has the event.
            unsafe { clear(&mut self.event) };
        }
        written
    }
}

/// Gives back what belongs to an event, as its kind states.
///
/// # Safety
/// Its pointers are NULL or what `Outgoing::living` made, and nothing uses them any more.
unsafe fn clear(event: &mut neater_event) {
    use crate::connection::neater_connection_free;
    let is = |kinds: &[K]| kinds.iter().any(|k| *k as u32 == event.kind);
    // SAFETY: the kind states which member is valid; each pointer is given back once, for the kind
    // is none afterwards.
    unsafe {
        if is(&[K::NEATER_EVENT_RECEIVED, K::NEATER_EVENT_RECEIVED_PARTIAL]) {
            crate::message::neater_message_free(event.data.received.message);
        } else if is(&[K::NEATER_EVENT_CONNECTION_RECEIVED, K::NEATER_EVENT_GROUP_RECEIVED]) {
            neater_connection_free(event.data.accepted.connection);
            crate::group::neater_group_free(event.data.accepted.group);
        } else if is(&[K::NEATER_EVENT_PLANNED]) {
            crate::race::neater_race_free(event.data.planned.race);
        } else if is_error(event.kind) {
            crate::error::neater_error_free(event.data.error.error);
        }
    }
    event.kind = K::NEATER_EVENT_NONE as u32;
    event.data = neater_event_data { reserved: [0; 6] };
}

fn is_error(kind: u32) -> bool {
    [
        K::NEATER_EVENT_ESTABLISHMENT_ERROR,
        K::NEATER_EVENT_SEND_ERROR,
        K::NEATER_EVENT_RECEIVE_ERROR,
        K::NEATER_EVENT_SOFT_ERROR,
        K::NEATER_EVENT_CONNECTION_ERROR,
        K::NEATER_EVENT_LISTENER_ERROR,
        K::NEATER_EVENT_GROUP_ENDED,
        K::NEATER_EVENT_PLAN_ERROR,
    ]
    .iter()
    .any(|k| *k as u32 == kind)
}

/// Gives back what belongs to an event and was not taken: message, error, connection, group or
/// race. NULL is allowed, and so is an event that was cleared. To be called once for each event of
/// `neater_poll_event`, before the struct is used again; callbacks need not.
///
/// Thread: one at a time for an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_event_clear(event: *mut neater_event) -> neater_status {
    if event.is_null() {
        return neater_status::NEATER_OK;
    }
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            crate::border::check_sized(event.cast_const(), "event")?;
            clear(object_mut(event, "event")?);
        }
        Ok(())
    })
}

/// Takes the message out of an event. NULL if it has none, or it was taken.
///
/// Ownership: the caller's, to be given back by `neater_message_free`. Thread: one at a time for an
/// event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_event_take_message(event: *mut neater_event) -> *mut neater_message {
    guard_or(core::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let event = unsafe { object_mut(event, "event") }?;
        let is = [K::NEATER_EVENT_RECEIVED as u32, K::NEATER_EVENT_RECEIVED_PARTIAL as u32].contains(&event.kind);
        if !is {
            return Ok(core::ptr::null_mut());
        }
        // SAFETY: the kind states that this member is valid.
        Ok(core::mem::replace(unsafe { &mut event.data.received.message }, core::ptr::null_mut()))
    })
}

/// Takes the connection out of NEATER_EVENT_CONNECTION_RECEIVED. NULL if it has none, or it was
/// taken. What is not taken is closed when the event is cleared.
///
/// Ownership: the caller's, to be given back by `neater_connection_free`. Thread: one at a time for
/// an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_event_take_connection(event: *mut neater_event) -> *mut neater_connection {
    guard_or(core::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let event = unsafe { object_mut(event, "event") }?;
        if event.kind != K::NEATER_EVENT_CONNECTION_RECEIVED as u32 {
            return Ok(core::ptr::null_mut());
        }
        // SAFETY: the kind states that this member is valid.
        Ok(core::mem::replace(unsafe { &mut event.data.accepted.connection }, core::ptr::null_mut()))
    })
}

/// Takes the group out of NEATER_EVENT_GROUP_RECEIVED. NULL if it has none, or it was taken.
///
/// Ownership: the caller's, to be given back by `neater_group_free`. Thread: one at a time for an
/// event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_event_take_group(event: *mut neater_event) -> *mut neater_group {
    guard_or(core::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let event = unsafe { object_mut(event, "event") }?;
        if event.kind != K::NEATER_EVENT_GROUP_RECEIVED as u32 {
            return Ok(core::ptr::null_mut());
        }
        // SAFETY: the kind states that this member is valid.
        Ok(core::mem::replace(unsafe { &mut event.data.accepted.group }, core::ptr::null_mut()))
    })
}

/// Takes the error out of an event. NULL if it has none, or it was taken.
///
/// Ownership: the caller's, to be given back by `neater_error_free`. Thread: one at a time for an
/// event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_event_take_error(event: *mut neater_event) -> *mut neater_error {
    guard_or(core::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let event = unsafe { object_mut(event, "event") }?;
        if !is_error(event.kind) {
            return Ok(core::ptr::null_mut());
        }
        // SAFETY: the kind states that this member is valid.
        Ok(core::mem::replace(unsafe { &mut event.data.error.error }, core::ptr::null_mut()))
    })
}

/// Takes the race out of NEATER_EVENT_PLANNED. NULL if it has none, or it was taken.
///
/// Ownership: the caller's, to be given back by `neater_race_free`. Thread: one at a time for an
/// event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_event_take_race(event: *mut neater_event) -> *mut neater_race {
    guard_or(core::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let event = unsafe { object_mut(event, "event") }?;
        if event.kind != K::NEATER_EVENT_PLANNED as u32 {
            return Ok(core::ptr::null_mut());
        }
        // SAFETY: the kind states that this member is valid.
        Ok(core::mem::replace(unsafe { &mut event.data.planned.race }, core::ptr::null_mut()))
    })
}

/// The name of a `neater_event_kind` in small letters, as RFC 9622 has it with `_` between words:
/// `ready`, `connection_received`. Never NULL.
///
/// Lifetime: for ever. Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn neater_event_name(kind: u32) -> *const core::ffi::c_char {
    const NAMES: [&core::ffi::CStr; 22] = [
        c"none",
        c"ready",
        c"establishment_error",
        c"sent",
        c"expired",
        c"send_error",
        c"writable",
        c"received",
        c"received_partial",
        c"receive_end",
        c"receive_error",
        c"soft_error",
        c"path_change",
        c"closed",
        c"connection_error",
        c"connection_received",
        c"group_received",
        c"stopped",
        c"listener_error",
        c"group_ended",
        c"planned",
        c"plan_error",
    ];
    usize::try_from(kind).ok().and_then(|k| NAMES.get(k)).unwrap_or(&c"unknown").as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_kind_has_a_name_and_the_next_none() {
        // SAFETY: names are static texts.
        let name = |k: u32| unsafe { core::ffi::CStr::from_ptr(neater_event_name(k)) }.to_str().expect("ASCII");
        assert_eq!(name(K::NEATER_EVENT_PLAN_ERROR as u32), "plan_error");
        assert_eq!(name(K::NEATER_EVENT_CONNECTION_RECEIVED as u32), "connection_received");
        assert_eq!(name(22), "unknown");
    }

    #[test]
    fn what_is_taken_is_not_there_a_second_time() {
        let error = Box::into_raw(Box::new(neater_error::new(neater_status::NEATER_ERROR_OTHER, "x".to_owned())));
        let mut event = Outgoing {
            subject: Subject::Plan(User::new(core::ptr::null_mut())),
            kind: K::NEATER_EVENT_NONE,
            payload: Payload::None,
        }
        .living()
        .expect("no object")
        .event;
        event.kind = K::NEATER_EVENT_PLAN_ERROR as u32;
        event.data.error = neater_event_error { error, message_id: 0 };
        // SAFETY: the event is ours and whole.
        unsafe {
            assert!(neater_event_take_message(&raw mut event).is_null());
            assert_eq!(neater_event_take_error(&raw mut event), error);
            assert!(neater_event_take_error(&raw mut event).is_null());
            assert_eq!(neater_event_clear(&raw mut event), neater_status::NEATER_OK);
            crate::error::neater_error_free(error);
        }
    }
}
