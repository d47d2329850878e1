//! The types and numbers of `neat.h`.
//!
//! *Invariant*: the layout of the structs is that of the header, which a C program of the tests
//! compares.

use crate::context::Context;
use crate::flow::Flow;
use core::ffi::{c_char, c_float, c_int, c_uchar, c_void};
use neater_engine::Stack;

pub(crate) const OK: u64 = 0;
pub(crate) const WOULD_BLOCK: u64 = 1;
pub(crate) const BAD_ARGUMENT: u64 = 2;
pub(crate) const IO: u64 = 3;
pub(crate) const DNS: u64 = 4;
pub(crate) const INTERNAL: u64 = 5;
pub(crate) const SECURITY: u64 = 6;
pub(crate) const UNABLE: u64 = 7;
pub(crate) const MESSAGE_TOO_BIG: u64 = 8;
pub(crate) const OUT_OF_MEMORY: u64 = 10;

pub(crate) const CERT_PEM: c_int = 1;
pub(crate) const KEY_PEM: c_int = 2;
pub(crate) const CERT_KEY_PEM: c_int = 3;

pub(crate) const TAG_STREAM_ID: c_int = 0;
pub(crate) const TAG_STREAM_COUNT: c_int = 1;
pub(crate) const TAG_LOCAL_NAME: c_int = 2;
pub(crate) const TAG_PR_METHOD: c_int = 6;
pub(crate) const TAG_PR_VALUE: c_int = 7;
pub(crate) const TAG_PARTIAL_MESSAGE_RECEIVED: c_int = 8;
pub(crate) const TAG_PARTIAL_SEQNUM: c_int = 9;
pub(crate) const TAG_UNORDERED: c_int = 10;
pub(crate) const TAG_UNORDERED_SEQNUM: c_int = 11;
pub(crate) const TAG_PRIORITY: c_int = 13;
pub(crate) const TAG_FLOW_GROUP: c_int = 14;
pub(crate) const TAG_CC_ALGORITHM: c_int = 15;
pub(crate) const TAG_TRANSPORT_STACK: c_int = 16;

pub(crate) const TYPE_INTEGER: c_int = 0;
pub(crate) const TYPE_FLOAT: c_int = 1;
pub(crate) const TYPE_STRING: c_int = 2;

/// `stream_id` of flows whose transport has no streams.
pub(crate) const NO_STREAM: u16 = u16::MAX;

/// `neat_flow_operations_fx`.
pub type Callback = Option<extern "C" fn(*mut Operations) -> u64>;
/// `neat_cb_send_failure_t`.
pub type SendFailure = Option<extern "C" fn(*mut Operations, c_int, *const c_uchar)>;
/// `neat_cb_flow_slowdown_t`.
pub type Slowdown = Option<extern "C" fn(*mut Operations, c_int, u32)>;
/// `neat_cb_flow_rate_hint_t`.
pub type RateHint = Option<extern "C" fn(*mut Operations, u32)>;

/// `struct neat_flow_operations`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs, reason = "neat.h and docs/libneat.md describe them")]
pub struct Operations {
    pub preconnection_id: u32,
    pub rendezvous_id: u32,
    pub connection_id: u32,
    pub parent_id: u32,
    pub clone_id: u32,
    pub user_data: *mut c_void,
    pub status: u64,
    pub stream_id: u16,
    pub transport_protocol: c_int,
    pub on_connected: Callback,
    pub on_error: Callback,
    pub on_readable: Callback,
    pub on_writable: Callback,
    pub on_all_written: Callback,
    pub on_network_status_changed: Callback,
    pub on_aborted: Callback,
    pub on_timeout: Callback,
    pub on_close: Callback,
    pub on_parameters: Callback,
    pub on_send_failure: SendFailure,
    pub on_slowdown: Slowdown,
    pub on_rate_hint: RateHint,
    pub label: *mut c_char,
    pub ctx: *mut Context,
    pub flow: *mut Flow,
}

impl Operations {
    /// All zero, as the library makes the struct of an accepted flow.
    pub(crate) const fn zero() -> Self {
        Self {
            preconnection_id: 0,
            rendezvous_id: 0,
            connection_id: 0,
            parent_id: 0,
            clone_id: 0,
            user_data: core::ptr::null_mut(),
            status: 0,
            stream_id: NO_STREAM,
            transport_protocol: 0,
            on_connected: None,
            on_error: None,
            on_readable: None,
            on_writable: None,
            on_all_written: None,
            on_network_status_changed: None,
            on_aborted: None,
            on_timeout: None,
            on_close: None,
            on_parameters: None,
            on_send_failure: None,
            on_slowdown: None,
            on_rate_hint: None,
            label: core::ptr::null_mut(),
            ctx: core::ptr::null_mut(),
            flow: core::ptr::null_mut(),
        }
    }

    /// What a listener's flow hands to those that it accepts.
    pub(crate) const fn inherited(&self) -> Self {
        Self {
            preconnection_id: self.preconnection_id,
            rendezvous_id: self.rendezvous_id,
            connection_id: self.connection_id,
            parent_id: self.parent_id,
            clone_id: self.clone_id,
            user_data: self.user_data,
            on_connected: self.on_connected,
            on_error: self.on_error,
            on_readable: self.on_readable,
            on_writable: self.on_writable,
            on_close: self.on_close,
            ..Self::zero()
        }
    }
}

/// The value of an optional argument.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs, reason = "neat.h describes them")]
pub union TlvValue {
    pub integer: c_int,
    pub string: *mut c_char,
    pub real: c_float,
}

/// `struct neat_tlv`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs, reason = "neat.h describes them")]
pub struct Tlv {
    pub tag: c_int,
    pub kind: c_int,
    pub value: TlvValue,
}

impl Tlv {
    /// The value, if it is an integer.
    pub(crate) fn integer(&self) -> Option<c_int> {
        if self.kind != TYPE_INTEGER {
            return None;
        }
        // SAFETY: any bits are an integer, and the first member's bytes were written with the
        // argument.
        Some(unsafe { self.value.integer })
    }

    /// The value, if it is a number with a fraction.
    pub(crate) fn real(&self) -> Option<c_float> {
        if self.kind != TYPE_FLOAT {
            return None;
        }
        // SAFETY: any bits are a float.
        Some(unsafe { self.value.real })
    }

    /// The value, if it is a text.
    pub(crate) fn string(&self) -> Option<*const c_char> {
        // SAFETY: by the type that the program has given, the member is a pointer.
        (self.kind == TYPE_STRING).then(|| unsafe { self.value.string }.cast_const()).filter(|p| !p.is_null())
    }

    pub(crate) fn set_integer(&mut self, value: c_int) {
        self.kind = TYPE_INTEGER;
        self.value.integer = value;
    }
}

/// `neat_protocol_stack_type` of a stack. `named_udp`: the program has asked for SCTP over UDP by
/// that name.
pub(crate) const fn stack_number(stack: Stack, named_udp: bool) -> c_int {
    match stack {
        Stack::Udp | Stack::Dtls | Stack::QuicDatagram => 1,
        Stack::Sctp | Stack::SctpDtls if named_udp => 6,
        Stack::Sctp | Stack::SctpIp | Stack::SctpDtls => 5,
        _ => 3,
    }
}

/// The name that `neat_get_stack` writes.
pub(crate) const fn stack_name(stack: Stack) -> &'static str {
    match stack {
        Stack::Udp | Stack::Dtls | Stack::QuicDatagram => "UDP",
        Stack::Sctp | Stack::SctpIp | Stack::SctpDtls => "SCTP",
        _ => "TCP",
    }
}
