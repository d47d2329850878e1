//! QUIC: an adapter over quinn-proto
