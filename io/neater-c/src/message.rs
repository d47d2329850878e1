//! Messages and their contexts (RFC 9622 section 9.1).

use crate::border::{check_out, give_back, guard, guard_number, guard_or, object, object_mut, put, put_text, text};
use crate::status::neater_status;
use crate::values;
use neater::{Message, MessageContext, Value};
use std::ffi::{c_char, c_void};

/// The properties of messages that are sent (`MessageContext` of RFC 9622): a plain value, which
/// any number of messages can be sent with.
#[derive(Clone, Debug)]
pub struct neater_message_context {
    pub(crate) inner: MessageContext,
}

/// A message that was received, or a part of one, with what is known of it.
#[derive(Debug)]
pub struct neater_message {
    pub(crate) inner: Message,
}

/// Makes a context that sets nothing (`NewMessageContext`), into `*context`: each property is what
/// it is by default for the connection that the message is sent on.
///
/// Ownership: the caller's, to be given back by `neater_message_context_free`. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_context_new(context: *mut *mut neater_message_context) -> neater_status {
    guard(|| {
        check_out(context, "context")?;
        let made = Box::new(neater_message_context { inner: MessageContext::new() });
        // SAFETY: the caller's promise.
        unsafe { put(context, Box::into_raw(made), "context") }
    })
}

/// Gives a context back. NULL is allowed. Messages that were sent with it are not affected.
///
/// Ownership: it is gone afterwards. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_context_free(context: *mut neater_message_context) {
    // SAFETY: it came from `Box::into_raw`, and the caller gives it back once.
    unsafe { give_back(context) };
}

/// Names the stream of an SCTP association that messages go on, where the peer is not one of
/// neater's and one connection is the whole association. Elsewhere it means nothing.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_context_set_stream(
    context: *mut neater_message_context,
    stream: u16,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { object_mut(context, "context") }?;
        context.inner = context.inner.clone().on_stream(stream);
        Ok(())
    })
}

/// Names the payload protocol identifier that such a peer is given (RFC 9260 section 3.3.1).
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_context_set_payload_protocol(
    context: *mut neater_message_context,
    identifier: u32,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { object_mut(context, "context") }?;
        context.inner = context.inner.clone().with_payload_protocol(identifier);
        Ok(())
    })
}

/// Sets a property by its name of RFC 9622 from a text: `require`, `true`, `interactive`, `1.5`,
/// `250ms`, `prefer:wifi+avoid:cellular`. Case, and separators where the name has capitals, do not
/// matter.
///
/// Ownership: both texts are copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_context_set_text(
    context: *mut neater_message_context,
    name: *const c_char,
    value: *const c_char,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (context, name, value) =
            unsafe { (object_mut(context, "context")?, text(name, "name")?, text(value, "value")?) };
        context.inner.add(name, Value::from(value))?;
        Ok(())
    })
}

/// Sets a property by its name of RFC 9622 to a number: durations are in seconds, rates in bits per
/// second.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_context_set_number(
    context: *mut neater_message_context,
    name: *const c_char,
    value: f64,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (context, name) = unsafe { (object_mut(context, "context")?, text(name, "name")?) };
        context.inner.add(name, values::number(value))?;
        Ok(())
    })
}

/// Sets a property by its name of RFC 9622 to a Boolean.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_context_set_boolean(
    context: *mut neater_message_context,
    name: *const c_char,
    value: bool,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (context, name) = unsafe { (object_mut(context, "context")?, text(name, "name")?) };
        context.inner.add(name, Value::from(value))?;
        Ok(())
    })
}

/// Sets a property by its name of RFC 9622 to a `neater_preference`.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_context_set_preference(
    context: *mut neater_message_context,
    name: *const c_char,
    value: i32,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (context, name) = unsafe { (object_mut(context, "context")?, text(name, "name")?) };
        context.inner.add(name, values::preferred(value)?)?;
        Ok(())
    })
}

/// Reads a property by its name of RFC 9622 as text, as far as it fits into `room` bytes with a
/// zero byte behind it. Returns how long all of it is without that byte, or a negative status.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_context_get_text(
    context: *mut neater_message_context,
    name: *const c_char,
    buffer: *mut c_char,
    room: usize,
) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let (context, name) = unsafe { (object_mut(context, "context")?, text(name, "name")?) };
        let value = values::as_text(name, context.inner.get(name))?;
        // SAFETY: the caller's promise.
        unsafe { put_text(buffer, room, &value) }
    })
}

/// Reads a property by its name of RFC 9622 as a number: durations in seconds, rates in bits per
/// second, into `*value`. NEATER_ERROR_INVALID_VALUE if it is none.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_context_get_number(
    context: *mut neater_message_context,
    name: *const c_char,
    value: *mut f64,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (context, name) = unsafe { (object_mut(context, "context")?, text(name, "name")?) };
        let found = values::as_number(name, context.inner.get(name))?;
        // SAFETY: the caller's promise.
        unsafe { put(value, found, "value") }
    })
}

/// Reads a property by its name of RFC 9622 as a Boolean, into `*value`. NEATER_ERROR_INVALID_VALUE
/// if it is none.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_context_get_boolean(
    context: *mut neater_message_context,
    name: *const c_char,
    value: *mut bool,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (context, name) = unsafe { (object_mut(context, "context")?, text(name, "name")?) };
        let found = values::as_boolean(name, context.inner.get(name))?;
        // SAFETY: the caller's promise.
        unsafe { put(value, found, "value") }
    })
}

/// Reads a property by its name of RFC 9622 as a `neater_preference`, into `*value`.
/// NEATER_ERROR_INVALID_VALUE if it is none.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_context_get_preference(
    context: *mut neater_message_context,
    name: *const c_char,
    value: *mut i32,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (context, name) = unsafe { (object_mut(context, "context")?, text(name, "name")?) };
        let found = values::as_preference(name, context.inner.get(name))?;
        // SAFETY: the caller's promise.
        unsafe { put(value, found, "value") }
    })
}

/// The bytes of a message. NULL only for NULL.
///
/// Lifetime: as long as the message; they do not change. Thread: any, but not while the message is
/// given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_data(message: *const neater_message) -> *const c_void {
    guard_or(core::ptr::null(), || {
        // SAFETY: the caller's promise.
        Ok(unsafe { object(message, "message") }?.inner.data.as_ptr().cast())
    })
}

/// How many bytes a message has. 0 for NULL.
///
/// Thread: any, but not while the message is given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_length(message: *const neater_message) -> usize {
    // SAFETY: the caller's promise.
    guard_or(0, || Ok(unsafe { object(message, "message") }?.inner.data.len()))
}

/// What is known of a received message. `size` is set by the program to
/// `sizeof(neater_message_info)`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct neater_message_info {
    /// `sizeof(neater_message_info)`.
    pub size: usize,
    /// 1: the message ends with these bytes. 0: more of it follows, or it is a byte stream without
    /// boundaries.
    pub end_of_message: u32,
    /// 1: no message follows (`final`), as far as that was known when it was received.
    pub is_final: u32,
    /// 1: it came as early data and may be a replay: nothing that must not be done twice may follow
    /// from it (RFC 9622 section 9.3.3.2).
    pub early_data: u32,
    /// The ECN codepoint of its datagram, 0 to 3 (RFC 3168); -1 where there is none.
    pub ecn: i32,
    /// The stream that it came on, where the connection is a whole SCTP association; else -1.
    pub stream: i32,
    /// Not used.
    pub reserved: u32,
    /// Its payload protocol identifier there; else -1.
    pub payload_protocol: i64,
    /// Distinguishes messages whose parts alternate, which only those of a whole SCTP association
    /// do; else -1.
    pub number: i64,
}

// SAFETY: `repr(C)`, begins with its size, and zeros are a value.
unsafe impl crate::border::Versioned for neater_message_info {
    const FIRST: usize = 48;
}

/// What is known of a received message, into `*info`, whose `size` the program has set.
///
/// Thread: any, but not while the message is given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_get_info(
    message: *const neater_message,
    info: *mut neater_message_info,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let message = unsafe { object(message, "message") }?;
        let context = &message.inner.context;
        let value = neater_message_info {
            size: size_of::<neater_message_info>(),
            end_of_message: message.inner.end_of_message.into(),
            is_final: context.is_final().into(),
            early_data: context.is_early_data().into(),
            ecn: context.ecn().map_or(-1, |e| e as i32),
            stream: context.stream().map_or(-1, i32::from),
            reserved: 0,
            payload_protocol: context.payload_protocol().map_or(-1, i64::from),
            number: context.message_number().map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX)),
        };
        // SAFETY: the caller's promise.
        unsafe { crate::border::write_sized(info, &value, "info") }
    })
}

/// Gives a message back. NULL is allowed.
///
/// Ownership: the message is gone afterwards, and so are its bytes. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_message_free(message: *mut neater_message) {
    // SAFETY: it came from `Box::into_raw`, and the caller gives it back once.
    unsafe { give_back(message) };
}
