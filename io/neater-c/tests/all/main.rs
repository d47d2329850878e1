//! `neater.h` from outside: the header, the library, programs in C, and the scenarios that all
//! front doors share.

#![allow(unsafe_code, reason = "layouts are measured, and functions called, as C does")]

mod asked;
mod border;
mod header;
mod installed;
mod layout;
mod parity;
mod programs;
mod tools;
