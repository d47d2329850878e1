//! What may stand on the command lines of several programs, and of those that `neater` executes.

use crate::failure::Failure;
use clap::Args;
use neater_policy::manager::{Limits, MAX_CANDIDATES};
use std::path::PathBuf;

/// The exit codes, for help.
pub const EXITS: &str = "Exit codes:
  0  everything was done
  1  no connection, or a transfer failed
  2  the command line makes no sense, or asks for what cannot be
  3  some of several files failed
  4  a local file or disk
  5  the server answered with a status of 400 or more
  6  security: a certificate is not acceptable
130  interrupted, from the keyboard or by SIGTERM

Looking for faults: SSLKEYLOGFILE=FILE writes the keys of all sessions there, for tools that read
what was captured; NEATER_QLOG=DIR, or --qlog DIR, a qlog of each QUIC connection.";

/// What every program takes.
#[derive(Clone, Debug, Default, Args)]
pub struct Globals {
    /// One JSON object per line instead of text; `event` names its kind
    #[arg(long, global = true)]
    pub json: bool,
    /// Print every step of establishment on standard error, as it happens; of serve, every request
    /// and every rejected client
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// What the library logs, as in RUST_LOG: `debug`, `neater::race=debug`. The variables
    /// NEATER_LOG and RUST_LOG do the same
    #[arg(long, global = true, value_name = "FILTER")]
    pub log: Option<String>,
}

/// Reads a positive time in seconds.
///
/// # Errors
/// What is wanted instead.
pub fn seconds(text: &str) -> Result<core::time::Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is wanted, such as 2.5".to_owned())?;
    if !(0.001..=86_400.0).contains(&seconds) {
        return Err("from 0.001 to 86400 seconds".into());
    }
    Ok(core::time::Duration::from_secs_f64(seconds))
}

/// Which tables count.
#[derive(Clone, Debug, Default, Args)]
pub struct TableArgs {
    /// A folder of .policy and .profile files
    #[arg(long, value_name = "DIR")]
    pub pib: Option<PathBuf>,
    /// A folder of .cib files, read with the folders in it
    #[arg(long, value_name = "DIR")]
    pub cib: Option<PathBuf>,
    /// Without the profiles and policies that come with neater
    #[arg(long)]
    pub bare: bool,
    /// How many candidates of each lookup in the CIB are kept
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rows: usize,
    /// How many candidates are kept in the end
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub candidates: usize,
}

impl TableArgs {
    /// How many candidates are kept.
    ///
    /// # Errors
    /// A number is none of these.
    pub fn limits(&self) -> Result<Limits, Failure> {
        let most = 1..=MAX_CANDIDATES;
        if !most.contains(&self.rows) || !most.contains(&self.candidates) {
            return Err(Failure::usage(format!("--rows and --candidates are from 1 to {MAX_CANDIDATES}")));
        }
        Ok(Limits { rows: self.rows, candidates: self.candidates })
    }
}

const PM_HELP: &str = "Examples:
  neater pm --pib /etc/neater/pib --cib /etc/neater/cib
  neater pm --sock /run/neater --shared --no-rest
  neater pm --source /run/modem.json --source https://site.example/cib.json --source-every 5
  curl http://127.0.0.1:45888/cib/rows
  curl -X PUT -H \"Authorization: Bearer $(cat ~/.neat/rest_token)\" -H 'Content-Type: application/json' \\
       -d '{\"match\": {}, \"properties\": {\"dscp\": {\"value\": 10}}}' http://127.0.0.1:45888/pib/site

The folders are looked at every second, and read when something changed; a file that is broken is
reported, and its earlier content stays in force. What a user sends over the sockets applies to that
user alone; what root, the daemon's user or a client with the token sends applies to all users.
docs/policy.md describes the rest, and how to run it as a service.

JSON events: managing, loaded, interfaces, domains, provisioning, source, fault, failed, stopped;
with -v also refused.";

#[derive(Debug, Args)]
#[expect(missing_docs, reason = "the help of the subcommand describes them")]
#[command(after_help = PM_HELP, after_long_help = format!("{PM_HELP}\n\n{EXITS}"))]
pub struct PmArgs {
    #[command(flatten)]
    pub tables: TableArgs,
    /// The folder for neat_pm_socket, neat_pib_socket, neat_cib_socket, neater_metadata_socket and
    /// rest_token. Default: ~/.neat
    #[arg(long, value_name = "DIR")]
    pub sock: Option<PathBuf>,
    /// Do not start while a file of --pib or --cib cannot be used: its content would not apply.
    /// While the manager runs, a file that becomes invalid leaves its earlier content in force
    #[arg(long)]
    pub strict: bool,
    /// Let every user of this host come to the sockets, as is the rule for root; otherwise only the
    /// daemon's
    #[arg(long)]
    pub shared: bool,
    /// Where REST listens: an address of this host alone. Port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:45888", conflicts_with = "no_rest")]
    pub rest: std::net::SocketAddr,
    /// No REST
    #[arg(long)]
    pub no_rest: bool,
    /// A file or URL (http, https) with nodes of the CIB: an object or a list, read periodically.
    /// Each answer replaces the one before; the nodes expire when three requests in a row have
    /// failed; may be given up to 16 times
    #[arg(long, value_name = "FILE|URL")]
    pub source: Vec<String>,
    /// Seconds from one look at the sources to the next
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub source_every: core::time::Duration,
    /// Trust these authorities (PEM) instead of the system's, for sources of https
    #[arg(long, value_name = "FILE", requires = "source")]
    pub source_ca: Option<PathBuf>,
    /// What this user sends applies to all users, as from root: for example, a program that reports
    /// modems under a user of its own. A name or a number; may be given several times. It reaches
    /// the sockets only with --shared
    #[arg(long, value_name = "USER")]
    pub trust_user: Vec<String>,
    /// Do not report the interfaces of this host: only files and programs fill the CIB
    #[arg(long)]
    pub no_interfaces: bool,
    /// Do not receive provisioning domains from routers (RFC 8801), which takes root or CAP_NET_RAW
    #[arg(long)]
    pub no_pvd: bool,
    /// The authorities of the servers of provisioning domains, in place of the system's:
    /// certificates in PEM
    #[arg(long, value_name = "FILE")]
    pub pvd_ca: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_positive_numbers_of_seconds() {
        assert_eq!(seconds("2.5"), Ok(core::time::Duration::from_millis(2500)));
        for bad in ["0", "-1", "nan", "inf", "1e9", "soon"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
