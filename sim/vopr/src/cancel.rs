//! Futures that are given up at random, and asked again.

use crate::content::mix;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::cell::Cell;
use std::rc::Rc;

/// Polls a future so many times, and gives it up if it is not over then.
struct Impatient<F> {
    future: Pin<Box<F>>,
    polls: u64,
}

impl<F: Future> Future for Impatient<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.future.as_mut().poll(cx) {
            Poll::Ready(v) => Poll::Ready(Some(v)),
            Poll::Pending if self.polls <= 1 => Poll::Ready(None),
            Poll::Pending => {
                self.polls -= 1;
                Poll::Pending
            }
        }
    }
}

/// A source of impatience; none, if it is off. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Cancel(Option<Rc<Cell<u64>>>);

impl Cancel {
    pub(crate) fn new(on: bool, seed: u64) -> Self {
        Self(on.then(|| Rc::new(Cell::new(mix(seed)))))
    }

    /// Tries `make`'s future until one is over. Every other time it is waited for, so that time passes.
    pub(crate) async fn patiently<F: Future>(&self, mut make: impl FnMut() -> F) -> F::Output {
        let Some(state) = &self.0 else { return make().await };
        loop {
            state.set(state.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
            let drawn = mix(state.get());
            if drawn.is_multiple_of(2) {
                return make().await;
            }
            let polls = 1 + (drawn >> 1) % 3;
            if let Some(v) = (Impatient { future: Box::pin(make()), polls }).await {
                return v;
            }
        }
    }
}
