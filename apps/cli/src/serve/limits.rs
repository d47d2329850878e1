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
    let TurnedAway { refused, of_address, ended } = now;
    if output.json {
        output.event(&json!({
            "event": "turned-away", "refused": refused, "of_address": of_address, "ended": ended, "max_connections": most,
        }));
        return;
    }
    let mut parts = Vec::new();
    if refused > 0 {
        parts.push(format!("{refused} connections were turned away"));
    }
    if ended > 0 {
        parts.push(format!("{ended} were ended for others"));
    }
    if refused + ended > 0 {
        parts.push(format!("there may be {most} at once (--max-connections)"));
    }
    if of_address > 0 {
        parts.push(format!("{of_address} were turned away because of the bound for one address (--max-per-address)"));
    }
    output.note(&parts.join("; "));
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
    fn what_was_refused_is_named_with_its_number_and_nothing_else() {
        let refusals = Refusals { handshakes: 3, streams: 1, ..Refusals::default() };
        assert_eq!(in_words(&refusals), "3 handshakes, 1 streams");
    }
}
