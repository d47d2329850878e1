//! Opening flows and listening.
//!
//! *Responsible for* what properties and optional arguments make of a request, for candidates that
//! cannot be in one race (datagrams and streams), for flows that share an association, and for what
//! failure is reported as.
//! *Not responsible for* the race itself (the engine).

use crate::abi;
use crate::context::{Context, Core};
use crate::flow::{Flow, Left, Phase, State};
use crate::log::Level;
use crate::manager::{self, Candidate, Found, text_of};
use crate::properties::{Properties, Transport};
use crate::security;
use core::ptr::NonNull;
use neater_base::net::{ErrorKind, SocketOption};
use neater_engine::{
    AttemptError, ConnectionId, EstablishmentError, Fate, LocalEndpoint, Reason, RemoteEndpoint, Request,
    RequestOptions, Stack, StreamDirection,
};
use neater_property::{Multipath, Role, SelectionProperty as P, TransportProperties};
use std::net::{IpAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;

/// A flow that is, or is to be, a stream of an association: others to the same name, port and group
/// may join it.
#[derive(Clone)]
pub(crate) struct Member {
    remotes: Arc<[RemoteEndpoint]>,
    group: i32,
    flow: NonNull<Flow>,
}

/// The optional arguments of `neat_open`.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenArguments {
    pub(crate) priority: Option<f32>,
    pub(crate) group: i32,
    pub(crate) congestion: Option<String>,
}

/// The longest name of a host (RFC 1035 section 2.3.4).
const NAME_MAX: usize = 253;

/// `neat_open`.
pub(crate) fn open(ctx: &Context, f: &Flow, name: &[u8], port: u16, arguments: OpenArguments) -> u64 {
    let mut core = ctx.core.borrow_mut();
    let core = &mut *core;
    let flow = NonNull::from(f);
    {
        let mut s = f.state.borrow_mut();
        if s.phase != Phase::New || arguments.priority.is_some_and(|p| !(0.1..=1.0).contains(&p)) {
            return abi::BAD_ARGUMENT;
        }
        let Some((name, remotes)) = core.remotes_of(name, port) else { return abi::BAD_ARGUMENT };
        s.phase = Phase::Opening;
        s.name = Some(name.clone());
        s.port = port;
        if arguments.priority.is_some() || arguments.group != 0 || arguments.congestion.is_some() {
            let more = s.more();
            (more.priority, more.group, more.congestion) = (arguments.priority, arguments.group, arguments.congestion);
        }
        let too_long = name.len() > NAME_MAX && name.split(',').any(|n| n.trim().len() > NAME_MAX);
        if port == 0 || too_long || remotes.is_empty() {
            ctx.log.line(Level::Error, format_args!("neat_open: `{name}` and port {port} name no endpoint"));
            s.due.error = Some(abi::BAD_ARGUMENT);
        } else {
            s.remotes = Some(remotes);
        }
    }
    if f.state.borrow().due.error.is_some() || !manager::ask(ctx, core, f) {
        begin(ctx, core, flow);
    }
    ctx.after_call(core);
    abi::OK
}

/// What a policy manager of NEAT's protocol has decided about a flow.
pub(crate) fn decided(ctx: &Context, core: &mut Core, f: &Flow, found: Found) {
    let flow = NonNull::from(f);
    match found {
        Found::NoManager => {}
        Found::Nothing => {
            ctx.log.line(Level::Error, format_args!("neat_open: the policy manager leaves no candidate"));
            f.state.borrow_mut().due.error = Some(abi::UNABLE);
        }
        Found::Candidates(list) => {
            let mut s = f.state.borrow_mut();
            match narrowed(&s, &list) {
                Ok((props, targets)) => {
                    s.props = Some(Rc::new(props));
                    let more = s.more();
                    (more.targets, more.candidates) = (Some(targets), list);
                }
                // As NEAT does with an answer that is none.
                Err(why) => ctx.log.line(Level::Warning, format_args!("the policy manager's candidates: {why}")),
            }
        }
    }
    begin(ctx, core, flow);
}

/// The properties of a flow with what candidates leave of transports and addresses, in their order,
/// and the addresses to connect to.
fn narrowed(s: &State, list: &[Candidate]) -> Result<(Properties, Arc<[RemoteEndpoint]>), String> {
    let mut json = s.props.as_ref().map(|p| p.json().clone()).unwrap_or_default();
    let (mut transports, mut from, mut to): (Vec<&str>, Vec<&str>, Vec<IpAddr>) = (Vec::new(), Vec::new(), Vec::new());
    for candidate in list {
        let parsed = text_of(candidate, "remote_ip").and_then(|ip| ip.parse().ok());
        let (Some(transport), Some(ip)) = (text_of(candidate, "transport"), parsed) else { continue };
        let from_this = text_of(candidate, "local_ip").filter(|ip| ip.parse::<IpAddr>().is_ok());
        transports.extend(Some(transport).filter(|t| !transports.contains(t)));
        from.extend(from_this.filter(|ip| !from.contains(ip)));
        to.extend(Some(ip).filter(|ip| !to.contains(ip)));
    }
    if to.is_empty() {
        return Err("none has a transport and an address".into());
    }
    // A policy adds security, and takes none away.
    let secure = |c: &Candidate| c.get("security").and_then(|p| p.get("value")) == Some(&true.into());
    if list.iter().any(secure) {
        json.insert("security".into(), serde_json::json!({"value": true}));
    }
    json.insert("transport".into(), serde_json::json!({"value": transports}));
    let from: Vec<_> = from.iter().map(|ip| serde_json::json!({"value": ip})).collect();
    json.insert("local_ips".into(), from.into());
    let mut props = Properties::of(json)?;
    props.server_name = s.name.as_deref().filter(|n| n.parse::<IpAddr>().is_err() && !n.contains(',')).map(Into::into);
    let remote = |ip: IpAddr| RemoteEndpoint::new().with_ip_address(ip).with_port(s.port);
    Ok((props, to.into_iter().map(remote).collect()))
}

/// Has the engine look up the name of a flow, for a policy manager; `failed` reports what it has
/// found. False: it cannot.
pub(crate) fn resolve(core: &mut Core, f: &Flow) -> bool {
    let Some(remotes) = f.state.borrow().remotes.clone() else { return false };
    let options = RequestOptions { bytes: true, stacks: vec![Stack::Tcp], ..RequestOptions::default() };
    let disabled = neater_tls::SecurityParameters::disabled();
    let request = core.engine.compile(&TransportProperties::new(), &disabled, Role::Initiate, &options);
    let Ok(id) = request.and_then(|r| core.engine.plan(&r, &remotes, &[])) else { return false };
    f.state.borrow_mut().conn = Some(id);
    core.bind(id, f.into());
    true
}

/// Begins with the candidates of a flow, or has it wait for an association.
fn begin(ctx: &Context, core: &mut Core, flow: NonNull<Flow>) {
    // SAFETY: flows in the context's lists are alive.
    let f = unsafe { flow.as_ref() };
    {
        let mut s = f.state.borrow_mut();
        if s.due.error.is_none() {
            let props = s.props.clone().unwrap_or_else(|| core.no_properties.clone());
            match requests(ctx, core, &props) {
                Ok(requests) => s.left = Left::of(requests),
                Err((status, why)) => {
                    ctx.log.line(Level::Error, format_args!("neat_open: {why}"));
                    s.due.error = Some(status);
                }
            }
            s.messages = props.messages;
        }
        if s.due.error.is_some() {
            s.phase = Phase::Failed;
            drop(s);
            return ctx.wake(core, flow);
        }
    }
    if !join(ctx, core, flow, f) {
        next(ctx, core, flow);
    }
}

/// Becomes a stream of an association to the same endpoint, or waits for one that is being opened.
/// False: there is none.
fn join(ctx: &Context, core: &mut Core, flow: NonNull<Flow>, f: &Flow) -> bool {
    let mut s = f.state.borrow_mut();
    let sctp = |stack: &Stack| stack.is_sctp();
    let Some(first) = s.left.first().filter(|r| r.stacks().iter().any(sctp)) else { return false };
    let begins_with_sctp = first.stacks().first().is_some_and(|s| s.is_sctp());
    let Some(remotes) = s.remotes.clone() else { return false };
    let group = s.more.as_ref().map_or(0, |m| m.group);
    if core.streams.is_empty() && !begins_with_sctp {
        return false;
    }
    let same = |m: &&Member| m.flow != flow && m.group == group && Arc::ptr_eq(&m.remotes, &remotes);
    let members: Vec<_> = core.streams.iter().filter(same).map(|m| m.flow).collect();
    for member in members {
        // SAFETY: members are alive: they leave the list when they are closed.
        let other = unsafe { member.as_ref() }.state.borrow();
        match (other.phase, other.conn) {
            (Phase::Open, Some(conn)) => {
                let Ok(id) = core.engine.clone_connection(conn, StreamDirection::Both) else { continue };
                // An association whose peer knows no streams of ours is cloned by another
                // association, which is as good.
                adopt(core, &mut s, flow, id);
                return true;
            }
            (Phase::Opening, _) if begins_with_sctp => {
                drop(other);
                s.left.clear();
                s.more().leader = Some(member);
                core.followers += 1;
                return true;
            }
            _ => {}
        }
    }
    if begins_with_sctp {
        core.streams.push(Member { remotes, group, flow });
        ctx.log.line(Level::Debug, format_args!("a flow opens an association of its own"));
    }
    false
}

/// A connection of the engine's becomes a flow's.
fn adopt(core: &mut Core, s: &mut State, flow: NonNull<Flow>, id: ConnectionId) {
    s.conn = Some(id);
    core.bind(id, flow);
    if let Some(more) = &s.more {
        if let Some(priority) = more.priority {
            // The engine has it the other way round: lower goes first, and 100 is the default, as
            // 0.5 is here.
            core.engine.set_priority(id, ((1.0 - priority) * 200.0) as u32);
        }
        if more.qos != 0 {
            let _ = core.engine.set_option(id, SocketOption::Dscp(more.qos & 0x3f));
        }
    }
}

/// Tries the next group of candidates.
fn next(ctx: &Context, core: &mut Core, flow: NonNull<Flow>) {
    // SAFETY: flows in the context's lists are alive.
    let f = unsafe { flow.as_ref() };
    let mut status = abi::UNABLE;
    loop {
        let mut s = f.state.borrow_mut();
        let Some(request) = s.left.take_first() else {
            s.phase = Phase::Failed;
            s.due.error = Some(status);
            drop(s);
            resolve_followers(ctx, core, flow);
            return ctx.wake(core, flow);
        };
        let props = s.props.clone();
        let targets = s.more.as_ref().and_then(|m| m.targets.clone());
        let Some(remotes) = targets.or_else(|| s.remotes.clone()) else { return };
        if let Some(policies) = &mut core.policies {
            policies.look(&mut core.engine);
        }
        let from = props.as_ref().map_or(&[][..], |p| &p.local_ips);
        let locals: Vec<_> = match from {
            [] => Vec::new(),
            from => from.iter().map(|ip| LocalEndpoint::new().with_ip_address(*ip)).collect(),
        };
        match core.engine.initiate_from(&request, &remotes, &locals, None) {
            Ok(id) => return adopt(core, &mut s, flow, id),
            Err(e) => {
                ctx.log.line(Level::Warning, format_args!("{e}"));
                status = status_of(&e);
            }
        }
    }
}

/// The requests of properties, one for each group of transports that can be in one race, in the
/// order in which they are named.
fn requests(ctx: &Context, core: &mut Core, props: &Rc<Properties>) -> Result<Rc<[Request]>, (u64, String)> {
    if let Some(known) = props.requests.get() {
        return Ok(known.clone());
    }
    let mut parameters = security::of_client(core, props)?;
    if props.server_name.is_some() {
        parameters.server_name.clone_from(&props.server_name);
    }
    let mut all: Vec<Request> = Vec::new();
    let mut why = String::from("no transport that is asked for is one of this build");
    let named = props.to_open();
    // Several kinds of messages in one race only where the program keeps boundaries.
    let alike = |a: &Transport, b: &Transport| a.is_datagram() == b.is_datagram();
    for group in named.chunk_by(alike) {
        let mut stacks = Vec::new();
        for stack in group.iter().flat_map(|t| t.stacks(props.security)) {
            if !stacks.contains(stack) {
                stacks.push(*stack);
            }
        }
        if stacks.is_empty() {
            continue;
        }
        let datagrams = group[0].is_datagram();
        let mut properties = needs(datagrams);
        if props.multihoming || (props.names_mptcp() && group.contains(&Transport::Mptcp)) {
            properties.set_multipath(Multipath::Active);
        }
        if let Some(delay) = props.he_delay {
            let _ = properties.set("_neater.attemptDelay", delay.max(10));
        }
        let options = RequestOptions {
            bytes: !datagrams && !props.messages,
            stacks,
            in_order: true,
            policy: props.policy.clone(),
            ..RequestOptions::default()
        };
        if !props.policy.is_empty()
            && let Some(policies) = &core.policies
        {
            policies.advise(&mut core.engine);
        }
        match core.engine.compile(&properties, &parameters, Role::Initiate, &options) {
            Ok(request) => all.push(request),
            Err(e) => {
                ctx.log.line(Level::Debug, format_args!("{e}"));
                why = e.to_string();
            }
        }
    }
    if all.is_empty() {
        return Err((abi::UNABLE, why));
    }
    let all: Rc<[Request]> = all.into();
    Ok(props.requests.get_or_init(|| all).clone())
}

/// What a flow of datagrams, or one of a stream, asks of its transport.
fn needs(datagrams: bool) -> TransportProperties {
    let mut properties = TransportProperties::new();
    if datagrams {
        for p in [P::Reliability, P::PreserveOrder, P::CongestionControl] {
            properties.no_preference(p);
        }
        // UDP may deliver a datagram twice, which NEAT's programs know.
        let _ = properties.set("safelyReplayable", true);
    } else {
        // Messages of SCTP may be given up, where the program allows that for one.
        properties.prefer(P::PerMsgReliability);
    }
    properties
}

/// The connection of a flow is established.
pub(crate) fn established(ctx: &Context, core: &mut Core, flow: NonNull<Flow>, conn: ConnectionId) {
    // SAFETY: flows in the context's lists are alive.
    let f = unsafe { flow.as_ref() };
    let stack = core.engine.stack(conn);
    let udp = {
        let mut s = f.state.borrow_mut();
        s.phase = Phase::Open;
        s.stack = stack;
        s.due.connected = true;
        (s.readable, s.writable) = (true, true);
        s.left.clear();
        if let Some(congestion) = s.more.as_ref().and_then(|m| m.congestion.as_ref())
            && let Some(fd) = core.engine.descriptor(conn)
            && !crate::settings::set_congestion(fd, congestion)
        {
            ctx.log.line(Level::Warning, format_args!("this system has no congestion control `{congestion}`"));
        }
        if stack.is_some_and(Stack::is_sctp)
            && let Some(remotes) = s.remotes.clone()
            && !core.streams.iter().any(|m| m.flow == flow)
        {
            let group = s.more.as_ref().map_or(0, |m| m.group);
            core.streams.push(Member { remotes, group, flow });
        }
        s.props.as_ref().is_some_and(|p| p.names_sctp_udp())
    };
    f.edit(|o| o.transport_protocol = stack.map_or(0, |s| abi::stack_number(s, udp)));
    won(core, f, conn);
    resolve_followers(ctx, core, flow);
}

/// The properties of a flow that a policy manager has decided about become those of the candidate
/// that has won.
fn won(core: &Core, f: &Flow, conn: ConnectionId) {
    let mut s = f.state.borrow_mut();
    let candidates = s.more.as_mut().map(|m| core::mem::take(&mut m.candidates)).unwrap_or_default();
    if candidates.is_empty() {
        return;
    }
    let name = s.stack.map_or("", abi::stack_name);
    let ips = [core.engine.remote_addr(conn), core.engine.local_addr(conn)].map(|a| a.map(|a| a.ip().to_canonical()));
    let is = |c: &Candidate, key: &str, ip: Option<IpAddr>| text_of(c, key).and_then(|t| t.parse().ok()) == ip;
    let carries = |c: &&Candidate| {
        text_of(c, "transport").is_some_and(|t| t.split('/').next() == name.split('/').next())
            && is(c, "remote_ip", ips[0])
    };
    let fits: Vec<_> = candidates.iter().filter(carries).collect();
    let winner = fits.iter().find(|c| is(c, "local_ip", ips[1])).or(fits.first());
    if let Some(props) = winner.and_then(|c| Properties::of((*c).clone()).ok()) {
        s.props = Some(Rc::new(props));
    }
}

/// The candidates of a flow have failed.
pub(crate) fn failed(ctx: &Context, core: &mut Core, flow: NonNull<Flow>, conn: ConnectionId, e: &EstablishmentError) {
    core.unbind(conn);
    core.engine.release(conn);
    // SAFETY: flows in the context's lists are alive.
    let f = unsafe { flow.as_ref() };
    if manager::resolves(f) {
        f.state.borrow_mut().conn = None;
        let addresses: Vec<_> = e.candidates.iter().map(|c| c.addr).collect();
        return manager::resolved(ctx, core, f, &addresses);
    }
    ctx.log.line(Level::Info, format_args!("{e}"));
    let more = {
        let mut s = f.state.borrow_mut();
        s.conn = None;
        !s.left.is_empty()
    };
    if more {
        return next(ctx, core, flow);
    }
    {
        let mut s = f.state.borrow_mut();
        s.phase = Phase::Failed;
        s.due.error = Some(status_of(e));
    }
    core.streams.retain(|m| m.flow != flow);
    resolve_followers(ctx, core, flow);
}

/// A flow is closed: it is a stream of no association any more.
pub(crate) fn left(ctx: &Context, core: &mut Core, flow: NonNull<Flow>) {
    if !core.streams.is_empty() {
        core.streams.retain(|m| m.flow != flow);
    }
    resolve_followers(ctx, core, flow);
}

/// Those that have waited for this flow's association go on.
fn resolve_followers(ctx: &Context, core: &mut Core, leader: NonNull<Flow>) {
    if core.followers == 0 {
        return;
    }
    let flows: Vec<_> = core.flows.iter().flatten().copied().collect();
    for flow in flows {
        if flow == leader {
            continue;
        }
        // SAFETY: flows in the context's lists are alive.
        let f = unsafe { flow.as_ref() };
        let waits = {
            let mut s = f.state.borrow_mut();
            let waits = s.more.as_ref().is_some_and(|m| m.leader == Some(leader));
            if waits {
                s.more().leader = None;
            }
            waits
        };
        if waits {
            core.followers -= 1;
            begin(ctx, core, flow);
        }
    }
}

/// What a failure to connect is reported as.
fn status_of(e: &EstablishmentError) -> u64 {
    let errors = || {
        e.candidates.iter().filter_map(|c| match &c.fate {
            Fate::Failed(e) => Some(e),
            _ => None,
        })
    };
    match e.reason {
        Reason::ResolutionFailed => abi::DNS,
        Reason::Exhausted => abi::OUT_OF_MEMORY,
        _ if errors().any(|e| matches!(e, AttemptError::Tls(_) | AttemptError::PeerRefused)) => abi::SECURITY,
        _ if errors().next().is_some() && errors().all(is_local) => abi::IO,
        _ => abi::UNABLE,
    }
}

/// Whether an attempt failed before anything was sent.
fn is_local(e: &AttemptError) -> bool {
    use ErrorKind::{AddrNotAvailable, HostUnreachable, InvalidInput, NetworkUnreachable, PermissionDenied};
    let kinds = [AddrNotAvailable, NetworkUnreachable, HostUnreachable, PermissionDenied, InvalidInput];
    matches!(e, AttemptError::Net(n) if kinds.contains(&n.kind))
}

/// `neat_accept`.
pub(crate) fn accept(ctx: &Context, f: &Flow, port: u16, local: Option<&str>) -> u64 {
    let mut core = ctx.core.borrow_mut();
    let core = &mut *core;
    let flow = NonNull::from(f);
    {
        let mut s = f.state.borrow_mut();
        if s.phase != Phase::New {
            return abi::BAD_ARGUMENT;
        }
        s.phase = Phase::Listening;
        s.port = port;
    }
    if let Err((status, why)) = listen(ctx, core, f, port, local) {
        ctx.log.line(Level::Error, format_args!("neat_accept: {why}"));
        let mut s = f.state.borrow_mut();
        s.phase = Phase::Failed;
        s.due.error = Some(status);
    }
    ctx.wake(core, flow);
    ctx.after_call(core);
    abi::OK
}

/// Listens with every transport that can; fails if none can.
fn listen(ctx: &Context, core: &mut Core, f: &Flow, port: u16, local: Option<&str>) -> Result<(), (u64, String)> {
    if port == 0 {
        return Err((abi::BAD_ARGUMENT, "port 0 cannot be listened at".into()));
    }
    let flow = NonNull::from(f);
    let props = f.state.borrow().props.clone().unwrap_or_else(|| core.no_properties.clone());
    let locals = local_endpoints(local, port)?;
    if props.tproxy {
        ctx.log.line(Level::Warning, format_args!("tproxy has no effect: the listeners are ordinary ones"));
    }
    let parameters = security::of_server(&f.state.borrow(), &props)?;
    let mut stacks: Vec<Stack> = Vec::new();
    for stack in props.to_accept().iter().flat_map(|t| t.stacks(props.security)) {
        if !stacks.contains(stack) {
            stacks.push(*stack);
        }
    }
    let mut failure = (abi::UNABLE, String::from("no transport that is asked for is one of this build"));
    for stack in stacks {
        let datagrams = !stack.is_stream();
        let mut properties = needs(datagrams);
        if props.multihoming {
            properties.set_multipath(Multipath::Passive);
        }
        let options = RequestOptions { bytes: !datagrams, stacks: vec![stack], ..RequestOptions::default() };
        let listening = core
            .engine
            .compile(&properties, &parameters, Role::Listen, &options)
            .map_err(|e| (if props.security { abi::SECURITY } else { abi::UNABLE }, e.to_string()))
            .and_then(|r| core.engine.listen(&r, &locals).map_err(|e| (abi::IO, e.to_string())));
        match listening {
            Ok(listener) => {
                ctx.log.line(Level::Debug, format_args!("listening with {stack} at port {port}"));
                core.listeners.push((listener, flow));
                f.state.borrow_mut().listeners.push(listener);
            }
            Err((status, why)) => {
                ctx.log.line(Level::Info, format_args!("not with {stack}: {why}"));
                // A taken port is a more precise error than a missing transport.
                if failure.0 != abi::IO {
                    failure = (status, why);
                }
            }
        }
    }
    match f.state.borrow().listeners.is_empty() {
        true => Err(failure),
        false => Ok(()),
    }
}

/// Where to listen: at a literal, or at what a name leads to; else at all addresses of both
/// families.
fn local_endpoints(local: Option<&str>, port: u16) -> Result<Vec<LocalEndpoint>, (u64, String)> {
    let at = |ip: IpAddr| LocalEndpoint::new().with_port(port).with_ip_address(ip);
    let Some(name) = local else { return Ok(vec![LocalEndpoint::new().with_port(port)]) };
    if let Ok(ip) = name.parse::<IpAddr>() {
        return Ok(vec![at(ip)]);
    }
    let found = (name, port).to_socket_addrs();
    let mut ips: Vec<IpAddr> = found.map(|all| all.map(|a| a.ip()).collect()).unwrap_or_default();
    ips.sort();
    ips.dedup();
    if ips.is_empty() {
        return Err((abi::DNS, format!("`{name}` is no address of this host")));
    }
    Ok(ips.into_iter().map(at).collect())
}

/// The properties of a flow; those of an accepted one are made when they are asked for.
pub(crate) fn properties_of(ctx: &Context, f: &Flow) -> Option<Rc<Properties>> {
    let mut s = f.state.borrow_mut();
    if s.props.is_none() && s.accepted {
        let address = s.conn.and_then(|c| ctx.core.borrow().engine.remote_addr(c)).map(|a| a.ip());
        let transport = s.stack.map_or("", abi::stack_name);
        s.props = Some(Rc::new(Properties::accepted(transport, s.port, address)));
    }
    s.props.clone()
}
