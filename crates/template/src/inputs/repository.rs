//! Finds the repository that a folder belongs to and the `.gitignore` files that apply in the folder. Ignored files,
//! such as build output, must not count as inputs.
//!
//! Only rules that are part of the project apply. A user's own list of ignored files and `.git/info/exclude` don't,
//! because they can differ between machines.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::git_index::TrackedPaths;
use super::ignore_file::IgnoreFile;

/// A folder with the rules that apply in it.
#[derive(Debug, Clone)]
pub(super) enum Scope {
    /// No rules apply, so the search finds all files. This happens if the folder isn't in a repository, if pgfresh
    /// can't read the repository's index, or if the pattern itself names a folder that git ignores.
    Unrestricted,
    /// The rules of a repository apply.
    Ruled(Rules),
}

#[derive(Debug, Clone)]
pub(super) struct Rules {
    tracked: Rc<TrackedPaths>,
    /// Path of the folder, relative to the repository's root. Empty for the root itself.
    folder: Vec<u8>,
    /// The `.gitignore` files from the root down to this folder. The rules of a `.gitignore` file apply to paths
    /// relative to the file's folder. The number is how many leading bytes to remove from a path to make it relative.
    files: Vec<(usize, Rc<IgnoreFile>)>,
    /// True if git ignores the folder but tracks at least one file in it.
    only_tracked: bool,
}

/// How git treats a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitStatus {
    /// git tracks the item or would list it as untracked.
    NotIgnored,
    /// git ignores the folder, except for tracked files in it.
    OnlyTracked,
    /// git ignores the item.
    Ignored,
}

impl Scope {
    /// Finds the rules for the folder where a search starts. `start` must be absolute and contain no links.
    pub(super) fn of_start(start: &Path) -> Self {
        let Some(root) = start.ancestors().find(|folder| git_folder(folder).is_some()) else {
            return Self::Unrestricted;
        };
        let mut scope = Self::of_root(root);
        let mut path = root.to_owned();
        for part in start.strip_prefix(root).unwrap_or(Path::new("")).components() {
            let Component::Normal(name) = part else { continue };
            path.push(name);
            match scope.git_status(name.as_bytes(), true) {
                GitStatus::NotIgnored => scope = scope.enter(name.as_bytes(), &path, GitStatus::NotIgnored),
                GitStatus::OnlyTracked | GitStatus::Ignored => return Self::Unrestricted,
            }
        }
        scope
    }

    fn of_root(root: &Path) -> Self {
        let tracked = git_folder(root).and_then(|git| TrackedPaths::read(&git));
        let Some(tracked) = tracked else { return Self::Unrestricted };
        let mut rules =
            Rules { tracked: Rc::new(tracked), folder: Vec::new(), files: Vec::new(), only_tracked: false };
        rules.add_file_in(root);
        Self::Ruled(rules)
    }

    /// Finds the rules for the subfolder `name`. `path` is the subfolder's path, and `verdict` is how git treats it.
    pub(super) fn enter(&self, name: &[u8], path: &Path, verdict: GitStatus) -> Self {
        if git_folder(path).is_some() {
            return Self::of_root(path);
        }
        match self {
            Self::Unrestricted => Self::Unrestricted,
            Self::Ruled(rules) => {
                let mut rules = Rules { folder: rules.path_of(name), ..rules.clone() };
                rules.only_tracked = verdict == GitStatus::OnlyTracked;
                rules.add_file_in(path);
                Self::Ruled(rules)
            }
        }
    }

    /// Returns how git treats the entry `name` of this folder. git doesn't treat a link as a folder.
    pub(super) fn git_status(&self, name: &[u8], is_folder: bool) -> GitStatus {
        match self {
            Self::Unrestricted => GitStatus::NotIgnored,
            Self::Ruled(rules) => rules.git_status(name, is_folder),
        }
    }
}

impl Rules {
    fn git_status(&self, name: &[u8], is_folder: bool) -> GitStatus {
        let path = self.path_of(name);
        let by_file = |(length, file): &(usize, Rc<IgnoreFile>)| file.ignores(&path[*length..], is_folder);
        let ignored = self.only_tracked || self.files.iter().rev().find_map(by_file) == Some(true);
        if !ignored || self.tracked.contains(&path) {
            GitStatus::NotIgnored
        } else if is_folder && self.tracked.has_below(&path) {
            GitStatus::OnlyTracked
        } else {
            GitStatus::Ignored
        }
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        if self.folder.is_empty() { name.to_owned() } else { [&self.folder, &b"/"[..], name].concat() }
    }

    /// Adds the rules of the folder's own `.gitignore`. Skips the file if it is a link or can't be read, as git does.
    fn add_file_in(&mut self, path: &Path) {
        let path = path.join(".gitignore");
        if !path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            return;
        }
        let file = IgnoreFile::parse(&fs::read(path).unwrap_or_default());
        if !file.is_empty() {
            let below = if self.folder.is_empty() { 0 } else { self.folder.len() + 1 };
            self.files.push((below, Rc::new(file)));
        }
    }
}

/// Returns the folder where git stores its own files for the repository with this root, or `None` if `root` isn't the
/// root of a repository. In worktrees and submodules, `.git` is a file that contains this folder's path.
fn git_folder(root: &Path) -> Option<PathBuf> {
    let git = root.join(".git");
    if git.join("HEAD").symlink_metadata().is_ok() {
        return Some(git);
    }
    let text = if git.is_file() { fs::read(&git).ok()? } else { return None };
    let path = std::str::from_utf8(text.strip_prefix(b"gitdir: ")?).ok()?;
    Some(root.join(path.trim_end_matches(['\n', '\r'])))
}
