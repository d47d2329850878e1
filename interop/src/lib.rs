//! Tests against peers that are not ours
