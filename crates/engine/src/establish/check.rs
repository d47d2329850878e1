//! What can be known of endpoints before anything is sent.

use super::MAX_REMOTES;
use crate::event::{EstablishmentError, Reason, SendError};
use crate::{LocalEndpoint, RemoteEndpoint};

/// Whether a connection can be made from these endpoints at all.
pub(crate) fn check_remotes(
    remotes: &[RemoteEndpoint],
    request: &crate::request::Compiled,
) -> Result<(), EstablishmentError> {
    let invalid = |m: String| Err(EstablishmentError::new(Reason::InvalidConfiguration, m));
    if remotes.is_empty() {
        return invalid("a connection needs at least one remote endpoint".into());
    }
    if remotes.len() > MAX_REMOTES {
        return invalid(format!("{} remote endpoints were given; the limit is {MAX_REMOTES}", remotes.len()));
    }
    for r in remotes {
        if r.port == 0 {
            return invalid(format!("the remote endpoint {r} has no port"));
        }
        if r.addr.is_none() && r.host.is_none() {
            return invalid("a remote endpoint needs a host name or an address".into());
        }
        if r.addr.is_some_and(|a| a.is_unspecified()) {
            return invalid(format!("{r} is no address to connect to"));
        }
    }
    if request.only_v6 && remotes.iter().all(|r| r.addr.is_some_and(|a| a.is_ipv4())) {
        let text = "useTemporaryLocalAddress is required, which only IPv6 has (RFC 8981), and every remote endpoint is an \
                    IPv4 address";
        return Err(EstablishmentError::new(Reason::NoCandidates, text));
    }
    Ok(())
}

/// Whether name servers can be asked for all of these names.
pub(crate) fn check_names(remotes: &[RemoteEndpoint]) -> Result<(), EstablishmentError> {
    for host in remotes.iter().filter(|r| r.addr.is_none()).filter_map(|r| r.host.as_deref()) {
        neater_dns::check_name(host)
            .map_err(|e| EstablishmentError::new(Reason::InvalidConfiguration, format!("{host:?}: {e}")))?;
    }
    Ok(())
}

/// Whether a connection can come from any of these local endpoints.
pub(crate) fn check_locals(locals: &[LocalEndpoint], remotes: &[RemoteEndpoint]) -> Result<(), EstablishmentError> {
    let invalid = |m: String| Err(EstablishmentError::new(Reason::InvalidConfiguration, m));
    if locals.len() > MAX_REMOTES {
        return invalid(format!("{} local endpoints were given; the limit is {MAX_REMOTES}", locals.len()));
    }
    let fit = |l: &LocalEndpoint, r: &RemoteEndpoint| match (l.addr, r.addr) {
        (Some(l), Some(r)) => l.is_ipv4() == r.is_ipv4(),
        _ => true,
    };
    if !locals.is_empty() && !locals.iter().any(|l| remotes.iter().any(|r| fit(l, r))) {
        return invalid("no local endpoint has an address of the family (IPv4, IPv6) of a remote endpoint".into());
    }
    Ok(())
}

/// A program that initiates with a message wants no connection without it.
pub(crate) fn refused_first(why: &SendError) -> EstablishmentError {
    EstablishmentError::new(Reason::InvalidConfiguration, format!("the first message cannot be sent: {why}"))
}
