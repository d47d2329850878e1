//! The report of a running transfer on its paths: to `neater paths`, and to programs where there
//! are several.

use crate::output::Output;
use crate::paths::{object, status};
use core::time::Duration;
use neater_http::Paths;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Shorter transfers report nothing.
const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(500);

/// While it lives the paths are reported.
#[derive(Debug)]
pub(super) struct Live {
    written: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Live {
    pub(super) fn begin(
        output: &Output,
        url: &str,
        over: &str,
        (written, total): (u64, Option<u64>),
        paths: Paths,
    ) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let (output, url, over) = (output.clone(), url.to_owned(), over.to_owned());
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let now = Arc::new(AtomicU64::new(written));
        let bytes = now.clone();
        let task = tokio::spawn(async move {
            let mut course = status::Course::new(Instant::now(), written);
            tokio::time::sleep(FIRST).await;
            let mut file = status::folder().and_then(|folder| status::File::new(&folder, number).ok());
            loop {
                let (paths, bytes) = (paths.now(), bytes.load(Ordering::Relaxed));
                let several = paths.len() > 1;
                let status = object(&url, &over, (bytes, total), course.look(Instant::now(), bytes, &paths));
                if output.json && several {
                    output.event(&status);
                }
                // Where nothing can be written nothing is.
                file = file.filter(|f| f.write(&status).is_ok());
                tokio::time::sleep(EVERY).await;
            }
        });
        Self { written: now, task }
    }

    pub(super) fn at(&self, written: u64) {
        self.written.store(written, Ordering::Relaxed);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.task.abort();
    }
}
