//! Certificates that were refused: a failure shows by which pin each would be accepted.

use neater::SecurityParameters;
use neater::tls::Pin;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::failure::{Exit, Failure};

/// Servers whose certificate is kept; a list of URLs may have thousands.
const SERVERS_MAX: usize = 1024;

/// The last certificate that each server showed and that was refused, as `--pin` takes it, by the
/// server's name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pins: Arc<Mutex<BTreeMap<String, String>>>,
    /// Something that would still count beside a pin, and how it is left out.
    beside: &'static str,
}

impl Seen {
    /// Keeps what connections with these parameters refuse.
    pub(crate) fn of(security: &mut SecurityParameters, with_authorities: bool) -> Self {
        let seen = Self { beside: if with_authorities { " without --ca" } else { "" }, ..Self::default() };
        let pins = seen.pins.clone();
        security.refused_certificate = Some(Arc::new(move |chain, name| {
            let Some(Pin::Sha256(hash)) = chain.first().map(Pin::of) else { return };
            let mut pins = pins.lock().unwrap_or_else(PoisonError::into_inner);
            if pins.len() < SERVERS_MAX || pins.contains_key(name) {
                pins.insert(name.to_ascii_lowercase(), hexadecimal(&hash));
            }
        }));
        seen
    }

    /// The failure, with the pin of the certificate that was refused, if it is about one. Behind a
    /// redirection that is another server's than `host`: it is named where only one was refused.
    pub(crate) fn pin_of(&self, failure: Failure, host: &str) -> Failure {
        if failure.exit != Exit::Security {
            return failure;
        }
        let pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let host = host.trim_matches(['[', ']']).trim_end_matches('.');
        let own = pins.get_key_value(host).or_else(|| pins.first_key_value().filter(|_| pins.len() == 1));
        let Some((name, pin)) = own else { return failure };
        let beside = self.beside;
        failure.advise(format!(
            "if you can verify by another way that {name} showed its own certificate: --pin {pin}{beside}"
        ))
    }
}

/// A hash as `--pin` takes it.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pin_is_that_of_the_server_that_was_refused() {
        let mut security = SecurityParameters::new();
        let seen = Seen::of(&mut security, false);
        let refused = security.refused_certificate.expect("set");
        let failure = || Failure::new(Exit::Security, "security", "refused");
        assert!(seen.pin_of(failure(), "a.example").advice.is_empty(), "nothing was seen");
        refused(&[vec![1; 100].into()], "A.example");
        let pin = match Pin::of(&vec![1; 100].into()) {
            Pin::Sha256(hash) => hexadecimal(&hash),
            Pin::Chain(_) => unreachable!("a hash"),
        };
        let advice = seen.pin_of(failure(), "a.example").advice;
        assert!(advice.len() == 1 && advice[0].ends_with(&format!("--pin {pin}")), "{advice:?}");
        // A redirection led there.
        let advice = seen.pin_of(failure(), "b.example").advice;
        assert!(advice.len() == 1 && advice[0].contains("a.example"), "{advice:?}");
        refused(&[vec![2; 100].into()], "::1");
        assert!(seen.pin_of(failure(), "b.example").advice.is_empty(), "it could be either");
        assert_eq!(seen.pin_of(failure(), "[::1]").advice.len(), 1);
        // What is about no certificate needs none.
        assert!(seen.pin_of(Failure::usage("no"), "::1").advice.is_empty());
    }
}
