//! `isolateSession` (RFC 9622 section 8.1.10): a connection that shares no cached state with others, except with those of
//! its own group.
//!
//! Each connection that is initiated gets a number of its own, under which its sessions and the outcome of its race are
//! kept, and QUIC its socket and so its port; clones have the same number. Sessions are forgotten with the last connection
//! of the group. What the name resolver knows is shared: it tells a server nothing.

use crate::event::EstablishmentError;
use crate::request::RequestOptions;
use crate::{Engine, Request};
use neater_base::net::Net;
use neater_property::Role;
use neater_tls::{SecurityParameters, SessionStore};
use std::sync::Arc;

/// What the requests of isolated connections are compiled from, one for each.
#[derive(Debug)]
pub(crate) struct Isolate {
    pub(crate) security: SecurityParameters,
    pub(crate) options: RequestOptions,
}

/// The sessions of a group, which end with it.
#[derive(Debug)]
pub(crate) struct Sessions(SessionStore);

impl Drop for Sessions {
    fn drop(&mut self) {
        self.0.forget();
    }
}

impl<N: Net> Engine<N> {
    /// The request of one isolated connection.
    pub(crate) fn isolated(&mut self, request: &Request, isolate: &Isolate) -> Result<Request, EstablishmentError> {
        // 0 is what all connections share that are not isolated.
        let isolation = self.rng.u64().max(1);
        let options = RequestOptions { isolation, ..isolate.options.clone() };
        let mut own = self.compile(&request.0.properties, &isolate.security, Role::Initiate, &options)?;
        if let Some(own) = Arc::get_mut(&mut own.0) {
            own.own_sessions = Some(Sessions(SessionStore::global(&self.config.crypto, isolation)));
        }
        Ok(own)
    }
}
