//! The sessions that a server keeps itself.
//!
//! Needed where early data is accepted: a kept session can be taken only once, so that a replayed
//! first flight finds nothing. That is the single-use ticket of RFC 8446 section 8.1. It holds for
//! one process: another that does not share this memory accepts no early data of these sessions at
//! all.

use crate::provider::Clock;
use core::fmt;
use rustls::server::StoresServerSessions;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The largest session that is kept, in bytes: a client's certificate chain can be the bulk of it.
pub const MAX_SESSION_BYTES: usize = 16_384;

struct Kept {
    sequence: u64,
    until: u64,
    value: Vec<u8>,
}

#[derive(Default)]
struct Table {
    by_id: BTreeMap<Vec<u8>, Kept>,
    by_age: BTreeMap<u64, Vec<u8>>,
    sequence: u64,
}

impl Table {
    fn remove(&mut self, id: &[u8]) -> Option<Kept> {
        let kept = self.by_id.remove(id)?;
        self.by_age.remove(&kept.sequence);
        Some(kept)
    }
}

/// At most `max` sessions, each for `lifetime` seconds; the oldest makes room.
pub(crate) struct ServerSessions {
    clock: Arc<Clock>,
    max: usize,
    lifetime: u64,
    table: Mutex<Table>,
}

impl ServerSessions {
    pub(crate) fn new(clock: Arc<Clock>, max: usize, lifetime: u64) -> Self {
        Self { clock, max, lifetime, table: Mutex::new(Table::default()) }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoresServerSessions for ServerSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        if self.max == 0 || value.len() > MAX_SESSION_BYTES {
            return false;
        }
        let until = self.clock.seconds().saturating_add(self.lifetime);
        let mut table = self.lock();
        table.remove(&key);
        while table.by_id.len() >= self.max {
            let Some((_, oldest)) = table.by_age.pop_first() else { break };
            table.by_id.remove(&oldest);
        }
        table.sequence += 1;
        let sequence = table.sequence;
        table.by_age.insert(sequence, key.clone());
        table.by_id.insert(key, Kept { sequence, until, value });
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let now = self.clock.seconds();
        self.lock().by_id.get(key).filter(|kept| now <= kept.until).map(|kept| kept.value.clone())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let now = self.clock.seconds();
        self.lock().remove(key).filter(|kept| now <= kept.until).map(|kept| kept.value)
    }

    fn can_cache(&self) -> bool {
        self.max > 0
    }
}

impl fmt::Debug for ServerSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSessions").field("max", &self.max).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use neater_base::WallTime;

    fn store(max: usize) -> (ServerSessions, Arc<Clock>) {
        let clock = Arc::new(Clock::new());
        clock.set(WallTime(Duration::from_secs(100)));
        (ServerSessions::new(clock.clone(), max, 60), clock)
    }

    #[test]
    fn a_session_is_taken_once() {
        let (s, _clock) = store(4);
        assert!(s.put(vec![1], vec![7]));
        assert_eq!(s.get(&[1]), Some(vec![7]));
        assert_eq!(s.take(&[1]), Some(vec![7]));
        assert_eq!(s.take(&[1]), None);
    }

    #[test]
    fn the_oldest_makes_room_and_a_rewritten_one_counts_as_new() {
        let (s, _clock) = store(2);
        s.put(vec![1], vec![1]);
        s.put(vec![2], vec![2]);
        s.put(vec![1], vec![3]);
        s.put(vec![4], vec![4]);
        assert_eq!(s.get(&[2]), None);
        assert_eq!(s.get(&[1]), Some(vec![3]));
        assert_eq!(s.lock().by_id.len(), 2);
        assert_eq!(s.lock().by_age.len(), 2);
    }

    #[test]
    fn sessions_expire_and_oversized_ones_are_not_kept() {
        let (s, clock) = store(2);
        assert!(!s.put(vec![1], vec![0; MAX_SESSION_BYTES + 1]));
        assert!(s.put(vec![2], vec![0; MAX_SESSION_BYTES]));
        clock.set(WallTime(Duration::from_secs(161)));
        assert_eq!(s.get(&[2]), None);
        assert!(!store(0).0.put(vec![1], vec![1]));
        assert!(!store(0).0.can_cache());
    }
}
