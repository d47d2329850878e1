//! What is known of connections: state, addresses, paths, figures.

use crate::border::{Versioned, fixed_text, guard, guard_number, guard_or, handle, put_text, write_sized};
use crate::connection::neater_connection;
use crate::status::neater_status;
use core::time::Duration;
use neater::{ConnectionState, PathUse};
use std::ffi::{c_char, c_void};

/// The state of a connection (RFC 9622 section 11, `connState`).
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum neater_connection_state {
    /// Being set up.
    NEATER_STATE_ESTABLISHING = 0,
    /// In use.
    NEATER_STATE_ESTABLISHED = 1,
    /// Closed from this side; what was sent is still being delivered.
    NEATER_STATE_CLOSING = 2,
    /// Over.
    NEATER_STATE_CLOSED = 3,
}

/// The state of the connection: a `neater_connection_state`. Negative: an error.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_get_state(connection: *const neater_connection) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let state = unsafe { handle(connection, "connection") }?.connection()?.state();
        Ok(match state {
            ConnectionState::Establishing => neater_connection_state::NEATER_STATE_ESTABLISHING,
            ConnectionState::Established => neater_connection_state::NEATER_STATE_ESTABLISHED,
            ConnectionState::Closing => neater_connection_state::NEATER_STATE_CLOSING,
            ConnectionState::Closed => neater_connection_state::NEATER_STATE_CLOSED,
        } as i64)
    })
}

/// A text that is known of a connection, by the number of `neater_connection_text`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum neater_connection_text_kind {
    /// The peer's address and port.
    NEATER_TEXT_REMOTE_ADDRESS = 0,
    /// This side's address and port.
    NEATER_TEXT_LOCAL_ADDRESS = 1,
    /// The application protocol agreed on by ALPN.
    NEATER_TEXT_ALPN = 2,
    /// The security protocol in use, in words; empty in the clear.
    NEATER_TEXT_SECURITY = 3,
    /// The protocol stack.
    NEATER_TEXT_STACK = 4,
}

/// A text that is known of the connection (`neater_connection_text_kind`), as far as it fits into
/// `room` bytes with a zero byte behind it; empty while it is not known. Returns how long all of it
/// is without that byte, or a negative status.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_text(
    connection: *const neater_connection,
    kind: u32,
    buffer: *mut c_char,
    room: usize,
) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let c = unsafe { handle(connection, "connection") }?.connection()?;
        let text = match kind {
            0 => c.remote_addr().map(|a| a.to_string()),
            1 => c.local_addr().map(|a| a.to_string()),
            2 => c.alpn().map(|a| String::from_utf8_lossy(&a).into_owned()),
            3 => c.security(),
            4 => c.stack().map(|s| s.to_string()),
            _ => return Err(crate::border::Failure::argument("kind is no neater_connection_text_kind")),
        };
        // SAFETY: the caller's promise.
        unsafe { put_text(buffer, room, &text.unwrap_or_default()) }
    })
}

/// A certificate of the peer's by its number, end entity first, in DER, as far as it fits into
/// `room` bytes. Returns how long it is, or NEATER_ERROR_NOT_FOUND beyond the last.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_peer_certificate(
    connection: *const neater_connection,
    index: usize,
    buffer: *mut c_void,
    room: usize,
) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let chain = unsafe { handle(connection, "connection") }?.connection()?.peer_certificates();
        let certificate = chain.get(index).ok_or(neater_status::NEATER_ERROR_NOT_FOUND)?;
        let fits = certificate.len().min(room);
        if fits > 0 {
            let buffer = crate::border::check_out(buffer, "buffer")?;
            // SAFETY: the caller's promise: `room` bytes may be written, and `fits` is no more; the
            // chain is ours.
            unsafe { core::ptr::copy_nonoverlapping(certificate.as_ptr(), buffer.cast::<u8>(), fits) };
        }
        Ok(i64::try_from(certificate.len()).unwrap_or(i64::MAX))
    })
}

/// The number of the stream on the wire, where the connection is a stream of QUIC; else
/// NEATER_ERROR_NOT_FOUND.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_stream_number(connection: *const neater_connection) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let number = unsafe { handle(connection, "connection") }?.connection()?.stream_number();
        let number = number.ok_or(neater_status::NEATER_ERROR_NOT_FOUND)?;
        Ok(i64::try_from(number).unwrap_or(i64::MAX))
    })
}

/// Whether a path is used.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum neater_path_use {
    /// The peer has not answered from there yet: no data goes there.
    NEATER_PATH_UNCONFIRMED = 0,
    /// Data goes this way.
    NEATER_PATH_IN_USE = 1,
    /// It works, and data goes another way.
    NEATER_PATH_STANDBY = 2,
    /// Packets on it have not been answered lately.
    NEATER_PATH_POTENTIALLY_FAILED = 3,
    /// It does not work, and is probed.
    NEATER_PATH_INACTIVE = 4,
    /// Another one, for which this version of the header has no number.
    NEATER_PATH_OTHER = 99,
}

/// A path of a connection's transport. `size` is set by the program to `sizeof(neater_path)`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct neater_path {
    /// `sizeof(neater_path)`.
    pub size: usize,
    /// A `neater_path_use`.
    pub state: u32,
    /// Not used.
    pub reserved: u32,
    /// Smoothed round-trip time in microseconds; -1 while it is not measured.
    pub rtt_us: i64,
    /// Congestion window in bytes.
    pub window: u64,
    /// Bytes that are on their way.
    pub in_flight: u64,
    /// Packets or chunks with data sent, retransmissions included.
    pub sent: u64,
    /// Of those, how many the path is believed to have lost.
    pub lost: u64,
    /// Bytes of payload that have been acknowledged.
    pub delivered: u64,
    /// Bytes of payload that have come by it.
    pub received: u64,
    /// Our address, as text.
    pub local: [c_char; 64],
    /// The peer's address, as text.
    pub remote: [c_char; 64],
    /// The interface that packets are bound to leave by; empty where they are not.
    pub interface: [c_char; 32],
}

// SAFETY: `repr(C)`, begins with its size, and zeros are a value.
unsafe impl Versioned for neater_path {
    const FIRST: usize = 232;
}

fn micros(d: Option<Duration>) -> i64 {
    d.map_or(-1, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX))
}

/// A path of the connection's transport by its number, into `*path`, whose `size` the program has
/// set. NEATER_ERROR_NOT_FOUND beyond the last. NEATER_EVENT_PATH_CHANGE reports that something
/// about them has changed.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_path(
    connection: *const neater_connection,
    index: usize,
    path: *mut neater_path,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let paths = unsafe { handle(connection, "connection") }?.connection()?.paths();
        let p = paths.get(index).ok_or(neater_status::NEATER_ERROR_NOT_FOUND)?;
        let state = match p.state {
            PathUse::Unconfirmed => neater_path_use::NEATER_PATH_UNCONFIRMED,
            PathUse::InUse => neater_path_use::NEATER_PATH_IN_USE,
            PathUse::Standby => neater_path_use::NEATER_PATH_STANDBY,
            PathUse::PotentiallyFailed => neater_path_use::NEATER_PATH_POTENTIALLY_FAILED,
            PathUse::Inactive => neater_path_use::NEATER_PATH_INACTIVE,
            _ => neater_path_use::NEATER_PATH_OTHER,
        };
        let value = neater_path {
            size: size_of::<neater_path>(),
            state: state as u32,
            reserved: 0,
            rtt_us: micros(p.rtt),
            window: p.window,
            in_flight: p.in_flight,
            sent: p.sent,
            lost: p.lost,
            delivered: p.delivered,
            received: p.received,
            local: fixed_text(&p.local.to_string()),
            remote: fixed_text(&p.remote.to_string()),
            interface: fixed_text(p.interface.as_deref().unwrap_or_default()),
        };
        // SAFETY: the caller's promise.
        unsafe { write_sized(path, &value, "path") }
    })
}

/// Figures of a connection. `size` is set by the program to `sizeof(neater_connection_statistics)`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct neater_connection_statistics {
    /// `sizeof(neater_connection_statistics)`.
    pub size: usize,
    /// Bytes handed to the transport.
    pub bytes_sent: u64,
    /// Bytes handed to the program.
    pub bytes_received: u64,
    /// Messages handed to the transport.
    pub messages_sent: u64,
    /// Messages handed to the program.
    pub messages_received: u64,
    /// Datagrams dropped because the program did not take them in time, or because its framer could
    /// make nothing of them.
    pub datagrams_dropped: u64,
    /// How long establishment took, in microseconds.
    pub establishment_us: i64,
    /// Smoothed round-trip time in microseconds; -1 where the transport does not know it.
    pub rtt_us: i64,
    /// Congestion window in bytes; -1 where the transport does not know it.
    pub congestion_window: i64,
    /// Bytes that wait to be sent.
    pub queued: u64,
    /// Grows with what the peer has acknowledged, in bytes on the wire, of all streams of its
    /// session together; -1 where nothing is known.
    pub acknowledged: i64,
    /// Bytes that were taken for delivery and that the peer has not acknowledged; -1 where nothing
    /// is known.
    pub pending: i64,
}

// SAFETY: `repr(C)`, begins with its size, and zeros are a value.
unsafe impl Versioned for neater_connection_statistics {
    const FIRST: usize = 96;
}

/// Figures of the connection, into `*statistics`, whose `size` the program has set.
/// NEATER_ERROR_STATE when there are none.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_get_statistics(
    connection: *const neater_connection,
    statistics: *mut neater_connection_statistics,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let c = unsafe { handle(connection, "connection") }?.connection()?;
        let s = c.stats().ok_or(neater_status::NEATER_ERROR_STATE)?;
        let delivery = c.delivery();
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let value = neater_connection_statistics {
            size: size_of::<neater_connection_statistics>(),
            bytes_sent: s.bytes_sent,
            bytes_received: s.bytes_received,
            messages_sent: s.messages_sent,
            messages_received: s.messages_received,
            datagrams_dropped: s.datagrams_dropped,
            establishment_us: micros(Some(s.establishment)),
            rtt_us: micros(s.rtt),
            congestion_window: s.congestion_window.map_or(-1, signed),
            queued: s.queued as u64,
            acknowledged: delivery.map_or(-1, |d| signed(d.acknowledged)),
            pending: delivery.map_or(-1, |d| signed(d.pending)),
        };
        // SAFETY: the caller's promise.
        unsafe { write_sized(statistics, &value, "statistics") }
    })
}

/// Whether the connection is, or was, established: `neater_connection_send` does not wait for it
/// any more.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_connection_is_established(connection: *const neater_connection) -> bool {
    guard_or(false, || {
        // SAFETY: the caller's promise.
        Ok(unsafe { handle(connection, "connection") }?.ready.load(std::sync::atomic::Ordering::Acquire))
    })
}
