//! Gives relation files the same sizes as in production. The files are sparse, so they take almost no space.
//!
//! PostgreSQL splits a relation into segments of 1 GB: `16385`, `16385.1` and so on. A hole reads as zeros, and a page
//! of zeros is a valid empty page. The server's account can write to these directories, and must not be able to
//! redirect pgfresh. pgfresh therefore opens files relative to directory handles, never follows links, and rejects
//! files with several names.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use storage::{Account, Attempt};
use sys::Directory;

use super::error::ScratchError;
use super::pages::{self, PAGE};

/// Maximum total size of all files: 100 TB. Each GB needs a file.
const MOST: u64 = 100_000_000_000_000;
/// Size of the file that tests whether the file system supports holes.
const PROBE_SIZE: u64 = 16 << 20;
/// Maximum disk space that a new sparse file may take, in bytes.
const MOST_SPACE: u64 = 1 << 20;
/// Name of the file that tests for holes.
const PROBE: &str = "pgfresh-probe";

/// New size and contents of a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resize {
    /// Path of the first segment, relative to the data directory.
    pub(super) path: String,
    /// New page count.
    pub(super) pages: u32,
    /// New contents of the first segment.
    pub(super) contents: Contents,
}

/// New contents of a relation's first segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contents {
    /// Only zeros, for a table.
    Zeros,
    /// A B-tree without rows, but with a height.
    Tree {
        /// Number of levels above the leaf page. `None` for a tree that has never had a row.
        height: Option<u32>,
    },
    /// A BRIN index.
    Ranges {
        /// Page count of the table.
        table_pages: u32,
    },
    /// The existing contents.
    Kept,
}

/// The data directory of a server, for changing relation files.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    root: Directory,
    account: Account,
    /// Number of pages in a segment.
    segment: u32,
    open: HashMap<String, Directory>,
}

impl Files {
    /// Opens the data directory of a server that runs under `account`. `segment` is the number of pages in a segment.
    pub(super) fn open(data: &Path, account: &Account, segment: u32) -> Result<Self, ScratchError> {
        let root = Directory::open(data).attempt("open", data)?;
        Ok(Self { path: data.to_owned(), root, account: account.clone(), segment, open: HashMap::new() })
    }

    /// Checks that the file system can hold sparse files with a total size of `bytes` bytes.
    pub(super) fn expect_holes(&self, bytes: u64) -> Result<(), ScratchError> {
        if bytes > MOST {
            return Err(ScratchError::TooLarge { bytes, most: MOST });
        }
        let largest = bytes.min(u64::from(self.segment) * PAGE as u64).max(PROBE_SIZE);
        if let Some(limit) = sys::file_size_limit().filter(|limit| *limit < largest) {
            return Err(ScratchError::FileSize { limit });
        }
        let path = self.path.join(PROBE);
        self.root.remove_file(PROBE).attempt("remove", &path)?;
        let probe = self.root.create_file(PROBE).attempt("create", &path)?;
        let is_sparse = probe.set_len(PROBE_SIZE).and_then(|()| Ok(space(&probe)? <= MOST_SPACE));
        self.root.remove_file(PROBE).attempt("remove", &path)?;
        if is_sparse.attempt("extend", &path)? { Ok(()) } else { Err(self.no_holes()) }
    }

    fn no_holes(&self) -> ScratchError {
        ScratchError::NoHoles { path: self.path.clone() }
    }

    /// Changes the files of a relation. No process may have the files open, unless the relation is a table.
    pub(super) fn resize(&mut self, resize: &Resize) -> Result<(), ScratchError> {
        let path = self.path.join(&resize.path);
        let (folder, name) = resize.path.rsplit_once('/').unwrap_or(("", &resize.path));
        self.enter(folder).attempt("open", &path)?;
        let (segment, account) = (self.segment, &self.account);
        let directory = &self.open[folder];
        let count = resize.pages.div_ceil(segment).max(1);
        let size = |number: u32| {
            let pages = resize.pages.saturating_sub(number.saturating_mul(segment)).min(segment);
            u64::from(pages) * PAGE as u64
        };
        let first = directory.file_to_change(name).attempt("open", &path)?;
        let written = fill(&first, size(0), resize.contents).attempt("extend", &path)?;
        for number in 1..count {
            let name = format!("{name}.{number}");
            directory.remove_file(&name).attempt("remove", &path)?;
            let file = directory.create_file(&name).attempt("create", &path)?;
            account.change_owner(&file).attempt("change the owner of", &path)?;
            let is_sparse = file.set_len(size(number)).and_then(|()| Ok(space(&file)? <= MOST_SPACE));
            if !is_sparse.attempt("extend", &path)? {
                return Err(self.no_holes());
            }
        }
        remove_segments(directory, name, count).attempt("remove", &path)?;
        let is_sparse = space(&first).attempt("examine", &path)? <= written + MOST_SPACE;
        if is_sparse { Ok(()) } else { Err(self.no_holes()) }
    }

    /// Opens a directory below the data directory, one path component at a time.
    fn enter(&mut self, folder: &str) -> io::Result<()> {
        if !self.open.contains_key(folder) {
            let mut directory: Option<Directory> = None;
            for step in folder.split('/') {
                directory = Some(directory.as_ref().unwrap_or(&self.root).directory(step)?);
            }
            let directory = directory.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
            self.open.insert(folder.to_owned(), directory);
        }
        Ok(())
    }
}

/// Writes the first segment's contents and sets its size. Returns how much disk space the contents may take, in bytes.
fn fill(file: &File, size: u64, contents: Contents) -> io::Result<u64> {
    let mut metapage = vec![0; PAGE];
    match contents {
        Contents::Kept => {
            let kept = space(file)?;
            file.set_len(size.max(PAGE as u64))?;
            return Ok(kept);
        }
        Contents::Zeros => file.set_len(0)?,
        Contents::Ranges { table_pages } => {
            file.read_exact_at(&mut metapage, 0)?;
            if pages::size_map(&mut metapage, table_pages) {
                file.write_all_at(&metapage, 0)?;
            }
            let kept = space(file)?;
            file.set_len(size.max(PAGE as u64))?;
            return Ok(kept);
        }
        Contents::Tree { height } => {
            file.read_exact_at(&mut metapage, 0)?;
            if !pages::point_to_tree(&mut metapage, height) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a B-tree"));
            }
            file.set_len(0)?;
            file.write_all_at(&metapage, 0)?;
            let tree = height.map_or_else(Vec::new, pages::tree);
            file.write_all_at(&tree, PAGE as u64)?;
            let least = (tree.len() + PAGE) as u64;
            file.set_len(size.max(least))?;
            return Ok(least);
        }
    }
    file.set_len(size)?;
    Ok(0)
}

/// Removes the segments with number `first` and higher.
fn remove_segments(directory: &Directory, name: &str, first: u32) -> io::Result<()> {
    for number in first.. {
        let name = format!("{name}.{number}");
        match directory.kind(&name) {
            Err(error) if sys::is_absent(&error) => break,
            other => other?,
        };
        directory.remove_file(&name)?;
    }
    Ok(())
}

/// Returns the disk space that a file takes, in bytes.
fn space(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.blocks() * 512)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn fixture() -> (tempfile::TempDir, Files) {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("base/5")).unwrap();
        let files = Files::open(directory.path(), &Account::ours(), 4).unwrap();
        (directory, files)
    }

    fn resize(path: &str, pages: u32, contents: Contents) -> Resize {
        Resize { path: path.to_owned(), pages, contents }
    }

    #[test]
    fn table_gets_segments_without_space() {
        let (directory, mut files) = fixture();
        let path = |name: &str| directory.path().join("base/5").join(name);
        fs::write(path("7"), vec![1; 3 * PAGE]).unwrap();
        files.expect_holes(1 << 30).unwrap();
        files.resize(&resize("base/5/7", 9, Contents::Zeros)).unwrap();
        let sizes = ["7", "7.1", "7.2"].map(|name| fs::metadata(path(name)).unwrap().len() / PAGE as u64);
        assert_eq!(sizes, [4, 4, 1]);
        assert!(fs::read(path("7")).unwrap().iter().all(|byte| *byte == 0));
        files.resize(&resize("base/5/7", 2, Contents::Zeros)).unwrap();
        assert!(!path("7.1").exists() && !path("7.2").exists());
        assert!(matches!(files.expect_holes(MOST + 1), Err(ScratchError::TooLarge { .. })));
    }

    #[test]
    fn links_and_second_names_are_refused() {
        let (directory, mut files) = fixture();
        let outside = directory.path().join("outside");
        fs::write(&outside, "theirs").unwrap();
        symlink(&outside, directory.path().join("base/5/1")).unwrap();
        fs::hard_link(&outside, directory.path().join("base/5/2")).unwrap();
        fs::create_dir(directory.path().join("elsewhere")).unwrap();
        fs::write(directory.path().join("elsewhere/3"), "theirs").unwrap();
        symlink(directory.path().join("elsewhere"), directory.path().join("base/6")).unwrap();
        for path in ["base/5/1", "base/5/2", "base/6/3", "../outside", "/etc/passwd"] {
            assert!(files.resize(&resize(path, 1, Contents::Zeros)).is_err(), "{path}");
        }
        assert_eq!(fs::read_to_string(&outside).unwrap(), "theirs");
    }
}
