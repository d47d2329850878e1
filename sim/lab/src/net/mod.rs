//! `neater-lab net`: a scenario made real, and commands in it.

mod watch;

use crate::source::Source;
use clap::Args;
use neater_emulator::{Captured, Cmd, Kind, Lab, LiveError, Options, Output, Plan, Result, Running, privileges};
use neater_scenario::Scenario;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

const HELP: &str = "Examples:
  neater-lab net dumbbell -- l1: ping -c 3 r1
  neater-lab net dumbbell --set rate='5 Mbit/s' --set rtt='80 ms' -b 'r1: iperf3 -s' --ready r1:5201 -- l1: iperf3 -c r1
  neater-lab net my.toml --out results --capture -- client: curl -o /dev/null http://server/
  neater-lab net dumbbell                      a shell in the first host
  neater-lab net home-nat --set kind=symmetric -- phone: ping -c 3 server

Every host is a network namespace with its own addresses, routes and kernel settings; names of hosts resolve inside.
Links behave as the scenario says. Everything is gone when this ends, however it ends.";

/// Builds the network of a scenario from namespaces and emulated links, and runs commands in its hosts.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct NetArgs {
    /// A scenario file, or the name of one that comes with neater (`dumbbell`, `two-paths`, ...).
    scenario: String,
    /// Another value for a parameter or key of the scenario.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Everything random of the links follows from it; the scenario's own otherwise.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Runs beside the command and is ended after it. May be given often; they start in this order.
    #[arg(short, long, value_name = "HOST: COMMAND", value_parser = in_host)]
    background: Vec<(String, String)>,
    /// Begin only when somebody listens at this TCP port.
    #[arg(long, value_name = "HOST:PORT", value_parser = ready)]
    ready: Vec<(String, u16)>,
    /// Where run.json, what links carried over time (links.csv, timeline.png), and captures are kept.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Capture the packets at every interface of every host, into --out.
    #[arg(long, requires = "out")]
    capture: bool,
    /// How many bytes of each packet are captured.
    #[arg(long, value_name = "BYTES", default_value_t = 128, requires = "capture")]
    snap: usize,
    /// The command is ended when it takes longer, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    limit: u64,
    /// HOST: and the command. Without one, a shell in the first host.
    #[arg(last = true, value_name = "HOST: COMMAND")]
    command: Vec<String>,
}

fn pair(text: &str) -> std::result::Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

fn in_host(text: &str) -> std::result::Result<(String, String), String> {
    let (host, command) = text.split_once(':').ok_or("expected HOST: COMMAND")?;
    if command.trim().is_empty() {
        return Err("there is no command behind the host".to_owned());
    }
    Ok((host.trim().to_owned(), command.trim().to_owned()))
}

fn ready(text: &str) -> std::result::Result<(String, u16), String> {
    let (host, port) = text.rsplit_once(':').ok_or("expected HOST:PORT")?;
    Ok((host.to_owned(), port.parse().map_err(|e| format!("port {port:?}: {e}"))?))
}

/// Reads a scenario from a file, or one that comes with neater.
///
/// # Errors
/// There is no such file, or it is wrong: with line and column.
pub fn load(name: &str, set: &[(String, String)]) -> Result<Scenario> {
    let source = Source::open(Path::new(name)).map_err(LiveError::Usage)?;
    source.parse(set).map_err(|e| LiveError::Usage(format!("{name}: {e}")))
}

/// Does it; returns the exit code of the command.
///
/// # Errors
/// The scenario, a host or a command makes no sense, or the machine does not allow it.
pub fn run(args: &NetArgs) -> Result<u8> {
    let scenario = load(&args.scenario, &args.set)?;
    let plan = Plan::from_scenario(&scenario, args.seed.unwrap_or(scenario.seed))?;
    let (host, cmd) = foreground(args, &plan)?;
    if args.capture {
        privileges::need("tcpdump", "tcpdump")?;
    }
    let lab = Lab::up(&plan, &Options::default())?;
    let captures = match &args.out {
        Some(dir) if args.capture => {
            std::fs::create_dir_all(dir).map_err(|e| LiveError::Failed(format!("{}: {e}", dir.display())))?;
            lab.capture_all(dir, args.snap)?
        }
        _ => Vec::new(),
    };
    let limit = Duration::from_secs(args.limit);
    let mut background: Vec<Running> = Vec::new();
    for (host, line) in &args.background {
        background.push(lab.spawn(host, Cmd::shell(line).limit(limit))?);
    }
    for (host, port) in &args.ready {
        lab.wait_for_tcp(host, *port, Duration::from_secs(10))?;
    }
    if args.command.is_empty() {
        eprintln!("neater-lab: a shell in {host}; in another terminal:");
        for node in plan.nodes.iter().filter(|n| n.kind == Kind::Host) {
            eprintln!("  {:<12} nsenter --net={}", node.name, lab.netns_path(&node.name)?);
        }
    }
    let (done, course) = match &args.out {
        Some(_) => watch::while_running(&lab, || lab.run(&host, cmd.limit(limit)))?,
        None => (lab.run(&host, cmd.limit(limit))?, Vec::new()),
    };
    let code = u8::try_from(done.code).unwrap_or(1);
    if done.timed_out {
        eprintln!("neater-lab: {} was ended after {} s (--limit)", done.command, args.limit);
    }
    let mut outputs = vec![done];
    for running in background {
        let out = running.stop(libc::SIGTERM)?;
        show(&out);
        outputs.push(out);
    }
    let caught: Vec<Captured> = captures.into_iter().map(neater_emulator::Capture::stop).collect::<Result<_>>()?;
    for c in caught.iter().filter(|c| c.missed > 0) {
        eprintln!("neater-lab: {}: tcpdump missed {} packets", c.file.display(), c.missed);
    }
    if let Some(dir) = &args.out {
        lab.keep_record(dir, &outputs, &caught)?;
        watch::keep(dir, &scenario, &course)?;
    }
    warn(&lab)?;
    Ok(code)
}

/// The command of the foreground, and its host.
fn foreground(args: &NetArgs, plan: &Plan) -> Result<(String, Cmd)> {
    let Some((first, rest)) = args.command.split_first() else {
        if !std::io::stdin().is_terminal() {
            return Err(LiveError::Usage(
                "say what to run: -- HOST: COMMAND (or run this in a terminal, for a shell)".into(),
            ));
        }
        let host = plan.nodes.iter().find(|n| n.kind == Kind::Host).map_or("", |n| n.name.as_str());
        let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into());
        return Ok((host.to_owned(), Cmd::new(shell).interactive()));
    };
    match (first.strip_suffix(':'), first.split_once(':'), rest) {
        // One word is a line for the shell: -- 'l1: ping -c 1 r1'
        (None, Some((host, line)), []) if !line.trim().is_empty() => {
            Ok((host.trim().to_owned(), Cmd::shell(line).interactive()))
        }
        (Some(host), _, [program, args @ ..]) => Ok((host.to_owned(), Cmd::new(program).args(args).interactive())),
        _ => Err(LiveError::Usage(format!("{first:?}: expected -- HOST: COMMAND"))),
    }
}

/// What a command of the background said, each line with its name.
fn show(out: &Output) {
    let mut err = std::io::stderr().lock();
    for line in out.text().lines().chain(out.errors().lines()) {
        let _ = writeln!(err, "{}| {line}", out.command.split(':').next().unwrap_or_default());
    }
}

/// Says where the lab was not what the scenario says.
fn warn(lab: &Lab) -> Result<()> {
    for h in lab.happened() {
        match &h.failed {
            Some(why) => eprintln!("neater-lab: {} at {:.3} s failed: {why}", h.what, h.at),
            None if h.done - h.at > 0.05 => {
                eprintln!("neater-lab: {} was to happen at {:.3} s and did at {:.3} s", h.what, h.at, h.done);
            }
            None => {}
        }
    }
    let e = lab.emulator()?;
    let unread = lab.unread()?;
    if !e.precedence.real_time {
        eprintln!("neater-lab: the emulator was not granted real-time scheduling: delays are less exact");
    }
    if e.late > 0 {
        eprintln!("neater-lab: {} packets were more than 1 ms late (worst {:.1} ms)", e.late, e.late_max_us / 1000.0);
    }
    let lost = e.packets.no_buffer + e.refused + unread;
    if lost > 0 {
        eprintln!(
            "neater-lab: {lost} packets were lost in the emulator itself: this machine is too slow for the scenario"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        net: NetArgs,
    }

    fn parse(words: &[&str]) -> NetArgs {
        Alone::try_parse_from([&["net"], words].concat()).expect("parses").net
    }

    #[test]
    fn commands_are_given_as_words_or_as_a_line() {
        let plan = Plan::from_scenario(&load("dumbbell", &[]).expect("shipped"), 1).expect("plan");
        for words in [&["dumbbell", "--", "l1:", "ping", "r1"][..], &["dumbbell", "--", "l1: ping r1"]] {
            let (host, cmd) = foreground(&parse(words), &plan).expect("a command");
            assert_eq!(host, "l1");
            assert!(cmd.text().ends_with("ping r1"), "{}", cmd.text());
        }
        for words in [&["dumbbell", "--", "ping"][..], &["dumbbell", "--", "l1:"]] {
            assert!(foreground(&parse(words), &plan).is_err(), "{words:?}");
        }
    }

    #[test]
    fn what_is_no_scenario_is_told_with_what_there_is() {
        let error = load("/no/such", &[]).expect_err("nothing there").to_string();
        assert!(error.contains("dumbbell"), "{error}");
        let error = load("dumbbell", &[("rate".into(), "fast".into())]).expect_err("no rate").to_string();
        assert!(error.contains("rate"), "{error}");
    }
}
