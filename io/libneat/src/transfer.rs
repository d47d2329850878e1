//! Reading and writing.

use crate::abi;
use crate::context::{Context, Core};
use crate::dispatch::note_error;
use crate::flow::{Flow, Phase, State, Waiting};
use bytes::Bytes;
use core::time::Duration;
use neater_engine::{ConnectionError, ConnectionId, ReceiveOutcome, Received, SendError, SendOptions};
use std::io::IoSlice;

/// The optional arguments of `neat_write`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteArguments {
    pub(crate) stream: Option<u16>,
    pub(crate) unordered: bool,
    /// Method and value of partial reliability.
    pub(crate) partial: Option<(i32, i32)>,
}

impl WriteArguments {
    fn options(self) -> SendOptions {
        // PR-SCTP's policies (RFC 6458 section 5.3.7): 1 is a lifetime in milliseconds, 2 and 3 a
        // limit of retransmissions or a priority, which are both "not at any price".
        let (lifetime, reliable) = match self.partial {
            Some((1, value)) => (Some(Duration::from_millis(value.max(0).unsigned_abs().into())), Some(false)),
            Some((2 | 3, _)) => (None, Some(false)),
            _ => (None, None),
        };
        SendOptions {
            begins: true,
            ordered: self.unordered.then_some(false),
            stream: self.stream,
            lifetime,
            reliable,
            ..SendOptions::default()
        }
    }
}

/// `neat_write`.
pub(crate) fn write(ctx: &Context, f: &Flow, data: &[u8], arguments: WriteArguments) -> u64 {
    let mut core = ctx.core.borrow_mut();
    let core = &mut *core;
    let mut s = f.state.borrow_mut();
    let (Phase::Open, Some(conn), false) = (s.phase, s.conn, s.finished) else { return abi::IO };
    s.last_write = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let status = if s.is_byte_stream() {
        write_bytes(core, &mut s, conn, data)
    } else {
        write_message(core, &mut s, conn, data, arguments.options())
    };
    if status == abi::OK {
        s.due.all_written = true;
        s.sent += data.len() as u64;
    }
    // Everything is written, and there is nothing that reports it.
    let quiet = status == abi::OK
        && s.is_byte_stream()
        && s.nothing_queued()
        && s.due.error.is_none()
        && f.callback(|o| o.on_all_written).is_none();
    drop(s);
    if !quiet {
        ctx.wake(core, f.into());
    }
    ctx.after_call(core);
    status
}

fn write_bytes(core: &mut Core, s: &mut State, conn: ConnectionId, data: &[u8]) -> u64 {
    let mut rest = data;
    if s.nothing_queued() {
        while !rest.is_empty() {
            match core.engine.write(conn, &[IoSlice::new(rest)]) {
                Ok(Some(n)) => rest = rest.get(n..).unwrap_or_default(),
                Ok(None) => break,
                Err(e) => return refused(s, &e),
            }
        }
    }
    if !rest.is_empty() {
        s.writable = false;
        s.out.extend_from_slice(rest);
    }
    abi::OK
}

/// The transport takes no more.
fn refused(s: &mut State, e: &SendError) -> u64 {
    if let SendError::Connection(e) = e {
        note_error(s, e);
        if matches!(e, ConnectionError::Tls(_)) {
            return abi::SECURITY;
        }
    }
    abi::IO
}

fn write_message(core: &mut Core, s: &mut State, conn: ConnectionId, data: &[u8], options: SendOptions) -> u64 {
    if data.is_empty() && s.stack.is_some_and(|stack| stack.is_sctp()) {
        return abi::OK;
    }
    let data = Bytes::copy_from_slice(data);
    if !s.nothing_queued() {
        s.waiting.push_back(Waiting { data, options });
        return abi::OK;
    }
    match send(core, s, conn, &data, options) {
        Ok(true) => abi::OK,
        Ok(false) => {
            s.waiting.push_back(Waiting { data, options });
            abi::OK
        }
        Err(SendError::MessageTooLarge { .. }) => abi::MESSAGE_TOO_BIG,
        Err(SendError::InvalidMessageProperties(_)) => abi::BAD_ARGUMENT,
        Err(e) => refused(s, &e),
    }
}

/// Hands a message to the engine; false: there is no room now.
fn send(
    core: &mut Core,
    s: &mut State,
    conn: ConnectionId,
    data: &Bytes,
    mut options: SendOptions,
) -> Result<bool, SendError> {
    if options.reliable == Some(false) && core.engine.get_property(conn, "perMsgReliability") != Some(true.into()) {
        options.reliable = None;
    }
    match core.engine.send(conn, data.clone(), options) {
        Ok(id) => {
            s.unsent += 1;
            if options.lifetime.is_some() || options.reliable == Some(false) {
                s.losable.push((id.0, data.clone()));
            }
            Ok(true)
        }
        Err(SendError::Blocked { .. }) => {
            s.writable = false;
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

/// Sends what waits for room, and ends the direction behind it if that was asked for.
pub(crate) fn flush(ctx: &Context, f: &Flow) {
    let mut core = ctx.core.borrow_mut();
    let core = &mut *core;
    let mut s = f.state.borrow_mut();
    let s = &mut *s;
    let Some(conn) = s.conn else { return };
    while s.out_at < s.out.len() && s.writable {
        match core.engine.write(conn, &[IoSlice::new(&s.out[s.out_at..])]) {
            Ok(Some(n)) => s.out_at += n,
            Ok(None) => s.writable = false,
            Err(e) => {
                refused(s, &e);
                (s.out, s.out_at) = (Vec::new(), 0);
            }
        }
    }
    if s.out_at == s.out.len() && s.out_at > 0 {
        (s.out, s.out_at) = (Vec::new(), 0);
    } else if s.out_at > s.out.len() / 2 {
        s.out.drain(..core::mem::take(&mut s.out_at));
    }
    while s.writable
        && let Some(first) = s.waiting.pop_front()
    {
        match send(core, s, conn, &first.data, first.options) {
            Ok(true) => {}
            Ok(false) => s.waiting.push_front(first),
            Err(e) => {
                refused(s, &e);
            }
        }
    }
    if s.shutdown && !s.finished && s.nothing_queued() {
        s.finished = true;
        let _ = core.engine.finish(conn);
    }
}

/// Gives the engine what still waits, for a flow that is being closed: what was written is
/// delivered if the peer takes it.
pub(crate) fn hand_over(core: &mut Core, s: &mut State, conn: ConnectionId) {
    if s.finished {
        return;
    }
    let options = SendOptions::default();
    if s.out_at < s.out.len() {
        let rest = Bytes::from(core::mem::take(&mut s.out)).slice(s.out_at..);
        s.out_at = 0;
        let _ = core.engine.send(conn, rest, options);
    }
    while let Some(waiting) = s.waiting.pop_front() {
        let _ = core.engine.send(conn, waiting.data, waiting.options);
    }
}

/// Whether there is something to read. It looks, so that the peer's end and errors are found
/// without the program.
pub(crate) fn has_data(ctx: &Context, f: &Flow) -> bool {
    let mut core = ctx.core.borrow_mut();
    let mut s = f.state.borrow_mut();
    let found = fill(&mut core, &mut s);
    ctx.after_call(&mut core);
    found
}

fn fill(core: &mut Core, s: &mut State) -> bool {
    if !s.inbox.is_empty() {
        return true;
    }
    let Some(conn) = s.conn.filter(|_| s.readable) else { return false };
    if !s.is_byte_stream() {
        return fill_message(core, s, conn);
    }
    let mut buffer = s.inbox.ahead.take().unwrap_or_else(|| core.take_buffer());
    let read = core.engine.read(conn, &mut buffer[..]);
    match after_read(s, read) {
        0 => {
            core.return_buffer(Some(buffer));
            false
        }
        n => {
            s.inbox.ahead = Some(buffer);
            (s.inbox.at, s.inbox.end) = (0, n);
            true
        }
    }
}

/// What reading a stream has found; returns how many bytes.
fn after_read(s: &mut State, read: Result<Option<usize>, ConnectionError>) -> usize {
    match read {
        Ok(Some(n)) if n > 0 => return n,
        Ok(Some(_)) => s.due.end = true,
        Ok(None) => {}
        Err(e) => note_error(s, &e),
    }
    s.readable = false;
    0
}

/// Takes the next message, or the next part of one.
fn fill_message(core: &mut Core, s: &mut State, conn: ConnectionId) -> bool {
    loop {
        let part = match core.engine.receive(conn, usize::MAX) {
            Ok(ReceiveOutcome::Received(part)) => part,
            Ok(ReceiveOutcome::Blocked) => break,
            Ok(ReceiveOutcome::End) => {
                s.due.end = true;
                break;
            }
            Err(e) => {
                note_error(s, &e);
                break;
            }
        };
        if let Some(message) = gathered(s, &part) {
            s.inbox.stream = part.stream;
            s.inbox.message = message.unwrap_or(part.data);
            s.inbox.has_message = true;
            return true;
        }
    }
    s.readable = false;
    false
}

/// Puts a part to the others of its message. `Some(None)`: it is to be delivered as it is.
fn gathered(s: &mut State, part: &Received) -> Option<Option<Bytes>> {
    let number = match part.message {
        Some(number) => number,
        None if s.messages => u64::MAX,
        // A stream of bytes to the program.
        None => return Some(None),
    };
    let at = s.inbox.parts.iter().position(|(n, _)| *n == number);
    match (at, part.end_of_message) {
        (None, true) => Some(None),
        (None, false) => {
            s.inbox.parts.push((number, part.data.to_vec()));
            None
        }
        (Some(at), last) => {
            s.inbox.parts[at].1.extend_from_slice(&part.data);
            last.then(|| Some(Bytes::from(s.inbox.parts.swap_remove(at).1)))
        }
    }
}

/// `neat_read`: a status, and how many bytes.
pub(crate) fn read(ctx: &Context, f: &Flow, into: &mut [u8]) -> (u64, usize) {
    let mut core = ctx.core.borrow_mut();
    let core = &mut *core;
    let mut state = f.state.borrow_mut();
    let s = &mut *state;
    let (Phase::Open | Phase::Failed, Some(conn)) = (s.phase, s.conn) else { return (abi::IO, 0) };
    s.stalled = false;
    let had = !s.inbox.is_empty();
    let mut n = 0;
    if s.is_byte_stream() {
        if had {
            n = s.inbox.take(into);
            if s.inbox.is_empty() {
                core.return_buffer(s.inbox.ahead.take());
            }
        }
        // Straight into the program's buffer.
        if n < into.len() && s.readable {
            let read = core.engine.read(conn, &mut into[n..]);
            n += after_read(s, read);
        }
    } else if fill(core, s) {
        if s.messages && s.inbox.len() > into.len() {
            s.stalled = true;
            return (abi::MESSAGE_TOO_BIG, 0);
        }
        // A message may be there that has no bytes.
        let length = s.inbox.len();
        n = s.inbox.take(into);
        if length == 0 {
            return (abi::OK, 0);
        }
    }
    s.received += n as u64;
    s.last_read = u32::try_from(n).unwrap_or(u32::MAX);
    let failed = s.due.error.is_some();
    drop(state);
    ctx.wake(core, f.into());
    ctx.after_call(core);
    match n {
        0 if into.is_empty() => (abi::OK, 0),
        0 if failed => (abi::IO, 0),
        0 => (abi::WOULD_BLOCK, 0),
        n => (abi::OK, n),
    }
}

/// `neat_shutdown`.
pub(crate) fn shutdown(ctx: &Context, f: &Flow) -> u64 {
    {
        let mut s = f.state.borrow_mut();
        if s.phase != Phase::Open {
            return abi::IO;
        }
        s.shutdown = true;
    }
    flush(ctx, f);
    let mut core = ctx.core.borrow_mut();
    ctx.wake(&mut core, f.into());
    ctx.after_call(&mut core);
    abi::OK
}
