//! Deadlines of carriers among those of the engine.

use super::ids::{CarrierTimer, Due};
use crate::timer::Timer;
use neater_base::Key;

impl From<Due> for Timer {
    #[inline]
    fn from(due: Due) -> Self {
        Self::Carrier(CarrierTimer(due))
    }
}

impl CarrierTimer {
    /// A channel must have finished its handshake, or its lingering.
    #[inline]
    pub(crate) const fn channel(key: Key) -> Timer {
        Timer::Carrier(Self(Due::Channel(key)))
    }
}
