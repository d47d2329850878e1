//! Who else uses the machine while something is measured.
//!
//! *Responsible for* the processor time of others between two readings: programs that are neither this process nor its
//! children, and the hypervisor. *Not for* what that does to a figure: a busy machine is named beside the figures, and the
//! reader judges.
//!
//! Work of the kernel is not counted: interrupts and kernel threads carry the packets that are measured, too. Children count
//! as ours when they have ended and were waited for, as all of a run are when it is over.

use std::fs;
use std::time::Instant;

/// Others that have less than this, in processors, do not make a machine busy.
const SOME: f64 = 0.25;
/// Nor those that have less than this part of all processors.
const PART: f64 = 0.05;
/// `PF_KTHREAD` among the flags of a process (`include/linux/sched.h`).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// What the system has counted so far.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    at: Instant,
    /// Ticks of all processors: of programs and the hypervisor, and all of them, idle ones included.
    used: u64,
    all: u64,
    processors: usize,
    /// Ticks of this process and its children that have ended, and of the kernel's threads.
    ours: u64,
    kernel: u64,
    /// Microseconds in which something waited for a processor.
    waited: Option<u64>,
}

/// What others have used between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Others {
    /// In processors, in the mean.
    pub processors: f64,
    /// Of so many.
    pub of: usize,
    /// The part of the time in which something, ours included, waited for a processor.
    pub pressure: Option<f64>,
}

/// The first line of `/proc/stat` and how many processors follow: (used, all, processors).
fn machine(text: &str) -> Option<(u64, u64, usize)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user.
    let [user, nice, system, _, _, _, _, steal, ..] = ticks[..] else { return None };
    let one = |l: &&str| l.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let processors = text.lines().filter(one).count();
    Some((user + nice + system + steal, ticks.iter().take(8).sum(), processors))
}

/// The fields of `/proc/PID/stat` behind the name, which may contain anything: (flags, own ticks, those of children).
fn process(text: &str) -> Option<(u64, u64, u64)> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // The state is the third field of the line, flags the ninth, utime the fourteenth (proc_pid_stat(5)).
    let field = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
    Some((field(9)?, field(14)? + field(15)?, field(16)? + field(17)?))
}

/// The total of the line `some` of `/proc/pressure/cpu`.
fn pressure(text: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.starts_with("some "))?;
    line.split_whitespace().find_map(|w| w.strip_prefix("total="))?.parse().ok()
}

/// Ticks of all threads of the kernel.
fn kernel() -> u64 {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let numbered = |name: &str| name.starts_with(|c: char| c.is_ascii_digit());
    let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).filter(|n| numbered(n));
    let threads = names.filter_map(|n| process(&fs::read_to_string(format!("/proc/{n}/stat")).ok()?));
    threads.filter(|(flags, ..)| flags & KERNEL_THREAD != 0).map(|(_, own, _)| own).sum()
}

impl Reading {
    /// What the system has counted up to now; `None` where it does not tell.
    #[must_use]
    pub fn now() -> Option<Self> {
        let (used, all, processors) = machine(&fs::read_to_string("/proc/stat").ok()?)?;
        let (_, own, children) = process(&fs::read_to_string("/proc/self/stat").ok()?)?;
        let waited = fs::read_to_string("/proc/pressure/cpu").ok().and_then(|text| pressure(&text));
        Some(Self { at: Instant::now(), used, all, processors, ours: own + children, kernel: kernel(), waited })
    }

    /// What others have used since; `None` if too little time has passed.
    #[must_use]
    pub fn others(&self, now: &Self) -> Option<Others> {
        let all = now.all.checked_sub(self.all).filter(|ticks| *ticks > 0)?;
        let used = now.used.saturating_sub(self.used);
        let known = now.ours.saturating_sub(self.ours) + now.kernel.saturating_sub(self.kernel);
        let part = used.saturating_sub(known) as f64 / all as f64;
        let passed = now.at.duration_since(self.at).as_micros().max(1) as f64;
        let waited = self.waited.zip(now.waited).map(|(a, b)| b.saturating_sub(a) as f64 / passed);
        Some(Others { processors: part * now.processors as f64, of: now.processors, pressure: waited })
    }
}

impl Others {
    /// That the machine was busy, in words, if it was; `load`: the load averages before and after.
    #[must_use]
    pub fn busy(&self, load: (f64, f64)) -> Option<String> {
        let least = SOME.max(PART * self.of as f64);
        let waited = self.pressure.map_or_else(String::new, |p| {
            format!("; something waited for a processor in {:.0} % of the time", p * 100.0)
        });
        (self.processors >= least).then(|| {
            format!(
                "this machine was busy: others had {:.1} of its {} processors while this was measured (load average {:.2} \
                 before, {:.2} after{waited}). Times and CPU times from it may be wrong; measure again when it is quiet.",
                self.processors, self.of, load.0, load.1
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const STAT: &str =
        "cpu  100 10 50 800 20 5 15 40 3 0\ncpu0 1 1 1 1 1 1 1 1 0 0\ncpu1 1 1 1 1 1 1 1 1 0 0\nintr 5 1\n";

    #[test]
    fn what_the_system_counts_is_read() {
        // Idle, waiting for disks, and interrupts are not used; the hypervisor's part is.
        assert_eq!(machine(STAT), Some((200, 1040, 2)));
        assert_eq!(machine("cpu  1 2 3\n"), None);
        assert_eq!(machine(""), None);
        let line = "7 (a) b (c) S 1 7 7 0 -1 2129984 0 0 0 0 11 22 33 44 20 0 1 0 5";
        assert_eq!(process(line), Some((2_129_984, 33, 77)));
        assert_ne!(2_129_984 & KERNEL_THREAD, 0);
        assert_eq!(process("7 (a) S 1"), None);
        let text =
            "some avg10=1.00 avg60=0.50 avg300=0.10 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n";
        assert_eq!((pressure(text), pressure("")), (Some(12345), None));
    }

    fn reading(at: Instant, used: u64, all: u64, ours: u64, kernel: u64) -> Reading {
        Reading { at, used, all, processors: 2, ours, kernel, waited: Some(used * 10_000) }
    }

    #[test]
    fn what_is_ours_and_the_kernels_is_not_that_of_others() {
        let (start, end) = (Instant::now(), Instant::now() + Duration::from_secs(10));
        let before = reading(start, 0, 0, 0, 0);
        let quiet = before.others(&reading(end, 1000, 2000, 950, 40)).expect("time has passed");
        assert!((quiet.processors - 0.01).abs() < 1e-9 && quiet.of == 2, "{quiet:?}");
        assert_eq!(quiet.busy((1.0, 1.0)), None);
        let busy = before.others(&reading(end, 1900, 2000, 950, 50)).expect("time has passed");
        assert!((busy.processors - 0.9).abs() < 1e-9, "{busy:?}");
        let words = busy.busy((0.5, 2.25)).expect("busy");
        for part in ["this machine was busy: others had 0.9 of its 2 processors", "0.50 before, 2.25 after"] {
            assert!(words.contains(part), "{words}");
        }
        // On many processors some work of others is usual.
        assert_eq!(Others { processors: 0.9, of: 64, pressure: None }.busy((1.0, 1.0)), None);
        assert!(Others { processors: 4.0, of: 64, pressure: None }.busy((1.0, 1.0)).is_some());
        assert_eq!(before.others(&before), None);
    }

    #[test]
    fn this_machine_tells() {
        let one = Reading::now().expect("Linux");
        assert!(one.all > 0 && one.processors > 0 && one.used <= one.all, "{one:?}");
    }
}
