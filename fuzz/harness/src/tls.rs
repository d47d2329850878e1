//! Targets in `crates/tls`: the files that a user hands us.

use neater_tls::{certificates_from_pem, private_key_from_pem, validity};

/// Reads `data` as a chain and as a key. What comes out is not empty, not more than went in, and an error says something. The dates of what
/// calls itself a certificate are none, or end before the year 10000.
pub fn tls_pem(data: &[u8]) {
    match certificates_from_pem(data) {
        Ok(chain) => {
            assert!(!chain.is_empty() && chain.iter().all(|c| !c.is_empty()));
            assert!(chain.iter().map(|c| c.len()).sum::<usize>() < data.len());
            for validity in chain.iter().filter_map(validity) {
                assert!(validity.not_after.0.as_secs() < 253_402_300_800);
            }
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
    match private_key_from_pem(data) {
        Ok(key) => assert!(key.secret_der().len() < data.len()),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}
