//! The files that a template is made from: found by globs, digested, and remembered while they stay as they are.
//!
//! A digest is taken from the cache's note only if size, both times and inode are what they were, and the file had
//! been left alone for [`SETTLED`] when it was noted: a second write within one tick of a file system's clock would
//! change bytes without changing times.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use globset::{GlobBuilder, GlobMatcher};
use ignore::WalkBuilder;
use serde::{Deserialize, Serialize};
use storage::{Attempt, Cache, FileError};

/// How long a file must have been left alone; file systems count time in steps of up to 2 s (FAT).
const SETTLED: Duration = Duration::from_millis(2500);
/// What changes while nothing that matters does, whatever `.gitignore` says.
const NEVER: [&str; 3] = ["__pycache__", "node_modules", ".git"];

/// Why there is no list of inputs.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A pattern is none.
    #[error("cannot read pattern \"{pattern}\": {why}")]
    Pattern {
        /// As it was given.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// A pattern matches nothing.
    #[error("no file matches \"{pattern}\" in \"{}\"", folder.display())]
    Nothing {
        /// As it was given.
        pattern: String,
        /// Where we looked.
        folder: PathBuf,
    },
    /// A directory cannot be read.
    #[error("could not look for \"{pattern}\": {why}")]
    Walk {
        /// As it was given.
        pattern: String,
        /// Which, and what happened.
        why: String,
    },
    /// A directory is no dump.
    #[error("cannot restore \"{dump}\": there is no toc.dat in this directory")]
    NoDump {
        /// As it was given.
        dump: String,
    },
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}

impl InputError {
    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Pattern { .. } => {
                Some("Name files as in \"db/*.sql\": \"*\" stands for part of a name, \"**\" for any folders, {a,b} for either.".to_owned())
            }
            Self::Nothing { .. } => Some(
                "Hidden files and those that .gitignore names are matched only by their full names. \
                 Correct the pattern or leave it out."
                    .to_owned(),
            ),
            Self::NoDump { .. } => Some("Name a file or a directory that pg_dump wrote.".to_owned()),
            Self::Walk { .. } => None,
            Self::File(error) => error.hint(),
        }
    }
}

/// The files that `patterns` stand for, in order of pattern and then of name, relative to `folder`.
pub(crate) fn expand(folder: &Path, patterns: &[String]) -> Result<Vec<String>, InputError> {
    let mut all = Vec::new();
    for pattern in patterns {
        let found = expand_one(folder, pattern)?;
        if found.is_empty() {
            return Err(InputError::Nothing { pattern: pattern.clone(), folder: folder.to_owned() });
        }
        all.extend(found);
    }
    Ok(all)
}

fn expand_one(folder: &Path, pattern: &str) -> Result<BTreeSet<String>, InputError> {
    let bad = |why: &str| InputError::Pattern { pattern: pattern.to_owned(), why: why.to_owned() };
    let plain: PathBuf = Path::new(pattern).components().filter(|part| *part != Component::CurDir).collect();
    let why = if pattern.is_empty() { "it is empty" } else { "it is the whole folder" };
    let plain = plain.to_str().filter(|plain| !plain.is_empty()).ok_or_else(|| bad(why))?;
    let literal = !plain.contains(['*', '?', '[', '{', '\\']);
    let start = if literal { plain } else { literal_folder(plain) };
    if literal && folder.join(plain).is_file() {
        return Ok([plain.to_owned()].into());
    }
    let glob = if literal { format!("{}/**", globset::escape(plain)) } else { plain.to_owned() };
    let glob = GlobBuilder::new(&glob).literal_separator(true).build();
    let glob = glob.map_err(|error| bad(&error.kind().to_string()))?.compile_matcher();
    let root = folder.join(start);
    if !root.exists() {
        return Ok(BTreeSet::new());
    }
    let cannot =
        |error: ignore::Error| InputError::Walk { pattern: pattern.to_owned(), why: in_words(&error) };
    walk(folder, &root, &glob).map_err(cannot)
}

/// What went wrong on the way through directories. The crate's own words name the directory twice.
fn in_words(error: &ignore::Error) -> String {
    let cause = error.io_error().and_then(io::Error::get_ref).and_then(|cause| cause.source());
    match (error, cause) {
        (ignore::Error::WithPath { path, .. }, Some(cause)) => {
            format!("could not read \"{}\": {cause}", path.display())
        }
        _ => error.to_string(),
    }
}

/// The folders before the first part with a special character in it.
fn literal_folder(pattern: &str) -> &str {
    let special = pattern.find(['*', '?', '[', '{', '\\']).unwrap_or(pattern.len());
    pattern[..special].rfind('/').map_or("", |slash| &pattern[..slash.max(1)])
}

/// What lies under `root` and matches, as paths from `folder`.
fn walk(folder: &Path, root: &Path, glob: &GlobMatcher) -> Result<BTreeSet<String>, ignore::Error> {
    // Nothing of this machine's or user's own decides; only what travels with the files.
    let walk = WalkBuilder::new(root)
        .follow_links(true)
        .require_git(false)
        .git_global(false)
        .git_exclude(false)
        .filter_entry(|entry| !NEVER.iter().any(|name| entry.file_name() == *name))
        .build();
    let mut found = BTreeSet::new();
    for entry in walk {
        let entry = entry?;
        if entry.file_type().is_some_and(|kind| kind.is_file()) {
            let path = entry.path();
            let path = path.strip_prefix(folder).unwrap_or(path);
            if glob.is_match(path) {
                found.insert(path.to_string_lossy().into_owned());
            }
        }
    }
    Ok(found)
}

/// What tells that a file is the one it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    bytes: u64,
    inode: u64,
    /// Nanoseconds since 1970.
    modified: i64,
    /// The same, of the last change of anything; no process can set it back.
    changed: i64,
}

/// Digests by path.
type Note = HashMap<String, (Stamp, String)>;

/// The BLAKE3 digest of each of `files` in `folder`, in hex. A directory has those of all that is in it.
pub(crate) fn digest(
    folder: &Path,
    files: &[String],
    cache: &Cache,
) -> Result<BTreeMap<String, String>, InputError> {
    let name = format!("inputs-1-{}", &blake3::hash(folder.as_os_str().as_encoded_bytes()).to_hex()[..24]);
    let old: Note = cache.recall(&name).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let now = nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    let settled = now.saturating_sub(nanoseconds(SETTLED));
    let (mut digests, mut fresh) = (BTreeMap::new(), Note::new());
    for file in files {
        let path = folder.join(file);
        let stamp = stamp(&path)?;
        let digest = match old.get(file) {
            Some((known, digest)) if *known == stamp => digest.clone(),
            _ => {
                let digest = hash(&path)?;
                if stamp.changed.max(stamp.modified) < settled {
                    fresh.insert(file.clone(), (stamp, digest.clone()));
                }
                digest
            }
        };
        digests.insert(file.clone(), digest);
    }
    if !fresh.is_empty() {
        // Other templates of the folder have their files in the same note; what is gone is dropped.
        let mut note = old;
        note.retain(|file, _| digests.contains_key(file) || folder.join(file).exists());
        note.extend(fresh);
        if let Ok(text) = serde_json::to_string(&note) {
            cache.remember(&name, &text)?;
        }
    }
    Ok(digests)
}

fn stamp(path: &Path) -> Result<Stamp, FileError> {
    let meta = fs::metadata(path).attempt("examine", path)?;
    let time = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
    Ok(Stamp {
        bytes: meta.size(),
        inode: meta.ino(),
        modified: time(meta.mtime(), meta.mtime_nsec()),
        changed: time(meta.ctime(), meta.ctime_nsec()),
    })
}

fn hash(path: &Path) -> Result<String, FileError> {
    let read = || -> io::Result<_> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(File::open(path)?)?;
        Ok(hasher.finalize().to_string())
    };
    read().attempt("read", path)
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    fn project() -> tempfile::TempDir {
        let project = tempfile::tempdir().unwrap();
        for path in ["migrations/0001.sql", "migrations/sub/0002.sql", "migrations/notes.txt", "top.ini"] {
            put(project.path(), path, path);
        }
        project
    }

    fn put(folder: &Path, path: &str, text: &str) {
        fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
        fs::write(folder.join(path), text).unwrap();
    }

    fn found(project: &Path, patterns: &[&str]) -> Vec<String> {
        expand(project, &patterns.iter().map(|&pattern| pattern.to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn patterns_find_what_they_say_and_nothing_is_an_error() {
        let project = project();
        let all = ["migrations/0001.sql", "migrations/notes.txt", "migrations/sub/0002.sql"];
        for pattern in ["migrations/**", "./migrations/**", "migrations", "migrations/", "m*/**"] {
            assert_eq!(found(project.path(), &[pattern]), all, "{pattern}");
        }
        assert_eq!(found(project.path(), &["migrations/*.sql"]), ["migrations/0001.sql"]);
        assert_eq!(found(project.path(), &["**/*.sql"]), [all[0], all[2]]);
        assert_eq!(found(project.path(), &["top.ini", "*/0001.sql"]), ["top.ini", all[0]]);
        assert_eq!(found(&project.path().join("migrations"), &["../top.ini"]), ["../top.ini"]);
        let closed = project.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        if fs::read_dir(&closed).is_err() {
            let error = expand(project.path(), &["closed".to_owned()]).unwrap_err().to_string();
            let closed = closed.display();
            let expected =
                format!("could not look for \"closed\": could not read \"{closed}\": Permission denied");
            assert!(error.starts_with(&expected), "{error}");
        }
        for pattern in ["migratoins/**", "*.py", "absent.sql"] {
            let error = expand(project.path(), &["top.ini".to_owned(), pattern.to_owned()]).unwrap_err();
            assert!(matches!(error, InputError::Nothing { .. }), "{pattern}: {error}");
        }
        assert!(matches!(expand(project.path(), &["a[".to_owned()]), Err(InputError::Pattern { .. })));
        assert!(matches!(expand(project.path(), &[String::new()]), Err(InputError::Pattern { .. })));
    }

    #[test]
    fn what_git_does_not_keep_is_matched_by_its_full_name_only() {
        let project = project();
        put(project.path(), ".gitignore", "made.sql\n");
        for path in ["migrations/made.sql", "migrations/.0001.sql.swp", "migrations/__pycache__/x.sql"] {
            put(project.path(), path, "");
        }
        assert_eq!(found(project.path(), &["migrations/*.sql"]), ["migrations/0001.sql"]);
        assert_eq!(found(project.path(), &["migrations/made.sql"]), ["migrations/made.sql"]);
        assert_eq!(found(project.path(), &["migrations/**"]).len(), 3);
    }

    #[test]
    fn a_digest_is_remembered_only_of_what_has_settled_and_forgotten_at_any_change() {
        let project = project();
        let cache = Cache::locate(Some(&project.path().join("cache"))).unwrap();
        let file = ["top.ini".to_owned()];
        let digest = || digest(project.path(), &file, &cache).unwrap()["top.ini"].clone();
        let notes = || fs::read_dir(cache.root().join("notes")).map_or(0, Iterator::count);
        let path = project.path().join("top.ini");
        let first = digest();
        assert_eq!(notes(), 0, "written just now: not to be trusted");
        std::thread::sleep(SETTLED);
        assert_eq!((digest(), notes()), (first.clone(), 1));
        assert_eq!(digest(), first);
        // The same size and time: only the time of the change tells.
        let time = path.metadata().unwrap().modified().unwrap();
        put(project.path(), "top.ini", "TOP.INI");
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        assert_ne!(digest(), first);
    }

    proptest! {
        #[test]
        fn the_order_of_globs_does_not_change_what_goes_in(
            patterns in prop::sample::subsequence(vec!["migrations/*.sql", "**/*.sql", "top.ini", "migrations"], 1..4)
                .prop_shuffle(),
        ) {
            let project = project();
            let cache = Cache::locate(Some(&project.path().join("cache"))).unwrap();
            let mut sorted = patterns.clone();
            sorted.sort_unstable();
            let of = |patterns: &[&str]| digest(project.path(), &found(project.path(), patterns), &cache).unwrap();
            prop_assert_eq!(of(&patterns), of(&sorted));
        }
    }
}
