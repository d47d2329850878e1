//! From where and by which interface a race goes.
//!
//! *Responsible for* every combination of a local endpoint, an interface and a remote endpoint that
//! can be bound together, as the program or policies request. *Not responsible for* their order,
//! which is the race's.

use super::Path;
use crate::event::{EstablishmentError, Reason};
use crate::policy::{self, AdviceOf};
use crate::{LocalEndpoint, RemoteEndpoint};
use neater_base::net::Interface;
use neater_race::{Family, PathId, PathSpec};
use std::net::{IpAddr, SocketAddr};

/// The paths of a race: local endpoints, then interfaces, then remote endpoints.
pub(crate) fn lay_out(
    interfaces: &[Interface],
    request: &crate::request::Compiled,
    remotes: &[RemoteEndpoint],
    locals: &[LocalEndpoint],
) -> Result<(Vec<Path>, Vec<PathSpec>), EstablishmentError> {
    let anywhere = LocalEndpoint::new();
    let locals = if locals.is_empty() { core::slice::from_ref(&anywhere) } else { locals };
    let (mut paths, mut specs) = (Vec::new(), Vec::new());
    for local in locals {
        let family = local.addr.map(|a| Family::of(&a));
        for interface in interfaces_for(interfaces, request, local.interface.as_deref())? {
            for (remote, r) in remotes.iter().enumerate() {
                let scope = r.interface.as_deref().map(|n| zone_index(interfaces, n)).transpose()?;
                // What cannot be bound together is no path.
                let fits =
                    |v4: bool| r.addr.is_none_or(|a| a.is_ipv4() == v4) && local.addr.is_none_or(|a| a.is_ipv4() == v4);
                if !fits(true) && !fits(false) {
                    continue;
                }
                specs.push(PathSpec {
                    id: PathId(paths.len() as u16),
                    port: r.port,
                    expect_v4: fits(true) && !request.only_v6,
                    expect_v6: fits(false),
                    expect_services: r.addr.is_none() && request.services,
                });
                let addr = local.source().map(|a| SocketAddr::new(a, local.port));
                let (interface, port) = (interface.or(scope), local.port);
                paths.push(Path { remote, interface, local: addr, port, way: None, family });
            }
        }
    }
    Ok((paths, specs))
}

/// The paths of a race as policies advise: local endpoints, then remote endpoints, then routes. The
/// program's own addresses and interfaces take precedence: a route that contradicts them is
/// dropped.
pub(crate) fn lay_out_as_advised(
    interfaces: &[Interface],
    request: &crate::request::Compiled,
    remotes: &[RemoteEndpoint],
    locals: &[LocalEndpoint],
    advice: &AdviceOf,
) -> Result<(Vec<Path>, Vec<PathSpec>), EstablishmentError> {
    let anywhere = LocalEndpoint::new();
    let locals = if locals.is_empty() { core::slice::from_ref(&anywhere) } else { locals };
    let (mut paths, mut specs) = (Vec::new(), Vec::new());
    for local in locals {
        let named = local.interface.as_deref();
        for (remote, r) in remotes.iter().enumerate() {
            let scope = r.interface.as_deref().map(|n| zone_index(interfaces, n)).transpose()?;
            for way in advice.get(remote).and_then(Option::as_ref).into_iter().flat_map(policy::ways) {
                let Some(advised) = way.path() else { continue };
                let own = named.map(|n| interface_index(interfaces, n).ok_or_else(|| no_interface(n))).transpose()?;
                let bound = own.or(scope);
                let contradicts = |(said, asked): (u32, u32)| said != asked;
                if advised.interface.zip(bound).is_some_and(contradicts)
                    || advised.local.zip(local.source()).is_some_and(|(said, asked)| said != asked)
                {
                    continue;
                }
                let through = match advised.interface.or(bound) {
                    Some(one) => vec![Some(one)],
                    None => interfaces_for(interfaces, request, None)?,
                };
                let source = local.source().or(advised.local);
                let asked = local.addr.map(|a| Family::of(&a));
                for interface in through {
                    // Link-local addresses are everywhere.
                    let near = [r.addr, source].into_iter().flatten().any(is_link_local);
                    let family = interface.filter(|_| !near).and_then(|index| only_family(interfaces, index));
                    let fits = |v4: bool| {
                        r.addr.is_none_or(|a| a.is_ipv4() == v4)
                            && source.is_none_or(|a| a.is_ipv4() == v4)
                            && [family, asked].into_iter().flatten().all(|f| (f == Family::V4) == v4)
                    };
                    if !fits(true) && !fits(false) {
                        continue;
                    }
                    specs.push(PathSpec {
                        id: PathId(paths.len() as u16),
                        port: r.port,
                        expect_v4: fits(true) && !request.only_v6,
                        expect_v6: fits(false),
                        expect_services: r.addr.is_none() && request.services,
                    });
                    let addr = source.map(|a| SocketAddr::new(a, local.port));
                    let (way, family) = (Some(way.clone()), asked.or(family));
                    paths.push(Path { remote, interface, local: addr, port: local.port, way, family });
                }
            }
        }
    }
    if paths.is_empty() {
        let why = "the policies allow none of the local endpoints and interfaces that the program asks for";
        return Err(EstablishmentError::new(Reason::PolicyProhibited, why));
    }
    Ok((paths, specs))
}

/// The family of all addresses of an interface that others can reach, if it has one family only:
/// what would leave it by the other one never comes back.
fn only_family(interfaces: &[Interface], index: u32) -> Option<Family> {
    let interface = interfaces.iter().find(|i| i.index == index)?;
    let has = |v4: bool| interface.addrs.iter().any(|a| a.addr.is_ipv4() == v4 && !is_link_local(a.addr));
    match (has(true), has(false)) {
        (true, false) => Some(Family::V4),
        (false, true) => Some(Family::V6),
        _ => None,
    }
}

/// The interface that a remote endpoint names, by its name or, as the zone of an address may (RFC
/// 4007 section 11.2), by its index.
pub(crate) fn zone_index(interfaces: &[Interface], name: &str) -> Result<u32, EstablishmentError> {
    let by_number = |n: u32| interfaces.iter().any(|i| i.index == n).then_some(n);
    interface_index(interfaces, name).or_else(|| by_number(name.parse().ok()?)).ok_or_else(|| no_interface(name))
}

/// The interfaces a connection may use, in rank order; `None` leaves it to the system.
fn interfaces_for(
    interfaces: &[Interface],
    request: &crate::request::Compiled,
    local: Option<&str>,
) -> Result<Vec<Option<u32>>, EstablishmentError> {
    if let Some(name) = local {
        return Ok(vec![Some(interface_index(interfaces, name).ok_or_else(|| no_interface(name))?)]);
    }
    let any = request.properties.interfaces().is_empty();
    if any && !request.demands_path {
        return Ok(vec![None]);
    }
    let ranked = neater_policy::rank_paths(&request.policy.needs, interfaces)
        .map_err(|e| EstablishmentError::new(Reason::NoCandidates, e.to_string()))?;
    // What is asked besides must hold of one of them; which one it is, routing and the sockets'
    // options decide.
    Ok(if any { vec![None] } else { ranked.iter().map(|r| Some(r.index)).take(4).collect() })
}

pub(crate) fn interface_index(interfaces: &[Interface], name: &str) -> Option<u32> {
    interfaces.iter().find(|i| i.name == name).map(|i| i.index)
}

fn no_interface(name: &str) -> EstablishmentError {
    EstablishmentError::new(Reason::InvalidConfiguration, format!("there is no interface `{name}` on this host"))
}

const fn is_link_local(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    }
}
