//! A table by stream identifier that grows by pages: dense identifiers cost what they hold, a
//! single high one a page.

use neater_sctp_wire::StreamId;

const PAGE: usize = 64;

/// State per stream; a stream that was never touched has the default.
#[derive(Debug, Default)]
pub(crate) struct Pages<T> {
    pages: Vec<Option<Box<[T; PAGE]>>>,
}

impl<T: Default> Pages<T> {
    pub(crate) const fn new() -> Self {
        Self { pages: Vec::new() }
    }

    #[inline]
    pub(crate) fn get(&self, stream: StreamId) -> Option<&T> {
        let i = usize::from(stream.0);
        self.pages.get(i / PAGE)?.as_ref().map(|p| &p[i % PAGE])
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, stream: StreamId) -> &mut T {
        let i = usize::from(stream.0);
        if self.pages.get(i / PAGE).is_none_or(Option::is_none) {
            self.add_page(i / PAGE);
        }
        let page = self.pages[i / PAGE].get_or_insert_with(Self::fresh);
        &mut page[i % PAGE]
    }

    fn fresh() -> Box<[T; PAGE]> {
        Box::new(core::array::from_fn(|_| T::default()))
    }

    #[cold]
    fn add_page(&mut self, index: usize) {
        if self.pages.len() <= index {
            self.pages.resize_with(index + 1, || None);
        }
        self.pages[index] = Some(Self::fresh());
    }

    /// Every stream that has a page.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (StreamId, &mut T)> {
        let pages = self.pages.iter_mut().enumerate().filter_map(|(n, p)| p.as_mut().map(|p| (n, p)));
        pages.flat_map(|(n, p)| p.iter_mut().enumerate().map(move |(i, t)| (StreamId((n * PAGE + i) as u16), t)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_made_where_they_are_needed() {
        let mut table: Pages<u32> = Pages::new();
        assert_eq!(table.get(StreamId(65_535)), None);
        *table.get_mut(StreamId(65_535)) = 1;
        *table.get_mut(StreamId(3)) = 2;
        assert_eq!(
            (table.get(StreamId(65_535)), table.get(StreamId(3)), table.get(StreamId(4))),
            (Some(&1), Some(&2), Some(&0))
        );
        assert_eq!(table.get(StreamId(64)), None);
        assert_eq!(table.iter_mut().filter(|(_, t)| **t > 0).map(|(s, _)| s.0).collect::<Vec<_>>(), [3, 65_535]);
        assert_eq!(table.pages.iter().flatten().count(), 2);
    }
}
