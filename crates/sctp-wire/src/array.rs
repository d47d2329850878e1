//! Lists of things of one size: gap blocks, TSNs, streams.

use core::fmt;
use core::marker::PhantomData;

use crate::error::{Problem, WireError};
use crate::fields::Fields;
use crate::number::{StreamId, Tsn};
use crate::writer::Writer;

/// Something that takes the same number of bytes every time.
pub trait Fixed: Copy + PartialEq + fmt::Debug {
    /// How many bytes.
    const SIZE: usize;

    /// Reads it from exactly [`Fixed::SIZE`] bytes.
    fn read(bytes: &[u8]) -> Self;

    /// Writes it.
    fn write(&self, out: &mut Writer<'_>);
}

/// A list of fixed-size things: bytes of a received packet, or a slice of the caller's.
#[derive(Clone, Copy)]
pub struct Array<'a, T>(Repr<'a, T>);

#[derive(Clone, Copy)]
enum Repr<'a, T> {
    /// A multiple of `T::SIZE` bytes.
    Wire(&'a [u8], PhantomData<T>),
    Items(&'a [T]),
}

impl<'a, T: Fixed> Array<'a, T> {
    /// No items.
    pub const EMPTY: Self = Self(Repr::Items(&[]));

    /// A list of the caller's.
    #[must_use]
    pub const fn new(items: &'a [T]) -> Self {
        Self(Repr::Items(items))
    }

    /// The next `count` items of `fields`.
    pub(crate) fn take(fields: &mut Fields<'a>, count: usize) -> Result<Self, WireError> {
        Ok(Self(Repr::Wire(fields.take(count * T::SIZE)?, PhantomData)))
    }

    /// As many items as are left in `fields`, to the last byte.
    pub(crate) fn rest(fields: Fields<'a>) -> Result<Self, WireError> {
        let (bytes, extra) = (fields.rest(), fields.left() % T::SIZE);
        if extra != 0 {
            return Err(fields.error(Problem::Trailing { extra }));
        }
        Ok(Self(Repr::Wire(bytes, PhantomData)))
    }

    /// How many items there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Repr::Wire(bytes, _) => bytes.len() / T::SIZE,
            Repr::Items(items) => items.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<T> {
        match self.0 {
            Repr::Wire(bytes, _) => bytes.get(index.checked_mul(T::SIZE)?..)?.get(..T::SIZE).map(T::read),
            Repr::Items(items) => items.get(index).copied(),
        }
    }

    /// The items in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + DoubleEndedIterator + use<'a, T> {
        let array = *self;
        (0..array.len()).map(move |index| match array.0 {
            Repr::Wire(bytes, _) => T::read(&bytes[index * T::SIZE..][..T::SIZE]),
            Repr::Items(items) => items[index],
        })
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        match self.0 {
            Repr::Wire(bytes, _) => out.bytes(bytes),
            Repr::Items(items) => items.iter().for_each(|item| item.write(out)),
        }
    }
}

impl<'a, T: Fixed> From<&'a [T]> for Array<'a, T> {
    fn from(items: &'a [T]) -> Self {
        Self::new(items)
    }
}

impl<T: Fixed> Default for Array<'_, T> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<T: Fixed> PartialEq for Array<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Fixed + Eq> Eq for Array<'_, T> {}

impl<T: Fixed> fmt::Debug for Array<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Fixed for u16 {
    const SIZE: usize = 2;

    fn read(bytes: &[u8]) -> Self {
        Self::from_be_bytes([bytes[0], bytes[1]])
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.u16(*self);
    }
}

impl Fixed for StreamId {
    const SIZE: usize = 2;

    fn read(bytes: &[u8]) -> Self {
        Self(u16::read(bytes))
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.u16(self.0);
    }
}

impl Fixed for Tsn {
    const SIZE: usize = 4;

    fn read(bytes: &[u8]) -> Self {
        Self(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_the_wire_equals_the_list_that_it_says() {
        let mut fields = Fields::new(&[0, 1, 0, 2, 0, 3], 0, "TEST");
        let streams = Array::<StreamId>::take(&mut fields, 2).unwrap();
        assert_eq!(streams, Array::new(&[StreamId(1), StreamId(2)]));
        assert_ne!(streams, Array::new(&[StreamId(1)]));
        assert_eq!(
            (streams.len(), streams.is_empty(), streams.get(1), streams.get(2)),
            (2, false, Some(StreamId(2)), None)
        );
        assert_eq!(streams.get(usize::MAX), None);
        assert_eq!(Array::<u16>::rest(fields).unwrap().iter().rev().collect::<Vec<_>>(), [3]);
        assert_eq!(format!("{streams:?}"), "[StreamId(1), StreamId(2)]");
        assert!(Array::<Tsn>::default().is_empty());
    }

    #[test]
    fn half_an_item_is_an_error() {
        let mut fields = Fields::new(&[0; 7], 10, "TEST");
        assert_eq!(Array::<Tsn>::rest(fields), Err(WireError::new(10, "TEST", Problem::Trailing { extra: 3 })));
        assert_eq!(
            Array::<Tsn>::take(&mut fields, 2),
            Err(WireError::new(10, "TEST", Problem::Short { needed: 8, left: 7 }))
        );
    }
}
