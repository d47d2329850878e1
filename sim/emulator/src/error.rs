//! What can go wrong in the lab, in words that say what to do.

use std::fmt;

/// Why the lab could not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveError {
    /// The machine or the user does not allow it; the text says what is needed.
    Privileges(String),
    /// A program is not installed.
    MissingTool {
        /// What was looked for.
        tool: String,
        /// The Debian package that has it.
        package: String,
    },
    /// The plan or a command makes no sense.
    Usage(String),
    /// Something failed that should not.
    Failed(String),
}

impl fmt::Display for LiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingTool { tool, package } => {
                write!(f, "`{tool}` is missing: install the Debian package {package}")
            }
            Self::Privileges(why) | Self::Usage(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for LiveError {}

/// What the lab's functions give.
pub type Result<T> = std::result::Result<T, LiveError>;

/// A failure with what was attempted.
pub(crate) fn failed<T>(what: &str, why: impl fmt::Display) -> Result<T> {
    Err(LiveError::Failed(format!("{what}: {why}")))
}

/// The last error of a system call as a failure.
pub(crate) fn last<T>(what: &str) -> Result<T> {
    failed(what, std::io::Error::last_os_error())
}
