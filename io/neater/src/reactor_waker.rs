//! The engine's descriptor in tokio's reactor.
//!
//! *Responsible for* what happens when the reactor reports it: a task that waits for bytes of a
//! plain stream, or for one to be connected or accepted, is woken at once, and for everything else
//! the task that drives the engine is. So such a wake-up goes through the runtime's queue of tasks
//! once and not twice. *Not responsible for* turns, which are the task's.
//!
//! *Invariants*: of the program's code nothing but wakers runs in the reactor, as nothing else of
//! it does for tokio's own sockets; the thread that takes the readiness of the descriptor has
//! polled since that was reported, or has the task woken, which looks; what is dropped with the
//! task is gone with it, because the reactor holds no more than a weak reference.

use crate::shared::{Driving, FastPoll, Shared};
use core::future::poll_fn;
use core::pin::pin;
use core::task::{Context, Poll};
use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Wake, Waker};
use tokio::io::unix::AsyncFd;

/// How often in a row the descriptor is looked at before others have their turn.
const ROUNDS: usize = 4;

/// See the module's documentation.
struct ReactorWaker {
    fd: AsyncFd<OwnedFd>,
    shared: Arc<Shared>,
    /// What the reactor calls.
    on_ready: Waker,
    /// The task that drives.
    task: Mutex<Option<Waker>>,
    /// The reactor has reported something, and the engine was busy.
    missed: AtomicBool,
    /// What a waker of the program's has panicked with: the task goes on with it, because the
    /// reactor is not to be disturbed.
    panicked: Mutex<Option<Box<dyn Any + Send>>>,
}

/// The reactor's end.
struct OnReady(Weak<ReactorWaker>);

impl Wake for OnReady {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(reactor_waker) = self.0.upgrade() else { return };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| reactor_waker.ring())) {
            *reactor_waker.panicked.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
            reactor_waker.wake_task();
        }
    }
}

impl ReactorWaker {
    /// Whether the descriptor is ready; `take` takes that. If it is not, the waker is called when
    /// it is.
    ///
    /// # Errors
    /// The runtime has no reactor any more.
    #[inline]
    fn readiness(&self, take: bool) -> Poll<io::Result<()>> {
        // Without tokio's budget for a task: where that is used up, tokio wakes the waker that it
        // is given, and where there is no scheduler it does so within this call, which would ring
        // the waker within the waker.
        let ready = poll_fn(|cx| {
            self.fd.poll_read_ready(cx).map_ok(|mut guard| {
                if take {
                    guard.clear_ready();
                }
            })
        });
        pin!(tokio::task::unconstrained(ready)).poll(&mut Context::from_waker(&self.on_ready))
    }

    /// The reactor has reported something.
    fn ring(&self) {
        for _ in 0..ROUNDS {
            // Takes the readiness that there was when it began to look, and none that was reported
            // meanwhile. It requests no wake-up, so that a wake-up costs one such request and not
            // two.
            let mut found = FastPoll::Done;
            let _ = self.fd.try_io(tokio::io::Interest::READABLE, |_| -> io::Result<()> {
                found = self.shared.poll_fast();
                Err(io::ErrorKind::WouldBlock.into())
            });
            match found {
                FastPoll::Done => {}
                FastPoll::More => self.wake_task(),
                FastPoll::Busy => {
                    self.missed.store(true, Ordering::Release);
                    self.wake_task();
                }
            }
            match self.readiness(false) {
                Poll::Pending => return,
                Poll::Ready(Err(_)) => break,
                Poll::Ready(Ok(())) => {}
            }
        }
        // Others have their turn, or it is all over.
        self.wake_task();
    }

    #[cold]
    fn wake_task(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// The engine has a driver: its waker is woken from now on.
    fn attend(&self, waker: &Waker) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced =
            if task.as_ref().is_some_and(|w| w.will_wake(waker)) { None } else { task.replace(waker.clone()) };
        drop(task);
        drop(replaced);
    }

    /// What the task does when it is woken: by the reactor, or by a call that has left work.
    fn drive(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.attend(cx.waker());
        if let Some(panic) = self.panicked.lock().unwrap_or_else(PoisonError::into_inner).take() {
            resume_unwind(panic);
        }
        for _ in 0..ROUNDS {
            if self.missed.swap(false, Ordering::Acquire) {
                self.shared.poll_again();
            }
            self.shared.turn(Some(cx.waker()));
            match self.readiness(true) {
                Poll::Pending => return if self.shared.is_idle() { Poll::Ready(()) } else { Poll::Pending },
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => self.missed.store(true, Ordering::Release),
            }
        }
        // Others have their turn before ours comes again.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A future that drives on tokio, until there is nothing left to drive.
///
/// # Errors
/// When there is no tokio runtime here.
pub(crate) fn task(driving: Driving, fd: OwnedFd) -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let fd = register(fd)?;
    let shared = driving.0.clone();
    let reactor_waker = Arc::new_cyclic(|weak| ReactorWaker {
        fd,
        shared,
        on_ready: Waker::from(Arc::new(OnReady(weak.clone()))),
        task: Mutex::new(None),
        missed: AtomicBool::new(false),
        panicked: Mutex::new(None),
    });
    Ok(std::future::poll_fn(move |cx| {
        // What drives is here and not with the reactor waker, which the reactor may hold a moment
        // longer.
        let _driving = &driving;
        reactor_waker.drive(cx)
    }))
}

#[allow(unsafe_code, reason = "tokio cannot know that an OwnedFd always names the same descriptor; we do")]
fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names one descriptor for its whole life and keeps it open, and the AsyncFd
    // owns it.
    let registered = unsafe { AsyncFd::register_with_interest(fd, tokio::io::Interest::READABLE) };
    Ok(registered?)
}
