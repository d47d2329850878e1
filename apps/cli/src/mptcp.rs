//! `neater mptcp`: what the system's path manager opens further paths from (MPTCP, RFC 8684).
//!
//! Linux opens a second path of a connection only from addresses that its path manager was given,
//! and as many as its limits allow; NetworkManager and systemd-networkd may do that, and this
//! command does. *Responsible for* the requests to the kernel (`mptcp_pm` of generic netlink,
//! `Documentation/netlink/specs/mptcp_pm.yaml`), which neli carries.

use crate::args::MptcpArgs;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use neli::consts::nl::NlmF;
use neli::consts::socket::NlFamily;
use neli::err::RouterError;
use neli::genl::{AttrTypeBuilder, Genlmsghdr, GenlmsghdrBuilder, Nlattr, NlattrBuilder, NoUserHeader};
use neli::nl::NlPayload;
use neli::router::synchronous::NlRouter;
use neli::types::{Buffer, GenlBuffer};
use neli::utils::Groups;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The family's name and version.
const FAMILY: &str = "mptcp_pm";
const VERSION: u8 = 1;

/// Commands.
const ADD: u8 = 1;
const DELETE: u8 = 2;
const GET: u8 = 3;
const SET_LIMITS: u8 = 5;
const GET_LIMITS: u8 = 6;

/// Attributes of a request or an answer.
const ENDPOINT: u16 = 1;
const ACCEPTED: u16 = 2;
const SUBFLOWS: u16 = 3;

/// Attributes of an endpoint.
const ADDRESS_FAMILY: u16 = 1;
const ID: u16 = 2;
const ADDRESS_V4: u16 = 3;
const ADDRESS_V6: u16 = 4;
const FLAGS: u16 = 6;
const INTERFACE: u16 = 7;

/// What an endpoint is for, in the order of its bits.
const PURPOSES: [&str; 6] = ["signal", "subflow", "backup", "fullmesh", "implicit", "laminar"];
/// A path may begin at it.
const SUBFLOW: u32 = 1 << 1;
/// The most further paths that the kernel takes (`MPTCP_PM_ADDR_MAX`).
const MOST: u32 = 8;

type Attributes = GenlBuffer<u16, Buffer>;

/// An address that paths begin at or are announced for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Endpoint {
    id: u8,
    address: IpAddr,
    interface: u32,
    flags: u32,
}

/// How many further paths a connection may have, and how many of the peer's addresses it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    subflows: u32,
    accepted: u32,
}

pub(crate) fn run(args: &MptcpArgs, output: &Output) -> Result<Exit, Failure> {
    let manager = Manager::open()?;
    for name in &args.forget {
        let address: Option<IpAddr> = name.parse().ok();
        let index = if address.is_some() { None } else { Some(index_of(name)?) };
        let fits = |e: &&Endpoint| address.map_or(Some(e.interface) == index, |a| e.address == a);
        for endpoint in manager.endpoints()?.iter().filter(fits) {
            manager.delete(endpoint)?;
        }
    }
    for name in &args.using {
        use_interface(&manager, name)?;
    }
    let before = manager.limits()?;
    let needed = if args.using.is_empty() { 0 } else { (manager.endpoints()?.len() as u32).min(MOST) };
    let wanted = Limits {
        subflows: args.subflows.map_or_else(|| before.subflows.max(needed), u32::from),
        accepted: args.accepted.map_or(before.accepted, u32::from),
    };
    if wanted != before {
        manager.set_limits(wanted)?;
    }
    show(&manager, output)
}

/// Lets paths begin at each address of an interface.
fn use_interface(manager: &Manager, name: &str) -> Result<(), Failure> {
    let index = index_of(name)?;
    let here = neater_command::interfaces()?.into_iter().filter(|i| i.index == index).flat_map(|i| i.addrs);
    let addresses: Vec<IpAddr> = here.filter(|a| !a.deprecated && !link_local(a.addr)).map(|a| a.addr).collect();
    if addresses.is_empty() {
        return Err(Failure::new(Exit::Failed, "local", format!("{name} has no address that other hosts could reach"))
            .advise("give it one first: ip address add ADDRESS dev NAME"));
    }
    let known = manager.endpoints()?;
    for address in addresses.into_iter().filter(|a| known.iter().all(|e| e.address != *a || e.flags & SUBFLOW == 0)) {
        manager.add(address, index)?;
    }
    Ok(())
}

fn show(manager: &Manager, output: &Output) -> Result<Exit, Failure> {
    let (limits, endpoints) = (manager.limits()?, manager.endpoints()?);
    let names = names();
    let name = |e: &Endpoint| names.get(&e.interface).map_or("any interface", String::as_str).to_owned();
    if output.json {
        let all = endpoints.iter().map(|e| {
            let interface = names.get(&e.interface);
            json!({"id": e.id, "address": e.address, "interface": interface, "purposes": e.purposes()})
        });
        output.event(&json!({"event": "mptcp", "subflows": limits.subflows, "accepted": limits.accepted,
            "endpoints": all.collect::<Vec<Value>>()}));
        return Ok(Exit::Ok);
    }
    output.line(&format!(
        "each connection: at most {} further paths, and {} announced addresses of its peer",
        limits.subflows, limits.accepted
    ));
    for e in &endpoints {
        output.line(&format!("  {:<40} {:<16} {}", e.address.to_string(), name(e), e.purposes().join(", ")));
    }
    if endpoints.is_empty() {
        output.note("no path begins at another address: `neater mptcp --use INTERFACE` adds those of an interface");
    }
    Ok(Exit::Ok)
}

fn link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_link_local() || a.is_loopback(),
        IpAddr::V6(a) => a.is_unicast_link_local() || a.is_loopback(),
    }
}

/// The names of interfaces by their indices.
fn names() -> BTreeMap<u32, String> {
    let all = neater_command::interfaces().unwrap_or_default();
    all.into_iter().map(|i| (i.index, i.name)).collect()
}

fn index_of(name: &str) -> Result<u32, Failure> {
    names().into_iter().find(|(_, known)| known == name).map(|(index, _)| index).ok_or_else(|| {
        Failure::new(Exit::Failed, "local", format!("there is no interface {name}")).advise("ip link shows them all")
    })
}

impl Endpoint {
    fn purposes(&self) -> Vec<&'static str> {
        PURPOSES.into_iter().enumerate().filter(|(bit, _)| self.flags >> bit & 1 == 1).map(|(_, name)| name).collect()
    }

    /// `None`: an address of a family that is none of ours.
    fn parse(of: &Nlattr<u16, Buffer>) -> Option<Self> {
        let attributes = of.get_attr_handle::<u16>().ok()?;
        let bytes = |name| attributes.get_attr_payload_as_with_len_borrowed::<&[u8]>(name).ok();
        let v4 = bytes(ADDRESS_V4).and_then(|b| <[u8; 4]>::try_from(b).ok()).map(|b| Ipv4Addr::from(b).into());
        let v6 = || bytes(ADDRESS_V6).and_then(|b| <[u8; 16]>::try_from(b).ok()).map(|b| Ipv6Addr::from(b).into());
        Some(Self {
            id: attributes.get_attr_payload_as(ID).ok()?,
            address: v4.or_else(v6)?,
            interface: attributes.get_attr_payload_as(INTERFACE).unwrap_or(0),
            flags: attributes.get_attr_payload_as(FLAGS).unwrap_or(0),
        })
    }
}

/// The path manager of this network namespace.
struct Manager {
    router: NlRouter,
    family: u16,
}

impl Manager {
    fn open() -> Result<Self, Failure> {
        let (router, _) = NlRouter::connect(NlFamily::Generic, None, Groups::empty()).map_err(|e| failed("ask", &e))?;
        let family = router.resolve_genl_family(FAMILY).map_err(|_| {
            Failure::new(Exit::Failed, "local", "this kernel has no path manager for MPTCP")
                .advise("it takes Linux 5.7 or later, built with MPTCP, and net.mptcp.enabled=1")
        })?;
        Ok(Self { router, family })
    }

    /// The attributes of all answers to a request.
    fn ask(&self, what: &str, command: u8, flags: NlmF, attributes: Attributes) -> Result<Vec<Attributes>, Failure> {
        let head = GenlmsghdrBuilder::<u8, u16, NoUserHeader>::default();
        let request = head.cmd(command).version(VERSION).attrs(attributes).build().map_err(|e| failed(what, &e))?;
        let payload = NlPayload::Payload(request);
        let answers = self
            .router
            .send::<_, _, u16, Genlmsghdr<u8, u16>>(self.family, flags, payload)
            .map_err(|e| refused(what, &e))?;
        let mut all = Vec::new();
        for answer in answers {
            let answer = answer.map_err(|e| refused(what, &e))?;
            if let NlPayload::Payload(payload) = answer.nl_payload() {
                all.push(payload.attrs().clone());
            }
        }
        Ok(all)
    }

    fn limits(&self) -> Result<Limits, Failure> {
        let answers = self.ask("read the limits", GET_LIMITS, NlmF::empty(), GenlBuffer::new())?;
        let of = |name| {
            let found = answers.iter().find_map(|a| a.get_attr_handle().get_attr_payload_as::<u32>(name).ok());
            found.unwrap_or(0)
        };
        Ok(Limits { subflows: of(SUBFLOWS), accepted: of(ACCEPTED) })
    }

    fn set_limits(&self, limits: Limits) -> Result<(), Failure> {
        let both = [attribute(SUBFLOWS, limits.subflows)?, attribute(ACCEPTED, limits.accepted)?];
        self.ask("set the limits", SET_LIMITS, NlmF::ACK, both.into_iter().collect()).map(drop)
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>, Failure> {
        let answers = self.ask("list the endpoints", GET, NlmF::DUMP, GenlBuffer::new())?;
        let each = answers.iter().flat_map(|a| a.iter());
        Ok(each.filter(|a| *a.nla_type().nla_type() == ENDPOINT).filter_map(Endpoint::parse).collect())
    }

    fn add(&self, address: IpAddr, interface: u32) -> Result<(), Failure> {
        let named = named(address, Some((SUBFLOW, interface)), None)?;
        self.ask("add an endpoint", ADD, NlmF::ACK, [named].into_iter().collect()).map(drop)
    }

    fn delete(&self, endpoint: &Endpoint) -> Result<(), Failure> {
        let named = named(endpoint.address, None, Some(endpoint.id))?;
        self.ask("delete an endpoint", DELETE, NlmF::ACK, [named].into_iter().collect()).map(drop)
    }
}

/// The attribute that names an endpoint.
fn named(address: IpAddr, new: Option<(u32, u32)>, id: Option<u8>) -> Result<Nlattr<u16, Buffer>, Failure> {
    let nested = AttrTypeBuilder::default().nla_nested(true).nla_type(ENDPOINT).build();
    let nested = nested.map_err(|e| failed("name an endpoint", &e))?;
    let empty = NlattrBuilder::default().nla_type(nested).nla_payload(Vec::<u8>::new()).build();
    let empty = empty.map_err(|e| failed("name an endpoint", &e))?;
    let (family, name, bytes) = match address {
        // AF_INET and AF_INET6 of Linux.
        IpAddr::V4(a) => (2u16, ADDRESS_V4, a.octets().to_vec()),
        IpAddr::V6(a) => (10u16, ADDRESS_V6, a.octets().to_vec()),
    };
    let mut parts = vec![attribute(ADDRESS_FAMILY, family)?, attribute(name, bytes)?];
    if let Some(id) = id {
        parts.push(attribute(ID, id)?);
    }
    if let Some((flags, interface)) = new {
        parts.push(attribute(FLAGS, flags)?);
        parts.push(attribute(INTERFACE, interface)?);
    }
    parts.iter().try_fold(empty, Nlattr::nest).map_err(|e| failed("name an endpoint", &e))
}

fn attribute<P: neli::Size + neli::ToBytes>(name: u16, value: P) -> Result<Nlattr<u16, Buffer>, Failure> {
    let kind = AttrTypeBuilder::default().nla_type(name).build().map_err(|e| failed("name an attribute", &e))?;
    NlattrBuilder::default().nla_type(kind).nla_payload(value).build().map_err(|e| failed("name an attribute", &e))
}

fn failed(what: &str, why: &dyn core::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, "local", format!("could not {what} of the path manager: {why}"))
}

fn kernel(what: &str, code: i32) -> Failure {
    let why = std::io::Error::from_raw_os_error(code);
    let failure = failed(what, &why);
    match why.kind() {
        std::io::ErrorKind::PermissionDenied => failure.advise("it takes root, or the capability CAP_NET_ADMIN"),
        _ => failure,
    }
}

fn refused<T, P>(what: &str, why: &RouterError<T, P>) -> Failure
where
    RouterError<T, P>: core::fmt::Display,
{
    match why {
        RouterError::Nlmsgerr(e) => kernel(what, e.error().abs()),
        other => failed(what, other),
    }
}
