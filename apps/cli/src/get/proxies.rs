//! Which proxies `get` asks.
//!
//! *Responsible for* options and variables with curl's names. *Not responsible for* what they mean
//! (`neater_http::Proxies`).

use super::transfer::Job;
use crate::args::GetArgs;
use crate::failure::Failure;
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use neater_http::{Proxies, Transport};

/// Those of the command line, or else of the environment. A field Proxy-Authorization of the user's
/// is for them.
pub(super) fn wanted(args: &GetArgs, headers: &HeaderMap) -> Result<Proxies, Failure> {
    let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let mut proxies = Proxies::from_variables(variable);
    if let Some(proxy) = &args.proxy {
        proxies = proxies.by(proxy).map_err(|e| Failure::usage(e.to_string()))?;
    }
    if let Some(list) = &args.noproxy {
        proxies = proxies.except(list);
    }
    Ok(match headers.get(PROXY_AUTHORIZATION) {
        Some(value) => proxies.authorize(value),
        None => proxies,
    })
}

/// Pieces by several interfaces are for what is at the end of several ways.
pub(super) fn none_beside_multi(proxies: &Proxies, jobs: &[Job]) -> Result<(), Failure> {
    for job in jobs {
        if let Some(proxy) = proxies.of(job.url.origin()).map_err(Failure::from)? {
            return Err(Failure::usage(format!(
                "--multi: {} is asked for by way of the proxy {proxy}, and that is one way",
                job.url
            ))
            .advise("leave out --multi, or the proxy: --noproxy '*'"));
        }
    }
    Ok(())
}

/// A status that is no file, of a server or of the proxy before it.
pub(super) fn refused(status: StatusCode, transport: &Transport) -> Failure {
    let failure = super::transfer::refused_by_server(status);
    match &transport.proxy {
        Some(proxy) if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED => Failure {
            message: format!(
                "the proxy {proxy} wants a name and a password, or does not take those that it was given (407)"
            ),
            ..failure
        }
        .advise("its URL has them: http://USER:PASSWORD@HOST:PORT, in http_proxy or --proxy"),
        // A proxy answers so itself where it finds no way to the server.
        Some(proxy) if status.is_server_error() => {
            failure.advise(format!("it was asked by way of the proxy {proxy}, which may have answered itself"))
        }
        _ => failure,
    }
}
