//! `[topology]`: the usual topologies from a file.

use crate::builder::{Builder, Pair};
use crate::document::Kind;
use crate::error::ScenarioError;
use crate::fields::Fields;
use crate::link_keys::pair;
use crate::model::{Direction, MAX_LINKS};
use crate::topology::{FatTree, access_tree, disjoint_paths, dual_dumbbell, dumbbell, fat_tree};

type Result<T> = core::result::Result<T, ScenarioError>;

#[derive(Clone, Copy)]
enum Shape {
    Dumbbell,
    DualDumbbell,
    Paths,
    AccessTree,
    FatTree,
}

const SHAPES: &[(&str, Shape)] = &[
    ("dumbbell", Shape::Dumbbell),
    ("dual-dumbbell", Shape::DualDumbbell),
    ("paths", Shape::Paths),
    ("access-tree", Shape::AccessTree),
    ("fat-tree", Shape::FatTree),
];

/// Reads the table and makes nodes and links.
pub(crate) fn topology(mut f: Fields) -> Result<Builder> {
    let shape = f.word("kind", SHAPES)?.ok_or_else(|| {
        let all: Vec<_> = SHAPES.iter().map(|(n, _)| *n).collect();
        f.error(format!("needs kind, one of {}", all.join(", ")))
    })?;
    let builder = match shape {
        Shape::Dumbbell => {
            let pairs = count(&mut f, "pairs", 1)?;
            let (left, right) = (count(&mut f, "left", pairs)?, count(&mut f, "right", pairs)?);
            dumbbell(left, right, &link(&mut f, "access")?, &link(&mut f, "bottleneck")?)
        }
        Shape::DualDumbbell => {
            let edges = f.whole("edges", 0..=1000)?.unwrap_or(0) as u32;
            let access = link(&mut f, "access")?;
            let common = link(&mut f, "bottleneck")?;
            let bottlenecks = [over(&mut f, "bottleneck1", &common)?, over(&mut f, "bottleneck2", &common)?];
            dual_dumbbell(edges, &access, &bottlenecks)
        }
        Shape::Paths => {
            let paths = f.whole("paths", 1..=8)?.unwrap_or(2) as usize;
            let access = link(&mut f, "access")?;
            let common = link(&mut f, "path")?;
            const NAMES: [&str; 8] = ["path1", "path2", "path3", "path4", "path5", "path6", "path7", "path8"];
            let pairs = NAMES[..paths].iter().map(|n| over(&mut f, n, &common)).collect::<Result<Vec<_>>>()?;
            disjoint_paths(&access, &pairs)
        }
        Shape::AccessTree => tree(&mut f)?,
        Shape::FatTree => {
            let k = f.whole("k", 2..=24)?.unwrap_or(4) as u32;
            if !k.is_multiple_of(2) {
                return Err(f.error("k, the ports of a switch, must be even"));
            }
            let pods = f.whole("pods", 1..=u64::from(k))?.map_or(k, |n| n as u32);
            let hosts = f.whole("hosts", 0..=256)?.map_or(k / 2, |n| n as u32);
            let common = link(&mut f, "link")?;
            let (access, edge, core) =
                (over(&mut f, "access", &common)?, over(&mut f, "edge", &common)?, over(&mut f, "core", &common)?);
            fat_tree(&FatTree { k, pods, hosts, access, edge, core })
        }
    };
    f.finish()?;
    Ok(builder)
}

fn tree(f: &mut Fields) -> Result<Builder> {
    let key = f.key("fan-out");
    let shape = |place, message: &str| ScenarioError::new(place, key.clone(), message.to_owned());
    let v = f.take("fan-out").ok_or_else(|| f.error("needs fan-out = [2, 4]: routers and at last hosts below each"))?;
    let Kind::List(items) = v.kind else { return Err(shape(v.place, "must be a list of numbers, like [2, 4]")) };
    let mut fan_out = Vec::new();
    for item in items {
        match item.kind {
            Kind::Number(n) if n.fract() == 0.0 && (1.0..=1000.0).contains(&n) => fan_out.push(n as u32),
            _ => return Err(shape(item.place, "each must be a whole number from 1 to 1000")),
        }
    }
    let all = fan_out.iter().try_fold((1u64, 0u64), |(below, sum), n| {
        let below = below.checked_mul(u64::from(*n))?;
        Some((below, sum.checked_add(below)?))
    });
    if fan_out.is_empty() || fan_out.len() > 4 || all.is_none_or(|(_, sum)| sum > MAX_LINKS as u64) {
        return Err(shape(v.place, &format!("must have 1 to 4 levels and {MAX_LINKS} links at most")));
    }
    let server = link(f, "server")?;
    let common = link(f, "link")?;
    const NAMES: [&str; 4] = ["level1", "level2", "level3", "level4"];
    let levels = NAMES[..fan_out.len()].iter().map(|n| over(f, n, &common)).collect::<Result<Vec<_>>>()?;
    Ok(access_tree(&server, &fan_out, &levels))
}

fn count(f: &mut Fields, name: &'static str, default: u32) -> Result<u32> {
    Ok(f.whole(name, 1..=1000)?.map_or(default, |n| n as u32))
}

/// The link of a table; ideal if there is none.
fn link(f: &mut Fields, name: &'static str) -> Result<Pair> {
    over(f, name, &[Direction::default(), Direction::default()])
}

/// The link of a table over another.
fn over(f: &mut Fields, name: &'static str, base: &Pair) -> Result<Pair> {
    let Some(mut own) = f.table(name)? else { return Ok(base.clone()) };
    let pair = pair(&mut own, base.clone())?;
    own.finish()?;
    Ok(pair)
}
