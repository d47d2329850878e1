//! Traces of QUIC connections (qlog), kept in memory: a run in virtual time writes no files.

use neater_engine::{Qlog, QlogOf};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// A file in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl io::Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The traces of QUIC connections, with their names.
#[derive(Clone, Default)]
pub(crate) struct Qlogs(Arc<Mutex<Vec<(String, Memory)>>>);

impl core::fmt::Debug for Qlogs {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Qlogs").finish_non_exhaustive()
    }
}

impl Qlogs {
    /// What an engine is given. The names are `trace-HOST-client-N.qlog` or `trace-HOST-server-N.qlog`; `N` counts those of this
    /// object, from 0.
    pub(crate) fn of(&self, host: &str) -> Qlog {
        let (this, host) = (self.clone(), host.to_owned());
        Qlog::new(move |of| {
            let mut all = this.0.lock().unwrap_or_else(PoisonError::into_inner);
            let side = if of == QlogOf::Client { "client" } else { "server" };
            let (file, name) = (Memory::default(), format!("trace-{host}-{side}-{}.qlog", all.len()));
            all.push((name, file.clone()));
            Some(Box::new(file))
        })
    }

    /// Names and bytes so far. A trace is complete when its connection is gone.
    pub(crate) fn files(&self) -> Vec<(String, Vec<u8>)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(n, f)| (n.clone(), f.0.lock().unwrap_or_else(PoisonError::into_inner).clone())).collect()
    }
}
