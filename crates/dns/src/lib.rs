//! A sans-IO stub resolver: A, AAAA and HTTPS records in parallel, with cache and retries
