//! Before an association is up: what each side offers, and the cookie that holds the responder's
//! state.

mod auth;
mod cookie;
mod offer;

pub(crate) use auth::{KeyVector, RANDOM_LEN, algorithm};
pub(crate) use cookie::{Cookie, CookieError, Keys};
pub(crate) use offer::{MAX_ADDRESSES, Offer, Refusal, write_init};
