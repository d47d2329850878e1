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
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;

/// Polls and turns at one instant, before that counts as spinning.
const MAX_STEPS: usize = 100_000;

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

    /// Takes the first that may run.
    fn pop(&self, may_run: impl Fn(u64) -> bool) -> Option<u64> {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = queue.iter().position(|task| may_run(*task))?;
        queue.remove(at)
    }

    fn any(&self, may_run: impl Fn(u64) -> bool) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|task| may_run(*task))
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

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Whose task it is: when the host's process ends, its tasks end with it.
type Owned = (Option<HostId>, Task);

/// Begins tasks from inside a task. Clones are handles to the same executor.
#[derive(Clone, Default)]
pub struct Spawner(Rc<RefCell<Vec<Owned>>>);

impl core::fmt::Debug for Spawner {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}

impl Spawner {
    /// Begins a task of a host's process.
    pub fn spawn(&self, host: HostId, future: impl Future<Output = ()> + 'static) {
        self.0.borrow_mut().push((Some(host), Box::pin(future)));
    }
}

/// Makes futures that are over after a time, from inside a task.
#[derive(Clone)]
pub struct Clock {
    world: World,
    sleepers: Arc<Mutex<Sleepers>>,
}

impl core::fmt::Debug for Clock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

impl Clock {
    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.world.now()
    }

    /// A future that is over after `time`.
    #[must_use]
    pub fn sleep(&self, time: Duration) -> Sleep {
        Sleep { world: self.world.clone(), sleepers: self.sleepers.clone(), until: self.world.now() + time }
    }
}

/// Futures and hosts in one world.
pub struct Executor {
    world: World,
    tasks: BTreeMap<u64, Owned>,
    next_task: u64,
    ready: Arc<Ready>,
    hooks: Vec<Hook>,
    frozen: BTreeSet<HostId>,
    spawner: Spawner,
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
            frozen: BTreeSet::new(),
            spawner: Spawner::default(),
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
        self.begin((None, Box::pin(future)));
    }

    /// Begins a task of a host's process: see [`Executor::kill`] and [`Executor::freeze`].
    pub fn spawn_on(&mut self, host: HostId, future: impl Future<Output = ()> + 'static) {
        self.begin((Some(host), Box::pin(future)));
    }

    fn begin(&mut self, task: Owned) {
        let number = self.next_task;
        self.next_task += 1;
        self.tasks.insert(number, task);
        self.ready.push(number);
    }

    /// What begins tasks from inside a task.
    #[must_use]
    pub fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    /// What makes sleeping futures from inside a task.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock { world: self.world.clone(), sleepers: self.sleepers.clone() }
    }

    /// Ends a host's process: its tasks are dropped where they are, and nobody gives it turns any more.
    pub fn kill(&mut self, host: HostId) {
        self.end_tasks(host);
        self.hooks.retain(|h| h.host != host);
        self.frozen.remove(&host);
    }

    /// Drops a host's tasks where they are; its engine goes on.
    pub fn end_tasks(&mut self, host: HostId) {
        self.take_spawned();
        let all = core::mem::take(&mut self.tasks);
        let (ended, rest) = all.into_iter().partition(|(_, (owner, _))| *owner == Some(host));
        self.tasks = rest;
        drop::<BTreeMap<u64, Owned>>(ended);
    }

    /// Stops a host's process (its tasks and its engine), or lets it go on. The system below, its TCP, goes on in any case.
    pub fn freeze(&mut self, host: HostId, frozen: bool) {
        if frozen {
            self.frozen.insert(host);
        } else {
            self.frozen.remove(&host);
        }
    }

    /// A future that is over after `time`.
    #[must_use]
    pub fn sleep(&self, time: Duration) -> Sleep {
        self.clock().sleep(time)
    }

    /// How many tasks are not over.
    #[must_use]
    pub fn running(&self) -> usize {
        self.tasks.len() + self.spawner.0.borrow().len()
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
            if !self.advance(end) {
                return false;
            }
        }
    }

    /// Runs until `end`, whether or not there are tasks, or until `stop` says so, which is asked after everything that
    /// happens. True if it did.
    ///
    /// # Panics
    /// If tasks or hosts spin.
    pub fn run_until(&mut self, end: Instant, mut stop: impl FnMut() -> bool) -> bool {
        loop {
            self.settle();
            if stop() {
                return true;
            }
            if !self.advance(end) {
                self.world.run_until(end);
                self.settle();
                return stop();
            }
        }
    }

    /// Lets the next thing happen, if it does not happen after `end`.
    fn advance(&self, end: Instant) -> bool {
        let sleeper = self.lock_sleepers().by_time.keys().next().map(|(at, _)| *at);
        let hosts = self.hooks.iter().map(|h| h.host).filter(|h| !self.frozen.contains(h));
        let wakeup = hosts.filter_map(|h| self.world.wakeup(h)).chain(sleeper).min();
        match (self.world.next_event(), wakeup) {
            (Some(e), w) if e <= end && w.is_none_or(|w| e <= w) => drop(self.world.step()),
            (_, Some(w)) if w <= end => self.world.run_until(w),
            _ => return false,
        }
        true
    }

    fn lock_sleepers(&self) -> std::sync::MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does everything that can be done without time passing.
    fn settle(&mut self) {
        let mut last = String::new();
        for step in 0.. {
            assert!(step < MAX_STEPS, "{last} spins at {:?}", self.world.now());
            let now = self.world.now();
            let due: Vec<_> = {
                let mut sleepers = self.lock_sleepers();
                let later = sleepers.by_time.split_off(&(now + Duration::from_nanos(1), 0));
                core::mem::replace(&mut sleepers.by_time, later).into_values().collect()
            };
            due.into_iter().for_each(Waker::wake);
            self.take_spawned();
            if let Some(task) = self.next_ready() {
                if step == MAX_STEPS - 1 {
                    last = format!("task {task}");
                }
                self.poll(task);
                continue;
            }
            let mut idle = true;
            for hook in self.hooks.iter_mut().filter(|h| !self.frozen.contains(&h.host)) {
                let woken = core::mem::take(&mut *hook.woken.lock().unwrap_or_else(PoisonError::into_inner));
                if woken || self.world.has_events(hook.host) {
                    idle = false;
                    if step == MAX_STEPS - 1 {
                        last = format!("host {}", self.world.host_name(hook.host));
                    }
                    (hook.turn)();
                }
            }
            if idle && self.spawner.0.borrow().is_empty() && !self.has_ready() {
                return;
            }
        }
    }

    fn take_spawned(&mut self) {
        let spawned = core::mem::take(&mut *self.spawner.0.borrow_mut());
        for task in spawned {
            self.begin(task);
        }
    }

    /// Whether a task may be polled now: tasks of frozen hosts wait.
    fn may_run(&self, task: u64) -> bool {
        let owner = self.tasks.get(&task).and_then(|(owner, _)| *owner);
        owner.is_none_or(|host| !self.frozen.contains(&host))
    }

    fn next_ready(&self) -> Option<u64> {
        self.ready.pop(|task| self.may_run(task))
    }

    fn has_ready(&self) -> bool {
        self.ready.any(|task| self.may_run(task))
    }

    fn poll(&mut self, task: u64) {
        let Some((_, future)) = self.tasks.get_mut(&task) else { return };
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
    fn a_frozen_process_does_nothing_and_a_killed_one_never_again() {
        let world = World::new(1);
        let (a, b) = (world.add_host("a"), world.add_host("b"));
        let mut executor = Executor::new(world);
        let log = Rc::new(RefCell::new(Vec::new()));
        for (host, name) in [(a, "a"), (b, "b")] {
            let (clock, spawner, log) = (executor.clock(), executor.spawner(), log.clone());
            executor.spawn_on(host, async move {
                for n in 0..3 {
                    clock.sleep(Duration::from_secs(1)).await;
                    let log = log.clone();
                    spawner.spawn(host, async move { log.borrow_mut().push((name, n)) });
                }
            });
        }
        let start = executor.world().now();
        executor.freeze(a, true);
        executor.run_until(start + Duration::from_millis(1500), || false);
        assert_eq!(*log.borrow(), [("b", 0)]);
        executor.kill(b);
        executor.freeze(a, false);
        assert!(executor.run(Duration::from_secs(9)));
        assert_eq!(*log.borrow(), [("b", 0), ("a", 0), ("a", 1), ("a", 2)]);
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
