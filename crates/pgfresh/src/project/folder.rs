//! Reads a project's files, which may be missing, unreadable, huge or binary.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Maximum size of a file that pgfresh reads, in bytes. Configuration files are smaller.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum number of files and folders that a walk visits.
const MAX_ENTRIES: usize = 20_000;
/// Maximum depth of a file that a walk finds, in folders.
const MAX_DEPTH: usize = 8;
/// Names of folders that contain generated or installed files.
const GENERATED: [&str; 12] = [
    "node_modules",
    "target",
    "vendor",
    "venv",
    "dist",
    "build",
    "deps",
    "_build",
    "bin",
    "obj",
    "site-packages",
    "__pycache__",
];

/// A project's folder.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    files: OnceCell<Vec<String>>,
}

impl Folder {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), files: OnceCell::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.path.join(name).exists()
    }

    /// Returns the name of the first existing file among `names`.
    pub(crate) fn first_of(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.has(name))
    }

    /// Returns a file's contents, or an empty text if pgfresh can't read the file.
    pub(crate) fn text(&self, name: &str) -> String {
        read(&self.path.join(name)).unwrap_or_default()
    }

    /// Returns the paths of the files in this folder and its subfolders, sorted by depth and name. Leaves out hidden
    /// and generated files, and doesn't follow links to folders.
    pub(crate) fn files(&self) -> &[String] {
        self.files.get_or_init(|| walk(&self.path))
    }
}

/// Reads a text file, replacing invalid UTF-8.
///
/// # Errors
/// Returns an error if the file can't be read, is larger than [`MAX_BYTES`], or isn't a regular file. For example,
/// reading a named pipe might never end.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let refused = |why: &str| Err(io::Error::other(why.to_owned()));
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return refused("it is not a regular file");
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return refused("it has more than 1 MB");
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

fn walk(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = VecDeque::from([(String::new(), 0)]);
    let mut visited = 0;
    while let Some((folder, depth)) = folders.pop_front() {
        let Ok(entries) = fs::read_dir(root.join(&folder)) else { continue };
        let mut here: Vec<_> = entries.flatten().take(MAX_ENTRIES - visited).collect();
        visited += here.len();
        here.sort_by_key(fs::DirEntry::file_name);
        for entry in here {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth < MAX_DEPTH && !GENERATED.contains(&name) {
                folders.push_back((path, depth + 1));
            } else if kind.is_file() || kind.is_symlink() && root.join(&path).is_file() {
                found.push(path);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn walk_skips_hidden_generated_and_linked_folders() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["b/2.sql", "a.sql", "node_modules/x/3.sql", ".git/4.sql"] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        symlink("..", folder.path().join("b/up")).unwrap();
        symlink("../a.sql", folder.path().join("b/1.sql")).unwrap();
        symlink("nowhere", folder.path().join("b/0.sql")).unwrap();
        assert_eq!(Folder::new(folder.path()).files(), ["a.sql", "b/1.sql", "b/2.sql"]);
    }

    #[test]
    fn unreadable_file_is_an_error_or_empty() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("huge"), vec![b'x'; (1 << 20) + 1]).unwrap();
        fs::write(folder.path().join("latin"), b"caf\xe9").unwrap();
        for name in ["huge", "missing", "."] {
            assert!(read(&folder.path().join(name)).is_err(), "{name}");
            assert_eq!(Folder::new(folder.path()).text(name), "");
        }
        assert_eq!(Folder::new(folder.path()).text("latin"), "caf\u{fffd}");
    }
}
