//! Provides directory handles that open files without following links.
//! They protect pgfresh from users who replace a file with a link.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RawMode, RenameFlags, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::host;

/// Maximum depth to which `remove_tree` recurses. Deeper directories are first moved to the top.
const MAX_RECURSION: usize = 64;
/// Maximum number of attempts to remove a directory that another process is still writing to.
const MAX_ATTEMPTS: usize = 1000;

/// An open directory.
///
/// Methods take a single name and never follow a symbolic link, so a user who can write to the directory
/// can't redirect us to another file. They return an error if the name refers to a link or to an unexpected
/// kind of file.
#[derive(Debug)]
pub struct Directory(OwnedFd);

/// The kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket or a device.
    Other,
}

impl From<FileType> for FileKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Link,
            _ => Self::Other,
        }
    }
}

impl Directory {
    /// Opens the directory at `path`. Links in the parent directories are followed, but `path` itself must
    /// not be a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::open(path, Self::flags(), Mode::empty())?))
    }

    fn flags() -> OFlags {
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
    }

    /// Sets the directory's mode, regardless of the umask.
    #[allow(clippy::unnecessary_fallible_conversions, reason = "modes have 16 bits on macOS")]
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        let mode = RawMode::try_from(mode).map_err(io::Error::other)?;
        Ok(rustix::fs::fchmod(&self.0, Mode::from_raw_mode(mode))?)
    }

    /// Returns the uid of the directory's owner.
    pub fn owner(&self) -> io::Result<u32> {
        Ok(fstat(&self.0)?.st_uid)
    }

    /// Opens the subdirectory `name`.
    pub fn directory(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        Ok(Self(openat(&self.0, single_component(name.as_ref())?, Self::flags(), Mode::empty())?))
    }

    /// Creates and opens the subdirectory `name` with mode 0700.
    pub fn create_directory(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = single_component(name.as_ref())?;
        rustix::fs::mkdirat(&self.0, name, Mode::RWXU)?;
        self.directory(name)
    }

    /// Returns the kind of the entry `name` without opening it.
    pub fn kind(&self, name: impl AsRef<OsStr>) -> io::Result<FileKind> {
        let stat = statat(&self.0, single_component(name.as_ref())?, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(FileType::from_raw_mode(stat.st_mode).into())
    }

    /// Opens the regular file `name` for reading. If it turns out to be a FIFO or a terminal, opening it
    /// neither blocks nor acquires a controlling terminal.
    pub fn file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(&self.0, single_component(name.as_ref())?, flags, Mode::empty())?;
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(File::from(file)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
        }
    }

    /// Opens the regular file `name` for reading and writing. Returns an error if the file has more than
    /// one name (hard links), because changing it would then change the file under its other names.
    pub fn file_to_change(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(&self.0, single_component(name.as_ref())?, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if stat.st_nlink == 1 => Ok(File::from(file)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file with one name")),
        }
    }

    /// Returns the contents of the regular file `name`, up to `most` bytes.
    pub fn read(&self, name: impl AsRef<OsStr>, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(name)?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Creates the file `name` with mode 0600 and opens it for writing.
    pub fn create_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&self.0, single_component(name.as_ref())?, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(File::from(file))
    }

    /// Creates the file `name` with mode 0600 as a clone of `from`, and opens it
    /// for writing. The files share their blocks until one of them changes. Returns
    /// `None`, without creating a file, if the file systems don't support clones.
    ///
    /// # Errors
    /// Returns an error if `name` exists, or if the call fails for a reason other than missing
    /// support, for example because the disk is full. In that case, no new file remains.
    pub fn clone_file(&self, name: impl AsRef<OsStr>, from: &File) -> io::Result<Option<File>> {
        host::clone_file(from, self.0.as_fd(), single_component(name.as_ref())?)
    }

    /// Returns the names and kinds of all entries.
    pub fn entries(&self) -> io::Result<Vec<(OsString, FileKind)>> {
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if matches!(name.as_bytes(), b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => match self.kind(name) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    other => other?,
                },
                known => known.into(),
            };
            found.push((name.to_owned(), kind));
        }
        Ok(found)
    }

    /// Removes the entry `name` unless it is a directory. A missing entry isn't an error.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        ignore_missing(unlinkat(&self.0, single_component(name.as_ref())?, AtFlags::empty()))
    }

    /// Removes the entry `name`, including its contents if it is a directory. A missing entry isn't an
    /// error.
    ///
    /// If the mode of one of our directories denies access, it is changed first. The tree can have any depth.
    pub fn remove_tree(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = single_component(name.as_ref())?;
        for _ in 0..MAX_ATTEMPTS {
            match self.open_for_removal(name) {
                Err(Errno::NOENT) => return Ok(()),
                Err(Errno::NOTDIR | Errno::LOOP) => return self.remove_file(name),
                Err(error) => return Err(error.into()),
                Ok(folder) => folder.empty(&folder, 0)?,
            }
            match unlinkat(&self.0, name, AtFlags::REMOVEDIR) {
                // The directory isn't empty yet. Either a deep directory was moved here, or another process
                // wrote to this directory in the meantime.
                Err(Errno::NOTEMPTY) => {}
                other => return ignore_missing(other),
            }
        }
        Err(io::Error::other("another process still writes in it"))
    }

    /// Removes all entries, moving directories below depth [`MAX_RECURSION`] to `top` instead of descending
    /// into them.
    fn empty(&self, top: &Self, depth: usize) -> io::Result<()> {
        for (name, kind) in self.entries()? {
            if kind != FileKind::Directory {
                match unlinkat(&self.0, &name, AtFlags::empty()) {
                    // Another process just replaced the file with a directory. The caller's next pass will
                    // remove that directory. Linux returns EISDIR, and POSIX requires EPERM.
                    Err(Errno::ISDIR | Errno::PERM) if self.is_directory(&name) => {}
                    other => ignore_missing(other)?,
                }
                continue;
            }
            if depth == MAX_RECURSION {
                self.move_to_top(&name, top)?;
                continue;
            }
            match self.open_for_removal(&name) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(error) => return Err(error.into()),
                Ok(folder) => folder.empty(top, depth + 1)?,
            }
            match unlinkat(&self.0, &name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::NOTDIR) => {}
                other => ignore_missing(other)?,
            }
        }
        Ok(())
    }

    fn is_directory(&self, name: &OsStr) -> bool {
        self.kind(name).is_ok_and(|kind| kind == FileKind::Directory)
    }

    /// Moves the directory `name` into `top`, under an unused name.
    fn move_to_top(&self, name: &OsStr, top: &Self) -> io::Result<()> {
        for number in 0..MAX_ATTEMPTS {
            let free = format!("deep-{number}");
            match rustix::fs::renameat_with(&self.0, name, &top.0, free, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                other => return ignore_missing(other),
            }
        }
        Err(io::Error::other("its tree is too deep to be removed"))
    }

    /// Opens a subdirectory so that its contents can be removed, first adding the owner's permissions if they
    /// are missing.
    fn open_for_removal(&self, name: &OsStr) -> Result<Self, Errno> {
        let folder = match openat(&self.0, name, Self::flags(), Mode::empty()) {
            Err(Errno::ACCESS) => {
                set_mode_of_entry(&self.0, name, Mode::RWXU)?;
                openat(&self.0, name, Self::flags(), Mode::empty())?
            }
            other => other?,
        };
        let stat = fstat(&folder)?;
        let ours = stat.st_uid == rustix::process::geteuid().as_raw();
        if ours && !Mode::from_raw_mode(stat.st_mode).contains(Mode::RWXU) {
            rustix::fs::fchmod(&folder, Mode::RWXU)?;
        }
        Ok(Self(folder))
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns true if the error means that the file or directory is missing. Also true if a link is in its
/// place, or if one of its parents is a file.
#[must_use]
pub fn is_absent(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// Sets the mode of an entry, and fails if it is a link. Source: `fchmodat` in POSIX.1-2024. On Linux, rustix can't
/// pass the flag that forbids links.
#[allow(unsafe_code)]
fn set_mode_of_entry(directory: &OwnedFd, name: &OsStr, mode: Mode) -> Result<(), Errno> {
    let name = CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
    let mode = mode.as_raw_mode();
    // SAFETY: the call only reads the name, which ends with a zero byte and outlives the call.
    match unsafe { libc::fchmodat(directory.as_raw_fd(), name.as_ptr(), mode, libc::AT_SYMLINK_NOFOLLOW) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Treats a missing file as already removed.
fn ignore_missing(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}

/// Returns `name` if it is a single path component.
fn single_component(name: &OsStr) -> io::Result<&OsStr> {
    let mut steps = Path::new(name).components();
    match (steps.next(), steps.next()) {
        (Some(Component::Normal(step)), None) if step.len() == name.len() => Ok(name),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a name in a directory")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn fixture() -> (tempfile::TempDir, Directory) {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("outside/below")).unwrap();
        fs::write(directory.path().join("outside/file"), "theirs").unwrap();
        fs::create_dir(directory.path().join("inside")).unwrap();
        let inside = Directory::open(&directory.path().join("inside")).unwrap();
        (directory, inside)
    }

    #[test]
    fn directory_refuses_links_and_paths() {
        let (directory, inside) = fixture();
        let path = directory.path();
        symlink(path.join("outside"), path.join("inside/folder")).unwrap();
        symlink(path.join("outside/file"), path.join("inside/file")).unwrap();
        assert!(inside.directory("folder").is_err());
        assert!(inside.file("file").is_err());
        assert!(inside.create_file("file").is_err());
        assert!(inside.file_to_change("file").is_err());
        fs::hard_link(path.join("outside/file"), path.join("inside/second")).unwrap();
        assert!(inside.file_to_change("second").is_err());
        inside.remove_file("second").unwrap();
        assert!(Directory::open(&path.join("inside/folder")).is_err());
        for name in ["..", ".", "", "folder/below", "/", "folder/"] {
            assert_eq!(inside.directory(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name:?}");
        }
        inside.remove_tree("folder").unwrap();
        inside.remove_tree("file").unwrap();
        inside.remove_tree("nothing").unwrap();
        assert!(inside.entries().unwrap().is_empty());
        assert_eq!(fs::read_to_string(path.join("outside/file")).unwrap(), "theirs");
    }

    #[test]
    fn opening_fifo_fails_without_blocking() {
        let (directory, inside) = fixture();
        let made = std::process::Command::new("mkfifo").arg(directory.path().join("inside/fifo")).status();
        assert!(made.unwrap().success());
        assert_eq!(inside.file("fifo").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(inside.entries().unwrap(), [("fifo".into(), FileKind::Other)]);
    }

    #[test]
    fn read_stops_at_the_given_length() {
        let (_directory, inside) = fixture();
        io::Write::write_all(&mut inside.create_file("file").unwrap(), b"12345").unwrap();
        assert_eq!(inside.read("file", 3).unwrap(), b"123");
        assert_eq!(inside.read("file", 9).unwrap(), b"12345");
    }

    #[test]
    fn remove_tree_handles_inaccessible_and_deep_folders() {
        let (directory, inside) = fixture();
        let path = directory.path().join("inside");
        fs::create_dir_all(path.join("shut/shut")).unwrap();
        fs::write(path.join("shut/shut/file"), "").unwrap();
        for folder in ["shut/shut", "shut"] {
            fs::set_permissions(path.join(folder), fs::Permissions::from_mode(0o000)).unwrap();
        }
        let mut at = inside.create_directory("deep").unwrap();
        for _ in 0..3000 {
            at.create_file("file").unwrap();
            at = at.create_directory("deep-0").unwrap();
        }
        inside.remove_tree("shut").unwrap();
        inside.remove_tree("deep").unwrap();
        assert!(inside.entries().unwrap().is_empty());
    }
}
