//! The `neater` command.
fn main() {}
