//! `neater get`.
//!
//! *Responsible for* which URL goes into which file, how many at once, and the sum of it. *Not
//! responsible for* one transfer ([`transfer`]) or one file ([`target`]).

mod again;
mod asked;
mod coding;
mod head;
mod kept;
mod live;
mod multi;
mod progress;
mod proxies;
mod target;
mod transfer;

use crate::args::GetArgs;
use crate::connect::{self, Asked};
use crate::failure::{Exit, Failure};
use crate::outcomes::Outcomes;
use crate::output::{Output, bytes, failed, ms, zoned};
use crate::signals::{interrupted, obey_the_second_interrupt};
pub(crate) use again::quote;
use again::resume_command;
use asked::Request;
pub(crate) use asked::rate;
use futures_util::StreamExt;
use multi::{Multi, Way};
use neater::{Neater, Preference, Protection, RemoteEndpoint, Role, SecurityNeed, Stack};
use neater_base::net::Interface;
use neater_http::{Client, HttpVersion, Scheme, Url};
use serde_json::json;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use target::Target;
use transfer::{Done, Job, Outcome};

/// How long connections may need to end in order, at most.
const GOODBYE: core::time::Duration = core::time::Duration::from_millis(100);

/// By how many interfaces one file is fetched.
const MAX_WAYS: usize = 16;

/// Sent to a process that writes beyond the limit on the size of files, and fatal. Its number
/// differs on a few architectures, where a file that is too large ends the command in silence, as
/// it does most others.
#[cfg(unix)]
const SIGXFSZ: core::ffi::c_int = 25;

/// Sends the peers the end while there is a driver: without it they would wait for their timers.
async fn goodbye(neater: &Neater) {
    let gone = async {
        loop {
            let left = neater.stats();
            // A QUIC session has sent it when its group is gone; what is left of it only answers
            // stragglers.
            if left.connections == 0 && left.channels == 0 && left.groups == 0 {
                return;
            }
            tokio::time::sleep(core::time::Duration::from_millis(1)).await;
        }
    };
    let _ = tokio::time::timeout(GOODBYE, gone).await;
}

/// From now on a limit on the size of files is an error of writing, and not the end of the process.
fn outlive_file_limits() {
    #[cfg(unix)]
    drop(tokio::signal::unix::signal(tokio::signal::unix::SignalKind::from_raw(SIGXFSZ)));
}

pub(crate) async fn run(args: Box<GetArgs>, mut output: Output) -> Result<Exit, Failure> {
    output.quiet = args.quiet;
    let output = &output;
    outlive_file_limits();
    obey_the_second_interrupt();
    // Before anything can fail: a reader of the data takes no failure for a part of it.
    if to_stdout(&args) && !args.head {
        output.reserve_stdout();
    }
    let mut asked = Asked::new(&args.connect, output)?;
    if args.limit_rate.is_some() {
        // The rate is not the transport's.
        let off = asked.properties.set_text("_neater.measuredRates", "false");
        off.map_err(|e| Failure::usage(e.to_string()))?;
    }
    let request = Request::new(&args)?;
    let urls = asked::urls(&args)?;
    let work = match args.head {
        true => checked(&args, &asked, &urls).map(|()| Work::Heads(urls))?,
        false => Work::Files(plan(&args, &asked, urls)?),
    };
    if let (true, Work::Files(jobs)) = (args.multi, &work) {
        proxies::none_beside_multi(&request.proxies, jobs)?;
    }
    let one = args.multi && by_one_association(&args, &mut asked)?;
    let neater = connect::neater(&args.connect)?;
    let mut faults = connect::PolicyFaults::default();
    faults.report(&neater, output);
    let outcomes = Outcomes::load(&neater, &args.connect, output);
    let exit = match work {
        Work::Files(jobs) if args.multi && !one => {
            by_several_ways(&args, &asked, &neater, jobs, &request, faults, output).await
        }
        Work::Files(jobs) => by_one_way(&args, &asked, &neater, jobs, &request, faults, output).await,
        Work::Heads(urls) => heads(&args, &asked, &neater, &urls, &request, output).await,
    };
    outcomes.keep(&neater, output);
    exit
}

/// What is asked of the servers.
enum Work {
    Heads(Vec<Url>),
    Files(Vec<Job>),
}

/// Shows the heads of servers' answers for these URLs.
async fn heads(
    args: &GetArgs,
    asked: &Asked,
    neater: &Neater,
    urls: &[Url],
    request: &Request,
    output: &Output,
) -> Result<Exit, Failure> {
    let client = client(args, asked, request, neater, None, output)?;
    let exit = tokio::select! {
        exit = head::run(&client, request, urls, args.output.as_deref(), (&asked.seen, output)) => exit,
        () = interrupted() => Err(Failure::new(Exit::Interrupted, "interrupted", "interrupted")),
    };
    drop(client);
    goodbye(neater).await;
    exit
}

/// Fetches files, some at once.
async fn by_one_way(
    args: &GetArgs,
    asked: &Asked,
    neater: &Neater,
    jobs: Vec<Job>,
    request: &Request,
    mut faults: connect::PolicyFaults,
    output: &Output,
) -> Result<Exit, Failure> {
    let client = client(args, asked, request, neater, None, output)?;
    let count = jobs.len();
    let files = jobs.iter().any(|j| matches!(j.target, Target::File(_)));
    let begun: Vec<_> = jobs.iter().map(|j| j.continuable.clone()).collect();
    let mut failures: Vec<Failure> = Vec::new();
    let (mut total, mut done) = (0, 0);
    {
        let transfers = jobs.into_iter().map(|job| {
            let (client, seen) = (&client, &asked.seen);
            let retries = args.retries;
            async move {
                let url = job.url.clone();
                let outcome = transfer::run(client, request, job, retries, output).await;
                (url.to_string(), outcome.map_err(|f| seen.pin_of(f, &url.origin().host)))
            }
        });
        let mut running = futures_util::stream::iter(transfers).buffer_unordered(usize::from(args.parallel));
        loop {
            let next = tokio::select! {
                next = running.next() => next,
                () = interrupted() => {
                    let kept = begun.iter().any(|b| b.load(Ordering::Relaxed));
                    let what = match (files, kept) {
                        (true, true) => "interrupted: what came is kept",
                        (true, false) => "interrupted: nothing has come that could be gone on with",
                        (false, _) => "interrupted",
                    };
                    let f = Failure::new(Exit::Interrupted, "interrupted", what);
                    output.failure(&match kept {
                        true => f.advise(format!("go on with: {}", resume_command())),
                        false => f,
                    });
                    if output.json {
                        let summary = json!({ "event": "summary", "files": count, "failed": count - done, "bytes": total });
                        output.event(&summary);
                    }
                    return Ok(Exit::Interrupted);
                }
            };
            match next {
                None => break,
                Some((url, Ok(d))) => {
                    done += 1;
                    total += d.written;
                    report(&url, &d, output);
                }
                Some((url, Err(f))) => {
                    show(Some(&url), &f, output);
                    failures.push(f);
                }
            }
        }
    }
    drop(client);
    goodbye(neater).await;
    // Files that went bad while it ran.
    faults.report(neater, output);
    if output.json {
        let n = failures.len();
        output.event(&json!({ "event": "summary", "files": count, "failed": n, "bytes": total }));
    } else if count > 1 && !output.quiet {
        output.note(&format!("{} of {count} files, {}", count - failures.len(), bytes(total)));
    }
    Ok(match failures.first() {
        None => Exit::Ok,
        Some(_) if failures.len() < count => Exit::Partial,
        Some(f) => f.exit,
    })
}

/// The failure of one URL.
fn show(url: Option<&str>, f: &Failure, output: &Output) {
    if output.json {
        return output.event(&failed(url, f));
    }
    output.note(&format!("neater: {}: {}", url.unwrap_or_default(), f.message));
    f.advice.iter().for_each(|a| output.note(&format!("  {a}")));
}

/// A client as the command line wants it, by one interface if that is given.
fn client(
    args: &GetArgs,
    asked: &Asked,
    request: &Request,
    neater: &Neater,
    interface: Option<&str>,
    output: &Output,
) -> Result<Client, Failure> {
    let mut properties = asked.properties.clone();
    if let Some(name) = interface {
        properties.interface(Preference::Require, name).map_err(|e| Failure::usage(format!("{name}: {e}")))?;
    }
    let security = asked.security.clone();
    let mut builder = Client::builder(neater.clone()).properties(properties).security(security).stacks(&asked.stacks);
    builder = builder.proxies(request.proxies.clone());
    if let Some(port) = args.connect.udp_port {
        builder = builder.udp_port(port);
    }
    if let Some(local) = &asked.local {
        builder = builder.local(local.clone());
    }
    for (name, value) in &args.connect.property {
        builder = builder.policy_property(name, value);
    }
    for text in &args.resolve {
        let (host, port, addresses) = asked::place(text)?;
        builder = addresses.into_iter().fold(builder, |builder, at| builder.place(&host, port, at));
    }
    if let Some(v) = args.http.as_deref().and_then(HttpVersion::from_name) {
        builder = builder.version(v);
    }
    if let Some(t) = args.connect.timeout {
        builder = builder.connect_timeout(t).silence(t);
    }
    if output.verbose {
        let observer = output.clone();
        builder = builder.on_event(move |origin, event| observer.step(&origin.to_string(), event));
    }
    Ok(builder.build())
}

/// Whether one SCTP association is to bring the files by all interfaces: where nothing else may.
/// Its sender divides data as each path takes it, which pieces of a file cannot do.
fn by_one_association(args: &GetArgs, asked: &mut Asked) -> Result<bool, Failure> {
    let sctp = |s: &Stack| matches!(s, Stack::Sctp | Stack::SctpIp | Stack::SctpDtls);
    let only = !asked.stacks.is_empty() && asked.stacks.iter().all(sctp);
    if !only {
        return Ok(false);
    }
    let stated = args.connect.needs.as_deref().unwrap_or_default().to_ascii_lowercase();
    for (name, value) in [("multipath", "Active"), ("multipathPolicy", "Aggregate")] {
        if !stated.contains(&format!("{}=", name.to_ascii_lowercase())) {
            asked.properties.set_text(name, value).map_err(|e| Failure::usage(format!("--multi: {e}")))?;
        }
    }
    Ok(true)
}

/// Fetches files one after the other, each by several interfaces at once.
async fn by_several_ways(
    args: &GetArgs,
    asked: &Asked,
    neater: &Neater,
    jobs: Vec<Job>,
    request: &Request,
    mut faults: connect::PolicyFaults,
    output: &Output,
) -> Result<Exit, Failure> {
    let (count, mut total, mut done, mut failures) = (jobs.len(), 0, 0, Vec::new());
    for job in jobs {
        let url = job.url.clone();
        let note = job.target.path().map(|path| kept::names(path)[1].clone());
        let fetched = async {
            let one = client(args, asked, request, neater, None, output)?;
            if let Some(done) = transfer::already_there(&one, request, &job).await? {
                return Ok(done);
            }
            let named = interfaces(args, asked, neater, &url).await?;
            let file = match &job.target {
                Target::File(path) => !target::beside(path, ".multi").exists(),
                _ => false,
            };
            if named.len() == 1 && file {
                // Pieces cost round trips, and bring nothing where there is one way; what was begun
                // in pieces goes on in pieces.
                let one = client(args, asked, request, neater, Some(&named[0]), output)?;
                output.report(
                    "one-way",
                    Some(&url.to_string()),
                    &format!("only {} leads there: fetched by one way", named[0]),
                );
                return transfer::run(&one, request, job, args.retries, output).await;
            }
            let way = |interface: String| {
                client(args, asked, request, neater, Some(&interface), output).map(|client| Way { interface, client })
            };
            let ways = named.into_iter().map(way).collect::<Result<Vec<_>, _>>()?;
            match multi::run(&ways, &request.options, &url, &job.target, job.resume, args.retries, output).await? {
                Multi::Done(done) => Ok(done),
                Multi::Whole(why) => {
                    let url = url.to_string();
                    output.report("one-way", Some(&url), &format!("{why}: fetched by one way"));
                    transfer::run(&one, request, job, args.retries, output).await
                }
            }
        };
        let fetched = tokio::select! {
            fetched = fetched => fetched,
            () = interrupted() => {
                let f = Failure::new(Exit::Interrupted, "interrupted", "interrupted");
                output.failure(&match note.is_some_and(|note| note.exists()) {
                    true => f.advise(format!("what came is kept; go on with: {}", resume_command())),
                    false => f,
                });
                if output.json {
                    let summary = json!({ "event": "summary", "files": count, "failed": count - done, "bytes": total });
                    output.event(&summary);
                }
                return Ok(Exit::Interrupted);
            }
        };
        match fetched {
            Ok(d) => {
                done += 1;
                total += d.written;
                report(&url.to_string(), &d, output);
            }
            Err(f) => {
                let f = asked.seen.pin_of(f, &url.origin().host);
                show(Some(&url.to_string()), &f, output);
                failures.push(f);
            }
        }
    }
    goodbye(neater).await;
    faults.report(neater, output);
    if output.json {
        let failed = failures.len();
        output.event(&json!({ "event": "summary", "files": count, "failed": failed, "bytes": total }));
    }
    Ok(match failures.first() {
        None => Exit::Ok,
        Some(_) if failures.len() < count => Exit::Partial,
        Some(f) => f.exit,
    })
}

/// By which interfaces a file is fetched: those that policies choose, in their order; where they
/// leave that to the system, all that lead to the server by the routes.
async fn interfaces(args: &GetArgs, asked: &Asked, neater: &Neater, url: &Url) -> Result<Vec<String>, Failure> {
    let origin = url.origin();
    let endpoint = RemoteEndpoint::new().with_host_name(&origin.host).with_port(origin.port);
    let mut security = asked.security.clone();
    if origin.scheme == Scheme::Http {
        security.protection = Protection::Disabled;
    }
    let mut preconnection = neater
        .preconnection()
        .remote(endpoint.clone())
        .properties(asked.properties.clone())
        .security(security)
        .stacks(&asked.stacks);
    for (name, value) in &args.connect.property {
        preconnection = preconnection.policy_property(name, value);
    }
    let request = preconnection.compile(Role::Initiate).map_err(|e| crate::failure::establishment(&e))?;
    let story = neater.explain_policies(&request, &endpoint);
    if let Some(why) = story.as_ref().and_then(neater::PolicyStory::prohibited) {
        return Err(Failure::new(Exit::Failed, "policy", why).advise("`neater explain URL` shows which file and line"));
    }
    let all = neater_command::interfaces()?;
    let chosen = story.map_or_else(Vec::new, |story| story.interfaces());
    let by_policy = chosen.iter().filter_map(|index| all.iter().find(|i| i.index == *index));
    let mut names: Vec<String> = by_policy.map(|i| i.name.clone()).collect();
    if names.is_empty() {
        let host = origin.host.trim_matches(['[', ']']);
        let addresses: Vec<std::net::IpAddr> = match host.parse() {
            Ok(address) => vec![address],
            Err(_) => crate::resolve::as_connecting(host, &args.connect)
                .await?
                .map_err(|why| Failure::new(Exit::Failed, "resolution", format!("{host} has no address: {why}")))?,
        };
        let leads =
            |i: &&Interface| i.up && !i.addrs.is_empty() && addresses.iter().any(|a| crate::ping::ways::leads(i, *a));
        names = all.iter().filter(leads).map(|i| i.name.clone()).collect();
    }
    names.truncate(MAX_WAYS);
    if names.is_empty() {
        return Err(Failure::new(Exit::Failed, "interfaces", "no interface leads to the server")
            .advise("`neater ping` shows which do; without --multi the system chooses"));
    }
    Ok(names)
}

/// Which URL goes where.
/// Whether what comes goes to standard output.
fn to_stdout(args: &GetArgs) -> bool {
    match args.output.as_deref() {
        Some(name) => name == Path::new("-"),
        None => !args.remote_name && args.output_dir.is_none(),
    }
}

/// Whether what travels in the clear may.
fn checked(args: &GetArgs, asked: &Asked, urls: &[Url]) -> Result<(), Failure> {
    for url in urls {
        let secured = matches!(asked.need, Some(SecurityNeed::Required { .. }));
        let checks = !args.connect.pin.is_empty() || args.connect.ca.is_some();
        if url.origin().scheme == Scheme::Http && (secured || checks) {
            return Err(Failure::usage(format!("{url} travels in the clear, and security was asked for"))
                .advise("ask for https, or leave out --ca, --pin and words such as `encrypted`"));
        }
    }
    Ok(())
}

fn plan(args: &GetArgs, asked: &Asked, urls: Vec<Url>) -> Result<Vec<Job>, Failure> {
    checked(args, asked, &urls)?;
    let named = args.output.as_deref();
    if let Some(dir) = &args.output_dir {
        match std::fs::metadata(dir) {
            Ok(m) if m.is_dir() => {}
            Ok(_) => return Err(Failure::new(Exit::Local, "file", format!("{} is not a folder", dir.display()))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                std::fs::create_dir_all(dir).map_err(|e| file("make", dir, &e))?;
            }
            Err(e) => return Err(file("write to", dir, &e)),
        }
    }
    if urls.len() > 1 && named.is_some() {
        return Err(Failure::usage("several URLs do not fit into one -o FILE").advise("use -O, or --output-dir DIR"));
    }
    if urls.len() > 1 && !args.remote_name && args.output_dir.is_none() {
        return Err(Failure::usage("several URLs need -O or --output-dir DIR, so that each has a file of its own"));
    }
    let mut jobs: Vec<Job> = Vec::new();
    // The owner of each name, of a file and of what is kept of it meanwhile: there may be
    // thousands.
    let mut taken: HashMap<PathBuf, usize> = HashMap::new();
    for url in urls {
        let target = match named {
            _ if to_stdout(args) => Target::Stdout,
            Some(name) => Target::of(args.output_dir.as_deref().map_or_else(|| name.to_owned(), |d| d.join(name))),
            None => {
                let name = match url.file_name() {
                    Some(name) => name,
                    None if url.target().path().ends_with('/') => "index.html".into(),
                    None => {
                        return Err(Failure::usage(format!("the last part of {url} can be no file's name"))
                            .advise("give it one with -o FILE"));
                    }
                };
                Target::of(args.output_dir.clone().unwrap_or_default().join(PathBuf::from(name)))
            }
        };
        if args.resume && matches!(target, Target::Stdout) {
            return Err(Failure::usage("-C needs a file: give -o FILE or -O"));
        }
        let owner = |name: &Path| jobs.get(*taken.get(name)?);
        if let Some(other) = target.path().and_then(owner).filter(|j| j.target == target) {
            return Err(Failure::usage(format!("{} and {url} would be saved as the same file", other.url))
                .advise("fetch them one by one, with -o FILE"));
        }
        let used = target.uses();
        if let Some(other) = used.iter().find_map(|name| owner(name)) {
            return Err(Failure::usage(format!(
                "what has come of {} would be kept under the name of {url}, or the other way round",
                other.url
            ))
            .advise("fetch them one by one"));
        }
        taken.extend(used.into_iter().map(|name| (name, jobs.len())));
        jobs.push(Job { url, target, resume: args.resume, continuable: Arc::default() });
    }
    Ok(jobs)
}

/// A file that cannot be written, and how another is chosen.
fn file(doing: &str, path: &Path, e: &std::io::Error) -> Failure {
    let mut f = Failure::file(doing, path, e);
    f.advice
        .iter_mut()
        .filter(|a| *a == crate::failure::ELSEWHERE)
        .for_each(|a| a.push_str(", with -o FILE or --output-dir DIR"));
    f
}

fn report(url: &str, done: &Done, output: &Output) {
    if output.quiet && !output.json {
        return;
    }
    let seconds = done.took.as_secs_f64();
    let rate = if seconds > 0.0 { done.came as f64 / seconds } else { 0.0 };
    let file = done.target.path().map(|p| p.display().to_string());
    if output.json {
        let mut value = json!({
            "event": "done", "url": url, "file": file, "bytes": done.written, "received": done.came,
            "ms": ms(done.took), "bytes_per_second": rate.round(), "retries": done.retries,
            "outcome": done.outcome.as_str(),
        });
        if let Some(t) = done.transports.last() {
            value["transport"] = t.stack.as_str().into();
            value["http"] = t.version.to_string().into();
            value["address"] = t.remote.map(|a| zoned(&a.to_string())).into();
            value["security"] = t.security.clone().into();
            value["proxy"] = t.proxy.as_ref().map(ToString::to_string).into();
        }
        return output.event(&value);
    }
    let name = file.unwrap_or_else(|| "standard output".into());
    output.note(&match (done.transports.last(), done.outcome) {
        (_, Outcome::AlreadyThere) => {
            format!("{name} is already there, as long as the server's; without -C it is fetched again")
        }
        (_, Outcome::Unchecked) => format!(
            "{name} already exists; the server does not report the length of its file, so it is not known whether this one is complete"
        ),
        (None, _) => format!("{name}: complete, {}", bytes(done.written)),
        (Some(t), outcome) => {
            // It went on where another run stopped, or was begun again.
            let resumed = if outcome == Outcome::Continued || done.came != done.written {
                format!(" ({} in all)", bytes(done.written))
            } else {
                String::new()
            };
            let address = t.remote.map(|a| zoned(&a.to_string()));
            let address = match (&t.proxy, address) {
                (Some(proxy), Some(address)) => format!(" through the proxy {proxy} at {address}"),
                (Some(proxy), None) => format!(" through the proxy {proxy}"),
                (None, address) => address.map_or_else(String::new, |a| format!(" from {a}")),
            };
            let earlier = done.transports.iter().rev().skip(1).rev();
            let earlier: String = earlier.map(|t| format!("{} over {}, then ", t.version, t.stack)).collect();
            format!(
                "{name}: {}{resumed} in {seconds:.2} s, {}/s, {earlier}{} over {}{address}",
                bytes(done.came),
                bytes(rate as u64),
                t.version,
                t.stack
            )
        }
    });
}
