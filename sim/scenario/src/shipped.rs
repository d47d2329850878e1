//! The scenarios that come with this crate.

/// Name and text of each, in the order of their names. Where a program asks for a scenario file, one of these names will do.
pub const SHIPPED: &[(&str, &str)] = &[
    ("access-tree", include_str!("../scenarios/access-tree.toml")),
    ("cellular", include_str!("../scenarios/cellular.toml")),
    ("custom", include_str!("../scenarios/custom.toml")),
    ("dual-dumbbell", include_str!("../scenarios/dual-dumbbell.toml")),
    ("dumbbell", include_str!("../scenarios/dumbbell.toml")),
    ("fat-tree", include_str!("../scenarios/fat-tree.toml")),
    ("home-nat", include_str!("../scenarios/home-nat.toml")),
    ("programs", include_str!("../scenarios/programs.toml")),
    ("replay", include_str!("../scenarios/replay.toml")),
    ("speed", include_str!("../scenarios/speed.toml")),
    ("three-paths", include_str!("../scenarios/three-paths.toml")),
    ("two-paths", include_str!("../scenarios/two-paths.toml")),
];

/// The text of a scenario of this crate.
#[must_use]
pub fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

/// The files that they refer to, as they name them.
const FILES: &[(&str, &str)] = &[("traces/cellular.trace", include_str!("../scenarios/traces/cellular.trace"))];

/// The text of a file that a scenario of this crate refers to.
#[must_use]
pub fn shipped_file(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}
