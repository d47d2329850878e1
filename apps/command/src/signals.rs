//! The end that a user or a supervisor requests, from the keyboard or by SIGTERM.

use crate::failure::{Exit, Failure};
use crate::output::Output;

/// Ctrl-C, or SIGTERM.
pub async fn interrupted() {
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
pub fn obey_the_second_interrupt() {
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
pub async fn unless_interrupted(job: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    tokio::select! {
        done = job => done,
        () = interrupted() => Err(Failure::new(Exit::Interrupted, "interrupted", "interrupted")),
    }
}

/// Ends at the first Ctrl-C or SIGTERM. The second ends the process.
pub fn stop_signal(output: &Output) -> Result<impl Future<Output = ()> + use<>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let bad = |e: std::io::Error| Failure::new(Exit::Failed, "local", format!("signals: {e}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(bad)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(bad)?;
    let output = output.clone();
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if !output.json {
            output.note("ending: answers that have begun are finished; again to end at once");
        }
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            std::process::exit(Exit::Interrupted as i32);
        });
    })
}
