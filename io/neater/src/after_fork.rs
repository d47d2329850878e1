//! What a child of `fork` finds behind a lock that is never released: another thread of the
//! parent's held it at that moment, and there is no such thread here.
//!
//! *Responsible for* an engine in that place, so that every call is answered as it is on any
//! inherited engine: it fails. *Not responsible for* locks that are free, behind which the copy of
//! the parent's engine returns the same error itself.
//!
//! *Invariant*: nothing here looks at the parent's engine, which may be half done.

use crate::shared::AnyEngine;
use neater_base::net::{
    ErrorKind, IcmpError, Interface, NameConfig, Net, NetError, NetEvent, RecvBatch, Sock, SocketOption, SocketOptions,
    StreamInfo, Token, Transmit,
};
use neater_base::{Instant, WallTime};
use neater_engine::EngineConfig;
use neater_tls::Crypto;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

/// A network of another process: it can do nothing.
struct ForkedNet(NameConfig);

/// An engine that refuses everything, because it belongs to another process.
pub(crate) fn engine() -> AnyEngine {
    // It makes no connection, and needs no random numbers.
    AnyEngine::new(Box::new(ForkedNet(NameConfig::default())), EngineConfig::new([0; 32], Crypto::system()))
}

const FORKED: NetError = NetError::new(ErrorKind::Forked);

impl Net for ForkedNet {
    fn now(&self) -> Instant {
        Instant::ZERO
    }
    fn wall(&self) -> WallTime {
        WallTime::default()
    }
    fn connect(&mut self, _: Token, _: SocketAddr, _: &SocketOptions) -> Result<Sock, NetError> {
        Err(FORKED)
    }
    fn connect_result(&mut self, _: Sock) -> Result<(), NetError> {
        Err(FORKED)
    }
    fn listen(&mut self, _: Token, _: SocketAddr, _: &SocketOptions) -> Result<Sock, NetError> {
        Err(FORKED)
    }
    fn accept(&mut self, _: Sock, _: Token) -> Result<(Sock, SocketAddr), NetError> {
        Err(FORKED)
    }
    fn read(&mut self, _: Sock, _: &mut [u8]) -> Result<usize, NetError> {
        Err(FORKED)
    }
    fn write(&mut self, _: Sock, _: &[IoSlice<'_>]) -> Result<usize, NetError> {
        Err(FORKED)
    }
    fn shutdown_write(&mut self, _: Sock) -> Result<(), NetError> {
        Err(FORKED)
    }
    fn close(&mut self, _: Sock) {}
    fn abort(&mut self, _: Sock) {}
    fn stream_info(&self, _: Sock) -> Result<StreamInfo, NetError> {
        Err(FORKED)
    }
    fn take_error(&mut self, _: Sock) -> Option<NetError> {
        Some(FORKED)
    }
    fn udp(&mut self, _: Token, _: SocketAddr, _: &SocketOptions) -> Result<Sock, NetError> {
        Err(FORKED)
    }
    fn udp_connect(&mut self, _: Sock, _: SocketAddr) -> Result<(), NetError> {
        Err(FORKED)
    }
    fn send(&mut self, _: Sock, _: &Transmit<'_>) -> Result<(), NetError> {
        Err(FORKED)
    }
    fn recv(&mut self, _: Sock, _: &mut RecvBatch) -> Result<usize, NetError> {
        Err(FORKED)
    }
    fn max_segments(&self, _: Sock) -> usize {
        1
    }
    fn take_icmp_error(&mut self, _: Sock) -> Option<IcmpError> {
        None
    }
    fn local_addr(&self, _: Sock) -> Result<SocketAddr, NetError> {
        Err(FORKED)
    }
    fn set(&mut self, _: Sock, _: SocketOption) -> Result<(), NetError> {
        Err(FORKED)
    }
    fn poll(&mut self, _: &mut Vec<NetEvent>) -> bool {
        false
    }
    fn arm(&mut self, _: Option<Instant>, _: bool) {}
    fn interfaces(&self) -> &[Interface] {
        &[]
    }
    fn source_for(&mut self, _: IpAddr) -> Option<IpAddr> {
        None
    }
    fn name_config(&self) -> &NameConfig {
        &self.0
    }
    fn forked(&self) -> bool {
        true
    }
}
