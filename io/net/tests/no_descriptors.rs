//! A failed query for a route is not the lack of one. Alone in its process, whose limit it changes.

#![cfg(all(target_os = "linux", not(feature = "shell")))]
#![allow(unsafe_code, reason = "limits are set by system calls")]

use neater_base::net::Net;
use neater_net::OsNet;
use std::os::fd::AsRawFd;

/// Allows so many descriptors; returns how many were allowed before.
fn limit(to: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls take a pointer to a `rlimit` that lives.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        let before = core::mem::replace(&mut limit.rlim_cur, to);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
        before
    }
}

#[test]
fn what_could_not_be_asked_for_want_of_descriptors_is_asked_again() {
    let mut net = OsNet::new().expect("a network");
    let (v4, to) = (net.source_for("127.0.0.1".parse().expect("literal")), "127.0.0.2".parse().expect("literal"));
    assert!(v4.is_some());
    let mut other = OsNet::new().expect("a network");
    let _ = other.interfaces();
    // The next would be this one.
    let free = std::fs::File::open("/dev/null").expect("there").as_raw_fd();
    let before = limit(free.try_into().expect("positive"));
    let without = other.source_for(to);
    limit(before);
    assert_eq!(without, None, "there was no descriptor for the question");
    assert!(other.source_for(to).is_some(), "there is one now");
}
