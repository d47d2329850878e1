//! The end that a user or a supervisor requests, from the keyboard or by SIGTERM.

use crate::failure::{Exit, Failure};
use crate::output::Output;
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C, or SIGTERM, from this call on: one that comes before the first poll counts, too. To be
/// called in a runtime.
pub fn interrupted() -> impl Future<Output = ()> + use<> {
    let both = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let heard = async |of: io::Result<Signal>| match of {
        Ok(mut of) => {
            of.recv().await;
        }
        // Then the signal does what it does to any process.
        Err(_) => std::future::pending().await,
    };
    async move {
        let [interrupt, terminate] = both;
        tokio::select! {
            () = heard(interrupt) => {}
            () = heard(terminate) => {}
        }
    }
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
    let interrupted = interrupted();
    tokio::select! {
        done = job => done,
        () = interrupted => Err(Failure::new(Exit::Interrupted, "interrupted", "interrupted")),
    }
}

/// Ends at the first Ctrl-C or SIGTERM. The second ends the process.
pub fn stop_signal(output: &Output) -> Result<impl Future<Output = ()> + use<>, Failure> {
    let bad = |e: io::Error| Failure::new(Exit::Failed, "local", format!("signals: {e}"));
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
