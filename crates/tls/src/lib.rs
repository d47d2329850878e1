//! TLS over a byte stream: an adapter over rustls
