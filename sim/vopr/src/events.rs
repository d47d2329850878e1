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

#[cfg(test)]
mod tests {
    use super::*;
    use neater::ConnectionError;

    fn verdict(events: &[Event]) -> Result<(), String> {
        let mut state = Events::default();
        events.iter().try_for_each(|e| state.take(e))
    }

    #[test]
    fn a_life_in_order_passes_and_others_do_not() {
        let sent = |n| Event::Sent(MessageId(n));
        let failed = Event::ConnectionError(ConnectionError::TimedOut);
        assert!(verdict(&[sent(1), Event::Ready, Event::Readable, sent(2), Event::Closed]).is_ok());
        assert!(verdict(&[Event::Ready, Event::Ready]).is_err());
        assert!(verdict(&[Event::Closed, Event::Readable]).is_err());
        assert!(verdict(&[failed, Event::Closed]).is_err());
        assert!(verdict(&[sent(1), Event::Expired(MessageId(1))]).is_err());
        assert!(verdict(&[Event::Stopped]).is_err());
    }
}
