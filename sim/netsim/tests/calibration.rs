//! The simulated TCP beside the kernel's, at every point of `sim/netsim/calibration/linux.csv`, and as it was when somebody last
//! looked (`ratios.csv` there): a change within the bounds shows as well. `SNAPSHOT=overwrite cargo test --release -p neater-netsim
//! --test calibration` writes that table anew.

#![allow(clippy::disallowed_methods, reason = "a test keeps its table; the crate reads and writes nothing")]

use neater_netsim::calibration::{LINUX, Row, rows, simulate};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The rows of one point: with loss one per seed, without loss the same transfer measured more than once.
fn points() -> BTreeMap<String, Vec<Row>> {
    let mut points: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in rows(LINUX).unwrap() {
        points.entry(row.point.name()).or_default().push(row);
    }
    points
}

#[test]
fn the_simulated_tcp_delivers_what_the_kernels_does() {
    let points = points();
    assert_eq!(points.len(), 60);
    let (mut ratios, mut known) = (Vec::new(), Vec::new());
    for (name, rows) in points {
        let first = &rows[0].point;
        // A transfer without loss at a high rate takes seconds without optimisation: `cargo test --release` does those, too.
        if cfg!(debug_assertions) && first.mbit > 10.0 && (first.loss_percent == 0.0 || first.mbit > 50.0) {
            continue;
        }
        let kernel = rows.iter().map(|r| r.goodput_mbit).sum::<f64>() / rows.len() as f64;
        let runs = if first.loss_percent == 0.0 { 1 } else { rows.len() };
        let ours = rows[..runs].iter().map(|r| simulate(&r.point, |_, _| {}).0).sum::<f64>() / runs as f64;
        println!("{name}: kernel {kernel:.3}, simulator {ours:.3} Mbit/s, ratio {:.3}", ours / kernel);
        known.push(format!("{name},{kernel:.3},{ours:.3},{:.3}", ours / kernel));
        ratios.push((name, ours / kernel));
    }
    are_as_known(&known);
    for (name, ratio) in &ratios {
        assert!((0.9..=1.1).contains(ratio), "{name}: {ratio:.3} of what the kernel delivers");
    }
    let mean = ratios.iter().map(|r| r.1).sum::<f64>() / ratios.len() as f64;
    println!("{} points, mean ratio {mean:.4}", ratios.len());
    assert!((0.97..=1.03).contains(&mean), "{mean:.4} in the mean");
}

/// Compares rows with the table that is kept, of which they may be a part, or keeps them.
fn are_as_known(rows: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("calibration/ratios.csv");
    if std::env::var("SNAPSHOT").is_ok_and(|v| v == "overwrite") {
        if cfg!(debug_assertions) {
            panic!("without --release some points are left out");
        }
        let mut table = String::from("point,kernel_mbit,simulator_mbit,ratio\n");
        for row in rows {
            let _ = writeln!(table, "{row}");
        }
        return std::fs::write(path, table).expect("the table can be written");
    }
    let table = std::fs::read_to_string(&path).expect("the table is there");
    let differs: Vec<&String> = rows.iter().filter(|row| !table.lines().any(|line| line == *row)).collect();
    assert!(
        differs.is_empty(),
        "the simulated TCP delivers otherwise than {} says: {differs:#?}\nIf that is meant: SNAPSHOT=overwrite cargo test \
         --release -p neater-netsim --test calibration, and say why in the commit",
        path.display()
    );
}
