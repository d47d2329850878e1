//! Attempts over TCP, with or without TLS: from the first packet to the end of the handshake.
//!
//! *Responsible for* what is reported of an attempt: that its peer has answered, that it is
//! established, that it has failed. *Not responsible for* which attempts are made
//! ([`crate::establish`]).

use super::early;
use crate::Stack;
use crate::carrier::channel::{Channel, Kind};
use crate::carrier::event::CarrierEvent;
use crate::carrier::ids::{CarrierSocket, CarrierTimer};
use crate::carrier::terms::{HANDSHAKE_PATIENCE, Target};
use crate::carrier::{SessionId, SocketCarrier};
use crate::context::Context;
use crate::event::AttemptError;
use bytes::Bytes;
use neater_base::Key;
use neater_base::net::{ErrorKind, Net};
use neater_tls::rustls::ClientConfig;
use neater_tls::{ServerName, TlsStream};
use std::sync::Arc;

/// What TLS of an attempt begins with when TCP is connected.
#[derive(Debug)]
pub(crate) struct Client {
    config: Option<Arc<ClientConfig>>,
    /// The name that certificates are checked against.
    name: String,
    /// The first message, which may leave with the handshake.
    first: Option<Bytes>,
}

impl Client {
    fn new(to: &Target<'_>) -> Self {
        // A framer would have to make bytes of the message.
        let first = to.first.filter(|_| !to.request.framer.frames()).cloned();
        Self { config: to.request.setups.tls.clone(), name: to.server_name(), first }
    }

    fn begin(&mut self) -> Result<TlsStream, AttemptError> {
        let config = self.config.take().ok_or(AttemptError::Net(ErrorKind::Unsupported.into()))?;
        let name = ServerName::try_from(core::mem::take(&mut self.name)).map_err(|_| AttemptError::NoAddress)?;
        let mut tls = TlsStream::client(config, &name).map_err(AttemptError::Tls)?;
        if let Some(data) = &self.first {
            early::offer(&mut tls, data);
        }
        Ok(tls)
    }
}

impl SocketCarrier {
    pub(in crate::carrier) fn tcp_connect<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        attempt: Key,
        to: &Target<'_>,
    ) -> Result<SessionId, AttemptError> {
        let key = self.channels.next_key();
        let sock =
            cx.net.connect(CarrierSocket::channel(key).token(), to.addr, to.options).map_err(AttemptError::Net)?;
        let kind = if to.stack == Stack::Tcp { Kind::Tcp } else { Kind::TlsPending(Box::new(Client::new(to))) };
        self.channels.insert(Channel::new(sock, kind, to.used_by(attempt), to.addr, cx.now));
        Ok(SessionId::Channel(key))
    }

    /// The first message is not to be sent any more: an attempt whose handshake has not begun does
    /// not offer it.
    pub(crate) fn withdraw_first(&mut self, session: SessionId) {
        if let SessionId::Channel(key) = session
            && let Some(Channel { kind: Kind::TlsPending(client), .. }) = self.channels.get_mut(key)
        {
            client.first = None;
        }
    }

    /// Moves an attempt on, after readiness, and reports what has become of it.
    pub(in crate::carrier) fn advance_attempt<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(attempt) = self.channels.get(key).and_then(|c| c.used_by.attempt()) else { return };
        let session = SessionId::Channel(key);
        match self.go_on_connecting(cx, key, attempt) {
            Ok(false) => {}
            Ok(true) => self.events.push_back(CarrierEvent::Established { attempt, session }),
            Err(error) => self.events.push_back(CarrierEvent::Failed { attempt, session, error }),
        }
    }

    /// True: the whole stack is up.
    fn go_on_connecting<N: Net>(&mut self, cx: &mut Context<N>, key: Key, attempt: Key) -> Result<bool, AttemptError> {
        let Some(c) = self.channels.get_mut(key) else { return Ok(false) };
        if !c.connected {
            if !c.writable {
                return Ok(false);
            }
            match cx.net.connect_result(c.sock) {
                Ok(()) => {}
                Err(e) if e.is_would_block() => {
                    c.writable = false;
                    return Ok(false);
                }
                Err(e) => return Err(AttemptError::Net(e)),
            }
            c.connected = true;
            // Nothing has been read yet, so no event is promised: the first read has to be tried.
            c.readable = true;
            match &mut c.kind {
                Kind::Tcp => return Ok(true),
                Kind::TlsPending(client) => {
                    c.kind = Kind::Tls(Box::new(client.begin()?));
                    // The system gives up on an unanswered SYN; only this deadline gives up on a
                    // peer that is silent after it.
                    let deadline = cx.now + HANDSHAKE_PATIENCE;
                    c.deadline = Some(deadline);
                    cx.timers.push(deadline, CarrierTimer::channel(key));
                    let (session, rtt) = (SessionId::Channel(key), cx.now - c.started);
                    self.events.push_back(CarrierEvent::Reachable { attempt, session, rtt });
                }
                _ => {}
            }
        }
        match &c.kind {
            Kind::Tls(t) if t.is_handshaking() => self.drive_tls(cx, key),
            // Established and waiting for the race's decision: only a reset is news.
            Kind::Tcp | Kind::Tls(_) if c.hangup => match cx.net.connect_result(c.sock) {
                Err(e) if !e.is_would_block() => Err(AttemptError::Net(e)),
                _ => Ok(false),
            },
            _ => Ok(false),
        }
    }
}
