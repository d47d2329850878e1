//! Transport properties (RFC 9622 section 6.2): Selection Properties, and what Connection and
//! Message Properties begin with.

use crate::border::{Failure, check_out, give_back, guard, guard_number, object, object_mut, put, put_text, text};
use crate::status::neater_status;
use crate::values;
use neater::{TransportProperties, Value};
use std::ffi::c_char;

/// What is asked of a transport (`TransportProperties` of RFC 9622): a plain value without a
/// context.
#[derive(Clone, Debug)]
pub struct neater_transport_properties {
    pub(crate) inner: TransportProperties,
}

/// Makes properties with the defaults of RFC 9622 (`NewTransportProperties`), into `*properties`.
///
/// Ownership: the caller's, to be given back by `neater_transport_properties_free`. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_transport_properties_new(
    properties: *mut *mut neater_transport_properties,
) -> neater_status {
    guard(|| {
        check_out(properties, "properties")?;
        let made = Box::new(neater_transport_properties { inner: TransportProperties::new() });
        // SAFETY: the caller's promise.
        unsafe { put(properties, Box::into_raw(made), "properties") }
    })
}

/// Makes properties from words, such as `"reliable, low-delay, multistreaming=avoid"`, into
/// `*properties`. Words about security are an error here: `neater_preconnection_set_needs` takes
/// them.
///
/// Ownership: the caller's, to be given back by `neater_transport_properties_free`. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_transport_properties_parse(
    words: *const c_char,
    properties: *mut *mut neater_transport_properties,
) -> neater_status {
    guard(|| {
        check_out(properties, "properties")?;
        // SAFETY: the caller's promise.
        let words = unsafe { text(words, "words") }?;
        let parsed = TransportProperties::parse(words)
            .map_err(|e| Failure::new(neater_status::NEATER_ERROR_PARSE, e.to_string()))?;
        if parsed.security.is_some() {
            let why = "words about security belong to neater_preconnection_set_needs";
            return Err(Failure::new(neater_status::NEATER_ERROR_PARSE, why));
        }
        let made = Box::new(neater_transport_properties { inner: parsed.properties });
        // SAFETY: the caller's promise.
        unsafe { put(properties, Box::into_raw(made), "properties") }
    })
}

/// Copies properties, into `*copy`.
///
/// Ownership: the copy is the caller's, to be given back by `neater_transport_properties_free`.
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_transport_properties_clone(
    properties: *const neater_transport_properties,
    copy: *mut *mut neater_transport_properties,
) -> neater_status {
    guard(|| {
        check_out(copy, "copy")?;
        // SAFETY: the caller's promise.
        let properties = unsafe { object(properties, "properties") }?;
        // SAFETY: the caller's promise.
        unsafe { put(copy, Box::into_raw(Box::new(properties.clone())), "copy") }
    })
}

/// Gives properties back. NULL is allowed. What was made with them is not affected.
///
/// Ownership: they are gone afterwards. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_transport_properties_free(properties: *mut neater_transport_properties) {
    // SAFETY: it came from `Box::into_raw`, and the caller gives it back once.
    unsafe { give_back(properties) };
}

/// Sets a property by its name of RFC 9622 from a text: `require`, `true`, `interactive`, `1.5`,
/// `250ms`, `prefer:wifi+avoid:cellular`. Case, and separators where the name has capitals, do not
/// matter.
///
/// Ownership: both texts are copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_transport_properties_set_text(
    properties: *mut neater_transport_properties,
    name: *const c_char,
    value: *const c_char,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (properties, name, value) =
            unsafe { (object_mut(properties, "properties")?, text(name, "name")?, text(value, "value")?) };
        Ok(properties.inner.set(name, Value::from(value))?)
    })
}

/// Sets a property by its name of RFC 9622 to a number: durations are in seconds, rates in bits per
/// second.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_transport_properties_set_number(
    properties: *mut neater_transport_properties,
    name: *const c_char,
    value: f64,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (properties, name) = unsafe { (object_mut(properties, "properties")?, text(name, "name")?) };
        Ok(properties.inner.set(name, values::number(value))?)
    })
}

/// Sets a property by its name of RFC 9622 to a Boolean.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_transport_properties_set_boolean(
    properties: *mut neater_transport_properties,
    name: *const c_char,
    value: bool,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (properties, name) = unsafe { (object_mut(properties, "properties")?, text(name, "name")?) };
        Ok(properties.inner.set(name, Value::from(value))?)
    })
}

/// Sets a property by its name of RFC 9622 to a `neater_preference`.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_transport_properties_set_preference(
    properties: *mut neater_transport_properties,
    name: *const c_char,
    value: i32,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (properties, name) = unsafe { (object_mut(properties, "properties")?, text(name, "name")?) };
        Ok(properties.inner.set(name, values::preferred(value)?)?)
    })
}

/// Reads a property by its name of RFC 9622 as text, as far as it fits into `room` bytes with a
/// zero byte behind it. Returns how long all of it is without that byte, or a negative status.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_transport_properties_get_text(
    properties: *mut neater_transport_properties,
    name: *const c_char,
    buffer: *mut c_char,
    room: usize,
) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let (properties, name) = unsafe { (object_mut(properties, "properties")?, text(name, "name")?) };
        let value = values::as_text(name, properties.inner.get(name))?;
        // SAFETY: the caller's promise.
        unsafe { put_text(buffer, room, &value) }
    })
}

/// Reads a property by its name of RFC 9622 as a number: durations in seconds, rates in bits per
/// second, into `*value`. NEATER_ERROR_INVALID_VALUE if it is none.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_transport_properties_get_number(
    properties: *mut neater_transport_properties,
    name: *const c_char,
    value: *mut f64,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (properties, name) = unsafe { (object_mut(properties, "properties")?, text(name, "name")?) };
        let found = values::as_number(name, properties.inner.get(name))?;
        // SAFETY: the caller's promise.
        unsafe { put(value, found, "value") }
    })
}

/// Reads a property by its name of RFC 9622 as a Boolean, into `*value`. NEATER_ERROR_INVALID_VALUE
/// if it is none.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_transport_properties_get_boolean(
    properties: *mut neater_transport_properties,
    name: *const c_char,
    value: *mut bool,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (properties, name) = unsafe { (object_mut(properties, "properties")?, text(name, "name")?) };
        let found = values::as_boolean(name, properties.inner.get(name))?;
        // SAFETY: the caller's promise.
        unsafe { put(value, found, "value") }
    })
}

/// Reads a property by its name of RFC 9622 as a `neater_preference`, into `*value`.
/// NEATER_ERROR_INVALID_VALUE if it is none.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_transport_properties_get_preference(
    properties: *mut neater_transport_properties,
    name: *const c_char,
    value: *mut i32,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (properties, name) = unsafe { (object_mut(properties, "properties")?, text(name, "name")?) };
        let found = values::as_preference(name, properties.inner.get(name))?;
        // SAFETY: the caller's promise.
        unsafe { put(value, found, "value") }
    })
}
