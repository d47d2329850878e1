//! Where the sockets are, and which users may connect to them.

use neater_command::failure::{Exit, Failure};
use neater_policy::protocol::Door;
use ring::rand::{SecureRandom, SystemRandom};
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The file of the token for REST.
const TOKEN: &str = "rest_token";
/// How many descriptors are asked for, if the system gives them.
const DESCRIPTORS: u64 = 65_536;

/// The directory of the sockets.
#[derive(Clone, Debug)]
pub(super) struct Dir {
    pub(super) path: PathBuf,
    /// Whether every user of the host may come.
    pub(super) shared: bool,
}

impl Dir {
    pub(super) fn token(&self) -> PathBuf {
        self.path.join(TOKEN)
    }

    pub(super) fn socket(&self, door: Door) -> PathBuf {
        self.path.join(door.file())
    }

    /// Removes the sockets of a manager that is gone.
    pub(super) fn remove(&self) {
        for door in Door::ALL {
            let _ = std::fs::remove_file(self.socket(door));
        }
        let _ = std::fs::remove_file(self.token());
    }
}

/// A user by number, or by name as `/etc/passwd` has it.
pub(super) fn user(named: &str) -> Result<u32, Failure> {
    if let Ok(number) = named.parse() {
        return Ok(number);
    }
    let path = Path::new("/etc/passwd");
    let passwd = std::fs::read_to_string(path).map_err(|e| Failure::file("read", path, &e))?;
    let found = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == named);
    found.and_then(|fields| fields.get(2)?.parse().ok()).ok_or_else(|| {
        Failure::usage(format!("--trust-user {named}: there is no such user in /etc/passwd"))
            .advise("give its number (id -u)")
    })
}

/// Makes room for many clients. Where that is not allowed, fewer are served.
pub(super) fn raise_descriptors() {
    neater_command::descriptors::raise(DESCRIPTORS);
}

/// Makes the directory, `~/.neat` if none is given, and makes sure that no other manager runs
/// there.
pub(super) fn prepare(dir: Option<&Path>, shared: bool) -> Result<Dir, Failure> {
    let path = match (dir, std::env::home_dir()) {
        (Some(dir), _) => dir.to_path_buf(),
        (None, Some(home)) if !home.as_os_str().is_empty() => home.join(".neat"),
        (None, _) => return Err(Failure::usage("there is no home directory").advise("name one with --sock DIR")),
    };
    let mode = if shared { 0o755 } else { 0o700 };
    DirBuilder::new().recursive(true).mode(mode).create(&path).map_err(|e| Failure::file("make", &path, &e))?;
    of_nobody_else(&path)?;
    let dir = Dir { path, shared };
    for door in Door::ALL {
        let socket = dir.socket(door);
        if UnixStream::connect(&socket).is_ok() {
            let why = format!("another process listens on {} already", socket.display());
            return Err(Failure::new(Exit::Failed, "local", why).advise("end the other manager, or use --sock DIR"));
        }
    }
    Ok(dir)
}

/// Checks that no other user can replace a socket or the token. A group may write there only if the
/// manager is no root's: on many systems each user has a group alone.
fn of_nobody_else(path: &Path) -> Result<(), Failure> {
    let held = std::fs::metadata(path).map_err(|e| Failure::file("look at", path, &e))?;
    let user = rustix::process::geteuid().as_raw();
    let others = if user == 0 { 0o022 } else { 0o002 };
    if (held.uid() == user || held.uid() == 0) && held.mode() & others == 0 {
        return Ok(());
    }
    let why = format!("{} can be changed by other users, who could put sockets of theirs there", path.display());
    Err(Failure::new(Exit::Local, "file", why).advise("use --sock DIR with a directory of your own (chmod go-w)"))
}

/// Makes a new token, and writes it where only the daemon's user can read it.
pub(super) fn token(dir: &Dir) -> Result<String, Failure> {
    let mut bytes = [0; 32];
    let random = SystemRandom::new().fill(&mut bytes);
    random.map_err(|_| Failure::new(Exit::Failed, "local", "the system has no random numbers"))?;
    let token: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let (path, new) = (dir.token(), dir.path.join(format!(".{TOKEN}.{}", std::process::id())));
    let _ = std::fs::remove_file(&new);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .and_then(|mut file| writeln!(file, "{token}"))
        .and_then(|()| std::fs::rename(&new, &path));
    written.map_err(|e| Failure::file("write", &path, &e))?;
    Ok(token)
}

/// Listens on a socket, in place of what may be left of an earlier one. Clients cannot connect
/// before its permissions are set.
pub(super) fn bind(dir: &Dir, door: Door) -> Result<UnixListener, Failure> {
    let path = dir.socket(door);
    let bind = || -> std::io::Result<UnixListener> {
        let nest = dir.path.join(format!(".new-{}", std::process::id()));
        DirBuilder::new().recursive(true).mode(0o700).create(&nest)?;
        let egg = nest.join("s");
        let _ = std::fs::remove_file(&egg);
        let listener = UnixListener::bind(&egg)?;
        let mode = if dir.shared { 0o666 } else { 0o600 };
        std::fs::set_permissions(&egg, Permissions::from_mode(mode))?;
        std::fs::rename(&egg, &path)?;
        let _ = std::fs::remove_dir(&nest);
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    bind().map_err(|e| Failure::file("listen on", &path, &e))
}
