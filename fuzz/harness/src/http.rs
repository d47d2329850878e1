//! Targets in `apps/http`: URLs and locations, conditions and ranges.

/// Reads `data` as a URL, and what follows the first NUL as a Location that it redirects to.
pub fn http_url(data: &[u8]) {
    neater_http::laws::url(data);
}

/// Reads the lines of `data` as fields of requests and answers.
pub fn http_conditions(data: &[u8]) {
    neater_http::laws::conditions(data);
}
