//! Endpoints (RFC 9622 section 6.1).

use crate::border::{Failure, check_out, give_back, guard, object_mut, put, text};
use crate::status::{neater_status, stack};
use neater::{LocalEndpoint, RemoteEndpoint};
use std::ffi::{CString, c_char};
use std::net::IpAddr;

/// Where a connection goes (`RemoteEndpoint` of RFC 9622): at most one name, address, port and
/// interface each. A plain value without a context.
#[derive(Clone, Debug)]
pub struct neater_remote_endpoint {
    pub(crate) inner: RemoteEndpoint,
}

/// Where a connection comes from, or a listener listens (`LocalEndpoint` of RFC 9622). A plain
/// value without a context.
#[derive(Clone, Debug)]
pub struct neater_local_endpoint {
    pub(crate) inner: LocalEndpoint,
}

/// Makes an endpoint without any identifier (`NewRemoteEndpoint`), into `*endpoint`.
///
/// Ownership: the caller's, to be given back by `neater_remote_endpoint_free`. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_remote_endpoint_new(endpoint: *mut *mut neater_remote_endpoint) -> neater_status {
    guard(|| {
        let made = || Box::into_raw(Box::new(neater_remote_endpoint { inner: RemoteEndpoint::new() }));
        check_out(endpoint, "endpoint")?;
        // SAFETY: the caller's promise.
        unsafe { put(endpoint, made(), "endpoint") }
    })
}

/// Makes an endpoint from a text: `host:port`, `192.0.2.1:443` or `[2001:db8::1]:443`, into
/// `*endpoint`.
///
/// Ownership: the caller's, to be given back by `neater_remote_endpoint_free`. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_remote_endpoint_parse(
    host_and_port: *const c_char,
    endpoint: *mut *mut neater_remote_endpoint,
) -> neater_status {
    guard(|| {
        check_out(endpoint, "endpoint")?;
        // SAFETY: the caller's promise.
        let inner = remote_of(unsafe { text(host_and_port, "host_and_port") }?)?;
        // SAFETY: the caller's promise.
        unsafe { put(endpoint, Box::into_raw(Box::new(neater_remote_endpoint { inner })), "endpoint") }
    })
}

/// An endpoint of a text.
pub(crate) fn remote_of(text: &str) -> Result<RemoteEndpoint, Failure> {
    text.parse().map_err(|e: neater::BadEndpoint| Failure::new(neater_status::NEATER_ERROR_PARSE, e.to_string()))
}

/// Gives an endpoint back. NULL is allowed. What was made with it is not affected.
///
/// Ownership: it is gone afterwards. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_remote_endpoint_free(endpoint: *mut neater_remote_endpoint) {
    // SAFETY: it came from `Box::into_raw`, and the caller gives it back once.
    unsafe { give_back(endpoint) };
}

/// # Safety
/// As all functions of the border.
unsafe fn change_remote(
    endpoint: *mut neater_remote_endpoint,
    f: impl FnOnce(RemoteEndpoint) -> Result<RemoteEndpoint, Failure>,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let endpoint = unsafe { object_mut(endpoint, "endpoint") }?;
        endpoint.inner = f(endpoint.inner.clone())?;
        Ok(())
    })
}

/// Names the host (`WithHostName`), which is resolved when a connection is initiated. An address is
/// taken as one, also with its interface (`fe80::1%eth0`).
///
/// Ownership: the text is copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_remote_endpoint_with_host_name(
    endpoint: *mut neater_remote_endpoint,
    name: *const c_char,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe { change_remote(endpoint, |e| Ok(e.with_host_name(text(name, "name")?))) }
}

/// Sets the port (`WithPort`).
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_remote_endpoint_with_port(
    endpoint: *mut neater_remote_endpoint,
    port: u16,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe { change_remote(endpoint, |e| Ok(e.with_port(port))) }
}

/// Sets the port that a service has in this system's list of services (`WithService`): `https`. DNS
/// SRV names are not looked up.
///
/// Ownership: the text is copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_remote_endpoint_with_service(
    endpoint: *mut neater_remote_endpoint,
    service: *const c_char,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe { change_remote(endpoint, |e| Ok(e.with_port(port_of(text(service, "service")?)?))) }
}

/// Sets the address (`WithIPAddress`), as text.
///
/// Ownership: the text is copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_remote_endpoint_with_ip_address(
    endpoint: *mut neater_remote_endpoint,
    address: *const c_char,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe { change_remote(endpoint, |e| Ok(e.with_ip_address(address_of(text(address, "address")?)?))) }
}

/// Names the interface that qualifies a link-local address (`WithInterface`).
///
/// Ownership: the text is copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_remote_endpoint_with_interface(
    endpoint: *mut neater_remote_endpoint,
    name: *const c_char,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe { change_remote(endpoint, |e| Ok(e.with_interface(text(name, "name")?))) }
}

/// Applies the endpoint to one protocol alone (`WithProtocol`): a `neater_stack`.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_remote_endpoint_with_protocol(
    endpoint: *mut neater_remote_endpoint,
    protocol: u32,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe {
        change_remote(endpoint, |e| {
            let stack = stack(protocol).ok_or_else(|| Failure::argument(format!("{protocol} is no neater_stack")))?;
            Ok(e.with_protocol(stack))
        })
    }
}

/// Sets the UDP port of the peer that SCTP is encapsulated to (RFC 6951), where it is not 9899.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_remote_endpoint_with_udp_port(
    endpoint: *mut neater_remote_endpoint,
    port: u16,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe { change_remote(endpoint, |e| Ok(e.with_udp_port(port))) }
}

/// Makes an endpoint without any identifier (`NewLocalEndpoint`), into `*endpoint`: any address, a
/// port that the system chooses.
///
/// Ownership: the caller's, to be given back by `neater_local_endpoint_free`. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_local_endpoint_new(endpoint: *mut *mut neater_local_endpoint) -> neater_status {
    guard(|| {
        let made = || Box::into_raw(Box::new(neater_local_endpoint { inner: LocalEndpoint::new() }));
        check_out(endpoint, "endpoint")?;
        // SAFETY: the caller's promise.
        unsafe { put(endpoint, made(), "endpoint") }
    })
}

/// Gives an endpoint back. NULL is allowed. What was made with it is not affected.
///
/// Ownership: it is gone afterwards. Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_local_endpoint_free(endpoint: *mut neater_local_endpoint) {
    // SAFETY: it came from `Box::into_raw`, and the caller gives it back once.
    unsafe { give_back(endpoint) };
}

/// # Safety
/// As all functions of the border.
unsafe fn change_local(
    endpoint: *mut neater_local_endpoint,
    f: impl FnOnce(LocalEndpoint) -> Result<LocalEndpoint, Failure>,
) -> neater_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let endpoint = unsafe { object_mut(endpoint, "endpoint") }?;
        endpoint.inner = f(endpoint.inner.clone())?;
        Ok(())
    })
}

/// Sets the port (`WithPort`); 0 lets the system choose.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_local_endpoint_with_port(
    endpoint: *mut neater_local_endpoint,
    port: u16,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe { change_local(endpoint, |e| Ok(e.with_port(port))) }
}

/// Sets the port that a service has in this system's list of services (`WithService`): `https`.
///
/// Ownership: the text is copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_local_endpoint_with_service(
    endpoint: *mut neater_local_endpoint,
    service: *const c_char,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe { change_local(endpoint, |e| Ok(e.with_port(port_of(text(service, "service")?)?))) }
}

/// Sets the address (`WithIPAddress`), as text. For a listener `::` means any, IPv4 included.
///
/// Ownership: the text is copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_local_endpoint_with_ip_address(
    endpoint: *mut neater_local_endpoint,
    address: *const c_char,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe { change_local(endpoint, |e| Ok(e.with_ip_address(address_of(text(address, "address")?)?))) }
}

/// Binds to an interface (`WithInterface`).
///
/// Ownership: the text is copied. Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_local_endpoint_with_interface(
    endpoint: *mut neater_local_endpoint,
    name: *const c_char,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe { change_local(endpoint, |e| Ok(e.with_interface(text(name, "name")?))) }
}

/// Sets the UDP port at which a listener takes SCTP (RFC 6951), where it is not 9899; 0 lets the
/// system choose.
///
/// Thread: one at a time for an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn neater_local_endpoint_with_udp_port(
    endpoint: *mut neater_local_endpoint,
    port: u16,
) -> neater_status {
    // SAFETY: the caller's promise.
    unsafe { change_local(endpoint, |e| Ok(e.with_udp_port(port))) }
}

/// An address of a text.
pub(crate) fn address_of(text: &str) -> Result<IpAddr, Failure> {
    text.parse().map_err(|_| {
        let short: String = text.chars().filter(|c| !c.is_control()).take(64).collect();
        Failure::new(neater_status::NEATER_ERROR_PARSE, format!("'{short}' is no IPv4 or IPv6 address"))
    })
}

/// The port of a service in this system's list.
fn port_of(service: &str) -> Result<u16, Failure> {
    let none = || {
        let short: String = service.chars().filter(|c| !c.is_control()).take(64).collect();
        let text = format!("this system's list of services has no '{short}'");
        Failure::new(neater_status::NEATER_ERROR_NOT_FOUND, text)
    };
    let name = CString::new(service).map_err(|_| none())?;
    // SAFETY: `addrinfo` is made of numbers and pointers, of which zeros are values.
    let mut hints: libc::addrinfo = unsafe { core::mem::zeroed() };
    hints.ai_family = libc::AF_INET;
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut found: *mut libc::addrinfo = core::ptr::null_mut();
    // SAFETY: without a host name it looks into the list of services and nowhere else; all pointers
    // live while it is called.
    let code = unsafe { libc::getaddrinfo(core::ptr::null(), name.as_ptr(), &raw const hints, &raw mut found) };
    if code != 0 || found.is_null() {
        return Err(none());
    }
    // SAFETY: of this family every result has an address of this type; the list is given back once,
    // after the last look at it.
    let port = unsafe {
        let port = u16::from_be((*(*found).ai_addr.cast::<libc::sockaddr_in>()).sin_port);
        libc::freeaddrinfo(found);
        port
    };
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_have_the_ports_of_this_system() {
        // A number is the name of its own port in every list.
        assert_eq!(port_of("443").ok(), Some(443));
        assert!(port_of("no such service").is_err());
        assert!(port_of("a\0b").is_err());
    }
}
