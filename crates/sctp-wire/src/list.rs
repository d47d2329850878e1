//! Lists of things that carry their type and length: parameters, causes, addresses.
//!
//! ```text
//! |             Type              |            Length             |
//! /                             Value                             /
//! ```

use core::fmt;

use crate::error::{Problem, WireError};
use crate::fields::Fields;
use crate::padded;
use crate::writer::Writer;

/// What a receiver does with a chunk or parameter that it does not know (RFC 9260 sections 3.2 and
/// 3.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownAction {
    /// 00: process nothing further (of the packet, for a chunk; of the chunk, for a parameter).
    Stop,
    /// 01: process nothing further, and report it.
    StopAndReport,
    /// 10: go on with the next.
    Skip,
    /// 11: go on with the next, and report it.
    SkipAndReport,
}

impl UnknownAction {
    /// The action that the two highest bits of the type ask for.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Stop,
            1 => Self::StopAndReport,
            2 => Self::Skip,
            _ => Self::SkipAndReport,
        }
    }

    /// Whether nothing that follows is processed.
    #[must_use]
    pub const fn stops(self) -> bool {
        matches!(self, Self::Stop | Self::StopAndReport)
    }

    /// Whether the sender is notified.
    #[must_use]
    pub const fn reports(self) -> bool {
        matches!(self, Self::StopAndReport | Self::SkipAndReport)
    }
}

/// A parameter or cause as it stands in the packet.
///
/// Two are equal if their content is the same, wherever they stand.
#[derive(Clone, Copy)]
pub struct RawItem<'a> {
    /// Its type, or cause code.
    pub kind: u16,
    /// What follows type and length, without padding.
    pub value: &'a [u8],
    /// All of it: type, length and value, without padding.
    pub bytes: &'a [u8],
    /// Where it begins, in bytes from the beginning of what was parsed.
    pub offset: usize,
}

impl<'a> RawItem<'a> {
    /// What to do with it if its type is not known (RFC 9260 section 3.2.1). Causes have no such
    /// bits.
    #[must_use]
    pub const fn unknown_action(&self) -> UnknownAction {
        UnknownAction::from_bits((self.kind >> 14) as u8)
    }

    /// Its value, to be read field by field under the name `what`.
    pub(crate) const fn fields(&self, what: &'static str) -> Fields<'a> {
        Fields::new(self.value, self.offset + 4, what)
    }

    /// The item at the front of `rest`, and how long it is with its padding.
    fn first(rest: &'a [u8], offset: usize, what: &'static str) -> Result<(Self, usize), WireError> {
        let mut fields = Fields::new(rest, offset, what);
        let (kind, length) = (fields.u16()?, usize::from(fields.u16()?));
        let bytes = rest
            .get(..length)
            .ok_or_else(|| WireError::new(offset, what, Problem::Short { needed: length, left: rest.len() }))?;
        let value = bytes.get(4..).ok_or_else(|| {
            WireError::new(offset + 2, what, Problem::Value { field: "the length", value: length as u32 })
        })?;
        Ok((Self { kind, value, bytes, offset }, padded(length)))
    }
}

impl PartialEq for RawItem<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.value == other.value
    }
}

impl Eq for RawItem<'_> {}

impl fmt::Debug for RawItem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawItem {{ kind: {:#06x}, value: {:02x?}, offset: {} }}", self.kind, self.value, self.offset)
    }
}

/// What lists are made of.
pub trait Item<'a>: Copy + PartialEq + fmt::Debug {
    /// What errors call an item whose type or length is wrong.
    const WHAT: &'static str;

    /// Reads it.
    ///
    /// # Errors
    /// If its value is not as its type requires.
    fn decode(raw: &RawItem<'a>) -> Result<Self, WireError>;

    /// Writes it, type and length first, without padding.
    fn write(&self, out: &mut Writer<'_>);
}

/// A list of parameters, causes or addresses: bytes of a received packet, or a slice of the
/// caller's.
///
/// Bytes are read when they are iterated over, and not before.
#[derive(Clone, Copy)]
pub struct List<'a, T>(Repr<'a, T>);

#[derive(Clone, Copy)]
enum Repr<'a, T> {
    Wire { bytes: &'a [u8], offset: usize },
    Items(&'a [T]),
}

impl<'a, T: Item<'a>> List<'a, T> {
    /// No items.
    pub const EMPTY: Self = Self(Repr::Items(&[]));

    /// A list of the caller's.
    #[must_use]
    pub const fn new(items: &'a [T]) -> Self {
        Self(Repr::Items(items))
    }

    /// The list in `bytes`. Offsets of errors count from their beginning.
    #[must_use]
    pub const fn from_bytes(bytes: &'a [u8]) -> Self {
        Self(Repr::Wire { bytes, offset: 0 })
    }

    /// All that is left of `fields`.
    pub(crate) const fn rest(fields: Fields<'a>) -> Self {
        Self(Repr::Wire { bytes: fields.rest(), offset: fields.offset() })
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        match self.0 {
            Repr::Wire { bytes, .. } => bytes.is_empty(),
            Repr::Items(items) => items.is_empty(),
        }
    }

    /// The items in order. An error is the last that comes.
    #[must_use]
    pub const fn iter(&self) -> Items<'a, T> {
        Items { rest: self.0 }
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        match self.0 {
            Repr::Wire { bytes, .. } => out.bytes(bytes),
            Repr::Items(items) => items.iter().for_each(|item| item.write(out)),
        }
    }
}

/// The items of a [`List`].
#[derive(Clone, Copy)]
pub struct Items<'a, T> {
    rest: Repr<'a, T>,
}

impl<'a, T: Item<'a>> Iterator for Items<'a, T> {
    type Item = Result<T, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.rest {
            Repr::Items(items) => {
                let (first, rest) = items.split_first()?;
                *items = rest;
                Some(Ok(*first))
            }
            Repr::Wire { bytes: [], .. } => None,
            Repr::Wire { bytes, offset } => {
                let item = RawItem::first(bytes, *offset, T::WHAT).and_then(|(raw, len)| {
                    // The padding of the last is not counted in the length of what carries the
                    // list.
                    *bytes = bytes.get(len..).unwrap_or_default();
                    *offset += len;
                    T::decode(&raw)
                });
                if item.is_err() {
                    *bytes = &[];
                }
                Some(item)
            }
        }
    }
}

impl<'a, T: Item<'a>> IntoIterator for List<'a, T> {
    type Item = Result<T, WireError>;
    type IntoIter = Items<'a, T>;

    fn into_iter(self) -> Items<'a, T> {
        self.iter()
    }
}

impl<'a, T: Item<'a>> From<&'a [T]> for List<'a, T> {
    fn from(items: &'a [T]) -> Self {
        Self::new(items)
    }
}

impl<'a, T: Item<'a>> Default for List<'a, T> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<'a, T: Item<'a>> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Item<'a>> fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An item that is its raw self.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Any<'a>(RawItem<'a>);

    impl<'a> Item<'a> for Any<'a> {
        const WHAT: &'static str = "item";

        fn decode(raw: &RawItem<'a>) -> Result<Self, WireError> {
            Ok(Self(*raw))
        }

        fn write(&self, out: &mut Writer<'_>) {
            out.item(self.0.kind, |out| out.bytes(self.0.value));
        }
    }

    const TWO: &[u8] = &[0, 1, 0, 5, 9, 0, 0, 0, 0xc0, 2, 0, 4];

    #[test]
    fn items_are_found_behind_each_others_padding() {
        let items: Vec<_> = List::<Any>::from_bytes(TWO).iter().map(|item| item.unwrap().0).collect();
        assert_eq!(items[0], RawItem { kind: 1, value: &[9], bytes: &TWO[..5], offset: 0 });
        assert_eq!(items[1], RawItem { kind: 0xc002, value: &[], bytes: &TWO[8..], offset: 8 });
        assert_eq!(items.len(), 2);
        assert!(items[0].unknown_action().stops() && !items[0].unknown_action().reports());
        assert_eq!(items[1].unknown_action(), UnknownAction::SkipAndReport);
    }

    #[test]
    fn the_last_may_come_without_its_padding() {
        assert_eq!(List::<Any>::from_bytes(&TWO[..5]).iter().count(), 1);
        assert_eq!(List::<Any>::from_bytes(&TWO[..8]).iter().count(), 1);
    }

    #[test]
    fn a_length_that_cannot_be_ends_the_list() {
        let cases: &[(&[u8], Problem, usize)] = &[
            (&[0, 1, 0], Problem::Short { needed: 2, left: 1 }, 2),
            (&[0, 1, 0, 3, 0, 0, 0, 0], Problem::Value { field: "the length", value: 3 }, 2),
            (&[0, 1, 0, 9, 0, 0, 0, 0], Problem::Short { needed: 9, left: 8 }, 0),
        ];
        for (bytes, problem, offset) in cases {
            let items: Vec<_> = List::<Any>::from_bytes(bytes).iter().collect();
            assert_eq!(items, [Err(WireError::new(*offset, "item", *problem))]);
        }
    }

    #[test]
    fn a_list_of_items_is_written_and_read_again() {
        let items = [
            Any(RawItem { kind: 1, value: &[9], bytes: &TWO[..5], offset: 0 }),
            Any(RawItem { kind: 0xc002, value: &[], bytes: &TWO[8..], offset: 8 }),
        ];
        let mut buffer = [0; 16];
        let mut out = Writer::new(&mut buffer);
        List::new(&items).write(&mut out);
        assert_eq!(out.written(), TWO);
        assert_eq!(List::from_bytes(out.written()), List::new(&items));
        assert_eq!(List::<Any>::default().iter().count(), 0);
        assert!(List::<Any>::EMPTY.is_empty() && !List::new(&items).is_empty());
    }

    #[test]
    fn the_four_actions_of_the_two_bits() {
        use UnknownAction::*;
        let all: Vec<_> = (0..4).map(UnknownAction::from_bits).collect();
        assert_eq!(all, [Stop, StopAndReport, Skip, SkipAndReport]);
        assert_eq!(
            all.iter().map(|a| (a.stops(), a.reports())).collect::<Vec<_>>(),
            [(true, false), (true, true), (false, false), (false, true)]
        );
    }
}
