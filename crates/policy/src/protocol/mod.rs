//! What a program and the policy daemon exchange: the sockets, the compact form on them, and
//! the program's side.
//!
//! *Responsible for* the frames ([`wire`]) and their content in both directions, and for following
//! the tables of a daemon ([`Follower`]). *Not responsible for* sockets, which the caller has, and
//! for the daemon's state, which is the crate neater-policy-daemon.
//!
//! *Invariants*: whatever the other side sends, memory stays within bounds.

mod facts;
mod follower;
pub mod wire;

pub use facts::{MAX_FACTS_OF_FRAME, put_news, put_told, told};
pub use follower::{Follower, Heard};

/// One of the Unix sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// `neat_pm_socket`: requests in, candidates out.
    Requests,
    /// `neat_pib_socket`: policies in.
    Pib,
    /// `neat_cib_socket`: nodes in.
    Cib,
    /// `neater_metadata_socket`: metadata of modems, in.
    Metadata,
}

impl Door {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Requests, Self::Pib, Self::Cib, Self::Metadata];

    /// The name of the socket's file.
    #[must_use]
    pub const fn file(self) -> &'static str {
        match self {
            Self::Requests => "neat_pm_socket",
            Self::Pib => "neat_pib_socket",
            Self::Cib => "neat_cib_socket",
            Self::Metadata => "neater_metadata_socket",
        }
    }

    /// The name of the socket in metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Requests => "pm",
            Self::Pib => "pib",
            Self::Cib => "cib",
            Self::Metadata => "metadata",
        }
    }
}
