//! An allocator that counts: calls, and bytes that are given out.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The system's allocator, counted.
pub(crate) struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);
static GIVEN: AtomicU64 = AtomicU64::new(0);
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Calls that allocated so far; growing what is there counts.
pub(crate) fn calls() -> u64 {
    CALLS.load(Relaxed)
}

/// Bytes that are given out now.
pub(crate) fn live() -> u64 {
    GIVEN.load(Relaxed) - TAKEN.load(Relaxed)
}

fn gave(size: usize) {
    CALLS.fetch_add(1, Relaxed);
    GIVEN.fetch_add(size as u64, Relaxed);
}

fn took(size: usize) {
    TAKEN.fetch_add(size as u64, Relaxed);
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        gave(layout.size());
        // SAFETY: the caller keeps the contract of this method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        gave(layout.size());
        // SAFETY: the caller keeps the contract of this method.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        took(layout.size());
        // SAFETY: the caller keeps the contract of this method.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        gave(new);
        took(layout.size());
        // SAFETY: the caller keeps the contract of this method.
        unsafe { System.realloc(ptr, layout, new) }
    }
}
