//! The engine without its type parameter.
//!
//! The public objects do not name the network below them: a program links the sockets' engine once, and the simulator
//! puts its own under the same objects. The price is one indirect call per operation, which a byte stream does not pay for each
//! piece: it looks for the sockets' lane by its type and does without one over any other network.

use bytes::Bytes;
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::{Lane, Net, NetError};
use neater_engine::{
    CandidateOutcome, Carrier, ConnectionError, ConnectionId, ConnectionState, ConnectionStats, Delivery, Engine,
    EngineStats, EstablishmentError, ForeignDatagram, GroupId, ListenerId, LocalEndpoint, MessageId, NameFailure,
    NameQuestion, Notice, ReceiveOutcome, RemoteEndpoint, Request, RequestOptions, SendError, SendOptions,
    ServiceOutcome, SetPropertyError, Spent, Stack, StreamDirection, TimelineEntry,
};
use neater_policy::advice::{Adviser, Denied, Fact, Story};
use neater_policy::daemon::Tables;
use neater_policy::manager::{FileKind, Report, SourceFile};
use neater_property::{Role, TransportProperties, Value};
use neater_tls::{Crypto, SecurityParameters};
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

macro_rules! machine {
    ($( $(#[$attr:meta])* fn $name:ident(&mut self $(, $arg:ident: $type:ty)*) $(-> $ret:ty)?; )*) => {
        /// What the public objects ask of an engine.
        #[allow(clippy::too_many_arguments, reason = "the engine's own signatures")]
        pub(crate) trait Machine: Send {
            $( $(#[$attr])* fn $name(&mut self $(, $arg: $type)*) $(-> $ret)?; )*
        }

        impl<N: Net + Send> Machine for Engine<N> {
            $( $(#[$attr])* fn $name(&mut self $(, $arg: $type)*) $(-> $ret)? { Engine::$name(self $(, $arg)*) } )*
        }
    };
}

machine! {
    fn turn(&mut self);
    #[cfg(feature = "tokio")]
    fn glance(&mut self) -> bool;
    #[cfg(feature = "tokio")]
    fn look_again(&mut self);
    fn rearm(&mut self);
    fn needs_settling(&mut self) -> bool;
    fn after_call(&mut self) -> bool;
    fn poll_notice(&mut self) -> Option<Notice>;
    #[cfg(feature = "tokio")]
    fn poll_readable(&mut self) -> (Option<ConnectionId>, bool);
    fn has_spent(&mut self) -> bool;
    fn take_spent(&mut self) -> Spent;
    fn is_forked(&mut self) -> bool;
    fn unusable(&mut self) -> Option<NetError>;
    fn orphan(&mut self);
    fn take_foreign(&mut self) -> Vec<ForeignDatagram>;
    fn deliver_foreign(&mut self, datagram: ForeignDatagram) -> Option<ForeignDatagram>;
    fn deliver_unclaimed(&mut self, datagram: ForeignDatagram);
    fn crypto(&mut self) -> Crypto;
    fn set_crypto(&mut self, crypto: Crypto);
    fn compile(&mut self, properties: &TransportProperties, security: &SecurityParameters, role: Role, options: &RequestOptions) -> Result<Request, EstablishmentError>;
    fn set_adviser(&mut self, adviser: Option<Adviser>, app: &str);
    fn load_policies(&mut self, pib: &[SourceFile<'_>], cib: &[SourceFile<'_>]) -> Report;
    fn share_policies(&mut self, tables: Tables);
    fn share_facts(&mut self, facts: Vec<Fact>);
    fn has_facts(&mut self) -> bool;
    fn hold_facts(&mut self);
    fn take_facts(&mut self) -> Vec<Fact>;
    fn tell_facts_again(&mut self);
    fn policy_story(&mut self, request: &Request, remote: &RemoteEndpoint) -> Option<Result<Story, Denied>>;
    fn policy_file(&mut self, kind: FileKind, uid: &str) -> Option<String>;
    fn is_advised(&mut self) -> bool;
    fn policy_profiles(&mut self) -> BTreeSet<String>;
    fn initiate_from(&mut self, request: &Request, remotes: &Arc<[RemoteEndpoint]>, locals: &[LocalEndpoint], first: Option<Bytes>) -> Result<ConnectionId, EstablishmentError>;
    fn plan(&mut self, request: &Request, remotes: &Arc<[RemoteEndpoint]>, locals: &[LocalEndpoint]) -> Result<ConnectionId, EstablishmentError>;
    fn listen(&mut self, request: &Request, local: &[LocalEndpoint]) -> Result<ListenerId, EstablishmentError>;
    fn listener_addrs(&mut self, listener: ListenerId) -> Vec<(Stack, SocketAddr)>;
    fn set_new_connection_limit(&mut self, listener: ListenerId, limit: Option<u64>);
    fn taken(&mut self, listener: ListenerId);
    fn taken_stream(&mut self, group: GroupId);
    fn deliver_groups(&mut self, listener: ListenerId, groups: bool);
    fn stop(&mut self, listener: ListenerId);
    fn send(&mut self, conn: ConnectionId, data: Bytes, options: SendOptions) -> Result<MessageId, SendError>;
    fn lifetime_left(&mut self, conn: ConnectionId, lifetime: Duration, until: &mut Option<Instant>) -> Option<Duration>;
    fn write(&mut self, conn: ConnectionId, bufs: &[IoSlice<'_>]) -> Result<Option<usize>, SendError>;
    fn lane(&mut self, conn: ConnectionId) -> Option<Box<dyn Lane>>;
    fn check_message(&mut self, request: &Request, len: usize) -> Result<(), SendError>;
    fn message_defaults(&mut self, conn: ConnectionId) -> SendOptions;
    fn finish(&mut self, conn: ConnectionId) -> Result<(), SendError>;
    fn start_batch(&mut self, conn: ConnectionId);
    fn end_batch(&mut self, conn: ConnectionId);
    fn read(&mut self, conn: ConnectionId, buf: &mut [u8]) -> Result<Option<usize>, ConnectionError>;
    fn receive(&mut self, conn: ConnectionId, max: usize) -> Result<ReceiveOutcome, ConnectionError>;
    fn close(&mut self, conn: ConnectionId);
    fn abort(&mut self, conn: ConnectionId);
    fn abort_with(&mut self, conn: ConnectionId, code: u64);
    fn stop_receiving(&mut self, conn: ConnectionId, code: u64);
    fn reset_sending(&mut self, conn: ConnectionId, code: u64);
    fn release(&mut self, conn: ConnectionId);
    fn clone_connection(&mut self, conn: ConnectionId, direction: StreamDirection) -> Result<ConnectionId, EstablishmentError>;
    fn group(&mut self, conn: ConnectionId) -> Result<GroupId, ConnectionError>;
    fn release_group(&mut self, group: GroupId);
    fn grouped_connections(&mut self, group: GroupId) -> Vec<ConnectionId>;
    fn open_stream(&mut self, group: GroupId, direction: StreamDirection) -> Result<ConnectionId, EstablishmentError>;
    fn close_group(&mut self, group: GroupId);
    fn abort_group(&mut self, group: GroupId);
    fn close_session(&mut self, group: GroupId, code: u64, reason: &[u8]);
    fn session_error(&mut self, group: GroupId) -> Option<ConnectionError>;
    fn listener_udp_ports(&mut self, listener: ListenerId) -> Vec<u16>;
    fn group_stack(&mut self, group: GroupId) -> Option<Stack>;
    fn group_alpn(&mut self, group: GroupId) -> Option<Vec<u8>>;
    fn group_remote(&mut self, group: GroupId) -> Option<SocketAddr>;
    fn group_has_streams(&mut self, group: GroupId) -> bool;
    fn stream_number(&mut self, conn: ConnectionId) -> Option<u64>;
    fn get_property(&mut self, conn: ConnectionId, name: &str) -> Option<Value>;
    fn set_property(&mut self, conn: ConnectionId, name: &str, value: &Value) -> Result<(), SetPropertyError>;
    fn state(&mut self, conn: ConnectionId) -> ConnectionState;
    fn ending(&mut self, conn: ConnectionId) -> Option<Result<(), Box<ConnectionError>>>;
    fn stack(&mut self, conn: ConnectionId) -> Option<Stack>;
    fn request(&mut self, conn: ConnectionId) -> Option<Request>;
    fn check_bytes(&mut self, conn: ConnectionId) -> Result<(), ConnectionError>;
    fn remote_addr(&mut self, conn: ConnectionId) -> Option<SocketAddr>;
    fn local_addr(&mut self, conn: ConnectionId) -> Option<SocketAddr>;
    fn alpn(&mut self, conn: ConnectionId) -> Option<Vec<u8>>;
    fn security(&mut self, conn: ConnectionId) -> Option<String>;
    fn peer_certificates(&mut self, conn: ConnectionId) -> Vec<Vec<u8>>;
    fn candidates(&mut self, conn: ConnectionId) -> Vec<CandidateOutcome>;
    fn timeline(&mut self, conn: ConnectionId) -> Vec<TimelineEntry>;
    fn carrier(&mut self, conn: ConnectionId) -> Option<Carrier>;
    fn report_service(&mut self, carrier: &Carrier, outcome: ServiceOutcome);
    fn delivery(&mut self, conn: ConnectionId) -> Option<Delivery>;
    fn group_delivery(&mut self, group: GroupId) -> Option<Delivery>;
    fn connection_stats(&mut self, conn: ConnectionId) -> Option<ConnectionStats>;
    fn stats(&mut self) -> EngineStats;
    fn flush_caches(&mut self);
    fn ask_program_for_names(&mut self, ask: bool);
    fn has_name_questions(&mut self) -> bool;
    fn take_name_questions(&mut self) -> Vec<NameQuestion>;
    fn answer_name(&mut self, id: u64, answer: Result<&[IpAddr], NameFailure>, lifetime: Duration);
}
