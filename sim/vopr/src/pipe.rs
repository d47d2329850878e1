//! One side of a flow: a connection, what has been said and heard on it, and the book that both are written into.
//!
//! *Responsible for* moving bytes over either of the public views of a connection, with futures that may be given up. *Not
//! for* what is to be said (`talk`).

use crate::cancel::Cancel;
use crate::content::{self, Way};
use crate::ledger::{Fate, Ledger};
use bytes::Bytes;
use core::future::poll_fn;
use neater::{ByteStream, Connection};
use neater_testkit::Clock;
use std::cell::Cell;
use std::io::IoSlice;

/// Why a side goes no further.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stop {
    /// Its plan says so, and it has done it.
    GaveUp,
    /// An error.
    Failed(String),
}

fn failed(e: impl core::fmt::Display) -> Stop {
    Stop::Failed(e.to_string())
}

enum View {
    Messages(Connection),
    Bytes(ByteStream),
}

/// A side of a flow. Dropping it closes the connection, as dropping a connection does.
pub(crate) struct Pipe {
    view: View,
    pub(crate) flow: u32,
    /// The way that this side speaks.
    pub(crate) speaks: Way,
    /// Whose bytes it hears: in an echo, its own.
    pub(crate) hears: Way,
    pub(crate) framed: bool,
    said: Cell<u64>,
    heard: Cell<u64>,
    /// Nothing more can be said in order.
    mute: Cell<bool>,
    pub(crate) ledger: Ledger,
    pub(crate) clock: Clock,
    pub(crate) cancel: Cancel,
}

impl Drop for Pipe {
    /// What was said is still delivered, and its end after it.
    fn drop(&mut self) {
        self.note_end();
    }
}

impl Pipe {
    #[allow(clippy::too_many_arguments, reason = "it is made in two places")]
    pub(crate) fn new(
        connection: Connection,
        bytes: bool,
        framed: bool,
        flow: u32,
        speaks: Way,
        ledger: Ledger,
        clock: Clock,
        cancel: Cancel,
    ) -> Result<Self, Stop> {
        let view = if bytes {
            View::Bytes(connection.into_bytes().map_err(|(_, e)| failed(e))?)
        } else {
            View::Messages(connection)
        };
        let hears = if speaks == Way::Up { Way::Down } else { Way::Up };
        let (said, heard, mute) = Default::default();
        Ok(Self { view, flow, speaks, hears, framed, said, heard, mute, ledger, clock, cancel })
    }

    fn other(&self) -> Way {
        if self.speaks == Way::Up { Way::Down } else { Way::Up }
    }

    pub(crate) fn connection(&self) -> &Connection {
        match &self.view {
            View::Messages(c) => c,
            View::Bytes(b) => b.connection(),
        }
    }

    pub(crate) fn said(&self) -> u64 {
        self.said.get()
    }

    pub(crate) fn heard(&self) -> u64 {
        self.heard.get()
    }

    /// Says what this side is at, for those who ask why nothing moves.
    pub(crate) fn at(&self, what: &'static str) {
        self.ledger.set_fate(self.clock.now(), self.flow, self.speaks as usize, Fate::At(what));
    }

    fn note_end(&self) {
        if !self.mute.replace(true) {
            self.ledger.finish(self.flow, self.speaks, self.said.get());
        }
    }

    /// Sends the head, which belongs to no direction's content.
    pub(crate) async fn say_head(&self) -> Result<(), Stop> {
        let head = content::head(self.flow);
        match &self.view {
            View::Messages(c) => {
                let head = Bytes::copy_from_slice(&head);
                self.cancel.patiently(|| c.send(head.clone())).await.map_err(failed)?;
            }
            View::Bytes(b) => {
                let mut done = 0;
                while done < head.len() {
                    let rest = &head[done..];
                    done += self
                        .cancel
                        .patiently(|| poll_fn(|cx| b.poll_write_bytes(cx, &[IoSlice::new(rest)])))
                        .await
                        .map_err(failed)?;
                }
            }
        }
        Ok(())
    }

    /// Says the next `len` bytes, as one message if messages are framed.
    pub(crate) async fn say(&self, content: Way, len: usize) -> Result<(), Stop> {
        let data = Bytes::from(content::bytes(self.flow, content, self.said(), len));
        self.ledger.offer(self.flow, self.speaks, self.said() + len as u64);
        match &self.view {
            View::Messages(c) => {
                self.cancel.patiently(|| c.send(data.clone())).await.map_err(failed)?;
                self.advance(len);
            }
            View::Bytes(b) => {
                let mut rest = &data[..];
                while !rest.is_empty() {
                    let (first, second) = rest.split_at(rest.len() / 2);
                    let both = [IoSlice::new(first), IoSlice::new(second)];
                    let write = || poll_fn(|cx| b.poll_write_bytes(cx, &both));
                    let n = self.cancel.patiently(write).await.map_err(failed)?;
                    self.advance(n);
                    rest = &rest[n..];
                }
            }
        }
        Ok(())
    }

    fn advance(&self, n: usize) {
        self.said.set(self.said.get() + n as u64);
        self.ledger.accept(self.clock.now(), self.flow, self.speaks, self.said.get());
    }

    /// Hears what comes next; `None` is the end. It is checked already.
    pub(crate) async fn hear(&self) -> Result<Option<usize>, Stop> {
        let data = match &self.view {
            View::Messages(c) => match self.cancel.patiently(|| c.receive()).await.map_err(failed)? {
                Some(m) => m.data,
                None => return Ok(self.hear_end()),
            },
            View::Bytes(b) => {
                let mut buf = [0; 4096];
                let n = poll_fn(|cx| b.poll_read_bytes(cx, &mut buf)).await.map_err(failed)?;
                if n == 0 {
                    return Ok(self.hear_end());
                }
                Bytes::copy_from_slice(&buf[..n])
            }
        };
        self.check(&data);
        Ok(Some(data.len()))
    }

    /// Writes into the book what came, and that it was right.
    pub(crate) fn check(&self, data: &[u8]) {
        let at = self.heard.get();
        self.heard.set(at + data.len() as u64);
        self.ledger.hear(self.clock.now(), self.flow, self.other(), self.hears, at, data);
    }

    fn hear_end(&self) -> Option<usize> {
        self.ledger.hear_end(self.clock.now(), self.flow, self.other(), self.heard.get());
        None
    }

    /// Ends this side's direction.
    pub(crate) async fn finish(&self) -> Result<(), Stop> {
        self.note_end();
        match &self.view {
            View::Messages(c) => c.finish().map_err(failed),
            View::Bytes(b) => poll_fn(|cx| b.poll_end(cx)).await.map_err(failed),
        }
    }

    /// Closes, and notes that the peer has everything if that is what comes of it.
    pub(crate) async fn close(&self) -> Result<(), Stop> {
        self.note_end();
        self.connection().close().await.map_err(failed)?;
        self.ledger.acknowledge(self.flow, self.speaks);
        Ok(())
    }

    pub(crate) fn abort(&self) {
        self.mute.set(true);
        self.connection().abort();
    }
}
