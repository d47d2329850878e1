//! An executor for futures in virtual time.
//!
//! *Responsible for* polling futures whose wakers have been called, and for advancing a world between. *Not for* engines:
//! whoever drives one gives a hook, which is called when its host wants a turn.
//!
//! *Invariants*: futures are polled in the order in which they were woken, and only then; a run is a function of the
//! world, the hooks and the futures.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use neater_base::Instant;
use neater_netsim::{HostId, World};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;

/// Polls and turns at one instant, before that counts as spinning.
const MAX_STEPS: usize = 1_000_000;

/// Gives a host its turn.
pub type Turn = Box<dyn FnMut()>;

#[derive(Default)]
struct Ready(Mutex<VecDeque<u64>>);

impl Ready {
    fn push(&self, task: u64) {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !queue.contains(&task) {
            queue.push_back(task);
        }
    }

    fn pop(&self) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

struct TaskWaker {
    ready: Arc<Ready>,
    task: u64,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.task);
    }
}

struct Hook {
    host: HostId,
    turn: Turn,
    woken: Arc<Mutex<bool>>,
}

#[derive(Default)]
struct Sleepers {
    next: u64,
    by_time: BTreeMap<(Instant, u64), Waker>,
}

/// Futures and hosts in one world.
pub struct Executor {
    world: World,
    tasks: BTreeMap<u64, Pin<Box<dyn Future<Output = ()>>>>,
    next_task: u64,
    ready: Arc<Ready>,
    hooks: Vec<Hook>,
    sleepers: Arc<Mutex<Sleepers>>,
}

impl core::fmt::Debug for Executor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Executor").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

impl Executor {
    /// An executor in this world.
    #[must_use]
    pub fn new(world: World) -> Self {
        Self {
            world,
            tasks: BTreeMap::new(),
            next_task: 0,
            ready: Arc::default(),
            hooks: Vec::new(),
            sleepers: Arc::default(),
        }
    }

    /// The world.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Something to call when a host needs a turn although its network has nothing to say, because another task has used
    /// its engine: give it to whatever wakes the host's driver.
    ///
    /// Call [`Executor::drive`] with the same flag.
    pub fn wake_flag() -> (Arc<Mutex<bool>>, impl Fn() + Send + Sync + 'static) {
        let flag = Arc::new(Mutex::new(false));
        let set = flag.clone();
        (flag, move || *set.lock().unwrap_or_else(PoisonError::into_inner) = true)
    }

    /// Lets `turn` be called whenever the network has something for `host`, its deadline has come, or `woken` was set.
    pub fn drive(&mut self, host: HostId, woken: Arc<Mutex<bool>>, turn: impl FnMut() + 'static) {
        self.hooks.push(Hook { host, turn: Box::new(turn), woken });
    }

    /// Begins a task.
    pub fn spawn(&mut self, future: impl Future<Output = ()> + 'static) {
        let task = self.next_task;
        self.next_task += 1;
        self.tasks.insert(task, Box::pin(future));
        self.ready.push(task);
    }

    /// A future that is over after `time`.
    #[must_use]
    pub fn sleep(&self, time: Duration) -> Sleep {
        Sleep { world: self.world.clone(), sleepers: self.sleepers.clone(), until: self.world.now() + time }
    }

    /// How many tasks are not over.
    #[must_use]
    pub fn running(&self) -> usize {
        self.tasks.len()
    }

    /// Runs until every task is over, at most for `limit`. False if one is not.
    ///
    /// # Panics
    /// If tasks or hosts spin.
    pub fn run(&mut self, limit: Duration) -> bool {
        let end = self.world.now() + limit;
        loop {
            self.settle();
            if self.tasks.is_empty() {
                return true;
            }
            let sleeper = self.lock_sleepers().by_time.keys().next().map(|(at, _)| *at);
            let wakeup = [self.world.next_wakeup().map(|(_, at)| at), sleeper].into_iter().flatten().min();
            match (self.world.next_event(), wakeup) {
                (Some(e), w) if e <= end && w.is_none_or(|w| e <= w) => drop(self.world.step()),
                (_, Some(w)) if w <= end => self.world.run_until(w),
                _ => return false,
            }
        }
    }

    fn lock_sleepers(&self) -> std::sync::MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does everything that can be done without time passing.
    fn settle(&mut self) {
        for step in 0.. {
            assert!(step < MAX_STEPS, "tasks or hosts spin at {:?}", self.world.now());
            let now = self.world.now();
            let due: Vec<_> = {
                let mut sleepers = self.lock_sleepers();
                let later = sleepers.by_time.split_off(&(now + Duration::from_nanos(1), 0));
                core::mem::replace(&mut sleepers.by_time, later).into_values().collect()
            };
            due.into_iter().for_each(Waker::wake);
            if let Some(task) = self.ready.pop() {
                self.poll(task);
                continue;
            }
            let mut idle = true;
            for hook in &mut self.hooks {
                let woken = core::mem::take(&mut *hook.woken.lock().unwrap_or_else(PoisonError::into_inner));
                if woken || self.world.has_events(hook.host) {
                    idle = false;
                    (hook.turn)();
                }
            }
            if idle && self.ready.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
                return;
            }
        }
    }

    fn poll(&mut self, task: u64) {
        let Some(future) = self.tasks.get_mut(&task) else { return };
        let waker = Waker::from(Arc::new(TaskWaker { ready: self.ready.clone(), task }));
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.tasks.remove(&task);
        }
    }
}

/// A future that is over at a time of the world.
pub struct Sleep {
    world: World,
    sleepers: Arc<Mutex<Sleepers>>,
    until: Instant,
}

impl core::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sleep").field("until", &self.until).finish_non_exhaustive()
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.world.now() >= self.until {
            return Poll::Ready(());
        }
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        let number = sleepers.next;
        sleepers.next += 1;
        sleepers.by_time.insert((self.until, number), cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn sleepers_wake_in_the_order_of_their_times() {
        let mut executor = Executor::new(World::new(1));
        let log = Rc::new(RefCell::new(Vec::new()));
        for ms in [30, 10, 20] {
            let (sleep, log) = (executor.sleep(Duration::from_millis(ms)), log.clone());
            executor.spawn(async move {
                sleep.await;
                log.borrow_mut().push(ms);
            });
        }
        assert!(executor.run(Duration::from_secs(1)));
        assert_eq!(*log.borrow(), [10, 20, 30]);
    }

    #[test]
    fn a_task_that_is_never_woken_ends_the_run_unfinished() {
        let mut executor = Executor::new(World::new(1));
        executor.spawn(core::future::pending());
        assert!(!executor.run(Duration::from_secs(1)));
        assert_eq!(executor.running(), 1);
    }

    #[test]
    fn a_woken_host_has_its_turn_without_an_event() {
        let world = World::new(1);
        let host = world.add_host("a");
        let mut executor = Executor::new(world);
        let (flag, wake) = Executor::wake_flag();
        let turned = Rc::new(RefCell::new(0));
        let count = turned.clone();
        executor.drive(host, flag, move || *count.borrow_mut() += 1);
        executor.spawn(async move { wake() });
        assert!(executor.run(Duration::from_secs(1)));
        executor.settle();
        assert_eq!(*turned.borrow(), 1);
    }
}
