//! Messages and their contexts (RFC 9622 section 9.1).

use crate::{RemoteEndpoint, Value};
use bytes::Bytes;
use core::time::Duration;
use neater_base::net::Ecn;
use neater_engine::{Received, SendOptions};
use neater_property::{MessageProperties, MessageProperty, PropertyError};
use std::net::SocketAddr;

/// The properties of a message to be sent, and the metadata of a received one.
#[derive(Clone, Debug, Default)]
pub struct MessageContext {
    properties: MessageProperties,
    /// Which of them were set here, by bit.
    stated: u16,
    remote: Option<SocketAddr>,
    local: Option<SocketAddr>,
    ecn: Option<Ecn>,
    received_final: bool,
    early: bool,
    stream: Option<u16>,
    ppid: Option<u32>,
    message: Option<u64>,
}

impl MessageContext {
    /// A context that sets nothing: each property has its default for the connection that the
    /// message is sent on, as set there or on its Preconnection. [`MessageContext::get`] reads RFC
    /// 9622's defaults of those that were not set here.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a Message Property by the name that RFC 9622 gives it.
    ///
    /// # Errors
    /// There is no such property, or the value is out of range.
    pub fn add(&mut self, property: &str, value: impl Into<Value>) -> Result<&mut Self, PropertyError> {
        self.properties.set(property, value)?;
        if let Some(p) = MessageProperty::from_name(property) {
            self.state(p);
        }
        Ok(self)
    }

    /// Reads a Message Property by name.
    #[must_use]
    pub fn get(&self, property: &str) -> Option<Value> {
        self.properties.get(property)
    }

    /// The message may be delivered more than once: it may travel as early data, or over UDP.
    #[must_use]
    pub fn safely_replayable_as(mut self, yes: bool) -> Self {
        self.properties.safely_replayable = yes;
        self.state(MessageProperty::SafelyReplayable);
        self
    }

    /// No message follows: the direction is closed after this one.
    #[must_use]
    pub fn final_as(mut self, yes: bool) -> Self {
        self.properties.is_final = yes;
        self.state(MessageProperty::Final);
        self
    }

    /// The message expires when it could not be sent within this time.
    #[must_use]
    pub fn lifetime(mut self, lifetime: core::time::Duration) -> Self {
        self.properties.lifetime = Some(lifetime);
        self.state(MessageProperty::MsgLifetime);
        self
    }

    /// The message goes on this stream, where the connection is a whole SCTP association. That is
    /// so only with peers other than neater; between two of neater streams are connections of a
    /// group.
    #[must_use]
    pub fn on_stream(mut self, stream: u16) -> Self {
        self.stream = Some(stream);
        self
    }

    /// The stream that a received message came on, where the connection is a whole SCTP
    /// association.
    #[must_use]
    pub fn stream(&self) -> Option<u16> {
        self.stream
    }

    /// Sets the type of the bytes for such a peer: a payload protocol identifier of SCTP (RFC 9260
    /// section 3.3.1), from IANA's list or as both ends have agreed. 0 unless it is set; like the
    /// stream it has an effect only with peers other than neater.
    #[must_use]
    pub fn with_payload_protocol(mut self, ppid: u32) -> Self {
        self.ppid = Some(ppid);
        self
    }

    /// The payload protocol identifier of a received message, where the connection is a whole SCTP
    /// association.
    #[must_use]
    pub fn payload_protocol(&self) -> Option<u32> {
        self.ppid
    }

    /// Distinguishes messages whose parts alternate, which only those of a whole SCTP association
    /// do: all parts of one have the same number, and no other message has it.
    #[must_use]
    pub fn message_number(&self) -> Option<u64> {
        self.message
    }

    /// Whether it may be delivered more than once.
    #[must_use]
    pub fn safely_replayable(&self) -> bool {
        self.properties.safely_replayable
    }

    /// Whether the message is the last one. Of a received message: whether that was known when it
    /// was received. Over a byte stream the end arrives after the message, and the next receive
    /// reports it.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.properties.is_final || self.received_final
    }

    /// Where a received message came from.
    #[must_use]
    pub fn remote_endpoint(&self) -> Option<RemoteEndpoint> {
        self.remote.map(RemoteEndpoint::from)
    }

    /// Which of our addresses it came to.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }

    /// The ECN codepoint that a datagram carried.
    #[must_use]
    pub fn ecn(&self) -> Option<Ecn> {
        self.ecn
    }

    /// Whether a received message came as early data, before the peer had finished its handshake:
    /// it may be a replay by an observer, so the program must not act on it in a way that must not
    /// happen twice (RFC 9622 section 9.3.3.2). Only on connections of a listener that prefers or
    /// requires `zeroRttMsg`.
    #[must_use]
    pub fn is_early_data(&self) -> bool {
        self.early
    }

    fn state(&mut self, property: MessageProperty) {
        self.stated |= 1 << property as u16;
    }

    /// The properties that it sets, to override the defaults.
    pub(crate) fn stated(&self) -> Stated {
        let says = |p: MessageProperty| self.stated & 1 << p as u16 != 0;
        Stated {
            is_final: says(MessageProperty::Final).then_some(self.properties.is_final),
            safely_replayable: says(MessageProperty::SafelyReplayable).then_some(self.properties.safely_replayable),
            lifetime: says(MessageProperty::MsgLifetime).then_some(self.properties.lifetime),
            ordered: says(MessageProperty::MsgOrdered).then_some(self.properties.ordered),
            reliable: says(MessageProperty::MsgReliable).then_some(self.properties.reliable),
            priority: says(MessageProperty::MsgPriority).then_some(self.properties.priority),
            whole: says(MessageProperty::NoSegmentation).then_some(self.properties.no_segmentation),
            stream: self.stream,
            ppid: self.ppid,
        }
    }

    pub(crate) fn received(remote: Option<SocketAddr>, local: Option<SocketAddr>, part: &Received) -> Self {
        let Received { ecn, is_final, early, stream, ppid, message, .. } = *part;
        Self { remote, local, ecn, received_final: is_final, early, stream, ppid, message, ..Self::default() }
    }
}

/// The properties of a context that the engine acts on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stated {
    is_final: Option<bool>,
    safely_replayable: Option<bool>,
    lifetime: Option<Option<Duration>>,
    ordered: Option<Option<bool>>,
    reliable: Option<Option<bool>>,
    priority: Option<u32>,
    whole: Option<bool>,
    stream: Option<u16>,
    ppid: Option<u32>,
}

impl Stated {
    /// The options of a message: the connection's own where the context sets nothing.
    pub(crate) fn over(self, defaults: SendOptions) -> SendOptions {
        SendOptions {
            is_final: self.is_final.unwrap_or(defaults.is_final),
            safely_replayable: self.safely_replayable.unwrap_or(defaults.safely_replayable),
            lifetime: self.lifetime.unwrap_or(defaults.lifetime),
            ordered: self.ordered.unwrap_or(defaults.ordered),
            reliable: self.reliable.unwrap_or(defaults.reliable),
            priority: self.priority.unwrap_or(defaults.priority),
            whole: self.whole.unwrap_or(defaults.whole),
            stream: self.stream.or(defaults.stream),
            ppid: self.ppid.or(defaults.ppid),
            ..defaults
        }
    }
}

/// A received message, or a part of one.
#[derive(Clone, Debug)]
pub struct Message {
    /// The bytes.
    pub data: Bytes,
    /// Its metadata.
    pub context: MessageContext,
    /// Whether the message ends with these bytes.
    pub end_of_message: bool,
}

impl core::ops::Deref for Message {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.data
    }
}
