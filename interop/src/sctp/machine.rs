//! A virtual machine that runs Linux, and the cables to it.
//!
//! The machine is QEMU with two network cards. What QEMU takes for cables are UDP sockets on loopback with a frame in each
//! datagram, so that nothing here needs a privilege, an interface or a route. Its only program is `c/linux_guest.c`, which obeys
//! commands over a port; `cargo xtask interop linux` makes what it boots from.

use super::frames::{self, Fragments, Held, Mac};
use super::peer::Program;
use super::wire::{Arrived, Wire, patient};
use crate::{Running, here, which};
use neater_base::net::Ecn;
use neater_sctp::{LayerId, Route};
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The UDP port of the machine's SCTP.
pub(super) const MACHINE_UDP: u16 = neater_sctp::UDP_PORT;
/// Ours. Not the same one, so that nobody mistakes one for the other.
pub(super) const OUR_UDP: u16 = 19_899;
/// How long it may take to boot, at the first attempt and at the second: emulated on a busy host it now and then hangs before its
/// kernel says anything.
const BOOT: [Duration; 2] = [Duration::from_secs(25), Duration::from_secs(60)];
const CARDS: usize = 2;

/// An address of ours or of the machine: card 0 has 10.9.0.0/24 and fd09:0::/64, card 1 has 10.9.1.0/24 and fd09:1::/64. We are
/// number 1, the machine is 2.
#[must_use]
pub fn address(card: u8, v6: bool, host: u8) -> IpAddr {
    if v6 { [0xfd09, u16::from(card), 0, 0, 0, 0, 0, u16::from(host)].into() } else { [10, 9, card, host].into() }
}

fn our_mac(card: usize) -> Mac {
    [2, 0x4e, 0x45, 0x41, 1, card as u8]
}

fn machine_mac(card: usize) -> Mac {
    [2, 0x4e, 0x45, 0x41, 2, card as u8]
}

/// What the machine boots from.
#[derive(Clone, Debug)]
pub struct Image {
    kernel: PathBuf,
    files: PathBuf,
}

impl Image {
    /// The one in `target/interop-linux`.
    ///
    /// # Errors
    /// What is missing.
    pub fn find() -> Result<Self, String> {
        let dir = here("../target/interop-linux");
        let image = Self { kernel: dir.join("vmlinuz"), files: dir.join("initramfs.cpio") };
        if image.kernel.is_file() && image.files.is_file() {
            return Ok(image);
        }
        Err("no virtual machine with Linux; `cargo xtask interop linux --prepare` makes one".to_owned())
    }
}

/// A machine that runs.
#[derive(Debug)]
pub struct Machine {
    running: Running,
    heard: usize,
    ours: UdpSocket,
    theirs: [SocketAddr; CARDS],
    /// What its kernel calls itself.
    pub kernel: String,
}

/// A machine that several share, one after the other.
pub type Shared = Rc<RefCell<Machine>>;

impl Machine {
    /// Boots it.
    ///
    /// # Errors
    /// What is missing here, or that it does not come up.
    ///
    /// # Panics
    /// If it does not obey.
    pub fn boot(image: &Image) -> Result<Self, String> {
        let mut why = String::new();
        for limit in BOOT {
            let mut machine = Self::start_machine(image)?;
            match machine.come_up(limit) {
                Ok(()) => return Ok(machine),
                Err(said) => why = format!("the machine does not boot: {said}"),
            }
        }
        Err(why)
    }

    fn start_machine(image: &Image) -> Result<Self, String> {
        let qemu = which("qemu-system-x86_64").ok_or("no qemu-system-x86_64 (package qemu-system-x86)")?;
        let ours = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| format!("a socket: {e}"))?;
        // QEMU wants to be told its ports: free ones, given back just before.
        let held: Vec<_> = (0..CARDS)
            .map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)))
            .collect::<Result<_, _>>()
            .map_err(|e| format!("a socket: {e}"))?;
        let theirs: Vec<SocketAddr> = held.iter().map(|s| s.local_addr().expect("it is bound")).collect();
        drop(held);
        let accelerator = std::env::var("NEATER_INTEROP_ACCEL").unwrap_or_else(|_| "tcg,thread=multi".to_owned());
        let mut command = Command::new(qemu);
        command.args(["-M", "pc", "-accel", &accelerator, "-cpu", "max", "-smp", "1", "-m", "256", "-nodefaults"]);
        command.args(["-no-user-config", "-display", "none"]);
        command.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.files);
        command.args(["-append", "console=ttyS0 panic=-1 loglevel=4 no_timer_check"]);
        command.arg("-serial").arg(format!("file:{}", image.files.with_file_name("console.log").display()));
        command.args(["-device", "virtio-serial-pci", "-chardev", "stdio,id=port,signal=off"]);
        command.args(["-device", "virtserialport,chardev=port,name=neater"]);
        let port = ours.local_addr().map_err(|e| e.to_string())?;
        for (card, theirs) in theirs.iter().enumerate() {
            let mac = machine_mac(card).map(|b| format!("{b:02x}")).join(":");
            command.arg("-netdev").arg(format!("socket,id=n{card},udp={port},localaddr={theirs}"));
            command.arg("-device").arg(format!("virtio-net-pci,netdev=n{card},mac={mac},romfile="));
        }
        let running = Running::start(&mut command);
        let theirs = [theirs[0], theirs[1]];
        Ok(Self { running, heard: 0, ours, theirs, kernel: String::new() })
    }

    fn come_up(&mut self, limit: Duration) -> Result<(), String> {
        let booted = self.wait_for("\"event\":\"booted\"", limit)?;
        booted.rsplit('"').nth(1).unwrap_or("?").clone_into(&mut self.kernel);
        let mut orders = vec![
            "up lo".to_owned(),
            format!("sysctl net/sctp/udp_port {MACHINE_UDP}"),
            "sysctl net/sctp/intl_enable 1".to_owned(),
            "sysctl net/sctp/reconf_enable 1".to_owned(),
            "sysctl net/sctp/addip_enable 1".to_owned(),
            "sysctl net/sctp/auth_enable 1".to_owned(),
            "sysctl net/ipv6/conf/all/accept_dad 0".to_owned(),
            "sysctl net/ipv6/conf/default/accept_dad 0".to_owned(),
        ];
        for card in 0..CARDS as u8 {
            orders.push(format!("sysctl net/ipv6/conf/eth{card}/accept_dad 0"));
            orders.push(format!("device eth{card} {}/24", address(card, false, 2)));
            orders.push(format!("up eth{card} 1500"));
            orders.push(format!("device eth{card} {}/64", address(card, true, 2)));
        }
        self.order(&orders.join("\n"));
        Ok(())
    }

    /// Boots it again, without a word to anybody.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn reboot(&mut self) {
        self.running.tell("reboot\n");
        self.come_up(BOOT[1]).expect("it boots again");
    }

    /// Obeyed when this returns.
    ///
    /// # Panics
    /// If one of the orders fails.
    pub fn order(&mut self, orders: &str) {
        // What a peer said before is not the answer.
        self.heard += self.running.said_from(self.heard).len();
        self.running.tell(&format!("{orders}\necho done\n"));
        let before = self.heard;
        self.wait_for("\"event\":\"echo\"", Duration::from_secs(20)).expect("it obeys");
        let said = self.running.said_from(before);
        assert!(!said.contains("\"event\":\"failed\""), "the machine says {said}");
    }

    /// Starts a peer, in place of the one before. Returns how much had been said before it.
    pub(super) fn start(&mut self, arguments: &str) -> usize {
        self.order("kill");
        let before = self.heard;
        self.running.tell(&format!("start {arguments}\n"));
        before
    }

    /// The line with these words, which it has said or says soon. What comes before is not looked at again.
    fn wait_for(&mut self, words: &str, limit: Duration) -> Result<String, String> {
        let end = Instant::now() + limit;
        loop {
            let said = self.running.said_from(self.heard);
            if let Some(at) = said.find(words)
                && let Some(len) = said[at..].find('\n')
            {
                let begin = said[..at].rfind('\n').map_or(0, |n| n + 1);
                self.heard += at + len + 1;
                return Ok(said[begin..at + len].to_owned());
            }
            if Instant::now() >= end {
                return Err(format!("it has not said {words} after {limit:?} but {said:?}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A cable with these addresses of ours, each a layer, in UDP or in IP itself.
    ///
    /// # Panics
    /// If there is no socket to be had.
    #[must_use]
    pub fn wire(&self, layers: &[IpAddr], udp: bool) -> Cable {
        let socket = self.ours.try_clone().expect("a socket");
        let mut cable = Cable {
            socket,
            machine: self.theirs,
            layers: layers.iter().map(|a| (*a, card_of(*a))).collect(),
            port: if udp { OUR_UDP } else { 0 },
            buffer: vec![0; 65_536],
            fragments: Fragments::default(),
            wrong: Vec::new(),
            icmp: 0,
        };
        // What was said to those before us.
        while cable.receive(Duration::ZERO).is_some() {}
        cable
    }
}

/// Which card an address belongs to.
fn card_of(address: IpAddr) -> usize {
    usize::from(match address {
        IpAddr::V4(a) => a.octets()[2],
        IpAddr::V6(a) => a.octets()[3],
    })
}

/// A peer in the machine.
#[derive(Debug)]
pub(super) struct InMachine(pub(super) Shared);

impl Program for InMachine {
    fn tell(&mut self, text: &str) {
        self.0.borrow_mut().running.tell(text);
    }

    fn said_from(&self, from: usize) -> String {
        self.0.borrow().running.said_from(from)
    }

    /// Its socket is closed, which the machine's kernel tells the other end if it can.
    fn kill(&mut self) {
        self.0.borrow_mut().order("kill");
    }
}

/// Our end of the cables.
#[derive(Debug)]
pub struct Cable {
    socket: UdpSocket,
    machine: [SocketAddr; CARDS],
    layers: Vec<(IpAddr, usize)>,
    port: u16,
    buffer: Vec<u8>,
    fragments: Fragments,
    /// Why frames were not as they should be.
    wrong: Vec<&'static str>,
    /// ICMP messages that say that something cannot be reached.
    pub icmp: u64,
}

impl Cable {
    fn card(&self, from: SocketAddr) -> Option<usize> {
        self.machine.iter().position(|m| *m == from)
    }
}

impl Wire for Cable {
    fn send(&mut self, route: Route, ecn: Ecn, bytes: &[u8]) -> bool {
        let Some((ours, card)) = self.layers.get(usize::from(route.layer.0)).copied() else { return false };
        if ours.is_ipv4() != route.remote.is_ipv4() {
            return false;
        }
        let from = SocketAddr::new(ours, if route.remote.port() == 0 { 0 } else { self.port });
        let frame = frames::sctp((our_mac(card), machine_mac(card)), from, route.remote, ecn, bytes);
        self.socket.send_to(&frame, self.machine[card]).is_ok()
    }

    fn receive(&mut self, patience: Duration) -> Option<Arrived> {
        let end = Instant::now() + patience;
        loop {
            patient(&self.socket, end.saturating_duration_since(Instant::now()));
            let (len, source) = self.socket.recv_from(&mut self.buffer).ok()?;
            let Some(card) = self.card(source) else { continue };
            let held = match frames::read(&self.buffer[..len]) {
                Ok(Held::Fragment(f)) => self.fragments.take(&f),
                other => other,
            };
            match held {
                Ok(Held::Sctp { from, to, ecn, bytes }) if to.port() == self.port => {
                    let layer = self.layers.iter().position(|(a, c)| *a == to.ip() && *c == card);
                    let Some(layer) = layer else { continue };
                    let route = Route { layer: LayerId(layer as u16), remote: from };
                    return Some(Arrived { route, ecn, bytes: bytes.to_vec() });
                }
                Ok(Held::Question { about, from }) if self.layers.iter().any(|(a, c)| *a == about && *c == card) => {
                    let reply = frames::answer((our_mac(card), machine_mac(card)), about, from);
                    let _ = self.socket.send_to(&reply, source);
                }
                Ok(Held::Icmp) => self.icmp += 1,
                Ok(_) => {}
                Err(why) => self.wrong.push(why),
            }
        }
    }

    fn overhead(&self) -> u32 {
        let ip = if self.layers.first().is_some_and(|(a, _)| a.is_ipv6()) { 40 } else { 20 };
        ip + if self.port == 0 { 0 } else { 8 }
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn wrong(&self) -> &[&'static str] {
        &self.wrong
    }
}
