//! Addresses of a name, by the resolver that the arguments of a connection select.

use crate::args::ConnectArgs;
use crate::failure::Failure;
pub(crate) use neater_command::resolve::addresses;
use neater_command::resolve::{Found, PATIENCE};
use std::net::IpAddr;

/// The addresses of `name`, by the resolver that the arguments of a connection select.
pub(crate) async fn as_connecting(name: &str, args: &ConnectArgs) -> Result<Found, Failure> {
    if !args.system_names {
        return addresses(name, args.resolv_conf.as_deref(), args.hosts.as_deref(), args.timeout).await;
    }
    match tokio::time::timeout(args.timeout.unwrap_or(PATIENCE), tokio::net::lookup_host((name, 0))).await {
        Ok(Ok(found)) => {
            let mut all: Vec<IpAddr> = found.map(|a| a.ip()).collect();
            all.dedup();
            Ok(if all.is_empty() { Err("there are none".into()) } else { Ok(all) })
        }
        Ok(Err(e)) => Ok(Err(e.to_string())),
        Err(_) => Ok(Err("the system's resolver has not answered in time".into())),
    }
}
