//! Properties of connections, and what a program can ask of them.

use crate::carrier::FlowId;
use crate::carrier::peer::Peer;
use crate::carrier::property::{CarrierProperty, message_max};
use crate::conn::{Conn, ConnectionState, ConnectionStats, Delivery};
use crate::event::{CandidateOutcome, ConnectionError, TimelineEntry};
use crate::preferences::{dscp, socket_priority};
use crate::properties::{NO_RELIABILITY_PER_MESSAGE, SetPropertyError, states_reliability};
use crate::stacks::DatagramLimit;
use crate::{ConnectionId, Engine, GroupId, SendOptions, Stack};
use crate::{EndpointChange, EndpointError, PathInfo};
use neater_base::Key;
use neater_base::net::{ErrorKind, Net, NetError, SocketOption};
use neater_property::{Class, ConnectionProperties, Preference, SelectionProperty as P, Value, lookup};
use std::net::SocketAddr;

impl<N: Net> Engine<N> {
    /// Reads a property by the name that RFC 9622 gives it; `None` if there is no such property or
    /// connection. Selection Properties of type Preference read as preferences until a stack is
    /// chosen, and as Booleans then: what that stack really does (section 6.2).
    #[must_use]
    pub fn get_property(&mut self, conn: ConnectionId, name: &str) -> Option<Value> {
        let info = lookup(name)?;
        if info.class == Class::ReadOnly {
            return self.fact(conn, info.name);
        }
        let c = self.conns.get(conn.0)?;
        let (request, stack) = (c.request.clone(), c.stack);
        if let (Some(p), Some(stack)) = (P::from_name(info.name), stack) {
            if p == P::UseTemporaryLocalAddress {
                return Some(Value::from(self.is_from_temporary(conn)));
            }
            let features = stack.features();
            let framed = p == P::PreserveMsgBoundaries && request.framer.frames();
            let wanted = match p {
                P::PerMsgReliability => states_reliability(&request.properties),
                _ => request.policy.needs.preference(p) > Preference::NoPreference,
            };
            let has = features.provides.contains(p) || framed || (features.configurable.contains(p) && wanted);
            return Some(Value::from(has));
        }
        if info.name == "connTimeout"
            && c.flow.has_idle_timeout()
            && let Some(idle) = c.idle_timeout()
        {
            return Some(Value::from(c.properties().timeout.map_or(idle, |t| t.min(idle))));
        }
        match (&*c.cold, info.class) {
            (Some(cold), Class::Connection | Class::Protocol) if cold.changed.is_some() => {
                cold.changed.as_ref()?.get(info.name)
            }
            (Some(cold), Class::Message) if cold.messages.is_some() => cold.messages.as_ref()?.get(info.name),
            _ => request.properties.get(info.name),
        }
    }

    /// The properties that cannot be set (section 8.1.11).
    pub(crate) fn fact(&mut self, conn: ConnectionId, name: &str) -> Option<Value> {
        self.conns.get(conn.0)?;
        Some(match name {
            "connState" => Value::from(match self.state(conn) {
                ConnectionState::Establishing => "establishing",
                ConnectionState::Established => "established",
                ConnectionState::Closing => "closing",
                ConnectionState::Closed => "closed",
            }),
            "canSend" => Value::from(self.can_send(conn)),
            "canReceive" => Value::from(self.can_receive(conn)),
            "sendMsgMaxLen" => Value::from(self.send_msg_max_len(conn) as u64),
            "recvMsgMaxLen" => Value::from(self.recv_msg_max_len(conn)),
            "singularTransmissionMsgMaxLen" => match self.singular_transmission_msg_max_len(conn) {
                Some(n) => Value::from(n as u64),
                None => Value::from("Not applicable"),
            },
            _ => return None,
        })
    }

    /// The largest message that can be received whole (section 8.1.11.6), in bytes; 0 if none can.
    #[must_use]
    pub fn recv_msg_max_len(&self, conn: ConnectionId) -> u64 {
        if !self.can_receive(conn) {
            return 0;
        }
        let Some(c) = self.conns.get(conn.0) else { return 0 };
        match (&c.request.framer, c.stack.and_then(message_max)) {
            (_, Some(max)) => max as u64,
            (neater_framing::FramerSpec::LengthPrefixed { max, .. }, None) => (*max).min(self.cx.limits.message as u64),
            _ => self.cx.limits.message as u64,
        }
    }

    /// The largest message that leaves in one packet (section 8.1.11.4), in bytes; `None`: not
    /// applicable, because the stack carries a stream of bytes, or none is chosen yet.
    #[must_use]
    pub fn singular_transmission_msg_max_len(&mut self, conn: ConnectionId) -> Option<usize> {
        match self.conns.get(conn.0)?.stack?.datagram_limit()? {
            DatagramLimit::Session => Some(self.datagram_max(conn.0)),
            DatagramLimit::Link => {
                let sending = self.send_msg_max_len(conn);
                let flow = self.conns.get(conn.0)?.flow;
                let ip = self.local_addr(conn)?.ip();
                // An unspecified address means a socket that is bound to none: any interface may
                // carry it.
                let of = |i: &&neater_base::net::Interface| ip.is_unspecified() || i.addrs.iter().any(|a| a.addr == ip);
                let mtu = self.cx.net.interfaces().iter().filter(of).map(|i| i.mtu).min()?;
                Some(self.carriers.datagram_room(flow, mtu as usize, ip)?.min(sending))
            }
        }
    }

    pub(crate) fn is_from_temporary(&self, conn: ConnectionId) -> bool {
        let Some(local) = self.local_addr(conn) else { return false };
        let addrs = self.cx.net.interfaces().iter().flat_map(|i| &i.addrs);
        addrs.into_iter().any(|a| a.addr == local.ip() && a.temporary)
    }

    /// The properties of a message that sets none itself: the Message Properties that were set on
    /// the connection, or on the Preconnection that it comes from (section 4 of RFC 9622).
    #[must_use]
    pub fn message_defaults(&self, conn: ConnectionId) -> SendOptions {
        self.conns.get(conn.0).map_or_else(SendOptions::default, |c| SendOptions::from(c.messages()))
    }

    /// Sets a Connection Property by name. It holds for every connection of the group, except
    /// `connPriority`. A Message Property is a default for the messages of this connection alone
    /// (section 7.4), from the next one on.
    ///
    /// # Errors
    /// There is no such property, it cannot be set on a connection or on this transport, or the
    /// value is out of range. Nothing has changed then, and the connection goes on.
    pub fn set_property(&mut self, conn: ConnectionId, name: &str, value: &Value) -> Result<(), SetPropertyError> {
        let Some(c) = self.conns.get(conn.0) else {
            return Err(SetPropertyError("the connection does not exist any more".into()));
        };
        if let Some(info) = lookup(name)
            && info.class == Class::Selection
        {
            let why = "is a Selection Property: it is fixed when a connection is initiated";
            return Err(SetPropertyError(format!("{} {why}", info.name)));
        }
        if lookup(name).is_some_and(|info| info.class == Class::Message) {
            let mut messages = c.messages().clone();
            messages.set(name, value.clone()).map_err(|e| SetPropertyError(e.to_string()))?;
            if messages.reliable != c.messages().reliable && !c.may_state_reliability(messages.reliable) {
                return Err(SetPropertyError(NO_RELIABILITY_PER_MESSAGE.into()));
            }
            if let Some(c) = self.conns.get_mut(conn.0) {
                c.cold().messages = Some(Box::new(messages));
            }
            return Ok(());
        }
        // The property's own rules first: name, type, range.
        let mut changed = c.properties();
        changed.set(name, value.clone()).map_err(|e| SetPropertyError(e.to_string()))?;
        let Some(info) = lookup(name) else { return Err(SetPropertyError(format!("there is no property '{name}'"))) };
        let members = match c.group.and_then(|g| self.groups.get(g)) {
            Some(g) if info.name != "connPriority" => g.members.clone(),
            _ => vec![conn.0],
        };
        let failed = |e: NetError| {
            SetPropertyError(if e.kind == ErrorKind::Unsupported {
                format!("{} has no effect on this transport", info.name)
            } else {
                e.to_string()
            })
        };
        self.apply_property(conn.0, info.name, &changed)?.map_err(failed)?;
        self.remember(conn.0, info.name, value);
        for member in members.into_iter().filter(|m| *m != conn.0) {
            // What a member cannot do is best effort (RFC 9621 section 4.1.3).
            if let Ok(Ok(())) = self.apply_property(member, info.name, &changed) {
                self.remember(member, info.name, value);
            }
        }
        Ok(())
    }

    pub(crate) fn remember(&mut self, conn: Key, name: &str, value: &Value) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let mut all = c.properties();
        // It was set once before, so it can be.
        if all.set(name, value.clone()).is_ok() {
            c.cold().changed = Some(Box::new(all));
        }
    }

    pub(crate) fn apply_property(
        &mut self,
        conn: Key,
        name: &str,
        now: &ConnectionProperties,
    ) -> Result<Result<(), NetError>, SetPropertyError> {
        let id = ConnectionId(conn);
        Ok(match name {
            "connPriority" => {
                self.set_priority(id, now.priority);
                Ok(())
            }
            "keepAliveTimeout" => {
                let every = now.keep_alive_timeout;
                self.set_in_carrier(id, CarrierProperty::KeepAlive(every), SocketOption::KeepAlive(every))
            }
            "connTimeout" => {
                self.set_in_carrier(id, CarrierProperty::Timeout(now.timeout), SocketOption::UserTimeout(now.timeout))
            }
            "multipathPolicy" => {
                let flow = self.conns.get(conn).map_or(FlowId::None, |c| c.flow);
                let property = CarrierProperty::MultipathPolicy(now.multipath_policy);
                self.carriers.set(&mut self.cx, flow, property).unwrap_or(Ok(()))
            }
            "connCapacityProfile" => self.apply_profile(id, now),
            // Datagrams cannot be slowed down by not reading them.
            "maxRecvRate"
                if now.max_recv_rate.is_some()
                    && self.conns.get(conn).and_then(|c| c.stack).is_some_and(|s| !s.is_stream()) =>
            {
                Err(ErrorKind::Unsupported.into())
            }
            "maxSendRate" | "maxRecvRate" => {
                self.limit_rates(conn, now.max_send_rate, now.max_recv_rate);
                Ok(())
            }
            "groupConnLimit" => self.limit_group(conn, now.group_conn_limit),
            _ => return Err(SetPropertyError(format!("{name} cannot be changed on a connection"))),
        })
    }

    /// Sets a property of what carries a connection, or the option of its socket that has the same
    /// effect.
    pub(crate) fn set_in_carrier(
        &mut self,
        conn: ConnectionId,
        property: CarrierProperty,
        option: SocketOption,
    ) -> Result<(), NetError> {
        let flow = self.conns.get(conn.0).map(|c| c.flow);
        let set = flow.and_then(|flow| self.carriers.set(&mut self.cx, flow, property));
        set.unwrap_or_else(|| self.set_option(conn, option))
    }

    pub(crate) fn apply_profile(&mut self, conn: ConnectionId, now: &ConnectionProperties) -> Result<(), NetError> {
        self.set_option(conn, SocketOption::Dscp(dscp(now.capacity_profile)))?;
        if self.stack(conn).is_some_and(Stack::is_plain_stream) {
            self.set_option(conn, SocketOption::NoDelay(now.capacity_profile.is_low_latency()))?;
        }
        // The codepoint has set the system's own idea of a priority.
        match socket_priority(now.priority) {
            0 => Ok(()),
            p => self.set_option(conn, SocketOption::Priority(p)),
        }
    }

    /// The stack is known: what was set while it was not takes effect now. A property without
    /// effect on this stack is reset, so that reading it shows that.
    pub(crate) fn apply_changed(&mut self, conn: Key) {
        let Some(c) = self.conns.get(conn) else { return };
        let Some(now) = c.cold.as_ref().and_then(|e| e.changed.as_deref()).cloned() else { return };
        let then = c.request.properties.connection.clone();
        for property in neater_property::ConnectionProperty::ALL {
            let before = then.property(property);
            if now.property(property) != before
                && !matches!(self.apply_property(conn, property.name(), &now), Ok(Ok(())))
            {
                self.remember(conn, property.name(), &before);
            }
        }
    }

    /// A clone begins with the properties that its parent has now (section 7.4), not with those
    /// that it was opened with.
    pub(crate) fn inherit_properties(&mut self, parent: Key, clone: Key) {
        let Some(c) = self.conns.get(parent) else { return };
        let (now, then) = (c.properties(), c.request.properties.connection.clone());
        if now == then && c.priority() == then.priority {
            return;
        }
        for property in neater_property::ConnectionProperty::ALL {
            let value = now.property(property);
            if value != then.property(property)
                && let Ok(Ok(())) = self.apply_property(clone, property.name(), &now)
            {
                self.remember(clone, property.name(), &value);
            }
        }
    }

    /// Limits how many connections the peer may have in the group of `conn` (section 8.1.9).
    pub(crate) fn limit_group(&mut self, conn: Key, limit: Option<u32>) -> Result<(), NetError> {
        let Some(c) = self.conns.get(conn) else { return Ok(()) };
        // Which stack it will be is not known yet: it takes effect when it is.
        let unsettled = c.state == ConnectionState::Establishing && c.stack.is_none();
        let group = c.group.and_then(|g| self.groups.get(g));
        let Some(session) = group.and_then(|g| g.session).filter(|s| self.carriers.limit_peers_streams(*s, limit))
        else {
            return if unsettled || limit.is_none() { Ok(()) } else { Err(ErrorKind::Unsupported.into()) };
        };
        self.accept_streams(session);
        self.carriers.allow_more_streams(session);
        Ok(())
    }

    /// The state of a connection; [`ConnectionState::Closed`] if there is none of that id, and in a
    /// child of `fork`.
    #[must_use]
    pub fn state(&self, conn: ConnectionId) -> ConnectionState {
        if self.is_forked() {
            return ConnectionState::Closed;
        }
        self.conns.get(conn.0).map_or(ConnectionState::Closed, |c| c.state)
    }

    /// How a connection has ended, if it has: for a task that takes it after its last event.
    #[must_use]
    pub fn ending(&self, conn: ConnectionId) -> Option<Result<(), Box<ConnectionError>>> {
        match self.conns.get(conn.0) {
            Some(c) if c.state != ConnectionState::Closed => None,
            // The peer wanted no more of a stream that has ended in order all the same.
            Some(c) if c.send.is_settled() && c.recv.has_peer_finished() => Some(Ok(())),
            Some(c) => Some(c.error().map_or(Ok(()), |e| Err(Box::new(e.clone())))),
            None => Some(Ok(())),
        }
    }

    /// The stack that was chosen, once it was.
    #[must_use]
    pub fn stack(&self, conn: ConnectionId) -> Option<Stack> {
        self.conns.get(conn.0)?.stack
    }

    /// The request that the connection was made with.
    #[must_use]
    pub fn request(&self, conn: ConnectionId) -> Option<crate::Request> {
        Some(crate::Request(self.conns.get(conn.0)?.request.clone()))
    }

    /// Whether the connection can be seen as a stream of bytes.
    ///
    /// # Errors
    /// [`ConnectionError::Unsupported`]: a framer makes messages of them, or what carries it does.
    pub fn check_bytes(&self, conn: ConnectionId) -> Result<(), ConnectionError> {
        let Some(c) = self.conns.get(conn.0) else { return Ok(()) };
        if c.request.framer.frames() {
            return Err(ConnectionError::Unsupported("a connection with a message framer has no byte view"));
        }
        if c.stack.is_some_and(|stack| !stack.is_stream()) {
            return Err(ConnectionError::Unsupported("a connection that carries datagrams has no byte view"));
        }
        Ok(())
    }

    /// Whether the program may send (RFC 9622 section 8.1.11.2).
    #[must_use]
    pub fn can_send(&self, conn: ConnectionId) -> bool {
        self.conns
            .get(conn.0)
            .is_some_and(|c| c.state <= ConnectionState::Established && c.send.is_open() && c.request.may_send)
    }

    /// Whether the program may receive (RFC 9622 section 8.1.11.3).
    #[must_use]
    pub fn can_receive(&self, conn: ConnectionId) -> bool {
        self.conns
            .get(conn.0)
            .is_some_and(|c| c.state <= ConnectionState::Established && c.recv.may_read() && c.request.may_receive)
    }

    /// The peer's address.
    #[must_use]
    pub fn remote_addr(&self, conn: ConnectionId) -> Option<SocketAddr> {
        let c = self.conns.get(conn.0)?;
        self.carriers.remote_addr(c.flow, shared_peer(c))
    }

    /// Our address.
    #[must_use]
    pub fn local_addr(&self, conn: ConnectionId) -> Option<SocketAddr> {
        let c = self.conns.get(conn.0)?;
        self.carriers.local_addr(&self.cx, c.flow, shared_peer(c))
    }

    /// The system's own number of the connection's socket, for options that this engine has not.
    /// `None` while there is none, where several connections share one, and where the network has
    /// no such numbers. It is the engine's: the program neither closes it nor reads from it.
    #[must_use]
    pub fn descriptor(&self, conn: ConnectionId) -> Option<i32> {
        let flow = self.conns.get(conn.0)?.flow;
        self.cx.net.descriptor(self.carriers.socket_of(flow, conn.0)?)
    }

    /// The application protocol that the security protocol has negotiated (RFC 7301).
    #[must_use]
    pub fn alpn(&self, conn: ConnectionId) -> Option<Vec<u8>> {
        self.carriers.alpn(self.conns.get(conn.0)?.flow)
    }

    /// The peer's certificates, leaf first, in DER; empty without security or client
    /// authentication.
    #[must_use]
    pub fn peer_certificates(&self, conn: ConnectionId) -> Vec<Vec<u8>> {
        self.conns.get(conn.0).map(|c| self.carriers.peer_certificates(c.flow)).unwrap_or_default()
    }

    /// The paths of a connection's transport, with what is known of each: several where an SCTP
    /// association has them, else the only one. Empty for a connection that nothing carries.
    /// [`crate::Event::PathChange`] reports that something about them has changed.
    #[must_use]
    pub fn paths(&self, conn: ConnectionId) -> Vec<PathInfo> {
        let Some(c) = self.conns.get(conn.0) else { return Vec::new() };
        let received = c.bytes_received + c.fast.direct_bytes().1;
        self.carriers.paths(&self.cx, (c.flow, shared_peer(c)), received)
    }

    /// Adds endpoints to an established connection and removes them (RFC 9622 section 7.5), where
    /// its transport has several paths: SCTP, unless `multipath` is `Disabled`. The connections of
    /// a group that share it share them. A path that is added carries data after the peer has
    /// answered from there; [`crate::Event::PathChange`] reports when something about paths has
    /// changed. What is there already, or gone already when it was added here, changes nothing.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn change_endpoints(&mut self, conn: ConnectionId, change: &EndpointChange) -> Result<(), EndpointError> {
        let c = self.conns.get(conn.0).filter(|c| c.state == ConnectionState::Established);
        let flow = c.ok_or(EndpointError::NotEstablished)?.flow;
        self.carriers.change_endpoints(&mut self.cx, flow, change)
    }

    /// The version of the security protocol in use, in words.
    #[must_use]
    pub fn security(&self, conn: ConnectionId) -> Option<String> {
        self.carriers.security(self.conns.get(conn.0)?.flow)
    }

    /// How the race went: every candidate and what became of it. Empty when a cached outcome was
    /// used alone.
    #[must_use]
    pub fn candidates(&self, conn: ConnectionId) -> Vec<CandidateOutcome> {
        self.conns.get(conn.0).and_then(|c| c.cold.as_ref()).map(|e| e.candidates.clone()).unwrap_or_default()
    }

    /// The steps of establishment so far.
    #[must_use]
    pub fn timeline(&self, conn: ConnectionId) -> Vec<TimelineEntry> {
        self.conns.get(conn.0).and_then(|c| c.cold.as_ref()).map(|e| e.timeline.clone()).unwrap_or_default()
    }

    /// How far what was sent on a connection has come; `None` when nothing carries it any more, or
    /// what does keeps no such figures.
    #[must_use]
    pub fn delivery(&self, conn: ConnectionId) -> Option<Delivery> {
        let c = self.conns.get(conn.0)?;
        let read = c.fast.direct_bytes().1;
        let received = c.bytes_received + read;
        let queued = c.tx.bytes as u64;
        // Of a stream it is not known what has been acknowledged but its end.
        let end = u64::from(c.send.is_finished() && !c.send.is_settled());
        let below = self.carriers.flow_delivery(&self.cx, c.flow)?;
        let pending = queued + below.unacknowledged.unwrap_or(end);
        Some(Delivery { acknowledged: below.acknowledged, pending, received })
    }

    /// As [`Engine::delivery`], of all streams of a session together; what comes, and what waits,
    /// is not counted.
    #[must_use]
    pub fn group_delivery(&self, group: GroupId) -> Option<Delivery> {
        let acknowledged = self.carriers.session_acknowledged(self.groups.get(group.0)?.session?)?;
        Some(Delivery { acknowledged, ..Delivery::default() })
    }

    /// Figures of a connection.
    #[must_use]
    pub fn connection_stats(&self, conn: ConnectionId) -> Option<ConnectionStats> {
        let c = self.conns.get(conn.0)?;
        let (written, read) = c.fast.direct_bytes();
        let (rtt, congestion_window) = self.carriers.path_figures(&self.cx, c.flow);
        Some(ConnectionStats {
            bytes_sent: c.bytes_sent + written,
            bytes_received: c.bytes_received + read,
            messages_sent: u64::from(c.messages_sent),
            messages_received: u64::from(c.messages_received),
            datagrams_dropped: u64::from(c.dropped),
            establishment: c.since - c.began,
            rtt,
            congestion_window,
            queued: c.tx.bytes,
            ended: c.end_is_out(),
        })
    }
}

/// The peer of a connection that shares its socket with others.
fn shared_peer(c: &Conn) -> Option<Peer> {
    c.cold.as_ref()?.peer
}
