//! Targets in `crates/policy`: files and requests of the policy manager.

use neater_base::WallTime;
use neater_policy::manager::{FileKind, Loader, Manager, Requests, SourceFile, check, test, to_text, told, vectors};
use neater_property::neat::{NeatArray, NeatError, locate, read};
use std::time::Duration;

const NOW: WallTime = WallTime(Duration::from_secs(1_000_000));

/// Cuts `data` at zero bytes: the first piece is a request, the others are files, whose kinds their first bytes tell. What is
/// read is decided by both forms of the manager, which must agree; what is wrong has a place within its file.
pub fn policy_manager(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut pieces = text.split('\0');
    let request = pieces.next().unwrap_or_default();
    let (mut pib, mut cib) = (Vec::new(), Vec::new());
    for (i, text) in pieces.take(16).enumerate() {
        let kind = ["profile", "policy", "cib"][text.bytes().next().unwrap_or_default() as usize % 3];
        let file = (format!("{i}.{kind}"), text.get(1..).unwrap_or_default().to_string());
        if kind == "cib" { cib.push(file) } else { pib.push(file) }
    }
    let sources = |files| -> Vec<SourceFile<'_>> {
        let files: &[(String, String)] = files;
        files.iter().map(|(name, text)| SourceFile { name, text }).collect()
    };
    let mut manager = Manager::default();
    let report = Loader::default().load(&mut manager, &sources(&pib), &sources(&cib), NOW);
    for fault in &report.faults {
        let (_, text) = pib.iter().chain(&cib).find(|(name, _)| *name == fault.file).expect("a fault names its file");
        assert!(fault.line <= text.matches('\n').count() + 1, "{fault} in {text:?}");
    }
    for file in sources(&pib).iter().chain(&sources(&cib)) {
        assert!(FileKind::of(file.name).is_some());
        let wrong = check(file, NOW).iter().any(|f| !f.harmless);
        let said = report.faults.iter().any(|f| f.file == file.name && !f.harmless);
        assert_eq!(wrong, said, "{} alone and among others", file.name);
    }
    match Requests::from_text(request) {
        Ok(requests) => match (manager.explain(&requests, NOW), manager.decide_anew(&requests, NOW)) {
            (Ok((plain, trace)), Ok(fast)) => {
                assert_eq!(plain, fast.ranked(), "{request} over {pib:?} and {cib:?}");
                let candidates: Vec<NeatArray> = plain.iter().map(|r| told(&r.properties)).collect();
                assert!(read(&to_text(&candidates)).is_ok(), "the answer is JSON");
                assert!(requests.pre_resolve || !trace.lines().is_empty());
                let again = manager.decide(&requests, NOW).expect("as before");
                assert_eq!(*again, fast, "what is kept is what was decided");
            }
            (plain, fast) => assert!(plain.is_err(), "only the fast form fails: {fast:?}"),
        },
        Err(e) => in_the_text(request, &e),
    }
    let _ = test(&mut manager, request, NOW);
    let _ = vectors::run(request);
}

/// An error lies within its text.
fn in_the_text(text: &str, error: &NeatError) {
    let (line, column) = locate(text, error.pointer());
    assert!(line >= 1 && column >= 1 && line <= text.matches('\n').count() + 1, "{error}");
}
