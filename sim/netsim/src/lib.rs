//! Net in virtual time
