//! Reading and setting properties of a connection by name (RFC 9622 section 8).
//!
//! What is set on one connection holds for its whole group, except `connPriority` (section 7.4).

use crate::carrier::property::{CarrierProperty, message_max};
use crate::conn::{Conn, ConnectionState};
use crate::request::{dscp, socket_priority};
use crate::stacks::DatagramLimit;
use crate::{ConnectionId, Engine, SendOptions, Stack};
use neater_base::Key;
use neater_base::net::{ErrorKind, Net, NetError, SocketOption};
use neater_property::{
    Class, ConnectionProperties, MessageProperties, Preference, Role, SelectionProperty as P, TransportProperties,
    Value, lookup,
};

/// A property that could not be set, and why. The connection goes on (section 8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetPropertyError(String);

impl core::fmt::Display for SetPropertyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for SetPropertyError {}

/// Why a message cannot say whether it must arrive.
pub(crate) const NO_RELIABILITY_PER_MESSAGE: &str =
    "msgReliable can only be changed where perMsgReliability was required or preferred";

impl<N: Net> Engine<N> {
    /// Reads a property by the name that RFC 9622 gives it; `None` if there is no such property or connection. Selection
    /// Properties of type Preference read as preferences until a stack is chosen, and as Booleans then: what that stack
    /// really does (section 6.2).
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
        match (&*c.ext, info.class) {
            (Some(ext), Class::Connection | Class::Protocol) if ext.changed.is_some() => {
                ext.changed.as_ref()?.get(info.name)
            }
            (Some(ext), Class::Message) if ext.messages.is_some() => ext.messages.as_ref()?.get(info.name),
            _ => request.properties.get(info.name),
        }
    }

    /// The properties that cannot be set (section 8.1.11).
    fn fact(&mut self, conn: ConnectionId, name: &str) -> Option<Value> {
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

    /// The largest message that leaves in one packet (section 8.1.11.4), in bytes; `None`: not applicable, because the
    /// stack carries a stream of bytes, or none is chosen yet.
    #[must_use]
    pub fn singular_transmission_msg_max_len(&mut self, conn: ConnectionId) -> Option<usize> {
        match self.conns.get(conn.0)?.stack?.datagram_limit()? {
            DatagramLimit::Session => Some(self.datagram_max(conn.0)),
            DatagramLimit::Link => {
                let sending = self.send_msg_max_len(conn);
                let flow = self.conns.get(conn.0)?.flow;
                let ip = self.local_addr(conn)?.ip();
                // A socket that is bound to no address says so: any interface may be the way.
                let of = |i: &&neater_base::net::Interface| ip.is_unspecified() || i.addrs.iter().any(|a| a.addr == ip);
                let mtu = self.cx.net.interfaces().iter().filter(of).map(|i| i.mtu).min()?;
                Some(self.carriers.datagram_room(flow, mtu as usize, ip)?.min(sending))
            }
        }
    }

    fn is_from_temporary(&self, conn: ConnectionId) -> bool {
        let Some(local) = self.local_addr(conn) else { return false };
        let addrs = self.cx.net.interfaces().iter().flat_map(|i| &i.addrs);
        addrs.into_iter().any(|a| a.addr == local.ip() && a.temporary)
    }

    /// What a message is sent with where nothing else is said: the Message Properties that were set on the connection, or on
    /// the Preconnection that it comes from (section 4 of RFC 9622).
    #[must_use]
    pub fn message_defaults(&self, conn: ConnectionId) -> SendOptions {
        self.conns.get(conn.0).map_or_else(SendOptions::default, |c| SendOptions::from(c.messages()))
    }

    /// Sets a Connection Property by name. It holds for every connection of the group, except `connPriority`. A Message
    /// Property is a default for the messages of this connection alone (section 7.4), from the next one on.
    ///
    /// # Errors
    /// There is no such property, it cannot be set on a connection or on this transport, or the value is out of range.
    /// Nothing has changed then, and the connection goes on.
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
                c.ext().messages = Some(Box::new(messages));
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

    fn remember(&mut self, conn: Key, name: &str, value: &Value) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let mut all = c.properties();
        // It was set once before, so it can be.
        if all.set(name, value.clone()).is_ok() {
            c.ext().changed = Some(Box::new(all));
        }
    }

    fn apply_property(
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

    /// Sets a property of what carries a connection, or the option of its socket that has the same effect.
    fn set_in_carrier(
        &mut self,
        conn: ConnectionId,
        property: CarrierProperty,
        option: SocketOption,
    ) -> Result<(), NetError> {
        let flow = self.conns.get(conn.0).map(|c| c.flow);
        let set = flow.and_then(|flow| self.carriers.set(&mut self.cx, flow, property));
        set.unwrap_or_else(|| self.set_option(conn, option))
    }

    fn apply_profile(&mut self, conn: ConnectionId, now: &ConnectionProperties) -> Result<(), NetError> {
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

    /// The stack is known: what was set while it was not takes effect now. What has none on this stack is taken back, so that
    /// reading it tells.
    pub(crate) fn apply_changed(&mut self, conn: Key) {
        let Some(c) = self.conns.get(conn) else { return };
        let Some(now) = c.ext.as_ref().and_then(|e| e.changed.as_deref()).cloned() else { return };
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

    /// A clone begins with the properties that its parent has now (section 7.4), not with those that it was opened with.
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
    fn limit_group(&mut self, conn: Key, limit: Option<u32>) -> Result<(), NetError> {
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
}

/// Whether a program has asked to say of each message whether it must arrive. Who says it beforehand, of all messages, has asked;
/// unless it would rather have no such transport.
fn states_reliability(properties: &TransportProperties) -> bool {
    match properties.preference(P::PerMsgReliability, Role::Initiate) {
        Preference::Require | Preference::Prefer => true,
        Preference::NoPreference => properties.message.reliable.is_some(),
        Preference::Avoid | Preference::Prohibit => false,
    }
}

impl Conn {
    /// Whether a message may say this of its reliability (`msgReliable`): what its connection does anyway, and more where
    /// reliability per message was asked for (RFC 9622 section 9.1.3.7). A message that need not arrive may arrive all the same.
    pub(crate) fn may_state_reliability(&self, reliable: Option<bool>) -> bool {
        let properties = &self.request.properties;
        let Some(reliable) = reliable.filter(|_| !states_reliability(properties)) else { return true };
        let wanted = properties.preference(P::Reliability, Role::Initiate) >= Preference::NoPreference;
        let has = match self.stack.map(Stack::features) {
            Some(f) if f.provides.contains(P::Reliability) => true,
            Some(f) if !f.configurable.contains(P::Reliability) => false,
            _ => wanted,
        };
        reliable == has || !reliable && !wanted
    }

    /// The Connection Properties as they are now.
    pub(crate) fn properties(&self) -> ConnectionProperties {
        let changed = self.ext.as_ref().and_then(|e| e.changed.as_deref());
        changed.unwrap_or(&self.request.properties.connection).clone()
    }

    /// The defaults for its messages as they are now.
    fn messages(&self) -> &MessageProperties {
        self.ext.as_ref().and_then(|e| e.messages.as_deref()).unwrap_or(&self.request.properties.message)
    }

    /// For how long its session waits for its peer, where it has such a time.
    fn idle_timeout(&self) -> Option<core::time::Duration> {
        self.request.setups.idle_timeout(!self.passive)
    }

    /// The priority within the group that the connection has now.
    pub(crate) fn priority(&self) -> u32 {
        let set = self.ext.as_ref().and_then(|e| e.priority);
        set.unwrap_or(self.request.properties.connection.priority)
    }

    /// Whether it is one of those that the peer has added to a group. One that has ended in order counts no more; one that the peer has
    /// reset does until the program lets go of it, or a peer could make it hold any number of them.
    pub(crate) fn is_peers_stream(&self) -> bool {
        self.passive
            && (self.state != ConnectionState::Closed || self.error().is_some())
            && self.flow.is_stream_of_session()
    }
}
