//! `neater-lab calibrate`: what the kernel's TCP delivers at the points of the calibration, beside the simulated one.
//!
//! *Responsible for* measuring the kernel through the live lab with the same links and the same losses as the simulator, and
//! for the table. *Not responsible for* the points and the simulation: `neater_netsim::calibration` has them.

use crate::runner::environment::kernel;
use clap::Args;
use neater_emulator::{Lab, LiveError, Options, Plan};
use neater_netsim::calibration::{BUFFER, COLUMNS, LINUX, Point, Row, rows, simulate};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Result<T> = core::result::Result<T, LiveError>;

/// How long a lab takes to be made and taken down again, at most.
const UP: Duration = Duration::from_secs(2);

const HELP: &str = "Examples:
  neater-lab calibrate --check                       simulate all points and compare with the table that comes with neater
  neater-lab calibrate --out table.csv --jobs 2      measure the kernel at all points, and compare with that
  neater-lab calibrate --only 'reno 10 Mbit/s 50 ms' --out table.csv
  neater-lab calibrate --out table.csv --for 200     go on for 200 seconds, and stop between two transfers

A row that is already in --out is not measured again; a table that another kernel began is refused. Exit code 1
if a point's ratio lies outside 0.9 to 1.1, or the mean of all points outside 0.97 to 1.03. Measuring needs root; a full table takes about an hour with one job.";

/// Measure the kernel's TCP at the points of the calibration and compare the simulated one with it.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct CalibrateArgs {
    /// The table: a row is added for each transfer that is measured.
    #[arg(long, value_name = "FILE", default_value = "calibration.csv")]
    out: PathBuf,
    /// Only points whose name contains this, such as `cubic 10 Mbit/s`.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Transfers at once, each in a lab of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    jobs: u32,
    /// Begin no transfer that would end later than so many seconds from now; the next call goes on.
    #[arg(long = "for", value_name = "SECONDS")]
    limit: Option<u32>,
    /// Measure nothing: compare with the table that comes with neater.
    #[arg(long)]
    check: bool,
}

/// Runs the command.
///
/// # Errors
/// The lab cannot be used, or a file not be read or written.
pub fn run(args: &CalibrateArgs) -> Result<()> {
    let known = rows(LINUX).map_err(LiveError::Failed)?;
    let wanted: Vec<Row> = known.into_iter().filter(|r| r.point.name().contains(&args.only)).collect();
    if wanted.is_empty() {
        return Err(LiveError::Usage(format!("no point's name contains {:?}", args.only)));
    }
    if args.check {
        return compare(&wanted);
    }
    let have = match std::fs::read_to_string(&args.out) {
        Ok(text) => {
            let usage = |e: String| LiveError::Usage(format!("{}: {e}", args.out.display()));
            same_kernel(&text, &kernel()).map_err(usage)?;
            rows(&text).map_err(usage)?
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(LiveError::Usage(format!("{}: {e}", args.out.display()))),
    };
    let todo: Vec<&Point> = wanted.iter().map(|r| &r.point).filter(|p| have.iter().all(|h| h.point != **p)).collect();
    eprintln!("neater-lab: {} transfers to measure, {} are there", todo.len(), wanted.len() - todo.len());
    let left = measure_all(&todo, args)?;
    if left > 0 {
        eprintln!("neater-lab: {left} transfers are still to be measured: the same command goes on");
        return Ok(());
    }
    let text = std::fs::read_to_string(&args.out).map_err(|e| failed("reading the table", &e))?;
    let all = rows(&text).map_err(LiveError::Failed)?;
    compare(&all.into_iter().filter(|r| r.point.name().contains(&args.only)).collect::<Vec<_>>())
}

/// How the line of a table begins that says which kernel its rows are of.
const KERNEL: &str = "# kernel ";

/// Rows of two kernels do not belong into one table. One that does not say whose they are is gone on with by whoever trusts it.
fn same_kernel(table: &str, here: &str) -> core::result::Result<(), String> {
    match table.lines().filter_map(|l| l.strip_prefix(KERNEL)).find(|k| k.trim() != here) {
        Some(other) => Err(format!("its rows are of kernel {}, and this is {here}: name another --out", other.trim())),
        None => Ok(()),
    }
}

fn failed(what: &str, e: &std::io::Error) -> LiveError {
    LiveError::Failed(format!("{what}: {e}"))
}

/// Measures what there is time for. Returns how many transfers are left.
fn measure_all(todo: &[&Point], args: &CalibrateArgs) -> Result<usize> {
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&args.out)
        .map_err(|e| LiveError::Usage(format!("{}: {e}", args.out.display())))?;
    if file.metadata().map_err(|e| failed("the table", &e))?.len() == 0 {
        writeln!(file, "{KERNEL}{}\n{COLUMNS}", kernel()).map_err(|e| failed("writing the table", &e))?;
    }
    let end = args.limit.map(|s| Instant::now() + Duration::from_secs(s.into()));
    let in_time = |p: &Point| end.is_none_or(|end| Instant::now() + Duration::from_secs_f64(p.seconds) + UP <= end);
    let queue = Mutex::new((todo, file));
    let lock = || queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let work = || -> Result<()> {
        loop {
            let point = {
                let todo = &mut lock().0;
                let Some((point, others)) = todo.split_first().filter(|(p, _)| in_time(p)) else { return Ok(()) };
                *todo = others;
                *point
            };
            let line = measure_soundly(point)?;
            writeln!(lock().1, "{line}").map_err(|e| failed("writing the table", &e))?;
            eprintln!("{line}");
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|w| w.join());
        let outcomes = joined.map(|r| r.unwrap_or_else(|_| Err(LiveError::Failed("a worker panicked".into()))));
        outcomes.collect::<Vec<_>>().into_iter().collect::<Result<()>>()
    })?;
    Ok(queue.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).0.len())
}

/// A transfer is measured so often if the emulator could not keep up.
const TRIES: usize = 3;

/// Measures one transfer that nothing disturbed, and returns its row.
fn measure_soundly(point: &Point) -> Result<String> {
    let mut why = String::new();
    for _ in 0..TRIES {
        match measure(point)? {
            Ok(line) => return Ok(line),
            Err(disturbance) => why = disturbance,
        }
        eprintln!("neater-lab: {}: {why}; once more", point.name());
    }
    Err(LiveError::Failed(format!("{}: {TRIES} times {why}; fewer --jobs may help", point.name())))
}

/// Measures one transfer and returns its row, or what disturbed it.
fn measure(point: &Point) -> Result<core::result::Result<String, String>> {
    let (there, back) = point.links();
    let mut plan = Plan::pair(there, back, point.seed);
    let window = BUFFER * 2;
    for (key, value) in [
        ("net.ipv4.tcp_congestion_control", point.controller.clone()),
        ("net.ipv4.tcp_rmem", format!("4096 131072 {window}")),
        ("net.ipv4.tcp_wmem", format!("4096 16384 {window}")),
        ("net.ipv4.tcp_no_metrics_save", "1".into()),
    ] {
        plan.sysctl_everywhere(key, &value);
    }
    let lab = Lab::up(&plan, &Options::default())?;
    let address = SocketAddr::new(lab.address("server", false)?, 5001);
    let listen = || TcpListener::bind(address).map_err(|e| failed("listening", &e));
    let listener = lab.netns("server")?.with(listen)?;
    let got = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let (goodput, retransmits) = std::thread::scope(|scope| {
        scope.spawn(|| receive(&listener, &got, &stop));
        let start = Instant::now();
        let connect = || TcpStream::connect(address).map_err(|e| failed("connecting", &e));
        let stream = lab.netns("client").and_then(|n| n.with(connect)).inspect_err(|_| {
            stop.store(true, Ordering::Relaxed);
        })?;
        let sender = stream.try_clone().map_err(|e| failed("the connection", &e))?;
        scope.spawn(move || {
            let data = vec![0; 256 << 10];
            let mut sender = sender;
            while sender.write(&data).is_ok_and(|n| n > 0) {}
        });
        std::thread::sleep(Duration::from_secs_f64(point.seconds).saturating_sub(start.elapsed()));
        let bytes = got.load(Ordering::Relaxed);
        let seconds = start.elapsed().as_secs_f64();
        let retransmits = retransmits(&stream);
        stop.store(true, Ordering::Relaxed);
        let _ = stream.shutdown(Shutdown::Both);
        Ok::<_, LiveError>((bytes as f64 * 8.0 / seconds / 1e6, retransmits))
    })?;
    // As in the B experiments: half a millisecond and one percent of the round trip.
    if let Some(why) = lab.disturbance(500.0 + 10.0 * point.rtt_ms)? {
        return Ok(Err(why));
    }
    let links = lab.links()?;
    let link = links.first().ok_or_else(|| LiveError::Failed("the lab has no link".into()))?;
    let Point { controller, mbit, rtt_ms, loss_percent, queue_bytes, seed, seconds } = point;
    let counts = format!("{retransmits},{},{},{}", link.queue_full, link.lost, link.offered);
    Ok(Ok(format!("{controller},{mbit},{rtt_ms},{loss_percent},{queue_bytes},{seed},{seconds},{goodput:.4},{counts}")))
}

/// Counts what arrives until it is told to stop.
fn receive(listener: &TcpListener, got: &AtomicU64, stop: &AtomicBool) {
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(_) if stop.load(Ordering::Relaxed) => return,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    if stream.set_nonblocking(false).is_err() || stream.set_read_timeout(Some(Duration::from_millis(100))).is_err() {
        return;
    }
    let mut buf = vec![0; 1 << 20];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buf) {
            Ok(0) => return,
            Ok(n) => drop(got.fetch_add(n as u64, Ordering::Relaxed)),
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

/// Segments that the kernel has sent again on a connection; 0 if it does not say.
fn retransmits(stream: &TcpStream) -> u32 {
    // SAFETY: all-zero bytes are a valid `tcp_info`, which is made of integers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the life of `stream`; pointer and length describe `info`, which outlives the call.
    let result = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut len)
    };
    if result == 0 { info.tcpi_total_retrans } else { 0 }
}

/// Simulates the points of a table, prints both, and fails if they differ by more than they may.
fn compare(table: &[Row]) -> Result<()> {
    let mut points: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in table {
        points.entry(row.point.name()).or_default().push(row);
    }
    let mut out = std::io::stdout().lock();
    let mut say = |line: String| writeln!(out, "{line}").map_err(|e| failed("writing", &e));
    say(format!("{:<44} {:>10} {:>10} {:>6}", "point", "kernel", "simulator", "ratio"))?;
    let mut ratios = Vec::new();
    for (name, rows) in points {
        let kernel = rows.iter().map(|r| r.goodput_mbit).sum::<f64>() / rows.len() as f64;
        let ours = rows.iter().map(|r| simulate(&r.point, |_, _| {}).0).sum::<f64>() / rows.len() as f64;
        let ratio = ours / kernel.max(1e-9);
        ratios.push(ratio);
        let mark = if (0.9..=1.1).contains(&ratio) { "" } else { "  outside 0.9 to 1.1" };
        say(format!("{name:<44} {kernel:>10.3} {ours:>10.3} {ratio:>6.3}{mark}"))?;
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len().max(1) as f64;
    let outside = ratios.iter().filter(|r| !(0.9..=1.1).contains(*r)).count();
    say(format!("{} points, Mbit/s of payload; {outside} outside 0.9 to 1.1; mean ratio {mean:.4}", ratios.len()))?;
    verdict(&ratios)
}

/// The points of the whole table: the mean is promised of these.
const POINTS: usize = 60;

/// Each point within 0.9 to 1.1, and all of them within 0.97 to 1.03 in the mean.
fn verdict(ratios: &[f64]) -> Result<()> {
    let outside = ratios.iter().filter(|r| !(0.9..=1.1).contains(*r)).count();
    if outside > 0 {
        return Err(LiveError::Failed(format!("{outside} of {} points lie outside 0.9 to 1.1", ratios.len())));
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len().max(1) as f64;
    if ratios.len() >= POINTS && !(0.97..=1.03).contains(&mean) {
        return Err(LiveError::Failed(format!("the mean of all points is {mean:.4}, outside 0.97 to 1.03")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulator_that_is_off_is_a_failure() {
        assert!(verdict(&[1.0; 60]).is_ok() && verdict(&[0.9, 1.1]).is_ok());
        assert!(verdict(&[1.0, 0.89]).is_err_and(|e| e.to_string().contains("1 of 2 points")));
        assert!(verdict(&[1.0, f64::NAN]).is_err());
        assert!(verdict(&[1.05; 60]).is_err_and(|e| e.to_string().contains("mean")));
        assert!(verdict(&[1.05; 59]).is_ok(), "of a part the mean says nothing");
    }

    #[test]
    fn a_table_of_another_kernel_is_not_gone_on_with() {
        let table = format!("{KERNEL}6.18.5\n{COLUMNS}\n");
        assert!(same_kernel(&table, "6.18.5").is_ok() && same_kernel(COLUMNS, "6.18.5").is_ok());
        assert!(same_kernel(&table, "6.19.0").is_err_and(|why| why.contains("6.18.5") && why.contains("--out")));
        assert!(rows(&table).is_ok_and(|r| r.is_empty()), "the simulator reads over it");
    }
}
