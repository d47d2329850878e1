//! Policies for an engine that is not behind the public objects: that of another programming
//! interface over the same engine.

use super::watch::{Texts, Watch, Whence};
use super::{coarse, own_name};
use neater_base::net::Net;
use neater_engine::Engine;
use neater_policy::advice::Adviser;
use neater_policy::manager::Fault;
use neater_policy::protocol::Heard;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Has an engine follow the policies of this host and its user, and those of a policy manager that
/// runs here, as the engines of [`Neater`](crate::Neater) do. What the engine's connections see is
/// not reported to that manager.
#[derive(Debug)]
pub struct Follower {
    watch: Option<Watch>,
    app: String,
    /// When to look for policies where there are none yet, in seconds of a coarse clock.
    next: u64,
}

impl Follower {
    /// Begins with what is there now.
    ///
    /// # Errors
    /// A folder that the environment names cannot be read.
    pub fn begin<N: Net>(engine: &mut Engine<N>) -> io::Result<Self> {
        let mut this = Self { watch: None, app: own_name(), next: coarse() + 1 };
        this.follow(Watch::begin(Whence::Usual)?, engine);
        Ok(this)
    }

    fn follow<N: Net>(&mut self, watch: Option<Watch>, engine: &mut Engine<N>) {
        let Some(mut watch) = watch else { return };
        engine.policies().set_adviser(Some(Adviser::new()), &self.app);
        if let Some(link) = &mut watch.link {
            share(engine, link.begin());
        }
        self.watch = Some(watch);
        self.look(engine);
    }

    /// Reads what has changed. To be called before connections are opened; it looks at files once a
    /// second at most.
    pub fn look<N: Net>(&mut self, engine: &mut Engine<N>) {
        let Some(watch) = &mut self.watch else {
            let now = coarse();
            if now > self.next {
                self.next = now + 1;
                match Watch::begin(Whence::Usual) {
                    Ok(found) => self.follow(found, engine),
                    Err(e) => tracing::warn!(target: "neater::policy", "{e}"),
                }
            }
            return;
        };
        if let Some(link) = &mut watch.link {
            share(engine, link.poll());
        } else if let Some(heard) = watch.find_manager() {
            share(engine, heard);
        }
        if let Some(texts) = watch.changed() {
            let (pib, cib) = (Texts::sources(&texts.pib), Texts::sources(&texts.cib));
            let report = engine.policies().load(&pib, &cib);
            watch.take_faults(report.faults, texts.unreadable, &texts.kept);
        }
        if engine.policies().has_facts() {
            drop(engine.policies().take_facts());
        }
    }

    /// Lets the ready-made profiles and policies count where no others do: for a request that names
    /// one.
    pub fn advise<N: Net>(&self, engine: &mut Engine<N>) {
        if self.watch.is_none() && !engine.policies().are_asked() {
            engine.policies().set_adviser(Some(Adviser::new()), &self.app);
        }
    }

    /// Whether a policy manager of neater's is followed, and has answered.
    #[must_use]
    pub fn has_manager(&self) -> bool {
        self.watch.as_ref().and_then(|w| w.link.as_ref()).is_some_and(|link| link.state().is_ok())
    }

    /// Connects to the socket of a policy manager, of neater's or another one, at once or not at
    /// all. The stream does not block.
    ///
    /// # Errors
    /// The manager is not there, or of a user whose decisions are not to be followed: neither root,
    /// nor this user, nor the one to whom root has given the socket's folder.
    pub fn connect(path: &Path) -> io::Result<UnixStream> {
        super::link::connect(path)
    }

    /// What is wrong with the files, as of when they were last read.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        self.watch.as_ref().map_or(&[], |w| &w.faults)
    }
}

/// Gives the engine what a manager has reported.
fn share<N: Net>(engine: &mut Engine<N>, heard: Heard) {
    if let Some(tables) = heard.tables {
        engine.policies().share(tables);
    }
    if !heard.facts.is_empty() {
        engine.policies().share_facts(heard.facts);
    }
}
