//! `neat_get_stats`: figures as JSON, with the names that NEAT gives them.

use crate::context::Context;
use crate::flow::Flow;
use core::ffi::{c_int, c_void};
use neater_engine::Stack;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The figures of a context, with four blanks of indent.
pub(crate) fn text(ctx: &Context) -> String {
    let flows: Vec<_> = {
        let core = ctx.core.borrow();
        let mut all: Vec<_> = core.flows.iter().flatten().copied().collect();
        // SAFETY: flows in the context's list are alive.
        all.sort_by_key(|f| core::cmp::Reverse(unsafe { f.as_ref() }.number));
        all
    };
    let mut out = Map::new();
    let (mut sent, mut received) = {
        let core = ctx.core.borrow();
        (core.sent, core.received)
    };
    let mut number = 0;
    for flow in flows {
        // SAFETY: as above.
        let f = unsafe { flow.as_ref() };
        {
            let s = f.state.borrow();
            sent += s.sent;
            received += s.received;
            if s.phase == crate::flow::Phase::Closed {
                continue;
            }
        }
        number += 1;
        out.insert(format!("flow-{number}"), one(ctx, f, number));
    }
    out.insert("Number of flows".into(), number.into());
    out.insert("Total bytes sent".into(), sent.into());
    out.insert("Total bytes received".into(), received.into());
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    match Value::Object(out).serialize(&mut serializer) {
        Ok(()) => String::from_utf8(bytes).unwrap_or_default(),
        Err(_) => "{}".to_owned(),
    }
}

fn one(ctx: &Context, f: &Flow, number: u64) -> Value {
    let s = f.state.borrow();
    let (kind, protocol) = match s.stack {
        Some(Stack::Udp | Stack::Dtls | Stack::QuicDatagram) => (2, libc::IPPROTO_UDP),
        Some(stack) if stack.is_sctp() => (1, libc::IPPROTO_SCTP),
        Some(_) => (1, libc::IPPROTO_TCP),
        None => (0, 0),
    };
    let more = s.more.as_deref();
    let properties = s.props.as_ref().map_or_else(Map::new, |p| p.json().clone());
    let mut figures = json!({
        "flow number": number,
        "socket type": kind,
        "sock_protocol": protocol,
        "port": s.port,
        "ecn": more.map_or(0, |m| m.ecn),
        "qos": more.map_or(0, |m| m.qos),
        "write_size": s.last_write,
        "read_size": s.last_read,
        "bytes sent": s.sent,
        "bytes received": s.received,
        "priority": f64::from(more.and_then(|m| m.priority).unwrap_or(0.5)),
        "flow_properties": properties,
    });
    if let Value::Object(figures) = &mut figures {
        if let Some(name) = &s.name {
            figures.insert("remote_host".into(), name.to_string().into());
        }
        let tcp = matches!(s.stack, Some(Stack::Tcp | Stack::Tls));
        let fd = s.conn.filter(|_| tcp).and_then(|c| ctx.core.borrow().engine.descriptor(c));
        if let Some(tcp) = fd.and_then(of_tcp) {
            figures.insert("tcpstats".into(), tcp);
        }
    }
    figures
}

/// What the system knows of a TCP connection.
fn of_tcp(fd: c_int) -> Option<Value> {
    // SAFETY: all bits zero are a tcp_info: it has integers alone.
    let mut info: libc::tcp_info = unsafe { core::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let into = (&raw mut info).cast::<c_void>();
    // SAFETY: the option writes at most `length` bytes to `info`.
    let e = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut length) };
    (e == 0).then(|| {
        json!({
            "retransmits": info.tcpi_retransmits,
            "pmtu": info.tcpi_pmtu,
            "rcv_ssthresh": info.tcpi_rcv_ssthresh,
            "rtt": info.tcpi_rtt,
            "rttvar": info.tcpi_rttvar,
            "ssthresh": info.tcpi_snd_ssthresh,
            "snd_cwnd": info.tcpi_snd_cwnd,
            "advmss": info.tcpi_advmss,
            "reordering": info.tcpi_reordering,
            "total retrans": info.tcpi_total_retrans,
        })
    })
}
