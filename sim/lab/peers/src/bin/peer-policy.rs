//! The policy manager for P1: decisions of its own, and a client of `neater pm` beside a ping-pong of the same bytes.
//!
//! `peer-policy files DIR` writes the tables as files into `DIR/pib` and `DIR/cib`, or no more than so many policies; `cold` and
//! `cached` decide, as often as `--turns` says; `socket PATH` asks a manager on its socket and sends the same bytes to and fro with a
//! process that does nothing else (`echo PATH REQUEST REPLY`), in turn. Each says one line of JSON.

#[path = "../../../../../crates/policy/examples/decision/workload.rs"]
mod workload;

use neater_policy::protocol::wire::{self, Frame, Kind};
use serde_json::json;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use workload::{NOW, manager, nodes, policies, profiles, request, unasked};

/// Kept decisions are so quick that as many are timed together.
const TOGETHER: u32 = 200;
/// How long a manager that was just started may take to read its files.
const PATIENCE: Duration = Duration::from_secs(100);
/// Questions in a row before it is the other's turn.
const BLOCK: usize = 100;
const USAGE: &str = "usage: peer-policy files DIR [POLICIES] | cold --turns N | cached --turns N | socket PATH --turns N | \
                     echo PATH REQUEST REPLY";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["files", dir] => files(Path::new(dir), policies().len()),
        ["files", dir, count] => number(count).and_then(|count| files(Path::new(dir), count)),
        ["cold", "--turns", n] => decide(n, false),
        ["cached", "--turns", n] => decide(n, true),
        ["socket", path, "--turns", n] => socket(Path::new(path), n),
        ["echo", path, request, reply] => echo(Path::new(path), request, reply),
        _ => Err(io::Error::other(USAGE)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("peer-policy: {e}");
            ExitCode::FAILURE
        }
    }
}

fn number(text: &str) -> io::Result<usize> {
    text.parse().ok().filter(|n| (1..=10_000_000).contains(n)).ok_or_else(|| io::Error::other(USAGE))
}

fn files(dir: &Path, count: usize) -> io::Result<()> {
    let write = |dir: PathBuf, files: Vec<(String, serde_json::Value)>| {
        std::fs::create_dir_all(&dir)?;
        files.into_iter().try_for_each(|(name, json)| std::fs::write(dir.join(name), json.to_string()))
    };
    write(dir.join("pib"), profiles().into_iter().chain(policies().into_iter().take(count)).collect())?;
    write(dir.join("cib"), nodes())?;
    println!("{}", json!({"ready": true}));
    Ok(())
}

/// The median, in microseconds.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

fn decide(turns: &str, cached: bool) -> io::Result<()> {
    let (turns, mut manager, request) = (number(turns)?, manager(), request());
    // What is asked for the second time is kept.
    manager.decide(&request, NOW).map_err(io::Error::other)?;
    let first = manager.decide(&request, NOW).map_err(io::Error::other)?.len();
    let mut times = Vec::with_capacity(turns);
    for turn in 0..turns {
        // Nothing like it has been asked before: made beforehand, as a program has made its request.
        let unasked = unasked(turn);
        let begin = Instant::now();
        if cached {
            for _ in 0..TOGETHER {
                drop(black_box(manager.decide(black_box(&request), NOW)));
            }
            times.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(TOGETHER));
        } else {
            drop(black_box(manager.decide(black_box(&unasked), NOW)));
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    println!("{}", json!({"median_us": median(times), "candidates": first}));
    Ok(())
}

/// Answers so many bytes with so many others, until the other side has gone.
fn echo(path: &Path, request: &str, reply: &str) -> io::Result<()> {
    let (request, reply) = (number(request)?, number(reply)?);
    let listener = UnixListener::bind(path)?;
    println!("{}", json!({"ready": true}));
    let (mut stream, _) = listener.accept()?;
    let (mut asked, answer) = (vec![0; request], vec![7; reply]);
    while stream.read_exact(&mut asked).is_ok() {
        stream.write_all(&answer)?;
    }
    Ok(())
}

fn connect(path: &Path) -> io::Result<UnixStream> {
    let begin = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(e) if begin.elapsed() > PATIENCE => return Err(e),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Sends a question and reads the whole answer into `answer`.
fn ask(stream: &mut UnixStream, question: &[u8], answer: &mut [u8]) -> io::Result<Duration> {
    let begin = Instant::now();
    stream.write_all(question)?;
    stream.read_exact(answer)?;
    Ok(begin.elapsed())
}

fn socket(path: &Path, turns: &str) -> io::Result<()> {
    let turns = number(turns)?;
    let mut manager = connect(path)?;
    let mut question = Vec::new();
    wire::frame(&mut question, Kind::Decide, 1, |out| wire::put_requests(out, &request().arrays));
    // The first answer tells how long the others are.
    manager.write_all(&question)?;
    let mut head = [0; wire::HEAD];
    manager.read_exact(&mut head)?;
    let mut answer = head.to_vec();
    answer.resize(wire::HEAD + u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize, 0);
    manager.read_exact(&mut answer[wire::HEAD..])?;
    let frame = Frame::first(&answer).map_err(io::Error::other)?.ok_or_else(|| io::Error::other("no whole frame"))?;
    if frame.kind != Kind::Decision {
        return Err(io::Error::other(format!("the manager answered {:?}", frame.kind)));
    }
    let candidates = wire::decision(frame.payload).map_err(io::Error::other)?.len();

    let pong = std::env::temp_dir().join(format!("neater-p1-{}", std::process::id()));
    let sizes = [question.len(), answer.len()].map(|n| n.to_string());
    let mut child = Command::new(std::env::current_exe()?)
        .arg("echo")
        .arg(&pong)
        .args(&sizes)
        .stdout(std::process::Stdio::null())
        .spawn()?;
    let measured = (|| {
        let mut ping = connect(&pong)?;
        let (mut decided, mut echoed) = (Vec::new(), Vec::new());
        let expected = answer.clone();
        while decided.len() < turns {
            for _ in 0..BLOCK.min(turns - decided.len()) {
                decided.push(ask(&mut manager, &question, &mut answer)?.as_secs_f64() * 1e6);
                if answer != expected {
                    return Err(io::Error::other("equal questions have different answers"));
                }
            }
            for _ in 0..BLOCK.min(turns - echoed.len()) {
                echoed.push(ask(&mut ping, &question, &mut answer)?.as_secs_f64() * 1e6);
            }
        }
        Ok((median(decided), median(echoed)))
    })();
    // The echo ends with its connection; nobody else knows the path.
    let _ = std::fs::remove_file(&pong);
    if measured.is_err() {
        let _ = child.kill();
    }
    child.wait()?;
    let (decided, echoed) = measured?;
    println!(
        "{}",
        json!({"decide_us": decided, "ping_us": echoed, "candidates": candidates, "request_bytes": question.len(),
            "reply_bytes": expected_len(&sizes)})
    );
    Ok(())
}

fn expected_len(sizes: &[String; 2]) -> usize {
    sizes[1].parse().unwrap_or_default()
}
