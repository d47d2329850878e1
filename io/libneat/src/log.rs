//! The library's own log: `neat_log_level`, `neat_log_file`.

use core::cell::{Cell, RefCell};
use core::fmt;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::time::Instant;

/// How much is logged; the numbers are those of `NEAT_LOG_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Off = 0,
    Error = 1,
    Warning = 2,
    Info = 3,
    Debug = 4,
}

impl Level {
    pub(crate) const fn from_number(n: u8) -> Option<Self> {
        Some(match n {
            0 => Self::Off,
            1 => Self::Error,
            2 => Self::Warning,
            3 => Self::Info,
            4 => Self::Debug,
            _ => return None,
        })
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Off => "OFF",
            Self::Error => "ERR",
            Self::Warning => "WRN",
            Self::Info => "INF",
            Self::Debug => "DBG",
        }
    }

    /// The colour of a line on a terminal.
    const fn colour(self) -> &'static str {
        match self {
            Self::Error => "\x1b[31m",
            Self::Warning => "\x1b[33m",
            Self::Info => "\x1b[32m",
            _ => "",
        }
    }
}

/// Where a context writes its log.
#[derive(Debug)]
pub(crate) struct Log {
    level: Cell<Level>,
    begun: Instant,
    file: RefCell<Option<File>>,
    coloured: bool,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self {
            level: Cell::new(Level::Debug),
            begun: Instant::now(),
            file: RefCell::new(None),
            coloured: std::io::stderr().is_terminal(),
        }
    }

    pub(crate) fn set_level(&self, level: Level) {
        self.level.set(level);
    }

    /// Writes to this file from now on, or to the standard error. False: it cannot be opened.
    pub(crate) fn set_file(&self, path: Option<&std::path::Path>) -> bool {
        let opened = path.map(File::create);
        let good = !matches!(opened, Some(Err(_)));
        *self.file.borrow_mut() = opened.and_then(Result::ok);
        good
    }

    /// Whether a line of this level would be written.
    pub(crate) fn wants(&self, level: Level) -> bool {
        level <= self.level.get()
    }

    /// Writes a line. What cannot be written is lost: there is no better place for it.
    pub(crate) fn line(&self, level: Level, text: fmt::Arguments<'_>) {
        if !self.wants(level) {
            return;
        }
        let since = self.begun.elapsed();
        let (seconds, micros) = (since.as_secs(), since.subsec_micros());
        let line = format!("[{seconds:4}.{micros:06}][{}] {text}", level.word());
        match &mut *self.file.borrow_mut() {
            Some(file) => drop(writeln!(file, "{line}")),
            None if self.coloured => drop(writeln!(std::io::stderr(), "{}{line}\x1b[0m", level.colour())),
            None => drop(writeln!(std::io::stderr(), "{line}")),
        }
    }
}
