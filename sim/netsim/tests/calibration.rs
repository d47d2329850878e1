//! The simulated TCP beside the kernel's, at every point of `sim/netsim/calibration/linux.csv`.

use neater_netsim::calibration::{LINUX, Row, rows, simulate};
use std::collections::BTreeMap;

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
    let mut ratios = Vec::new();
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
        ratios.push((name, ours / kernel));
    }
    for (name, ratio) in &ratios {
        assert!((0.9..=1.1).contains(ratio), "{name}: {ratio:.3} of what the kernel delivers");
    }
    let mean = ratios.iter().map(|r| r.1).sum::<f64>() / ratios.len() as f64;
    println!("{} points, mean ratio {mean:.4}", ratios.len());
    assert!((0.97..=1.03).contains(&mean), "{mean:.4} in the mean");
}
