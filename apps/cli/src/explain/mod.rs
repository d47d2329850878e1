//! `neater explain`.
//!
//! *Responsible for* showing a decision before it is made, and with `--try` as it was made. *Not
//! responsible for* the decision: policy and race make it, and explain it.

mod drawing;

use crate::args::ExplainArgs;
use crate::connect::{self, Asked};
use crate::failure::{Exit, Failure, establishment};
use crate::outcomes::Outcomes;
use crate::output::{Output, ms, step};
use crate::why::why;
use neater::{
    Connection, Explanation, Fate, Neater, PolicyStory, Preconnection, Protection, Reason, RemoteEndpoint, Request,
    Role, Stack, Step,
};
use neater_http::{HttpVersion, Scheme, Url};
use serde_json::json;

pub(crate) async fn run(args: ExplainArgs, output: &Output) -> Result<Exit, Failure> {
    let mut asked = Asked::new(&args.connect, output)?;
    let (endpoint, clear) = target(&args.target)?;
    let endpoint = args.connect.udp_port.map_or(endpoint.clone(), |p| endpoint.with_udp_port(p));
    if clear && asked.need.is_none() {
        asked.security.protection = Protection::Disabled;
    }
    asked.security.alpn = alpn(&args);
    let neater = connect::neater(&args.connect)?;
    if !args.attempt {
        Outcomes::load(&neater, &args.connect, output);
    }
    let mut preconnection = neater
        .preconnection()
        .remote(endpoint.clone())
        .properties(asked.properties.clone())
        .security(asked.security.clone())
        .stacks(&asked.stacks);
    if let Some(local) = &asked.local {
        preconnection = preconnection.local(local.clone());
    }
    for (name, value) in &args.connect.property {
        preconnection = preconnection.policy_property(name, value);
    }
    if let Some(t) = args.connect.timeout {
        preconnection = preconnection.timeout(t);
    }
    let request = preconnection.compile(Role::Initiate).map_err(|e| excluded(&e, output))?;
    show_decision(&endpoint, &request, asked.stacks.is_empty(), output);
    connect::PolicyFaults::default().report(&neater, output);
    let story = show_policies(&neater, &request, &endpoint, output);
    if args.attempt {
        let tried = attempt(&neater, &preconnection, &endpoint, &args, output).await;
        // There is one server, whatever name it was asked for.
        return tried.map_err(|f| asked.seen.pin_of(f, ""));
    }
    if let Some(why) = story.as_ref().and_then(PolicyStory::prohibited) {
        return Err(Failure::new(Exit::Failed, "policy", why));
    }
    show_plan(&preconnection, output).await
}

/// What policies change, and which of them, where there are any.
fn show_policies(
    neater: &Neater,
    request: &Request,
    endpoint: &RemoteEndpoint,
    output: &Output,
) -> Option<PolicyStory> {
    let story = neater.explain_policies(request, endpoint)?;
    let sources: Vec<String> = neater.policy_sources().iter().map(ToString::to_string).collect();
    if output.json {
        let mut json = story.to_json();
        json["event"] = "policies".into();
        json["sources"] = sources.into();
        output.event(&json);
    } else {
        output.line(&format!("Policies ({}):", sources.join("; ")));
        story.lines().iter().for_each(|l| output.line(l));
    }
    Some(story)
}

/// HOST:PORT or a URL; whether it is in the clear.
fn target(text: &str) -> Result<(RemoteEndpoint, bool), Failure> {
    if text.contains("://") {
        let url = Url::parse(text)?;
        let origin = url.origin();
        let endpoint = RemoteEndpoint::new().with_host_name(&origin.host).with_port(origin.port);
        return Ok((endpoint, origin.scheme == Scheme::Http));
    }
    let endpoint = text.parse::<RemoteEndpoint>().map_err(|e| Failure::usage(e.to_string()))?;
    Ok((endpoint, false))
}

/// What is offered by default.
const ALPN: &str = "h3,h2,http/1.1";

fn alpn(args: &ExplainArgs) -> Vec<Vec<u8>> {
    if let Some(v) = args.http.as_deref().and_then(HttpVersion::from_name) {
        return vec![v.alpn().to_vec()];
    }
    // DTLS agrees upon no application protocol: a user who names nothing else is not offered what
    // rules it out.
    let named = &args.connect.transport;
    let without = !named.is_empty() && named.iter().all(|t| t.trim().eq_ignore_ascii_case("dtls"));
    let alpn = args.alpn.as_deref().unwrap_or(if without { "" } else { ALPN });
    alpn.split(',').map(str::trim).filter(|a| !a.is_empty()).map(|a| a.as_bytes().to_vec()).collect()
}

/// Nothing can serve: what rules out what is the whole answer.
fn excluded(e: &neater::EstablishmentError, output: &Output) -> Failure {
    if output.json {
        for line in &e.excluded {
            output.event(&json!({ "event": "excluded", "text": line }));
        }
    }
    Failure::new(Exit::Usage, "needs", e.to_string())
}

/// The remark on transports that were not requested.
const ASIDE: &str = "(by name, --transport, or by --needs \"preserve-msg-boundaries, multistreaming\")";

fn show_decision(endpoint: &RemoteEndpoint, request: &Request, any: bool, output: &Output) {
    let e: Explanation = neater::explanation(request.policy());
    let (vain, part) = (request.properties().without_effect(), request.properties().with_effect_in_part());
    let judged = |s: &Stack| e.ranked.iter().chain(&e.excluded).any(|c| c.name == s.as_str());
    let aside = Stack::ALL.into_iter().filter(|s| any && s.is_on_request() && !judged(s));
    if !output.json {
        output.line(&format!("To {endpoint}"));
        e.lines().iter().for_each(|l| output.line(l));
        let aside: Vec<_> = aside.map(Stack::as_str).collect();
        if !aside.is_empty() {
            output.line(&format!("-  not tried unless asked for: {} {ASIDE}", aside.join(", ")));
        }
        vain.iter().for_each(|(name, why)| output.line(&format!("{name} has no effect: {why}")));
        part.iter().for_each(|(name, which)| output.line(&format!("{name} has an effect in part: {which}")));
        return;
    }
    let properties: Vec<_> = e
        .properties
        .iter()
        .map(|(name, preference, explicit)| json!({ "name": name, "preference": preference, "explicit": explicit }))
        .collect();
    output.event(&json!({
        "event": "request", "target": endpoint.to_string(), "properties": properties, "security": e.security,
        "capacity_profile": e.capacity_profile,
    }));
    for (name, why) in vain {
        output.event(&json!({ "event": "no_effect", "property": name, "text": why }));
    }
    for (name, which) in part {
        output.event(&json!({ "event": "effect_in_part", "property": name, "text": which }));
    }
    for (event, list) in [("candidate", &e.ranked), ("excluded", &e.excluded)] {
        for (i, c) in list.iter().enumerate() {
            let reasons: Vec<_> = c
                .reasons
                .iter()
                .map(|r| json!({ "property": r.property, "preference": r.preference, "points": r.points, "text": r.text }))
                .collect();
            let mut value = json!({ "event": event, "transport": c.name, "reasons": reasons });
            if event == "candidate" {
                value["rank"] = (i + 1).into();
                value["score"] = c.score.into();
            }
            output.event(&value);
        }
    }
    for stack in aside {
        output.event(&json!({ "event": "aside", "transport": stack.as_str(), "text": ASIDE }));
    }
}

/// What would be tried, in which order and when: the establishment itself, up to where it would
/// open something.
async fn show_plan(preconnection: &Preconnection, output: &Output) -> Result<Exit, Failure> {
    let (candidates, timeline, trouble) = match preconnection.plan().await {
        Ok(plan) => (plan.candidates, plan.timeline, plan.resolution),
        Err(e) if matches!(e.reason, Reason::ResolutionFailed | Reason::EstablishmentFailed) => {
            (e.candidates.into_iter().map(Into::into).collect(), Vec::new(), e.resolution)
        }
        Err(e) if e.reason == Reason::InvalidConfiguration => return Err(Failure::usage(e.message)),
        Err(e) => return Err(establishment(&e)),
    };
    let names = timeline.iter().filter(|e| {
        matches!(e.step, Step::Resolving { .. } | Step::Resolved { .. } | Step::FromCache { .. } | Step::ByRate { .. })
    });
    if output.json {
        names.for_each(|e| output.event(&step(e)));
        for (i, c) in candidates.iter().enumerate() {
            output.event(&json!({
                "event": "planned", "turn": i + 1, "transport": c.stack.as_str(), "address": c.addr.to_string(),
                "starts_ms": c.starts.map(ms), "refused": c.refused.as_ref().map(ToString::to_string),
                "doubt": c.doubt.map(|d| d.to_string()),
            }));
        }
        if candidates.is_empty() {
            output.event(&json!({ "event": "unresolved", "message": trouble.join("; ") }));
            return Ok(Exit::Failed);
        }
        return Ok(Exit::Ok);
    }
    let mut names = names.peekable();
    if names.peek().is_some() {
        output.line("Names");
        names.for_each(|e| output.line(&format!("{:>9.1} ms  {}", ms(e.at), e.step)));
    }
    if candidates.is_empty() {
        output.line(&format!("Nothing to try: {}", trouble.join("; ")));
        return Ok(Exit::Failed);
    }
    output.line(
        "Order, as long as no candidate answers; where one fails the next follows at once (--try shows the race itself)",
    );
    for (i, c) in candidates.iter().enumerate() {
        let at = c.starts.map_or_else(|| "   not in time".into(), |t| format!("{:>9.0} ms", ms(t)));
        let refused = c.refused.as_ref().map_or_else(String::new, |e| format!(": refused here: {e}"));
        let doubt = c.doubt.map_or_else(String::new, |d| format!(" (put back: {d})"));
        output.line(&format!("{:>3}. {at}  {} to {}{refused}{doubt}", i + 1, c.stack, c.addr));
    }
    Ok(Exit::Ok)
}

async fn attempt(
    neater: &Neater,
    preconnection: &Preconnection,
    endpoint: &RemoteEndpoint,
    args: &ExplainArgs,
    output: &Output,
) -> Result<Exit, Failure> {
    let mut observed = preconnection.clone();
    if output.verbose {
        let (observer, name) = (output.clone(), args.target.clone());
        observed = observed.on_event(move |e| observer.step(&name, e));
    }
    let initiated = observed.initiate().connection().map_err(|e| establishment(&e))?;
    let outcome = initiated.ready().await;
    let timeline = initiated.timeline();
    if output.json {
        timeline.iter().for_each(|e| output.event(&step(e)));
    } else {
        output.line("");
        output.line("The race");
        timeline.iter().for_each(|e| output.line(&format!("{:>9.1} ms  {}", ms(e.at), e.step)));
    }
    let candidates = match &outcome {
        Ok(()) => initiated.candidates(),
        Err(e) => e.candidates.clone(),
    };
    if output.json {
        for c in &candidates {
            output.event(&json!({
                "event": "attempt", "transport": c.stack.as_str(), "address": c.addr.to_string(),
                "started_ms": c.started.map(ms), "reachable_ms": c.reachable.map(ms), "ended_ms": c.ended.map(ms),
                "won": c.fate == Fate::Won, "fate": c.fate.to_string(), "doubt": c.doubt.map(|d| d.to_string()),
            }));
        }
    } else {
        output.line("");
        drawing::draw(&candidates).iter().for_each(|l| output.line(l));
    }
    let result = match outcome {
        Ok(()) => {
            chosen(&initiated, output);
            Ok(Exit::Ok)
        }
        Err(e) => Err(establishment(&e)),
    };
    if result.is_ok() {
        // In order: the peer is notified, and nothing is left behind. How that goes is of no
        // interest here.
        let closing = async {
            let _ = initiated.close().await;
        };
        let _ = tokio::time::timeout(core::time::Duration::from_millis(500), closing).await;
    }
    let _ = (neater, endpoint);
    result
}

fn chosen(c: &Connection, output: &Output) {
    let stack = c.stack().unwrap_or(Stack::Tcp);
    let address = c.remote_addr().map(|a| a.to_string()).unwrap_or_default();
    let alpn = c.alpn().map(|a| String::from_utf8_lossy(&a).into_owned());
    let stats = c.stats().unwrap_or_default();
    let cached = c.timeline().iter().any(|e| matches!(e.step, Step::FromCache { .. }));
    let why = why(&c.candidates(), cached);
    if output.json {
        return output.event(&json!({
            "event": "chosen", "transport": stack.as_str(), "address": address, "alpn": alpn, "security": c.security(),
            "ms": ms(stats.establishment), "rtt_ms": stats.rtt.map(ms), "why": why,
        }));
    }
    let mut with: Vec<String> = c.security().into_iter().collect();
    with.extend(alpn.filter(|a| !a.is_empty()));
    let with = if with.is_empty() { "in the clear".to_owned() } else { with.join(", ") };
    output.line("");
    output.line(&format!("Chosen: {stack} to {address} ({with}) after {:.1} ms: {why}", ms(stats.establishment)));
}
