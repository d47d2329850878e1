//! Compilers, the library as programs find it, and running them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A file of this package.
pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Prints why a test cannot be run, loudly, and ends it.
macro_rules! skip {
    ($($why:tt)*) => {{
        eprintln!("SKIPPED: {}", format!($($why)*));
        return;
    }};
}
pub(crate) use skip;

/// The options for programs where the library was built with a sanitizer: what `cargo xtask
/// sanitize` sets.
pub(crate) fn sanitizing() -> Vec<String> {
    let options = std::env::var("NEATER_SANITIZER").unwrap_or_default();
    options.split_whitespace().map(str::to_owned).collect()
}

/// Valgrind, unless a sanitizer watches already.
pub(crate) fn valgrind() -> Option<PathBuf> {
    which("valgrind").filter(|_| sanitizing().is_empty())
}

pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|p| p.is_file())
}

/// The shared library that cargo has built beside the tests.
pub(crate) fn library() -> PathBuf {
    // Naming a function of it makes sure that it is built.
    assert!(!neater_c::context::neater_version().is_null());
    let exe = std::env::current_exe().expect("a program");
    let library = exe.with_file_name("libneater_c.so");
    assert!(library.is_file(), "{} is not there", library.display());
    library
}

/// A folder for what the tests make, which has the library under the name that programs look for.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = library().with_file_name(format!("neater-c-tests-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        for name in ["libneater.so.0", "libneater.so"] {
            std::os::unix::fs::symlink(library(), folder.join(name)).expect("a link");
        }
        folder
    })
}

/// The flags with which C is held to its standard.
pub(crate) const STRICT: [&str; 7] =
    ["-std=gnu99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-overlength-strings", "-O1"];

/// Compiles a program of this package against the library with plain `cc`; `None` without a
/// compiler.
pub(crate) fn compile(source: &str) -> Option<PathBuf> {
    compile_with(&here(source), &[])
}

/// As [`compile`], a program from anywhere, with more arguments.
pub(crate) fn compile_with(source: &Path, more: &[&str]) -> Option<PathBuf> {
    let cc = which("cc")?;
    let name = source.file_stem().expect("a name").to_owned();
    // Several tests may want the same program at the same time.
    static NUMBER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let output = folder().join(format!("{}-{number}", name.to_string_lossy()));
    let mut command = Command::new(cc);
    command.args(STRICT).arg("-g").arg("-I").arg(here("include")).arg("-o").arg(&output).arg(source);
    command.arg("-L").arg(folder()).arg("-lneater").arg(format!("-Wl,-rpath,{}", folder().display())).args(more);
    command.args(sanitizing());
    let done = command.output().expect("a compiler");
    assert!(done.status.success(), "{}:\n{}", source.display(), String::from_utf8_lossy(&done.stderr));
    Some(output)
}

/// What a program has written.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs a program to its end, which comes within a time.
pub(crate) fn run(command: &mut Command, most: Duration) -> Finished {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let (mut out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = out.read_to_end(&mut bytes);
        bytes
    });
    let errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = err.read_to_end(&mut bytes);
        bytes
    });
    let status = end_of(&mut child, most);
    Finished { status, out: text(reader.join().expect("read")), err: text(errors.join().expect("read")) }
}

/// Waits for a program, and ends it if it takes too long.
pub(crate) fn end_of(child: &mut Child, most: Duration) -> ExitStatus {
    let until = Instant::now() + most;
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            return child.wait().expect("a child");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a tool answers.
pub(crate) fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    assert!(status.success(), "{command:?}: {}", text(stderr));
    text(stdout)
}
