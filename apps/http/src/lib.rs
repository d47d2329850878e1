//! HTTP/1.1, HTTP/2 and HTTP/3 over neater connections: a client that takes whichever version the
//! race brings, and a server of files that offers all three on one port number.
//!
//! *Responsible for* choosing the version by ALPN ([`Client`]), sharing connections within an
//! origin, streaming bodies both ways, ranges and conditions ([`Files`]), bounds and idle limits,
//! and graceful shutdown ([`Server`]). *Not responsible for* the wire formats (hyper's and h3's),
//! for transports and races (neater's), or for where bytes are saved.
//!
//! *Invariants*: no body is held in memory whole, in either direction; a body that ends early is an
//! error, never an end; what a peer can make this crate hold is bounded by named constants; a path
//! outside the served folder is never opened for serving.

#![forbid(unsafe_code)]

mod client;
mod error;
mod frames;
#[doc(hidden)]
pub mod laws;
mod range;
mod server;

mod streams;
mod url;

pub use client::{Builder, Client, Observer, Paths, Proxies, Proxy, RequestOptions, Response, Transport};
pub use error::{Error, is_security};

pub use range::ContentRange;
pub use server::{Answered, FileBody, Files, Server, ServerLimits, Summary, TurnedAway};
pub use url::{Origin, Scheme, URL_MAX, Url};

use core::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HttpVersion {
    /// RFC 9112.
    Http11,
    /// RFC 9113.
    Http2,
    /// RFC 9114.
    Http3,
}

impl HttpVersion {
    /// Its name in ALPN.
    #[must_use]
    pub const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http11 => b"http/1.1",
            Self::Http2 => b"h2",
            Self::Http3 => b"h3",
        }
    }

    /// The version that people mean by `1.1`, `2` or `3`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "1" | "1.1" | "http/1.1" => Some(Self::Http11),
            "2" | "h2" => Some(Self::Http2),
            "3" | "h3" => Some(Self::Http3),
            _ => None,
        }
    }
}

impl fmt::Display for HttpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        })
    }
}

/// Nothing here leaves data half changed when it panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
