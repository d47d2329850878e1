//! Programs to read, and the demonstration: `quickstart` (the README's twenty lines), `echo` (its other end) and `demo`.
//!
//! *Responsible for* showing how the public API is used. *Not responsible for* anything that another crate needs.
//! *Invariants*: every program here is run by a test, and the README shows `quickstart` word for word.
