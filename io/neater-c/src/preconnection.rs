//! Preconnections (RFC 9622 section 6): endpoints, needs and security, before there is a
//! connection.

use crate::border::{
    Failure, bytes, check_out, give_back, guard, guard_number, guard_or, object, object_mut, outside, put, put_text,
    text,
};
use crate::connection::{neater_connection, shared};
use crate::context::neater_context;
use crate::endpoint::{neater_local_endpoint, neater_remote_endpoint, remote_of};
use crate::event::{Callback, Outgoing, Payload, Subject, neater_event_fn, neater_event_kind as K};
use crate::inbox::{Item, Target, Task};
use crate::listener::neater_listener;
use crate::message::neater_message_context;
use crate::properties::neater_transport_properties;
use crate::race::neater_race;
use crate::security::{User, neater_security_parameters};
use crate::status::{neater_status, role, stack, stack_number};
use bytes::Bytes;
use core::time::Duration;
use neater::{FramerSpec, MessageContext, Preconnection, Request, TransportProperties};
use neater_property::Role;
use std::ffi::{c_char, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// What connections and listeners are made from (`Preconnection` of RFC 9622). It can be used any
/// number of times, and changing it afterwards does not affect what was made from it.
#[derive(Debug)]
pub struct neater_preconnection {
    context: Arc<neater_context>,
    inner: Preconnection,
    callback: Option<Callback>,
    user: *mut c_void,
    /// Compiled the first time, until something is changed.
    compiled: [Option<Request>; 2],
}

impl neater_preconnection {
    fn change(&mut self, f: impl FnOnce(Preconnection) -> Preconnection) {
        self.compiled = [None, None];
        self.inner = f(self.inner.clone());
    }

    fn request(&mut self, role: Role) -> Result<Request, Failure> {
        let at = usize::from(role == Role::Listen);
        if let Some(r) = &self.compiled[at] {
            return Ok(r.clone());
        }
        let made = self.inner.clone().compile(role)?;
        Ok(self.compiled[at].insert(made).clone())
    }

    fn living(&self) -> Result<(), Failure> {
        match self.context.core.gone.load(Ordering::Acquire) {
            true => Err(neater_status::NEATER_ERROR_NO_CONTEXT.into()),
            false => Ok(()),
        }
    }
}

/// A preconnection, which is not to be used while the engine is at work.
///
/// # Safety
/// As [`object_mut`].
unsafe fn own<'a>(preconnection: *mut neater_preconnection) -> Result<&'a mut neater_preconnection, Failure> {
    outside()?;
    // SAFETY: the caller's promise.
    unsafe { object_mut(preconnection, "preconnection") }
}

/// Makes a preconnection without endpoints and with the defaults of RFC 9622 (`NewPreconnection`),
/// into `*preconnection`. Security is on unless it is switched off.
///
/// Ownership: the caller's, to be given back by `neater_preconnection_free`. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_new(
    context: *mut neater_context,
    preconnection: *mut *mut neater_preconnection,
) -> neater_status {
    guard(|| {
        check_out(preconnection, "preconnection")?;
        // SAFETY: the caller's promise.
        let context = unsafe { shared(context, "context") }?;
        let inner = context.neater.preconnection();
        let made = neater_preconnection {
            context,
            inner,
            callback: None,
            user: core::ptr::null_mut(),
            compiled: [None, None],
        };
        // SAFETY: the caller's promise.
        unsafe { put(preconnection, Box::into_raw(Box::new(made)), "preconnection") }
    })
}

/// Gives a preconnection back. NULL is allowed. What was made from it goes on.
///
/// Ownership: it is gone afterwards. Thread: any; also after the context was given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_free(preconnection: *mut neater_preconnection) {
    // SAFETY: it came from `Box::into_raw`, and the caller gives it back once.
    guard_or((), || outside().map(|()| unsafe { give_back(preconnection) }));
}

/// Adds a remote endpoint. Several offer the same service, and any may be chosen.
///
/// Ownership: the endpoint is copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_add_remote(
    preconnection: *mut neater_preconnection,
    endpoint: *const neater_remote_endpoint,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (p, e) = unsafe { (own(preconnection)?, object(endpoint, "endpoint")?) };
        p.change(|inner| inner.remote(e.inner.clone()));
        Ok(())
    })
}

/// Adds a remote endpoint that a text names: `host:port`, `192.0.2.1:443` or `[2001:db8::1]:443`.
///
/// Ownership: the text is copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_add_remote_text(
    preconnection: *mut neater_preconnection,
    host_and_port: *const c_char,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (p, t) = unsafe { (own(preconnection)?, text(host_and_port, "host_and_port")?) };
        let endpoint = remote_of(t)?;
        p.change(|inner| inner.remote(endpoint));
        Ok(())
    })
}

/// Adds a local endpoint.
///
/// Ownership: the endpoint is copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_add_local(
    preconnection: *mut neater_preconnection,
    endpoint: *const neater_local_endpoint,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (p, e) = unsafe { (own(preconnection)?, object(endpoint, "endpoint")?) };
        p.change(|inner| inner.local(e.inner.clone()));
        Ok(())
    })
}

/// Sets what is asked of the transport.
///
/// Ownership: the properties are copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_set_properties(
    preconnection: *mut neater_preconnection,
    properties: *const neater_transport_properties,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (p, t) = unsafe { (own(preconnection)?, object(properties, "properties")?) };
        p.change(|inner| inner.properties(t.inner.clone()));
        Ok(())
    })
}

/// Sets what is asked in words: `"reliable, low-delay, tls13"`. Words about security count, too:
/// without `neater_preconnection_set_security` they decide alone.
///
/// Ownership: the text is copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_set_needs(
    preconnection: *mut neater_preconnection,
    words: *const c_char,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (p, words) = unsafe { (own(preconnection)?, text(words, "words")?) };
        // Once for the error: the words are taken only if they are understood.
        let parse = |e: neater::ParseError| Failure::new(neater_status::NEATER_ERROR_PARSE, e.to_string());
        TransportProperties::parse(words).map_err(parse)?;
        p.compiled = [None, None];
        p.inner = p.inner.clone().needs(words).map_err(parse)?;
        Ok(())
    })
}

/// Sets what is asked of security.
///
/// Ownership: the parameters are copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_set_security(
    preconnection: *mut neater_preconnection,
    security: *const neater_security_parameters,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (p, s) = unsafe { (own(preconnection)?, object(security, "security")?) };
        p.change(|inner| inner.security(s.inner.clone()));
        Ok(())
    })
}

/// How messages are framed over byte streams, by the number of `neater_preconnection_set_framer`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum neater_framer {
    /// Not at all: all bytes of a direction are one message; a datagram is a message.
    NEATER_FRAMER_NONE = 0,
    /// By a length of 1, 2, 4 or 8 bytes in network order before each message.
    NEATER_FRAMER_LENGTH_1 = 1,
    /// As above, with 2 bytes.
    NEATER_FRAMER_LENGTH_2 = 2,
    /// As above, with 4 bytes.
    NEATER_FRAMER_LENGTH_4 = 4,
    /// As above, with 8 bytes.
    NEATER_FRAMER_LENGTH_8 = 8,
    /// By lines that end with LF; CR LF is accepted.
    NEATER_FRAMER_LINES = 16,
    /// By lines that are sent with CR LF, as most protocols of the Internet have it.
    NEATER_FRAMER_LINES_CRLF = 17,
}

/// Sets how messages are framed over byte streams (`AddFramer`): a `neater_framer`, and the longest
/// message accepted, in bytes. Without one, protocols that keep messages apart and those that join
/// them are not candidates of one connection.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_set_framer(
    preconnection: *mut neater_preconnection,
    framer: u32,
    longest: u64,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let p = unsafe { own(preconnection) }?;
        let lines = |crlf| FramerSpec::Lines { max: usize::try_from(longest).unwrap_or(usize::MAX), crlf };
        let spec = match framer {
            0 => FramerSpec::Raw,
            1 => FramerSpec::LengthPrefixed { width: 1, max: longest },
            2 => FramerSpec::LengthPrefixed { width: 2, max: longest },
            4 => FramerSpec::LengthPrefixed { width: 4, max: longest },
            8 => FramerSpec::LengthPrefixed { width: 8, max: longest },
            16 => lines(false),
            17 => lines(true),
            _ => return Err(Failure::argument(format!("{framer} is no neater_framer"))),
        };
        if framer != 0 && longest == 0 {
            return Err(Failure::argument("the longest message has 0 bytes: nothing could be sent"));
        }
        p.change(|inner| inner.framer(spec));
        Ok(())
    })
}

/// Lets only these stacks (`neater_stack`) serve, whatever the properties are; none: all. For
/// diagnosis and experiments: a program that names protocols gives up what this library is for.
///
/// Ownership: the numbers are copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_set_stacks(
    preconnection: *mut neater_preconnection,
    stacks: *const u32,
    count: usize,
) -> neater_status {
    guard(|| {
        let length = count.checked_mul(size_of::<u32>()).ok_or(neater_status::NEATER_ERROR_INVALID_ARGUMENT)?;
        // SAFETY: the caller's promise.
        let (p, raw) = unsafe { (own(preconnection)?, bytes(stacks.cast(), length, "stacks")?) };
        let number = |b: &[u8]| b.try_into().map(u32::from_ne_bytes).ok();
        let found: Option<Vec<_>> = raw.chunks_exact(size_of::<u32>()).map(|b| number(b).and_then(stack)).collect();
        let found = found.ok_or_else(|| Failure::argument("one of the numbers is no neater_stack"))?;
        p.change(|inner| inner.stacks(&found));
        Ok(())
    })
}

/// Sets a property beyond those of RFC 9622 for policies to look at, such as `profile` and
/// `flow_size`; the value is a text, or a number or Boolean where it reads as one.
///
/// Ownership: both texts are copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_set_policy_property(
    preconnection: *mut neater_preconnection,
    name: *const c_char,
    value: *const c_char,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let p = unsafe { own(preconnection) }?;
        // SAFETY: the caller's promise.
        let (name, value) = unsafe { (text(name, "name")?, text(value, "value")?) };
        p.change(|inner| inner.policy_property(name, value));
        Ok(())
    })
}

/// Sets how long establishment may take in all, in milliseconds.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_set_timeout(
    preconnection: *mut neater_preconnection,
    milliseconds: u64,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let p = unsafe { own(preconnection) }?;
        p.change(|inner| inner.timeout(Duration::from_millis(milliseconds)));
        Ok(())
    })
}

/// Sets the user and the callback that connections and listeners made from this have from the
/// first, and connections that these listeners receive. NULL: events go to the context's callback
/// or to `neater_poll_event`.
///
/// Lifetime: `user` must live as long as any of them is not given back. Thread: one at a time for
/// an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_set_callback(
    preconnection: *mut neater_preconnection,
    callback: neater_event_fn,
    user: *mut c_void,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let p = unsafe { own(preconnection) }?;
        (p.callback, p.user) = (Callback::of(callback, user), user);
        Ok(())
    })
}

/// Checks what was asked for a role (`neater_role`), and compiles it for all that are made from
/// this later. Sends nothing.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_compile(
    preconnection: *mut neater_preconnection,
    as_role: u32,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let p = unsafe { own(preconnection) }?;
        let role = role(as_role).ok_or_else(|| Failure::argument("as_role is no neater_role"))?;
        p.request(role).map(drop)
    })
}

/// The stacks that may serve for a role (`neater_role`) by their number, best first, as
/// `neater_stack`. NEATER_ERROR_NOT_FOUND beyond the last.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_stack(
    preconnection: *mut neater_preconnection,
    as_role: u32,
    index: usize,
) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let p = unsafe { own(preconnection) }?;
        let role = role(as_role).ok_or_else(|| Failure::argument("as_role is no neater_role"))?;
        let request = p.request(role)?;
        let found = request.stacks().get(index).ok_or(neater_status::NEATER_ERROR_NOT_FOUND)?;
        Ok(stack_number(Some(*found)).into())
    })
}

/// Why candidates stand where they do for a role (`neater_role`): what was asked, what the ranking
/// is made of, what is ruled out, and with `remote`, which may be NULL, what policies do to
/// connections to it, with file and line. Lines of text, as far as they fit into `room` bytes with
/// a zero byte behind them. Returns how long all of it is without that byte, or a negative status.
/// Nothing is sent.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_explain(
    preconnection: *mut neater_preconnection,
    as_role: u32,
    remote: *const neater_remote_endpoint,
    buffer: *mut c_char,
    room: usize,
) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let p = unsafe { own(preconnection) }?;
        let role = role(as_role).ok_or_else(|| Failure::argument("as_role is no neater_role"))?;
        let request = p.request(role)?;
        let mut lines = neater::explain(request.policy());
        // SAFETY: the caller's promise.
        if let Some(remote) = unsafe { remote.as_ref() }
            && let Some(story) = p.context.neater.explain_policies(&request, &remote.inner)
        {
            lines.extend(story.lines());
        }
        // SAFETY: the caller's promise.
        unsafe { put_text(buffer, room, &lines.join("\n")) }
    })
}

/// Opens a connection (`Initiate`), into `*connection`. Establishment begins at once, and
/// NEATER_EVENT_READY or NEATER_EVENT_ESTABLISHMENT_ERROR follows; messages may be sent and
/// receives asked for before that.
///
/// What can be known before anything is sent is answered at once:
/// NEATER_ERROR_INVALID_CONFIGURATION, NEATER_ERROR_NO_CANDIDATES, NEATER_ERROR_PROHIBITED and
/// others; `neater_last_error` has the candidates then.
///
/// Ownership: the caller's, to be given back by `neater_connection_free`. Thread: one at a time for
/// a preconnection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_initiate(
    preconnection: *mut neater_preconnection,
    connection: *mut *mut neater_connection,
) -> neater_status {
    guard(|| {
        check_out(connection, "connection")?;
        // SAFETY: the caller's promise.
        let p = unsafe { own(preconnection) }?;
        let made = initiate(p, None)?;
        // SAFETY: the caller's promise.
        unsafe { put(connection, Arc::into_raw(made).cast_mut(), "connection") }
    })
}

/// Opens a connection and hands it its first message (`InitiateWithSend`, RFC 9622 section 9.2.5),
/// whose number is 1. If the context has it as safely replayable, it may travel with the
/// handshake (0-RTT) and arrive more than once. NULL context: no property.
///
/// Ownership: the connection is the caller's, to be given back by `neater_connection_free`; the
/// bytes are copied. Thread: one at a time for a preconnection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_initiate_with_send(
    preconnection: *mut neater_preconnection,
    data: *const c_void,
    length: usize,
    context: *const neater_message_context,
    connection: *mut *mut neater_connection,
) -> neater_status {
    guard(|| {
        check_out(connection, "connection")?;
        // SAFETY: the caller's promise.
        let (p, data) = unsafe { (own(preconnection)?, bytes(data, length, "data")?) };
        let none = MessageContext::new();
        // SAFETY: the caller's promise.
        let context = unsafe { context.as_ref() }.map_or(&none, |c| &c.inner);
        let made = initiate(p, Some((Bytes::copy_from_slice(data), context)))?;
        // SAFETY: the caller's promise.
        unsafe { put(connection, Arc::into_raw(made).cast_mut(), "connection") }
    })
}

fn initiate(
    p: &mut neater_preconnection,
    first: Option<(Bytes, &MessageContext)>,
) -> Result<Arc<neater_connection>, Failure> {
    p.living()?;
    let request = p.request(Role::Initiate)?;
    let made = neater_connection::new(&p.context.core, p.user, p.callback);
    // What was compiled counts, so that nothing is compiled again for the function's sake.
    let pre = p.inner.clone().on_event(made.reporter()).request_of(&request);
    let initiate = match first {
        None => pre.initiate(),
        Some((data, context)) => pre.initiate_with_send(data, context),
    };
    // It is the only one that sets it.
    let _ = made.inner.set(initiate.connection()?);
    Ok(made)
}

/// Listens (`Listen`) with every eligible protocol on every local endpoint, into `*listener`.
/// NEATER_EVENT_CONNECTION_RECEIVED follows for each connection.
///
/// Ownership: the caller's, to be given back by `neater_listener_free`. Thread: one at a time for a
/// preconnection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_listen(
    preconnection: *mut neater_preconnection,
    listener: *mut *mut neater_listener,
) -> neater_status {
    guard(|| {
        check_out(listener, "listener")?;
        // SAFETY: the caller's promise.
        let p = unsafe { own(preconnection) }?;
        p.living()?;
        let request = p.request(Role::Listen)?;
        let made = neater_listener::new(&p.context.core, p.user, p.callback);
        made.begin(p.inner.clone().on_event(made.reporter()).request_of(&request).listen()?);
        // SAFETY: the caller's promise.
        unsafe { put(listener, Arc::into_raw(made).cast_mut(), "listener") }
    })
}

/// Opens a connection to a peer that opens one to this side at the same time (`Rendezvous`, RFC
/// 9622 section 7.3). The engine has no way through NATs yet: NEATER_ERROR_UNSUPPORTED, after
/// endpoints and properties were checked, and `*connection` is NULL.
///
/// Thread: one at a time for a preconnection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_rendezvous(
    preconnection: *mut neater_preconnection,
    connection: *mut *mut neater_connection,
) -> neater_status {
    guard(|| {
        check_out(connection, "connection")?;
        // SAFETY: the caller's promise.
        let p = unsafe { own(preconnection) }?;
        p.living()?;
        p.request(Role::Initiate)?;
        // SAFETY: the caller's promise.
        unsafe { put(connection, core::ptr::null_mut(), "connection")? };
        let text = "rendezvous is not there yet: let one side listen and the other one initiate";
        Err(Failure::new(neater_status::NEATER_ERROR_UNSUPPORTED, text))
    })
}

/// Finds out what `neater_preconnection_initiate` would try at this moment, in which order and
/// when, if no peer ever answered. NEATER_EVENT_PLANNED or NEATER_EVENT_PLAN_ERROR follows, with
/// `user`, at the context. Names are asked for; nothing is sent to a peer.
///
/// Lifetime: `user` is the program's; the library never looks behind it. Thread: one at a time for
/// a preconnection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_preconnection_plan(
    preconnection: *mut neater_preconnection,
    user: *mut c_void,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let p = unsafe { own(preconnection) }?;
        p.living()?;
        let (pre, user) = (p.inner.clone(), User::new(user));
        let task = async move {
            let (kind, payload) = match pre.plan().await {
                Ok(plan) => (K::NEATER_EVENT_PLANNED, Payload::Race(Box::new(neater_race::of_plan(&plan)))),
                Err(e) => (K::NEATER_EVENT_PLAN_ERROR, Payload::Error(Failure::from(e).into_error(), 0)),
            };
            Outgoing { subject: Subject::Plan(user), kind, payload }
        };
        let task = Arc::new(Task(Mutex::new(Some(Box::pin(task)))));
        p.context.core.push(Item::Try(Target::Task(task)));
        Ok(())
    })
}
