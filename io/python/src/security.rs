//! Security parameters.

use crate::errors;
use neater::tls::{self, CertificateDer, ClientAuthentication, Pin, TlsVersion};
use neater::{Protection, Trust};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use std::io::Read as _;
use std::time::Duration;

/// What is asked of security.
#[pyclass(frozen, module = "neater")]
pub(crate) struct SecurityParameters(pub(crate) neater::SecurityParameters);

/// PEM as text or bytes, DER as bytes, or a path of a file with one of them.
fn material(of: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = of.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    let path = match of.cast::<PyString>() {
        Ok(text) if text.to_string().contains("-----BEGIN") => return Ok(text.to_string().into_bytes()),
        Ok(text) => text.to_string().into(),
        Err(_) => of.extract::<std::path::PathBuf>().map_err(|_| {
            PyTypeError::new_err("a certificate or key is PEM (str or bytes), DER (bytes) or the path of a file")
        })?,
    };
    let failed = |e: std::io::Error| PyErr::from(std::io::Error::new(e.kind(), format!("{}: {e}", path.display())));
    let mut bytes = Vec::new();
    let most = tls::PEM_LIMIT as u64;
    std::fs::File::open(&path).map_err(failed)?.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(errors::security(format!("{}: longer than {most} bytes", path.display())));
    }
    Ok(bytes)
}

fn certificates(of: &Bound<'_, PyAny>) -> PyResult<Vec<CertificateDer<'static>>> {
    let list = if of.is_instance_of::<PyList>() { of.try_iter()?.collect::<PyResult<_>>()? } else { vec![of.clone()] };
    let mut all = Vec::new();
    for one in list {
        let bytes = material(&one)?;
        if bytes.windows(10).any(|w| w == b"-----BEGIN") {
            all.extend(tls::certificates_from_pem(&bytes).map_err(errors::security)?);
        } else {
            all.push(CertificateDer::from(bytes));
        }
    }
    Ok(all)
}

fn version(name: &str) -> PyResult<TlsVersion> {
    match name {
        "1.2" | "tls12" => Ok(TlsVersion::Tls12),
        "1.3" | "tls13" => Ok(TlsVersion::Tls13),
        _ => Err(PyValueError::new_err(format!("`{name}` is no version of TLS that is allowed: 1.2 or 1.3"))),
    }
}

#[pymethods]
impl SecurityParameters {
    #[new]
    #[pyo3(signature = (
        *, certificate=None, key=None, trust=None, trust_system=None, client_certificate=None, client_key=None,
        client_authentication="none", pinned_server_certificates=None, alpn=None, server_name=None, min_version="1.2",
        max_version="1.3", ciphersuites=None, supported_groups=None, signature_algorithms=None,
        max_cached_sessions=None, cached_session_lifetime=None, early_data=true, protection="required"
    ))]
    #[allow(clippy::too_many_arguments, reason = "each is a keyword of Python")]
    fn new(
        certificate: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        trust: Option<&Bound<'_, PyAny>>,
        trust_system: Option<bool>,
        client_certificate: Option<&Bound<'_, PyAny>>,
        client_key: Option<&Bound<'_, PyAny>>,
        client_authentication: &str,
        pinned_server_certificates: Option<&Bound<'_, PyAny>>,
        alpn: Option<Vec<String>>,
        server_name: Option<String>,
        min_version: &str,
        max_version: &str,
        ciphersuites: Option<Vec<u16>>,
        supported_groups: Option<Vec<u16>>,
        signature_algorithms: Option<Vec<u16>>,
        max_cached_sessions: Option<usize>,
        cached_session_lifetime: Option<f64>,
        early_data: bool,
        protection: &str,
    ) -> PyResult<Self> {
        let mut s = neater::SecurityParameters::new();
        s.protection = match protection {
            "required" => Protection::Required,
            "opportunistic" => Protection::Opportunistic,
            "disabled" => Protection::Disabled,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "`{protection}` is no protection: required, opportunistic or disabled"
                )));
            }
        };
        let identity = |chain: &Bound<'_, PyAny>, key: Option<&Bound<'_, PyAny>>| {
            let key = key.ok_or_else(|| errors::security("a certificate without its key: give both"))?;
            tls::identity_from_pem(&material(chain)?, &material(key)?).map_err(errors::security)
        };
        if let Some(chain) = certificate {
            s.server_certificates = vec![identity(chain, key)?];
        } else if key.is_some() {
            return Err(errors::security("a key without its certificate: give both"));
        }
        if let Some(chain) = client_certificate {
            s.client_certificates = vec![identity(chain, client_key)?];
        }
        if let Some(of) = trust {
            let own = certificates(of)?;
            s.trust = if trust_system.unwrap_or(false) { Trust::SystemAnd(own) } else { Trust::Only(own) };
        } else if trust_system == Some(false) {
            return Err(errors::security("nothing is trusted: give the certificates of authorities as `trust`"));
        }
        s.client_authentication = match client_authentication {
            "none" => ClientAuthentication::None,
            "optional" => ClientAuthentication::Optional,
            "required" => ClientAuthentication::Required,
            other => {
                return Err(PyValueError::new_err(format!("`{other}` is not none, optional or required")));
            }
        };
        if let Some(of) = pinned_server_certificates {
            s.pinned_server_certificates = certificates(of)?.iter().map(Pin::of).collect();
        }
        s.alpn = alpn.unwrap_or_default().into_iter().map(String::into_bytes).collect();
        s.server_name = server_name;
        (s.min_version, s.max_version) = (version(min_version)?, version(max_version)?);
        s.ciphersuites = ciphersuites.unwrap_or_default().into_iter().map(Into::into).collect();
        s.supported_groups = supported_groups.unwrap_or_default().into_iter().map(Into::into).collect();
        s.signature_algorithms = signature_algorithms.unwrap_or_default().into_iter().map(Into::into).collect();
        s.max_cached_sessions = max_cached_sessions;
        s.cached_session_lifetime = crate::hub::seconds(cached_session_lifetime)?.map(|d: Duration| d);
        s.early_data = early_data;
        Ok(Self(s))
    }

    #[staticmethod]
    fn disabled() -> Self {
        Self(neater::SecurityParameters::disabled())
    }

    #[staticmethod]
    fn opportunistic() -> Self {
        Self(neater::SecurityParameters::opportunistic())
    }

    /// The certificates of a server's identity, in PEM: what its clients are given to trust.
    #[getter]
    fn certificate_pem(&self) -> Option<String> {
        self.0.server_certificates.first().map(|i| tls::certificates_to_pem(&i.chain))
    }

    fn __repr__(&self) -> String {
        let protection = match self.0.protection {
            Protection::Disabled => "disabled",
            Protection::Opportunistic => "opportunistic",
            Protection::Required => "required",
        };
        format!("<SecurityParameters {protection}>")
    }
}

/// Security for a server with a certificate of its own making, and for clients that trust only it.
#[pyfunction]
#[pyo3(signature = (*names))]
pub(crate) fn self_signed(names: Vec<String>) -> PyResult<SecurityParameters> {
    let names: Vec<&str> = match names.is_empty() {
        true => vec!["localhost", "127.0.0.1", "::1"],
        false => names.iter().map(String::as_str).collect(),
    };
    neater::self_signed(&names).map(SecurityParameters).map_err(errors::security)
}
