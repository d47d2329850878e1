//! What the lab needs of the machine, asked for before anything is built.

use super::error::{LiveError, Result};
use std::fs;

/// The number of `CAP_NET_ADMIN` (linux/capability.h).
const NET_ADMIN: u32 = 12;
/// The number of `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;

/// Whether a live lab can be built here.
///
/// # Errors
/// [`LiveError::Privileges`] or [`LiveError::MissingTool`], with what is needed.
pub fn check() -> Result<()> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let missing = missing_capabilities(&status);
    if !missing.is_empty() {
        return Err(LiveError::Privileges(format!(
            "a live lab makes network namespaces and TUN devices: this process lacks {}. Run it as root (sudo), or use \
             the simulator, which needs nothing",
            missing.join(" and ")
        )));
    }
    if let Err(e) = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
        return Err(LiveError::Privileges(format!(
            "a live lab needs TUN devices: /dev/net/tun: {e}. Load the module (modprobe tun), and in a container pass \
             the device (--device /dev/net/tun --cap-add NET_ADMIN --cap-add SYS_ADMIN)"
        )));
    }
    need("ip", "iproute2")
}

/// Looks for a program on the PATH and where Debian keeps those of root.
///
/// # Errors
/// [`LiveError::MissingTool`].
pub fn need(tool: &str, package: &str) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir: std::path::PathBuf| dir.join(tool).is_file());
    if found { Ok(()) } else { Err(LiveError::MissingTool { tool: tool.into(), package: package.into() }) }
}

fn missing_capabilities(status: &str) -> Vec<&'static str> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let set = line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok()).unwrap_or(0);
    [(NET_ADMIN, "CAP_NET_ADMIN"), (SYS_ADMIN, "CAP_SYS_ADMIN")]
        .into_iter()
        .filter(|(bit, _)| set & (1 << bit) == 0)
        .map(|(_, name)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        assert_eq!(missing_capabilities("CapEff:\t000001ffffffffff\n"), Vec::<&str>::new());
        assert_eq!(missing_capabilities("CapEff:\t0000000000001000\n"), ["CAP_SYS_ADMIN"]);
        assert_eq!(missing_capabilities(""), ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
    }

    #[test]
    fn a_missing_program_names_its_package() {
        assert!(need("sh", "dash").is_ok());
        assert!(need("no-such-program", "a-package").expect_err("missing").to_string().contains("a-package"));
    }
}
