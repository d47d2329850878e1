//! Documents: policies and nodes as JSON, from a socket or over REST.

use crate::store::{Daemon, Refusal};
use core::fmt;
use neater_base::WallTime;
use neater_policy::manager::{Fault, Node, Rule, Stage};
use neater_property::neat::{NeatError, read};
use serde_json::Value;

/// How many rules or nodes one document may hold.
pub const MAX_BATCH: usize = 1024;

/// What is wrong with a document, with line and column.
pub(crate) fn placed(text: &str, error: &NeatError) -> String {
    let fault = Fault::new("", text, error);
    format!("line {} column {}: {}", fault.line, fault.column, fault.why)
}

/// The objects of a document: it is one, or a list of them. A uid that is given replaces the one of
/// a single object.
pub(crate) fn objects(text: &str, uid: Option<&str>) -> Result<Vec<Value>, String> {
    let mut objects = match read(text).map_err(|e| placed(text, &e))? {
        Value::Array(list) => list,
        object => vec![object],
    };
    if objects.len() > MAX_BATCH {
        return Err(format!("a document has at most {MAX_BATCH} objects, not {}", objects.len()));
    }
    if let (Some(uid), [Value::Object(one)]) = (uid, &mut objects[..]) {
        one.insert("uid".into(), uid.into());
    } else if uid.is_some() {
        return Err("one object is wanted under one uid".into());
    }
    Ok(objects)
}

/// Where in a document an error is, of the object of this number.
pub(crate) fn within(text: &str, i: usize, e: NeatError) -> String {
    placed(text, &if text.trim_start().starts_with('[') { e.within(&i.to_string()) } else { e })
}

/// Why a document was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentError {
    /// It has no valid meaning.
    Malformed(String),
    /// It may not be.
    Refused(Refusal),
}

impl From<String> for DocumentError {
    fn from(why: String) -> Self {
        Self::Malformed(why)
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => f.write_str(why),
            Self::Refused(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for DocumentError {}

/// The text in which diagnostics have a position: that of one object under the uid that the client
/// gives it. Other requests get no answer that could carry diagnostics, and looking for them takes
/// time.
fn pointed_at<'a>(text: &'a str, uid: Option<&str>) -> &'a str {
    if uid.is_some() && text.trim_start().starts_with('{') { text } else { "" }
}

impl Daemon {
    /// Puts in the policies of a document, and returns diagnostics about one that comes with its
    /// uid.
    /// `policy_type` marks profiles.
    ///
    /// # Errors
    /// Why, with the place.
    pub fn put_rules_of(
        &mut self,
        text: &str,
        uid: Option<&str>,
        user: u32,
        now: WallTime,
    ) -> Result<Vec<Fault>, DocumentError> {
        let (mut rules, mut diagnostics) = (Vec::new(), Vec::new());
        for (i, object) in objects(text, uid)?.into_iter().enumerate() {
            let (rule, odd) = Rule::from_json(object, "", pointed_at(text, uid)).map_err(|e| within(text, i, e))?;
            diagnostics.extend(odd);
            let is_profile = rule.others.get("policy_type").and_then(Value::as_str) == Some("profile");
            rules.push((if is_profile { Stage::Profile } else { Stage::Policy }, rule));
        }
        self.put_rules(user, rules, now).map_err(DocumentError::Refused)?;
        Ok(diagnostics)
    }

    /// Puts in the nodes of a document.
    ///
    /// # Errors
    /// As for [`put_rules_of`](Self::put_rules_of).
    pub fn put_nodes_of(
        &mut self,
        text: &str,
        uid: Option<&str>,
        user: u32,
        now: WallTime,
    ) -> Result<Vec<Fault>, DocumentError> {
        let (mut nodes, mut diagnostics) = (Vec::new(), Vec::new());
        for (i, object) in objects(text, uid)?.into_iter().enumerate() {
            let (node, odd) =
                Node::from_json(object, "", pointed_at(text, uid), now).map_err(|e| within(text, i, e))?;
            nodes.push(node);
            diagnostics.extend(odd);
        }
        self.put_nodes(user, nodes, now).map_err(DocumentError::Refused)?;
        Ok(diagnostics)
    }
}
