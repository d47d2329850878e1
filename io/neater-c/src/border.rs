//! The border itself: pointers, texts, sizes, panics, and the last error of a thread.
//!
//! *Responsible for* every look at memory of the program's. *Not responsible for* what is done with
//! it.

use crate::error::neater_error;
use crate::status::neater_status;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a function answers with an error.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The status is all there is.
    Status(neater_status),
    /// There is more than that.
    Full(Box<neater_error>),
}

impl Failure {
    pub(crate) fn new(status: neater_status, text: impl Into<String>) -> Self {
        Self::Full(Box::new(neater_error::new(status, text.into())))
    }

    /// An argument that cannot be used, and why.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(neater_status::NEATER_ERROR_INVALID_ARGUMENT, text)
    }

    fn status(&self) -> neater_status {
        match self {
            Self::Status(s) => *s,
            Self::Full(e) => e.status,
        }
    }

    /// Keeps it for `neater_last_error`.
    fn record(self) -> neater_status {
        let status = self.status();
        // A thread that ends asks no more.
        let _ = LAST.try_with(|last| *last.borrow_mut() = Some(self));
        status
    }

    pub(crate) fn into_error(self) -> Box<neater_error> {
        match self {
            Self::Status(s) => Box::new(neater_error::new(s, s.words().to_owned())),
            Self::Full(e) => e,
        }
    }
}

impl From<neater_status> for Failure {
    fn from(status: neater_status) -> Self {
        Self::Status(status)
    }
}

std::thread_local! {
    /// The error of the last function that failed on this thread.
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// The error of the last function that failed on this thread; NULL if none has.
///
/// Lifetime: until the next function of this library fails on this thread, or the thread ends. Not
/// to be freed. Thread: any; each thread has its own.
#[unsafe(no_mangle)]
pub extern "C" fn neater_last_error() -> *const neater_error {
    let found = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        let failure = last.take()?;
        let error = failure.into_error();
        let address: *const neater_error = &raw const *error;
        *last = Some(Failure::Full(error));
        Some(address)
    });
    found.ok().flatten().unwrap_or(core::ptr::null())
}

type Answer<T> = Result<T, Failure>;

fn run<T>(f: impl FnOnce() -> Answer<T>) -> Result<T, neater_status> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(failure)) => Err(failure.record()),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
            let text = format!("a bug in the library was stopped at its border: {text}");
            Err(Failure::new(neater_status::NEATER_ERROR_PANIC, text).record())
        }
    }
}

/// Runs what a function does; nothing but a status comes out.
pub(crate) fn guard(f: impl FnOnce() -> Answer<()>) -> neater_status {
    run(f).map_or_else(|status| status, |()| neater_status::NEATER_OK)
}

/// As [`guard`], for functions that answer with a number that is not negative, or with a status.
pub(crate) fn guard_number(f: impl FnOnce() -> Answer<i64>) -> i64 {
    run(f).unwrap_or_else(|status| status as i64)
}

/// As [`guard`], for functions that cannot answer with an error.
pub(crate) fn guard_or<T>(otherwise: T, f: impl FnOnce() -> Answer<T>) -> T {
    run(f).unwrap_or(otherwise)
}

/// Gives an object back that was given to the program by `Box::into_raw`. NULL is allowed.
///
/// # Safety
/// Nothing else uses it, and it is given back once.
pub(crate) unsafe fn give_back<T>(p: *mut T) {
    if !p.is_null() {
        guard_or((), || {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(p) });
            Ok(())
        });
    }
}

fn null(what: &str) -> Failure {
    Failure::argument(format!("{what} is NULL"))
}

/// # Safety
/// `p` is NULL, or points to a `T` that lives and is not changed while the result is used.
pub(crate) unsafe fn object<'a, T>(p: *const T, what: &str) -> Answer<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { p.as_ref() }.ok_or_else(|| null(what))
}

/// What the program has by a handle and the library may keep for longer.
pub(crate) trait Handle {
    /// Whether the program has given it back, and what its functions answer then.
    fn given_back(&self) -> Option<neater_status>;
}

/// As [`object`], of one that the program may have given back while the library still has it:
/// within the callback that gave it back, for example.
///
/// # Safety
/// As [`object`].
pub(crate) unsafe fn handle<'a, T: Handle>(p: *const T, what: &str) -> Answer<&'a T> {
    outside()?;
    // SAFETY: the caller's promise.
    let found = unsafe { object(p, what) }?;
    match found.given_back() {
        None => Ok(found),
        Some(status) => Err(Failure::new(status, format!("the {what} was given back"))),
    }
}

std::thread_local! {
    /// A function of the program's runs on this thread while the engine is at work.
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// Calls a function of the program's while the engine is at work: what it calls of the engine would
/// wait for itself.
pub(crate) fn within<R>(call: impl FnOnce() -> R) -> R {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            let _ = WITHIN.try_with(|w| w.set(self.0));
        }
    }
    let _back = Back(WITHIN.try_with(|w| w.replace(true)).unwrap_or(false));
    call()
}

/// That no such function is running on this thread.
pub(crate) fn outside() -> Answer<()> {
    match WITHIN.try_with(Cell::get) {
        Ok(true) => {
            let text = "a callback of a handshake must not call contexts and what is made from them";
            Err(Failure::new(neater_status::NEATER_ERROR_REENTRANT, text))
        }
        _ => Ok(()),
    }
}

/// # Safety
/// `p` is NULL, or points to a `T` that lives and is used by nothing else while the result is.
pub(crate) unsafe fn object_mut<'a, T>(p: *mut T, what: &str) -> Answer<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { p.as_mut() }.ok_or_else(|| null(what))
}

/// # Safety
/// `p` is NULL, or a text that ends with a zero byte and lives while the result is used.
pub(crate) unsafe fn text<'a>(p: *const c_char, what: &str) -> Answer<&'a str> {
    if p.is_null() {
        return Err(null(what));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(p) };
    bytes.to_str().map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
}

/// As [`text`], where NULL means nothing.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn optional_text<'a>(p: *const c_char, what: &str) -> Answer<Option<&'a str>> {
    if p.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { text(p, what) }.map(Some)
}

/// # Safety
/// `p` is NULL, or points to `length` bytes that live and are not changed while the result is used.
pub(crate) unsafe fn bytes<'a>(p: *const c_void, length: usize, what: &str) -> Answer<&'a [u8]> {
    if length == 0 {
        return Ok(&[]);
    }
    if p.is_null() {
        return Err(null(what));
    }
    if length > isize::MAX as usize {
        return Err(Failure::argument(format!("{what} is longer than memory can be")));
    }
    // SAFETY: the caller's promise; neither NULL nor too long.
    Ok(unsafe { core::slice::from_raw_parts(p.cast(), length) })
}

/// # Safety
/// `p` is NULL, or may be written to.
pub(crate) unsafe fn put<T>(p: *mut T, value: T, what: &str) -> Answer<()> {
    // SAFETY: the caller's promise.
    unsafe { check_out(p, what)?.write(value) };
    Ok(())
}

/// That something may be written to `p`, before it is made.
pub(crate) fn check_out<T>(p: *mut T, what: &str) -> Answer<*mut T> {
    if p.is_null() { Err(null(what)) } else { Ok(p) }
}

/// Writes a text as far as it fits, with a zero byte behind it; returns how long all of it is,
/// without that byte.
///
/// # Safety
/// `room` is 0, or `p` points to so many bytes that may be written.
pub(crate) unsafe fn put_text(p: *mut c_char, room: usize, text: &str) -> Answer<i64> {
    if room > 0 {
        let p = check_out(p, "the buffer")?;
        let mut fits = text.len().min(room - 1);
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        // SAFETY: `fits` is less than `room`, so many bytes may be written; the two do not overlap,
        // for `text` is ours.
        unsafe {
            core::ptr::copy_nonoverlapping(text.as_ptr(), p.cast::<u8>(), fits);
            p.add(fits).write(0);
        }
    }
    Ok(i64::try_from(text.len()).unwrap_or(i64::MAX))
}

/// A text for C: what stands behind a zero byte is cut off.
pub(crate) fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text.as_bytes()[..end]).unwrap_or_default()
}

/// A text in an array of fixed length, cut where it does not fit.
pub(crate) fn fixed_text<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    let mut fits = text.len().min(N - 1);
    while !text.is_char_boundary(fits) {
        fits -= 1;
    }
    for (to, from) in array.iter_mut().zip(&text.as_bytes()[..fits]) {
        *to = *from as c_char;
    }
    array
}

/// A struct whose first field is its size, so that later versions can be longer.
///
/// # Safety
/// It is `repr(C)`, its first field is a `usize`, and zero bytes are a value of it.
pub(crate) unsafe trait Versioned: Copy {
    /// How long it was in the first version of the header.
    const FIRST: usize;
}

/// How much of a struct a newer program may have that this library does not know.
const NEWEST: usize = 4096;

/// Reads a struct that may be of an older or newer version; `None` for NULL.
///
/// # Safety
/// `p` is NULL, or points to as many bytes as its first field states.
pub(crate) unsafe fn read_sized<T: Versioned>(p: *const T) -> Answer<Option<T>> {
    const { assert!(T::FIRST <= size_of::<T>(), "a struct does not become shorter") };
    if p.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise, and `Versioned`'s: it begins with its size.
    let size = unsafe { p.cast::<usize>().read() };
    if !(T::FIRST..=NEWEST).contains(&size) {
        return Err(neater_status::NEATER_ERROR_SIZE.into());
    }
    let known = size.min(size_of::<T>());
    // SAFETY: the caller's promise: there are `size` bytes.
    let unknown = unsafe { core::slice::from_raw_parts(p.cast::<u8>().add(known), size - known) };
    if unknown.iter().any(|b| *b != 0) {
        return Err(neater_status::NEATER_ERROR_SIZE.into());
    }
    let mut value = core::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: `known` bytes are there and fit; zero bytes for the rest are a value of `T`, as
    // `Versioned` promises.
    unsafe {
        core::ptr::copy_nonoverlapping(p.cast::<u8>(), value.as_mut_ptr().cast::<u8>(), known);
        Ok(Some(value.assume_init()))
    }
}

/// That a struct of the program's has a size that can be answered into.
///
/// # Safety
/// `p` is NULL, or begins with a `usize`.
pub(crate) unsafe fn check_sized<T: Versioned>(p: *const T, what: &str) -> Answer<usize> {
    const { assert!(T::FIRST <= size_of::<T>(), "a struct does not become shorter") };
    if p.is_null() {
        return Err(null(what));
    }
    // SAFETY: the caller's promise.
    let size = unsafe { p.cast::<usize>().read() };
    if !(T::FIRST..=NEWEST).contains(&size) {
        return Err(neater_status::NEATER_ERROR_SIZE.into());
    }
    Ok(size)
}

/// Writes a struct into one that may be of an older or newer version, whose `size` stays.
///
/// # Safety
/// `p` is NULL, or points to as many bytes as its first field states, which may be written.
pub(crate) unsafe fn write_sized<T: Versioned>(p: *mut T, value: &T, what: &str) -> Answer<()> {
    // SAFETY: the caller's promise.
    let size = unsafe { check_sized(p.cast_const(), what)? };
    let known = size.min(size_of::<T>());
    let head = size_of::<usize>();
    // SAFETY: there are `size` bytes to write, of which `known` are ours to give; the two do not
    // overlap.
    unsafe {
        let (to, from) = (p.cast::<u8>(), core::ptr::from_ref(value).cast::<u8>());
        core::ptr::copy_nonoverlapping(from.add(head), to.add(head), known - head);
        core::ptr::write_bytes(to.add(known), 0, size - known);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Options {
        size: usize,
        first: u64,
        second: u64,
    }

    // SAFETY: `repr(C)`, begins with its size, and zeros are a value.
    unsafe impl Versioned for Options {
        const FIRST: usize = 16;
    }

    fn status<T>(answer: Answer<T>) -> neater_status {
        answer.map_or_else(|f| f.status(), |_| neater_status::NEATER_OK)
    }

    #[test]
    fn older_and_newer_structs_are_read() {
        #[repr(C)]
        struct Newer {
            known: Options,
            more: u64,
        }
        let size = size_of::<Newer>();
        let mut newer = Newer { known: Options { size, first: 1, second: 2 }, more: 0 };
        // SAFETY: it has as many bytes as it states.
        let read = |p: *const Newer| unsafe { read_sized::<Options>(p.cast()) };
        assert_eq!(read(&raw const newer).ok().flatten().map(|o| o.second), Some(2));
        newer.more = 7;
        assert_eq!(status(read(&raw const newer)), neater_status::NEATER_ERROR_SIZE, "what is not known is asked for");
        newer.known.size = 16;
        assert_eq!(read(&raw const newer).ok().flatten().map(|o| (o.first, o.second)), Some((1, 0)), "an older one");
        for size in [0, 8, 15, usize::MAX] {
            newer.known.size = size;
            assert_eq!(status(read(&raw const newer)), neater_status::NEATER_ERROR_SIZE, "{size}");
        }
    }

    #[test]
    fn what_is_written_ends_where_an_older_struct_does() {
        let mut out = Options { size: 16, first: 0, second: 9 };
        let value = Options { size: size_of::<Options>(), first: 1, second: 2 };
        // SAFETY: it has as many bytes as it states, and more.
        unsafe { write_sized(&raw mut out, &value, "out") }.expect("fits");
        assert_eq!((out.size, out.first, out.second), (16, 1, 9));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut room = [1 as c_char; 4];
        // SAFETY: four bytes may be written.
        let n = unsafe { put_text(room.as_mut_ptr(), room.len(), "ab\u{e4}") }.expect("written");
        assert_eq!((n, room), (4, [b'a' as c_char, b'b' as c_char, 0, 1]));
        // SAFETY: nothing is written.
        assert_eq!(unsafe { put_text(core::ptr::null_mut(), 0, "abc") }.ok(), Some(3));
        assert_eq!(fixed_text::<3>("a\u{e4}"), [b'a' as c_char, 0, 0]);
    }

    #[test]
    fn a_panic_becomes_an_error_with_its_words() {
        let status = guard(|| panic!("of the test"));
        assert_eq!(status, neater_status::NEATER_ERROR_PANIC);
        // SAFETY: it was recorded on this thread and nothing has failed since.
        let error = unsafe { &*neater_last_error() };
        assert!(error.text.to_string_lossy().contains("of the test"));
    }
}
