//! Several engines of one process on the same ports.
//!
//! *Responsible for* their numbers, their common secret, and for carrying datagrams from the engine
//! at which they arrive to the one that knows their connection. *Deliberately not here*: which
//! engine gets a new connection (the system decides, by addresses), and threads.
//!
//! *Invariants*: no two living engines have the same number; no two engines are locked at once by
//! one thread; engines are not kept alive.

use crate::context::{Driver, Neater};
use crate::shared::Shared;
use neater_engine::MisroutedDatagram;
use neater_tls::Crypto;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Engines of one process that may listen on the same ports: a server makes one [`crate::Neater`]
/// per core with [`crate::Builder::shard_of`], and lets each listen on the same address.
///
/// The system spreads connections over them. A QUIC connection stays with its engine also when its
/// peer's address changes: packets that arrive at another engine are passed on. Their tokens of
/// stateless reset and address validation are the same. Tickets for the resumption of TLS sessions
/// are common to the engines if they listen with one compiled [`crate::Request`] (see
/// [`crate::Preconnection::request_of`]).
#[derive(Clone, Debug)]
pub struct EngineShards(Arc<Family>);

struct Family {
    secret: [u8; 32],
    /// By number.
    places: Mutex<Vec<Place>>,
    /// Whose they are.
    process: u32,
}

/// What a number is given to.
enum Place {
    /// To an engine that is being made.
    Reserved,
    /// To this one, while it lives.
    Engine(Weak<Shared>),
}

impl Place {
    fn engine(&self) -> Option<Arc<Shared>> {
        match self {
            Self::Reserved => None,
            Self::Engine(engine) => engine.upgrade(),
        }
    }

    fn is_free(&self) -> bool {
        matches!(self, Self::Engine(engine) if engine.strong_count() == 0)
    }
}

/// A number that is given only once, until there is an engine that has it or there will be none.
struct Reserved<'a> {
    family: &'a Family,
    number: u8,
}

impl<'a> Reserved<'a> {
    fn new(family: &'a Family) -> io::Result<Self> {
        let mut places = family.places.lock().unwrap_or_else(PoisonError::into_inner);
        let place = places.iter().position(Place::is_free).unwrap_or(places.len());
        let number = u8::try_from(place).map_err(|_| {
            io::Error::other(format!(
                "there are {ENGINES_MAX} engine shards, as many as connection ids and tags can address"
            ))
        })?;
        match places.get_mut(place) {
            Some(free) => *free = Place::Reserved,
            None => places.push(Place::Reserved),
        }
        Ok(Self { family, number })
    }

    fn put(&self, engine: Weak<Shared>) {
        let mut places = self.family.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get_mut(usize::from(self.number)) {
            *place = Place::Engine(engine);
        }
    }

    fn take(self, engine: Weak<Shared>) {
        self.put(engine);
        core::mem::forget(self);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.put(Weak::new());
    }
}

impl core::fmt::Debug for Family {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Family").finish_non_exhaustive()
    }
}

/// Connection ids have a byte for the engine's number.
const ENGINES_MAX: usize = 256;

impl EngineShards {
    /// No engines yet, with a secret of their own.
    ///
    /// # Errors
    /// The operating system gives no random numbers.
    pub fn new() -> io::Result<Self> {
        let mut secret = [0; 32];
        let random = Crypto::system().provider.secure_random.fill(&mut secret);
        random.map_err(|_| io::Error::other("the operating system gives no random numbers"))?;
        Ok(Self(Arc::new(Family { secret, places: Mutex::default(), process: std::process::id() })))
    }

    /// Makes another one, with a number that no living one has.
    pub(crate) fn join(
        &self,
        make: impl FnOnce(u8, [u8; 32]) -> io::Result<(Neater, Driver)>,
    ) -> io::Result<(Neater, Driver)> {
        if self.0.process != std::process::id() {
            // Their ports and their secret are the parent's; and what one of its threads had locked
            // would stay locked here.
            return Err(io::Error::other(
                "these engine shards belong to the process that has forked: make new ones in the child",
            ));
        }
        let reserved = Reserved::new(&self.0)?;
        // Making one may take its time, and no thread that passes datagrams on waits for it.
        let (neater, driver) = make(reserved.number, self.0.secret)?;
        reserved.take(neater.handle.downgrade());
        Ok((neater, driver))
    }

    /// Gives each datagram to the engine that it is for, or back to the one at which it has arrived
    /// if there is none. Nothing may be locked.
    pub(crate) fn pass_on(&self, datagrams: Vec<MisroutedDatagram>, arrived: &Shared) {
        for datagram in datagrams {
            let engine = {
                let places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
                places.get(usize::from(datagram.engine())).and_then(Place::engine)
            };
            let unmatched = match engine {
                Some(engine) => engine.with(|s| s.engine.deliver_misrouted(datagram)),
                None => Some(datagram),
            };
            if let Some(datagram) = unmatched {
                arrived.with(|s| s.engine.deliver_unmatched(datagram));
            }
        }
    }
}
