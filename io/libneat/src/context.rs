//! A context: what a `struct neat_ctx *` points to, with its event loop.
//!
//! *Responsible for* the loop and the handles in it, for the end of a context, and for who frees
//! what.
//! *Not responsible for* what happens when one of the handles fires (`dispatch.rs`).
//!
//! *Invariants*: no callback of the program's runs while [`Core`] or a flow's state is borrowed;
//! the memory of a loop on which `uv_run` may still be is not freed; only the context's own handles
//! are closed with it.

use crate::dispatch;
use crate::flow::{AHEAD, Ahead, Flow, Room};
use crate::log::{Level, Log};
use crate::manager::Place;
use crate::open::Member;
use crate::properties::Properties;
use crate::uv::{self, UvHandle, UvLoop};
use core::cell::{Cell, RefCell};
use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use neater_engine::{ConnectionId, Engine, EngineConfig, Limits, ListenerId, RemoteEndpoint};
use neater_net::OsNet;
use neater_tls::Crypto;
use std::collections::{HashMap, VecDeque};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A context.
pub struct Context {
    pub(crate) core: RefCell<Core>,
    pub(crate) events: Rc<Loop>,
    poll: *mut UvHandle,
    timer: *mut UvHandle,
    pub(crate) idle: *mut UvHandle,
    prepare: *mut UvHandle,
    /// How many callbacks are on the stack.
    pub(crate) depth: Cell<u32>,
    /// Flows are being served.
    pub(crate) in_round: Cell<bool>,
    /// `neat_free_ctx` was called within one of them.
    pub(crate) dead: Cell<bool>,
    pub(crate) log: Log,
}

/// The loop, which may outlive its context.
pub(crate) struct Loop {
    pub(crate) ptr: *mut UvLoop,
    /// `neat_start_event_loop` is running it.
    pub(crate) running: Cell<bool>,
    /// The context is gone.
    gone: Cell<bool>,
}

/// What a context has, beside its loop.
pub(crate) struct Core {
    pub(crate) engine: Engine<OsNet>,
    pub(crate) policies: Option<neater::policies::Follower>,
    /// A policy manager of NEAT's own protocol, and how many flows wait for its answers.
    pub(crate) manager: Place,
    pub(crate) asking: usize,
    pub(crate) has_roots: bool,
    pub(crate) flows: Vec<Option<NonNull<Flow>>>,
    pub(crate) room: Room,
    /// There are flows of which it is not known whether their peers have ended already.
    pub(crate) unlooked: bool,
    pub(crate) free_places: Vec<usize>,
    pub(crate) flow_count: u64,
    /// Whose connection has this index.
    pub(crate) by_conn: Vec<Option<(ConnectionId, NonNull<Flow>)>>,
    pub(crate) listeners: Vec<(ListenerId, NonNull<Flow>)>,
    /// Flows that have something to report.
    pub(crate) ready: VecDeque<NonNull<Flow>>,
    /// Closed flows, which the program may still have in its hands.
    pub(crate) graves: Vec<NonNull<Flow>>,
    /// Whether the loop is to come round at once.
    pub(crate) idling: bool,
    interned: HashMap<Box<str>, Rc<Properties>>,
    pub(crate) no_properties: Rc<Properties>,
    remotes: HashMap<(Rc<str>, u16), Arc<[RemoteEndpoint]>>,
    /// Those of the flow that was opened last.
    latest: Option<(Rc<str>, u16, Arc<[RemoteEndpoint]>)>,
    /// Buffers for reading ahead.
    buffers: Vec<Ahead>,
    /// Flows that are, or are to be, streams of associations, and those that wait for one of them:
    /// see `open.rs`.
    pub(crate) streams: Vec<Member>,
    pub(crate) followers: usize,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// How many texts of properties, and how many remote endpoints, are kept for the next flow.
const KEPT: usize = 1024;
/// How long freeing a context waits for what userland transports have still to deliver.
const FAREWELL: Duration = Duration::from_secs(2);
/// How often the loop comes round at the least, in milliseconds.
const TICK: u64 = 1000;

impl Context {
    /// A context with a loop of its own.
    ///
    /// # Errors
    /// In words: the system has no descriptor, memory or randomness left.
    pub(crate) fn make() -> Result<NonNull<Self>, String> {
        let crypto = Crypto::system();
        let mut seed = [0; 32];
        let random = crypto.provider.secure_random.fill(&mut seed);
        random.map_err(|_| "the operating system gives no random numbers")?;
        let net = OsNet::new().map_err(|e| e.to_string())?;
        let fd = net.as_raw_fd();
        let limits = limits();
        let mut engine = Engine::new(net, EngineConfig { limits, ..EngineConfig::new(seed, crypto) });
        let log = Log::new();
        let policies = neater::policies::Follower::begin(&mut engine);
        let policies = policies.map_err(|e| log.line(Level::Warning, format_args!("policies do not count: {e}")));
        let core = Core {
            engine,
            policies: policies.ok(),
            manager: Place::of_environment(),
            asking: 0,
            has_roots: false,
            flows: Vec::new(),
            room: Room::default(),
            unlooked: false,
            free_places: Vec::new(),
            flow_count: 0,
            by_conn: Vec::new(),
            listeners: Vec::new(),
            ready: VecDeque::new(),
            graves: Vec::new(),
            idling: false,
            interned: HashMap::new(),
            no_properties: Rc::default(),
            remotes: HashMap::new(),
            latest: None,
            buffers: Vec::new(),
            streams: Vec::new(),
            followers: 0,
            sent: 0,
            received: 0,
        };
        let events = Rc::new(Loop::make()?);
        let handle = |kind| make_handle(kind).ok_or("no memory for a handle of the event loop");
        let (poll, timer) = (handle(uv::POLL)?, handle(uv::TIMER)?);
        let (idle, prepare) = (handle(uv::IDLE)?, handle(uv::PREPARE)?);
        let (depth, dead) = (Cell::new(0), Cell::new(false));
        let (core, in_round) = (RefCell::new(core), Cell::new(false));
        let ctx = Box::new(Self { core, events, poll, timer, idle, prepare, depth, in_round, dead, log });
        let ctx = NonNull::from(Box::leak(ctx));
        let this = Self::of(ctx);
        let l = this.events.ptr;
        // SAFETY: `l` is an initialised loop, and each handle is memory of the size that libuv asks
        // for its type. The context, which they point to, outlives them: it closes them before it
        // goes.
        let failed = unsafe {
            let begun = [
                uv::uv_poll_init(l, poll, fd),
                uv::uv_timer_init(l, timer),
                uv::uv_idle_init(l, idle),
                uv::uv_prepare_init(l, prepare),
            ];
            for h in [poll, timer, idle, prepare] {
                uv::uv_handle_set_data(h, ctx.as_ptr().cast::<c_void>());
            }
            let started = [
                uv::uv_poll_start(poll, uv::READABLE, dispatch::on_poll),
                uv::uv_timer_start(timer, dispatch::on_tick, TICK, TICK),
                uv::uv_prepare_start(prepare, dispatch::on_prepare),
            ];
            begun.into_iter().chain(started).find(|e| *e != 0)
        };
        match failed {
            None => Ok(ctx),
            Some(e) => Err(format!("libuv cannot watch the engine's descriptor (error {e})")),
        }
    }

    /// The context behind a pointer of ours.
    pub(crate) fn of<'a>(ctx: NonNull<Self>) -> &'a Self {
        // SAFETY: it was made by `make`, and the pointer is used before `bury` only.
        unsafe { ctx.as_ref() }
    }

    pub(crate) fn as_ptr(&self) -> *mut Self {
        core::ptr::from_ref(self).cast_mut()
    }

    /// To be called after every call from C: the loop comes round at once if there is something to
    /// do or to report.
    pub(crate) fn after_call(&self, core: &mut Core) {
        // It will: the next round does all there is to do, and this one looks at its end.
        if core.idling || self.in_round.get() {
            return;
        }
        if core.engine.after_call() || !core.ready.is_empty() || core.engine.has_spent() {
            core.idling = true;
            // SAFETY: the handle is initialised and not closing while the context lives.
            unsafe { uv::uv_idle_start(self.idle, dispatch::on_idle) };
        }
    }

    /// The loop waits again.
    pub(crate) fn rest(&self, core: &mut Core) {
        let busy = core.engine.after_call() || !core.ready.is_empty();
        if busy != core.idling {
            core.idling = busy;
            // SAFETY: as in `after_call`.
            unsafe {
                match busy {
                    true => uv::uv_idle_start(self.idle, dispatch::on_idle),
                    false => uv::uv_idle_stop(self.idle),
                }
            };
        }
    }

    /// Puts a flow among those that have something to report.
    pub(crate) fn wake(&self, core: &mut Core, flow: NonNull<Flow>) {
        // SAFETY: flows in the context's lists are alive.
        let f = unsafe { flow.as_ref() };
        let mut state = f.state.borrow_mut();
        if !state.queued && state.phase != crate::flow::Phase::Closed {
            state.queued = true;
            core.ready.push_back(flow);
        }
    }

    /// Ends a context, now or when the outermost callback returns.
    pub(crate) fn free(ctx: NonNull<Self>) {
        let this = Self::of(ctx);
        if this.dead.replace(true) {
            return;
        }
        if this.depth.get() == 0 {
            Self::bury(ctx);
        }
    }

    /// The end of a context on which no callback is running.
    pub(crate) fn bury(ctx: NonNull<Self>) {
        let this = Self::of(ctx);
        // While flows are closed, their callbacks may call anything.
        this.depth.set(1);
        let mut all: Vec<_> = this.core.borrow().flows.iter().flatten().copied().collect();
        // SAFETY: flows in the context's list are alive.
        all.sort_by_key(|f| core::cmp::Reverse(unsafe { f.as_ref() }.number));
        for flow in all {
            dispatch::close(this, flow);
        }
        this.farewell();
        let handles = [this.poll, this.timer, this.idle, this.prepare];
        let events = this.events.clone();
        for h in handles {
            // SAFETY: each handle is initialised and not closing, for only this closes it; `freed`
            // frees its memory.
            unsafe { uv::uv_close(h, freed) };
        }
        // What was made meanwhile, in on_close, goes too.
        let flows: Vec<_> = this.core.borrow_mut().flows.drain(..).flatten().collect();
        for flow in flows {
            // SAFETY: it is in no list any more, and the context that could lead to it goes now.
            unsafe { this.core.borrow_mut().room.end(flow) };
        }
        // SAFETY: `make` leaked the box, and no callback of a handle finds it: they are closing.
        drop(unsafe { Box::from_raw(ctx.as_ptr()) });
        events.gone.set(true);
        match events.running.get() {
            // SAFETY: the loop is alive: it is being run.
            true => unsafe { uv::uv_stop(events.ptr) },
            false => events.end(),
        }
    }

    /// Lets transports that live in this process deliver what they have taken.
    fn farewell(&self) {
        let until = Instant::now() + FAREWELL;
        let mut core = self.core.borrow_mut();
        let fd = core.engine.net().as_raw_fd();
        loop {
            core.engine.settle();
            while core.engine.poll_notice().is_some() {}
            let stats = core.engine.stats();
            // What TCP has taken is the system's business.
            let busy = stats.sctp_associations > 0 || stats.bytes_queued > 0;
            let left = until.saturating_duration_since(Instant::now());
            if !busy || left.is_zero() {
                return;
            }
            let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let millis = c_int::try_from(left.as_millis()).unwrap_or(c_int::MAX);
            // SAFETY: one live pollfd is passed with the count 1.
            unsafe { libc::poll(&raw mut poll, 1, millis) };
            core.engine.turn();
        }
    }
}

impl Loop {
    fn make() -> Result<Self, String> {
        // SAFETY: libuv reports the size of a loop, and initialises memory of that size.
        let ptr = unsafe { libc::calloc(1, uv::uv_loop_size()) }.cast::<UvLoop>();
        if ptr.is_null() {
            return Err("no memory for an event loop".into());
        }
        // SAFETY: as above.
        let e = unsafe { uv::uv_loop_init(ptr) };
        if e != 0 {
            // SAFETY: it came from calloc, and nothing uses it.
            unsafe { libc::free(ptr.cast()) };
            return Err(format!("libuv cannot make an event loop (error {e})"));
        }
        Ok(Self { ptr, running: Cell::new(false), gone: Cell::new(false) })
    }

    /// Runs the loop for `neat_start_event_loop`.
    pub(crate) fn run(&self, mode: c_int) {
        self.running.set(true);
        // SAFETY: the loop is initialised, and its memory stays while this runs.
        unsafe { uv::uv_run(self.ptr, mode) };
        self.running.set(false);
        if self.gone.get() {
            self.end();
        }
    }

    /// Frees the loop of a context that is gone, if the program has no handles in it. Otherwise it
    /// goes on being the program's.
    fn end(&self) {
        // What is closing needs a turn of the loop each, and one more.
        for _ in 0..CLOSING_TURNS {
            // SAFETY: the loop is initialised. If the program runs it, too, and this is one of its
            // callbacks, this is one turn that does not wait; its handles are all in it, so that it
            // is not closed below.
            match unsafe { uv::uv_loop_close(self.ptr) } {
                uv::EBUSY => {
                    // SAFETY: as above.
                    unsafe { uv::uv_run(self.ptr, uv::RUN_NOWAIT) }
                }
                _ => {
                    // The thread that runs it may still be on its way out: the memory stays until
                    // the thread ends.
                    ENDED.with(|ended| ended.borrow_mut().0.push(self.ptr));
                    return;
                }
            };
        }
        ENDED.with(|ended| ended.borrow_mut().0.push(self.ptr));
    }
}

/// How many turns closing the context's own handles may take.
const CLOSING_TURNS: u32 = 3;

/// Loops whose contexts are gone.
struct Ended(Vec<*mut UvLoop>);

impl Drop for Ended {
    fn drop(&mut self) {
        for ptr in self.0.drain(..) {
            // SAFETY: the thread ends, and with it all that could run the loop.
            unsafe { libc::free(ptr.cast()) };
        }
    }
}

thread_local! {
    static ENDED: RefCell<Ended> = const { RefCell::new(Ended(Vec::new())) };
}

/// Memory for a handle.
pub(crate) fn make_handle(kind: c_int) -> Option<*mut UvHandle> {
    // SAFETY: libuv reports the size of the type.
    let memory = unsafe { libc::calloc(1, uv::uv_handle_size(kind)) };
    (!memory.is_null()).then_some(memory.cast())
}

/// Frees the memory of a handle that libuv has closed.
pub(crate) extern "C" fn freed(handle: *mut UvHandle) {
    // SAFETY: it came from `make_handle`, and libuv does not use it after this call.
    unsafe { libc::free(handle.cast()) };
}

impl Core {
    /// The flow whose connection this is.
    pub(crate) fn flow_of(&self, conn: ConnectionId) -> Option<NonNull<Flow>> {
        match self.by_conn.get(conn.index()) {
            Some(Some((id, flow))) if *id == conn => Some(*flow),
            _ => None,
        }
    }

    pub(crate) fn bind(&mut self, conn: ConnectionId, flow: NonNull<Flow>) {
        if self.by_conn.len() <= conn.index() {
            self.by_conn.resize(conn.index() + 1, None);
        }
        self.by_conn[conn.index()] = Some((conn, flow));
    }

    pub(crate) fn unbind(&mut self, conn: ConnectionId) {
        if self.flow_of(conn).is_some() {
            self.by_conn[conn.index()] = None;
        }
    }

    /// The properties of a text, which is read once.
    pub(crate) fn intern(&mut self, text: &str) -> Result<Rc<Properties>, String> {
        if let Some(known) = self.interned.get(text) {
            return Ok(known.clone());
        }
        let read = Rc::new(Properties::default().over(text)?);
        if self.interned.len() >= KEPT {
            self.interned.clear();
        }
        self.interned.insert(text.into(), read.clone());
        Ok(read)
    }

    /// The remote endpoints of a name, or of several with commas between them; and the name to
    /// keep. `None`: it is not UTF-8.
    pub(crate) fn remotes_of(&mut self, name: &[u8], port: u16) -> Option<(Rc<str>, Arc<[RemoteEndpoint]>)> {
        // Many flows one after the other go to the same place.
        if let Some((known, at, remotes)) = &self.latest
            && *at == port
            && known.as_bytes() == name
        {
            return Some((known.clone(), remotes.clone()));
        }
        let name: Rc<str> = core::str::from_utf8(name).ok()?.into();
        let remotes = match self.remotes.get(&(name.clone(), port)) {
            Some(known) => known.clone(),
            None => {
                let each = name.split(',').map(str::trim).filter(|n| !n.is_empty());
                let remotes: Arc<[_]> = each.map(|n| RemoteEndpoint::new().with_host_name(n).with_port(port)).collect();
                if self.remotes.len() >= KEPT {
                    self.remotes.clear();
                }
                self.remotes.insert((name.clone(), port), remotes.clone());
                remotes
            }
        };
        self.latest = Some((name.clone(), port, remotes.clone()));
        Some((name, remotes))
    }

    /// A buffer for reading ahead.
    pub(crate) fn take_buffer(&mut self) -> Ahead {
        self.buffers.pop().unwrap_or_else(|| Box::new([0; AHEAD]))
    }

    /// Keeps a buffer for the next flow.
    pub(crate) fn return_buffer(&mut self, buffer: Option<Ahead>) {
        if let Some(buffer) = buffer.filter(|_| self.buffers.len() < KEPT_BUFFERS) {
            self.buffers.push(buffer);
        }
    }
}

/// How many are kept.
const KEPT_BUFFERS: usize = 16;

/// The default limits, within what descriptors this process may have: a listener holds at most a
/// quarter of them.
fn limits() -> Limits {
    let mut limits = Limits::default();
    let mut descriptors = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `getrlimit` writes one `rlimit`, which `descriptors` is.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut descriptors) } == 0 {
        let quarter = usize::try_from(descriptors.rlim_cur / 4).unwrap_or(usize::MAX).max(1);
        limits.untaken = limits.untaken.min(quarter);
        limits.handshakes = limits.handshakes.min((quarter / 2).max(1));
    }
    limits
}
