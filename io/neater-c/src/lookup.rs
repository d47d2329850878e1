//! Names that the program finds the addresses of.

use crate::border::{Failure, check_out, give_back, guard, guard_number, guard_or, object, text};
use crate::context::neater_context_options;
use crate::endpoint::address_of;
use crate::security::User;
use crate::status::neater_status;
use core::time::Duration;
use neater::Lookup;
use std::ffi::{CString, c_char, c_void};
use std::net::IpAddr;

/// The most addresses of an answer.
const ADDRESSES_MAX: usize = 128;

/// A name whose addresses the program is asked for.
pub struct neater_lookup {
    inner: Lookup,
    name: CString,
}

impl core::fmt::Debug for neater_lookup {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("neater_lookup")
    }
}

/// Called when connections wait for the addresses of a name, once for all of them, instead of name
/// servers (`names_by` of `neater_context_options`). Names of the hosts file and special ones
/// (`localhost`) are not asked for.
///
/// It is called from the thread that drives, and may call every function except those that drive.
/// It should not wait: `neater_lookup_answer` may come later, from any thread.
///
/// Ownership: the lookup is the program's, to be answered or given back.
pub type neater_lookup_fn = Option<unsafe extern "C" fn(lookup: *mut neater_lookup, user: *mut c_void)>;

/// What a context asks for names, if the program has given a function.
pub(crate) fn names_by(options: &neater_context_options) -> Option<impl Fn(Lookup) + Send + Sync + 'static> {
    let (ask, user) = (options.names_by?, User::new(options.names_user));
    Some(move |inner: Lookup| {
        let name = crate::border::c_text(inner.name());
        let lookup = Box::into_raw(Box::new(neater_lookup { inner, name }));
        // SAFETY: the program's own function, with what is its own from now on.
        unsafe { ask(lookup, user.get()) };
    })
}

/// The name, as the program wrote it. NULL for NULL.
///
/// Lifetime: until the lookup is answered or given back. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_lookup_name(lookup: *const neater_lookup) -> *const c_char {
    // SAFETY: the caller's promise.
    guard_or(core::ptr::null(), || Ok(unsafe { object(lookup, "lookup") }?.name.as_ptr()))
}

/// The index of the interface that the addresses are for; 0: any. Negative: an error.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_lookup_interface(lookup: *const neater_lookup) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        Ok(unsafe { object(lookup, "lookup") }?.inner.interface().unwrap_or(0).into())
    })
}

/// Answers with addresses as texts, 128 at most, and for how many milliseconds they hold for
/// further connections; 0: for those that wait now. They are tried in the order of RFC 6724. No
/// address at all means that there is no such name.
///
/// Ownership: after NEATER_OK the lookup is gone; after an error it is still the program's. The
/// texts are copied. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_lookup_answer(
    lookup: *mut neater_lookup,
    addresses: *const *const c_char,
    count: usize,
    lifetime_ms: u64,
) -> neater_status {
    guard(|| {
        check_out(lookup, "lookup")?;
        if count > ADDRESSES_MAX {
            return Err(Failure::argument("an answer has 128 addresses at most"));
        }
        let mut found: Vec<IpAddr> = Vec::with_capacity(count);
        if count > 0 {
            check_out(addresses.cast_mut(), "addresses")?;
        }
        for i in 0..count {
            // SAFETY: the caller's promise: there are `count` texts.
            found.push(address_of(unsafe { text(*addresses.add(i), "an address") }?)?);
        }
        // SAFETY: it came from `Box::into_raw`, and the caller gives it back once.
        let lookup = unsafe { Box::from_raw(lookup) };
        match found.as_slice() {
            [] => lookup.inner.no_such_name(),
            found => lookup.inner.answer(found, Duration::from_millis(lifetime_ms)),
        }
        Ok(())
    })
}

/// Gives a lookup back without an answer: the connections that wait for it have none either. NULL
/// is allowed. One that is kept for 30 seconds has failed, too, and is given back all the same.
///
/// Ownership: it is gone afterwards. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_lookup_free(lookup: *mut neater_lookup) {
    // SAFETY: it came from `Box::into_raw`, and the caller gives it back once.
    unsafe { give_back(lookup) };
}
