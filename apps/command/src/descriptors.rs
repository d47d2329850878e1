//! How many files and sockets this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lifts the soft limit towards the hard one, up to `wanted`, and returns the new one; `None`:
/// there is none. Where that is not allowed, it stays as it is.
pub fn raise(wanted: u64) -> Option<u64> {
    let held = getrlimit(Resource::Nofile);
    let possible = held.maximum.unwrap_or(wanted).min(wanted);
    let now = held.current?;
    if now >= possible {
        return Some(now);
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum: held.maximum }) {
        Ok(()) => Some(possible),
        Err(_) => Some(now),
    }
}
