//! From events of the engine to callbacks of the program.
//!
//! *Responsible for* what the handles of the loop do, for what an event changes about a flow, and
//! for the order of callbacks: within one round of a flow connected, writable, all written,
//! readable, then what ends it.
//!
//! *Invariants*: callbacks run while nothing is borrowed; `on_close` is the last one of a flow and
//! comes once; a flow is freed no earlier than the loop's next round; no panic reaches C.

use crate::abi::{self, Callback, Operations};
use crate::context::{Context, Core, freed};
use crate::flow::{Flow, Phase, State};
use crate::log::Level;
use crate::uv::{self, UvHandle};
use crate::{manager, open, transfer};
use core::ffi::c_int;
use core::ptr::NonNull;
use neater_base::net::ErrorKind;
use neater_engine::{ConnectionError, ConnectionId, Event, ListenerId, MessageId, Source};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The context of a handle, if it is still of use.
fn context_of<'a>(handle: *mut UvHandle) -> Option<(NonNull<Context>, &'a Context)> {
    // SAFETY: libuv calls with a handle of ours, whose data is its context; that closes its handles
    // before it goes.
    let ctx = NonNull::new(unsafe { uv::uv_handle_get_data(handle) }.cast::<Context>())?;
    let this = Context::of(ctx);
    (!this.dead.get()).then_some((ctx, this))
}

/// The engine's descriptor is readable.
pub(crate) extern "C" fn on_poll(handle: *mut UvHandle, _status: c_int, _events: c_int) {
    enter(handle, true);
}

/// Something is left to do at once.
pub(crate) extern "C" fn on_idle(handle: *mut UvHandle) {
    enter(handle, false);
}

/// A second has passed.
pub(crate) extern "C" fn on_tick(handle: *mut UvHandle) {
    if let Some((_, ctx)) = context_of(handle)
        && let Ok(mut core) = ctx.core.try_borrow_mut()
    {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            manager::look_at_the_clock(ctx, &mut core);
            look_at_peers(ctx, &mut core);
        }));
    }
    enter(handle, true);
}

/// Has flows served that were connected without a look at whether their peers have ended.
fn look_at_peers(ctx: &Context, core: &mut Core) {
    if core::mem::take(&mut core.unlooked) {
        let flows: Vec<_> = core.flows.iter().flatten().copied().collect();
        for flow in flows {
            ctx.wake(core, flow);
        }
    }
}

/// The loop is about to wait.
pub(crate) extern "C" fn on_prepare(handle: *mut UvHandle) {
    let Some((_, ctx)) = context_of(handle) else { return };
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if ctx.depth.get() == 0 {
            reap(ctx);
        }
        let Ok(mut core) = ctx.core.try_borrow_mut() else { return };
        core.engine.settle();
        ctx.rest(&mut core);
    }));
}

fn enter(handle: *mut UvHandle, turn: bool) {
    let Some((ctx, this)) = context_of(handle) else { return };
    this.depth.set(this.depth.get() + 1);
    if catch_unwind(AssertUnwindSafe(|| round(this, turn))).is_err() {
        this.log.line(Level::Error, format_args!("a defect of this library: a round of the loop was given up"));
    }
    this.depth.set(this.depth.get() - 1);
    if this.dead.get() && this.depth.get() == 0 {
        Context::bury(ctx);
    }
}

/// What the engine has to report, then one round of every flow that has something to report.
fn round(ctx: &Context, turn: bool) {
    let flows = {
        // Only where the program runs the loop within a callback is it borrowed here; the outer
        // round goes on with it.
        let Ok(mut core) = ctx.core.try_borrow_mut() else { return };
        match turn {
            true => core.engine.turn(),
            false => core.engine.settle(),
        }
        take_notices(ctx, &mut core);
        drop(core.engine.take_spent());
        core.ready.len()
    };
    let outermost = !ctx.in_round.replace(true);
    let _back = outermost.then(|| InRound(ctx));
    for _ in 0..flows {
        let Some(flow) = ctx.core.borrow_mut().ready.pop_front() else { break };
        // SAFETY: a flow that is queued is not freed.
        unsafe { flow.as_ref() }.state.borrow_mut().queued = false;
        serve(ctx, flow);
        if ctx.dead.get() {
            return;
        }
    }
    ctx.rest(&mut ctx.core.borrow_mut());
}

/// Flows are being served, until it is dropped.
struct InRound<'a>(&'a Context);

impl Drop for InRound<'_> {
    fn drop(&mut self) {
        self.0.in_round.set(false);
    }
}

/// Takes all events of the engine.
fn take_notices(ctx: &Context, core: &mut Core) {
    while let Some(notice) = core.engine.poll_notice() {
        match (notice.source, notice.event) {
            (Source::Listener(listener), Event::ConnectionReceived(conn)) => accept(ctx, core, listener, conn),
            (Source::Listener(_), Event::ListenerError(e)) => {
                ctx.log.line(Level::Warning, format_args!("a listener cannot accept for now: {e}"));
            }
            (Source::Connection(conn), event) => {
                if let Some(flow) = core.flow_of(conn) {
                    note(ctx, core, flow, conn, event);
                }
            }
            _ => {}
        }
    }
}

/// A listener has a new connection.
fn accept(ctx: &Context, core: &mut Core, listener: ListenerId, conn: ConnectionId) {
    core.engine.taken(listener);
    let Some((_, of)) = core.listeners.iter().find(|(l, _)| *l == listener).copied() else {
        core.engine.release(conn);
        return;
    };
    // SAFETY: flows in the context's lists are alive.
    let listening = unsafe { of.as_ref() };
    let ops = listening.callbacks().inherited();
    let flow = Flow::make(ctx, core, ops);
    core.bind(conn, flow);
    let stack = core.engine.stack(conn);
    let (port, udp) = {
        let l = listening.state.borrow();
        (l.port, l.props.as_ref().is_some_and(|p| p.names_sctp_udp()))
    };
    // SAFETY: it was just made.
    let f = unsafe { flow.as_ref() };
    {
        let mut s = f.state.borrow_mut();
        s.phase = Phase::Open;
        s.conn = Some(conn);
        s.accepted = true;
        s.port = port;
        s.stack = stack;
        s.due.connected = true;
        (s.readable, s.writable) = (true, true);
    }
    f.edit(|o| o.transport_protocol = stack.map_or(0, |s| abi::stack_number(s, udp)));
    ctx.wake(core, flow);
}

/// What an event changes about a flow.
fn note(ctx: &Context, core: &mut Core, flow: NonNull<Flow>, conn: ConnectionId, event: Event) {
    // SAFETY: flows in the context's lists are alive.
    let f = unsafe { flow.as_ref() };
    match event {
        Event::Ready => open::established(ctx, core, flow, conn),
        Event::EstablishmentError(e) => open::failed(ctx, core, flow, conn, &e),
        Event::Readable => {
            let mut s = f.state.borrow_mut();
            (s.readable, s.stalled) = (true, false);
        }
        Event::Writable => f.state.borrow_mut().writable = true,
        Event::Sent(id) => sent(f, id, None),
        Event::Expired(id) => sent(f, id, Some(ctx)),
        Event::SendError(id, e) => {
            ctx.log.line(Level::Info, format_args!("a message was not sent: {e}"));
            sent(f, id, Some(ctx));
        }
        Event::SoftError(e) => {
            ctx.log.line(Level::Info, format_args!("ICMP: {e:?}"));
            return;
        }
        Event::Closed => {
            let mut s = f.state.borrow_mut();
            s.due.end = true;
            s.readable = true;
        }
        Event::ConnectionError(e) => {
            ctx.log.line(Level::Info, format_args!("a connection has failed: {e}"));
            let mut s = f.state.borrow_mut();
            s.readable = true;
            note_error(&mut s, &e);
        }
        _ => return,
    }
    ctx.wake(core, flow);
}

/// A message needs this process no more; `lost`: it was given up.
fn sent(f: &Flow, id: MessageId, lost: Option<&Context>) {
    let mut s = f.state.borrow_mut();
    s.unsent = s.unsent.saturating_sub(1);
    let at = s.losable.iter().position(|(n, _)| *n == id.0);
    let data = at.map(|at| s.losable.swap_remove(at).1);
    if let (Some(_), Some(data)) = (lost, data) {
        s.failed.push(data);
    }
}

/// What the end of a connection by an error is reported as.
pub(crate) fn note_error(s: &mut State, e: &ConnectionError) {
    if s.due.error.is_some() || s.due.end {
        return;
    }
    match e {
        // NEAT's own TLS reports no more at its end than TCP does.
        ConnectionError::Truncated => s.due.end = true,
        ConnectionError::TimedOut => s.due.timed_out = true,
        ConnectionError::Net(n) if n.kind == ErrorKind::TimedOut => s.due.timed_out = true,
        ConnectionError::Net(n) if matches!(n.kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
            s.due.aborted = true;
            s.due.error = Some(abi::INTERNAL);
        }
        ConnectionError::StreamReset(_) | ConnectionError::Sctp(_) => {
            s.due.aborted = true;
            s.due.error = Some(abi::INTERNAL);
        }
        ConnectionError::Tls(_) => s.due.error = Some(abi::SECURITY),
        ConnectionError::LocalAbort | ConnectionError::Closed => s.due.end = true,
        _ => s.due.error = Some(abi::INTERNAL),
    }
}

/// One round of a flow.
fn serve(ctx: &Context, flow: NonNull<Flow>) {
    // SAFETY: a flow is freed no earlier than the loop's next round.
    let f = unsafe { flow.as_ref() };
    let alive = || !ctx.dead.get() && f.state.borrow().phase != Phase::Closed;
    if !alive() {
        return;
    }
    let open = f.state.borrow().phase == Phase::Open;
    if open {
        serve_open(ctx, f, &alive);
        if !alive() {
            return;
        }
    }
    end(ctx, f, &alive);
    if alive() && is_hot(f) {
        ctx.wake(&mut ctx.core.borrow_mut(), flow);
    }
}

/// What an established flow reports.
fn serve_open(ctx: &Context, f: &Flow, alive: &dyn Fn() -> bool) {
    let connected = core::mem::take(&mut f.state.borrow_mut().due.connected);
    if connected {
        call(ctx, f, f.callback(|o| o.on_connected), abi::OK);
        if !alive() {
            return;
        }
    }
    let idle = {
        let s = f.state.borrow();
        s.nothing_queued() && s.failed.is_empty() && !s.due.all_written && !s.shutdown
    };
    if idle && f.on_writable().is_none() && f.on_readable().is_none() {
        // The peer's end and errors are noticed whether data is wanted or not, but not at once
        // where there is no sign of them.
        match connected {
            true => ctx.core.borrow_mut().unlooked = true,
            false => drop(transfer::has_data(ctx, f)),
        }
        return;
    }
    transfer::flush(ctx, f);
    // Several times: the way around the loop costs more than a callback. Where everything written
    // is to be reported, that comes after each.
    for _ in 0..BURST {
        let Some(on_writable) = f.on_writable().filter(|_| may_write(f)) else { break };
        call(ctx, f, Some(on_writable), abi::OK);
        if !alive() {
            return;
        }
        if f.callback(|o| o.on_all_written).is_some() {
            break;
        }
    }
    let failed = core::mem::take(&mut f.state.borrow_mut().failed);
    for data in failed {
        if let Some(on_send_failure) = f.callbacks().on_send_failure {
            prepare(ctx, f, abi::OK);
            let _depth = Depth::enter(ctx);
            on_send_failure(f.ops.get(), 0, data.as_ptr());
        }
        if !alive() {
            return;
        }
    }
    let written = {
        let mut s = f.state.borrow_mut();
        let all = s.due.all_written && s.nothing_queued() && s.unsent == 0;
        s.due.all_written &= !all;
        all
    };
    if written {
        call(ctx, f, f.callback(|o| o.on_all_written), abi::OK);
        if !alive() {
            return;
        }
    }
    // Also without a handler: the peer's end and errors are noticed whether data is wanted or not.
    for _ in 0..BURST {
        if f.state.borrow().stalled || !transfer::has_data(ctx, f) {
            break;
        }
        let on_readable @ Some(_) = f.on_readable() else { break };
        let before = f.state.borrow().received;
        call(ctx, f, on_readable, abi::OK);
        if !alive() || f.state.borrow().received == before {
            break;
        }
    }
}

/// How often one flow's `on_writable`, or `on_readable`, is called before other flows have their
/// turn.
const BURST: usize = 16;

/// Whether there is room, and nothing of this flow waits for it.
fn may_write(f: &Flow) -> bool {
    let s = f.state.borrow();
    s.writable && s.nothing_queued() && !s.finished && s.phase == Phase::Open && s.due.error.is_none()
}

/// What ends a flow, when what came before was read, or is not wanted.
fn end(ctx: &Context, f: &Flow, alive: &dyn Fn() -> bool) {
    let due = {
        let mut s = f.state.borrow_mut();
        if !(s.due.end || s.due.aborted || s.due.timed_out || s.due.error.is_some()) {
            return;
        }
        let unread = s.phase == Phase::Open && (!s.inbox.is_empty() || s.readable);
        if unread && (s.due.end && s.due.error.is_none() || f.on_readable().is_some()) {
            return;
        }
        let due = s.due;
        (s.due.aborted, s.due.timed_out, s.due.error) = (false, false, None);
        if due.error.is_some() || due.timed_out {
            s.phase = if s.phase == Phase::Closed { Phase::Closed } else { Phase::Failed };
        }
        due
    };
    if due.aborted {
        call(ctx, f, f.callback(|o| o.on_aborted), abi::OK);
    }
    if due.timed_out && alive() {
        call(ctx, f, f.callback(|o| o.on_timeout), abi::OK);
    }
    if let Some(status) = due.error.filter(|_| alive()) {
        call(ctx, f, f.callback(|o| o.on_error), status);
    } else if due.end && alive() {
        close(ctx, NonNull::from(f));
    }
}

/// Whether a flow has more to report at once.
fn is_hot(f: &Flow) -> bool {
    let s = f.state.borrow();
    if s.phase != Phase::Open {
        return s.due.error.is_some();
    }
    let reads = f.on_readable().is_some() && !s.stalled && (s.readable || !s.inbox.is_empty());
    let writes = f.on_writable().is_some() && s.writable && !s.finished && s.nothing_queued();
    let ends = s.due.end && s.inbox.is_empty() && !s.readable;
    reads || writes || ends || s.due.connected || s.due.error.is_some()
}

/// How many callbacks are on the stack.
struct Depth<'a>(&'a Context);

impl<'a> Depth<'a> {
    fn enter(ctx: &'a Context) -> Self {
        ctx.depth.set(ctx.depth.get() + 1);
        Self(ctx)
    }
}

impl Drop for Depth<'_> {
    fn drop(&mut self) {
        self.0.depth.set(self.0.depth.get() - 1);
    }
}

/// What the library writes into the struct before a callback.
fn prepare(ctx: &Context, f: &Flow, status: u64) {
    let stream = f.state.borrow().inbox.stream.unwrap_or(abi::NO_STREAM);
    let write = |o: &mut Operations| {
        o.status = status;
        o.stream_id = stream;
        o.ctx = ctx.as_ptr();
        o.flow = f.as_ptr();
    };
    f.edit(write);
}

/// Calls a function of the program's. Nothing is borrowed, so it may call anything.
pub(crate) fn call(ctx: &Context, f: &Flow, callback: Callback, status: u64) {
    let Some(callback) = callback else { return };
    prepare(ctx, f, status);
    let _depth = Depth::enter(ctx);
    callback(f.ops.get());
}

/// Closes a flow in whatever state, and reports it.
pub(crate) fn close(ctx: &Context, flow: NonNull<Flow>) {
    // SAFETY: the flow comes from the context's list, or from C, which may have it
    // until the loop's next round.
    let f = unsafe { flow.as_ref() };
    {
        let mut core = ctx.core.borrow_mut();
        let core = &mut *core;
        if f.state.borrow().phase == Phase::Closed {
            return;
        }
        manager::drop_question(core, f);
        let mut s = f.state.borrow_mut();
        s.phase = Phase::Closed;
        if let Some(conn) = s.conn {
            transfer::hand_over(core, &mut s, conn);
            core.unbind(conn);
            core.engine.release(conn);
        }
        for listener in core::mem::take(&mut s.listeners) {
            core.engine.stop(listener);
        }
        core.listeners.retain(|(_, of)| *of != flow);
        core.return_buffer(s.inbox.ahead.take());
        (s.inbox.at, s.inbox.end) = (0, 0);
        stop_timer(&mut s);
        core.graves.push(flow);
        let waits = s.more.as_mut().is_some_and(|m| m.leader.take().is_some());
        core.followers -= usize::from(waits);
        drop(s);
        open::left(ctx, core, flow);
        ctx.after_call(core);
    }
    call(ctx, f, f.callback(|o| o.on_close), abi::OK);
}

/// Stops the timer of `set_initiate_timer`, if there is one.
pub(crate) fn stop_timer(s: &mut State) {
    if let Some(timer) = s.more.as_mut().and_then(|m| m.timer.take()) {
        // SAFETY: the handle was initialised when it was put there, and is closed once: it is
        // taken.
        unsafe {
            uv::uv_handle_set_data(timer.as_ptr(), core::ptr::null_mut());
            uv::uv_timer_stop(timer.as_ptr());
            uv::uv_close(timer.as_ptr(), freed);
        }
    }
}

/// Frees the flows that were closed before this round of the loop.
fn reap(ctx: &Context) {
    let Ok(mut core) = ctx.core.try_borrow_mut() else { return };
    if core.graves.is_empty() {
        return;
    }
    let graves = core::mem::take(&mut core.graves);
    for flow in graves {
        // SAFETY: flows in the context's list are alive.
        let f = unsafe { flow.as_ref() };
        if f.state.borrow().queued {
            core.graves.push(flow);
            continue;
        }
        let place = f.place;
        core.flows[place] = None;
        core.free_places.push(place);
        let s = f.state.borrow();
        core.sent += s.sent;
        core.received += s.received;
        drop(s);
        // SAFETY: it was made by `make`, is in no list any more, and on_close has announced to C
        // that it goes.
        unsafe { core.room.end(flow) };
    }
}

/// Does something that may run callbacks, for a call from C or from a timer: a context that one of
/// them frees goes at the end.
pub(crate) fn outer<R>(ctx: NonNull<Context>, f: impl FnOnce() -> R) -> R {
    let this = Context::of(ctx);
    let result = {
        let _depth = Depth::enter(this);
        f()
    };
    if this.dead.get() && this.depth.get() == 0 {
        Context::bury(ctx);
    }
    result
}
