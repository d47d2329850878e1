//! `[[schedule]]`: what changes while a scenario runs.

use crate::builder::Pair;
use crate::error::{Place, ScenarioError};
use crate::fields::Fields;
use crate::link_keys::Keys;
use crate::model::{Action, Event, MAX_EVENTS, NatChange, NodeKind, Scenario};
use crate::parse::{link_named, node_named, one};
use core::time::Duration;
use std::net::Ipv4Addr;
use std::rc::Rc;

type Result<T> = core::result::Result<T, ScenarioError>;

/// One entry of the schedule before it is laid over the link as it then is.
struct Change {
    at: Duration,
    link: usize,
    /// One of [`DIRECTIONS`].
    directions: &'static [usize],
    keys: Rc<Keys>,
}

/// Forward, backward, both.
const DIRECTIONS: [&[usize]; 3] = [&[0], &[1], &[0, 1]];
/// The most rules of firewalls in all changes of links together: each change has its own copy of them.
const MAX_RULES: usize = 10 * MAX_EVENTS;

/// `[[schedule]]`: `at`, optionally `every` and `until`, and one of: `link`, optionally `direction`, and link keys; `interface`
/// and `up`; `rebind` or `restart` with the name of a NAT box.
pub(crate) fn schedule(s: &mut Scenario, f: &mut Fields) -> Result<()> {
    let mut changes: Vec<Change> = Vec::new();
    // How many events the changes of links will be.
    let mut planned = 0;
    for mut own in f.tables("schedule")? {
        let times = times(s, &mut own)?;
        if let Some(names) = own.texts("interface")? {
            if names.is_empty() {
                return Err(own.error("interface needs one HOST.INTERFACE at least"));
            }
            room(&own, s.events.len() + planned, times.len().saturating_mul(names.len()))?;
            interface_event(s, own, &names, &times)?;
            continue;
        }
        if let Some((node, what)) = nat_change(s, &mut own)? {
            room(&own, s.events.len() + planned, times.len())?;
            own.finish()?;
            s.events.extend(times.iter().map(|at| Event { at: *at, action: Action::Nat { node, what } }));
            continue;
        }
        let link = one(&mut own, "link").map_err(|e| {
            let message =
                "needs link = \"NAME\", interface = \"HOST.INTERFACE\", rebind = \"ROUTER\" or restart = \"ROUTER\"";
            ScenarioError { message: message.to_owned(), ..e }
        })?;
        let link = link_named(s, &own, "link", &link)?;
        let words = [("forward", DIRECTIONS[0]), ("backward", DIRECTIONS[1])];
        let directions = own.word("direction", &words)?.unwrap_or(DIRECTIONS[2]);
        let more = times.len().saturating_mul(directions.len());
        room(&own, s.events.len() + planned, more)?;
        planned += more;
        let keys = Rc::new(Keys::read(&mut own)?);
        own.finish()?;
        changes.extend(times.into_iter().map(|at| Change { at, link, directions, keys: keys.clone() }));
    }
    changes.sort_by_key(|c| c.at);
    let mut now: Vec<Pair> = s.links.iter().map(|l| l.directions.clone()).collect();
    let mut rules = 0;
    for change in changes {
        for &direction in change.directions {
            let config = &mut now[change.link][direction];
            change.keys.apply(config);
            rules += config.config.filters.len();
            if rules > MAX_RULES {
                let message = format!("more than {MAX_RULES} filters in all changes of links together");
                return Err(ScenarioError::plain("schedule", message));
            }
            let action = Action::Link { link: change.link, direction, config: config.clone() };
            s.events.push(Event { at: change.at, action });
        }
    }
    Ok(())
}

/// There must be room for `more` events beside those that there are, before they are made.
fn room(f: &Fields, there: usize, more: usize) -> Result<()> {
    if there.saturating_add(more) > MAX_EVENTS {
        return Err(f.error(format!("more than {MAX_EVENTS} changes in all: make every longer, or until earlier")));
    }
    Ok(())
}

/// `at`, and with `every` again and again until `until` or the end of the run.
fn times(s: &Scenario, f: &mut Fields) -> Result<Vec<Duration>> {
    let at = f.time("at")?.ok_or_else(|| f.error("needs at = \"5 s\""))?;
    let until = f.time("until")?.unwrap_or(s.total());
    let Some(every) = f.time("every")? else { return Ok(vec![at]) };
    if every.is_zero() || until.saturating_sub(at).as_nanos() / every.as_nanos().max(1) > MAX_EVENTS as u128 {
        return Err(f.error(format!("every must be above 0 and give {MAX_EVENTS} changes at most")));
    }
    Ok(core::iter::successors(Some(at), |t| Some(*t + every)).take_while(|t| *t <= until).collect())
}

/// `rebind = "ROUTER"`, optionally with `address`, or `restart = "ROUTER"`.
fn nat_change(s: &Scenario, f: &mut Fields) -> Result<Option<(usize, NatChange)>> {
    let (rebind, restart) = (f.texts("rebind")?, f.texts("restart")?);
    let (key, names, what) = match (rebind, restart) {
        (None, None) => return Ok(None),
        (Some(names), None) => ("rebind", names, NatChange::Rebind),
        (None, Some(names)) => ("restart", names, NatChange::Restart),
        (Some(_), Some(_)) => return Err(f.error("either rebind or restart")),
    };
    let [name] = &names[..] else { return Err(f.error(format!("{key} must be one router"))) };
    let node = node_named(s, f, key, name)?;
    let Some(nat) = &s.nodes[node].nat else {
        let message = format!("{:?} is no NAT box: give it nat = {{ outside = \"LINK\" }}", name.0);
        return Err(ScenarioError::new(name.1.clone(), f.key(key), message));
    };
    let address = if what == NatChange::Rebind { f.texts("address")? } else { None };
    let Some(address) = address else { return Ok(Some((node, what))) };
    let [(text, place)] = &address[..] else { return Err(f.error("address must be one address")) };
    let own: Vec<Ipv4Addr> = nat.outside_addresses(s, node).collect();
    match text.parse().ok().filter(|a| own.contains(a)) {
        Some(address) => Ok(Some((node, NatChange::Move(address)))),
        None => {
            let own: Vec<String> = own.iter().map(Ipv4Addr::to_string).collect();
            let message = format!(
                "{text:?} is no IPv4 address that {} is given on {} (those are: {}): list several in from-addresses or \
                 to-addresses of the link",
                s.nodes[node].name,
                s.links[nat.outside].name,
                own.join(", ")
            );
            Err(ScenarioError::new(place.clone(), f.key("address"), message))
        }
    }
}

fn interface_event(s: &mut Scenario, mut f: Fields, names: &[(String, Place)], times: &[Duration]) -> Result<()> {
    let up = f.flag("up")?.ok_or_else(|| f.error("needs up = true or false"))?;
    f.finish()?;
    for (name, place) in names {
        let found = name.split_once('.').and_then(|(node, interface)| {
            let node = s.node(node)?;
            // Interfaces without a name are eth0, eth1, ... in the order of their links.
            let mut unnamed = 0;
            s.links_of(node).find(|(link, end)| {
                let own = &s.links[*link].ends[*end].interface;
                if own.is_empty() {
                    unnamed += 1;
                    return interface == format!("eth{}", unnamed - 1);
                }
                own == interface
            })
        });
        let (link, end) = found.ok_or_else(|| {
            ScenarioError::new(
                place.clone(),
                "schedule.interface",
                format!("no interface {name:?}: it is NODE.INTERFACE"),
            )
        })?;
        if s.nodes[s.links[link].ends[end].node].kind == NodeKind::Router {
            let message = format!(
                "{name:?} is at a router; interfaces of hosts go down, and links: link = {:?} with down = true",
                s.links[link].name
            );
            return Err(ScenarioError::new(place.clone(), "schedule.interface", message));
        }
        s.events.extend(times.iter().map(|at| Event { at: *at, action: Action::Interface { link, end, up } }));
    }
    Ok(())
}
