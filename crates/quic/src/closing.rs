//! Congestion control that lets a connection end.
//!
//! *Responsible for* a CONNECTION_CLOSE being sent at once, although data waits for room in the congestion window: it is not
//! subject to congestion control (RFC 9002 section 7), but quinn-proto 0.11 holds it back with the data, and since a closing
//! connection takes no acknowledgements, for ever. *Not responsible for* anything else: that is quinn-proto's controller's.

use core::sync::atomic::{AtomicBool, Ordering};
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use std::any::Any;
use std::sync::Arc;

#[allow(clippy::disallowed_types, reason = "quinn-proto's trait speaks Instant; the values come from our clock")]
type Time = std::time::Instant;

/// Larger than whatever is in flight, and so large that quinn-proto does not pace either.
const NO_LIMIT: u64 = 1 << 40;

/// Makes quinn-proto's default controllers, with a way out.
#[derive(Debug, Default)]
pub(crate) struct Controllers(Arc<CubicConfig>);

impl ControllerFactory for Controllers {
    fn build(self: Arc<Self>, now: Time, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Closable { inner: self.0.clone().build(now, current_mtu), closing: Arc::default(), acknowledged: 0 })
    }
}

/// The controller of one path.
struct Closable {
    inner: Box<dyn Controller>,
    closing: Arc<AtomicBool>,
    acknowledged: u64,
}

/// The controller of the present path.
fn controller(connection: &quinn_proto::Connection) -> Option<Box<Closable>> {
    connection.congestion_state().clone_box().into_any().downcast::<Closable>().ok()
}

/// Nothing that is sent from now on waits for room.
pub(crate) fn let_go(connection: &quinn_proto::Connection) {
    if let Some(controller) = controller(connection) {
        controller.closing.store(true, Ordering::Relaxed);
    }
}

/// Bytes that were acknowledged on the present path.
pub(crate) fn acknowledged(connection: &quinn_proto::Connection) -> u64 {
    controller(connection).map_or(0, |c| c.acknowledged)
}

impl Controller for Closable {
    fn on_sent(&mut self, now: Time, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Time, sent: Time, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.acknowledged += bytes;
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Time, in_flight: u64, app_limited: bool, largest_packet_num_acked: Option<u64>) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(&mut self, now: Time, sent: Time, is_persistent_congestion: bool, lost_bytes: u64) {
        self.inner.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        if self.closing.load(Ordering::Relaxed) { NO_LIMIT } else { self.inner.window() }
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { inner: self.inner.clone_box(), closing: self.closing.clone(), acknowledged: self.acknowledged })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
