//! Drawing a plan from a seed.
//!
//! *Responsible for* how often what happens: most worlds are ordinary with a few things wrong, since where everything is
//! broken nothing is tested. *Not for* what the parts of a plan mean (`plan`).

use crate::dice::Dice;
use crate::plan::{
    Answer, AppPlan, Block, Cable, Ending, Fault, FaultPlan, First, HostPlan, IfacePlan, LinkFault, LinkPlan, Millis,
    NamesFault, NatKind, Plan, SERVICES, Side, SystemMood, Target,
};
use crate::world::address;
use neater_base::net::InterfaceKind;

/// The most bytes of one direction of a flow.
const MAX_BYTES: u64 = 150_000;
/// What all flows of a plan may say, so that no world takes for ever.
const WORLD_BYTES: u64 = 400_000;

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut d = Dice::new(seed ^ 0x706c_616e);
        let mut hosts: Vec<HostPlan> =
            (0..d.weighted(&[(6, 2), (4, 3), (2, 4), (1, 5), (1, 6)])).map(|_| host(&mut d)).collect();
        let cables = if d.percent(15) { vec![cable(&mut d, hosts.len())] } else { Vec::new() };
        let calm_at = d.magnitude(2_000, 60_000);
        let mut budget = WORLD_BYTES;
        let count = d.weighted(&[(2, 1), (4, 3), (4, 5), (2, 8)]);
        let apps: Vec<AppPlan> = (0..count).map(|_| app(&mut d, &hosts, calm_at, &mut budget)).collect();
        for (n, host) in hosts.iter_mut().enumerate() {
            // Nobody reaches a server behind a NAT box.
            if !apps.iter().any(|app| app.server == n) && d.percent(40) {
                let kind = d.pick(&[NatKind::FullCone, NatKind::PortRestricted, NatKind::Symmetric]);
                host.ifaces.iter_mut().for_each(|i| i.nat = Some(kind));
            }
        }
        let wrong = d.weighted(&[(1, 0), (3, 2), (4, 5), (2, 10)]);
        let faults = (0..wrong).map(|_| fault(&mut d, &hosts, calm_at)).collect();
        Self { seed, hosts, cables, unreachable: d.percent(50), dead_resolver: d.percent(10), apps, faults, calm_at }
    }
}

fn host(d: &mut Dice) -> HostPlan {
    let ifaces = (0..d.weighted(&[(6, 1), (3, 2), (1, 3), (1, 4)])).map(|_| iface(d)).collect();
    let system = d.weighted(&[(5, SystemMood::Good), (3, SystemMood::Nasty), (1, SystemMood::Hostile)]);
    HostPlan { ifaces, system, tight: d.percent(20) }
}

fn iface(d: &mut Dice) -> IfacePlan {
    let kinds = [InterfaceKind::Wired, InterfaceKind::WiFi, InterfaceKind::Cellular, InterfaceKind::Tunnel];
    let (v4, v6) = d.weighted(&[(5, (true, true)), (3, (true, false)), (2, (false, true))]);
    let (up, down) = (link(d), link(d));
    IfacePlan { kind: d.pick(&kinds), v4, v6, nat: None, up, down }
}

fn link(d: &mut Dice) -> LinkPlan {
    let jitter_us = if d.percent(30) { d.magnitude(100, 30_000) } else { 0 };
    let blocks = [Block::Udp, Block::UdpRejected, Block::Tcp, Block::V6];
    LinkPlan {
        rate: if d.percent(25) { None } else { Some(d.magnitude(256_000, 200_000_000)) },
        delay_us: d.magnitude(50, 120_000),
        jitter_us,
        reorder: jitter_us > 0 && d.percent(40),
        loss: if d.percent(30) { d.magnitude(1, 500) } else { 0 },
        twice: if d.percent(10) { d.magnitude(1, 2_000) } else { 0 },
        corrupt: if d.percent(10) { d.magnitude(1, 200) } else { 0 },
        queue: d.magnitude(8, 400) as usize,
        fq_codel: d.percent(20),
        mtu: d.weighted(&[(8, 1500), (1, 1280), (1, 1400), (1, 9000)]),
        blocked: match d.within(0, 19) {
            0 => Some(d.pick(&blocks)),
            1 => Some(Block::Port(d.pick(&SERVICES).port)),
            _ => None,
        },
    }
}

fn cable(d: &mut Dice, hosts: usize) -> Cable {
    let a = d.index(hosts);
    Cable { a, b: (a + 1 + d.index(hosts - 1)) % hosts, link: LinkPlan { blocked: None, ..link(d) } }
}

fn target(d: &mut Dice, server: usize, host: &HostPlan) -> Target {
    let iface = d.index(host.ifaces.len());
    let plan = &host.ifaces[iface];
    match d.within(0, 9) {
        0 => Target::WrongAndName,
        1..=4 => Target::Address(address(server, iface, plan.v4 && (!plan.v6 || d.percent(50)), 1)),
        _ => Target::Name,
    }
}

fn ending(d: &mut Dice, most: u64) -> Ending {
    match d.within(0, 19) {
        0 => Ending::AbortAt(d.within(0, most)),
        1 => Ending::ReleaseAt(d.within(0, most)),
        2..=4 => Ending::Release,
        5..=10 => Ending::Finish,
        _ => Ending::Close,
    }
}

fn app(d: &mut Dice, hosts: &[HostPlan], calm_at: Millis, budget: &mut u64) -> AppPlan {
    let client = d.index(hosts.len());
    let mut server = d.index(hosts.len());
    if server == client && d.percent(90) {
        server = (client + 1) % hosts.len();
    }
    let service = d.pick(&SERVICES);
    let rounds = d.weighted(&[(5, 1), (3, 2), (1, 4)]);
    let clones = if service.is_stream() && d.percent(20) { d.within(1, 3) as u32 } else { 0 };
    let flows = u64::from(rounds * (1 + clones));
    let mut size = |d: &mut Dice| {
        let most = if service.is_stream() { MAX_BYTES } else { 60 }.min(*budget / flows);
        let size = if d.percent(10) { 0 } else { d.magnitude(1, most.max(2)) };
        *budget -= (size * flows).min(*budget);
        size
    };
    let (up, down) = (size(d), size(d));
    let slow = |d: &mut Dice| if d.percent(15) { d.magnitude(1, 400) } else { 0 };
    AppPlan {
        client,
        server,
        service,
        target: target(d, server, &hosts[server]),
        at: d.within(0, calm_at),
        rounds,
        first: d.weighted(&[(5, First::None), (2, First::Plain), (3, First::Replayable)]),
        impatient: if d.percent(20) { Some(d.magnitude(1, 3000)) } else { None },
        clones,
        up,
        down,
        piece: d.magnitude(10, 20_000) as u32,
        answer: d.pick(&[Answer::Echo, Answer::AtOnce, Answer::AfterEnd]),
        client_end: ending(d, up + down),
        server_end: ending(d, up + down),
        client_slow: slow(d),
        server_slow: slow(d),
        cancel: d.percent(30),
        bytes: !service.framed && service.is_stream() && d.percent(50),
    }
}

fn fault(d: &mut Dice, hosts: &[HostPlan], calm_at: Millis) -> FaultPlan {
    let host = d.index(hosts.len());
    let iface = d.index(hosts[host].ifaces.len());
    let late = d.magnitude(10, 8_000);
    let what = match d.within(0, 19) {
        0..=6 => Fault::Link { host, iface, side: d.pick(&[Side::Up, Side::Down, Side::Both]), how: link_fault(d) },
        7 | 8 => Fault::InterfaceDown { host, iface },
        9 => match hosts[host].ifaces[iface].nat {
            Some(_) => Fault::NatForgets { host, iface },
            None => Fault::NewAddresses { host, iface },
        },
        10 | 11 => Fault::PowerCut { host },
        12 | 13 => Fault::Freeze { host },
        14 => {
            let by = d.magnitude(1, 40_000_000) as i64;
            Fault::WallJump { seconds: if d.percent(50) { by } else { -by } }
        }
        15 | 16 => Fault::Names(d.pick(&[
            NamesFault::Dead,
            NamesFault::Late(late),
            NamesFault::ServFail,
            NamesFault::SilentAaaa,
            NamesFault::Truncates,
            NamesFault::LieOtherId,
            NamesFault::LieOtherName,
            NamesFault::LieGarbage,
            NamesFault::WrongAddresses,
            NamesFault::Empty,
        ])),
        17 => Fault::Resets { host, count: d.within(1, 4) },
        18 => Fault::Icmp { host, count: d.within(1, 6) },
        _ => Fault::FewSockets { host, max: d.within(0, 12) as usize },
    };
    let at = d.within(0, calm_at - 1);
    FaultPlan { at, lasts: d.magnitude(20, 40_000).min(calm_at - at), what }
}

fn link_fault(d: &mut Dice) -> LinkFault {
    let blocks = [Block::Udp, Block::UdpRejected, Block::Tcp, Block::V6];
    match d.within(0, 9) {
        0..=2 => LinkFault::Cut,
        3 | 4 => LinkFault::Loss(d.magnitude(100, 6_000)),
        5 => LinkFault::Slower(d.magnitude(1_000, 2_000_000)),
        6 => LinkFault::Rate(d.magnitude(32_000, 10_000_000)),
        7 => LinkFault::BlackHole(d.within(1280, 1499) as u32),
        8 => LinkFault::Mtu(d.within(1280, 1499) as u32),
        _ => LinkFault::Block(d.pick(&blocks)),
    }
}
