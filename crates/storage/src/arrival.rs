//! Taking in what was carried here: nothing is believed, no link followed, and no more read than was announced.
//!
//! Everything is opened relative to the directory above it, so that what is examined is what is read, whatever somebody
//! puts there meanwhile.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, statat};

use crate::attempt::Attempt;
use crate::cache::CacheError;
use crate::manifest::Manifest;
use crate::publish;

/// The longest manifest or description that is read, in bytes: that of some 300 000 files.
const LONGEST_TEXT: u64 = 64 << 20;

/// A carried entry that has not been looked at yet.
pub(crate) struct Arrival<'a> {
    folder: &'a Path,
    root: OwnedFd,
}

fn unfit(path: &Path, what: &'static str) -> CacheError {
    CacheError::Unfit { path: path.to_owned(), what }
}

impl<'a> Arrival<'a> {
    pub(crate) fn open(folder: &'a Path) -> Result<Self, CacheError> {
        Ok(Self { folder, root: open_folder(CWD, folder, folder)? })
    }

    /// What its manifest says, which is nothing but a promise.
    pub(crate) fn manifest(&self) -> Result<Manifest, CacheError> {
        let path = self.folder.join("manifest");
        let said = Manifest::parse(&self.text("manifest")?).ok_or_else(|| unfit(&path, "it is damaged"))?;
        if said.names_each_path_once() { Ok(said) } else { Err(unfit(&path, "it contradicts itself")) }
    }

    /// The text of one of its own files.
    pub(crate) fn text(&self, name: &str) -> Result<String, CacheError> {
        let path = self.folder.join(name);
        let mut text = String::new();
        let file = open_file(&self.root, name, &path)?;
        let read = file.take(LONGEST_TEXT + 1).read_to_string(&mut text);
        if read.attempt("read", &path)? as u64 > LONGEST_TEXT {
            return Err(unfit(&path, "it is too long"));
        }
        Ok(text)
    }

    /// Copies its files to `staging`, each of which must be as `said`, and none else may be there.
    pub(crate) fn stage(&self, said: &Manifest, staging: &Path) -> Result<Manifest, CacheError> {
        let (from, to) = (self.folder.join("data"), staging.join("data"));
        let make = |path: &Path| {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(path).attempt("create", path)
        };
        make(&to)?;
        let free = sys::Filesystem::of(staging).attempt("examine", staging)?.free;
        if said.bytes() > free {
            return Err(unfit(self.folder, "it is larger than what the cache's file system has left"));
        }
        // In the order of the manifest, as its folder_of counts: what is in `data` itself comes last.
        let top = open_folder(&self.root, Path::new("data"), &from)?;
        let mut folders: Vec<OwnedFd> = Vec::with_capacity(said.directories.len() + 1);
        for path in &said.directories {
            let (above, name) = said.folder_of(path).ok_or_else(|| unfit(&from, "it is no tree"))?;
            let above = folders.get(above).unwrap_or(&top);
            let folder = open_folder(above, Path::new(name), &from.join(path))?;
            folders.push(folder);
            make(&to.join(path))?;
        }
        folders.push(top);
        expect_no_other(said, &folders, &from)?;
        let mut found = Manifest { directories: said.directories.clone(), files: Vec::new() };
        for file in &said.files {
            let path = from.join(&file.path);
            let (folder, name) =
                said.folder_of(&file.path).ok_or_else(|| unfit(&path, "it is in no folder"))?;
            let source = open_file(&folders[folder], name, &path)?;
            let mut source = source.take(file.size.saturating_add(1));
            let copied = publish::take_in(&mut source, &path, file.path.clone(), &to)?;
            if (copied.size, copied.digest) != (file.size, file.digest) {
                return Err(unfit(&path, "it is not as its manifest says"));
            }
            found.files.push(copied);
        }
        Ok(found)
    }
}

/// Opens a directory, and nothing else.
fn open_folder(above: impl AsFd, name: &Path, path: &Path) -> Result<OwnedFd, CacheError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(above, name, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => Err(unfit(path, "it is no directory")),
        other => Ok(other.attempt("open", path)?),
    }
}

/// Opens a regular file, and nothing else: not even to look at it, where that would wait (a pipe) or do something (a
/// device).
fn open_file(above: impl AsFd, name: &str, path: &Path) -> Result<fs::File, CacheError> {
    let regular = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
    let stat = statat(&above, name, AtFlags::SYMLINK_NOFOLLOW).attempt("open", path)?;
    if !regular(stat.st_mode) {
        return Err(unfit(path, "it is no regular file"));
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(&above, name, flags, Mode::empty()).attempt("open", path)?;
    // Somebody may have put another thing there since.
    if !regular(fstat(&file).attempt("examine", path)?.st_mode) {
        return Err(unfit(path, "it is no regular file"));
    }
    Ok(file.into())
}

/// Makes sure that nothing is in the `folders` but what the manifest names.
fn expect_no_other(said: &Manifest, folders: &[OwnedFd], from: &Path) -> Result<(), CacheError> {
    let paths = said.directories.iter().chain(said.files.iter().map(|file| &file.path));
    let known: HashSet<_> = paths.filter_map(|path| said.folder_of(path)).collect();
    for (number, folder) in folders.iter().enumerate() {
        let path = said.directories.get(number).map_or(from.to_owned(), |path| from.join(path));
        for entry in Dir::read_from(folder).attempt("read", &path)? {
            let entry = entry.attempt("read", &path)?;
            let name = entry.file_name().to_string_lossy();
            if !matches!(&*name, "." | "..") && !known.contains(&(number, &*name)) {
                return Err(unfit(&path.join(&*name), "it is not in the manifest"));
            }
        }
    }
    Ok(())
}
