//! Where `neater get` writes to: disks that are full, limited or read-only, and files that go away
//! meanwhile.

mod common;

use common::{Folder, Ran, Serving, neater, noise, run, say_skipped};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

/// A shell in a mount namespace of its own, or why there is none. Privileges are needed to mount:
/// of root, or of one who is root in a user namespace only.
fn unshared() -> Result<Command, String> {
    let mut why = String::new();
    for how in [&["-m"][..], &["-r", "-m"]] {
        let tried = Command::new("unshare").args(how).args(["sh", "-c", "mount -t tmpfs none /mnt"]).output();
        match tried {
            Ok(out) if out.status.success() => {
                let mut c = Command::new("unshare");
                c.args(how).args(["sh", "-euc"]);
                return Ok(c);
            }
            Ok(out) => why = String::from_utf8_lossy(&out.stderr).trim().to_owned(),
            Err(e) => why = e.to_string(),
        }
    }
    Err(format!("no file system can be mounted for this test, neither as root nor in a user namespace: {why}"))
}

/// What a script left in a folder: outputs and exit codes of its runs.
fn ran(f: &Folder, name: &str) -> Ran {
    let text = |end: &str| String::from_utf8_lossy(&f.read(&format!("{name}.{end}"))).into_owned();
    Ran { code: text("code").trim().parse().expect("a number"), out: text("out"), err: text("err") }
}

/// `get` in a shell: runs `"$@"`, with further arguments, and keeps what came of it under a name.
const GET: &str = r#"
get() { name=$1; shift; code=0; "$@" >"$out/$name.out" 2>"$out/$name.err" || code=$?; echo $code >"$out/$name.code"; ls -A "$disk" >"$out/$name.ls"; }
disk=$1 out=$2; shift 2
"#;

/// Runs a script with a folder to mount on, one for results, and the beginning of a `neater get`.
fn on_a_disk(script: &str, f: &Folder, server: &Serving, url: &str) -> bool {
    let mut shell = match unshared() {
        Ok(c) => c,
        Err(why) => {
            say_skipped(&why);
            return false;
        }
    };
    std::fs::create_dir_all(f.path("disk")).expect("made");
    let get = server.get();
    shell.arg(format!("{GET}{script}")).arg("sh").arg(f.path("disk")).arg(f.path("")).arg(get.get_program());
    let r = run(shell.args(get.get_args()).arg(url).env_remove("RUST_LOG"));
    assert_eq!(r.code, 0, "the script: {}{}", r.out, r.err);
    true
}

#[test]
fn a_full_disk_is_told_keeps_what_came_and_is_gone_on_with() {
    let f = Folder::new("full-disk");
    let contents = noise(1_000_000, 4);
    f.put("srv/a", &contents);
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let script = r#"
        mount -t tmpfs -o size=304k none "$disk"
        get first "$@" -o "$disk/a"
        cp "$disk/a.part" "$out/first.part"
        get again "$@" -o "$disk/a" -C
        mount -o remount,size=4m "$disk"
        get last "$@" -o "$disk/a" -C --json
        cp "$disk/a" "$out/whole"
    "#;
    if !on_a_disk(script, &f, &server, &server.url("a")) {
        return;
    }
    let part = f.read("first.part");
    assert!(part.len() > 200_000 && part.len() < 304 << 10, "{}", part.len());
    assert_eq!(part, contents[..part.len()]);
    for name in ["first", "again"] {
        let r = ran(&f, name);
        assert_eq!(r.code, 4, "{}", r.err);
        for word in ["no space left", "free some space", &format!("{} of 1000000 bytes are kept", part.len()), "-C"] {
            assert!(r.err.contains(word), "{word}: {}", r.err);
        }
        assert_eq!(f.read(&format!("{name}.ls")), b"a.part\na.part.json\n");
    }
    let r = ran(&f, "last");
    assert_eq!(r.code, 0, "{}", r.err);
    assert_eq!(f.read("last.ls"), b"a\n");
    assert_eq!(f.read("whole"), contents);
}

#[test]
fn what_one_of_several_ways_would_bring_is_kept_on_a_full_disk() {
    let f = Folder::new("full-multi");
    let contents = noise(1_000_000, 5);
    f.put("srv/a", &contents);
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let script = r#"
        mount -t tmpfs -o size=304k none "$disk"
        get first "$@" -o "$disk/a" --multi
        get again "$@" -o "$disk/a" --multi -C
        mount -o remount,size=4m "$disk"
        get last "$@" -o "$disk/a" --multi -C --json
        cp "$disk/a" "$out/whole"
    "#;
    if !on_a_disk(script, &f, &server, &server.url("a")) {
        return;
    }
    for name in ["first", "again"] {
        let r = ran(&f, name);
        assert_eq!(r.code, 4, "{}", r.err);
        for word in ["only lo", "no space left", "free some space", "are kept in", "-C"] {
            assert!(r.err.contains(word), "{word}: {}", r.err);
        }
        assert_eq!(f.read(&format!("{name}.ls")), b"a.part\na.part.json\n");
    }
    let r = ran(&f, "last");
    assert_eq!(r.code, 0, "{}", r.err);
    let events = r.events();
    let done = common::of(&events, "done")[0];
    assert!(done["outcome"] == "continued" && done["received"].as_u64().is_some_and(|n| n < 900_000), "{done}");
    assert_eq!(f.read("last.ls"), b"a\n");
    assert_eq!(f.read("whole"), contents);
}

#[test]
fn a_disk_without_any_room_is_left_as_it_was() {
    let f = Folder::new("no-room");
    f.put("srv/a", noise(100_000, 4));
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let script = r#"
        mount -t tmpfs -o size=16k none "$disk"
        dd if=/dev/zero of="$disk/fill" bs=4096 count=4 2>/dev/null
        get bytes "$@" -o "$disk/a"
        umount "$disk"
        mount -t tmpfs -o size=1m,nr_inodes=2 none "$disk"
        get names "$@" -o "$disk/a"
    "#;
    if !on_a_disk(script, &f, &server, &server.url("a")) {
        return;
    }
    for (name, left) in [("bytes", &b"fill\n"[..]), ("names", b"")] {
        let r = ran(&f, name);
        assert_eq!((r.code, r.err.contains("no space left")), (4, true), "{name}: {}", r.err);
        assert!(!r.err.contains("kept"), "{}", r.err);
        assert_eq!(f.read(&format!("{name}.ls")), left);
    }
}

#[test]
fn a_disk_that_cannot_be_written_says_so_before_anything_is_sent() {
    let f = Folder::new("read-only");
    f.put("srv/a", noise(100_000, 4));
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let script = r#"
        mount -t tmpfs none "$disk"
        mkdir "$disk/b" "$disk/c.part"
        get folder "$@" -o "$disk/b"
        get part "$@" -o "$disk/c"
        mount -o remount,ro "$disk"
        get readonly "$@" -o "$disk/a" --json
    "#;
    if !on_a_disk(script, &f, &server, &server.url("a")) {
        return;
    }
    let r = ran(&f, "readonly");
    assert_eq!(r.code, 4, "{}", r.err);
    assert!(r.out.contains("read-only file system") && r.out.contains("choose a place"), "{}", r.out);
    assert!(!r.out.contains("\"connected\""), "{}", r.out);
    let r = ran(&f, "folder");
    assert_eq!((r.code, r.err.contains("is a folder")), (4, true), "{}", r.err);
    let r = ran(&f, "part");
    assert_eq!((r.code, r.err.contains("c.part: is a directory")), (4, true), "{}", r.err);
    assert_eq!(f.read("readonly.ls"), b"b\nc.part\n");
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_not_the_end() {
    let f = Folder::new("file-limit");
    let contents = noise(500_000, 4);
    f.put("srv/a", &contents);
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let limited = |target: &Path| {
        let get = server.get();
        let mut shell = Command::new("sh");
        // In blocks of 512 bytes, or of 1,024 where sh is bash: not a multiple of what is written
        // at once.
        shell.args(["-c", "ulimit -f 201; exec \"$@\"", "sh"]).arg(get.get_program()).args(get.get_args());
        run(shell.arg("-o").arg(target).arg(server.url("a")))
    };
    let r = limited(&f.path("a"));
    assert_eq!(r.code, 4, "{}", r.err);
    assert!(r.err.contains("file too large") && r.err.contains("ulimit -f"), "{}", r.err);
    let part = f.read("a.part");
    assert!(part.len() >= 201 * 512 && part.len().is_multiple_of(512), "{}", part.len());
    assert_eq!(part, contents[..part.len()]);
    let r = run(server.get().arg("-C").arg("-o").arg(f.path("a")).arg(server.url("a")));
    assert_eq!(r.code, 0, "{}", r.err);
    assert_eq!(f.read("a"), contents);
}

/// Runs a transfer that stops in the middle, does something, and lets it go on.
fn meanwhile(f: &Folder, what: impl FnOnce()) -> Ran {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("http://{}/a", listener.local_addr().expect("bound"));
    let (half, stopped) = channel();
    let (go, going) = channel();
    let server = std::thread::spawn(move || {
        let (mut c, _) = listener.accept().expect("asked");
        let _ = c.read(&mut [0; 4096]);
        let _ = c.write_all(b"HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: 20000\r\nConnection: close\r\n\r\n");
        let _ = c.write_all(&[b'x'; 10_000]);
        half.send(()).expect("heard");
        going.recv().expect("told");
        let _ = c.write_all(&[b'y'; 10_000]);
    });
    let get = neater().arg("get").arg("-o").arg(f.path("a")).arg(url).stderr(std::process::Stdio::piped()).spawn();
    let get = get.expect("started");
    stopped.recv().expect("asked");
    let arrived = || std::fs::metadata(f.path("a.part")).is_ok_and(|m| m.len() == 10_000);
    for _ in 0..1000 {
        if arrived() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(arrived());
    what();
    go.send(()).expect("heard");
    let out = get.wait_with_output().expect("ended");
    server.join().expect("served");
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    Ran { code: out.status.code().unwrap_or(-1), out: String::new(), err }
}

#[test]
fn a_file_that_goes_away_or_is_replaced_while_it_is_written_is_told() {
    let f = Folder::new("vanished");
    let r = meanwhile(&f, || std::fs::remove_file(f.path("a.part")).expect("removed"));
    assert_eq!(r.code, 4, "{}", r.err);
    assert!(r.err.contains("was removed or replaced") && r.err.contains("ask for it again"), "{}", r.err);
    assert!(!r.err.contains("kept"), "nothing is: {}", r.err);
    assert!(!f.path("a").exists());

    let r = meanwhile(&f, || {
        std::fs::rename(f.path("a.part"), f.path("elsewhere")).expect("renamed");
        f.put("a.part", "somebody else's");
    });
    assert_eq!((r.code, r.err.contains("was removed or replaced")), (4, true), "{}", r.err);
    assert!(!f.path("a").exists());
    assert_eq!(f.read("a.part"), b"somebody else's");
    std::fs::remove_file(f.path("a.part")).expect("removed");

    // A folder has come where the file is to be: what came is kept.
    let r = meanwhile(&f, || std::fs::create_dir(f.path("a")).expect("made"));
    assert_eq!(r.code, 4, "{}", r.err);
    assert!(r.err.contains("cannot rename") && r.err.contains("20000 of 20000 bytes are kept"), "{}", r.err);
    assert_eq!(f.read("a.part").len(), 20_000);
}
