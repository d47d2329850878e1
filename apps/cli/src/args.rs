//! What may stand on the command line.

use clap::{Args, Parser, Subcommand};
use neater_command::Globals;
use neater_command::args::{EXITS, PmArgs, TableArgs, seconds};
use std::path::PathBuf;

/// Transport services: state what you need from the network, neater finds how.
#[derive(Debug, Parser)]
#[command(name = "neater", version, arg_required_else_help = true, after_help = EXITS, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Fetch URLs over HTTP/3, HTTP/2 or HTTP/1.1, whichever the race brings
    Get(Box<GetArgs>),
    /// Serve a folder over HTTP/3, HTTP/2 and HTTP/1.1 on one port number
    Serve(ServeArgs),
    /// Show which transports could serve, in which order, and why; try them with --try
    Explain(ExplainArgs),
    /// How long TCP takes to connect, by each interface that leads to a host
    Ping(PingArgs),
    /// What the paths of running transfers of `neater get` carry, live
    Paths(PathsArgs),
    /// From which addresses the system opens further paths below TCP (MPTCP)
    Mptcp(MptcpArgs),
    /// Look at policies: check files, explain a decision, run tests
    Policy(PolicyArgs),
    /// Manage policies for the programs of this host: NEAT's sockets, and REST
    Pm(PmArgs),
    /// Experiments that measure transports: runs the program neater-lab
    Lab(LabArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  neater completions bash > ~/.local/share/bash-completion/completions/neater")]
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages, one for each command, into a directory
    #[command(after_help = "Example:\n  neater man ~/.local/share/man/man1 && man neater-get")]
    Man {
        /// Where they go; it is made if it is not there
        directory: PathBuf,
    },
}

/// What is asked of connections.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "What is asked of the transport")]
pub(crate) struct ConnectArgs {
    /// Words or RFC 9622 properties: "reliable, low-delay, multistreaming=avoid"
    #[arg(long, value_name = "WORDS")]
    pub(crate) needs: Option<String>,
    /// Only these transports: TCP, TLS, QUIC, SCTP (over UDP, or over DTLS for https), SCTP/IP
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    pub(crate) transport: Vec<String>,
    /// The server's UDP port for SCTP. Default: 9899
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) udp_port: Option<u16>,
    /// Come from this interface (eth0), or from this address of this host, and from no other
    #[arg(long, value_name = "NAME|ADDRESS")]
    pub(crate) interface: Option<String>,
    /// Only IPv4
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    pub(crate) ipv4: bool,
    /// Only IPv6
    #[arg(short = '6', long)]
    pub(crate) ipv6: bool,
    /// Trust these authorities (PEM) instead of the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Accept only a certificate with this SHA-256; without --ca the pin is all that is looked at
    #[arg(long, value_name = "SHA256")]
    pub(crate) pin: Vec<String>,
    /// Accept any certificate: any host on the path can read and change what is sent. Each use
    /// prints a warning
    #[arg(short = 'k', long, conflicts_with_all = ["ca", "pin"])]
    pub(crate) insecure: bool,
    /// Another resolver configuration than /etc/resolv.conf
    #[arg(long, value_name = "FILE")]
    pub(crate) resolv_conf: Option<PathBuf>,
    /// Another hosts file than /etc/hosts
    #[arg(long, value_name = "FILE")]
    pub(crate) hosts: Option<PathBuf>,
    /// Ask the system's resolver (getaddrinfo) instead of name servers: what nsswitch.conf names
    /// counts, such as multicast DNS; HTTPS records are not asked for then
    #[arg(long, conflicts_with_all = ["resolv_conf", "hosts"])]
    pub(crate) system_names: bool,
    /// Policies, profiles and CIB files of this folder instead of those of NEATER_POLICY,
    /// /etc/neater/policy and ~/.config/neater/policy; may be given more than once, later folders
    /// count more
    #[arg(long, value_name = "DIR")]
    pub(crate) policy: Vec<PathBuf>,
    /// No policies at all
    #[arg(long, conflicts_with = "policy")]
    pub(crate) no_policy: bool,
    /// Do not start while a file of policies cannot be used: its policies would not apply
    #[arg(long, conflicts_with = "no_policy")]
    pub(crate) strict_policies: bool,
    /// A property for policies to look at, such as profile=bulk or flow_size=20000000; a profile
    /// must be one that there is
    #[arg(long, value_name = "NAME=VALUE", value_parser = property, conflicts_with = "no_policy")]
    pub(crate) property: Vec<(String, String)>,
    /// Seconds that establishment may take, and that nothing may come after that. Default:
    /// establishment as long as its candidates need, silence 60
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: Option<core::time::Duration>,
    /// Write a qlog of each QUIC connection to this folder; NEATER_QLOG names one, too
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
    /// Neither use nor keep what earlier runs have found to work and not to work, which is else in
    /// ~/.cache/neater/outcomes
    #[arg(long)]
    pub(crate) no_cache: bool,
}

fn property(text: &str) -> Result<(String, String), String> {
    let wrong = || "a name and a value are wanted, such as profile=bulk".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let (name, value) = (name.trim(), value.trim());
    match name.to_ascii_lowercase().as_str() {
        "" => Err(wrong()),
        // The connection's own properties, which are not stated beside it.
        "transport" | "security" | "interface" | "pvd" | "app" | "port" | "domain_name" | "remote_ip" => {
            Err(format!("{name} is the connection's own: set it with --needs, --transport or the URL"))
        }
        _ => Ok((name.to_owned(), value.to_owned())),
    }
}

const GET_HELP: &str = "Examples:
  neater get -O https://example.com/big.iso        save under the remote name
  neater get -C -O https://example.com/big.iso     resume where an earlier run ended
  neater get https://example.com/ | less           one URL, to standard output
  neater get --output-dir music https://h/a.flac https://h/b.flac
  neater get --output-dir music --input-file list.txt
  neater get -I https://example.com/                    its head: status and fields
  neater get -d 'a=1' -d @more https://example.com/form
  neater get -r 0-99 -o head https://example.com/file   its first 100 bytes
  neater get --needs low-delay -v https://example.com/
  neater get --multi -O https://example.com/big.iso     by all interfaces at once
  neater get --interface wlan0 -6 https://example.com/  by this one, over IPv6
  neater get --transport sctp http://localhost:8080/file
  neater get -x proxy.lan:3128 --noproxy .lan -O https://example.com/a
  neater get --ca cert.pem https://localhost:4433/file
  neater get --json -O https://example.com/a       for programs

Data is written to FILE.part, and renamed when it is complete. When a connection breaks, neater asks
for the rest, three times, and as often again whenever a further MiB has come; but only from servers
that send parts, and that show by an ETag or a date whether the file is still the same. What an
earlier run left in FILE.part is continued if the server vouches that the file is still the same,
and given up only when its answer shows that it is not; a part of another URL, or one that neater
did not write, is never touched. Redirections are followed, but never from https to http. The
variables http_proxy, https_proxy, all_proxy and no_proxy are used as curl uses them.

Which transport and address worked for a server, and which did not, is kept for the next run, for ten
minutes at most, in the file outcomes of the folder that NEATER_CACHE names (empty: nowhere), else of
$XDG_CACHE_HOME/neater or ~/.cache/neater. Only its owner can read it: addresses of servers are in it,
and numbers from which their names and the networks of this host can be guessed, but no URL and
nothing that was fetched. Connections with isolateSession leave nothing there. --no-cache does without.
Rates of transfers of 1 MB or more are kept for a day: of two protocols that are equally good for what
is asked the faster one goes first (explain shows it; --needs _neater.measuredRates=false switches it off).

JSON events: connected, timeline (with -v), progress, paths (where there are several), retry, restart, way
and one-way (with --multi), insecure (with -k), cache (a file that cannot be used), head (with -I), fault,
done, failed, summary. With -o - they go to standard error, as standard output carries the data.";

#[derive(Debug, Args)]
#[command(after_help = GET_HELP, after_long_help = format!("{GET_HELP}\n\n{EXITS}"))]
pub(crate) struct GetArgs {
    /// What to fetch; https is meant where no scheme stands
    #[arg(required_unless_present = "input_file", value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// Fetch the URLs that stand in FILE, too, one on a line; - is standard input, and # begins a
    /// comment
    #[arg(short = 'i', long, value_name = "FILE")]
    pub(crate) input_file: Option<PathBuf>,
    /// Save as FILE; - is standard output, which is also the default for one URL
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Save under the name that the URL ends in
    #[arg(short = 'O', long, conflicts_with = "output")]
    pub(crate) remote_name: bool,
    /// Save in this folder, which is made if it is not there, under the names that the URLs end in
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Go on with FILE.part, or fail if nothing shows whether it is of the same file; a FILE
    /// without a part is complete if it is as long as the server's, and left alone
    #[arg(short = 'C', long = "continue")]
    pub(crate) resume: bool,
    /// By all interfaces at once that policies choose, or else all there are: pieces of the file by
    /// each, and what one does not bring, another does. Needs a file (-o or -O) and a server that
    /// sends parts; -C goes on where another run ended. With --transport SCTP, by one association
    /// over all of them, which needs no parts
    #[arg(long, conflicts_with = "interface")]
    pub(crate) multi: bool,
    /// How many files at once
    #[arg(short = 'P', long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) parallel: u8,
    /// How often to ask for the rest when a connection breaks, until a further MiB has come: then
    /// the count restarts (not with --multi)
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) retries: u8,
    /// Only this version of HTTP
    #[arg(long, value_name = "VERSION", value_parser = ["1.1", "2", "3"])]
    pub(crate) http: Option<String>,
    /// Send a header field: "Name: value"; @FILE sends those that stand in a file, one on a line
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    pub(crate) headers: Vec<String>,
    /// The method, such as PUT. Default: GET, with -d POST, with -I HEAD
    #[arg(short = 'X', long, value_name = "METHOD", conflicts_with_all = ["multi", "resume"])]
    pub(crate) request: Option<String>,
    /// Send this content; @FILE is that of a file without its line ends. Several are joined by &
    #[arg(short = 'd', long, value_name = "DATA", conflicts_with_all = ["multi", "resume"])]
    pub(crate) data: Vec<String>,
    /// Send this content; @FILE is that of a file, as it is
    #[arg(long, value_name = "DATA", conflicts_with_all = ["multi", "resume"])]
    pub(crate) data_binary: Vec<String>,
    /// Show the status and the header fields, and fetch nothing
    #[arg(short = 'I', long, conflicts_with_all = ["multi", "resume", "remote_name", "output_dir"])]
    pub(crate) head: bool,
    /// Show the server this name and password (RFC 7617): they are visible in the list of
    /// processes; -H @FILE does not show them
    #[arg(short = 'u', long, value_name = "NAME:PASSWORD")]
    pub(crate) user: Option<String>,
    /// Let the server compress the content for the way (gzip, deflate); what is saved is not
    /// compressed, and cannot be gone on with
    #[arg(long, conflicts_with_all = ["multi", "resume", "range"])]
    pub(crate) compressed: bool,
    /// Only this part: 0-99, 100-, or -5 for the last five bytes
    #[arg(short = 'r', long, value_name = "RANGE", allow_hyphen_values = true, conflicts_with_all = ["multi", "resume", "head"])]
    pub(crate) range: Option<String>,
    /// No more than so many bytes in a second, all transfers together: 500k, 2M (of 1,024)
    #[arg(long, value_name = "RATE", value_parser = crate::get::rate, conflicts_with = "multi")]
    pub(crate) limit_rate: Option<u64>,
    /// A host at a port is at this address, whatever names give
    #[arg(long, value_name = "HOST:PORT:ADDRESS")]
    pub(crate) resolve: Vec<String>,
    /// Ask this proxy, regardless of the variables: http://[USER:PASSWORD@]HOST[:PORT]; empty,
    /// none. A password is visible in the list of processes; in a variable it is not
    #[arg(short = 'x', long, value_name = "URL")]
    pub(crate) proxy: Option<String>,
    /// Hosts that are asked without a proxy, in place of those of no_proxy: names, which stand for
    /// all that end in them, addresses and networks (192.0.2.0/24); * is all
    #[arg(long, value_name = "LIST")]
    pub(crate) noproxy: Option<String>,
    /// Nothing on standard error but what fails
    #[arg(short = 'q', long, visible_short_alias = 's', visible_alias = "silent", conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

const SERVE_HELP: &str = "Examples:
  neater serve .                                   on localhost, with a generated certificate
  neater serve --bind 0.0.0.0 --name files.lan /srv
  neater serve --cert chain.pem --key key.pem --port 443 --bind :: /srv
  neater serve --plain --port 8080 .               HTTP/1.1 in the clear
  neater serve --plain --transport tcp,sctp .      also over streams of SCTP
  neater serve --transport quic,tls,sctp .         also over streams of SCTP over DTLS

The generated certificate is kept for the next time, so that it can be trusted once:
  neater get --ca CERT https://localhost:4433/
  curl --cacert CERT https://localhost:4433/

Requests for another host are answered with 421, so that no page of another site can read what is
served here under a name of its own: served are the addresses that it listens at, localhost, the
name of this machine, what the certificate is for, and what --host adds, as behind a proxy that
passes on the name that it was asked by. Where other machines can connect, every host is served
unless --cert or --host limits them.

Ctrl-C or SIGTERM ends it in order, within ten seconds; a second one at once.
JSON events: serving, certificate (one that expires soon, or is not valid), request (with -v), few-descriptors, turned-away, transport-refused, failed, stopped.";

#[derive(Debug, Args)]
#[command(after_help = SERVE_HELP, after_long_help = format!("{SERVE_HELP}\n\n{EXITS}"))]
pub(crate) struct ServeArgs {
    /// The folder; links that lead out of it are not followed, and names that are not UTF-8 are
    /// left out
    #[arg(default_value = ".", value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The port for TCP and UDP; 0 takes a free one. Default: 4433, or 8080 with --plain
    #[arg(short, long)]
    pub(crate) port: Option<u16>,
    /// The address to listen on; 0.0.0.0 and :: are all. Default: this host only
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) bind: Vec<std::net::IpAddr>,
    /// Write a qlog of each QUIC connection to this folder; NEATER_QLOG names one, too
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
    /// These transports: QUIC, TLS and SCTP (which is SCTP/DTLS); QUIC and TLS by default. With
    /// --plain: TCP, SCTP (which is SCTP/UDP) and SCTP/IP; TCP by default
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    pub(crate) transport: Vec<String>,
    /// The UDP port for SCTP; 0 takes a free one. Default: 9899
    #[arg(long, value_name = "PORT")]
    pub(crate) udp_port: Option<u16>,
    /// HTTP/1.1 in the clear, over TCP unless --transport names more, and nothing else
    #[arg(long, conflicts_with_all = ["cert", "key", "name", "cert_dir"])]
    pub(crate) plain: bool,
    /// The certificate chain to show (PEM); its key is on P-256 or P-384, of Ed25519 or RSA: P-521
    /// is not supported
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// A further name or address for the generated certificate
    #[arg(long, value_name = "NAME", conflicts_with = "cert")]
    pub(crate) name: Vec<String>,
    /// A further name or address that requests may name as their host; * is any
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Where the generated certificate is kept. Default: $STATE_DIRECTORY, as systemd sets it, or
    /// $XDG_STATE_HOME/neater or ~/.local/state/neater
    #[arg(long, value_name = "DIR", conflicts_with = "cert")]
    pub(crate) cert_dir: Option<PathBuf>,
    /// No line for each request, which there is at a terminal; -v has them anywhere, with --json as
    /// objects
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Do not list folders
    #[arg(long)]
    pub(crate) no_listings: bool,
    /// Serve and list names that begin with a dot, too
    #[arg(long)]
    pub(crate) hidden: bool,
    /// Connections at once, their handshakes done. When more come, a connection ends that is idle,
    /// or whose address has more than its share, or that takes nothing for long; where there is
    /// none, the new one is turned away
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_connections: u32,
    /// Connections at once of one address (IPv6: of one network of 64 bits), also while there is
    /// room for others. Default: any number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_per_address: Option<u32>,
    /// How long a client may take nothing of its answers before its connection is ended: one that
    /// has paused, for example
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    pub(crate) max_pause: core::time::Duration,
    /// How long a connection may be idle once everything is delivered; over HTTP/1.1 ten seconds at
    /// most
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) max_idle: core::time::Duration,
}

const EXPLAIN_HELP: &str = "Examples:
  neater explain example.com:443
  neater explain example.com:443 --needs \"reliable, encrypted, low-delay\"
  neater explain 192.0.2.1:53 --needs datagrams,cleartext
  neater explain --try https://example.com/        race them now, and draw it

Words for --needs are reliable, unreliable, ordered, unordered, messages, datagrams, low-delay,
bulk, background, streams, encrypted, tls13, cleartext and more, profiles such as reliable-message,
and every property of RFC 9622 as name=value. A misspelt word is answered with what is close to it.

What earlier runs of `neater get` have kept counts here as well (see its help), but not with --try, which
races, and keeps nothing.

JSON events: request, no_effect, effect_in_part, candidate, excluded, aside, policies, fault,
timeline, planned, unresolved, insecure (with -k), cache (a file that cannot be used), failed; with --try
timeline, attempt and chosen in place of planned.";

#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_HELP, after_long_help = format!("{EXPLAIN_HELP}\n\n{EXITS}"))]
pub(crate) struct ExplainArgs {
    /// HOST:PORT, or a URL
    #[arg(value_name = "HOST:PORT")]
    pub(crate) target: String,
    /// Connect, and show the race as it went
    #[arg(long = "try")]
    pub(crate) attempt: bool,
    /// Application protocols to offer, preferred first; empty offers none [default: h3,h2,http/1.1,
    /// but none for DTLS alone]
    #[arg(long, value_name = "LIST")]
    pub(crate) alpn: Option<String>,
    /// Only this version of HTTP: the same as --alpn with its name
    #[arg(long, value_name = "VERSION", value_parser = ["1.1", "2", "3"], conflicts_with = "alpn")]
    pub(crate) http: Option<String>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

const PATHS_HELP: &str = "Examples:
  neater get --multi --transport SCTP -O http://example.com/file &
  neater paths                                     once a second, until it is over
  neater paths --once
  neater paths --wait --json | jq '.paths[] | [.interface, .state, .bytes_per_second]'

Transfers of this user that have run for a second report their paths: the interface, the address
of this host, whether data goes this way, how much of it lately, the round-trip time and losses. Those
over QUIC, and over TLS and TCP without MPTCP, have one path; SCTP with multipath=Active has one by each
network, and TCP with it those that the system opens (`neater mptcp`).

Exit code 0: there was a transfer; 1: there was none.
JSON events: paths (of a transfer), none.";

#[derive(Clone, Debug, Args)]
#[command(after_help = PATHS_HELP, after_long_help = format!("{PATHS_HELP}\n\n{EXITS}"))]
pub(crate) struct PathsArgs {
    /// Look once, and not until the transfers are over
    #[arg(long)]
    pub(crate) once: bool,
    /// Wait for a transfer if none is running
    #[arg(long, conflicts_with = "once")]
    pub(crate) wait: bool,
    /// Seconds from one look to the next
    #[arg(short, long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub(crate) interval: core::time::Duration,
}

const MPTCP_HELP: &str = "Examples:
  neater mptcp                         the limits, and the addresses that paths begin at
  sudo neater mptcp --use wlan0 --use wwan0
  sudo neater mptcp --forget wwan0
  sudo neater mptcp --accepted 2       on a server: use addresses that a peer announces

A connection over TCP or TLS with multipath=Active begins with one path. Linux opens further ones from the
addresses that are listed here, and from no other; NetworkManager and systemd-networkd may list them,
too. What is set here holds for all programs of this host, until it is started again. Listeners accept
several paths unless multipath=Disabled; they accept as many as these limits allow.

Exit code 0: done; 1: the kernel has no MPTCP, or refused.
JSON events: mptcp.";

#[derive(Clone, Debug, Args)]
#[command(after_help = MPTCP_HELP, after_long_help = format!("{MPTCP_HELP}\n\n{EXITS}"))]
pub(crate) struct MptcpArgs {
    /// Let paths begin at the addresses of this interface; may be repeated
    #[arg(long = "use", value_name = "INTERFACE")]
    pub(crate) using: Vec<String>,
    /// Let no more paths begin at this interface, or at this address; may be repeated
    #[arg(long, value_name = "INTERFACE|ADDRESS")]
    pub(crate) forget: Vec<String>,
    /// How many further paths a connection may have, 0 to 8; --use raises it as far as it takes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=8))]
    pub(crate) subflows: Option<u8>,
    /// How many announced addresses of its peer a connection may use, 0 to 8
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=8))]
    pub(crate) accepted: Option<u8>,
}

const PING_HELP: &str = "Examples:
  neater ping example.com                          port 443, by every interface that leads there
  neater ping -c 20 -i 0.2 192.0.2.1:22
  neater ping --interface wwan0 --interface eth0 example.com:80
  neater ping --json example.com | jq 'select(.event == \"way\")'

Each probe is a handshake of TCP, which goes where data would go; nothing is sent after it. All paths
are probed at the same times. What is lost did not connect in time, or was refused or unreachable:
the summary shows which, and names the best path first.

Exit code 0: a probe connected; 1: none did.
JSON events: left-out (more paths than are probed), pinging, probe, way, failed.";

#[derive(Clone, Debug, Args)]
#[command(after_help = PING_HELP, after_long_help = format!("{PING_HELP}\n\n{EXITS}"))]
pub(crate) struct PingArgs {
    /// A name or address, with a port if it is not 443
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) target: String,
    /// How many probes by each way
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,
    /// Seconds from one probe to the next
    #[arg(short, long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub(crate) interval: core::time::Duration,
    /// Seconds that a probe may take
    #[arg(short, long, value_name = "S", default_value = "3", value_parser = seconds)]
    pub(crate) timeout: core::time::Duration,
    /// Only by this interface, whether or not a route leads there; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Vec<String>,
    /// Only addresses of IPv4
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    pub(crate) ipv4: bool,
    /// Only addresses of IPv6
    #[arg(short = '6', long)]
    pub(crate) ipv6: bool,
    /// Another resolver configuration than /etc/resolv.conf
    #[arg(long, value_name = "FILE")]
    pub(crate) resolv_conf: Option<PathBuf>,
    /// Another hosts file than /etc/hosts
    #[arg(long, value_name = "FILE")]
    pub(crate) hosts: Option<PathBuf>,
}

const POLICY_HELP: &str = "Examples:
  neater policy check /etc/neater/pib/*.policy
  neater policy explain '[{\"profile\": {\"value\": \"low-latency\"}}]' --cib /etc/neater/cib
  neater policy explain request.json --pib pib --cib cib --diagram | less
  neater policy test tests.json --pib pib
  neater policy vectors crates/policy/tests/vectors
  neater policy ask '[{\"transport\": {\"value\": \"reliable\"}}]'
  neater policy publish site.policy wwan0.cib

Profiles and policies that come with neater count unless --bare is given; those of --pib stand above
them. Exit code 1: a file has an error, a test fails or a vector differs. docs/policy.md
describes the formats.

JSON events: fault, checked, decision, tested, vector, answer, published, summary.";

#[derive(Debug, Args)]
#[command(after_help = POLICY_HELP, after_long_help = format!("{POLICY_HELP}\n\n{EXITS}"))]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Read files as the manager would, and report faults with line and column
    Check {
        /// Policy, profile and CIB files, by their endings, and folders of them
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Show how a decision comes about: which rules fired, which rows matched, what failed, scores
    /// summed
    Explain {
        /// A list of requests in JSON, a file of one, or - for standard input
        #[arg(value_name = "REQUEST")]
        request: String,
        /// A diagram in Mermaid's language instead of text
        #[arg(long)]
        diagram: bool,
        /// What the manager that runs (`neater pm`) decides for this user, and not what files lead
        /// to
        #[arg(long, conflicts_with_all = ["pib", "cib", "bare", "rows", "candidates"])]
        running: bool,
        /// The folder of its sockets. Default: that of NEAT_PM_SOCKET, ~/.neat or /run/neater, as
        /// for every program
        #[arg(long, value_name = "DIR", requires = "running")]
        sock: Option<PathBuf>,
        #[command(flatten)]
        tables: TableArgs,
    },
    /// Run files of requests with the candidates that are expected
    Test {
        /// Files of cases
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        tables: TableArgs,
    },
    /// Ask the manager that runs (`neater pm`) to decide, and print its answer
    Ask {
        /// A list of requests in JSON, a file of one, or - for standard input
        #[arg(value_name = "REQUEST")]
        request: String,
        /// The folder of its sockets. Default: that of NEAT_PM_SOCKET, ~/.neat or /run/neater, as
        /// for every program
        #[arg(long, value_name = "DIR")]
        sock: Option<PathBuf>,
    },
    /// Send the running manager a policy, a profile or a node of the CIB; it applies to your
    /// programs, or to all if you are root
    Publish {
        /// Policy, profile and CIB files, by their endings
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The folder of its sockets. Default: that of NEAT_PM_SOCKET, ~/.neat or /run/neater, as
        /// for every program
        #[arg(long, value_name = "DIR")]
        sock: Option<PathBuf>,
    },
    /// Run vectors of tests of a policy manager: one line for each difference
    Vectors {
        /// A folder of vectors, one JSON file each
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

const LAB_HELP: &str = "Examples:
  neater lab list
  neater lab run B1 --quick --out results
  neater lab run all
  neater lab report results

neater-lab is a program of its own: it is looked for beside neater, then on the PATH. Its exit
codes, which `neater lab --help` lists, are not those of the other commands.";

#[derive(Debug, Args)]
#[command(after_help = LAB_HELP, disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct LabArgs {
    /// Handed to neater-lab as they are: `list`, `run ID ...`, `report DIR`, `--help`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARG")]
    pub(crate) rest: Vec<std::ffi::OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
