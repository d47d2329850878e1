//! Names that the program, or the system's resolver, finds the addresses of.
//!
//! *Responsible for* asking outside the lock, and for every question having an answer, whatever
//! becomes of it. *Not responsible for* which connection waits for which name: that is the
//! engine's.

use crate::shared::Shared;
use neater_engine::{NameFailure, NameQuestion};
use std::collections::VecDeque;
use std::net::{IpAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Threads that wait for the system's resolver at a time.
const THREADS: usize = 16;
/// How long an answer of the system's resolver is taken to hold.
const SYSTEM_LIFETIME: Duration = Duration::from_secs(10);

/// A function that finds addresses.
#[derive(Clone)]
pub(crate) struct Answers(Arc<dyn Fn(Lookup) + Send + Sync>);

impl core::fmt::Debug for Answers {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Answers")
    }
}

impl Answers {
    pub(crate) fn by(answer: impl Fn(Lookup) + Send + Sync + 'static) -> Self {
        Self(Arc::new(answer))
    }
}

/// What an engine keeps of it.
pub(crate) struct ExternalResolver {
    answers: Answers,
    shared: Weak<Shared>,
}

/// A name whose addresses are to be found: see [`Builder::names_by`](crate::Builder::names_by).
///
/// Answered from any thread, once. One that is dropped without an answer has failed, and so have
/// the connections that wait for it; so has one that has no answer after 30 seconds.
#[derive(Debug)]
pub struct Lookup {
    question: NameQuestion,
    shared: Option<Weak<Shared>>,
}

impl Lookup {
    /// The name, as the program wrote it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.question.name
    }

    /// The index of the interface that the addresses are for; `None`: any.
    #[must_use]
    pub const fn interface(&self) -> Option<u32> {
        self.question.interface
    }

    /// These are the addresses, and so long they hold for further connections: a day at most; zero,
    /// for those that wait now. They are tried in the order of RFC 6724. Of each family 64 are
    /// kept.
    pub fn answer(mut self, addresses: &[IpAddr], lifetime: Duration) {
        self.end(Ok(addresses), lifetime);
    }

    /// There is no such name.
    pub fn no_such_name(mut self) {
        self.end(Err(NameFailure::NoSuchName), Duration::ZERO);
    }

    fn end(&mut self, answer: Result<&[IpAddr], NameFailure>, lifetime: Duration) {
        let Some(shared) = self.shared.take().and_then(|s| s.upgrade()) else { return };
        if shared.is_forked() {
            return;
        }
        // The driver notifies the waiting tasks: the thread that answers may hold locks of the
        // program's.
        shared.with_later(|s| s.engine.answer_name(self.question.id, answer, lifetime));
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        self.end(Err(NameFailure::Failed), Duration::ZERO);
    }
}

/// From now on an engine asks `answers`.
pub(crate) fn install(shared: &Arc<Shared>, answers: &Answers) {
    let asker = ExternalResolver { answers: answers.clone(), shared: Arc::downgrade(shared) };
    if shared.names.set(asker).is_ok() {
        shared.with(|s| s.engine.ask_program_for_names(true));
    }
}

/// Asks what there is to ask, without the engine's lock.
#[cold]
pub(crate) fn ask(shared: &Shared) {
    let Some(asker) = shared.names.get() else { return };
    for question in shared.look(|s| s.engine.take_name_questions()) {
        let lookup = Lookup { question, shared: Some(asker.shared.clone()) };
        let name = lookup.name().to_owned();
        // The lookup is dropped with the function's stack, which is an answer.
        if catch_unwind(AssertUnwindSafe(|| (asker.answers.0)(lookup))).is_err() {
            tracing::error!(target: "neater::dns", name, "a function given to names_by has panicked");
        }
    }
}

/// The longest wait for an answer: see [`Lookup`].
const PATIENCE: Duration = Duration::from_secs(30);

/// What waits for a thread, since when, and how many there are.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Instant, Lookup)>,
    threads: usize,
}

/// Answers by the system's resolver, in threads that end when there is nothing left to ask.
pub(crate) fn system() -> impl Fn(Lookup) + Send + Sync + 'static {
    let queue = Arc::new(Mutex::new(Queue::default()));
    move |lookup| {
        let mut q = queue.lock().unwrap_or_else(PoisonError::into_inner);
        q.waiting.push_back((Instant::now(), lookup));
        if q.threads >= THREADS {
            return;
        }
        q.threads += 1;
        drop(q);
        let of_thread = queue.clone();
        let thread = std::thread::Builder::new().name("neater-names".to_owned());
        if let Err(e) = thread.spawn(move || serve(&of_thread)) {
            tracing::warn!(target: "neater::dns", error = %e, "no thread for the system's resolver");
            let mut q = queue.lock().unwrap_or_else(PoisonError::into_inner);
            q.threads -= 1;
            // Others that are there take it; without any, it has failed.
            let lost = if q.threads == 0 { core::mem::take(&mut q.waiting) } else { VecDeque::new() };
            drop(q);
            drop(lost);
        }
    }
}

/// An address that means nothing without its interface (RFC 4007), which an answer does not have.
fn needs_interface(addr: &IpAddr) -> bool {
    matches!(addr, IpAddr::V6(a) if a.is_unicast_link_local())
}

fn serve(queue: &Mutex<Queue>) {
    loop {
        let lookup = {
            let mut q = queue.lock().unwrap_or_else(PoisonError::into_inner);
            match q.waiting.pop_front() {
                // These have waited too long while the system's resolver did not answer. Others may
                // still be in time.
                Some((since, _late)) if since.elapsed() >= PATIENCE => continue,
                Some((_, lookup)) => lookup,
                None => {
                    q.threads -= 1;
                    return;
                }
            }
        };
        match (lookup.name(), 0).to_socket_addrs() {
            Ok(found) => {
                let mut addresses: Vec<IpAddr> = found.map(|a| a.ip()).filter(|a| !needs_interface(a)).collect();
                addresses.dedup();
                lookup.answer(&addresses, SYSTEM_LIFETIME);
            }
            Err(e) if e.to_string().contains("No address associated") => lookup.answer(&[], SYSTEM_LIFETIME),
            Err(e) => {
                tracing::debug!(target: "neater::dns", name = lookup.name(), error = %e, "the system's resolver has no answer");
                // The standard library reports the cause as text alone: those of glibc, of musl,
                // and of the BSDs and macOS.
                let text = e.to_string();
                if ["not known", "does not resolve"].iter().any(|words| text.contains(words)) {
                    lookup.no_such_name();
                }
            }
        }
    }
}
