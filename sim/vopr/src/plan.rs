//! What will happen in a world, before it does: hosts, programs and faults, as data that follow from a seed.
//!
//! *Responsible for* the shape of a plan and for saying it in words. *Not for* drawing one (`draw`), nor for doing it
//! (`run`). A plan with things left out is a plan: that is how failures are made small.

use core::fmt;
use neater::Stack;
use neater_base::net::InterfaceKind;
use std::net::IpAddr;

/// Milliseconds from the start of the world.
pub type Millis = u64;

/// Everything that will happen.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What it follows from; the world's own randomness, too.
    pub seed: u64,
    /// The hosts that run programs. One more has the name server.
    pub hosts: Vec<HostPlan>,
    /// Links between two hosts beside the internet.
    pub cables: Vec<Cable>,
    /// Routers answer for addresses that nobody has; otherwise packets for them vanish.
    pub unreachable: bool,
    /// The first name server in the hosts' configuration is not there.
    pub dead_resolver: bool,
    /// The programs.
    pub apps: Vec<AppPlan>,
    /// What goes wrong.
    pub faults: Vec<FaultPlan>,
    /// When all faults are over.
    pub calm_at: Millis,
}

/// A host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostPlan {
    /// Its interfaces with their access links.
    pub ifaces: Vec<IfacePlan>,
    /// What its system does to its process until the calm.
    pub system: SystemMood,
    /// Small bounds of its engine.
    pub tight: bool,
}

/// An interface.
#[derive(Clone, Debug, PartialEq)]
pub struct IfacePlan {
    /// What kind of link it is.
    pub kind: InterfaceKind,
    /// It has an IPv4 address.
    pub v4: bool,
    /// It has an IPv6 address.
    pub v6: bool,
    /// It is behind a NAT box of its own.
    pub nat: Option<NatKind>,
    /// From the host.
    pub up: LinkPlan,
    /// To the host.
    pub down: LinkPlan,
}

/// What a NAT box is like, in the old words for it (RFC 3489 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatKind {
    /// Everybody may answer.
    FullCone,
    /// Whom the inside has sent to may answer.
    PortRestricted,
    /// Each peer sees another port.
    Symmetric,
}

/// A link between two hosts that leads nowhere else.
#[derive(Clone, Debug, PartialEq)]
pub struct Cable {
    /// One end.
    pub a: usize,
    /// The other.
    pub b: usize,
    /// Both directions.
    pub link: LinkPlan,
}

/// One direction of a link, as it is when nothing is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkPlan {
    /// Bits per second; `None`: unlimited.
    pub rate: Option<u64>,
    /// Propagation delay, in microseconds.
    pub delay_us: u64,
    /// Extra delay at most, in microseconds.
    pub jitter_us: u64,
    /// Jitter may change the order.
    pub reorder: bool,
    /// Packets lost, out of 10,000; none after the calm.
    pub loss: u64,
    /// Packets that come twice, out of 10,000.
    pub twice: u64,
    /// Packets with a wrong bit, out of 10,000; none after the calm.
    pub corrupt: u64,
    /// Packets that may wait.
    pub queue: usize,
    /// CoDel for each flow rules the queue; otherwise its tail is dropped.
    pub fq_codel: bool,
    /// The largest packet.
    pub mtu: u32,
    /// What a middlebox never lets through.
    pub blocked: Option<Block>,
}

/// What a middlebox does not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// UDP vanishes.
    Udp,
    /// UDP is refused with an ICMP error.
    UdpRejected,
    /// TCP vanishes.
    Tcp,
    /// IPv6 vanishes.
    V6,
    /// What is sent to this port vanishes.
    Port(u16),
}

/// What the operating system does to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemMood {
    /// What it should.
    Good,
    /// Short reads and writes, `EAGAIN` without need, `ENOBUFS`, late and spurious events.
    Nasty,
    /// The same, with `EMFILE` and connections that are reset.
    Hostile,
}

/// What a server offers at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// The port.
    pub port: u16,
    /// The stacks that are raced; the first alone names the kind.
    pub stacks: &'static [Stack],
    /// Messages are framed.
    pub framed: bool,
    /// The listener prefers `zeroRttMsg`.
    pub early: bool,
    /// The listener takes groups, where there are streams.
    pub groups: bool,
}

impl Service {
    /// Whether it carries bytes rather than datagrams.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.stacks.iter().all(|s| s.is_stream())
    }

    /// Whether it is secured.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.stacks.iter().all(|s| s.is_secure())
    }
}

const fn service(port: u16, stacks: &'static [Stack], framed: bool) -> Service {
    Service { port, stacks, framed, early: false, groups: false }
}

/// What every host offers.
pub const SERVICES: [Service; 12] = [
    service(1000, &[Stack::Quic, Stack::Tls], false),
    service(1001, &[Stack::Quic, Stack::Tls], true),
    service(1002, &[Stack::Tcp], false),
    service(1003, &[Stack::Tcp], true),
    service(1004, &[Stack::Udp], false),
    service(1005, &[Stack::QuicDatagram], false),
    Service { early: true, ..service(1006, &[Stack::Tls], false) },
    Service { early: true, ..service(1007, &[Stack::Quic], false) },
    Service { groups: true, ..service(1008, &[Stack::Quic], true) },
    service(1009, &[Stack::Sctp], false),
    service(1010, &[Stack::Sctp, Stack::Tcp], true),
    Service { groups: true, ..service(1011, &[Stack::Sctp], true) },
];

/// How a client names its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// By its name.
    Name,
    /// By the name and one of its addresses.
    Address(IpAddr),
    /// By an address that nobody has, and by its name.
    WrongAndName,
}

/// When the server says its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It sends back what it hears.
    Echo,
    /// At once.
    AtOnce,
    /// When it has heard everything.
    AfterEnd,
}

/// How one side ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Closes, and waits until that is done.
    Close,
    /// Ends its direction, and reads until the other has ended, too.
    Finish,
    /// Drops the connection.
    Release,
    /// Drops it after so many bytes in either direction.
    ReleaseAt(u64),
    /// Aborts after so many bytes in either direction.
    AbortAt(u64),
}

/// How a connection is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Without a message.
    None,
    /// With the flow's head as first message.
    Plain,
    /// With a first message that is safely replayable.
    Replayable,
}

/// A program: a client, and what its server does for it.
#[derive(Clone, Debug, PartialEq)]
pub struct AppPlan {
    /// Where the client runs.
    pub client: usize,
    /// Where the server runs.
    pub server: usize,
    /// Which of [`SERVICES`].
    pub service: Service,
    /// How the client names the server.
    pub target: Target,
    /// When it starts.
    pub at: Millis,
    /// Connections one after the other.
    pub rounds: u32,
    /// How each is begun.
    pub first: First,
    /// The client gives up opening after this long, and tries again with the next round.
    pub impatient: Option<Millis>,
    /// Connections cloned from each, at the same time.
    pub clones: u32,
    /// Bytes to the server, or datagrams.
    pub up: u64,
    /// Bytes back, unless the server echoes.
    pub down: u64,
    /// Bytes of one piece or message, about.
    pub piece: u32,
    /// When the server speaks.
    pub answer: Answer,
    /// How the client ends.
    pub client_end: Ending,
    /// How the server ends.
    pub server_end: Ending,
    /// The client sleeps so long between reads, sometimes.
    pub client_slow: Millis,
    /// The server does.
    pub server_slow: Millis,
    /// Futures are given up at random, and asked again.
    pub cancel: bool,
    /// The client reads and writes bytes instead of messages.
    pub bytes: bool,
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultPlan {
    /// When it begins.
    pub at: Millis,
    /// How long it lasts, where it lasts.
    pub lasts: Millis,
    /// What.
    pub what: Fault,
}

/// Which direction of an access link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// From the host.
    Up,
    /// To it.
    Down,
    /// Both.
    Both,
}

/// What can go wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// A link is changed.
    Link {
        /// Whose.
        host: usize,
        /// Which interface.
        iface: usize,
        /// Which direction.
        side: Side,
        /// How.
        how: LinkFault,
    },
    /// An interface is taken down.
    InterfaceDown {
        /// Whose.
        host: usize,
        /// Which.
        iface: usize,
    },
    /// The addresses of an interface are replaced by others.
    NewAddresses {
        /// Whose.
        host: usize,
        /// Which interface.
        iface: usize,
    },
    /// A NAT box forgets everything.
    NatForgets {
        /// Whose.
        host: usize,
        /// Which interface's; nothing happens if there is none.
        iface: usize,
    },
    /// A host loses its power, and comes back.
    PowerCut {
        /// Which.
        host: usize,
    },
    /// A process is stopped, and goes on.
    Freeze {
        /// Where.
        host: usize,
    },
    /// The wall clock jumps by so many seconds, and back.
    WallJump {
        /// Forward, or backward.
        seconds: i64,
    },
    /// The name server misbehaves.
    Names(NamesFault),
    /// TCP connections of a host are reset by somebody on the path.
    Resets {
        /// Whose.
        host: usize,
        /// How many.
        count: u64,
    },
    /// A host hears forged ICMP errors.
    Icmp {
        /// Who.
        host: usize,
        /// How many.
        count: u64,
    },
    /// A process may have no more than so many descriptors.
    FewSockets {
        /// Whose.
        host: usize,
        /// How many.
        max: usize,
    },
}

/// What happens to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFault {
    /// It is cut.
    Cut,
    /// So many packets of 10,000 are lost.
    Loss(u64),
    /// So many microseconds are added to its delay.
    Slower(u64),
    /// It has this rate, in bits per second.
    Rate(u64),
    /// Larger packets than this vanish.
    BlackHole(u32),
    /// Larger packets than this are reported.
    Mtu(u32),
    /// A middlebox.
    Block(Block),
}

/// What is wrong with the name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamesFault {
    /// It says nothing.
    Dead,
    /// It answers late, by so many milliseconds.
    Late(Millis),
    /// Every answer is SERVFAIL.
    ServFail,
    /// Nothing is heard of AAAA and HTTPS.
    SilentAaaa,
    /// Every answer over UDP is truncated.
    Truncates,
    /// Forged answers with another id come first.
    LieOtherId,
    /// Forged answers to another question come first.
    LieOtherName,
    /// Garbage comes first.
    LieGarbage,
    /// It has every name at an address that nobody has.
    WrongAddresses,
    /// It knows no name.
    Empty,
}

impl Plan {
    /// Whether packets may come twice somewhere.
    pub(crate) fn duplicates(&self) -> bool {
        let cables = self.cables.iter().any(|c| c.link.twice > 0);
        cables || self.hosts.iter().flat_map(|h| &h.ifaces).any(|i| i.up.twice + i.down.twice > 0)
    }

    /// Whether addresses, or what a NAT box makes of them, may be gone for ever.
    pub(crate) fn addresses_go(&self) -> bool {
        let goes = |f: &FaultPlan| matches!(f.what, Fault::NewAddresses { .. } | Fault::NatForgets { .. });
        self.faults.iter().any(goes) || self.hosts.iter().flat_map(|h| &h.ifaces).any(|i| i.nat.is_some())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "world {}: {} hosts, calm at {} ms", self.seed, self.hosts.len(), self.calm_at)?;
        if self.unreachable {
            writeln!(f, "  routers answer for addresses that nobody has")?;
        }
        if self.dead_resolver {
            writeln!(f, "  the first name server is not there")?;
        }
        for (i, host) in self.hosts.iter().enumerate() {
            writeln!(f, "  host h{i}: system {:?}{}", host.system, if host.tight { ", tight limits" } else { "" })?;
            for (n, iface) in host.ifaces.iter().enumerate() {
                let families = match (iface.v4, iface.v6) {
                    (true, true) => "v4+v6",
                    (true, false) => "v4",
                    _ => "v6",
                };
                let nat = iface.nat.map_or(String::new(), |kind| format!(" behind NAT ({kind:?})"));
                writeln!(f, "    eth{n} {:?} {families}{nat}: up {}; down {}", iface.kind, iface.up, iface.down)?;
            }
        }
        for c in &self.cables {
            writeln!(f, "  cable h{} - h{}: {}", c.a, c.b, c.link)?;
        }
        for (n, app) in self.apps.iter().enumerate() {
            writeln!(f, "  app {n}: {app}")?;
        }
        for (n, fault) in self.faults.iter().enumerate() {
            writeln!(f, "  fault {n}: at {} ms for {} ms: {:?}", fault.at, fault.lasts, fault.what)?;
        }
        Ok(())
    }
}

impl fmt::Display for LinkPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            Some(rate) => write!(f, "{} kbit/s", rate / 1000)?,
            None => write!(f, "unlimited")?,
        }
        write!(f, ", {} us", self.delay_us)?;
        if self.jitter_us > 0 {
            write!(f, "+{} us{}", self.jitter_us, if self.reorder { " reordering" } else { "" })?;
        }
        if self.loss > 0 {
            write!(f, ", loss {}.{:02} %", self.loss / 100, self.loss % 100)?;
        }
        if self.twice + self.corrupt > 0 {
            write!(f, ", {} of 10,000 twice, {} corrupt", self.twice, self.corrupt)?;
        }
        write!(f, ", {}queue {}, MTU {}", if self.fq_codel { "FQ-CoDel " } else { "" }, self.queue, self.mtu)?;
        match self.blocked {
            Some(block) => write!(f, ", blocks {block:?}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for AppPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stacks: Vec<&str> = self.service.stacks.iter().map(|s| s.as_str()).collect();
        write!(f, "at {} ms h{} to h{}:{} ", self.at, self.client, self.server, self.service.port)?;
        write!(f, "({}{}) ", stacks.join(" or "), if self.service.framed { ", framed" } else { "" })?;
        write!(f, "by {:?}, {} rounds, {} clones, first {:?}: ", self.target, self.rounds, self.clones, self.first)?;
        write!(f, "{} up, {} down {:?}, pieces of {}; ", self.up, self.down, self.answer, self.piece)?;
        write!(f, "client {:?}, server {:?}", self.client_end, self.server_end)?;
        if let Some(ms) = self.impatient {
            write!(f, "; gives up after {ms} ms")?;
        }
        if self.client_slow + self.server_slow > 0 {
            write!(f, "; slow by {} and {} ms", self.client_slow, self.server_slow)?;
        }
        let flags = [(self.cancel, "; cancelling"), (self.bytes, "; bytes")];
        flags.iter().filter(|(on, _)| *on).try_for_each(|(_, word)| f.write_str(word))
    }
}
