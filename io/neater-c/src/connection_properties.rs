//! Properties of a connection by name (RFC 9622 section 8): what is set holds for all connections
//! of its group, except `connPriority`.

use crate::border::{guard, guard_number, handle, put, put_text, text};
use crate::connection::neater_connection;
use crate::status::neater_status;
use crate::values;
use neater::Value;
use std::ffi::c_char;

/// Sets a property by its name of RFC 9622 from a text: `require`, `true`, `interactive`, `1.5`,
/// `250ms`, `prefer:wifi+avoid:cellular`. Case, and separators where the name has capitals, do not
/// matter.
///
/// Ownership: both texts are copied. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_set_text(
    connection: *mut neater_connection,
    name: *const c_char,
    value: *const c_char,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (connection, name, value) =
            unsafe { (handle(connection, "connection")?, text(name, "name")?, text(value, "value")?) };
        connection.set_property(name, Value::from(value))
    })
}

/// Sets a property by its name of RFC 9622 to a number: durations are in seconds, rates in bits per
/// second.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_set_number(
    connection: *mut neater_connection,
    name: *const c_char,
    value: f64,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (connection, name) = unsafe { (handle(connection, "connection")?, text(name, "name")?) };
        connection.set_property(name, values::number(value))
    })
}

/// Sets a property by its name of RFC 9622 to a Boolean.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_set_boolean(
    connection: *mut neater_connection,
    name: *const c_char,
    value: bool,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (connection, name) = unsafe { (handle(connection, "connection")?, text(name, "name")?) };
        connection.set_property(name, Value::from(value))
    })
}

/// Sets a property by its name of RFC 9622 to a `neater_preference`.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_set_preference(
    connection: *mut neater_connection,
    name: *const c_char,
    value: i32,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (connection, name) = unsafe { (handle(connection, "connection")?, text(name, "name")?) };
        connection.set_property(name, values::preferred(value)?)
    })
}

/// Reads a property by its name of RFC 9622 as text, as far as it fits into `room` bytes with a
/// zero byte behind it. Returns how long all of it is without that byte, or a negative status.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_get_text(
    connection: *mut neater_connection,
    name: *const c_char,
    buffer: *mut c_char,
    room: usize,
) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let (connection, name) = unsafe { (handle(connection, "connection")?, text(name, "name")?) };
        let value = values::as_text(name, connection.connection()?.get(name))?;
        // SAFETY: the caller's promise.
        unsafe { put_text(buffer, room, &value) }
    })
}

/// Reads a property by its name of RFC 9622 as a number: durations in seconds, rates in bits per
/// second, into `*value`. NEATER_ERROR_INVALID_VALUE if it is none.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_get_number(
    connection: *mut neater_connection,
    name: *const c_char,
    value: *mut f64,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (connection, name) = unsafe { (handle(connection, "connection")?, text(name, "name")?) };
        let found = values::as_number(name, connection.connection()?.get(name))?;
        // SAFETY: the caller's promise.
        unsafe { put(value, found, "value") }
    })
}

/// Reads a property by its name of RFC 9622 as a Boolean, into `*value`. NEATER_ERROR_INVALID_VALUE
/// if it is none.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_get_boolean(
    connection: *mut neater_connection,
    name: *const c_char,
    value: *mut bool,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (connection, name) = unsafe { (handle(connection, "connection")?, text(name, "name")?) };
        let found = values::as_boolean(name, connection.connection()?.get(name))?;
        // SAFETY: the caller's promise.
        unsafe { put(value, found, "value") }
    })
}

/// Reads a property by its name of RFC 9622 as a `neater_preference`, into `*value`.
/// NEATER_ERROR_INVALID_VALUE if it is none.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_get_preference(
    connection: *mut neater_connection,
    name: *const c_char,
    value: *mut i32,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (connection, name) = unsafe { (handle(connection, "connection")?, text(name, "name")?) };
        let found = values::as_preference(name, connection.connection()?.get(name))?;
        // SAFETY: the caller's promise.
        unsafe { put(value, found, "value") }
    })
}
