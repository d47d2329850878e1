//! Plans follow from their seeds, and runs from their plans. (Many seeds: `cargo xtask vopr`.)

use neater_vopr::plan::{Answer, AppPlan, Ending, Fault, FaultPlan, First, SERVICES, Service, SystemMood, Target};
use neater_vopr::{Plan, Telling, run};

#[test]
fn the_same_plan_does_the_same_again_whether_or_not_it_is_told() {
    for seed in 0..10 {
        let plan = Plan::draw(seed);
        assert_eq!(plan, Plan::draw(seed));
        let (once, again) = (run(&plan, Telling::Nothing), run(&plan, Telling::Packets));
        assert_eq!(once.failure, None, "seed {seed}");
        assert_eq!((once.digest, once.virtual_time, once.bytes), (again.digest, again.virtual_time, again.bytes));
        assert!(once.lines.is_empty());
        assert_eq!(again.lines.is_empty(), again.flows == 0);
    }
    assert_ne!(run(&Plan::draw(1), Telling::Nothing).digest, run(&Plan::draw(2), Telling::Nothing).digest);
}

#[test]
fn a_plan_says_all_that_is_in_it() {
    let plan = Plan::draw(3);
    let words = plan.to_string();
    let count = |what: &str| words.lines().filter(|l| l.trim_start().starts_with(what)).count();
    assert_eq!(count("host "), plan.hosts.len());
    assert_eq!(count("app "), plan.apps.len());
    assert_eq!(count("fault "), plan.faults.len());
}

/// Two hosts with nothing between them that is wrong, and no programs.
fn quiet(seed: u64) -> Plan {
    let mut plan = Plan::draw(seed);
    plan.apps.clear();
    plan.faults.clear();
    plan.cables.clear();
    plan.dead_resolver = false;
    plan.hosts.truncate(2);
    for host in &mut plan.hosts {
        host.system = SystemMood::Good;
        host.tight = false;
        for iface in &mut host.ifaces {
            (iface.v4, iface.v6, iface.nat) = (true, true, None);
            for link in [&mut iface.up, &mut iface.down] {
                (link.rate, link.loss, link.blocked, link.mtu, link.jitter_us) = (None, 0, None, 1500, 0);
                link.delay_us = link.delay_us.min(20_000);
                (link.twice, link.corrupt, link.fq_codel) = (0, 0, false);
            }
        }
    }
    plan
}

/// A program of the first host that uses a service of the second.
fn app(service: Service, answer: Answer) -> AppPlan {
    AppPlan {
        client: 0,
        server: 1,
        service,
        target: Target::Name,
        at: 0,
        rounds: 2,
        first: First::Replayable,
        impatient: None,
        clones: 1,
        up: 5000,
        down: 3000,
        piece: 700,
        answer,
        client_end: Ending::Close,
        server_end: Ending::Close,
        client_slow: 0,
        server_slow: 0,
        cancel: true,
        bytes: !service.framed,
    }
}

/// Where nothing is wrong everything arrives: otherwise the book would have nothing to judge.
#[test]
fn in_a_world_without_faults_every_service_carries_everything() {
    let mut plan = quiet(5);
    plan.apps = SERVICES
        .iter()
        .filter(|s| s.is_stream())
        .flat_map(|service| [Answer::Echo, Answer::AtOnce, Answer::AfterEnd].map(|answer| app(*service, answer)))
        .collect();
    let outcome = run(&plan, Telling::Events);
    assert_eq!(outcome.failure, None, "{}", outcome.lines.join("\n"));
    // Each program has two rounds of a connection and its clone.
    let each = |answer| if answer == Answer::Echo { 10_000 } else { 8_000 };
    let expected: u64 = plan.apps.iter().map(|a| 4 * each(a.answer)).sum();
    // Nothing is in the way of anybody: each service is proven alive once, and it is a flow like any other.
    let mut services: Vec<u16> = plan.apps.iter().map(|a| a.service.port).collect();
    services.dedup();
    assert_eq!(outcome.proofs, services.len());
    assert_eq!(outcome.flows, plan.apps.len() * 4 + services.len());
    assert_eq!(outcome.done, outcome.flows);
    assert!(outcome.bytes >= expected, "{} of {expected} bytes\n{}", outcome.bytes, outcome.lines.join("\n"));
}

/// A server whose power comes back just before the calm, on a system that refuses it a descriptor, listens half a second later.
#[test]
fn who_could_not_listen_just_before_the_calm_is_given_time() {
    let mut refused = 0;
    for seed in 0..12 {
        let mut plan = quiet(seed);
        plan.apps = SERVICES.iter().filter(|s| s.is_stream()).map(|s| app(*s, Answer::Echo)).collect();
        plan.hosts[1].system = SystemMood::Hostile;
        // Until then all programs are over.
        plan.calm_at = 60_000;
        plan.faults = vec![FaultPlan { at: 59_000, lasts: 999, what: Fault::PowerCut { host: 1 } }];
        let outcome = run(&plan, Telling::Events);
        assert_eq!(outcome.failure, None, "seed {seed}: {}", outcome.lines.join("\n"));
        let cut = outcome.lines.iter().position(|l| l.contains("fault 0 ends")).expect("told");
        refused += outcome.lines[cut..].iter().filter(|l| l.contains("cannot listen")).count();
    }
    assert!(refused > 0, "no server was refused anything, and nothing was tried");
}
