//! Knowing that the process was forked, without a system call.
//!
//! *Responsible for* one word in a page that the kernel replaces by zeros in a child
//! (`MADV_WIPEONFORK`, Linux 4.14). *Deliberately not here*: `vfork` and threads, which share the
//! page, as they share everything.
//!
//! *Invariant*: the word is 1 in the process that made the guard and 0 in every other.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// In the page of the process that made it: a child reads zero there.
const WIPED_BY_FORK: u32 = 1;
/// The same on a kernel without `MADV_WIPEONFORK`. A child reads this too, and a check costs a
/// system call.
const COPIED_BY_FORK: u32 = 2;

/// Distinguishes the process that made it from the children that inherited it.
#[derive(Clone, Debug)]
pub(crate) struct ForkGuard {
    // Read on every operation, hence not behind the `Arc`; the page is alive as long as this guard
    // holds it.
    word: NonNull<AtomicU32>,
    /// The process that made it.
    pid: libc::pid_t,
    /// Keeps it mapped.
    _page: Arc<Page>,
}

#[derive(Debug)]
struct Page {
    word: NonNull<AtomicU32>,
    len: usize,
}

// SAFETY: the page holds one atomic word, is not tied to a thread, and is unmapped by the last
// owner.
unsafe impl Send for Page {}
// SAFETY: as above; an atomic may be read from many threads.
unsafe impl Sync for Page {}
// SAFETY: `word` points into the page that `_page` keeps mapped.
unsafe impl Send for ForkGuard {}
// SAFETY: as above; an atomic may be read from many threads.
unsafe impl Sync for ForkGuard {}

impl ForkGuard {
    /// A guard for this process.
    ///
    /// # Errors
    /// When there is no memory for a page.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: asks for a number.
        let len = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice touches
        // nothing that exists.
        let at =
            unsafe { libc::mmap(core::ptr::null_mut(), len, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(word) = NonNull::new(at.cast::<AtomicU32>()) else {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        };
        // SAFETY: `at` and `len` are the mapping made above, which no other code knows.
        let wiped = unsafe { libc::madvise(at, len, libc::MADV_WIPEONFORK) } == 0;
        let kept = if wiped { WIPED_BY_FORK } else { COPIED_BY_FORK };
        // SAFETY: a page is writable, large enough and aligned for a word, and zero bytes are a
        // valid `AtomicU32`.
        unsafe { word.as_ref() }.store(kept, Ordering::Relaxed);
        // SAFETY: asks for a number.
        let pid = unsafe { libc::getpid() };
        Ok(Self { word, pid, _page: Arc::new(Page { word, len }) })
    }

    /// Whether it takes [`ForkGuard::forked`] to know which process this is, in the fewest
    /// instructions.
    #[inline(always)]
    pub(crate) fn unsure(&self) -> bool {
        // SAFETY: the page is mapped while `self._page` lives.
        unsafe { self.word.as_ref() }.load(Ordering::Relaxed) != WIPED_BY_FORK
    }

    /// Whether this process is not the one that made the guard.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        // SAFETY: the page is mapped while `self._page` lives.
        match unsafe { self.word.as_ref() }.load(Ordering::Relaxed) {
            WIPED_BY_FORK => false,
            word => self.forked_slowly(word),
        }
    }

    #[cold]
    #[inline(never)]
    fn forked_slowly(&self, word: u32) -> bool {
        // SAFETY: asks for a number.
        word == 0 || self.pid != unsafe { libc::getpid() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `ForkGuard::new` with this length, and the last guard is
        // gone.
        unsafe { libc::munmap(self.word.as_ptr().cast(), self.len) };
    }
}
