//! The establishment of a connection is reported to the program and to `tracing` in the same words.

use crate::common::{loopback, security};
use neater::{Event, Neater, Stack};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

/// Keeps the log lines of races.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<String>>>);

struct Words<'a>(&'a mut String);

impl Visit for Words<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            *self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "neater::race"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut words = String::new();
        event.record(&mut Words(&mut words));
        self.0.lock().expect("nobody panics").push(words);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn tracing_hears_what_the_program_hears_also_when_an_outcome_is_remembered() {
    let heard = Listener::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tracing::subscriber::with_default(heard.clone(), || {
        runtime.block_on(async {
            let neater = Neater::new().expect("engine");
            let (client, server) = security();
            let stacks = [Stack::Quic, Stack::Tls];
            let listener = neater.preconnection().security(server).stacks(&stacks).local(loopback(0)).listen();
            let listener = listener.expect("listening");
            let take = || std::mem::take(&mut *heard.0.lock().expect("nobody panics"));
            for cached in [false, true] {
                take();
                let told = Arc::new(Mutex::new(Vec::new()));
                let keep = told.clone();
                let pre = neater.preconnection().security(client.clone()).stacks(&stacks);
                let pre = pre.remote(loopback(listener.port())).on_event(move |event: &Event| {
                    if let Event::Timeline(entry) = event {
                        keep.lock().expect("nobody panics").push(entry.step.to_string());
                    }
                });
                let connection = pre.initiate().await.expect("connected");
                let (told, heard) = (told.lock().expect("nobody panics").clone(), take());
                assert_eq!(told, heard, "cached: {cached}");
                let has = |word: &str| heard.iter().any(|line| line.contains(word));
                assert!(has("established"), "{heard:?}");
                assert_eq!(has("worked before"), cached, "{heard:?}");
                // Without a handler of events, tracing gets the same.
                let silent = neater.preconnection().security(client.clone()).stacks(&stacks);
                if cached {
                    let again = silent.remote(loopback(listener.port())).initiate().await.expect("connected");
                    assert_eq!(take(), told);
                    again.abort();
                }
                connection.abort();
            }
        });
    });
}
