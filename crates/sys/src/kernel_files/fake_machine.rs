//! Creates fake machines for tests, each with its own sysfs and procfs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::mount::{Mount, Roots};
use super::storage_stack::Stack;

/// A fake machine: a temporary directory with files like those in sysfs and procfs.
pub(super) struct Machine {
    pub(super) root: tempfile::TempDir,
    pub(super) roots: Roots,
}

impl Machine {
    pub(super) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots { sysfs: root.path().join("sys"), procfs: root.path().join("proc") };
        Self { root, roots }
    }

    pub(super) fn put(&self, path: &str, text: &str) -> PathBuf {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("{text}\n")).unwrap();
        path
    }

    pub(super) fn link(&self, path: &str, target: &Path) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// Creates a block device whose sysfs directory is `sys/devices/PATH`.
    pub(super) fn block(&self, path: &str, number: &str, files: &[(&str, &str)]) {
        let folder = self.root.path().join("sys/devices").join(path);
        let name = folder.file_name().unwrap().to_str().unwrap();
        self.put(&format!("sys/devices/{path}/dev"), number);
        for (file, text) in files {
            self.put(&format!("sys/devices/{path}/{file}"), text);
        }
        self.link(&format!("sys/class/block/{name}"), &folder);
        self.link(&format!("sys/dev/block/{number}"), &folder);
    }

    pub(super) fn slave(&self, path: &str, slave: &str) {
        self.link(
            &format!("sys/devices/{path}/slaves/{slave}"),
            &self.roots.sysfs.join("class/block").join(slave),
        );
    }

    /// Returns the stack below a root mount with this device and file system type. `more` contains
    /// additional lines for mountinfo.
    pub(super) fn below(&self, device: &str, kind: &str, source: &str, options: &str, more: &str) -> Stack {
        let line = format!("30 1 {device} / / rw - {kind} {source} {options}\n{more}");
        self.put("proc/self/mountinfo", &line);
        Stack::below(&self.roots, &Mount::of(&self.roots, Path::new("/")).unwrap())
    }
}
