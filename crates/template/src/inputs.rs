//! Finds a template's input files and computes their digests, because a changed input must lead to a new template.
//! Patterns select the files.
//!
//! Digests of unchanged files come from a note, a small file in the cache. For each digest, the note
//! stores the file's size, modification time, change time and inode. As long as none of these change,
//! pgfresh uses the stored digest. However, two writes within one tick of the file system's clock
//! leave the same times. The note therefore omits files written less than [`MIN_AGE_OF_CHANGE`] ago.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use globset::GlobBuilder;
use serde::{Deserialize, Serialize};
use storage::{Attempt, Cache, FileError};

use search::{Found, Search};

#[cfg(test)]
mod against_git;
mod git_index;
mod ignore_file;
mod repository;
mod search;

pub(crate) use search::Skipped;

/// A file's digest is stored in the note only if its last change is at least this old. Some file systems count time in
/// steps of up to 2 s (FAT, for example).
const MIN_AGE_OF_CHANGE: Duration = Duration::from_millis(2500);

/// Reasons why pgfresh couldn't list the inputs.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A pattern has invalid syntax.
    #[error("cannot read pattern \"{pattern}\": {why}")]
    Pattern {
        /// The user's pattern.
        pattern: String,
        /// Explanation of the syntax error.
        why: String,
    },
    /// A pattern doesn't match any file.
    #[error("no file matches \"{pattern}\" in \"{}\"", folder.display())]
    Nothing {
        /// The user's pattern.
        pattern: String,
        /// Folder where the search began.
        folder: PathBuf,
    },
    /// A link's target doesn't exist, and pgfresh can't skip the link because a pattern spells out its full path or
    /// because it is in the list of SQL files.
    #[error("could not read \"{}\": it is a link to \"{}\", which does not exist", link.display(), target.display())]
    DanglingLink {
        /// Path of the link.
        link: PathBuf,
        /// Target of the link.
        target: PathBuf,
    },
    /// The path of a matching file isn't valid UTF-8.
    #[error("cannot use {path:?}: its name is not valid UTF-8")]
    Name {
        /// Path of the file.
        path: PathBuf,
    },
    /// A directory doesn't contain a dump.
    #[error("cannot restore \"{dump}\": there is no toc.dat in this directory")]
    NoDump {
        /// The user's value.
        dump: String,
    },
    /// A file can't be read.
    #[error(transparent)]
    File(#[from] FileError),
}

impl InputError {
    /// Returns advice for the user.
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
            Self::DanglingLink { .. } => Some("Repair the link or remove it.".to_owned()),
            Self::Name { .. } => Some("Rename the file, or change the pattern that matches it.".to_owned()),
            Self::NoDump { .. } => Some("Name a file or a directory that pg_dump wrote.".to_owned()),
            Self::File(error) => error.hint(),
        }
    }
}

/// The files that match the patterns, and the unreadable paths that were skipped.
#[derive(Debug, Default)]
pub(crate) struct InputFiles {
    /// Matching paths, relative to the folder of the patterns. Ordered by pattern, then by name.
    pub(crate) files: Vec<String>,
    pub(crate) skipped: Vec<Skipped>,
}

/// Finds the files in `folder` that match `patterns`.
///
/// # Errors
/// Returns an error if a pattern matches nothing, if a pattern is the full path of a file that can't be read, or if the
/// path of a matching file isn't valid UTF-8.
pub(crate) fn expand(folder: &Path, patterns: &[String]) -> Result<InputFiles, InputError> {
    let mut all = InputFiles::default();
    for pattern in patterns {
        let found = expand_one(folder, pattern)?;
        if let Some(path) = found.invalid {
            return Err(InputError::Name { path });
        }
        if found.files.is_empty() {
            return Err(InputError::Nothing { pattern: pattern.clone(), folder: folder.to_owned() });
        }
        all.files.extend(found.files);
        all.skipped.extend(found.skipped);
    }
    Ok(all)
}

/// Returns the files in `folder` that a template with this pattern would read. Empty if no file matches, or if the
/// search fails.
#[must_use]
pub fn matching_files(folder: &Path, pattern: &str) -> Vec<String> {
    expand_one(folder, pattern).map(|found| found.files.into_iter().collect()).unwrap_or_default()
}

/// Like [`expand`], but returns an error if any matching file can't be read, because every SQL file must run.
pub(crate) fn expand_sql(folder: &Path, patterns: &[String]) -> Result<InputFiles, InputError> {
    let mut all = expand(folder, patterns)?;
    match all.skipped.iter().position(|skipped| skipped.is_match) {
        Some(first) => {
            let Skipped { path, error, .. } = all.skipped.swap_remove(first);
            Err(unreadable(&folder.join(path), error))
        }
        None => Ok(all),
    }
}

/// Builds the error for an unreadable file or folder.
fn unreadable(path: &Path, error: io::Error) -> InputError {
    match path.read_link() {
        Ok(target) if error.kind() == io::ErrorKind::NotFound => {
            InputError::DanglingLink { link: path.to_owned(), target }
        }
        _ => {
            Err::<Infallible, _>(error).attempt("read", path).map_or_else(Into::into, |never| match never {})
        }
    }
}

fn expand_one(folder: &Path, pattern: &str) -> Result<Found, InputError> {
    let bad = |why: &str| InputError::Pattern { pattern: pattern.to_owned(), why: why.to_owned() };
    let plain: PathBuf = Path::new(pattern).components().filter(|part| *part != Component::CurDir).collect();
    let why = if pattern.is_empty() { "it is empty" } else { "it is the whole folder" };
    let plain = plain.to_str().filter(|plain| !plain.is_empty()).ok_or_else(|| bad(why))?;
    let literal = !plain.contains(['*', '?', '[', '{', '\\']);
    let start = if literal { plain } else { literal_folder(plain) };
    let root = folder.join(start);
    let meta = match root.metadata() {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !root.is_symlink() => {
            return Ok(Found::default());
        }
        Err(error) => return Err(unreadable(&root, error)),
    };
    if literal && meta.is_file() {
        return Ok(Found::of_file(plain));
    }
    if !meta.is_dir() {
        return Ok(Found::default());
    }
    let glob = if literal { format!("{}/**", globset::escape(plain)) } else { plain.to_owned() };
    let matcher = GlobBuilder::new(&glob).literal_separator(true).build();
    let matcher = matcher.map_err(|error| bad(&error.kind().to_string()))?.compile_matcher();
    Ok(Search::run(&matcher, &glob, &root, start).attempt("read", &root)?)
}

/// Returns the start of a pattern, up to the last folder before the first special character.
fn literal_folder(pattern: &str) -> &str {
    let special = pattern.find(['*', '?', '[', '{', '\\']).unwrap_or(pattern.len());
    pattern[..special].rfind('/').map_or("", |slash| &pattern[..slash.max(1)])
}

/// File metadata that changes whenever the contents change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    bytes: u64,
    inode: u64,
    /// When the contents last changed, in nanoseconds since 1970.
    modified: i64,
    /// When the contents or metadata last changed, in nanoseconds since 1970. Processes can't set this time to an
    /// arbitrary value.
    changed: i64,
}

/// Maps each file's path to its metadata and digest.
type DigestNote = HashMap<String, (Stamp, String)>;

/// Computes the BLAKE3 digest of each of `files` in `folder`, in hexadecimal. A directory's digest covers all files in
/// it. Without a cache, reads all files.
pub(crate) fn digest(
    folder: &Path,
    files: &[String],
    cache: Option<&Cache>,
) -> Result<BTreeMap<String, String>, InputError> {
    let name = format!("inputs-1-{}", &blake3::hash(folder.as_os_str().as_encoded_bytes()).to_hex()[..24]);
    let known = cache.and_then(|cache| cache.recall(&name));
    let old: DigestNote = known.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let now = nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    let settled = now.saturating_sub(nanoseconds(MIN_AGE_OF_CHANGE));
    let (mut digests, mut fresh) = (BTreeMap::new(), DigestNote::new());
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
    if let Some(cache) = cache.filter(|_| !fresh.is_empty()) {
        // Keep the other files in the note, because other templates of the same folder use it as well. Remove only
        // files that no longer exist.
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
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    fn project() -> tempfile::TempDir {
        let project = tempfile::tempdir().unwrap();
        for path in ["migrations/0001.sql", "migrations/sub/0002.sql", "migrations/notes.txt", "top.ini"] {
            write_file(project.path(), path, path);
        }
        project
    }

    fn write_file(folder: &Path, path: &str, text: &str) {
        fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
        fs::write(folder.join(path), text).unwrap();
    }

    fn found(project: &Path, patterns: &[&str]) -> Vec<String> {
        expand(project, &patterns.iter().map(|&pattern| pattern.to_owned()).collect::<Vec<_>>())
            .unwrap()
            .files
    }

    #[test]
    fn patterns_match_files_and_empty_match_is_error() {
        let project = project();
        let all = ["migrations/0001.sql", "migrations/notes.txt", "migrations/sub/0002.sql"];
        for pattern in ["migrations/**", "./migrations/**", "migrations", "migrations/", "m*/**"] {
            assert_eq!(found(project.path(), &[pattern]), all, "{pattern}");
        }
        assert_eq!(found(project.path(), &["migrations/*.sql"]), ["migrations/0001.sql"]);
        assert_eq!(found(project.path(), &["**/*.sql"]), [all[0], all[2]]);
        assert_eq!(found(project.path(), &["top.ini", "*/0001.sql"]), ["top.ini", all[0]]);
        assert_eq!(found(&project.path().join("migrations"), &["../top.ini"]), ["../top.ini"]);
        for pattern in ["migratoins/**", "*.py", "absent.sql"] {
            let error = expand(project.path(), &["top.ini".to_owned(), pattern.to_owned()]).unwrap_err();
            assert!(matches!(error, InputError::Nothing { .. }), "{pattern}: {error}");
        }
        assert!(matches!(expand(project.path(), &["a[".to_owned()]), Err(InputError::Pattern { .. })));
        assert!(matches!(expand(project.path(), &[String::new()]), Err(InputError::Pattern { .. })));
    }

    #[test]
    fn ignored_files_are_matched_by_full_name_only() {
        let project = project();
        write_file(project.path(), ".git/HEAD", "");
        write_file(project.path(), ".gitignore", "made*\n");
        for path in
            ["migrations/made.sql", "migrations/.0001.sql.swp", "migrations/__pycache__/x.sql", "made/x.sql"]
        {
            write_file(project.path(), path, "");
        }
        assert_eq!(found(project.path(), &["migrations/*.sql"]), ["migrations/0001.sql"]);
        assert_eq!(found(project.path(), &["migrations/made.sql"]), ["migrations/made.sql"]);
        assert_eq!(found(project.path(), &["migrations/**"]).len(), 3);
        assert!(expand(project.path(), &["**/x.sql".to_owned()]).is_err());
        assert_eq!(found(project.path(), &["made"]), ["made/x.sql"]);
    }

    #[test]
    fn ignore_files_outside_repository_have_no_effect() {
        let home = tempfile::tempdir().unwrap();
        let project = home.path().join("project");
        for (folder, names) in [("", ".gitignore"), ("project/", ".ignore .rgignore .gitignore")] {
            names.split(' ').for_each(|name| write_file(home.path(), &format!("{folder}{name}"), "*.sql\n"));
        }
        write_file(&project, "1.sql", "");
        assert_eq!(found(&project, &["*.sql"]), ["1.sql"], "no repository");
        fs::remove_file(project.join(".gitignore")).unwrap();
        write_file(&project, ".git/HEAD", "");
        write_file(&project, ".git/info/exclude", "*.sql\n");
        assert_eq!(found(&project, &["*.sql"]), ["1.sql"], "a repository of its own");
        fs::remove_dir_all(project.join(".git")).unwrap();
        write_file(&project, ".git", "gitdir: /nowhere\n");
        write_file(&project, ".gitignore", "*.sql\n");
        assert_eq!(found(&project, &["*.sql"]), ["1.sql"], "a worktree without its repository");
        fs::remove_file(project.join(".git")).unwrap();
        write_file(home.path(), ".git/HEAD", "");
        assert!(expand(&project, &["*.sql".to_owned()]).is_err(), "the repository of the folder above");
    }

    #[test]
    fn unknown_git_index_disables_ignore_rules() {
        let project = project();
        write_file(project.path(), ".git/HEAD", "");
        write_file(project.path(), ".gitignore", "*.sql\n");
        assert!(expand(project.path(), &["**/*.sql".to_owned()]).is_err());
        for index in [
            "",
            "DIRC\0\0\0\u{5}\0\0\0\0",
            "DIRC\0\0\0\u{2}\0\0\0\u{1}",
            "DIRC\0\0\0\u{4}\u{7f}\u{7f}\u{7f}\u{7f}",
        ] {
            write_file(project.path(), ".git/index", index);
            assert_eq!(found(project.path(), &["**/*.sql"]).len(), 2, "{index:?}");
        }
    }

    #[test]
    fn dangling_links_are_skipped() {
        let project = project();
        let link = |target: &str, name: &str| symlink(target, project.path().join(name)).unwrap();
        link("nowhere", "migrations/old.sql");
        link("nowhere", "old");
        link("self", "self");
        link("..", "migrations/up");
        link("migrations/sub", "beside");
        write_file(project.path(), "migrations/node_modules/x/y.sql", "");
        link("nowhere", "migrations/node_modules/x.sql");
        let found = |pattern: &str| expand(project.path(), &[pattern.to_owned()]).unwrap();
        let all = found("**/*.sql");
        assert_eq!(all.files, ["beside/0002.sql", "migrations/0001.sql", "migrations/sub/0002.sql"]);
        let mut skipped: Vec<_> =
            all.skipped.iter().map(|skipped| (&*skipped.path, skipped.is_match)).collect();
        skipped.sort_unstable();
        assert_eq!(skipped, [("migrations/old.sql", true), ("old", false), ("self", false)]);
        assert!(found("*.ini").skipped.is_empty(), "a link whose name does not match");
        // SQL files must exist, and so must files with their full path as the pattern.
        let sql = |pattern: &str| expand_sql(project.path(), &[pattern.to_owned()]);
        assert_eq!(sql("**/0*.sql").unwrap().files.len(), 3);
        for error in [sql("**/*.sql"), expand(project.path(), &["migrations/old.sql".to_owned()])] {
            let error = error.unwrap_err().to_string();
            assert!(
                error.ends_with("migrations/old.sql\": it is a link to \"nowhere\", which does not exist"),
                "{error}"
            );
        }
        assert!(matches!(sql("self"), Err(InputError::File(_))));
    }

    #[test]
    fn names_that_are_no_text_are_refused() {
        let project = project();
        let name = |bytes: &'static [u8]| project.path().join(OsStr::from_bytes(bytes));
        fs::write(name(b"migrations/caf\xe9.sql"), "").unwrap();
        fs::create_dir(name(b"sub\xff")).unwrap();
        fs::write(name(b"sub\xff/0001.sql"), "").unwrap();
        for (pattern, expected) in [("migrations/*.sql", r"caf\xE9.sql"), ("sub*/*.sql", r"sub\xFF/0001.sql")]
        {
            let error = expand(project.path(), &[pattern.to_owned()]).unwrap_err().to_string();
            assert!(error.ends_with(&format!("{expected}\": its name is not valid UTF-8")), "{error}");
        }
        assert_eq!(matching_files(project.path(), "migrations/*.sql"), ["migrations/0001.sql"]);
    }

    #[test]
    fn digest_is_cached_once_settled_until_file_changes() {
        let project = project();
        let cache = Cache::locate(Some(&project.path().join("cache"))).unwrap();
        let file = ["top.ini".to_owned()];
        let digest = || digest(project.path(), &file, Some(&cache)).unwrap()["top.ini"].clone();
        let notes = || fs::read_dir(cache.root().join("notes")).map_or(0, Iterator::count);
        let path = project.path().join("top.ini");
        let first = digest();
        assert_eq!(notes(), 0, "written just now: not to be trusted");
        std::thread::sleep(MIN_AGE_OF_CHANGE);
        assert_eq!((digest(), notes()), (first.clone(), 1));
        assert_eq!(digest(), first);
        // The size and modification time don't change, so only the change time differs.
        let time = path.metadata().unwrap().modified().unwrap();
        write_file(project.path(), "top.ini", "TOP.INI");
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        assert_ne!(digest(), first);
    }

    proptest! {
        #[test]
        fn glob_order_does_not_change_digest(
            patterns in prop::sample::subsequence(vec!["migrations/*.sql", "**/*.sql", "top.ini", "migrations"], 1..4)
                .prop_shuffle(),
        ) {
            let project = project();
            let cache = Cache::locate(Some(&project.path().join("cache"))).unwrap();
            let mut sorted = patterns.clone();
            sorted.sort_unstable();
            let of = |patterns: &[&str]| digest(project.path(), &found(project.path(), patterns), Some(&cache)).unwrap();
            prop_assert_eq!(of(&patterns), of(&sorted));
        }
    }
}
