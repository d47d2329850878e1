//! Policies, where connections are opened.

use super::Engine;
use crate::policy::PolicyAccess;
use crate::{LocalEndpoint, Request, Step};
use neater_base::Key;
use neater_base::net::Net;

impl<N: Net> Engine<N> {
    /// The policies of this engine, to be given and to be asked.
    pub fn policies(&mut self) -> PolicyAccess<'_> {
        let (now, wall) = (self.cx.now, self.cx.net.wall());
        PolicyAccess { policies: &mut self.policies, interfaces: self.cx.net.interfaces(), now, wall }
    }

    /// Writes into a connection's timeline what policies have said.
    pub(crate) fn report_advice(&mut self, conn: Key) {
        let watched = self.is_watched(conn);
        let Some(c) = self.conns.get(conn) else { return };
        if !watched || c.ext.as_ref().is_none_or(|e| e.advice.is_none()) {
            return;
        }
        let (request, remotes) = (Request(c.request.clone()), c.remotes.clone());
        let locals: Vec<LocalEndpoint> = c.ext.as_ref().map_or_else(Vec::new, |e| e.locals.to_vec());
        for remote in remotes.iter() {
            let wall = self.cx.net.wall();
            let Some(story) = self.policies.story_of(&request, remote, &locals, wall) else { return };
            let lines = story.map_or_else(|denied| vec![denied.to_string()], |story| story.lines(&|_| None));
            for text in lines {
                self.step(conn, Step::Policy { text: text.trim().to_owned() });
            }
        }
    }
}
