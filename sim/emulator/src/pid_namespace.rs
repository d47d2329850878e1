//! A process namespace for everything that runs in the hosts, so that nothing outlives the lab.
//!
//! The first process of a process namespace takes all others with it when it ends. Ours waits for the end of a pipe whose other
//! end only this process holds: when this process ends, killed or not, the kernel closes the pipe, the first process
//! ends, and the kernel kills all the rest, also what has put itself into the background.

use super::error::{Result, failed, last};
use super::sys;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// The namespace and its first process.
#[derive(Debug)]
pub struct PidNamespace {
    namespace: OwnedFd,
    init: libc::pid_t,
    /// Closed by the kernel at the latest when this process ends.
    _pipe: OwnedFd,
}

impl PidNamespace {
    /// A new namespace.
    ///
    /// # Errors
    /// The kernel or the user's rights do not allow it.
    pub fn new() -> Result<Self> {
        let mut ends = [-1; 2];
        // SAFETY: the pointer is to two live numbers.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return last("pipe");
        }
        let wait = sys::owned("pipe", ends[0].into())?;
        let hold = sys::owned("pipe", ends[1].into())?;
        let init = sys::on_thread(|| {
            sys::unshare(libc::CLONE_NEWPID)?;
            // SAFETY: the child calls nothing but async-signal-safe functions (see `first_process`) and never returns.
            match unsafe { libc::fork() } {
                0 => first_process(wait.as_raw_fd()),
                -1 => last("fork"),
                pid => Ok(pid),
            }
        })?;
        match fs::File::open(format!("/proc/{init}/ns/pid")) {
            Ok(file) => Ok(Self { namespace: file.into(), init, _pipe: hold }),
            Err(e) => {
                sys::kill(init, libc::SIGKILL);
                failed("the lab's process namespace", e)
            }
        }
    }

    /// Makes the children of the calling thread be born inside. The thread should then do nothing but start them.
    pub(crate) fn adopt_children(&self) -> Result<()> {
        sys::setns(&self.namespace, libc::CLONE_NEWPID)
    }

    /// The process id of the first process, which lives as long as the lab.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.init
    }
}

impl Drop for PidNamespace {
    fn drop(&mut self) {
        // The pid is still its own: nobody else waits for it.
        sys::kill(self.init, libc::SIGKILL);
        let mut status = 0;
        // SAFETY: the pointer is to a live number. The kernel lets this return when all in the namespace are gone.
        unsafe { libc::waitpid(self.init, &mut status, 0) };
    }
}

/// Waits until nobody holds the other end of the pipe. Only async-signal-safe functions here.
fn first_process(pipe: libc::c_int) -> ! {
    // SAFETY: a name with its terminating zero; numbers; a one-byte buffer that lives. All are async-signal-safe system calls.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"neater-lab-init".as_ptr());
        // Orphans are buried by the kernel; the terminal's interrupt is for the commands.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
        // Nothing else of the lab's is kept open here, least of all our own other end.
        libc::dup2(pipe, 0);
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
        let mut byte = 0u8;
        loop {
            let n = libc::read(0, (&raw mut byte).cast(), 1);
            if n >= 0 || *libc::__errno_location() != libc::EINTR {
                libc::_exit(0);
            }
        }
    }
}

/// Waits until a process that is not our child is gone; false when `limit` is over.
pub fn gone(pid: i32, limit: Duration) -> bool {
    sys::pidfd(pid).map_or(true, |fd| sys::readable(&fd, limit))
}
