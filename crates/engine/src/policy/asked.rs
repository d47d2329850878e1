//! What policies are asked with.

use crate::Stack;
use core::hash::{BuildHasher, Hash, Hasher};
use neater_policy::advice::Named;
use neater_property::neat::NeatProperty;

/// What is asked with every request: computed once, when needs are compiled.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The stacks as policies call them.
    pub(super) stacks: Vec<Named>,
    /// The program's properties beyond RFC 9622.
    pub(super) extra: Vec<NeatProperty>,
    pub(super) number: u64,
}

impl Asked {
    /// `fingerprint` is that of the rest of the request.
    pub(crate) fn new(stacks: &[Stack], extra: &[NeatProperty], fingerprint: u64) -> Self {
        let named = |s: &Stack| Named { features: s.features(), transport: s.policy_word() };
        let mut h = foldhash::fast::FixedState::with_seed(fingerprint).build_hasher();
        for p in extra {
            (&p.key, p.value.to_string(), p.precedence, p.score.to_bits()).hash(&mut h);
        }
        Self { stacks: stacks.iter().map(named).collect(), extra: extra.to_vec(), number: h.finish() }
    }
}
