//! `neater paths`: what the paths of running transfers do.
//!
//! *Responsible for* looking again and again, and for what people and programs read. *Not
//! responsible for* what transfers write ([`status`]).

pub(crate) mod status;

use crate::args::PathsArgs;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use serde_json::{Value, json};
use std::io::IsTerminal;

/// Clears the screen from the top.
const AGAIN: &str = "\x1b[H\x1b[J";

pub(crate) async fn run(args: PathsArgs, output: &Output) -> Result<Exit, Failure> {
    let Some(folder) = status::folder() else {
        return Err(Failure::new(
            Exit::Failed,
            "local",
            "there is no folder in which transfers could report their paths",
        )
        .advise("set XDG_RUNTIME_DIR, for `neater get` as well"));
    };
    let redraws = !output.json && !args.once && std::io::stdout().is_terminal();
    let mut any = false;
    loop {
        let running = status::running(&folder).map_err(|e| Failure::file("read", &folder, &e))?;
        if running.is_empty() && (any || args.once || !args.wait) {
            if !any {
                output.report(
                    "none",
                    None,
                    "no transfer is running: `neater get` with a transfer of a second or more is one",
                );
            }
            return Ok(if any { Exit::Ok } else { Exit::Failed });
        }
        any |= !running.is_empty();
        if redraws && any {
            output.raw(AGAIN.as_bytes())?;
        }
        for transfer in &running {
            if output.json {
                output.event(transfer);
            } else {
                text(transfer).iter().for_each(|line| output.line(line));
            }
        }
        if args.once {
            return Ok(Exit::Ok);
        }
        tokio::time::sleep(args.interval).await;
    }
}

/// A transfer and its paths, for people.
fn text(transfer: &Value) -> Vec<String> {
    let word = |of: &Value, name: &str| of[name].as_str().unwrap_or("?").to_owned();
    let rate = |of: &Value| of["bytes_per_second"].as_f64().unwrap_or(0.0) * 8e-6;
    let mega = |of: &Value| of.as_f64().unwrap_or(0.0) / 1e6;
    let total = if transfer["total"].is_u64() { format!(" of {:.1}", mega(&transfer["total"])) } else { String::new() };
    let mut lines = vec![format!(
        "{}: {}, {:.1}{total} MB, {:.2} Mbit/s",
        word(transfer, "url"),
        word(transfer, "over"),
        mega(&transfer["bytes"]),
        rate(transfer),
    )];
    for path in transfer["paths"].as_array().into_iter().flatten() {
        let rtt = path["rtt_ms"].as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
        let address = word(path, "local");
        let address = address.rsplit_once(':').map_or(&*address, |(host, _)| host);
        // That it carries data is what is expected of one that is in use.
        let why =
            path["why"].as_str().filter(|why| *why != "carries data").map_or(String::new(), |w| format!("  ({w})"));
        lines.push(format!(
            "  {:<12} {address:<24} {:<18} {:>8.2} Mbit/s {:>4.0} %  rtt {rtt:<10} lost {} of {}{why}",
            path["interface"].as_str().unwrap_or("-"),
            word(path, "state"),
            rate(path),
            path["share"].as_f64().unwrap_or(0.0) * 100.0,
            path["lost"],
            path["sent"],
        ));
    }
    lines
}

/// What a transfer writes: its address, what it goes over, how far it is, and its paths.
pub(crate) fn object(
    url: &str,
    over: &str,
    (bytes, total): (u64, Option<u64>),
    (rate, paths): (u64, Vec<Value>),
) -> Value {
    json!({
        "event": "paths", "url": url, "over": over, "bytes": bytes, "total": total, "bytes_per_second": rate, "paths": paths,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_a_line_and_each_path_is_one() {
        let path = json!({
            "interface": "wlan0", "local": "[2001:db8::1]:4", "state": "in use", "rtt_ms": 20.06, "bytes_per_second": 1_250_000,
            "share": 0.5, "lost": 3, "sent": 40,
        });
        let lines =
            text(&object("http://h/f", "HTTP/1.1 over SCTP", (1_500_000, Some(4_000_000)), (2_500_000, vec![path])));
        assert_eq!(lines[0], "http://h/f: HTTP/1.1 over SCTP, 1.5 of 4.0 MB, 20.00 Mbit/s");
        assert_eq!(
            lines[1],
            "  wlan0        [2001:db8::1]            in use                10.00 Mbit/s   50 %  rtt 20.1 ms    lost 3 of 40"
        );
        let idle = json!({"state": "in use", "why": "faster ones suffice", "lost": 0, "sent": 0});
        let lines = text(&object("http://h/f", "HTTP/1.1 over SCTP", (0, None), (0, vec![idle])));
        assert!(lines[1].ends_with("lost 0 of 0  (faster ones suffice)"), "{}", lines[1]);
        // What is no such object is shown as far as it goes.
        assert_eq!(text(&json!({"paths": [7]})).len(), 2);
    }
}
