//! A run as text.

use crate::build::Network;
use crate::trace::{PacketKind, TraceEvent, TraceVerdict};
use core::fmt::Write;
use std::collections::BTreeMap;

impl Network {
    /// What [`crate::World::take_trace`] has returned, as CSV with a line of headings: one packet at one place on a line,
    /// times in seconds from the start of the run. Equal runs give equal bytes.
    #[must_use]
    pub fn trace_csv(&self, events: &[TraceEvent]) -> String {
        let names = self.scenario().links.iter().zip(self.links());
        let names: BTreeMap<_, _> = names
            .flat_map(|(l, pair)| [(pair[0], format!("{}.forward", l.name)), (pair[1], format!("{}.backward", l.name))])
            .collect();
        let mut out = String::from("time_s,place,from,to,protocol,size,fate\n");
        for e in events {
            let at = e.time - self.start();
            let place = e.link.and_then(|l| names.get(&l)).map_or("", String::as_str);
            let protocol = match e.kind {
                PacketKind::Udp => "udp",
                PacketKind::UdpLite { .. } => "udp-lite",
                PacketKind::Tcp { .. } => "tcp",
                PacketKind::Icmp { .. } => "icmp",
            };
            let _ = write!(
                out,
                "{}.{:09},{place},{},{},{protocol},{},",
                at.as_secs(),
                at.subsec_nanos(),
                e.from,
                e.to,
                e.size
            );
            let _ = match e.verdict {
                TraceVerdict::Crossed { entered } => {
                    let entered = entered - self.start();
                    writeln!(out, "crossed since {}.{:09}", entered.as_secs(), entered.subsec_nanos())
                }
                TraceVerdict::Dropped(reason) => writeln!(out, "dropped {}", format!("{reason:?}").replace(',', ";")),
                TraceVerdict::Delivered => writeln!(out, "delivered"),
                TraceVerdict::Expired => writeln!(out, "expired"),
                TraceVerdict::Corrupt => writeln!(out, "corrupt"),
                TraceVerdict::Unreachable => writeln!(out, "unreachable"),
            };
        }
        out
    }
}
