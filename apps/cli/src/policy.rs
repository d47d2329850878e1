//! `neater policy`: the policy manager on files. What it means is neater-policy's; here files are
//! read and lines printed.

use crate::args::PolicyCommand;
use crate::failure::{Exit, Failure};
use crate::folder::{self, read};
use crate::output::Output;
use neater_base::WallTime;
use neater_command::args::TableArgs;
use neater_policy::manager::{
    Fault, FileKind, Loader, Manager, Requests, SourceFile, add_ready, check, check_all, test, vectors,
};
use neater_policy::protocol::{Door, wire};
use neater_property::neat::{MAX_JSON, NeatError};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long a manager may take to answer; NEAT's library waits as long.
const PATIENCE: Duration = Duration::from_secs(3);

pub(crate) fn run(command: PolicyCommand, output: &Output) -> Result<Exit, Failure> {
    match command {
        PolicyCommand::Check { files } => check_files(&files, output),
        PolicyCommand::Explain { request, diagram, running: true, sock, .. } => {
            explain_running(&request, diagram, sock.as_deref(), output)
        }
        PolicyCommand::Explain { request, diagram, tables, .. } => explain(&request, diagram, &tables, output),
        PolicyCommand::Test { files, tables } => test_files(&files, &tables, output),
        PolicyCommand::Vectors { dir } => run_vectors(&dir, output),
        PolicyCommand::Ask { request, sock } => ask(&request, sock.as_deref(), output),
        PolicyCommand::Publish { files, sock } => publish(&files, sock.as_deref(), output),
    }
}

fn now() -> WallTime {
    WallTime(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// The files of a folder by their paths within it, and their contents; of the folders in it, too,
/// if `deep`. A file that cannot be read is reported and left out, as the manager that runs does.
fn folder(dir: &Path, deep: bool, output: &Output) -> Result<Vec<(String, String)>, Failure> {
    let mut files = Vec::new();
    let found = folder::list(dir, deep)?;
    found.closed.iter().for_each(|(path, e)| remark(&cannot_be_read(path, e), output));
    for file in found.files {
        match neater::policies::folder::read(&file.path) {
            Ok(text) => files.push((file.name, text)),
            Err(e) => remark(&cannot_be_read(&file.path, &e), output),
        }
    }
    Ok(files)
}

fn whole(file: &Path, why: String, harmless: bool) -> Fault {
    Fault { file: file.to_string_lossy().into_owned(), line: 0, column: 0, why, harmless }
}

fn cannot_be_read(file: &Path, e: &std::io::Error) -> Fault {
    whole(file, format!("it cannot be read: {e}"), false)
}

/// What is wrong or odd about a file, beside what was asked for.
fn remark(fault: &Fault, output: &Output) {
    if output.json { report(fault, output) } else { output.note(&fault.to_string()) }
}

fn report(fault: &Fault, output: &Output) {
    if output.json {
        output.event(&json!({"event": "fault", "file": fault.file, "line": fault.line, "column": fault.column,
            "harmless": fault.harmless, "why": fault.why}));
    } else {
        output.line(&fault.to_string());
    }
}

fn check_files(paths: &[PathBuf], output: &Output) -> Result<Exit, Failure> {
    let mut files: Vec<(String, String)> = Vec::new();
    let mut faults = Vec::new();
    // What cannot be read hides nothing else.
    let mut take = |path: &Path, faults: &mut Vec<Fault>| {
        let text = neater::policies::folder::read(path).unwrap_or_else(|e| {
            faults.push(cannot_be_read(path, &e));
            String::new()
        });
        files.push((path.to_string_lossy().into_owned(), text));
    };
    for path in paths {
        if path.is_dir() {
            let found = folder::list(path, true)?;
            faults.extend(found.closed.iter().map(|(path, e)| cannot_be_read(path, e)));
            let mut held = found.files;
            held.sort_by(|a, b| a.name.cmp(&b.name));
            for file in held {
                if file.name.contains('/') && FileKind::of(&file.name) != Some(FileKind::Cib) {
                    let why = format!("this does not count: policies are those of {} itself", path.display());
                    faults.push(whole(&file.path, why, true));
                }
                take(&file.path, &mut faults);
            }
        } else if path.exists() {
            take(path, &mut faults);
        } else {
            read(path)?;
        }
    }
    let unread: BTreeSet<String> = faults.iter().filter(|f| !f.harmless).map(|f| f.file.clone()).collect();
    let there = files.iter().filter(|(name, _)| !unread.contains(name));
    let sources: Vec<SourceFile<'_>> = there.map(|(name, text)| SourceFile { name, text }).collect();
    faults.extend(check_all(&sources, now()));
    faults.iter().for_each(|f| report(f, output));
    let wrong: BTreeSet<&str> = faults.iter().filter(|f| !f.harmless).map(|f| f.file.as_str()).collect();
    let wrong = wrong.len();
    if output.json {
        output.event(&json!({"event": "checked", "files": files.len(), "wrong": wrong}));
    } else {
        output.line(&format!("{} files, {wrong} with errors", files.len()));
    }
    Ok(if wrong == 0 { Exit::Ok } else { Exit::Failed })
}

/// A manager with the tables in force. Faults of files are reported on the way.
fn manager(tables: &TableArgs, output: &Output) -> Result<Manager, Failure> {
    let mut manager = Manager::new(tables.limits()?);
    if !tables.bare {
        add_ready(&mut manager);
    }
    let pib = tables.pib.as_deref().map_or(Ok(Vec::new()), |dir| folder(dir, false, output))?;
    let cib = tables.cib.as_deref().map_or(Ok(Vec::new()), |dir| folder(dir, true, output))?;
    let sources = |files| -> Vec<SourceFile<'_>> {
        let files: &[(String, String)] = files;
        files.iter().map(|(name, text)| SourceFile { name, text }).collect()
    };
    let report = Loader::default().load(&mut manager, &sources(&pib), &sources(&cib), now());
    report.faults.iter().for_each(|fault| remark(fault, output));
    Ok(manager)
}

fn unreadable(what: &str, text: &str, e: &NeatError) -> Failure {
    let fault = Fault::new(what, text, e);
    Failure::usage(format!("{what}:{}:{}: {}", fault.line, fault.column, fault.why))
}

/// The text of a request and what it stands for, by what the command line gives.
fn request_text(request: &str) -> Result<(&str, String), Failure> {
    Ok(match request {
        "-" => {
            let mut text = String::new();
            let read = std::io::stdin().take(MAX_JSON as u64 + 1).read_to_string(&mut text);
            read.map_err(|e| Failure::file("read", Path::new("standard input"), &e))?;
            ("standard input", text)
        }
        text if text.trim_start().starts_with(['[', '{']) => ("the request", text.to_string()),
        path => (path, read(Path::new(path))?),
    })
}

/// The requests of a text.
fn requests(what: &str, text: &str) -> Result<Requests, Failure> {
    Requests::from_text(text).map_err(|e| {
        let advice = "a request is a list of objects: [{\"transport\": {\"value\": \"TCP\"}}]";
        unreadable(what, text, &e).advise(advice)
    })
}

fn explain(request: &str, diagram: bool, tables: &TableArgs, output: &Output) -> Result<Exit, Failure> {
    let (what, text) = request_text(request)?;
    let requests = requests(what, &text)?;
    for why in &requests.dropped {
        output.note(&format!("left out: {why}"));
    }
    let mut manager = manager(tables, output)?;
    let (ranked, trace) = manager.explain(&requests, now()).map_err(|e| Failure::usage(e.to_string()))?;
    if output.json {
        let mut json = trace.to_json();
        json["event"] = "decision".into();
        output.event(&json);
    } else if diagram {
        output.line(trace.mermaid().trim_end());
    } else {
        trace.lines().iter().for_each(|l| output.line(l));
    }
    Ok(if ranked.is_empty() { Exit::Failed } else { Exit::Ok })
}

/// What the manager that runs makes of a request, and why.
fn explain_running(request: &str, diagram: bool, sock: Option<&Path>, output: &Output) -> Result<Exit, Failure> {
    let (what, text) = request_text(request)?;
    requests(what, &text)?;
    let how = match (output.json, diagram) {
        (true, _) => 1,
        (_, true) => 2,
        _ => 0,
    };
    let path = socket(sock, Door::Requests);
    let mut question = Vec::new();
    wire::frame(&mut question, wire::Kind::Explain, 1, |out| {
        out.push(how);
        out.extend(text.as_bytes());
    });
    let talk = || -> std::io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(&question)?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = Vec::new();
        stream.take((wire::HEAD + wire::MAX_PAYLOAD) as u64).read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = talk().map_err(|e| absent(&path, &e))?;
    let refused = |why: &str| Failure::new(Exit::Failed, "manager", format!("the manager does not explain it: {why}"));
    let (kind, text) = match wire::Frame::first(&answer) {
        Ok(Some(frame)) => (frame.kind, String::from_utf8_lossy(frame.payload)),
        Ok(None) => return Err(refused("it closed the connection")),
        Err(e) => return Err(refused(&e.to_string())),
    };
    if kind != wire::Kind::Explained {
        return Err(refused(&text));
    }
    if output.json {
        output.event(&decision_event(&text).map_err(|why| refused(&why))?);
    } else {
        output.line(text.trim_end());
    }
    Ok(Exit::Ok)
}

/// A manager's report of a decision, as an event.
fn decision_event(text: &str) -> Result<serde_json::Value, String> {
    let mut json: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    json.as_object_mut().ok_or("it answered with no object")?.insert("event".into(), "decision".into());
    Ok(json)
}

/// One of the sockets of the manager that runs. Without `--sock` it is looked for as in every
/// program on neater.
fn socket(sock: Option<&Path>, door: Door) -> PathBuf {
    let requests = sock.map(|dir| dir.join(Door::Requests.file())).or_else(neater::policies::manager_socket);
    let own = || std::env::home_dir().unwrap_or_default().join(".neat").join(Door::Requests.file());
    let requests = requests.unwrap_or_else(own);
    // NEAT_PM_SOCKET may give the one for requests another name.
    if door == Door::Requests { requests } else { requests.with_file_name(door.file()) }
}

fn absent(path: &Path, e: &std::io::Error) -> Failure {
    if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) {
        let why = format!("the policy manager at {} does not answer within {} s", path.display(), PATIENCE.as_secs());
        return Failure::new(Exit::Failed, "manager", why).advise("see whether its process is stopped or very busy");
    }
    Failure::new(Exit::Failed, "manager", format!("no policy manager at {}: {e}", path.display()))
        .advise("`neater pm` starts one; --sock DIR names its folder")
}

/// The answer of a running manager to a document on one of its sockets.
fn exchange(sock: Option<&Path>, door: Door, text: &str) -> Result<String, Failure> {
    let path = socket(sock, door);
    let talk = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(&path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // A manager that has read enough may close before it has read everything.
        let said = stream.write_all(text.as_bytes()).and_then(|()| stream.shutdown(Shutdown::Write));
        let mut answer = String::new();
        match stream.read_to_string(&mut answer) {
            Ok(_) if answer.is_empty() => said.map(|()| answer),
            heard => heard.map(|_| answer),
        }
    };
    talk().map_err(|e| absent(&path, &e))
}

fn ask(request: &str, sock: Option<&Path>, output: &Output) -> Result<Exit, Failure> {
    let (what, text) = request_text(request)?;
    requests(what, &text)?;
    let answer = exchange(sock, Door::Requests, &text)?;
    let candidates: serde_json::Value = serde_json::from_str(&answer).map_err(|_| {
        Failure::new(Exit::Failed, "manager", "the manager did not answer")
            .advise("its own messages (-v) give the reason")
    })?;
    if output.json {
        output.event(&json!({"event": "answer", "candidates": candidates}));
    } else {
        output.line(answer.trim_end());
    }
    Ok(if candidates.as_array().is_some_and(|c| !c.is_empty()) { Exit::Ok } else { Exit::Failed })
}

fn publish(paths: &[PathBuf], sock: Option<&Path>, output: &Output) -> Result<Exit, Failure> {
    for path in paths {
        let (name, text) = (path.to_string_lossy(), read(path)?);
        let (door, kind) = match FileKind::of(&name) {
            Some(kind @ (FileKind::Policy | FileKind::Profile)) => (Door::Pib, kind),
            Some(kind) => (Door::Cib, kind),
            None => return Err(Failure::usage(format!("{name}: no policy, profile or CIB file by its name"))),
        };
        let mut json = neater_property::neat::read(&text).map_err(|e| unreadable(&name, &text, &e))?;
        // A manager reports why it refuses, and no diagnostics. In a list they have no position.
        let diagnostics =
            if json.is_object() { check(&SourceFile { name: &name, text: &text }, now()) } else { Vec::new() };
        for diagnostic in diagnostics.iter().filter(|f| f.harmless) {
            remark(diagnostic, output);
        }
        let text = match kind {
            // On the socket, the ending of a name has no meaning.
            FileKind::Profile => {
                let is_profile = |object: &mut serde_json::Value| {
                    if let serde_json::Value::Object(map) = object {
                        map.insert("policy_type".into(), "profile".into());
                    }
                };
                match &mut json {
                    serde_json::Value::Array(all) => all.iter_mut().for_each(is_profile),
                    one => is_profile(one),
                }
                json.to_string()
            }
            _ => text,
        };
        let answer = exchange(sock, door, &text)?;
        if !answer.is_empty() {
            let json: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
            let why = json["error"].as_str().map_or(answer.trim_end().to_owned(), str::to_owned);
            return Err(Failure::new(Exit::Failed, "manager", format!("{name}: {why}")));
        }
        if output.json {
            output.event(&json!({"event": "published", "file": name}));
        } else {
            output.line(&format!("{name}: the manager has taken it"));
        }
    }
    Ok(Exit::Ok)
}

fn test_files(paths: &[PathBuf], tables: &TableArgs, output: &Output) -> Result<Exit, Failure> {
    let mut manager = manager(tables, output)?;
    let (mut cases, mut wrong) = (0, 0);
    for path in paths {
        let text = read(path)?;
        let file = path.to_string_lossy();
        let tested = test(&mut manager, &text, now()).map_err(|e| unreadable(&file, &text, &e))?;
        for case in tested {
            cases += 1;
            wrong += usize::from(!case.differences.is_empty());
            if output.json {
                output.event(
                    &json!({"event": "tested", "file": file, "name": case.name, "differences": case.differences}),
                );
            }
            for difference in case.differences.iter().filter(|_| !output.json) {
                output.line(&format!("{file}: {}: {difference}", case.name));
            }
        }
    }
    summary(cases, wrong, "cases", output)
}

fn run_vectors(dir: &Path, output: &Output) -> Result<Exit, Failure> {
    let entries = std::fs::read_dir(dir).map_err(|e| Failure::file("read", dir, &e))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| Failure::file("read", dir, &e))?.path();
        if path.extension().is_some_and(|e| e == "json") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(Failure::usage(format!("{} holds no vectors: no file ends in .json", dir.display())));
    }
    let mut wrong = 0;
    for path in &files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let differences = match vectors::run(&read(path)?) {
            Ok(differences) => differences,
            Err(why) => vec![format!("no vector: {why}")],
        };
        wrong += usize::from(!differences.is_empty());
        if output.json {
            output.event(&json!({"event": "vector", "name": name, "differences": differences}));
        }
        for difference in differences.iter().filter(|_| !output.json) {
            output.line(&format!("{name}: {difference}"));
        }
    }
    summary(files.len(), wrong, "vectors", output)
}

fn summary(all: usize, wrong: usize, what: &str, output: &Output) -> Result<Exit, Failure> {
    if output.json {
        output.event(&json!({"event": "summary", "what": what, "all": all, "wrong": wrong}));
    } else {
        output.line(&format!("{all} {what}, {wrong} not as expected"));
    }
    Ok(if wrong == 0 { Exit::Ok } else { Exit::Failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_answers_in_the_place_of_a_manager_is_no_decision() {
        for text in ["[]", "7", "\"text\"", "null", "true", "{", ""] {
            assert!(decision_event(text).is_err(), "{text}");
        }
        assert_eq!(decision_event(r#"{"lost": []}"#), Ok(json!({"lost": [], "event": "decision"})));
    }
}
