//! A box that is mostly empty.

/// A part of a connection that most connections do not have. An empty one is dropped in place,
/// without a call (26 instructions of a flow, for two of them).
#[derive(Debug)]
pub(crate) struct LazyBox<T>(Option<Box<T>>);

impl<T> LazyBox<T> {
    pub(crate) const NOTHING: Self = Self(None);
}

impl<T> Default for LazyBox<T> {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl<T> core::ops::Deref for LazyBox<T> {
    type Target = Option<Box<T>>;
    #[inline]
    fn deref(&self) -> &Option<Box<T>> {
        &self.0
    }
}

impl<T> core::ops::DerefMut for LazyBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Option<Box<T>> {
        &mut self.0
    }
}

impl<T> Drop for LazyBox<T> {
    #[inline(always)]
    fn drop(&mut self) {
        #[cold]
        #[inline(never)]
        fn drop_it<T>(it: Box<T>) {
            drop(it);
        }
        match self.0.take() {
            None => {}
            Some(it) => drop_it(it),
        }
    }
}
