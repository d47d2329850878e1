//! Making a failing plan small: leaving out faults, programs and peculiarities as long as it fails in the same way.

use crate::plan::{Plan, SystemMood};
use crate::run::{Telling, run};

/// The kind of a failure: its words without its numbers.
fn kind(why: &str) -> String {
    why.chars().filter(|c| !c.is_ascii_digit()).take(24).collect()
}

/// A smaller plan that fails in the same way, and how: nothing can be left out of it alone. At most `tries` plans are
/// done on the way. `None`: the plan does not fail.
#[must_use]
pub fn smaller(plan: &Plan, mut tries: usize) -> Option<(Plan, String)> {
    let mut why = run(plan, Telling::Nothing).failure?;
    let mut best = plan.clone();
    loop {
        let mut progress = false;
        for cut in cuts(&best) {
            if tries == 0 {
                return Some((best, why));
            }
            tries -= 1;
            if let Some(other) = run(&cut, Telling::Nothing).failure
                && kind(&other) == kind(&why)
            {
                why = other;
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
        with(&|p| {
            p.apps.remove(n);
        });
    }
    for n in 0..plan.faults.len() {
        with(&|p| {
            p.faults.remove(n);
        });
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
                    (link.twice, link.corrupt, link.fq_codel) = (0, 0, false);
                }
            });
            with(&|p| p.hosts[n].ifaces[i].nat = None);
        }
    }
    for n in 0..plan.apps.len() {
        with(&|p| p.apps[n].rounds = 1);
        with(&|p| p.apps[n].clones = 0);
        with(&|p| p.apps[n].cancel = false);
        with(&|p| p.apps[n].bytes = false);
        with(&|p| (p.apps[n].client_slow, p.apps[n].server_slow) = (0, 0));
        with(&|p| p.apps[n].impatient = None);
        with(&|p| (p.apps[n].up, p.apps[n].down) = (p.apps[n].up / 2, p.apps[n].down / 2));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cut_leaves_something_out_and_is_a_plan_that_can_be_done() {
        let plan = Plan::draw(7);
        let cuts = cuts(&plan);
        assert!(cuts.len() >= plan.apps.len() + plan.faults.len());
        assert!(cuts.iter().all(|cut| *cut != plan));
        assert!(cuts.iter().take(3).all(|cut| run(cut, Telling::Nothing).failure.is_none()));
    }

    #[test]
    fn failures_are_of_one_kind_whatever_their_numbers() {
        assert_eq!(kind("flow 3 Up: byte 77 is not what was said"), kind("flow 12 Up: byte 1 is not what was said"));
        assert_ne!(kind("flow 3 does not move"), kind("h2 has 4 sockets"));
        assert_eq!(smaller(&Plan::draw(7), 3), None, "a plan that does not fail");
    }
}
