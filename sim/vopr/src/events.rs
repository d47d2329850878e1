//! Events of one connection, against its state machine (RFC 9622 section 11).

use neater::{Event, MessageId};
use std::collections::BTreeSet;

/// What a connection has reported.
#[derive(Debug, Default)]
pub(crate) struct Events {
    ready: bool,
    over: bool,
    told: BTreeSet<MessageId>,
}

impl Events {
    /// Takes the next event; says what is wrong with it, if something is.
    pub(crate) fn take(&mut self, event: &Event) -> Result<(), String> {
        if self.over {
            return Err(format!("{event:?} after the last event"));
        }
        match event {
            Event::Ready if core::mem::replace(&mut self.ready, true) => Err("Ready twice".into()),
            Event::EstablishmentError(_) if self.ready => Err("EstablishmentError after Ready".into()),
            Event::EstablishmentError(_) | Event::ConnectionError(_) | Event::Closed => {
                self.over = true;
                Ok(())
            }
            Event::Sent(id) | Event::Expired(id) | Event::SendError(id, _) => {
                if self.told.insert(*id) {
                    Ok(())
                } else {
                    Err(format!("{event:?}: of that message was told before"))
                }
            }
            Event::ConnectionReceived(_) | Event::GroupReceived(_) | Event::Stopped | Event::ListenerError(_) => {
                Err(format!("{event:?} is no event of a connection"))
            }
            _ => Ok(()),
        }
    }
}
