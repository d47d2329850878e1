//! `TCP_INFO`.

use super::Result;
use super::errno::{check, last};
use crate::sys::Fd;
use core::time::Duration;
use neater_base::net::{ErrorKind, NetError, StreamInfo};

/// The kernel's `struct tcp_info` up to the delivery rate (`linux/tcp.h`). It only ever grows at
/// its end, and the kernel returns how much of it there is.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct TcpInfo {
    pub(super) state: u8,
    small: [u8; 7],
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last: [u32; 4],
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    pub(super) notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
}

// The offsets are the kernel's interface.
const _: () = assert!(core::mem::offset_of!(TcpInfo, total_retrans) == 100);
const _: () = assert!(core::mem::offset_of!(TcpInfo, notsent_bytes) == 144);
const _: () = assert!(core::mem::offset_of!(TcpInfo, delivery_rate) == 160);

/// `TCP_CLOSE`, `TCP_LISTEN`, `TCP_SYN_SENT`, `TCP_SYN_RECV`: not (or no longer) connected.
pub(super) const UNCONNECTED: [u8; 4] = [7, 10, 2, 3];

/// What the kernel knows of a connection.
///
/// # Errors
/// `NotConnected` when it is not connected.
pub(crate) fn stream_info(fd: Fd) -> Result<StreamInfo> {
    let mut info = TcpInfo::default();
    let mut len = size_of::<TcpInfo>() as libc::socklen_t;
    // SAFETY: `info` is writable for `len` bytes, and any bytes are a valid `TcpInfo`.
    if unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &mut len) } < 0 {
        return Err(last());
    }
    if len == 0 || UNCONNECTED.contains(&info.state) {
        return Err(NetError::new(ErrorKind::NotConnected));
    }
    Ok(summarise(&info, len as usize, || unacknowledged(fd)))
}

/// `len` bytes of `info` are real.
pub(super) fn summarise(info: &TcpInfo, len: usize, unacknowledged: impl FnOnce() -> Option<u64>) -> StreamInfo {
    /// The field, if the kernel filled it.
    macro_rules! field {
        ($name:ident) => {
            (len >= core::mem::offset_of!(TcpInfo, $name) + size_of_val(&info.$name)).then_some(info.$name)
        };
    }
    let mss = field!(snd_mss).map(u64::from);
    let micros = |us: u32| Duration::from_micros(u64::from(us));
    StreamInfo {
        // Zero means that there has been no sample.
        rtt: field!(rtt).filter(|us| *us > 0).map(micros),
        rtt_var: field!(rttvar).filter(|_| info.rtt > 0).map(micros),
        congestion_window: field!(snd_cwnd).zip(mss).map(|(segments, mss)| u64::from(segments) * mss),
        retransmits: field!(total_retrans).map(u64::from),
        // What the socket holds minus what it has not yet sent; from an older kernel, whole
        // segments.
        in_flight: match field!(notsent_bytes) {
            Some(unsent) => unacknowledged().map(|held| held.saturating_sub(u64::from(unsent))),
            None => field!(unacked).zip(mss).map(|(segments, mss)| u64::from(segments) * mss),
        },
        unsent: field!(notsent_bytes).map(u64::from),
        path_mtu: field!(pmtu).filter(|mtu| *mtu > 0),
        delivery_rate: field!(delivery_rate).filter(|rate| *rate > 0),
        acknowledged: field!(bytes_acked),
        received: field!(bytes_received),
        // `tcpi_last_ack_recv`, in milliseconds.
        last_heard: field!(last).map(|[.., heard]| Duration::from_millis(u64::from(heard))),
        // `tcpi_retransmits` and `tcpi_probes`, which an acknowledgement sets to 0.
        unanswered: field!(small).map(|[_, retransmits, probes, ..]| u32::from(retransmits) + u32::from(probes)),
    }
}

/// Bytes written and not acknowledged, sent or not (`SIOCOUTQ`, which is `TIOCOUTQ`).
fn unacknowledged(fd: Fd) -> Option<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: this request writes one `int`.
    check(unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &mut bytes) }).ok()?;
    u64::try_from(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_an_old_kernel_does_not_know_are_absent() {
        let info =
            TcpInfo { rtt: 1000, snd_mss: 1448, unacked: 2, snd_cwnd: 10, delivery_rate: 5, ..Default::default() };
        let info = TcpInfo { last: [1, 2, 3, 4], bytes_acked: 77, small: [9, 2, 1, 9, 9, 9, 9], ..info };
        let old = summarise(&info, 104, || panic!("not asked"));
        assert_eq!(old.rtt, Some(Duration::from_millis(1)));
        assert_eq!((old.delivery_rate, old.in_flight, old.acknowledged), (None, Some(2896), None));
        assert_eq!((old.last_heard, old.unanswered), (Some(Duration::from_millis(4)), Some(3)));
        let new = summarise(&TcpInfo { notsent_bytes: 70, ..info }, size_of::<TcpInfo>(), || Some(100));
        assert_eq!((new.delivery_rate, new.in_flight), (Some(5), Some(30)));
        assert_eq!((new.congestion_window, new.acknowledged), (Some(14_480), Some(77)));
        assert_eq!(summarise(&info, 8, || None), StreamInfo { unanswered: Some(3), ..StreamInfo::default() });
    }
}
