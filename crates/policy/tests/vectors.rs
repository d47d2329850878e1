//! Runs the vectors of tests that lie beside this file: our own, and what NEAT's own manager
//! answered.

#![allow(clippy::disallowed_methods, reason = "a test reads its vectors; the crate reads nothing")]

use neater_policy::manager::vectors;
use std::path::Path;

fn run(directory: &Path) -> usize {
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    let mut wrong = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let name = file.file_stem().unwrap().to_string_lossy();
        match vectors::run(&text) {
            Ok(differences) => wrong.extend(differences.into_iter().map(|d| format!("{name}: {d}"))),
            Err(e) => wrong.push(format!("{name}: no vector: {e}")),
        }
    }
    assert!(wrong.is_empty(), "{} differences in {} vectors:\n{}", wrong.len(), files.len(), wrong.join("\n"));
    files.len()
}

#[test]
fn every_vector_is_reproduced() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let ran = run(&own);
    assert!(ran >= 25, "only {ran} vectors in {}", own.display());
}

/// What the manager of NEAT answered at its commit a5e1662; where that is a defect, the answer of
/// `sane`.
#[test]
fn every_answer_of_the_reference_is_reproduced() {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference");
    let ran = run(&reference);
    assert_eq!(ran, 157, "vectors in {}", reference.display());
}
