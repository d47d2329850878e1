//! Descriptors that are kept back for files.
//!
//! *Responsible for* files that can still be opened when connections have taken every other
//! descriptor of the process: without it a server at its limit accepts connections and can answer
//! none of them. *Not responsible for* what is opened.
//!
//! *Invariants*: a descriptor that comes back is kept before anything else can have it, as long as
//! some are missing.

use crate::lock;
use core::ops::Deref;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex};

/// Where a descriptor comes from that stands for nothing.
const NOTHING: &str = "/dev/null";

/// Descriptors that are reserved.
#[derive(Debug, Default)]
pub(crate) struct DescriptorReserve {
    kept: Mutex<Vec<File>>,
    most: usize,
}

/// A file that is open, or a folder.
#[derive(Debug)]
pub(crate) struct Opened {
    file: Option<File>,
    reserve: Arc<DescriptorReserve>,
}

impl DescriptorReserve {
    /// Keeps so many, or half of what there is: connections need some, too.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let mut kept: Vec<_> = (0..2 * most).map_while(|_| File::open(NOTHING).ok()).collect();
        let most = kept.len() / 2;
        kept.truncate(most);
        Arc::new(Self { kept: Mutex::new(kept), most })
    }

    /// Runs what needs a descriptor, again with one of these if there is no other.
    pub(crate) fn with<T>(&self, mut run: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        match run() {
            // Between its release and its use another thread may get it: then the next one.
            Err(mut e) => loop {
                if !is_exhausted(&e) || lock(&self.kept).pop().is_none() {
                    break Err(e);
                }
                match run() {
                    Ok(done) => break Ok(done),
                    Err(again) => e = again,
                }
            },
            done => done,
        }
    }

    /// Opens what `open` opens.
    pub(crate) fn open(self: &Arc<Self>, open: impl FnMut() -> io::Result<File>) -> io::Result<Opened> {
        Ok(Opened { file: Some(self.with(open)?), reserve: self.clone() })
    }

    /// Takes what is missing, if it is to be had. False: there is no descriptor left beside these.
    pub(crate) fn refill(&self) -> bool {
        let mut kept = lock(&self.kept);
        loop {
            match File::open(NOTHING) {
                Ok(nothing) if kept.len() < self.most => kept.push(nothing),
                Ok(_) => return true,
                Err(e) => return !is_exhausted(&e),
            }
        }
    }

    /// Keeps a descriptor that is not needed any more, if one is missing: closed, the next
    /// connection would have it.
    fn give_back(&self, file: File) {
        let mut kept = lock(&self.kept);
        if kept.len() < self.most {
            kept.push(file);
        }
    }
}

/// Whether it is for want of descriptors, which passes.
pub(crate) fn is_exhausted(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl Deref for Opened {
    type Target = File;

    fn deref(&self) -> &File {
        // It is there until it is dropped.
        self.file.as_ref().unwrap_or_else(|| unreachable!("open until it is dropped"))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.reserve.give_back(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exhausted() -> io::Error {
        io::Error::from_raw_os_error(libc::EMFILE)
    }

    #[test]
    fn what_is_kept_back_is_used_and_comes_back() {
        let reserve = DescriptorReserve::new(2);
        let kept = |reserve: &DescriptorReserve| lock(&reserve.kept).len();
        assert_eq!(kept(&reserve), 2);
        // With a descriptor to be had, none of these is touched.
        let file = reserve.open(|| File::open(NOTHING)).expect("opened");
        assert_eq!(kept(&reserve), 2);
        // Without, one after the other, until there is none.
        let mut tries = 0;
        let scarce = |tries: &mut i32| {
            *tries += 1;
            if *tries % 2 == 1 { Err(exhausted()) } else { File::open(NOTHING) }
        };
        let second = reserve.open(|| scarce(&mut tries)).expect("opened");
        let third = reserve.open(|| scarce(&mut tries)).expect("opened");
        assert_eq!(kept(&reserve), 0);
        assert!(reserve.open(|| Err(exhausted())).is_err_and(|e| is_exhausted(&e)));
        drop((file, second, third));
        assert_eq!(kept(&reserve), 2);
        // Another error is no reason.
        assert!(reserve.with(|| Err::<(), _>(io::Error::from_raw_os_error(libc::ENOENT))).is_err());
        assert_eq!(kept(&reserve), 2);
        // One that others have got in between is lost, until there are more.
        let mut left = 2;
        let lost = reserve.with(|| {
            if left == 0 {
                Ok(())
            } else {
                left -= 1;
                Err(exhausted())
            }
        });
        assert!(lost.is_ok());
        assert_eq!(kept(&reserve), 0);
        assert!(reserve.refill(), "there are more");
        assert_eq!(kept(&reserve), 2);
    }
}
