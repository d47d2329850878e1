//! A client made by hand, chunk by chunk, and the server that it talks to.

use super::{PORTS, address, config};
use core::time::Duration;
use neater_sctp::{AssociationConfig, CloseReason, Endpoint, Event, LayerId, Route};
use neater_sctp_wire::chunk::{CookieEcho, Data, GapBlock, Init, Sack};
use neater_sctp_wire::{
    Array, Checksum, Chunk, CommonHeader, Emit, Packet as Wire, PacketBuilder, Parameter, Parameters, Ppid, Ssn,
    StreamId, Tag, Tsn,
};
use std::net::SocketAddr;

/// A client made by hand.
pub struct Raw {
    pub server: Endpoint,
    pub now: neater_base::Instant,
    pub tag: Tag,
    /// The server's first TSN.
    pub initial: Tsn,
    pub id: Option<neater_sctp::AssociationId>,
}

/// Its first TSN.
pub const FIRST: u32 = 1000;

impl Raw {
    pub fn listening(association: AssociationConfig) -> Self {
        Self::over(config(1, 1, association))
    }

    /// The same with a whole configuration.
    pub fn over(config: neater_sctp::Config) -> Self {
        let server = Endpoint::new(config, [3; 32], &[4; 32]);
        Self {
            server,
            now: neater_base::Instant::ZERO + Duration::from_secs(5),
            tag: Tag::ZERO,
            initial: Tsn(0),
            id: None,
        }
    }

    pub fn give(&mut self, port: u16, tag: Tag, chunk: &impl Emit) {
        let mut remote = address(0, 0);
        remote.set_port(port);
        self.give_from(remote, tag, chunk);
    }

    pub fn give_from(&mut self, remote: SocketAddr, tag: Tag, chunk: &impl Emit) {
        let mut buffer = [0; 1200];
        let header = CommonHeader { source_port: PORTS[0], destination_port: PORTS[1], tag };
        let mut packet = PacketBuilder::new(&mut buffer, header).unwrap();
        packet.push(chunk).unwrap();
        let len = packet.finish(Checksum::Crc32c);
        self.server.handle_packet(self.now, Route { layer: LayerId(0), remote }, false, &buffer[..len]);
    }

    pub fn take(&mut self) -> Vec<Vec<u8>> {
        let mut buffer = vec![0; 2000];
        core::iter::from_fn(|| self.server.poll_transmit(self.now, &mut buffer).map(|t| buffer[..t.len].to_vec()))
            .collect()
    }

    pub fn init(&mut self, port: u16) {
        self.init_with(port, Parameters::EMPTY);
    }

    pub fn init_with(&mut self, port: u16, parameters: Parameters<'_>) {
        let init = Init {
            tag: Tag(7),
            a_rwnd: 100_000,
            outbound_streams: 100,
            inbound_streams: 100,
            initial_tsn: Tsn(FIRST),
            parameters,
        };
        self.give(port, Tag::ZERO, &init);
    }

    /// Goes through the handshake.
    pub fn connected(association: AssociationConfig) -> Self {
        Self::connected_with(association, Parameters::EMPTY)
    }

    /// Goes through the handshake with these parameters in the INIT chunk.
    pub fn connected_with(association: AssociationConfig, parameters: Parameters<'_>) -> Self {
        let mut raw = Self::listening(association);
        raw.init_with(9899, parameters);
        let answer = raw.take().remove(0);
        let packet = Wire::parse(&answer).unwrap();
        let Chunk::InitAck(ack) = Chunk::decode(&packet.chunks().next().unwrap().unwrap()).unwrap() else { panic!() };
        let cookie = ack.0.parameters.iter().flatten().find_map(|p| match p {
            Parameter::StateCookie(c) => Some(c.0.to_vec()),
            _ => None,
        });
        (raw.tag, raw.initial) = (ack.0.tag, ack.0.initial_tsn);
        raw.give(9899, raw.tag, &CookieEcho { cookie: &cookie.unwrap() });
        let (id, event) = raw.server.poll_event().unwrap();
        assert_eq!(event, Event::Accepted);
        raw.id = Some(id);
        raw.take();
        raw
    }

    pub fn chunk(&mut self, chunk: &impl Emit) {
        self.give(9899, self.tag, chunk);
    }

    /// Several chunks in one packet.
    pub fn together(&mut self, chunks: &[Chunk<'_>]) {
        let bytes = super::packet([PORTS[0], PORTS[1]], self.tag, chunks);
        self.server.handle_packet(self.now, Route { layer: LayerId(0), remote: address(0, 0) }, false, &bytes);
    }

    /// Acknowledges the server's first `count` chunks with data, and of those behind them the
    /// blocks, counted from the same beginning: the first chunk is number 1.
    pub fn sack(&mut self, count: u32, a_rwnd: u32, blocks: &[(u16, u16)]) {
        let relative = |n: u16| n - count as u16;
        let gaps: Vec<GapBlock> =
            blocks.iter().map(|(a, b)| GapBlock { start: relative(*a), end: relative(*b) }).collect();
        let cumulative = Tsn(self.initial.0.wrapping_add(count).wrapping_sub(1));
        self.chunk(&Sack { cumulative, a_rwnd, gaps: Array::new(&gaps), duplicates: Array::EMPTY, packets: 0 });
    }

    /// Hands messages of so many bytes each to the server's stream 0; the first byte is the
    /// message's number.
    pub fn send(&mut self, lengths: &[usize]) {
        let id = self.id.unwrap();
        for (i, len) in lengths.iter().enumerate() {
            let options = neater_sctp::SendOptions::default();
            self.server.send(id, StreamId(0), vec![i as u8; *len].into(), options).unwrap();
        }
    }

    /// The numbers, from 1, of the chunks with data that are sent now.
    pub fn sent(&mut self) -> Vec<u32> {
        let packets = self.take();
        super::watch::datas(&packets).iter().map(|d| d.tsn.wrapping_sub(self.initial.0).wrapping_add(1)).collect()
    }

    pub fn path(&self) -> neater_sctp::PathStats {
        self.server.paths(self.id.unwrap())[0]
    }

    pub fn stats(&self) -> neater_sctp::AssociationStats {
        self.server.association_stats(self.id.unwrap()).unwrap()
    }

    /// Everything that can be read.
    pub fn read(&mut self) -> Vec<neater_sctp::Message> {
        let id = self.id.unwrap();
        core::iter::from_fn(|| self.server.receive(id)).collect()
    }

    /// Gives a packet with bytes in place of chunks.
    pub fn bytes(&mut self, chunks: &[u8]) {
        let header = CommonHeader { source_port: PORTS[0], destination_port: PORTS[1], tag: self.tag };
        let mut buffer = [0; 12];
        let _ = PacketBuilder::new(&mut buffer, header).unwrap().finish(Checksum::Zero);
        let mut bytes = [&buffer[..], chunks].concat();
        super::sum(&mut bytes);
        self.server.handle_packet(self.now, Route { layer: LayerId(0), remote: address(0, 0) }, false, &bytes);
    }

    /// Time goes by.
    pub fn wait(&mut self, time: Duration) -> Vec<Vec<u8>> {
        let end = self.now + time;
        let mut sent = self.take();
        while let Some(next) = self.server.next_timeout().filter(|n| *n <= end) {
            self.now = self.now.max(next);
            self.server.handle_timeout(self.now);
            sent.extend(self.take());
        }
        self.now = end;
        sent
    }

    /// What has happened since.
    pub fn events(&mut self) -> Vec<Event> {
        core::iter::from_fn(|| self.server.poll_event()).map(|(_, e)| e).collect()
    }

    pub fn closed(&mut self) -> Option<CloseReason> {
        core::iter::from_fn(|| self.server.poll_event()).find_map(|(_, e)| match e {
            Event::Closed(reason) => Some(reason),
            _ => None,
        })
    }
}

pub fn data(tsn: u32, beginning: bool, ending: bool, payload: &[u8]) -> Data<'_> {
    Data { beginning, ending, payload, ..Data::whole(Tsn(tsn), StreamId(1), Ssn(0), Ppid(0)) }
}
