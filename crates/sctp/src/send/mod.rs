//! Sending data: the messages that wait. What has been sent is in [`crate::recovery`].

mod message;
mod queues;

pub(crate) use message::{Pending, Piece};
pub use message::{Reliability, SendOptions};
pub(crate) use queues::Queues;
