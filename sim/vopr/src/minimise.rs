//! Making a failing plan small: leaving out faults, programs and peculiarities as long as it fails in the same way.

use crate::plan::{Plan, SystemMood};
use crate::run::{Outcome, run};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What came of a plan, panics included.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// All held.
    Good(Outcome),
    /// Something did not hold, and what.
    Bad(String),
}

impl Verdict {
    /// What did not hold.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Good(_) => None,
            Self::Bad(why) => Some(why),
        }
    }
}

/// Does a plan; a panic is a failure like any other.
#[must_use]
pub fn verdict(plan: &Plan) -> Verdict {
    match catch_unwind(AssertUnwindSafe(|| run(plan, false))) {
        Ok(Outcome { failure: Some(why), .. }) => Verdict::Bad(why),
        Ok(outcome) => Verdict::Good(outcome),
        Err(panic) => {
            let said = panic.downcast_ref::<&str>().copied();
            let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
            Verdict::Bad(format!("panic: {said}"))
        }
    }
}

/// The kind of a failure: its words without its numbers.
fn kind(why: &str) -> String {
    why.chars().filter(|c| !c.is_ascii_digit()).take(24).collect()
}

/// A smaller plan that fails in the same way, and how: nothing can be left out of it alone. At most `tries` plans are
/// done on the way. `None`: the plan does not fail.
#[must_use]
pub fn smaller(plan: &Plan, mut tries: usize) -> Option<(Plan, String)> {
    let mut why = verdict(plan).failure()?.to_owned();
    let mut best = plan.clone();
    loop {
        let mut progress = false;
        for cut in cuts(&best) {
            if tries == 0 {
                return Some((best, why));
            }
            tries -= 1;
            if let Some(other) = verdict(&cut).failure()
                && kind(other) == kind(&why)
            {
                why = other.to_owned();
                best = cut;
                progress = true;
                break;
            }
        }
        if !progress {
            return Some((best, why));
        }
    }
}

/// Plans with one thing less, the largest things first.
fn cuts(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Plan)| {
        let mut cut = plan.clone();
        change(&mut cut);
        if cut != *plan {
            all.push(cut);
        }
    };
    for n in 0..plan.apps.len() {
        with(&|p| drop(p.apps.remove(n)));
    }
    for n in 0..plan.faults.len() {
        with(&|p| drop(p.faults.remove(n)));
    }
    with(&|p| p.cables.clear());
    for n in 0..plan.hosts.len() {
        with(&|p| p.hosts[n].system = SystemMood::Good);
        with(&|p| p.hosts[n].tight = false);
        for i in 0..plan.hosts[n].ifaces.len() {
            with(&|p| {
                let iface = &mut p.hosts[n].ifaces[i];
                for link in [&mut iface.up, &mut iface.down] {
                    (link.blocked, link.loss, link.jitter_us, link.reorder) = (None, 0, 0, false);
                    (link.mtu, link.queue, link.rate) = (1500, 256, None);
                }
            });
        }
    }
    for n in 0..plan.apps.len() {
        with(&|p| p.apps[n].rounds = 1);
        with(&|p| p.apps[n].clones = 0);
        with(&|p| p.apps[n].whim = false);
        with(&|p| p.apps[n].bytes = false);
        with(&|p| (p.apps[n].client_slow, p.apps[n].server_slow) = (0, 0));
        with(&|p| p.apps[n].impatient = None);
        with(&|p| (p.apps[n].up, p.apps[n].down) = (p.apps[n].up / 2, p.apps[n].down / 2));
    }
    all
}
