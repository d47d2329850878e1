//! The explanation of what policies do to a connection.

use super::folder;
use crate::Neater;
use neater_engine::{RemoteEndpoint, Request, Stack};
use neater_policy::advice::{Denied, Place, Story};
use neater_policy::manager::{FileKind, READY, Stage, line_of};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::PoisonError;

/// What policies do to a connection, with the files and lines responsible.
#[derive(Clone, Debug)]
pub struct PolicyStory {
    story: Result<Story, Denied>,
    places: BTreeMap<Place, String>,
}

impl PolicyStory {
    /// In lines of plain text.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        match &self.story {
            Ok(story) => story.lines(&|place| self.places.get(place).cloned()),
            Err(denied) => vec![denied.to_string()],
        }
    }

    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match &self.story {
            Ok(story) => story.to_json(&|place| self.places.get(place).cloned()),
            Err(denied) => serde_json::json!({"prohibited": denied.to_string()}),
        }
    }

    /// Why the connection may not be opened, if it may not.
    #[must_use]
    pub fn prohibited(&self) -> Option<String> {
        match &self.story {
            Ok(story) => story.advised.as_ref().err().map(ToString::to_string),
            Err(denied) => Some(denied.to_string()),
        }
    }

    /// The stacks that are left, in the order in which they are first tried.
    #[must_use]
    pub fn stacks(&self) -> Vec<Stack> {
        let advice = self.story.as_ref().ok().and_then(|s| s.advised.as_ref().ok());
        let picks = advice.into_iter().flat_map(|a| &a.paths).flat_map(|p| &p.picks);
        let mut stacks: Vec<Stack> = Vec::new();
        for stack in picks.filter_map(|p| Stack::from_number(p.stack)) {
            if !stacks.contains(&stack) {
                stacks.push(stack);
            }
        }
        stacks
    }

    /// The interfaces that policies choose, by their indices and in the order in which they are
    /// first tried; none where they leave the choice to the system.
    #[must_use]
    pub fn interfaces(&self) -> Vec<u32> {
        let advice = self.story.as_ref().ok().and_then(|s| s.advised.as_ref().ok());
        let mut interfaces: Vec<u32> = Vec::new();
        for interface in advice.into_iter().flat_map(|a| &a.paths).filter_map(|p| p.interface) {
            if !interfaces.contains(&interface) {
                interfaces.push(interface);
            }
        }
        interfaces
    }

    /// Whether policies change anything.
    #[must_use]
    pub fn is_neutral(&self) -> bool {
        self.story.as_ref().is_ok_and(|s| s.advised.as_ref().is_ok_and(|a| a.is_neutral()))
    }
}

/// Where policies of a program come from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicySource {
    /// Those that come with neater.
    ReadyMade,
    /// A folder, and how many files in it count by their names; 0 where it is not there yet.
    Folder(PathBuf, usize),
    /// The socket of a policy manager, and why it is not followed, if it is not: its earlier
    /// policies remain in force for as long as they state themselves.
    Manager(PathBuf, Option<String>),
}

impl fmt::Display for PolicySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadyMade => f.write_str("ready-made"),
            Self::Folder(path, 0) => write!(f, "{} (no files)", path.display()),
            Self::Folder(path, 1) => write!(f, "{} (1 file)", path.display()),
            Self::Folder(path, files) => write!(f, "{} ({files} files)", path.display()),
            Self::Manager(path, None) => write!(f, "the manager at {}", path.display()),
            Self::Manager(path, Some(why)) => {
                write!(f, "the manager at {}, which is not followed: {why}", path.display())
            }
        }
    }
}

impl Neater {
    /// Where policies come from, those that count least first; none without policies. A program
    /// that relies on its administrator's manager sees here whether that is followed.
    #[must_use]
    pub fn policy_sources(&self) -> Vec<PolicySource> {
        if !self.handle.with(|s| s.engine.policies().are_asked()) {
            return Vec::new();
        }
        self.look_at_policies();
        let mut all = vec![PolicySource::ReadyMade];
        if let Some(watch) = self.handle.policies.get() {
            all.extend(watch.lock().unwrap_or_else(PoisonError::into_inner).sources());
        }
        all
    }

    /// The profiles that a program may state ([`crate::Preconnection::policy_property`],
    /// `profile`): the names that any profile or policy which counts now wants to see there, the
    /// ready-made ones among them. None without policies.
    #[must_use]
    pub fn policy_profiles(&self) -> BTreeSet<String> {
        self.advise();
        self.look_at_policies();
        self.handle.with(|s| s.engine.policies().profiles())
    }

    /// From now on there is an adviser, if there may be one: a program that sets a property for
    /// policies means at least the ready-made ones.
    pub(crate) fn advise(&self) {
        super::advise(&self.handle);
    }

    /// The explanation of policies for a connection with these needs to this endpoint; `None` where
    /// there are no policies. Nothing is sent.
    #[must_use]
    pub fn explain_policies(&self, request: &Request, remote: &RemoteEndpoint) -> Option<PolicyStory> {
        self.look_at_policies();
        let story = self.handle.with(|s| s.engine.policies().story(request, remote))?;
        let watch = self.handle.policies.get().map(|w| w.lock().unwrap_or_else(PoisonError::into_inner));
        let mut places = BTreeMap::new();
        for place in story.iter().flat_map(Story::places) {
            let kind = match place.stage {
                Stage::Profile => FileKind::Profile,
                Stage::Policy => FileKind::Policy,
            };
            let name = self.handle.with_later(|s| s.engine.policies().file(kind, &place.uid));
            let path = name.and_then(|name| watch.as_ref()?.path_of(&name));
            let at = match path {
                Some(path) => {
                    let line = folder::read(&path).map_or(1, |text| line_of(&text, place.key.as_deref()));
                    format!("{}:{line}", path.display())
                }
                None if READY.iter().any(|f| f.name.rsplit_once('.').is_some_and(|(uid, _)| uid == place.uid)) => {
                    "ready-made".to_owned()
                }
                None => "of the policy manager".to_owned(),
            };
            places.insert(place, at);
        }
        Some(PolicyStory { story, places })
    }
}
