//! Programs to read (the gallery in `README.md`), `quickstart` (the README's twenty lines), `echo` (its other end) and the
//! demonstration, `demo`.
//!
//! *Responsible for* showing how the public API is used. *Not responsible for* anything that another crate needs.
//! *Invariants*: every program here is run by a test, and the README shows `quickstart` word for word.
