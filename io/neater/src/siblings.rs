//! Several engines of one process on the same ports.
//!
//! *Responsible for* their numbers, their common secret, and for carrying datagrams from the engine at which they arrive to
//! the one that knows their connection. *Deliberately not here*: which engine gets a new connection (the system decides,
//! by addresses), and threads.
//!
//! *Invariants*: no two living engines have the same number; no two engines are locked at once by one thread; engines are
//! not kept alive.

use crate::context::{Driver, Neater};
use crate::shared::Shared;
use neater_engine::ForeignDatagram;
use neater_tls::Crypto;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Engines of one process that may listen on the same ports: a server makes one [`crate::Neater`] per core with
/// [`crate::Builder::sibling_of`], and lets each listen on the same address.
///
/// The system spreads connections over them. A QUIC connection stays with its engine also when its peer's address changes:
/// packets that arrive at another engine are passed on. Their tokens of stateless reset and address validation are the
/// same. Tickets for the resumption of TLS sessions are common to the engines if they listen with one compiled
/// [`crate::Request`] (see [`crate::Preconnection::request_of`]).
#[derive(Clone, Debug)]
pub struct Siblings(Arc<Family>);

struct Family {
    secret: [u8; 32],
    /// By number.
    engines: Mutex<Vec<Weak<Shared>>>,
}

impl core::fmt::Debug for Family {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Family").finish_non_exhaustive()
    }
}

/// Connection ids have a byte for the engine's number.
const ENGINES_MAX: usize = 256;

impl Siblings {
    /// Nobody yet, with a secret of their own.
    ///
    /// # Errors
    /// The operating system gives no random numbers.
    pub fn new() -> io::Result<Self> {
        let mut secret = [0; 32];
        let random = Crypto::system().provider.secure_random.fill(&mut secret);
        random.map_err(|_| io::Error::other("the operating system gives no random numbers"))?;
        Ok(Self(Arc::new(Family { secret, engines: Mutex::default() })))
    }

    /// Makes another one, with a number that no living one has.
    pub(crate) fn join(
        &self,
        make: impl FnOnce(u8, [u8; 32]) -> io::Result<(Neater, Driver)>,
    ) -> io::Result<(Neater, Driver)> {
        let mut engines = self.0.engines.lock().unwrap_or_else(PoisonError::into_inner);
        let place = engines.iter().position(|e| e.strong_count() == 0).unwrap_or(engines.len());
        let number = u8::try_from(place).map_err(|_| {
            io::Error::other(format!("there are {ENGINES_MAX} siblings, as many as connection ids and tags tell apart"))
        })?;
        let (neater, driver) = make(number, self.0.secret)?;
        let engine = neater.handle.downgrade();
        match engines.get_mut(place) {
            Some(free) => *free = engine,
            None => engines.push(engine),
        }
        Ok((neater, driver))
    }

    /// Gives each datagram to the engine that it is for, or back to the one at which it has arrived if there is none. Nothing may be
    /// locked.
    pub(crate) fn pass_on(&self, datagrams: Vec<ForeignDatagram>, arrived: &Shared) {
        for datagram in datagrams {
            let engine = {
                let engines = self.0.engines.lock().unwrap_or_else(PoisonError::into_inner);
                engines.get(usize::from(datagram.engine())).and_then(Weak::upgrade)
            };
            match engine {
                Some(engine) => engine.with(|s| s.engine.deliver_foreign(datagram)),
                None => arrived.with(|s| s.engine.deliver_unclaimed(datagram)),
            }
        }
    }
}
