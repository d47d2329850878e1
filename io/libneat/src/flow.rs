//! A flow: what a `struct neat_flow *` points to.

use crate::abi::{Callback, Operations};
use crate::context::{Context, Core};
use crate::manager::{Asked, Candidate};
use crate::properties::Properties;
use crate::uv::UvHandle;
use bytes::{Buf, Bytes};
use core::cell::{RefCell, UnsafeCell};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use neater_engine::{ConnectionId, ListenerId, RemoteEndpoint, Request, SendOptions, Stack};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// A flow. It lives until the loop goes round after it was closed, so that a callback may use it to
/// its own end.
pub struct Flow {
    pub(crate) ctx: NonNull<Context>,
    /// Its number in [`Core::flows`], and how many flows there were before it.
    pub(crate) place: usize,
    pub(crate) number: u64,
    /// The program's callbacks. C has a pointer to it while one of them runs.
    pub(crate) ops: UnsafeCell<Operations>,
    pub(crate) state: RefCell<State>,
}

/// Memory for flows, which is kept for the next ones: a program that opens thousands at once asks
/// the allocator for it once in a while.
#[derive(Default)]
pub(crate) struct Room {
    chunks: Vec<NonNull<[MaybeUninit<Flow>]>>,
    free: Vec<NonNull<Flow>>,
}

/// How many flows share a piece of memory.
const CHUNK: usize = 32;

impl Room {
    /// Memory without a flow in it.
    fn take(&mut self) -> NonNull<Flow> {
        loop {
            if let Some(free) = self.free.pop() {
                return free;
            }
            let chunk = NonNull::from(Box::leak(Box::new_uninit_slice(CHUNK)));
            self.chunks.push(chunk);
            let first = chunk.cast::<Flow>();
            // SAFETY: there are so many places behind the first one.
            self.free.extend((0..CHUNK).rev().map(|i| unsafe { first.add(i) }));
        }
    }

    /// Ends a flow. A program that uses it all the same finds that it is of no context, until its
    /// memory has the next one.
    ///
    /// # Safety
    /// The flow came from `Flow::make` with this room, and nothing uses it any more.
    pub(crate) unsafe fn end(&mut self, flow: NonNull<Flow>) {
        // SAFETY: the caller's promise.
        unsafe {
            flow.drop_in_place();
            (&raw mut (*flow.as_ptr()).ctx).write(NonNull::dangling());
        }
        self.free.push(flow);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: it was leaked by `take`; the flows in it were ended before the context goes.
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
    }
}

/// Where a flow is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    New,
    /// Connecting, or waiting for an association whose stream it will be.
    Opening,
    Listening,
    Open,
    /// It has reported an error, and waits for the program to close it.
    Failed,
    /// `on_close` has run, or is running.
    Closed,
}

/// What is to be reported, in the order in which it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Due {
    pub(crate) connected: bool,
    pub(crate) all_written: bool,
    pub(crate) aborted: bool,
    pub(crate) timed_out: bool,
    pub(crate) error: Option<u64>,
    /// The peer has ended; `on_close` follows what it has sent.
    pub(crate) end: bool,
}

/// A message that waits for room.
pub(crate) struct Waiting {
    pub(crate) data: Bytes,
    pub(crate) options: SendOptions,
}

/// How much is read ahead of the program, to see whether there is anything.
pub(crate) const AHEAD: usize = 4096;

/// A buffer for that.
pub(crate) type Ahead = Box<[u8; AHEAD]>;

/// What has arrived and the program has not read.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Bytes read ahead, from `at` to `end`; the buffer is the context's.
    pub(crate) ahead: Option<Ahead>,
    pub(crate) at: usize,
    pub(crate) end: usize,
    /// A message, or what is left of it.
    pub(crate) message: Bytes,
    /// Whether there is one: it may be empty.
    pub(crate) has_message: bool,
    /// The stream that it came on.
    pub(crate) stream: Option<u16>,
    /// Messages of which parts have come, by their numbers.
    pub(crate) parts: Vec<(u64, Vec<u8>)>,
}

impl Inbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.end && !self.has_message
    }

    /// Bytes that can be read.
    pub(crate) fn len(&self) -> usize {
        self.end - self.at + self.message.len()
    }

    /// Moves bytes into a buffer.
    pub(crate) fn take(&mut self, into: &mut [u8]) -> usize {
        if let Some(ahead) = self.ahead.as_ref().filter(|_| self.at < self.end) {
            let ready = &ahead[self.at..self.end];
            let n = ready.len().min(into.len());
            into[..n].copy_from_slice(&ready[..n]);
            self.at += n;
            return n;
        }
        let n = self.message.len().min(into.len());
        into[..n].copy_from_slice(&self.message[..n]);
        self.message.advance(n);
        if self.message.is_empty() {
            self.has_message = false;
            self.message = Bytes::new();
        }
        n
    }
}

/// Groups of candidates that are not tried yet, of those that the properties make.
#[derive(Default)]
pub(crate) struct Left {
    all: Option<Rc<[Request]>>,
    tried: usize,
}

impl Left {
    pub(crate) const fn of(all: Rc<[Request]>) -> Self {
        Self { all: Some(all), tried: 0 }
    }

    pub(crate) fn first(&self) -> Option<&Request> {
        self.all.as_ref()?.get(self.tried)
    }

    pub(crate) fn take_first(&mut self) -> Option<Request> {
        let first = self.first().cloned();
        self.tried += 1;
        first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Messages that wait for room: on most flows, there are never any.
#[derive(Default)]
#[expect(clippy::box_collection, reason = "a pointer on each flow, where the queue itself would be four")]
pub(crate) struct Queue(Option<Box<VecDeque<Waiting>>>);

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|q| q.is_empty())
    }

    pub(crate) fn push_back(&mut self, waiting: Waiting) {
        self.0.get_or_insert_default().push_back(waiting);
    }

    pub(crate) fn push_front(&mut self, waiting: Waiting) {
        self.0.get_or_insert_default().push_front(waiting);
    }

    pub(crate) fn pop_front(&mut self) -> Option<Waiting> {
        self.0.as_mut()?.pop_front()
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}

/// What a flow is and does.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is one fact about the flow, and none follows from another")]
pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) conn: Option<ConnectionId>,
    pub(crate) listeners: Vec<ListenerId>,
    pub(crate) stack: Option<Stack>,
    /// The name of `neat_open`, and the port of either.
    pub(crate) name: Option<Rc<str>>,
    pub(crate) port: u16,
    pub(crate) props: Option<Rc<Properties>>,
    pub(crate) accepted: bool,
    /// Messages keep their boundaries when they are read.
    pub(crate) messages: bool,
    /// Candidates that are tried when those of now have failed.
    pub(crate) left: Left,
    pub(crate) remotes: Option<Arc<[RemoteEndpoint]>>,
    pub(crate) due: Due,
    /// In [`Core::ready`].
    pub(crate) queued: bool,
    /// Worth reading, and worth writing, as far as is known.
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// `neat_read` has refused a buffer that is too small: no event until something changes.
    pub(crate) stalled: bool,
    pub(crate) inbox: Inbox,
    /// Bytes of a stream that wait for room, from `out_at` on.
    pub(crate) out: Vec<u8>,
    pub(crate) out_at: usize,
    /// Messages that wait for room.
    pub(crate) waiting: Queue,
    /// Messages that the engine has not handed to the transport yet; those that may be given up,
    /// with their bytes.
    pub(crate) unsent: u64,
    pub(crate) losable: Vec<(u64, Bytes)>,
    /// Those that were given up.
    pub(crate) failed: Vec<Bytes>,
    pub(crate) shutdown: bool,
    pub(crate) finished: bool,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) last_write: u32,
    pub(crate) last_read: u32,
    pub(crate) more: Option<Box<Seldom>>,
}

/// What most flows never have.
#[derive(Default)]
pub(crate) struct Seldom {
    pub(crate) qos: u8,
    pub(crate) ecn: u8,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) priority: Option<f32>,
    pub(crate) group: i32,
    pub(crate) congestion: Option<String>,
    /// Waits for the association of this flow's: see `open.rs`.
    pub(crate) leader: Option<NonNull<Flow>>,
    /// What a policy manager is asked about it.
    pub(crate) asked: Option<Box<Asked>>,
    /// What it has decided: candidates, and the addresses that they have.
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) targets: Option<Arc<[RemoteEndpoint]>>,
    pub(crate) timer: Option<NonNull<UvHandle>>,
    pub(crate) timer_ops: Option<NonNull<Operations>>,
}

impl State {
    pub(crate) fn more(&mut self) -> &mut Seldom {
        self.more.get_or_insert_default()
    }

    /// Whether nothing waits in this library to be sent.
    pub(crate) fn nothing_queued(&self) -> bool {
        self.out_at == self.out.len() && self.waiting.is_empty()
    }

    /// Whether the engine carries its bytes as they are.
    pub(crate) fn is_byte_stream(&self) -> bool {
        matches!(self.stack, Some(Stack::Tcp | Stack::Tls | Stack::Quic))
    }
}

impl Flow {
    /// A flow of a context, in its list.
    pub(crate) fn make(ctx: &Context, core: &mut Core, ops: Operations) -> NonNull<Self> {
        let place = core.free_places.pop().unwrap_or(core.flows.len());
        core.flow_count += 1;
        let flow = core.room.take();
        // SAFETY: the memory is a flow's, and no flow is in it.
        unsafe {
            flow.write(Self {
                ctx: NonNull::from(ctx),
                place,
                number: core.flow_count,
                ops: UnsafeCell::new(ops),
                state: RefCell::default(),
            });
        }
        match core.flows.get_mut(place) {
            Some(free) => *free = Some(flow),
            None => core.flows.push(Some(flow)),
        }
        flow
    }

    /// A copy of the program's callbacks.
    pub(crate) fn callbacks(&self) -> Operations {
        // SAFETY: the struct is plain data of the flow's, which one thread uses, and no reference
        // into it is kept.
        unsafe { *self.ops.get() }
    }

    /// Changes what the program sees.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut Operations)) {
        // SAFETY: as above; `change` calls nothing that could reach the flow.
        change(unsafe { &mut *self.ops.get() });
    }

    /// One of them.
    pub(crate) fn callback(&self, of: impl FnOnce(&Operations) -> Callback) -> Callback {
        // SAFETY: as in `callbacks`; `of` reads a field.
        of(unsafe { &*self.ops.get() })
    }

    pub(crate) fn on_readable(&self) -> Callback {
        self.callback(|o| o.on_readable)
    }

    pub(crate) fn on_writable(&self) -> Callback {
        self.callback(|o| o.on_writable)
    }

    /// A pointer for C.
    pub(crate) fn as_ptr(&self) -> *mut Self {
        core::ptr::from_ref(self).cast_mut()
    }
}
