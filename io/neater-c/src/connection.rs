//! Connections (RFC 9622 sections 7 to 10).

use crate::border::{
    Failure, Handle, Versioned, bytes, check_out, guard, guard_or, handle, object, put, read_sized, text, within,
};
use crate::endpoint::neater_local_endpoint;
use crate::error::neater_error;
use crate::event::{Callback, Outgoing, Payload, neater_event_fn, neater_event_kind as K};
use crate::group::neater_group;
use crate::inbox::{Core, Item, Target, waker};
use crate::message::neater_message_context;
use crate::race::neater_race;
use crate::receive::{self, Receives, Wanted};
use crate::status::{neater_status, stack_number};
use bytes::Bytes;
use neater::{Connection, Event, MessageContext, ServiceOutcome, StreamDirection, Value};
use std::ffi::{c_char, c_void};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::Waker;

/// What every object with events has.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) core: Arc<Core>,
    user: AtomicPtr<c_void>,
    callback: Mutex<Option<Callback>>,
    /// The program has given it back.
    pub(crate) freed: AtomicBool,
}

impl Base {
    pub(crate) fn new(core: &Arc<Core>, user: *mut c_void, callback: Option<Callback>) -> Self {
        Self {
            core: core.clone(),
            user: AtomicPtr::new(user),
            callback: Mutex::new(callback),
            freed: AtomicBool::new(false),
        }
    }

    pub(crate) fn given_back(&self) -> Option<neater_status> {
        self.freed.load(Ordering::Acquire).then_some(neater_status::NEATER_ERROR_INVALID_ARGUMENT)
    }

    pub(crate) fn user(&self) -> *mut c_void {
        self.user.load(Ordering::Acquire)
    }

    pub(crate) fn set_user(&self, user: *mut c_void) {
        self.user.store(user, Ordering::Release);
    }

    pub(crate) fn callback(&self) -> Option<Callback> {
        *self.callback.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_callback(&self, callback: Option<Callback>) {
        *self.callback.lock().unwrap_or_else(PoisonError::into_inner) = callback;
    }
}

/// A connection: messages in, messages out, over whichever transport was chosen.
#[derive(Debug)]
pub struct neater_connection {
    pub(crate) base: Base,
    /// There as soon as the program has the object.
    pub(crate) inner: OnceLock<Connection>,
    pub(crate) receives: Mutex<Receives>,
    /// It is established, or was.
    pub(crate) ready: AtomicBool,
    /// It has had its last event.
    pub(crate) over: AtomicBool,
    pub(crate) waker: Waker,
}

impl Handle for neater_connection {
    fn given_back(&self) -> Option<neater_status> {
        self.base.given_back()
    }
}

impl neater_connection {
    pub(crate) fn new(core: &Arc<Core>, user: *mut c_void, callback: Option<Callback>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            base: Base::new(core, user, callback),
            inner: OnceLock::new(),
            receives: Mutex::default(),
            ready: AtomicBool::new(false),
            over: AtomicBool::new(false),
            waker: waker(core, Target::Connection(me.clone())),
        })
    }

    /// The function that reports its events.
    pub(crate) fn reporter(self: &Arc<Self>) -> impl Fn(&Event) + Send + Sync + use<> {
        let (me, core): (Weak<Self>, _) = (Arc::downgrade(self), self.base.core.clone());
        move |event: &Event| {
            // A waker reports it where a receive waits.
            if !matches!(event, Event::Readable | Event::Timeline(_)) {
                core.push(Item::Event(me.clone(), event.clone()));
            }
        }
    }

    /// A connection that was opened or accepted without a function for its events.
    pub(crate) fn adopt(
        core: &Arc<Core>,
        (user, callback): (*mut c_void, Option<Callback>),
        connection: Connection,
        accepted: bool,
    ) -> Arc<Self> {
        let this = Self::new(core, user, callback);
        this.ready.store(accepted, Ordering::Release);
        connection.on_event(this.reporter());
        // It is the only one that sets it.
        let _ = this.inner.set(connection);
        this
    }

    pub(crate) fn connection(&self) -> Result<&Connection, Failure> {
        self.inner.get().ok_or_else(|| neater_status::NEATER_ERROR_STATE.into())
    }

    pub(crate) fn set_property(&self, name: &str, value: Value) -> Result<(), Failure> {
        let connection = self.connection()?;
        connection.set(name, value).map_err(|e| {
            let status = match connection.get(name) {
                None => neater_status::NEATER_ERROR_NOT_FOUND,
                Some(_) => neater_status::NEATER_ERROR_INVALID_VALUE,
            };
            Failure::new(status, e.to_string())
        })
    }

    /// What has happened becomes an event of C.
    pub(crate) fn settle(self: &Arc<Self>, event: Event) {
        let error = |e: neater_error, id| Payload::Error(Box::new(e), id);
        let (kind, payload) = match event {
            Event::Ready => {
                // A connection that was accepted is ready from the first.
                if self.ready.swap(true, Ordering::AcqRel) {
                    return;
                }
                self.base.core.publish(Outgoing::of(self, K::NEATER_EVENT_READY, Payload::None));
                return receive::attempt(self);
            }
            Event::EstablishmentError(e) => {
                receive::give_up(self);
                self.over.store(true, Ordering::Release);
                (K::NEATER_EVENT_ESTABLISHMENT_ERROR, error(neater_error::of_establishment(&e), 0))
            }
            Event::Writable => (K::NEATER_EVENT_WRITABLE, Payload::None),
            Event::Sent(id) => (K::NEATER_EVENT_SENT, Payload::Id(id.0)),
            Event::Expired(id) => (K::NEATER_EVENT_EXPIRED, Payload::Id(id.0)),
            Event::SendError(id, e) => (K::NEATER_EVENT_SEND_ERROR, error(neater_error::of_send(&e), id.0)),
            Event::SoftError(e) => {
                let text = format!("ICMP type {}, code {}: {}", e.icmp_type, e.icmp_code, e.error);
                let soft = neater_error::new(neater_status::of_network(e.error.kind), text);
                (K::NEATER_EVENT_SOFT_ERROR, error(soft, 0))
            }
            Event::PathChange => (K::NEATER_EVENT_PATH_CHANGE, Payload::None),
            Event::Closed => {
                self.end();
                (K::NEATER_EVENT_CLOSED, Payload::None)
            }
            Event::ConnectionError(e) => {
                self.end();
                (K::NEATER_EVENT_CONNECTION_ERROR, error(neater_error::of_connection(&e), 0))
            }
            _ => return,
        };
        self.base.core.publish(Outgoing::of(self, kind, payload));
    }

    /// It is over: what has come answers its receives, and the others learn that nothing more does.
    fn end(self: &Arc<Self>) {
        self.over.store(true, Ordering::Release);
        if self.ready.load(Ordering::Acquire) {
            receive::attempt(self);
        } else {
            receive::give_up(self);
        }
    }
}

/// Another owner of an object that the program has.
///
/// # Safety
/// `p` is NULL, or came from `Arc::into_raw` and was not given back.
pub(crate) unsafe fn shared<T: Handle>(p: *const T, what: &str) -> Result<Arc<T>, Failure> {
    // SAFETY: the caller's promise: the count is one at least, and one more is taken before the
    // owner is made.
    unsafe {
        handle(p, what)?;
        Arc::increment_strong_count(p);
        Ok(Arc::from_raw(p))
    }
}

/// Gives a connection back. NULL is allowed. It closes in order: what was sent is still delivered
/// while the context is driven, but no event of the connection comes any more.
/// `neater_connection_abort` before this ends it at once.
///
/// Ownership: the object is gone afterwards. Thread: any; also from within a callback, and after
/// the context was given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_free(connection: *mut neater_connection) {
    if !connection.is_null() {
        guard_or((), || {
            // SAFETY: the caller's promise; a second time is noticed where the library still has
            // it.
            unsafe { handle(connection, "connection") }?;
            // SAFETY: it came from `Arc::into_raw`, and was not given back before.
            let connection = unsafe { Arc::from_raw(connection.cast_const()) };
            connection.base.freed.store(true, Ordering::Release);
            Ok(())
        });
    }
}

/// Sets what events of the connection have as `user`.
///
/// Lifetime: the pointer is the program's; the library never looks behind it. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_set_user(
    connection: *mut neater_connection,
    user: *mut c_void,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(connection, "connection") }?.base.set_user(user);
        Ok(())
    })
}

/// What events of the connection have as `user`; NULL for NULL.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_get_user(connection: *const neater_connection) -> *mut c_void {
    // SAFETY: the caller's promise.
    guard_or(core::ptr::null_mut(), || Ok(unsafe { handle(connection, "connection") }?.base.user()))
}

/// Has the connection's events delivered to a function instead of `neater_poll_event`. NULL takes
/// it away.
///
/// Lifetime: `user` must live as long as the connection is not given back. Thread: any; the
/// function is called from the thread that drives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_set_callback(
    connection: *mut neater_connection,
    callback: neater_event_fn,
    user: *mut c_void,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(connection, "connection") }?.base.set_callback(Callback::of(callback, user));
        Ok(())
    })
}

/// Sends a message (`Send`). From NEATER_OK on it is delivered, or reported as expired or unsent;
/// NEATER_EVENT_SENT reports that the transport has it. NEATER_ERROR_BLOCKED: there is no room,
/// nothing was taken, and NEATER_EVENT_WRITABLE follows. `context` has the message's properties;
/// NULL: those of the connection. `message_id` receives the number that events have; NULL is
/// allowed.
///
/// While the connection is being established messages wait.
///
/// Ownership: the bytes are copied. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_send(
    connection: *mut neater_connection,
    data: *const c_void,
    length: usize,
    context: *const neater_message_context,
    message_id: *mut u64,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (c, data) = unsafe { (handle(connection, "connection")?, bytes(data, length, "data")?) };
        // SAFETY: the caller's promise.
        unsafe { send(c, Bytes::copy_from_slice(data), context, message_id, None) }
    })
}

/// Sends a part of a message (RFC 9622 section 9.2.3), as `neater_connection_send` does. Parts
/// belong together until one has `end_of_message`; until then no other message can be sent where
/// messages have boundaries. Datagrams cannot be sent in parts.
///
/// Ownership: the bytes are copied. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_send_partial(
    connection: *mut neater_connection,
    data: *const c_void,
    length: usize,
    end_of_message: bool,
    context: *const neater_message_context,
    message_id: *mut u64,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (c, data) = unsafe { (handle(connection, "connection")?, bytes(data, length, "data")?) };
        // SAFETY: the caller's promise.
        unsafe { send(c, Bytes::copy_from_slice(data), context, message_id, Some(end_of_message)) }
    })
}

/// Called when the library needs bytes no more that `neater_connection_send_owned` was given. It
/// may be called from any thread that drives or calls a function, once. Functions of contexts, and
/// of what was made from them, answer NEATER_ERROR_REENTRANT there.
pub type neater_release_fn = Option<unsafe extern "C" fn(data: *const c_void, user: *mut c_void)>;

/// The program's bytes.
struct Owned {
    data: *const c_void,
    length: usize,
    release: neater_release_fn,
    user: *mut c_void,
}

// SAFETY: the bytes are not changed while they are here, and the manual states that the release
// comes from any thread.
unsafe impl Send for Owned {}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the program's promise: so many bytes are there until the release; checked not to
        // be NULL or too long.
        unsafe { core::slice::from_raw_parts(self.data.cast(), self.length) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the program's own function, with what it gave.
            within(|| unsafe { release(self.data, self.user) });
        }
    }
}

/// Sends a message without copying it, as `neater_connection_send` does otherwise. `release` is
/// called when the bytes are needed no more, also after an error, but for
/// NEATER_ERROR_INVALID_ARGUMENT, NEATER_ERROR_REENTRANT and NEATER_ERROR_BLOCKED, after which they
/// are the program's still.
///
/// Ownership: the bytes are the library's, unchanged, until `release` is called. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_send_owned(
    connection: *mut neater_connection,
    data: *const c_void,
    length: usize,
    release: neater_release_fn,
    user: *mut c_void,
    context: *const neater_message_context,
    message_id: *mut u64,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let c = unsafe {
            bytes(data, length, "data")?;
            handle(connection, "connection")?
        };
        if length == 0 {
            return Err(Failure::argument("an empty message has nothing to own: use neater_connection_send"));
        }
        let armed = Arc::new(AtomicBool::new(true));
        let owned =
            Bytes::from_owner(Unless { owned: Some(Owned { data, length, release, user }), armed: armed.clone() });
        // Kept here too, so that it is not released before it is known whether it is.
        let kept = owned.clone();
        // SAFETY: the caller's promise.
        let sent = unsafe { send(c, owned, context, message_id, None) };
        if matches!(sent, Err(Failure::Status(neater_status::NEATER_ERROR_BLOCKED))) {
            armed.store(false, Ordering::Release);
        }
        drop(kept);
        sent
    })
}

/// The program's bytes, which may turn out to be its own still.
struct Unless {
    owned: Option<Owned>,
    armed: Arc<AtomicBool>,
}

impl AsRef<[u8]> for Unless {
    fn as_ref(&self) -> &[u8] {
        self.owned.as_ref().map_or(&[], AsRef::as_ref)
    }
}

impl Drop for Unless {
    fn drop(&mut self) {
        if !self.armed.load(Ordering::Acquire)
            && let Some(owned) = &mut self.owned
        {
            owned.release = None;
        }
    }
}

/// # Safety
/// The pointers are as the functions that send promise.
unsafe fn send(
    c: &neater_connection,
    data: Bytes,
    context: *const neater_message_context,
    message_id: *mut u64,
    partial: Option<bool>,
) -> Result<(), Failure> {
    let none = MessageContext::new();
    // SAFETY: the caller's promise.
    let context = unsafe { context.as_ref() }.map_or(&none, |c| &c.inner);
    let connection = c.connection()?;
    let id = match partial {
        None => connection.try_send(data, context)?,
        Some(end) => connection.try_send_partial(data, context, end)?,
    };
    if !message_id.is_null() {
        // SAFETY: the caller's promise.
        unsafe { put(message_id, id.0, "message_id")? };
    }
    Ok(())
}

/// Hints that several sends follow, which may be put together (`StartBatch`).
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_start_batch(connection: *mut neater_connection) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(connection, "connection") }?.connection()?.start_batch();
        Ok(())
    })
}

/// The batch is complete (`EndBatch`): it is sent.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_end_batch(connection: *mut neater_connection) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(connection, "connection") }?.connection()?.end_batch();
        Ok(())
    })
}

/// What a receive asks for. `size` is set by the program to `sizeof(neater_receive_options)`; zeros
/// are defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct neater_receive_options {
    /// `sizeof(neater_receive_options)`.
    pub size: usize,
    /// `minIncompleteLength`: fewer bytes than this are no answer, unless the message ends with
    /// them. 0: any.
    pub min_incomplete_length: usize,
    /// `maxLength`: longer messages are delivered in parts of at most so many bytes. 0: whole
    /// messages; of a byte stream without boundaries, what has arrived.
    pub max_length: usize,
}

// SAFETY: `repr(C)`, begins with its size, and zeros are a value.
unsafe impl Versioned for neater_receive_options {
    const FIRST: usize = 24;
}

/// Asks for the next message (`Receive`). Each call is answered by exactly one event:
/// NEATER_EVENT_RECEIVED, NEATER_EVENT_RECEIVED_PARTIAL, NEATER_EVENT_RECEIVE_END or
/// NEATER_EVENT_RECEIVE_ERROR, in the order of the calls. Several may wait, 65,536 at most. Without
/// a receive nothing is delivered, and the peer is slowed down where the protocol can. It may be
/// called before the connection is established, and after its end for what has arrived until then.
/// NULL options are the defaults.
///
/// Ownership: the message belongs to the event. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_receive(
    connection: *mut neater_connection,
    options: *const neater_receive_options,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (c, options) = unsafe { (shared(connection, "connection")?, read_sized(options)?) };
        let wanted = options.map_or(Wanted { min: 0, max: None }, |o| {
            // With a minimum alone, a part is what is asked for.
            let most = if o.max_length == 0 { usize::MAX } else { o.max_length };
            let max = (o.max_length > 0 || o.min_incomplete_length > 0).then_some(most);
            Wanted { min: o.min_incomplete_length, max }
        });
        if wanted.max.is_some_and(|max| max < wanted.min) {
            return Err(Failure::argument("max_length is less than min_incomplete_length"));
        }
        if c.base.core.gone.load(Ordering::Acquire) {
            return Err(neater_status::NEATER_ERROR_NO_CONTEXT.into());
        }
        if !c.receives.lock().unwrap_or_else(PoisonError::into_inner).add(wanted) {
            let text = format!("{} receives wait already", receive::MAX);
            return Err(Failure::new(neater_status::NEATER_ERROR_EXHAUSTED, text));
        }
        match c.ready.load(Ordering::Acquire) {
            false if c.over.load(Ordering::Acquire) => receive::give_up(&c),
            _ => receive::attempt(&c),
        }
        Ok(())
    })
}

/// Ends this side's direction: what was sent is delivered, and the peer sees the end (half-close).
/// Receiving goes on.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_finish(connection: *mut neater_connection) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        Ok(unsafe { handle(connection, "connection") }?.connection()?.finish()?)
    })
}

/// Closes the connection (`Close`): what was sent is delivered, and NEATER_EVENT_CLOSED or
/// NEATER_EVENT_CONNECTION_ERROR follows.
///
/// Thread: any. The object stays, and is given back by `neater_connection_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_close(connection: *mut neater_connection) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let c = unsafe { handle(connection, "connection") }?.connection()?;
        // The closing does not depend on being waited for; events report its end.
        let mut closing = core::pin::pin!(c.close());
        let _ = closing.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop()));
        Ok(())
    })
}

/// Ends the connection at once (`Abort`), with an application error code where the protocol has
/// them (QUIC). Nothing more is delivered; NEATER_EVENT_CONNECTION_ERROR with NEATER_ERROR_ABORTED
/// follows.
///
/// Thread: any. The object stays, and is given back by `neater_connection_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_abort(connection: *mut neater_connection, code: u64) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(connection, "connection") }?.connection()?.abort_with(code);
        Ok(())
    })
}

/// Abandons the sending direction, with an application error code where the protocol has them
/// (QUIC, SCTP). TCP and TLS cannot: there the connection is aborted, unless all was sent.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_reset_sending(
    connection: *mut neater_connection,
    code: u64,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(connection, "connection") }?.connection()?.reset_sending(code);
        Ok(())
    })
}

/// Refuses what the peer may still send, with an application error code where the protocol has them
/// (QUIC).
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_stop_receiving(
    connection: *mut neater_connection,
    code: u64,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(connection, "connection") }?.connection()?.stop_receiving(code);
        Ok(())
    })
}

/// Adds a connection to this one's group (`Clone`), into `*clone`: a stream where the transport has
/// them, another transport connection otherwise. NEATER_EVENT_READY follows. With `one_way` only
/// this side sends on it. It has the user and the callback of the first.
///
/// Ownership: the clone is the caller's, to be given back by `neater_connection_free`. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_clone(
    connection: *mut neater_connection,
    one_way: bool,
    clone: *mut *mut neater_connection,
) -> neater_status {
    guard(|| {
        check_out(clone, "clone")?;
        // SAFETY: the caller's promise.
        let c = unsafe { handle(connection, "connection") }?;
        let direction = if one_way { StreamDirection::One } else { StreamDirection::Both };
        let made = c.connection()?.clone_in_direction(direction)?;
        let made = neater_connection::adopt(&c.base.core, (c.base.user(), c.base.callback()), made, false);
        // SAFETY: the caller's promise.
        unsafe { put(clone, Arc::into_raw(made).cast_mut(), "clone") }
    })
}

/// The group of the connection, into `*group`. While the object is kept, streams that the peer
/// opens come to it as NEATER_EVENT_CONNECTION_RECEIVED.
///
/// Ownership: the caller's, to be given back by `neater_group_free`. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_group(
    connection: *mut neater_connection,
    group: *mut *mut neater_group,
) -> neater_status {
    guard(|| {
        check_out(group, "group")?;
        // SAFETY: the caller's promise.
        let c = unsafe { handle(connection, "connection") }?;
        let made = neater_group::adopt(&c.base.core, (c.base.user(), c.base.callback()), c.connection()?.group()?);
        // SAFETY: the caller's promise.
        unsafe { put(group, Arc::into_raw(made).cast_mut(), "group") }
    })
}

/// A change of the addresses of a connection, by the number of `neater_connection_change_endpoint`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum neater_endpoint_change {
    /// Use it, too (`AddRemote`, `AddLocal`).
    NEATER_ENDPOINT_ADD = 0,
    /// Use it no more (`RemoveRemote`, `RemoveLocal`).
    NEATER_ENDPOINT_REMOVE = 1,
}

/// Adds or removes (`neater_endpoint_change`) an address of the peer's, as text with its port below
/// the transport: `192.0.2.1:9899` (RFC 9622 section 7.5).
///
/// Ownership: the text is copied. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_change_remote(
    connection: *mut neater_connection,
    change: u32,
    address: *const c_char,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (c, address) = unsafe { (handle(connection, "connection")?, text(address, "address")?) };
        let address: SocketAddr = address.parse().map_err(|_| {
            let text = "the address must be ADDRESS:PORT, as 192.0.2.1:9899 or [2001:db8::1]:9899";
            Failure::new(neater_status::NEATER_ERROR_PARSE, text)
        })?;
        match change {
            0 => Ok(c.connection()?.add_remote(address)?),
            1 => Ok(c.connection()?.remove_remote(address)?),
            _ => Err(Failure::argument("change is no neater_endpoint_change")),
        }
    })
}

/// Adds or removes (`neater_endpoint_change`) an address or interface of this host (RFC 9622
/// section 7.5).
///
/// Ownership: the endpoint is copied. Thread: any for the connection, one at a time for the
/// endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_change_local(
    connection: *mut neater_connection,
    change: u32,
    endpoint: *const neater_local_endpoint,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (c, endpoint) = unsafe { (handle(connection, "connection")?, object(endpoint, "endpoint")?) };
        match change {
            0 => Ok(c.connection()?.add_local(&endpoint.inner)?),
            1 => Ok(c.connection()?.remove_local(&endpoint.inner)?),
            _ => Err(Failure::argument("change is no neater_endpoint_change")),
        }
    })
}

/// How the connection served, by the number of `neater_connection_report`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum neater_service_outcome {
    /// What was asked over it was answered.
    NEATER_SERVICE_ANSWERED = 0,
    /// What was asked over it was not answered.
    NEATER_SERVICE_SILENT = 1,
    /// The peer broke the rules of what was spoken over it.
    NEATER_SERVICE_BROKEN = 2,
    /// The peer demanded another protocol.
    NEATER_SERVICE_WANTS_OTHER = 3,
}

/// Reports how the connection served (`neater_service_outcome`): later connections to the same
/// endpoint try other candidates first after a report against it. The connection goes on.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_report(connection: *mut neater_connection, outcome: u32) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let c = unsafe { handle(connection, "connection") }?;
        let outcome = match outcome {
            0 => ServiceOutcome::Answered,
            1 => ServiceOutcome::Silent,
            2 => ServiceOutcome::Broken,
            3 => ServiceOutcome::WantsOther,
            _ => return Err(Failure::argument("outcome is no neater_service_outcome")),
        };
        c.connection()?.report(outcome);
        Ok(())
    })
}

/// How establishment went, into `*race`: every candidate and every step. Empty lists where the
/// outcome of an earlier race was used, and for connections that were accepted.
///
/// Ownership: the caller's, to be given back by `neater_race_free`. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_race(
    connection: *const neater_connection,
    race: *mut *mut neater_race,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let c = unsafe { handle(connection, "connection") }?.connection()?;
        // SAFETY: the caller's promise.
        unsafe { crate::race::give(race, neater_race::of_connection(&c.candidates(), &c.timeline())) }
    })
}

/// The protocol that carries the connection, a `neater_stack`; NEATER_STACK_NONE while none is
/// chosen.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_stack(connection: *const neater_connection) -> u32 {
    guard_or(0, || {
        // SAFETY: the caller's promise.
        Ok(stack_number(unsafe { handle(connection, "connection") }?.connection()?.stack()))
    })
}
