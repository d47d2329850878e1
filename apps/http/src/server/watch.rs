//! Whether a connection is still of use.

use crate::lock;
use core::time::Duration;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// The last time that anything went on on a connection.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    last: Arc<Mutex<Instant>>,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self { last: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Something goes on.
    pub(crate) fn touch(&self) {
        *lock(&self.last) = Instant::now();
    }

    /// Ends when nothing has gone on for so long.
    pub(crate) async fn idle_for(&self, limit: Duration) {
        loop {
            let until = *lock(&self.last) + limit;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn activity_puts_the_end_off() {
        let activity = Activity::new();
        let started = Instant::now();
        let watcher = activity.clone();
        let end = tokio::spawn(async move { watcher.idle_for(Duration::from_secs(10)).await });
        tokio::time::sleep(Duration::from_secs(7)).await;
        activity.touch();
        end.await.expect("watched");
        assert_eq!(started.elapsed().as_secs(), 17);
    }
}
