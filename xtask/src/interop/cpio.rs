//! The archive from which Linux unpacks its first files (the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`).

/// An archive in the form `newc`, without checksums.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

impl Archive {
    /// Adds a folder. Those above it must be there.
    pub(crate) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY | 0o755, &[]);
    }

    /// Adds a file.
    pub(crate) fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) {
        self.entry(path, FILE | mode, bytes);
    }

    /// The archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, bytes: &[u8]) {
        self.entries += 1;
        let (len, name) = (bytes.len() as u32, path.len() as u32 + 1);
        // Number, mode, user, group, links, time, length, four numbers of devices, length of the name, checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, len, 0, 0, 0, 0, name, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(path.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stand_one_after_the_other_in_fours() {
        let mut archive = Archive::default();
        archive.directory("m");
        archive.file("m/a", 0o644, b"12345");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        // A header of 110 bytes, "m" and its zero: 112.
        assert_eq!(&bytes[..14], b"07070100000001");
        assert_eq!(&bytes[110..118], b"m\x00070701");
        // The second: its name ends at 112 + 110 + 4 = 226, which is padded to 228.
        assert_eq!(&bytes[112 + 14..112 + 22], b"000081a4");
        assert_eq!(&bytes[222..236], b"m/a\0\0\x0012345\0\0\0");
        assert_eq!(&bytes[236..242], b"070701");
        assert!(bytes.windows(10).any(|w| w == b"TRAILER!!!"));
    }
}
