//! B3: what is sent for what is delivered, in the sweeps of B1 and B2, whose runs it shares.

use super::sweep::Measured;
use super::{Stack, b1, b2};
use crate::experiments::{Lab, Outcome};
use crate::measure::Result;
use crate::plot::Axis;

pub(crate) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    for (grid, what) in [(b1::grid(lab), "one file of 10 MB"), (b2::grid(lab), "ten files of 100 kB")] {
        let m: Measured = grid.measure(lab)?;
        m.figures("B3", "overhead_bytes_ratio", "1", &mut out);
        m.figures("B3", "overhead_packets_per_mb", "packets", &mut out);
        m.figures("B3", "back_bytes_ratio", "1", &mut out);
        m.agreement("B3", "overhead_bytes_ratio", Stack::Quic, Stack::SimulatedQuic, &mut out);
        if m.grid.stacks.contains(&Stack::SimulatedTcp) {
            m.agreement("B3", "overhead_bytes_ratio", Stack::Tcp, Stack::SimulatedTcp, &mut out);
        }
        let mut part = Outcome::default();
        for (metric, axis) in [
            ("overhead_bytes_ratio", Axis::close("bytes sent per byte delivered", "")),
            ("overhead_packets_per_mb", Axis::close("packets sent per megabyte delivered", "")),
        ] {
            let caption = format!(
                "IP packets that the server sends for {what}, counted at its link, everything included: handshake, \
                 headers, retransmissions."
            );
            m.draw(&mut part, metric, &axis, &caption, |_| Vec::new());
        }
        for mut d in part.drawings {
            d.name = format!("{}-{}", m.grid.id.to_lowercase(), d.name);
            d.title = d.title.replacen(m.grid.id, "B3", 1);
            out.drawings.push(d);
        }
        m.remarks(&mut out);
    }
    out.remarks.push("The runs are those of B1 and B2; their raw data is there.".to_owned());
    Ok(out)
}
