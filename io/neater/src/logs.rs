//! Logs for diagnosis: keys and packets, and only where the program requests them.
//!
//! *Responsible for* the files. *Not responsible for* what is in them: rustls and quinn-proto know.
//!
//! *Invariants*: nothing is written unless it was asked for; a file with keys is its owner's alone;
//! no file that is there is written over.

use neater_engine::{Qlog, QlogOf};
use neater_tls::rustls::KeyLog;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The variable that browsers, curl and Wireshark know.
const VARIABLE: &str = "SSLKEYLOGFILE";

/// The file that the environment names for keys, if it does.
pub(crate) fn key_file() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// Keys in the format of NSS, one line each, behind what is there.
pub(crate) struct KeyFile(Mutex<File>);

impl core::fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KeyFile")
    }
}

impl KeyFile {
    pub(crate) fn open(path: &Path) -> io::Result<Arc<dyn KeyLog>> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{VARIABLE}={}: {e}", path.display()));
        Ok(Arc::new(Self(Mutex::new(file.map_err(named)?))))
    }
}

impl KeyLog for KeyFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        // In one piece: other processes may write to it, too.
        if let Err(e) = self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes()) {
            tracing::warn!(target: "neater::tls", "{VARIABLE}: {e}");
        }
    }
}

/// One file per QUIC connection in this folder, which must be there.
pub(crate) fn qlog(folder: &Path) -> io::Result<Qlog> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", folder.display()));
    if !std::fs::metadata(folder).map_err(named)?.is_dir() {
        return Err(named(io::ErrorKind::NotADirectory.into()));
    }
    let (folder, count) = (folder.to_owned(), AtomicU64::new(0));
    Ok(Qlog::new(move |of| match create(&folder, &count, of) {
        Ok(file) => Some(Box::new(BufWriter::new(file)) as Box<dyn Write + Send + Sync>),
        Err(e) => {
            tracing::warn!(target: "neater::quic", "no qlog in {}: {e}", folder.display());
            None
        }
    }))
}

fn create(folder: &Path, count: &AtomicU64, of: QlogOf) -> io::Result<File> {
    let (process, side) = (std::process::id(), if of == QlogOf::Client { "client" } else { "server" });
    loop {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        let path = folder.join(format!("neater-{process}-{number}-{side}.sqlog"));
        match OpenOptions::new().write(true).create_new(true).open(path) {
            // Another engine of this process, or an earlier process of this number.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened,
        }
    }
}
