//! Finds the mount of a path, and reads copies of the kernel's mountinfo table.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{host, system};

/// The paths of sysfs and procfs. The default paths are those of this machine. On systems without sysfs and procfs, the
/// default paths don't exist. Tests use copies of both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// Usually `/sys`.
    pub sysfs: PathBuf,
    /// Usually `/proc`.
    pub procfs: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        let [sysfs, procfs] = system::machine::KERNEL_FILES.map(PathBuf::from);
        Self { sysfs, procfs }
    }
}

/// A mount, with the fields of a line in mountinfo. On macOS, only `point`, `kind` and `source` have values. Source:
/// proc(5), `/proc/PID/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub(crate) id: u64,
    /// Major and minor device numbers. If the major is 0, the mount doesn't have a device.
    pub device: (u32, u32),
    /// The directory inside the file system that forms the root of this mount.
    pub root: PathBuf,
    /// The mount point.
    pub point: PathBuf,
    /// Mount options.
    pub options: String,
    /// File system type, e.g. `ext4` or `fuse.sshfs`.
    pub kind: String,
    /// The mounted source: a device, a file server's export, or an arbitrary name.
    pub source: String,
    /// The options of the file system.
    pub super_options: String,
}

impl Mount {
    /// Finds the mount that contains `path`. With the default procfs, asks the operating system. With a copied table,
    /// takes the mount with the longest mount point above `path`.
    ///
    /// # Errors
    /// Returns an error if `path` doesn't exist, or if the table can't be read or contains no mount above
    /// `path`.
    pub fn of(roots: &Roots, path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        if roots.procfs == Roots::default().procfs {
            return host::mount_of(&path);
        }
        let table = roots.procfs.join("self/mountinfo");
        Self::in_table(&fs::read_to_string(&table)?, &path).ok_or_else(|| not_in(&table))
    }

    /// Finds the mount that contains `path` in `table`, which has the format of `/proc/self/mountinfo`. This
    /// is the mount with the longest mount point above `path`. If several mounts share this mount point, the
    /// last one wins, since it hides the others.
    #[must_use]
    pub fn in_table(table: &str, path: &Path) -> Option<Self> {
        let above = table.lines().filter_map(Self::parse).filter(|mount| path.starts_with(&mount.point));
        above.max_by_key(|mount| mount.point.components().count())
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (mount, source) = line.split_once(" - ")?;
        let mut mount = mount.split(' ');
        let mut source = source.split(' ');
        let id = mount.next()?.parse().ok()?;
        let (major, minor) = mount.nth(1)?.split_once(':')?;
        Some(Self {
            id,
            device: (major.parse().ok()?, minor.parse().ok()?),
            root: unescape(mount.next()?).into(),
            point: unescape(mount.next()?).into(),
            options: mount.next()?.to_owned(),
            kind: source.next()?.to_owned(),
            source: unescape(source.next()?),
            super_options: source.next().unwrap_or_default().to_owned(),
        })
    }

    /// Returns the value of a file system option, e.g. `upperdir` for an overlay.
    #[must_use]
    pub fn super_option(&self, name: &str) -> Option<String> {
        let value =
            self.super_options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
        value.map(unescape)
    }
}

/// Returns the error for a path whose mount isn't in `table`.
pub(crate) fn not_in(table: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("\"{}\" has no mount for it", table.display()))
}

/// Decodes the octal escapes for spaces, tabs, line feeds and backslashes.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let digits =
            tail.get(..3).filter(|digits| byte == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        let code = digits.and_then(|digits| {
            u8::try_from(digits.iter().fold(0_u32, |sum, digit| sum * 8 + u32::from(digit - b'0'))).ok()
        });
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_line_parses_optional_fields_and_escapes() {
        let line = r"36 35 98:0 /mnt\0401 /mnt/a\134b rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue";
        let mount = Mount::parse(line).unwrap();
        assert_eq!((mount.id, mount.device, mount.root), (36, (98, 0), "/mnt 1".into()));
        assert_eq!(mount.point, Path::new(r"/mnt/a\b"));
        assert_eq!(
            (&*mount.kind, &*mount.source, &*mount.super_options),
            ("ext3", "/dev/root", "rw,errors=continue")
        );
    }

    #[test]
    fn overlay_mount_has_upper_directory_option() {
        let line = r"1 0 0:50 / / rw - overlay overlay rw,lowerdir=/l\0542:/l1,upperdir=/var/lib/docker/x/diff,workdir=/w";
        assert_eq!(Mount::parse(line).unwrap().super_option("upperdir").unwrap(), "/var/lib/docker/x/diff");
        assert_eq!(Mount::parse(line).unwrap().super_option("upper"), None);
    }

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
    fn mount_is_found_for_real_system_paths() {
        for path in ["/", "/proc", "/proc/self/status", "/dev"] {
            let mount = Mount::of(&Roots::default(), Path::new(path)).unwrap();
            assert!(Path::new(path).canonicalize().unwrap().starts_with(&mount.point), "{path}: {mount:?}");
        }
        assert_eq!(Mount::of(&Roots::default(), Path::new("/proc")).unwrap().kind, "proc");
    }

    #[test]
    fn arbitrary_mount_line_causes_no_panic() {
        for line in
            ["", " - ", "1 2 3", "a b c d e f - g h i", r"1 1 0:1 \ \7 rw - x y", "1 1 9 / / rw - x y z"]
        {
            let _ = Mount::parse(line);
        }
        assert_eq!(unescape(r"a\777b\04"), r"a\777b\04");
    }
}
