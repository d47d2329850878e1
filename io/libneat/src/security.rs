//! What `security`, `verification` and `neat_secure_identity` make of a flow.

use crate::abi;
use crate::context::Core;
use crate::flow::State;
use crate::properties::Properties;
use neater_tls::{Identity, SecurityParameters, Trust, identity_from_pem};
use std::path::Path;
use std::sync::Arc;

/// What an opener asks for.
///
/// # Errors
/// None now; the system's roots of trust are judged when they are needed.
pub(crate) fn of_client(core: &mut Core, props: &Properties) -> Result<SecurityParameters, (u64, String)> {
    if !props.security {
        return Ok(SecurityParameters::disabled());
    }
    let mut parameters = SecurityParameters::new();
    if props.unverified {
        parameters.trust = Trust::Callback;
        parameters.trust_verification = Some(Arc::new(|_, _| true));
    } else if !core.has_roots {
        core.has_roots = true;
        let crypto = neater::with_system_roots(core.engine.crypto());
        core.engine.set_crypto(crypto);
    }
    Ok(parameters)
}

/// What a listener has to show.
///
/// # Errors
/// It has no certificate and key that can be used.
pub(crate) fn of_server(s: &State, props: &Properties) -> Result<SecurityParameters, (u64, String)> {
    if !props.security {
        return Ok(SecurityParameters::disabled());
    }
    let mut parameters = SecurityParameters::new();
    let none = || (abi::SECURITY, "security needs a certificate and a key: see neat_secure_identity".to_owned());
    let more = s.more.as_ref().ok_or_else(none)?;
    let (Some(certificate), Some(key)) = (&more.certificate, &more.key) else { return Err(none()) };
    parameters.server_certificates = vec![identity(certificate, key).map_err(|e| (abi::SECURITY, e))?];
    Ok(parameters)
}

/// The longest PEM file that is read, in bytes.
const PEM_MAX: u64 = 1 << 20;

fn identity(certificate: &Path, key: &Path) -> Result<Identity, String> {
    let read = |path: &Path| {
        let named = |e: std::io::Error| format!("{}: {e}", path.display());
        let length = std::fs::metadata(path).map_err(named)?.len();
        if length > PEM_MAX {
            return Err(format!("{}: longer than {PEM_MAX} bytes", path.display()));
        }
        std::fs::read(path).map_err(named)
    };
    identity_from_pem(&read(certificate)?, &read(key)?).map_err(|e| format!("{}: {e}", certificate.display()))
}
