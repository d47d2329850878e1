//! The compact form: the content of NEAT's JSON sockets, in frames that cost little, many on one
//! connection.
//!
//! ```text
//!  0        1        2                 4                                   8
//! +--------+--------+-----------------+-----------------------------------+----------
//! |  0xB5  |  kind  |       id        |       length of the payload       | payload
//! +--------+--------+-----------------+-----------------------------------+----------
//! ```
//!
//! All numbers are little-endian. 0xB5 begins no UTF-8 text and so no JSON, by which a socket
//! distinguishes the two forms; another version would begin with another byte. `id` is the
//! client's, and comes back with the answer; answers come in the order of the questions.
//!
//! A **text** is its length (2 bytes) and its bytes in UTF-8. A **value** is one byte and what
//! follows: 0 any; 1 false; 2 true; 3 a number (8 bytes, IEEE 754); 4 a text; 5 a set: how many (2
//! bytes), then values 1 to 4; 6 a range: two numbers. A **property** is its key (a text), one byte
//! with the precedence in the lowest two bits and `evaluated` in the third, its score (a number),
//! its value. An **array** is how many (2 bytes), then properties.
//!
//! The payload by the kind of the frame:
//!
//! - **1 decide**: how many requests (2 bytes), then an array for each.
//! - **2 node**: uid (a text); one byte: 1 root, 2 link; seconds to live (4 bytes, 0 for ever);
//!   matches: how many (2 bytes), arrays; groups: how many (2 bytes), and for each how many
//!   alternatives (2 bytes), arrays.
//! - **3 forget**: uid (a text) of a node.
//! - **4 tables**: the version that is known (8 bytes, 0 for none); a table (1 byte: 0 profiles, 1
//!   policies, 2 nodes); from which entry on (4 bytes).
//! - **5 seen**: what connections have seen: how many facts (2 bytes), then each: the interface and
//!   the other end (texts); one byte: 1 round trip, 2 rate, 4 loss; for each of these a number (s,
//!   bit/s, 0 to 1) and for how many seconds it counts (2 bytes); how many outcomes of races (2
//!   bytes), and for each the port (2 bytes), whether it won (1 byte), the transport (a text),
//!   seconds (2 bytes).
//! - **6 news**: up to which change facts are known (8 bytes, 0 for none).
//! - **7 explain**: how (1 byte: 0 text, 1 JSON, 2 a diagram), then a document of requests as on
//!   the JSON socket.
//! - **0x81 decision**: properties: how many (2 bytes), each once; candidates: how many (2 bytes),
//!   and for each the score of evaluated properties and of the others (numbers), how many
//!   properties (2 bytes), their places among those above (2 bytes each).
//! - **0x82 done**: nothing.
//! - **0x83 page**: the version (8 bytes); which table (1 byte, 3 where this is the last page) and
//!   entry (4 bytes) come next; then for each entry its table (1 byte), the length of its text (4
//!   bytes) and the text, NEAT's JSON. Nothing but the version where it is the one that is known.
//! - **0x84 facts**: up to which change they go (8 bytes); whether there is more (1 byte); facts as
//!   in 5.
//! - **0x85 explained**: every step to every candidate (the bytes of a text).
//! - **0xFF refused**: why (the bytes of a text).

use crate::manager::{Decision, MAX_UID, Node, Ranked, Requests, told, told_key};
use core::fmt;
use core::time::Duration;
use neater_base::WallTime;
use neater_property::neat::{MAX_SET, NeatArray, NeatMultiArray, NeatProperty, NeatValue, Score};

/// What a frame of this form begins with.
pub const MARK: u8 = 0xB5;
/// How long what stands before the payload is.
pub const HEAD: usize = 8;
/// The longest payload that is taken.
pub const MAX_PAYLOAD: usize = 1 << 18;
/// How many bytes the properties of a decision's candidates may have together, each as long as on
/// the wire.
const MAX_UNFOLDED: usize = 64 * MAX_PAYLOAD;
/// How long most properties are.
const USUAL: usize = 40;
/// The longest key.
const MAX_KEY: usize = 256;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Requests to decide.
    Decide = 1,
    /// A node for the CIB.
    Node = 2,
    /// A node to forget.
    Forget = 3,
    /// The tables, from somewhere on.
    Tables = 4,
    /// What connections have seen.
    Seen = 5,
    /// What others have seen, from some change on.
    News = 6,
    /// Requests to decide, and to explain.
    Explain = 7,
    /// What was decided.
    Decision = 0x81,
    /// It was done.
    Done = 0x82,
    /// A part of the tables.
    Page = 0x83,
    /// What connections of others have seen.
    Facts = 0x84,
    /// Why it was decided so.
    Explained = 0x85,
    /// It was not done, and why.
    Refused = 0xFF,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        let all = [Self::Decide, Self::Node, Self::Forget, Self::Tables, Self::Seen, Self::News, Self::Explain];
        let answers = [Self::Decision, Self::Done, Self::Page, Self::Facts, Self::Explained, Self::Refused];
        all.into_iter().chain(answers).find(|k| *k as u8 == byte)
    }
}

/// Why bytes are no frame, or a payload not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The first byte is not [`MARK`].
    Mark(u8),
    /// No such kind.
    Kind(u8),
    /// The payload is longer than [`MAX_PAYLOAD`].
    Long(u32),
    /// The payload ends too early.
    Short,
    /// There is more than was announced.
    Trailing,
    /// A text is no UTF-8, a key or uid too long or empty, or a number or value one that cannot be.
    Value,
    /// The alternatives are too many.
    TooMany,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mark(byte) => write!(f, "a frame begins with 0x{MARK:02x}, not 0x{byte:02x}"),
            Self::Kind(byte) => write!(f, "there is no frame of kind {byte}"),
            Self::Long(length) => write!(f, "a payload has at most {MAX_PAYLOAD} bytes, not {length}"),
            Self::Short => f.write_str("the payload ends too early"),
            Self::Trailing => f.write_str("the payload is longer than its content"),
            Self::Value => f.write_str("a text, number or value is not one that can be"),
            Self::TooMany => f.write_str("the alternatives are too many"),
        }
    }
}

impl std::error::Error for Malformed {}

/// A frame in the bytes that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it is.
    pub kind: Kind,
    /// The number that the client gave it.
    pub id: u16,
    /// What it carries.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame at the beginning of `bytes`; `None` while it is not complete.
    ///
    /// # Errors
    /// [`Malformed`], after which nothing more can be read.
    pub fn first(bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let Some(mark) = bytes.first() else { return Ok(None) };
        if *mark != MARK {
            return Err(Malformed::Mark(*mark));
        }
        let Some(head) = bytes.get(..HEAD) else { return Ok(None) };
        let kind = Kind::of(head[1]).ok_or(Malformed::Kind(head[1]))?;
        let id = u16::from_le_bytes([head[2], head[3]]);
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if length as usize > MAX_PAYLOAD {
            return Err(Malformed::Long(length));
        }
        Ok(bytes.get(HEAD..HEAD + length as usize).map(|payload| Self { kind, id, payload }))
    }

    /// How long the frame is.
    #[must_use]
    pub const fn len(&self) -> usize {
        HEAD + self.payload.len()
    }

    /// Whether it has no payload.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }
}

/// Adds a frame to `out`, whose payload `write` adds. A payload that would be too long becomes a
/// refusal.
pub fn frame(out: &mut Vec<u8>, kind: Kind, id: u16, write: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend([MARK, kind as u8]);
    out.extend(id.to_le_bytes());
    out.extend([0; 4]);
    write(out);
    let length = out.len() - begin - HEAD;
    match u32::try_from(length) {
        Ok(length) if length as usize <= MAX_PAYLOAD => {
            out[begin + 4..begin + HEAD].copy_from_slice(&length.to_le_bytes());
        }
        _ => {
            out.truncate(begin);
            refused(out, id, "the answer is too long for one frame");
        }
    }
}

/// Adds a refusal to `out`.
pub fn refused(out: &mut Vec<u8>, id: u16, why: &str) {
    let why = beginning(why, 4096);
    frame(out, Kind::Refused, id, |out| out.extend(why.as_bytes()));
}

/// As much of a text as fits into so many bytes.
fn beginning(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

pub(super) fn put_count(out: &mut Vec<u8>, n: usize) {
    // What is longer does not fit into a frame, and is refused as such.
    out.extend(u16::try_from(n).unwrap_or(u16::MAX).to_le_bytes());
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = beginning(text, usize::from(u16::MAX));
    put_count(out, text.len());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &NeatValue) {
    match value {
        NeatValue::Any => out.push(0),
        NeatValue::Bool(b) => out.push(1 + u8::from(*b)),
        NeatValue::Number(n) => {
            out.push(3);
            out.extend(n.to_le_bytes());
        }
        NeatValue::Text(t) => {
            out.push(4);
            put_text(out, t);
        }
        NeatValue::Set(elements) => {
            out.push(5);
            put_count(out, elements.len());
            elements.iter().for_each(|e| put_value(out, e));
        }
        NeatValue::Range { start, end } => {
            out.push(6);
            out.extend(start.to_le_bytes());
            out.extend(end.to_le_bytes());
        }
    }
}

fn put_property(out: &mut Vec<u8>, key: &str, precedence: u8, evaluated: bool, score: f64, value: &NeatValue) {
    put_text(out, key);
    out.push(precedence & 3 | u8::from(evaluated) << 2);
    out.extend(score.to_le_bytes());
    put_value(out, value);
}

fn put_array(out: &mut Vec<u8>, array: &NeatArray) {
    put_count(out, array.len());
    array.iter().for_each(|p| put_property(out, &p.key, p.precedence, p.evaluated, p.score, &p.value));
}

/// Adds the payload of a question.
pub fn put_requests(out: &mut Vec<u8>, requests: &[NeatArray]) {
    put_count(out, requests.len());
    requests.iter().for_each(|r| put_array(out, r));
}

/// Adds the payload of a node, which lives for `seconds`, or for ever if that is 0.
pub fn put_node(out: &mut Vec<u8>, node: &Node, seconds: u32) {
    put_text(out, &node.uid);
    out.push(u8::from(node.root) | u8::from(node.link) << 1);
    out.extend(seconds.to_le_bytes());
    put_count(out, node.matches.len());
    node.matches.iter().for_each(|m| put_array(out, m));
    put_count(out, node.properties.groups().len());
    for group in node.properties.groups() {
        put_count(out, group.len());
        group.iter().for_each(|a| put_array(out, a));
    }
}

/// Adds the payload of a decision. Candidates are sent as they are on the JSON socket.
pub fn put_decision(out: &mut Vec<u8>, decision: &Decision) {
    // Options of sockets may be spelt in two ways that become one.
    if decision.all().iter().any(|p| p.key.starts_with("so/")) {
        return put_told(out, &decision.ranked());
    }
    let told: Vec<bool> = decision.all().iter().map(|p| told_key(&p.key).is_some()).collect();
    let places = |i: usize| decision.places(i).iter().map(|place| *place as usize).filter(|place| told[*place]);
    // About as much as it will be, so that it need not move while it is written.
    out.reserve(USUAL * told.len() + (0..decision.len()).map(|i| 18 + 2 * decision.places(i).len()).sum::<usize>());
    put_count(out, decision.all().len());
    for p in decision.all() {
        put_property(out, &p.key, p.precedence, p.evaluated, p.score, &p.value);
    }
    put_count(out, decision.len());
    for i in 0..decision.len() {
        put_score(out, decision.score(i).unwrap_or_default());
        put_count(out, places(i).count());
        places(i).for_each(|place| put_count(out, place));
    }
}

fn put_score(out: &mut Vec<u8>, score: Score) {
    out.extend(score.evaluated.to_le_bytes());
    out.extend(score.others.to_le_bytes());
}

/// Adds a decision whose properties differ from those that are sent.
fn put_told(out: &mut Vec<u8>, ranked: &[Ranked]) {
    let arrays: Vec<NeatArray> = ranked.iter().map(|r| told(&r.properties)).collect();
    put_count(out, arrays.iter().map(NeatArray::len).sum());
    for p in arrays.iter().flat_map(NeatArray::iter) {
        put_property(out, &p.key, p.precedence, p.evaluated, p.score, &p.value);
    }
    put_count(out, arrays.len());
    let mut place = 0;
    for (array, r) in arrays.iter().zip(ranked) {
        put_score(out, r.score);
        put_count(out, array.len());
        for _ in array.iter() {
            put_count(out, place);
            place += 1;
        }
    }
}

/// The number of the table behind the last one.
pub const END: u8 = 3;

/// Adds the payload of a page.
pub fn put_page(out: &mut Vec<u8>, version: u64, table: u8, at: u32, texts: &[u8]) {
    out.extend(version.to_le_bytes());
    out.push(table);
    out.extend(at.to_le_bytes());
    out.extend(texts);
}

/// Adds the payload of a question for a page.
pub(super) fn put_tables_question(out: &mut Vec<u8>, known: u64, table: u8, from: u32) {
    out.extend(known.to_le_bytes());
    out.push(table);
    out.extend(from.to_le_bytes());
}

/// Reads the payload of a question for a page: the version that is known, the table, the entry.
///
/// # Errors
/// [`Malformed`].
pub fn tables_question(payload: &[u8]) -> Result<[u64; 3], Malformed> {
    let (Some(known), Some(table), Some(from), 13) =
        (payload.first_chunk::<8>(), payload.get(8), payload.last_chunk::<4>(), payload.len())
    else {
        return Err(if payload.len() > 13 { Malformed::Trailing } else { Malformed::Short });
    };
    Ok([u64::from_le_bytes(*known), u64::from(*table), u64::from(u32::from_le_bytes(*from))])
}

/// What is left of a payload.
pub(super) struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    pub(super) const fn of(payload: &'a [u8]) -> Self {
        Self(payload)
    }

    pub(super) fn short(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.bytes()?))
    }

    pub(super) fn long(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed::Short)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.bytes::<1>()?[0])
    }

    /// A count of things each of which has at least one byte.
    pub(super) fn count(&mut self) -> Result<usize, Malformed> {
        let n = usize::from(u16::from_le_bytes(self.bytes()?));
        if n > self.0.len() { Err(Malformed::Short) } else { Ok(n) }
    }

    fn number(&mut self) -> Result<f64, Malformed> {
        Ok(f64::from_le_bytes(self.bytes()?))
    }

    pub(super) fn finite(&mut self) -> Result<f64, Malformed> {
        Some(self.number()?).filter(|n| n.is_finite()).ok_or(Malformed::Value)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = self.count()?;
        core::str::from_utf8(self.take(length)?).map_err(|_| Malformed::Value)
    }

    fn value(&mut self, within_set: bool) -> Result<NeatValue, Malformed> {
        Ok(match self.byte()? {
            0 if !within_set => NeatValue::Any,
            1 => NeatValue::Bool(false),
            2 => NeatValue::Bool(true),
            3 => NeatValue::Number(self.finite()?),
            4 => NeatValue::Text(self.text()?.into()),
            5 if !within_set => {
                let n = self.count()?;
                if n > MAX_SET {
                    return Err(Malformed::TooMany);
                }
                let elements: Result<Vec<_>, _> = (0..n).map(|_| self.value(true)).collect();
                NeatValue::set(elements?).map_err(|_| Malformed::Value)?
            }
            6 if !within_set => {
                let (start, end) = (self.number()?, self.number()?);
                NeatValue::range(start, end).map_err(|_| Malformed::Value)?
            }
            _ => return Err(Malformed::Value),
        })
    }

    fn property(&mut self) -> Result<NeatProperty, Malformed> {
        let key = self.text()?;
        if key.is_empty() || key.len() > MAX_KEY {
            return Err(Malformed::Value);
        }
        let flags = self.byte()?;
        let (precedence, evaluated) = (flags & 3, flags >> 2 & 1 == 1);
        if precedence > NeatProperty::IMMUTABLE || flags >> 3 != 0 {
            return Err(Malformed::Value);
        }
        let score = self.finite()?;
        let property = NeatProperty::new(key, self.value(false)?).with_precedence(precedence).with_score(score);
        Ok(NeatProperty { evaluated, ..property })
    }

    fn array(&mut self) -> Result<NeatArray, Malformed> {
        let n = self.count()?;
        let properties = (0..n).map(|_| self.property().map(|p| (String::new(), p)));
        let array: NeatArray = properties.collect::<Result<_, _>>()?;
        // Two of one key in one array are one too many.
        if array.len() == n { Ok(array) } else { Err(Malformed::Value) }
    }

    fn arrays(&mut self) -> Result<Vec<NeatArray>, Malformed> {
        let n = self.count()?;
        (0..n).map(|_| self.array()).collect()
    }

    pub(super) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Trailing) }
    }
}

/// Reads the payload of a question.
///
/// # Errors
/// [`Malformed`].
pub fn requests(payload: &[u8]) -> Result<Requests, Malformed> {
    let mut rest = Rest(payload);
    let arrays = rest.arrays()?;
    rest.end()?;
    Ok(Requests::from_arrays(arrays))
}

/// Reads the payload of a node that is received at `now`.
///
/// # Errors
/// [`Malformed`].
pub fn node(payload: &[u8], now: WallTime) -> Result<Node, Malformed> {
    let mut rest = Rest(payload);
    let uid = uid(&mut rest)?;
    let flags = rest.byte()?;
    if flags > 3 {
        return Err(Malformed::Value);
    }
    let seconds = u32::from_le_bytes(rest.bytes()?);
    let matches = rest.arrays()?;
    let mut properties = NeatMultiArray::new();
    for _ in 0..rest.count()? {
        properties.push(rest.arrays()?);
    }
    rest.end()?;
    let alternatives = properties.expand().map_err(|_| Malformed::TooMany)?;
    let lifetime = Duration::from_secs(seconds.into());
    Ok(Node {
        uid,
        root: flags & 1 == 1,
        link: flags & 2 == 2,
        matches,
        properties,
        alternatives,
        priority: 0,
        expires: (seconds > 0).then(|| WallTime(now.0.saturating_add(lifetime))),
        description: String::new(),
        others: serde_json::Map::new(),
    })
}

fn uid(rest: &mut Rest<'_>) -> Result<String, Malformed> {
    let uid = rest.text()?;
    if uid.is_empty() || uid.len() > MAX_UID { Err(Malformed::Value) } else { Ok(uid.into()) }
}

/// Reads the uid of a node to forget.
///
/// # Errors
/// [`Malformed`].
pub fn forget(payload: &[u8]) -> Result<String, Malformed> {
    let mut rest = Rest(payload);
    let uid = uid(&mut rest)?;
    rest.end()?;
    Ok(uid)
}

/// Reads the payload of a decision: what a client does.
///
/// # Errors
/// [`Malformed`].
pub fn decision(payload: &[u8]) -> Result<Vec<Ranked>, Malformed> {
    let mut rest = Rest(payload);
    let n = rest.count()?;
    let mut properties: Vec<(NeatProperty, usize)> = Vec::new();
    for _ in 0..n {
        let before = rest.0.len();
        let property = rest.property()?;
        properties.push((property, before - rest.0.len()));
    }
    let n = rest.count()?;
    let mut ranked = Vec::new();
    // A place takes two bytes, and what is there may be long.
    let mut unfolded = 0;
    for _ in 0..n {
        let score = Score { evaluated: rest.number()?, others: rest.number()? };
        let mut array = Vec::new();
        for _ in 0..rest.count()? {
            let place = usize::from(u16::from_le_bytes(rest.bytes()?));
            let (property, length) = properties.get(place).ok_or(Malformed::Value)?;
            unfolded += length;
            if unfolded > MAX_UNFOLDED {
                return Err(Malformed::TooMany);
            }
            array.push((String::new(), property.clone()));
        }
        ranked.push(Ranked { properties: array.into_iter().collect(), score });
    }
    rest.end()?;
    Ok(ranked)
}
