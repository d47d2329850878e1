//! Targets in `crates/base`: each plays its input as a list of operations against a model that is too simple to be wrong.

use neater_base::{Instant, Key, Reader, Serial32, Slab, Timers};
use std::collections::{BTreeMap, BTreeSet};

/// Reads the second half of `data` as the first half says, and compares with slicing.
pub fn base_reader(data: &[u8]) {
    let (operations, content) = data.split_at(data.len() / 2);
    let mut reader = Reader::new(content);
    let mut at = 0;
    for operation in operations {
        let want = match operation & 3 {
            0 => 1,
            1 => 2,
            2 => 4,
            _ => usize::from(operation >> 2),
        };
        let expected = content.get(at..at + want);
        let got = match operation & 3 {
            0 => reader.u8().map(|n| vec![n]),
            1 => reader.u16().map(|n| n.to_be_bytes().to_vec()),
            2 => reader.u32().map(|n| n.to_be_bytes().to_vec()),
            _ => reader.take(want).map(<[u8]>::to_vec),
        };
        assert_eq!(got.ok().as_deref(), expected, "{want} bytes at {at} of {}", content.len());
        at += expected.map_or(0, <[u8]>::len);
        assert_eq!(reader.rest(), &content[at..]);
    }
}

/// Compares the two numbers that `data` begins with.
pub fn base_serial(data: &[u8]) {
    let mut reader = Reader::new(data);
    let (Ok(a), Ok(b)) = (reader.u32(), reader.u32()) else { return };
    let (x, y) = (Serial32(a), Serial32(b));
    assert_eq!(x.partial_cmp(&y), y.partial_cmp(&x).map(core::cmp::Ordering::reverse));
    assert_eq!(x.partial_cmp(&y).is_none(), a.wrapping_sub(b) == 1 << 31);
    assert_eq!(x.plus(y.since(x)), y);
    // Order does not depend on where on the circle the two stand.
    for turn in [1, 1 << 31, u32::MAX, b] {
        assert_eq!(x.plus(turn).partial_cmp(&y.plus(turn)), x.partial_cmp(&y));
    }
}

/// Inserts, removes and looks up, and compares with a map that never forgets a key.
pub fn base_slab(data: &[u8]) {
    let mut slab = Slab::new();
    // Every key ever given out, and what it holds; `None` once its object is gone.
    let mut given: Vec<(u64, Option<u8>)> = Vec::new();
    let mut live = 0;
    for pair in data.chunks_exact(2) {
        let (operation, argument) = (pair[0], pair[1]);
        // Old keys and young ones, and now and then a number that is no key.
        let young = given.len().saturating_sub(8);
        let at = usize::from(argument) + if operation & 4 == 0 { 0 } else { young };
        let mut nothing = (u64::from(argument) << 20, None);
        let chosen = given.get_mut(at).unwrap_or(&mut nothing);
        let key = Key::from_bits(chosen.0);
        match operation & 3 {
            0 => {
                let predicted = slab.next_key();
                let key = slab.insert(argument);
                assert_eq!(key, predicted);
                given.push((key.to_bits(), Some(argument)));
                live += 1;
            }
            1 => {
                let held = chosen.1.take();
                assert_eq!(slab.remove(key), held);
                live -= usize::from(held.is_some());
            }
            2 => {
                if let Some(v) = slab.get_mut(key) {
                    *v = v.wrapping_add(1);
                }
                chosen.1 = chosen.1.map(|v| v.wrapping_add(1));
            }
            _ => assert_eq!((slab.get(key).copied(), slab.contains(key)), (chosen.1, chosen.1.is_some())),
        }
        assert_eq!((slab.len(), slab.is_empty()), (live, live == 0));
    }
    let keys: BTreeSet<u64> = given.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys.len(), given.len(), "a key was given out twice");
    let found: BTreeMap<u64, u8> = slab.iter().map(|(k, v)| (k.to_bits(), *v)).collect();
    let expected: BTreeMap<u64, u8> = given.into_iter().filter_map(|(k, v)| v.map(|v| (k, v))).collect();
    assert_eq!(found, expected);
    assert!(slab.keys().is_sorted_by_key(|k| k.index()));
}

/// Pushes, pops and prunes, and compares with a sorted list.
pub fn base_timers(data: &[u8]) {
    let mut timers = Timers::new();
    let mut model: Vec<(Instant, usize)> = Vec::new();
    for (age, operation) in data.iter().enumerate() {
        let at = Instant::from_nanos(u64::from(operation >> 2));
        let keep = |age: &usize| !age.is_multiple_of(3);
        match operation & 3 {
            0 => {
                timers.push(at, age);
                model.push((at, age));
                // The sort is stable: of one instant, the older stays in front.
                model.sort_by_key(|(at, _)| *at);
            }
            1 => {
                let due = model.first().filter(|(t, _)| *t <= at).map(|(_, age)| *age);
                assert_eq!(timers.pop_due(at), due);
                model.drain(..usize::from(due.is_some()));
            }
            2 => {
                timers.prune_head(keep);
                let live = model.iter().position(|(_, age)| keep(age)).unwrap_or(model.len());
                model.drain(..live);
            }
            _ => {
                timers.compact(|_, age| keep(age));
                model.retain(|(_, age)| keep(age));
            }
        }
        assert_eq!(timers.next(), model.first().map(|(at, _)| *at));
        assert_eq!((timers.len(), timers.is_empty()), (model.len(), model.is_empty()));
    }
    let rest: Vec<usize> = std::iter::from_fn(|| timers.pop_due(Instant::FAR_FUTURE)).collect();
    assert_eq!(rest, model.into_iter().map(|(_, age)| age).collect::<Vec<_>>());
}
