//! The REST interface: what is asked over HTTP, and what is answered. Only this host may ask.
//!
//! A page in a browser on this host can send requests to this host, too. So the `Host` must be a
//! literal address of the loopback (RFC 6761 leaves what `localhost` means to resolvers, and a name
//! may be made to mean anything), nothing lets a page of another origin read an answer, and
//! whatever changes something needs the token, which only a user who may read the daemon's files
//! knows.

use super::openapi;
use super::session::{NotDone, put_nodes, put_rules};
use crate::store::{Daemon, Refusal};
use neater_base::WallTime;
use neater_policy::manager::{Row, Stage};
use neater_property::neat::MAX_JSON;
use serde_json::{Value, json};
use std::net::IpAddr;

/// The port that NEAT's manager listens on.
pub const PORT: u16 = 45888;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, as it stands in the request.
    pub path: &'a str,
    /// The field `Host`.
    pub host: Option<&'a str>,
    /// The field `Authorization`.
    pub authorization: Option<&'a str>,
    /// The field `Content-Type`.
    pub content_type: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The field `Content-Type`.
    pub content_type: &'static str,
    /// The field `Allow`, where the method is wrong.
    pub allow: Option<String>,
    /// The body.
    pub body: String,
    /// Whether the directories are to be read before this is sent.
    pub reload: bool,
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

impl Response {
    fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, content_type: TEXT, allow: None, body: body.into(), reload: false }
    }

    fn json(body: &Value) -> Self {
        Self { content_type: JSON, ..Self::text(200, format!("{body}\n")) }
    }

    /// An error, as an object with `error`.
    #[must_use]
    pub fn error(status: u16, why: &str) -> Self {
        Self { content_type: JSON, ..Self::text(status, format!("{}\n", json!({"error": why}))) }
    }
}

/// What is behind a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Rules,
    Profiles,
    Rule(String),
    Nodes,
    Node(String),
    Rows,
    Reload,
    Metrics,
    Description,
}

impl Place {
    fn of(path: &str) -> Option<Self> {
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        Some(match parts[..] {
            ["pib"] => Self::Rules,
            ["profiles"] => Self::Profiles,
            ["pib", uid] => Self::Rule(unescaped(uid)?),
            ["cib"] => Self::Nodes,
            ["cib", "rows"] => Self::Rows,
            ["cib", uid] => Self::Node(unescaped(uid)?),
            ["reload"] => Self::Reload,
            ["metrics"] => Self::Metrics,
            ["openapi.json"] => Self::Description,
            _ => return None,
        })
    }

    const fn methods(&self) -> &'static [&'static str] {
        match self {
            Self::Rule(_) | Self::Node(_) => &["GET", "PUT", "DELETE"],
            Self::Reload => &["GET", "POST"],
            _ => &["GET"],
        }
    }
}

/// A part of a path without its escapes; `None` where these are none, or it is empty or no UTF-8.
fn unescaped(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        let digits = core::str::from_utf8(digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok().filter(|s| !s.is_empty())
}

/// Whether a `Host` is a literal address of the loopback with the port that is listened on.
fn is_here(host: &str, port: u16) -> bool {
    let (address, asked) = match host.rsplit_once(':') {
        Some((address, number)) if !number.ends_with(']') => (address, number.parse().ok()),
        _ => (host, Some(80)),
    };
    let bare = address.strip_prefix('[').and_then(|a| a.strip_suffix(']'));
    let address = match bare {
        Some(six) => six.parse().ok().filter(IpAddr::is_ipv6),
        None => address.parse().ok().filter(IpAddr::is_ipv4),
    };
    address.is_some_and(|a: IpAddr| a.is_loopback()) && asked == Some(port)
}

/// Whether two texts are the same, in a time that does not depend on where they differ.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Whether the request carries the token.
fn has_token(request: &Request<'_>, token: &str) -> bool {
    let field = request.authorization.and_then(|field| field.split_once(' '));
    field.is_some_and(|(scheme, held)| {
        scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && same(held.trim(), token)
    })
}

/// The status of a refusal.
const fn status_of(why: Refusal) -> u16 {
    match why {
        Refusal::Unknown => 404,
        Refusal::Filed | Refusal::Ready => 409,
        Refusal::NotYours | Refusal::Full | Refusal::Crowded => 403,
    }
}

impl Daemon {
    /// Answers a request that came to `port` of this host. A client with the token may do what the
    /// daemon's own user may.
    pub fn rest(&mut self, request: &Request<'_>, port: u16, token: &str, now: WallTime) -> Response {
        let response = self.answer_rest(request, port, token, now);
        self.counters.rest(response.status);
        response
    }

    fn answer_rest(&mut self, request: &Request<'_>, port: u16, token: &str, now: WallTime) -> Response {
        if !request.host.is_some_and(|host| is_here(host, port)) {
            return Response::error(421, &format!("Host must be 127.0.0.1:{port} or [::1]:{port}, not a name"));
        }
        let Some(place) = Place::of(request.path) else {
            return Response::error(404, "there is nothing here; /openapi.json lists what there is");
        };
        if !place.methods().contains(&request.method) {
            let allow = place.methods().join(", ");
            let why = format!("{} is not for this path, only {allow}", request.method);
            return Response { allow: Some(allow), ..Response::error(405, &why) };
        }
        if (request.method != "GET" || place == Place::Reload) && !has_token(request, token) {
            let why = "this needs the token: Authorization: Bearer TOKEN, which stands in the file rest_token beside the \
                       sockets";
            return Response::error(401, why);
        }
        match request.method {
            "PUT" => self.put(&place, request, now),
            "DELETE" => self.delete(&place),
            _ => self.get(place, now),
        }
    }

    fn get(&mut self, place: Place, now: WallTime) -> Response {
        match place {
            Place::Rules => {
                let uids = self.base().policies().rules().iter().map(|r| r.uid.as_str());
                Response::json(&uids.collect())
            }
            Place::Profiles => {
                let uids = self.base().profiles().rules().iter().map(|r| r.uid.as_str());
                Response::json(&uids.collect())
            }
            Place::Rule(uid) => {
                let held = self.base().policies().get(&uid).or_else(|| self.base().profiles().get(&uid));
                held.map_or_else(|| Response::text(404, "unknown UID"), |rule| Response::json(&rule.to_json()))
            }
            Place::Nodes => {
                let uids = self.base().cib().nodes().filter(|n| n.counts(now)).map(|n| n.uid.as_str());
                Response::json(&uids.collect())
            }
            Place::Node(uid) => {
                let held = self.base().cib().get(&uid).filter(|n| n.counts(now));
                held.map_or_else(|| Response::text(404, "unknown UID"), |node| Response::json(&node.to_json()))
            }
            Place::Rows => {
                let row = |row: &Row| row.properties.to_json();
                Response::json(&self.rows(now).rows.iter().map(row).collect())
            }
            Place::Reload => Response { reload: true, ..Response::text(200, "PM repositories reloaded.") },
            Place::Metrics => {
                Response { content_type: "text/plain; version=0.0.4", ..Response::text(200, self.metrics(now)) }
            }
            Place::Description => Response::json(&openapi::description()),
        }
    }

    fn put(&mut self, place: &Place, request: &Request<'_>, now: WallTime) -> Response {
        let media = request.content_type.and_then(|t| t.split(';').next()).unwrap_or_default().trim();
        if !media.eq_ignore_ascii_case(JSON) {
            return Response::error(415, "the body must be of Content-Type: application/json");
        }
        let Ok(text) = core::str::from_utf8(request.body) else {
            return Response::error(400, "the body is not UTF-8");
        };
        if text.len() > MAX_JSON {
            return Response::error(413, &format!("a document has at most {MAX_JSON} bytes"));
        }
        let owner = self.owner();
        let done = match place {
            Place::Rule(uid) => put_rules(text, Some(uid), owner, self, now),
            Place::Node(uid) => put_nodes(text, Some(uid), owner, self, now),
            _ => return Response::error(405, "nothing can be put here"),
        };
        match done {
            Ok(found) => {
                // A client that expects NEAT's answer finds it; diagnostics stand behind it.
                let diagnostics: String =
                    found.iter().map(|f| format!("\n{}:{}: warning: {}", f.line, f.column, f.why)).collect();
                Response::text(200, format!("OK{diagnostics}"))
            }
            Err(NotDone::Malformed(why)) => Response::error(400, &why),
            Err(NotDone::Refused(why)) => Response::error(status_of(why), &why.to_string()),
        }
    }

    fn delete(&mut self, place: &Place) -> Response {
        let owner = self.owner();
        let (done, told, missing) = match place {
            Place::Rule(uid) => {
                let policy = self.remove_rule(owner, Stage::Policy, uid);
                let done = policy.or_else(|_| self.remove_rule(owner, Stage::Profile, uid));
                (done, "Policy removed", format!("Policy not found (uid '{uid}')."))
            }
            Place::Node(uid) => {
                (self.remove_node(owner, uid), "CIB node removed", format!("CIB node not found (uid '{uid}')."))
            }
            _ => return Response::error(405, "nothing can be deleted here"),
        };
        match done {
            Ok(()) => Response::text(200, told),
            Err(Refusal::Unknown) => Response::text(404, missing),
            Err(why) => Response::error(status_of(why), &why.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_literal_addresses_of_this_host_count() {
        for (host, here) in [
            ("127.0.0.1:45888", true),
            ("127.1.2.3:45888", true),
            ("[::1]:45888", true),
            ("127.0.0.1", false),
            ("127.0.0.1:80", false),
            ("localhost:45888", false),
            ("evil.example:45888", false),
            ("10.0.0.1:45888", false),
            ("::1:45888", false),
            ("[127.0.0.1]:45888", false),
            ("127.0.0.1.:45888", false),
            ("127.0.0.1:45888:45888", false),
            ("", false),
        ] {
            assert_eq!(is_here(host, 45888), here, "{host}");
        }
        assert!(is_here("127.0.0.1", 80));
    }

    #[test]
    fn escapes_are_undone_and_what_is_none_leads_nowhere() {
        assert_eq!(Place::of("/pib/a%2Fb"), Some(Place::Rule("a/b".into())));
        assert_eq!(Place::of("/cib/rows?x=1"), Some(Place::Rows));
        for wrong in ["/pib/%", "/pib/%2", "/pib/%+1", "/pib/%ff", "/pib/", "/pib/a/b", "pib", "/", ""] {
            assert_eq!(Place::of(wrong), None, "{wrong}");
        }
    }
}
