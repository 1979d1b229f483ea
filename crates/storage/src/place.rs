//! Selects the place for a server's files: in RAM if the data fits, otherwise
//! on disk. It also records the reason, which pgfresh reports to the user.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sys::{Filesystem, FilesystemKind};

use crate::file_error::{Attempt, FileError};
use crate::{Account, human_bytes, private};

/// Number of bytes reserved for the server's own files, such as WAL, temporary files and a few databases.
const RESERVED_BYTES: u64 = 256 << 20;

/// Average file size to assume when a file system limits the number of files. For comparison, a new cluster
/// has 740 files with 26 MB, and a copy of its database has 300 files with 7 MB.
const BYTES_PER_FILE: u64 = 16 << 10;

/// Maximum length of a server file's path, in bytes: `MAXPGPATH` without the terminating zero. PostgreSQL
/// truncates a longer path and then opens the wrong file. Source: `src/include/pg_config_manual.h`.
const MAX_PATH_LENGTH: usize = 1023;
/// The longest path of a server file, relative to our directory. The eight digits stand for a random name.
const LONGEST_SERVER_PATH: &str = "/01234567/data/postgresql.auto.conf";

/// Reason for a place that the user chose.
const AS_ASKED: &str = "as asked";

/// The location the user requested for the servers' files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PlaceRequest {
    /// RAM if the data fits, otherwise disk.
    #[default]
    Auto,
    /// RAM, or an error if the data doesn't fit.
    Ram,
    /// Disk.
    Disk,
    /// This directory.
    At(PathBuf),
}

impl PlaceRequest {
    /// Like [`FromStr::from_str`], but also accepts paths that aren't valid UTF-8.
    ///
    /// # Errors
    /// Returns an error if the text is neither a place's name nor a path.
    pub fn from_os(text: &OsStr) -> Result<Self, ParsePlaceError> {
        match text.to_str() {
            None if text.as_encoded_bytes().contains(&b'/') => Ok(Self::At(text.into())),
            readable => readable.unwrap_or_default().parse(),
        }
    }
}

/// Error for a text that is neither a place's name nor a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected auto, ram, disk or a path with a \"/\" in it")]
pub struct ParsePlaceError;

impl FromStr for PlaceRequest {
    type Err = ParsePlaceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "ram" => Ok(Self::Ram),
            "disk" => Ok(Self::Disk),
            path if path.contains('/') => Ok(Self::At(path.into())),
            _ => Err(ParsePlaceError),
        }
    }
}

/// A directory that can contain run directories.
#[derive(Debug, Clone)]
pub struct Place {
    root: PathBuf,
    kind: FilesystemKind,
    budget: u64,
    why: String,
}

/// Reasons why no place could be found.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The user asked for RAM, but the data doesn't fit.
    #[error("cannot place {} in RAM: {why}", human_bytes(*.need))]
    NoRam {
        /// Number of bytes needed.
        need: u64,
        /// Why each candidate was rejected.
        why: String,
    },
    /// No directory on disk is suitable.
    #[error("cannot place {} on disk: {why}", human_bytes(*.need))]
    NoDisk {
        /// Number of bytes needed.
        need: u64,
        /// Why each candidate was rejected.
        why: String,
    },
    /// The directory the user chose isn't suitable.
    #[error("cannot place {} in \"{}\": {why}", human_bytes(*.need), path.display())]
    Unsuitable {
        /// Number of bytes needed.
        need: u64,
        /// The directory.
        path: PathBuf,
        /// Why the directory was rejected.
        why: String,
    },
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl PlaceError {
    /// Returns advice for the user, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoRam { .. } => Some(
                "Use place = \"auto\". In a container, enlarge /dev/shm with --shm-size, or mount a tmpfs with --tmpfs /tmp."
                    .to_owned(),
            ),
            Self::NoDisk { .. } | Self::Unsuitable { .. } => {
                Some("Use a directory with enough space and write permission: --place PATH, or place = \"PATH\".".to_owned())
            }
            Self::File(error) if error.kind() == io::ErrorKind::NotFound => {
                Some("Create the directory, or use a different one: --place PATH, or place = \"PATH\".".to_owned())
            }
            Self::File(error) => error.hint(),
        }
    }
}

impl Place {
    /// Selects a place that `account` can access, for copies of a template with `bytes`
    /// bytes. If the data has to go to disk, tries `disk` first: callers pass a directory
    /// next to the cache, because copies there can share blocks with the cache.
    ///
    /// RAM must have room for twice the template's size plus 256 MiB, given the limits of the file system,
    /// the machine and our control groups.
    ///
    /// # Errors
    /// Returns [`PlaceError::NoRam`] or [`PlaceError::NoDisk`] if no candidate has enough room,
    /// with a reason for each. Returns [`PlaceError::Unsuitable`] or [`PlaceError::File`] if
    /// the directory that the user chose doesn't have enough room or doesn't exist.
    pub fn choose(
        request: &PlaceRequest,
        bytes: u64,
        disk: &Path,
        account: &Account,
    ) -> Result<Self, PlaceError> {
        let need = bytes.saturating_mul(2).saturating_add(RESERVED_BYTES);
        match request {
            PlaceRequest::Ram => find_in_ram(need, account),
            PlaceRequest::Disk => find_on_disk(bytes, disk, account, AS_ASKED.to_owned()),
            PlaceRequest::Auto => match find_in_ram(need, account) {
                Err(PlaceError::NoRam { why, .. }) => find_on_disk(bytes, disk, account, why),
                found => found,
            },
            PlaceRequest::At(path) => {
                let path = path.canonicalize().attempt("use", path)?;
                let unfit = |why| PlaceError::Unsuitable { need: bytes, path: path.clone(), why };
                let room =
                    FreeSpace::in_directory(&path, account).map_err(|error| unfit(error.to_string()))?;
                if room.bytes < bytes {
                    return Err(unfit(format!("it has {} left", human_bytes(room.bytes))));
                }
                Ok(room.into_place(path.clone(), AS_ASKED.to_owned()))
            }
        }
    }

    /// Returns the directory that contains ours.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns whether the place is in memory or on disk.
    #[must_use]
    pub fn kind(&self) -> FilesystemKind {
        self.kind
    }

    /// Limits the budget of this place to `most` bytes. `None` leaves the budget unchanged.
    #[must_use]
    pub fn with_at_most(mut self, most: Option<u64>) -> Self {
        self.budget = most.map_or(self.budget, |most| most.min(self.budget));
        self
    }

    /// Returns the number of bytes that a server can write in this place.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Returns a one-line description of the place and why it was chosen.
    #[must_use]
    pub fn why(&self) -> String {
        let kind = match self.kind {
            FilesystemKind::Memory => "RAM",
            FilesystemKind::Disk => "disk",
        };
        format!("{kind} at \"{}\": {}", self.root.display(), self.why)
    }
}

/// Returns the directories that are usually on a tmpfs.
fn ram_candidates() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    ["/dev/shm".into()].into_iter().chain(runtime).chain(["/tmp".into()]).collect()
}

/// Returns every directory that [`Place::choose`] might have selected. A sweep has to search all of them.
pub(crate) fn candidates(disk: &Path) -> Vec<PathBuf> {
    let mut all = ram_candidates();
    all.extend([disk.to_owned(), "/var/tmp".into()]);
    all
}

fn find_in_ram(need: u64, account: &Account) -> Result<Place, PlaceError> {
    let mut reasons = Vec::new();
    for root in ram_candidates() {
        let room = FreeSpace::in_directory(&root, account);
        let room = room.map_err(|why| format!("\"{}\": {why}", root.display())).and_then(|room| {
            if room.kind == FilesystemKind::Disk {
                return Err(format!("\"{}\" is not a tmpfs", root.display()));
            }
            let shortage = room.shortage(need);
            shortage.map_or(Ok(room), |left| Err(format!("\"{}\" and memory have {left}", root.display())))
        });
        match room {
            Ok(room) => {
                let why = format!("{} free, {} wanted", human_bytes(room.bytes), human_bytes(need));
                return Ok(room.into_place(root, why));
            }
            Err(why) => reasons.push(why),
        }
    }
    Err(PlaceError::NoRam { need, why: reasons.join("; ") })
}

/// Finds a place on disk. `reason` says why pgfresh looks there.
fn find_on_disk(need: u64, disk: &Path, account: &Account, reason: String) -> Result<Place, PlaceError> {
    let mut reasons = Vec::new();
    for root in [disk, Path::new("/var/tmp"), Path::new("/tmp")] {
        let room = FreeSpace::in_directory(root, account);
        let room = room.map_err(|why| format!("\"{}\": {why}", root.display())).and_then(|room| {
            let shortage = room.shortage(need.saturating_add(RESERVED_BYTES / 4));
            shortage.map_or(Ok(room), |left| Err(format!("\"{}\" has {left}", root.display())))
        });
        match room {
            Ok(room) => return Ok(room.into_place(root.to_owned(), reason)),
            Err(why) => reasons.push(why),
        }
    }
    Err(PlaceError::NoDisk { need, why: reasons.join("; ") })
}

/// Reasons why a directory can't contain run directories.
#[derive(Debug, thiserror::Error)]
enum UnusableDirectory {
    #[error("its path is not UTF-8")]
    NotUtf8,
    #[error("it is a file, not a directory")]
    File,
    #[error("the server's account (uid {0}) cannot enter it")]
    Unreachable(u32),
    #[error("its path has {length} bytes, and PostgreSQL allows at most {most}")]
    LongPath { length: usize, most: usize },
    #[error(transparent)]
    Io(#[from] io::Error),
    /// pgfresh's own directory in this location can't be used.
    #[error(transparent)]
    Ours(#[from] FileError),
}

/// The free space in a directory.
#[derive(Debug, Clone, Copy)]
struct FreeSpace {
    kind: FilesystemKind,
    /// Number of bytes that can be written to the directory.
    bytes: u64,
    /// Number of files that the file system has room for.
    files: u64,
}

impl FreeSpace {
    /// Measures the free space in `root`.
    fn in_directory(root: &Path, account: &Account) -> Result<Self, UnusableDirectory> {
        // The path must be UTF-8, because it appears in PostgreSQL's settings and in the clients' URLs.
        root.to_str().ok_or(UnusableDirectory::NotUtf8)?;
        let filesystem = Filesystem::of(root)?;
        if !root.is_dir() {
            return Err(UnusableDirectory::File);
        }
        sys::expect_usable(root)?;
        if !account.can_reach(root) {
            return Err(UnusableDirectory::Unreachable(account.uid));
        }
        let ours = root.join(format!("pgfresh-{}", sys::user()));
        let length = |path: &Path| path.as_os_str().len();
        let most = MAX_PATH_LENGTH - LONGEST_SERVER_PATH.len() - (length(&ours) - length(root));
        if length(root) > most {
            return Err(UnusableDirectory::LongPath { length: length(root), most });
        }
        // Only check our directory here, without creating it yet. Otherwise, a process that dies now would
        // leave it behind.
        private::ensure_existing(&ours)?;
        let bytes = match filesystem.kind {
            FilesystemKind::Disk => filesystem.free,
            FilesystemKind::Memory => filesystem.free.min(sys::available_memory(Path::new("/"))?),
        };
        Ok(Self { kind: filesystem.kind, bytes, files: filesystem.free_files })
    }

    /// Returns a description of the free space if it is insufficient for `need` bytes in files of average
    /// size.
    fn shortage(&self, need: u64) -> Option<String> {
        let files = need / BYTES_PER_FILE;
        if self.bytes < need {
            return Some(format!("{} left, {} wanted", human_bytes(self.bytes), human_bytes(need)));
        }
        (self.files < files).then(|| format!("inodes for {} files left, {files} wanted", self.files))
    }

    /// Turns `root` into a place. The budget also accounts for how many more files the file system can hold.
    fn into_place(self, root: PathBuf, why: String) -> Place {
        let budget = self.bytes.min(self.files.saturating_mul(BYTES_PER_FILE));
        Place { root, kind: self.kind, budget, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_request_is_refused_naming_every_candidate() {
        let directory = tempfile::tempdir().unwrap();
        let error = Place::choose(&PlaceRequest::Ram, u64::MAX / 4, directory.path(), &Account::ours())
            .unwrap_err()
            .to_string();
        assert!(error.contains("\"/dev/shm\""), "{error}");
        let error = Place::choose(&PlaceRequest::Auto, u64::MAX / 4, directory.path(), &Account::ours())
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("cannot place") && error.contains("/var/tmp"), "{error}");
    }

    #[test]
    fn explicit_place_is_used_or_refused_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let request: PlaceRequest = directory.path().to_str().unwrap().parse().unwrap();
        let place = Place::choose(&request, 1000, Path::new("/nowhere"), &Account::ours()).unwrap();
        assert_eq!(place.root(), directory.path().canonicalize().unwrap());
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = Place::choose(&PlaceRequest::At(file), 1000, Path::new("/nowhere"), &Account::ours());
        assert!(error.unwrap_err().to_string().ends_with("/file\": it is a file, not a directory"));
        let mut deep = directory.path().to_owned();
        while deep.as_os_str().len() < MAX_PATH_LENGTH {
            deep.push("x".repeat(100));
        }
        std::fs::create_dir_all(&deep).unwrap();
        let length = deep.as_os_str().len();
        let error = Place::choose(&PlaceRequest::At(deep), 1000, Path::new("/nowhere"), &Account::ours());
        let expected = format!(": its path has {length} bytes, and PostgreSQL allows at most 9");
        assert!(error.unwrap_err().to_string().contains(&expected));
        let missing = PlaceRequest::At(directory.path().join("missing"));
        assert!(Place::choose(&missing, 1000, Path::new("/nowhere"), &Account::ours()).is_err());
        assert_eq!("tmp".parse::<PlaceRequest>(), Err(ParsePlaceError));
    }
}
