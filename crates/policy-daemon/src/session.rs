//! One connection on a Unix socket: bytes in, bytes out.
//!
//! The first byte decides the form: [`wire::MARK`] the compact one, in which a connection carries
//! any number of frames; anything else NEAT's, in which it carries one JSON document that the
//! client ends by closing its half.
//!
//! NEAT's C library takes a connection that closes without an answer as "decide yourself", and
//! waits for ever for one that answers with an empty list (`docs/policy.md`), so that a document on
//! the request socket that cannot be answered closes the connection; the reason is reported to the
//! administrator of the daemon. The sockets for the PIB and CIB return the reason to the client,
//! which NEAT's library does not wait for.

use super::document::placed;
use super::metadata::{MAX_LINE, metadata_node};
use crate::store::Daemon;
use neater_base::WallTime;
use neater_policy::manager::{Decision, Requests, to_text, told};
use neater_policy::protocol::wire::{self, Frame, Kind, Malformed};
use neater_policy::protocol::{self, Door};
use neater_property::neat::{MAX_JSON, NeatArray};
use serde_json::json;
use std::collections::BTreeMap;

/// How many bytes of answers may wait before no more questions are read.
const MAX_WAITING: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Unknown,
    Text,
    Compact,
    Lines,
}

/// A connection.
#[derive(Debug)]
pub struct Session {
    door: Door,
    user: u32,
    form: Form,
    input: Vec<u8>,
    output: Vec<u8>,
    closed: bool,
    refusals: Vec<String>,
    /// Lines that came.
    lines: u64,
    /// How many documents, frames and lines were taken.
    taken: u64,
    /// The tables that are being sent.
    fetching: Option<super::tables::View>,
    /// The paths whose facts were received here, and when these expire.
    ways: BTreeMap<(String, String), WallTime>,
}

impl Session {
    /// A connection to one of the sockets by a user.
    #[must_use]
    pub const fn new(door: Door, user: u32) -> Self {
        Self {
            door,
            user,
            form: Form::Unknown,
            input: Vec::new(),
            output: Vec::new(),
            closed: false,
            refusals: Vec::new(),
            lines: 0,
            taken: 0,
            fetching: None,
            ways: BTreeMap::new(),
        }
    }

    /// Takes bytes that came.
    pub fn receive(&mut self, bytes: &[u8], daemon: &mut Daemon, now: WallTime) {
        if self.closed {
            return;
        }
        if let (Form::Unknown, Some(first)) = (self.form, bytes.first()) {
            self.form = match *first {
                _ if self.door == Door::Metadata => Form::Lines,
                wire::MARK => Form::Compact,
                _ => Form::Text,
            };
        }
        self.input.extend(bytes);
        match self.form {
            Form::Compact => self.frames(daemon, now),
            Form::Lines => self.lines(daemon, now),
            _ if self.input.len() > MAX_JSON => {
                self.refuse(daemon, format!("a document has at most {MAX_JSON} bytes"));
                self.close();
            }
            _ => {}
        }
    }

    /// The client sends no more.
    pub fn end(&mut self, daemon: &mut Daemon, now: WallTime) {
        if !self.closed && self.form == Form::Text {
            let input = std::mem::take(&mut self.input);
            match core::str::from_utf8(&input) {
                Ok(text) => self.document(text, daemon, now),
                Err(e) => {
                    let why = format!("byte {} of the document is not UTF-8", e.valid_up_to());
                    self.refuse(daemon, why);
                }
            }
        } else if !self.closed && self.form == Form::Lines && !self.input.is_empty() {
            // The last line may lack its end.
            self.input.push(b'\n');
            self.lines(daemon, now);
        } else if !self.closed && self.form == Form::Unknown && matches!(self.door, Door::Pib | Door::Cib) {
            // A client that only checks whether the daemon is alive does not read it, which is
            // harmless.
            self.output.extend(format!("{}\n", json!({"error": "no document came"})).into_bytes());
        } else if !self.closed && !self.input.is_empty() {
            self.refuse(daemon, "the connection ended within a frame".into());
        }
        self.close();
    }

    /// What is to be sent.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Whether there is anything to be sent.
    #[must_use]
    pub const fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Whether there is so much to be sent that nothing more should be read before.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.output.len() > MAX_WAITING
    }

    /// Whether the connection is to be closed when everything is sent.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether everything that was begun is done, where more may follow: such a connection may
    /// wait.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.form, Form::Compact | Form::Lines) && self.input.is_empty()
    }

    /// How many documents, frames and lines were taken: a connection on which this grows is not
    /// stuck.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// About how many bytes are held for this connection.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.input.capacity() + self.output.capacity()
    }

    /// What was done could not be written to a file: a client that waits for an answer is notified.
    pub fn unsaved(&mut self, why: &str) {
        if self.form == Form::Text && self.door != Door::Requests {
            self.output.extend(format!("{}\n", json!({"error": why})).into_bytes());
        }
    }

    /// Why the client was refused something, for the administrator of the daemon.
    pub fn take_refusals(&mut self) -> Vec<String> {
        std::mem::take(&mut self.refusals)
    }

    fn close(&mut self) {
        self.closed = true;
        self.input = Vec::new();
    }

    fn refuse(&mut self, daemon: &mut Daemon, why: String) {
        daemon.counters.refused(self.door);
        if self.form == Form::Lines || self.form == Form::Text && self.door != Door::Requests {
            self.output.extend(format!("{}\n", json!({"error": why})).into_bytes());
        }
        if self.refusals.len() < 16 {
            self.refusals.push(why);
        }
    }

    fn document(&mut self, text: &str, daemon: &mut Daemon, now: WallTime) {
        daemon.counters.taken(self.door);
        let says_nothing = text.chars().filter(|c| !c.is_whitespace()).eq("[]".chars());
        let done = match self.door {
            Door::Requests => self.requests(text, daemon, now),
            _ if says_nothing => Err("the document is an empty list, which has no content".to_owned()),
            Door::Pib => daemon.put_rules_of(text, None, self.user, now).map(drop).map_err(|e| e.to_string()),
            Door::Cib | Door::Metadata => {
                daemon.put_nodes_of(text, None, self.user, now).map(drop).map_err(|e| e.to_string())
            }
        };
        if let Err(why) = done {
            self.refuse(daemon, why);
        }
    }

    fn requests(&mut self, text: &str, daemon: &mut Daemon, now: WallTime) -> Result<(), String> {
        let requests = Requests::from_text(text).map_err(|e| placed(text, &e))?;
        let decision = daemon.decide(self.user, &requests, now).map_err(|e| e.to_string())?;
        self.output.extend(answer(&requests, &decision).into_bytes());
        self.output.push(b'\n');
        Ok(())
    }

    fn frames(&mut self, daemon: &mut Daemon, now: WallTime) {
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while !self.closed && !self.is_congested() {
            match Frame::first(rest) {
                Ok(Some(frame)) => {
                    rest = &rest[frame.len()..];
                    self.taken += 1;
                    daemon.counters.taken(self.door);
                    if let Err(why) = self.frame(frame, daemon, now) {
                        wire::refused(&mut self.output, frame.id, &why);
                        self.refuse(daemon, why);
                    }
                }
                Ok(None) => break,
                Err(e) => {
                    wire::refused(&mut self.output, 0, &e.to_string());
                    self.refuse(daemon, e.to_string());
                    self.close();
                }
            }
        }
        if !self.closed {
            // The memory is used again where everything was read.
            let behind = input.len() - rest.len();
            self.input = input;
            self.input.drain(..behind);
        }
    }

    /// Takes the lines that are complete.
    fn lines(&mut self, daemon: &mut Daemon, now: WallTime) {
        let mut input = std::mem::take(&mut self.input);
        let mut behind = 0;
        while let Some(length) = input[behind..].iter().position(|b| *b == b'\n') {
            let line = &input[behind..behind + length];
            behind += length + 1;
            self.lines += 1;
            self.taken += 1;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            daemon.counters.taken(self.door);
            let told = core::str::from_utf8(line)
                .map_err(|_| "the line is not UTF-8".to_owned())
                .and_then(|line| metadata_node(line, now))
                .and_then(|node| daemon.put_nodes(self.user, vec![node], now).map_err(|e| e.to_string()));
            if let Err(why) = told {
                self.refuse(daemon, format!("line {}: {why}", self.lines));
            }
        }
        input.drain(..behind);
        if input.len() > MAX_LINE {
            self.refuse(daemon, format!("line {}: a line has at most {MAX_LINE} bytes", self.lines + 1));
            return self.close();
        }
        self.input = input;
    }

    /// Goes on with what was left because too much was to be sent.
    pub fn proceed(&mut self, daemon: &mut Daemon, now: WallTime) {
        if !self.closed && self.form == Form::Compact && !self.input.is_empty() {
            self.frames(daemon, now);
        }
    }

    fn frame(&mut self, frame: Frame<'_>, daemon: &mut Daemon, now: WallTime) -> Result<(), String> {
        let malformed = |e: Malformed| e.to_string();
        match (self.door, frame.kind) {
            (Door::Requests, Kind::Decide) => {
                let requests = wire::requests(frame.payload).map_err(malformed)?;
                if requests.pre_resolve {
                    return Err("pre-resolve belongs to NEAT's library and its JSON".into());
                }
                let decision = daemon.decide(self.user, &requests, now).map_err(|e| e.to_string())?;
                wire::frame(&mut self.output, Kind::Decision, frame.id, |out| wire::put_decision(out, &decision));
            }
            (Door::Requests, Kind::Tables) => {
                let mut page = Vec::new();
                let fetching = &mut self.fetching;
                daemon.put_page(self.user, fetching, frame.payload, &mut page, now).map_err(malformed)?;
                wire::frame(&mut self.output, Kind::Page, frame.id, |out| out.extend(page));
            }
            (Door::Cib, Kind::Node) => {
                let node = wire::node(frame.payload, now).map_err(malformed)?;
                daemon.put_nodes(self.user, vec![node], now).map_err(|e| e.to_string())?;
                wire::frame(&mut self.output, Kind::Done, frame.id, |_| ());
            }
            (Door::Cib, Kind::Seen) => {
                let facts = protocol::told(frame.payload, now).map_err(malformed)?;
                daemon.learn(self.user, facts, &mut self.ways, now)?;
                wire::frame(&mut self.output, Kind::Done, frame.id, |_| ());
            }
            (Door::Requests, Kind::Explain) => {
                let (how, document) = frame.payload.split_first().ok_or_else(|| malformed(Malformed::Short))?;
                let text = core::str::from_utf8(document).map_err(|_| malformed(Malformed::Value))?;
                let requests = Requests::from_text(text).map_err(|e| placed(text, &e))?;
                let trace = daemon.explain(self.user, &requests, now).map_err(|e| e.to_string())?;
                let told = match how {
                    0 => trace.lines().join("\n"),
                    1 => trace.to_json().to_string(),
                    2 => trace.mermaid(),
                    _ => return Err(malformed(Malformed::Value)),
                };
                wire::frame(&mut self.output, Kind::Explained, frame.id, |out| out.extend(told.as_bytes()));
            }
            (Door::Requests, Kind::News) => {
                let known = frame.payload.try_into().map_err(|_| malformed(Malformed::Value))?;
                let known = u64::from_le_bytes(known);
                wire::frame(&mut self.output, Kind::Facts, frame.id, |out| {
                    daemon.put_facts(self.user, known, out, now)
                });
            }
            (Door::Cib, Kind::Forget) => {
                let uid = wire::forget(frame.payload).map_err(malformed)?;
                daemon.remove_node(self.user, &uid).map_err(|e| e.to_string())?;
                wire::frame(&mut self.output, Kind::Done, frame.id, |_| ());
            }
            (_, kind) => return Err(format!("a frame of kind {} is not for this socket", kind as u8)),
        }
        Ok(())
    }
}

/// The JSON text of a decision.
fn answer(requests: &Requests, decision: &Decision) -> String {
    let ranked = decision.ranked();
    let as_told = |array: &NeatArray| if requests.pre_resolve { array.clone() } else { told(array) };
    to_text(&ranked.iter().map(|r| as_told(&r.properties)).collect::<Vec<_>>())
}
