//! TCP, and TLS over it: how connections on sockets of their own begin early and end.

pub(crate) mod early;
pub(crate) mod linger;
