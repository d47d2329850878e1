//! Worlds, pairs and an executor in virtual time
