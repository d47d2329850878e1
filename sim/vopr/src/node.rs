//! A host's process: its engine under the system's moods, its servers, and the tasks that are under way.
//!
//! *Responsible for* beginning and ending a process. *Not for* what its programs do (`client`, `server`).

use crate::content::mix;
use crate::ledger::Ledger;
use crate::plan::{Plan, SERVICES, Service, SystemMood};
use crate::server;
use core::time::Duration;
use neater::{
    EngineConfig, FramerSpec, Limits, LocalEndpoint, Neater, Preconnection, SecurityParameters, TransportProperties,
};
use neater_base::Rng;
use neater_net::{FaultControl, FaultNet, FaultRates};
use neater_netsim::HostId;
use neater_testkit::{Clock, Executor, Spawner, security};
use std::cell::Cell;
use std::rc::Rc;

/// What programs of a process need.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) plan: Rc<Plan>,
    /// The number of the host.
    pub(crate) index: usize,
    pub(crate) host: HostId,
    pub(crate) neater: Neater,
    pub(crate) clock: Clock,
    pub(crate) spawner: Spawner,
    pub(crate) ledger: Ledger,
    /// Programs under way, those that wait for connections left out.
    busy: Rc<Cell<usize>>,
}

/// Counts a program while it is under way.
pub(crate) struct Busy(Rc<Cell<usize>>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Place {
    pub(crate) fn busy(&self) -> Busy {
        self.busy.set(self.busy.get() + 1);
        Busy(self.busy.clone())
    }

    /// A preconnection for a service: with its framer, its stacks and keep-alives, without which a program that only waits
    /// for its peer would wait for ever when that has lost its power (RFC 1122 section 4.2.3.6).
    pub(crate) fn preconnection(&self, service: &Service, listens: bool) -> Preconnection {
        let mut words = String::new();
        if service.is_stream() {
            words.push_str("keep-alive, keepAliveTimeout=15");
            // What waits to be acknowledged by an address that is gone for ever waits for a quarter of an hour otherwise.
            if self.plan.addresses_go() {
                words.push_str(", connTimeout=60");
            }
        }
        if service.is_stream() && !listens {
            // By the seed and nothing that is drawn: a plan is the same with it and without.
            words.push_str(match self.plan.seed % 4 {
                0 => ", multipath=Active",
                1 => ", multipath=Active, multipathPolicy=Aggregate",
                2 => ", multipath=Active, multipathPolicy=Interactive",
                _ => "",
            });
        }
        if service.early && listens {
            words.push_str(", zeroRttMsg=prefer");
        }
        let mut properties = match TransportProperties::parse(&words) {
            Ok(parsed) => parsed.properties,
            Err(e) => panic!("{words}: {e}"),
        };
        if !service.is_stream() {
            properties = neater_property::profile("unreliable-datagram").unwrap_or(properties);
        }
        let framer =
            if service.framed { FramerSpec::LengthPrefixed { width: 4, max: 1 << 20 } } else { FramerSpec::Raw };
        let security = match (service.is_secure(), listens) {
            (false, _) => SecurityParameters::disabled(),
            (true, true) => security::server_security(),
            (true, false) => security::client_security(),
        };
        self.neater.preconnection().properties(properties).security(security).framer(framer).stacks(service.stacks)
    }
}

/// A process.
pub(crate) struct Node {
    pub(crate) place: Place,
    control: FaultControl,
    mood: SystemMood,
}

/// What a system's mood means.
fn rates(mood: SystemMood) -> FaultRates {
    let nasty = FaultRates { no_buffers: 0.03, delay: Duration::from_millis(5), ..FaultRates::nasty() };
    match mood {
        SystemMood::Good => FaultRates::NONE,
        SystemMood::Nasty => nasty,
        SystemMood::Hostile => FaultRates { reset: 0.005, too_many_files: 0.05, ..nasty },
    }
}

fn limits(tight: bool) -> Limits {
    let usual = Limits::default();
    if !tight {
        return usual;
    }
    Limits {
        send_buffer: 4 << 10,
        engine_bytes: 16 << 10,
        send_floor: 1 << 10,
        datagram_buffer: 4 << 10,
        handshakes: 4,
        untaken: 4,
        udp_peers: 8,
        ..usual
    }
}

impl Node {
    /// Begins the process of a host: with its engine and its servers. `life` counts the processes that it has had.
    pub(crate) fn begin(
        plan: &Rc<Plan>,
        index: usize,
        host: HostId,
        life: u64,
        executor: &mut Executor,
        ledger: &Ledger,
        calm: bool,
    ) -> Self {
        let host_plan = &plan.hosts[index];
        let seed = mix(plan.seed ^ mix(index as u64) ^ life << 48);
        let mut rng = Rng::from_number(seed);
        let mood = if calm { SystemMood::Good } else { host_plan.system };
        let net = FaultNet::new(executor.world().net(host), rng.fork(), rates(mood));
        let control = net.control();
        let crypto = security::crypto(seed, index as u64);
        let config = EngineConfig { limits: limits(host_plan.tight), ..EngineConfig::new(rng.seed(), crypto) };
        let (flag, wake) = Executor::wake_flag();
        let (neater, turner) = Neater::over(net, config, wake);
        executor.drive(host, flag, move || turner.turn());
        let place = Place {
            plan: plan.clone(),
            index,
            host,
            neater,
            clock: executor.clock(),
            spawner: executor.spawner(),
            ledger: ledger.clone(),
            busy: Rc::default(),
        };
        for service in &SERVICES {
            let used = plan.apps.iter().any(|app| app.server == index && app.service.port == service.port);
            if used {
                executor.spawn_on(host, server::serve(place.clone(), *service));
            }
        }
        Self { place, control, mood }
    }

    /// The system is good to it, from the next time on that it is asked for events. True if it was not before: then there must
    /// be such a time, or the first thing that an idle process does may still be refused.
    pub(crate) fn calm(&mut self) -> bool {
        if self.mood == SystemMood::Good {
            return false;
        }
        self.mood = SystemMood::Good;
        self.control.set_rates(FaultRates::NONE);
        true
    }

    /// How many programs are under way.
    pub(crate) fn busy(&self) -> usize {
        self.place.busy.get()
    }

    /// Says what the engine should not hold, whatever happens; `None` if its bounds are kept.
    pub(crate) fn over_bounds(&self) -> Option<String> {
        let stats = self.place.neater.stats();
        let limits = limits(self.place.plan.hosts[self.place.index].tight);
        let bytes = (limits.engine_bytes as u64).max(stats.connections * limits.send_floor as u64);
        // A message that is accepted may go past the bound once per connection; and of tiny messages in the records that TLS holds, their
        // numbers are counted, eight bytes for a message of ten.
        let slack = stats.connections * 128 * 1024;
        let over = stats.bytes_queued > bytes + slack || stats.connections > limits.connections as u64;
        let windows = stats.receive_windows.max(stats.send_windows) > limits.engine_bytes as u64;
        (over || windows).then(|| format!("h{}: {stats:?} with {limits:?}", self.place.index))
    }

    /// What the engine still holds, if it holds anything.
    pub(crate) fn left(&self) -> Option<String> {
        let s = self.place.neater.stats();
        let transports = [s.channels, s.quic_connections, s.sctp_associations];
        let held = [s.connections, s.bytes_queued, s.receive_windows, s.send_windows, s.groups, s.listeners]
            .into_iter()
            .chain(transports);
        let held: Vec<u64> = held.collect();
        held.iter().any(|n| *n != 0).then(|| format!("h{}: {s:?}", self.place.index))
    }
}

/// A place in a listening preconnection for every address of the host.
pub(crate) fn everywhere(port: u16) -> LocalEndpoint {
    LocalEndpoint::new().with_port(port)
}
