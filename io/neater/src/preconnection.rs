//! Preconnections (RFC 9622 section 6): endpoints, needs and security, before there is a
//! connection.

mod plan;

pub use self::plan::{Plan, PlannedCandidate};
use crate::shared::{Handle, State};
use crate::{
    ByteStream, Connection, EstablishmentError, EventHandler, FramerSpec, Listener, LocalEndpoint, MessageContext,
    MessageId, Neater, RemoteEndpoint, Request, SecurityParameters, SelectionProperty, SendError, TransportProperties,
};
use bytes::Bytes;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use neater_engine::{ConnectionId, ConnectionState, Event, RequestOptions, SendOptions, Stack};
use neater_property::neat::{NeatProperty, NeatValue};
use neater_property::{ParseError, Role, SecurityLevel, SecurityNeed};
use neater_tls::{Protection, TlsVersion};
use std::borrow::Cow;
use std::sync::Arc;

/// The description of a connection or a listener (RFC 9622 section 6). It can be used any number of
/// times; later changes do not affect what was made from it.
///
/// Security is on unless it is switched off: by default a connection is encrypted with TLS 1.2 or
/// better and the peer is authenticated by the system's roots of trust.
#[derive(Clone)]
pub struct Preconnection {
    handle: Handle,
    remotes: Arc<[RemoteEndpoint]>,
    locals: Vec<LocalEndpoint>,
    properties: TransportProperties,
    security: SecurityParameters,
    options: RequestOptions,
    handler: Option<EventHandler>,
    /// What was compiled, and for which role, if that is known.
    request: Option<(Option<Role>, Request)>,
    /// The need for security, from words.
    need: Option<SecurityNeed>,
    /// The program has set its security parameters itself.
    security_set: bool,
}

impl core::fmt::Debug for Preconnection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Preconnection")
            .field("remotes", &self.remotes)
            .field("locals", &self.locals)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Preconnection {
    /// A preconnection without endpoints, with the defaults of RFC 9622.
    #[must_use]
    pub fn new(neater: &Neater) -> Self {
        Self {
            handle: neater.handle.clone(),
            remotes: Arc::new([]),
            locals: Vec::new(),
            properties: TransportProperties::new(),
            security: SecurityParameters::new(),
            options: RequestOptions::default(),
            handler: None,
            request: None,
            need: None,
            security_set: false,
        }
    }

    /// Adds a remote endpoint. Several endpoints offer the same service, and any may be chosen.
    #[must_use]
    pub fn remote(mut self, endpoint: impl Into<RemoteEndpoint>) -> Self {
        self.remotes = self.remotes.iter().cloned().chain([endpoint.into()]).collect();
        self
    }

    /// Adds a local endpoint.
    #[must_use]
    pub fn local(mut self, endpoint: impl Into<LocalEndpoint>) -> Self {
        self.locals.push(endpoint.into());
        self
    }

    /// The properties that the transport must have.
    #[must_use]
    pub fn properties(mut self, properties: TransportProperties) -> Self {
        self.properties = properties;
        self.request = None;
        self
    }

    /// The needs, in words: `"reliable, low-delay, tls13"`. The words are those of
    /// [`TransportProperties::parse`], and those about security count, too: without
    /// [`Preconnection::security`] they decide alone, and with it they may ask for more than it
    /// does. If they ask for less, the result is [`crate::Reason::InvalidConfiguration`].
    ///
    /// Besides these words, each property of RFC 9622 can be named with a preference or a value
    /// (`multistreaming=avoid`), and so can its profiles (`reliable-message`). Case, hyphens and
    /// underscores do not matter.
    ///
    #[doc = include_str!("words.md")]
    ///
    /// # Errors
    /// The first word that is not understood, or that contradicts an earlier one.
    pub fn needs(mut self, words: &str) -> Result<Self, ParseError> {
        let parsed = TransportProperties::parse(words)?;
        self.need = parsed.security;
        Ok(self.properties(parsed.properties))
    }

    /// The security parameters.
    #[must_use]
    pub fn security(mut self, security: SecurityParameters) -> Self {
        self.security = security;
        self.security_set = true;
        self.request = None;
        self
    }

    /// How messages are framed over byte streams (`AddFramer`).
    ///
    /// Without a framer TCP, TLS and QUIC streams join messages to a stream of bytes, and QUIC
    /// datagrams, UDP, DTLS and SCTP keep them apart. So they are not candidates of one connection
    /// then: the candidates are the kind that the properties ask for, or else those with message
    /// boundaries. With a framer all may serve.
    #[must_use]
    pub fn framer(mut self, framer: FramerSpec) -> Self {
        self.options.framer = crate::reentrancy::marked(framer, &self.handle.downgrade());
        self.request = None;
        self
    }

    /// Only these stacks are eligible, regardless of the properties. For diagnosis and for
    /// experiments: a program that names protocols gives up what this library is for.
    #[must_use]
    pub fn stacks(mut self, stacks: &[Stack]) -> Self {
        self.options.stacks = stacks.to_vec();
        self.request = None;
        self
    }

    /// Properties beyond those of RFC 9622 for policies to look at, such as `profile` and
    /// `flow_size`: a name, and a text or, where it reads as one, a number or a Boolean. They do
    /// not change what connections have themselves (`transport`, `port`). The ready-made profiles
    /// and policies apply from then on, if there are no others; a program that wants none
    /// ([`Builder::without_policies`](crate::Builder::without_policies)) has no policies that could
    /// act on it. [`Neater::policy_profiles`](crate::Neater::policy_profiles) lists the profiles.
    #[must_use]
    pub fn policy_property(mut self, name: &str, value: &str) -> Self {
        let value: NeatValue = match (value.parse::<bool>(), value.parse::<f64>()) {
            (Ok(b), _) => b.into(),
            (_, Ok(n)) if n.is_finite() => n.into(),
            _ => value.into(),
        };
        self.options.policy.retain(|p| p.key != name.to_lowercase());
        self.options.policy.push(NeatProperty::new(name, value));
        crate::policies::advise(&self.handle);
        self.request = None;
        self
    }

    /// How long establishment may take in all. By default it has no limit beside those of the
    /// candidates.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self.request = None;
        self
    }

    /// Called with every event of the connections made from this, in order, the timeline of
    /// establishment included, and with [`Event::ListenerError`] of its listeners. An event does
    /// not name its connection: the function gets no events of clones and of the streams that a
    /// [`Group`](crate::Group) opens or accepts; they have [`Connection::next_event`]. It gets the
    /// events of a received connection from when the program has accepted it; if that has ended
    /// before, it gets that event then. It runs on the driver's thread, when the engine is not
    /// borrowed: it may call anything. It gets no more events of a connection that the program has
    /// dropped. If it panics, that is reported as an error by `tracing` (target `neater::event`),
    /// and the connection goes on; the function is called with the next event again.
    #[must_use]
    pub fn on_event(mut self, handler: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.handler = Some(Arc::new(handler));
        self.options.observe = true;
        self.request = None;
        self
    }

    /// Checks and compiles the needs now, so that many connections share the work. Sends nothing.
    /// The first request that is verified by the system's roots of trust ([`crate::Trust::System`])
    /// reads them from their files; no other request does.
    ///
    /// # Errors
    /// [`crate::Reason::InvalidConfiguration`], [`crate::Reason::NoCandidates`], with the
    /// properties that rule out each protocol.
    pub fn compile(&mut self, role: Role) -> Result<Request, EstablishmentError> {
        let request = self.request(role)?;
        self.request = Some((Some(role), request.clone()));
        Ok(request)
    }

    /// Uses needs that were compiled before, instead of properties, security and framer.
    #[must_use]
    pub fn request_of(mut self, request: &Request) -> Self {
        self.request = Some((None, request.clone()));
        self
    }

    fn request(&self, role: Role) -> Result<Request, EstablishmentError> {
        // What was compiled for the other role is not this one's.
        if let Some((_, r)) = self.request.as_ref().filter(|(of, _)| of.is_none_or(|of| of == role)) {
            return Ok(r.clone());
        }
        let security = self.security_in_full()?;
        crate::roots::provide(&self.handle, &security, role);
        let judged = security.trust_verification.is_some() || security.refused_certificate.is_some();
        let security = match judged || security.identity_challenge.is_some() || security.key_log.is_some() {
            false => security,
            true => Cow::Owned(self.handle.marked(&security)),
        };
        self.handle.with(|s| s.engine.compile(&self.properties, &security, role, &self.options))
    }

    /// What the program and its words ask of security.
    fn security_in_full(&self) -> Result<Cow<'_, SecurityParameters>, EstablishmentError> {
        let Some(need) = self.need else { return Ok(Cow::Borrowed(&self.security)) };
        let asked = security_for(need);
        if !self.security_set {
            return Ok(Cow::Owned(asked));
        }
        let less = match (asked.protection, self.security.protection) {
            (Protection::Disabled, Protection::Disabled) => false,
            (Protection::Disabled, _) | (_, Protection::Disabled) => true,
            (Protection::Opportunistic, given) => given != Protection::Opportunistic,
            (Protection::Required, _) => false,
        };
        if less {
            return Err(invalid(&format!(
                "the words ask for {need} security, and the security parameters for something else"
            )));
        }
        let mut security = self.security.clone();
        if asked.protection == Protection::Required {
            security.protection = Protection::Required;
        }
        security.min_version = security.min_version.max(asked.min_version);
        Ok(Cow::Owned(security))
    }

    /// Opens a connection: `Initiate` of RFC 9622 section 7.1. Establishment begins at once; the
    /// future ends when the connection is ready, and dropping it gives the connection up.
    pub fn initiate(&self) -> Initiate {
        let made;
        let request = match &self.request {
            Some((None | Some(Role::Initiate), r)) => r,
            _ => match self.request(Role::Initiate) {
                Ok(r) => {
                    made = r;
                    &made
                }
                Err(e) => return Initiate { state: Err(Some(Box::new(e))) },
            },
        };
        crate::policies::look(&self.handle);
        let id = self.handle.with(|s| self.begin(s, request, None));
        self.begun(id)
    }

    #[inline(always)]
    fn begin(
        &self,
        s: &mut State,
        request: &Request,
        early: Option<Bytes>,
    ) -> Result<ConnectionId, Box<EstablishmentError>> {
        let id = s.engine.initiate_from(request, &self.remotes, &self.locals, early).map_err(Box::new)?;
        s.adopt(id);
        if let Some(handler) = &self.handler
            && let Some(slot) = s.slot(id)
        {
            slot.rare().handler = Some(handler.clone());
        }
        Ok(id)
    }

    #[inline]
    fn begun(&self, id: Result<ConnectionId, Box<EstablishmentError>>) -> Initiate {
        match id {
            Ok(id) => Initiate { state: Ok(Some(Connection::new(self.handle.clone(), id))) },
            Err(e) => Initiate { state: Err(Some(e)) },
        }
    }

    /// Opens a connection and hands it its first message (RFC 9622 section 9.2.5).
    ///
    /// If the context marks it as safely replayable it may travel with the handshake (0-RTT) and
    /// arrive more than once: over QUIC and TLS 1.3, if an earlier connection with equal parameters
    /// has left a session and its server takes early data, the message is no longer than that
    /// server allows (16 kB if it is one of ours) and has no lifetime, the connection has no
    /// message framer, and the properties do not avoid or prohibit `zeroRttMsg`. In all other cases
    /// it is sent right after the handshake, exactly as by [`Connection::send`]; so is early data
    /// that the server refuses.
    ///
    /// A message that no connection of these needs can take (it is larger than
    /// [`crate::Limits::message`], its framer refuses it, the direction does not allow it) fails
    /// the future, with the reason in its message; the function of [`Preconnection::on_event`] gets
    /// [`Event::SendError`] with it. There is no connection then. Whether it fits a datagram is
    /// known later, and reported by that event alone.
    pub fn initiate_with_send(&self, data: impl Into<Bytes>, context: &MessageContext) -> Initiate {
        let request = match self.request(Role::Initiate) {
            Ok(r) => r,
            Err(e) => return Initiate { state: Err(Some(Box::new(e))) },
        };
        crate::policies::look(&self.handle);
        let (data, options) = (data.into(), context.stated().over(request.message_defaults()));
        // Whatever becomes of it in there, it is dropped out here.
        let kept = data.clone();
        let mut refused = None;
        let id = self.handle.with(|s| {
            if let Err(e) = s.engine.check_message(&request, data.len()) {
                return Err(Box::new(refuse(&mut refused, e)));
            }
            if may_be_early(&options, &request) {
                let id = self.begin(s, &request, Some(data))?;
                if options.is_final {
                    // The message itself may leave at any time; the end follows it.
                    let _ = s.engine.finish(id);
                }
                return Ok(id);
            }
            let id = self.begin(s, &request, None)?;
            // A first message cannot be blocked: the queue is empty. Anything else is final.
            if let Err(e) = s.engine.send(id, data, options) {
                if s.engine.state(id) == ConnectionState::Closed {
                    // It has failed already (no descriptor is left): the future returns the reason.
                    return Ok(id);
                }
                s.engine.abort(id);
                s.disown(id);
                s.engine.release(id);
                return Err(Box::new(refuse(&mut refused, e)));
            }
            Ok(id)
        });
        drop(kept);
        if let (Some(e), Some(handler)) = (refused, &self.handler) {
            self.handle.report(handler.clone(), Event::SendError(FIRST, e));
        }
        self.begun(id)
    }

    /// Opens a connection that is read and written as a stream of bytes.
    ///
    /// # Errors
    /// Before anything is sent, when the request can only be served by datagrams or has a message
    /// framer; and when it was given by [`Preconnection::request_of`] and may be served by
    /// datagrams: what it was compiled from is not known here, its security included, so that no
    /// other one can be made for bytes.
    pub async fn connect_bytes(&self) -> Result<ByteStream, EstablishmentError> {
        if self.options.framer.frames() {
            return Err(invalid("a connection with a message framer has no byte view"));
        }
        // Compiled needs that leave nothing but streams are good enough as they are. Beside SCTP
        // others may have been left out, which join what is a message there.
        if self.request.as_ref().is_some_and(|(made_for, r)| {
            let all = made_for.is_none() || !r.stacks().iter().any(|s| s.is_sctp());
            all && !r.framer().frames() && r.stacks().iter().all(|s| s.is_stream())
        }) {
            return self.initiate().await?.into_bytes().map_err(|(_, e)| invalid(&e.to_string()));
        }
        if let Some((None, r)) = &self.request {
            let datagrams = r.stacks().iter().filter(|s| !s.is_stream());
            let why = match datagrams.map(ToString::to_string).collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => "it has a message framer".to_owned(),
                some => format!("it may be served by {some}: require reliability where it is compiled"),
            };
            return Err(invalid(&format!("the request that was given does not make a stream of bytes: {why}")));
        }
        let mut this = self.clone();
        if !this.options.bytes {
            this.options.bytes = true;
            this.request = None;
        }
        let connection = this.initiate().await?;
        connection.into_bytes().map_err(|(_, e)| invalid(&e.to_string()))
    }

    /// Listens: `Listen` of RFC 9622 section 7.2, with every eligible protocol on every local
    /// endpoint.
    ///
    /// # Errors
    /// No local endpoint, no eligible protocol, or a port that cannot be bound.
    pub fn listen(&self) -> Result<Listener, EstablishmentError> {
        let request = self.request(Role::Listen)?;
        let id = self.handle.with(|s| {
            let id = s.engine.listen(&request, &self.locals)?;
            s.adopt_listener(id, self.handler.clone());
            Ok(id)
        })?;
        Ok(Listener::new(self.handle.clone(), id, self.handler.clone()))
    }

    /// The properties, to be changed in place.
    pub fn properties_mut(&mut self) -> &mut TransportProperties {
        self.request = None;
        &mut self.properties
    }

    /// Requires a property.
    #[must_use]
    pub fn require(mut self, property: SelectionProperty) -> Self {
        self.properties_mut().require(property);
        self
    }

    /// Prefers a property.
    #[must_use]
    pub fn prefer(mut self, property: SelectionProperty) -> Self {
        self.properties_mut().prefer(property);
        self
    }
}

/// Whether a first message may travel with the handshake. One that expires may not: it could not be
/// known whether it had left.
fn may_be_early(options: &SendOptions, request: &Request) -> bool {
    options.safely_replayable && options.lifetime.is_none() && !request.framer().frames()
}

/// The number of a first message.
const FIRST: MessageId = MessageId(1);

/// Keeps why the first message is refused; without it the program wants no connection.
#[cold]
fn refuse(refused: &mut Option<SendError>, e: SendError) -> EstablishmentError {
    let error = invalid(&format!("the first message cannot be sent: {e}"));
    *refused = Some(e);
    error
}

fn invalid(message: &str) -> EstablishmentError {
    EstablishmentError {
        reason: crate::Reason::InvalidConfiguration,
        message: message.to_owned(),
        candidates: Vec::new(),
        excluded: Vec::new(),
        resolution: Vec::new(),
    }
}

/// A connection that is being established; ends with the connection when it is ready.
///
/// Dropping it gives the attempt up and releases every socket. Nothing is lost by polling it in a
/// `select!`: establishment does not depend on being polled.
#[derive(Debug)]
#[must_use = "dropping it gives the connection up"]
pub struct Initiate {
    // The error is boxed: a program may hold a thousand of these.
    state: Result<Option<Connection>, Option<Box<EstablishmentError>>>,
}

impl Initiate {
    /// The connection, at once, in state Establishing: messages sent on it wait until it is ready.
    /// [`Connection::ready`] waits for that.
    ///
    /// # Errors
    /// What was wrong before anything was sent.
    pub fn connection(mut self) -> Result<Connection, EstablishmentError> {
        match &mut self.state {
            Ok(c @ Some(_)) => c.take().ok_or_else(|| invalid("the connection was already taken")),
            Err(e @ Some(_)) => Err(e.take().map_or_else(|| invalid("the error was already taken"), |e| *e)),
            _ => Err(invalid("the connection was already taken")),
        }
    }

    /// The id that the connection has in the engine.
    #[must_use]
    pub fn id(&self) -> Option<ConnectionId> {
        self.state.as_ref().ok()?.as_ref().map(Connection::id)
    }
}

/// A program that drops the future wants neither the connection nor what was to be sent on it.
impl Drop for Initiate {
    fn drop(&mut self) {
        if let Ok(Some(connection)) = &self.state {
            connection.abort();
        }
    }
}

impl Future for Initiate {
    type Output = Result<Connection, EstablishmentError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            Err(e) => Poll::Ready(Err(e.take().map_or_else(|| invalid("polled after it had ended"), |e| *e))),
            Ok(connection) => {
                let Some(c) = connection else {
                    return Poll::Ready(Err(invalid("polled after it had ended")));
                };
                match c.poll_ready(cx) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(Ok(())) => match connection.take() {
                        Some(c) => Poll::Ready(Ok(c)),
                        None => Poll::Ready(Err(invalid("polled after it had ended"))),
                    },
                    Poll::Ready(Err(e)) => {
                        *connection = None;
                        Poll::Ready(Err(e))
                    }
                }
            }
        }
    }
}

/// The security parameters that state no more than this need: the system's roots of trust, no
/// identity of our own.
#[must_use]
pub fn security_for(need: SecurityNeed) -> SecurityParameters {
    match need {
        SecurityNeed::Opportunistic => SecurityParameters::opportunistic(),
        SecurityNeed::Disabled => SecurityParameters::disabled(),
        SecurityNeed::Required { minimum } => {
            let min_version = match minimum {
                SecurityLevel::Tls13 => TlsVersion::Tls13,
                _ => TlsVersion::Tls12,
            };
            let mut security = SecurityParameters::new();
            security.min_version = min_version;
            security
        }
    }
}
