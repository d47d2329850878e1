//! The end that a user or a supervisor requests, from the keyboard or by SIGTERM.

use crate::failure::{Exit, Failure};

/// Ctrl-C, or SIGTERM.
pub(crate) async fn interrupted() {
    #[cfg(unix)]
    if let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        return;
    }
    let _ = tokio::signal::ctrl_c().await;
}

/// The second Ctrl-C ends the process, whatever it is waiting for. The first is for
/// [`interrupted`].
pub(crate) fn obey_the_second_interrupt() {
    tokio::spawn(async {
        for _ in 0..2 {
            if tokio::signal::ctrl_c().await.is_err() {
                return;
            }
        }
        std::process::exit(Exit::Interrupted as i32);
    });
}

/// A job that has printed its results when it is interrupted, and has nothing to keep.
pub(crate) async fn unless_interrupted(job: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    tokio::select! {
        done = job => done,
        () = interrupted() => Err(Failure::new(Exit::Interrupted, "interrupted", "interrupted")),
    }
}
