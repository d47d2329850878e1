//! Reports of connections for which there was no room.

use crate::output::Output;
use core::convert::Infallible;
use core::time::Duration;
use neater::{Neater, Refusals};
use neater_http::TurnedAway;
use serde_json::json;

/// How often it is looked at what the transport has refused.
const EVERY: Duration = Duration::from_secs(10);

/// The server had no room.
pub(super) fn turned_away(now: TurnedAway, most: usize, output: &Output) {
    if output.json {
        let TurnedAway { refused, of_address, ended } = now;
        output.event(&json!({
            "event": "turned-away", "refused": refused, "of_address": of_address, "ended": ended, "max_connections": most,
        }));
    } else {
        output.note(&without_room(now, most));
    }
}

fn without_room(now: TurnedAway, most: usize) -> String {
    let TurnedAway { refused, of_address, ended } = now;
    let mut parts = Vec::new();
    if refused > 0 {
        parts.push(format!("{refused} connections were turned away"));
    }
    if ended > 0 {
        parts.push(format!("{ended} were ended for others"));
    }
    if refused > 0 {
        parts.push(format!("there may be {most} at once (--max-connections)"));
    } else if ended > 0 {
        // It is not known here which of them was short.
        parts.push(format!("there may be {most} at once (--max-connections), and each needs a descriptor (ulimit -n)"));
    }
    if of_address > 0 {
        parts.push(format!("{of_address} were turned away because of the bound for one address (--max-per-address)"));
    }
    parts.join("; ")
}

/// Reports what the transport refuses before the server knows of it.
pub(super) async fn watch_transport(neater: &Neater, output: &Output) -> Infallible {
    let mut known = neater.stats().refusals;
    loop {
        tokio::time::sleep(EVERY).await;
        let now = neater.stats().refusals;
        let news = now.since(&known);
        known = now;
        if news != Refusals::default() {
            if output.json {
                let counts: serde_json::Map<String, serde_json::Value> =
                    news.counts().into_iter().map(|(name, n)| (name.to_owned(), n.into())).collect();
                output.event(&json!({ "event": "transport-refused", "counts": counts }));
            } else {
                output.note(&format!("refused by the transport: {}", in_words(&news)));
            }
        }
    }
}

fn in_words(refusals: &Refusals) -> String {
    let some = refusals.counts().into_iter().filter(|(_, n)| *n > 0);
    some.map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_named_that_was_reached() {
        let one = TurnedAway { refused: 0, of_address: 0, ended: 0 };
        let refused = without_room(TurnedAway { refused: 2, ended: 1, ..one }, 7);
        assert!(refused.contains("2 connections were turned away") && refused.contains("7 at once"), "{refused}");
        assert!(!refused.contains("ulimit"), "{refused}");
        let ended = without_room(TurnedAway { ended: 1, ..one }, 7);
        assert!(ended.contains("--max-connections") && ended.contains("ulimit"), "{ended}");
        let of_address = without_room(TurnedAway { of_address: 1, ..one }, 7);
        assert!(of_address.contains("--max-per-address") && !of_address.contains("--max-connections"), "{of_address}");
    }

    #[test]
    fn what_was_refused_is_named_with_its_number_and_nothing_else() {
        let refusals = Refusals { handshakes: 3, streams: 1, ..Refusals::default() };
        assert_eq!(in_words(&refusals), "3 handshakes, 1 streams");
    }
}
