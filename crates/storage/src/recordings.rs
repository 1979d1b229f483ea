//! Stores recordings of test suites in the cache. Each project has a directory with one file per test command.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::cache::Cache;
use crate::file_error::{Attempt, FileError};
use crate::private;
use crate::replace::{ignore_read_only, replace_file};

/// Age at which a recording is removed, because its statements may come from code that no longer exists.
const MAX_AGE: Duration = Duration::from_hours(30 * 24);
/// Maximum number of recordings per project. The oldest recordings are removed.
const MAX_RECORDINGS: usize = 8;

impl Cache {
    /// Saves the recording `text` of the test command `command`, for the project in `folder`. Replaces the command's
    /// last recording, and removes old recordings of all projects. Does nothing if the cache is read-only.
    ///
    /// # Errors
    /// Returns an error if the file can't be written. An earlier recording stays in that case.
    pub fn keep_recording(&self, folder: &Path, command: &str, text: &str) -> Result<(), FileError> {
        ignore_read_only(self.write_recording(folder, command, text))
    }

    fn write_recording(&self, folder: &Path, command: &str, text: &str) -> Result<(), FileError> {
        let project = self.recordings_of(folder);
        private::ensure(&self.all_recordings(), 0o700)?;
        private::ensure(&project, 0o700)?;
        replace_file(&project.join(hash(command.as_bytes())), text)?;
        self.remove_old_recordings()
    }

    /// Returns the paths of the recordings of the project in `folder`, newest first. Skips recordings that are too old.
    ///
    /// # Errors
    /// Returns an error if the directory exists but can't be read.
    pub fn recordings(&self, folder: &Path) -> Result<Vec<PathBuf>, FileError> {
        let found = files(&self.recordings_of(folder))?;
        let is_old = |changed: SystemTime| changed.elapsed().is_ok_and(|age| age > MAX_AGE);
        // A file with an extension isn't complete yet, or a killed process has left it behind.
        let complete =
            found.into_iter().filter(|(changed, path)| !is_old(*changed) && path.extension().is_none());
        Ok(complete.map(|(_, path)| path).collect())
    }

    /// Returns true if the project in `folder` has a recording of this test command, however old.
    #[must_use]
    pub fn has_recording(&self, folder: &Path, command: &str) -> bool {
        self.recordings_of(folder).join(hash(command.as_bytes())).exists()
    }

    fn all_recordings(&self) -> PathBuf {
        self.root().join("suites")
    }

    fn recordings_of(&self, folder: &Path) -> PathBuf {
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        self.all_recordings().join(hash(folder.as_os_str().as_encoded_bytes()))
    }

    fn remove_old_recordings(&self) -> Result<(), FileError> {
        let all = self.all_recordings();
        for project in fs::read_dir(&all).attempt("read", &all)?.flatten() {
            let recordings = files(&project.path())?;
            let is_old = |changed: SystemTime| changed.elapsed().is_ok_and(|age| age > MAX_AGE);
            let old = recordings
                .iter()
                .enumerate()
                .filter(|(index, (changed, _))| *index >= MAX_RECORDINGS || is_old(*changed));
            for (_, (_, path)) in old {
                ignore_missing(fs::remove_file(path)).attempt("remove", path)?;
            }
            if recordings.is_empty() {
                // This fails if another process has just written a recording there, and the directory must then stay.
                let removed = fs::remove_dir(project.path());
                tracing::debug!(?removed, "removed the directory of a project without recordings");
            }
        }
        Ok(())
    }
}

/// Returns the files in a directory with their modification times, newest first.
fn files(directory: &Path) -> Result<Vec<(SystemTime, PathBuf)>, FileError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.attempt("read", directory)?,
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let changed = entry.metadata().and_then(|meta| meta.modified());
        if let Ok(changed) = changed {
            found.push((changed, entry.path()));
        }
    }
    found.sort_by(|one, other| other.cmp(one));
    Ok(found)
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..24].to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn contents(cache: &Cache, folder: &Path) -> Vec<String> {
        let paths = cache.recordings(folder).unwrap();
        paths.into_iter().map(|path| fs::read_to_string(path).unwrap()).collect()
    }

    #[test]
    fn recordings_belong_to_project_and_command() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::locate(Some(&directory.path().join("cache"))).unwrap();
        let [shop, blog] = ["shop", "blog"].map(|name| directory.path().join(name));
        assert!(cache.recordings(&shop).unwrap().is_empty() && !cache.has_recording(&shop, "pytest"));
        cache.keep_recording(&shop, "pytest", "old").unwrap();
        cache.keep_recording(&shop, "pytest", "new").unwrap();
        cache.keep_recording(&blog, "pytest", "blog").unwrap();
        assert_eq!(contents(&cache, &shop), ["new"]);
        assert!(cache.has_recording(&shop, "pytest") && !cache.has_recording(&shop, "npm test"));
        cache.keep_recording(&shop, "npm test", "pages").unwrap();
        let mut both = contents(&cache, &shop);
        both.sort();
        assert_eq!(both, ["new", "pages"]);
        assert_eq!(contents(&cache, &blog), ["blog"]);
    }

    #[test]
    fn old_and_surplus_recordings_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::locate(Some(&directory.path().join("cache"))).unwrap();
        let (shop, blog) = (directory.path().join("shop"), directory.path().join("blog"));
        cache.keep_recording(&blog, "pytest", "blog").unwrap();
        let old = cache.recordings(&blog).unwrap().remove(0);
        let long_ago = SystemTime::now() - MAX_AGE - Duration::from_hours(1);
        File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
        assert!(cache.recordings(&blog).unwrap().is_empty() && old.exists());
        for number in 0..=MAX_RECORDINGS {
            cache.keep_recording(&shop, &number.to_string(), "").unwrap();
        }
        assert_eq!(cache.recordings(&shop).unwrap().len(), MAX_RECORDINGS);
        assert!(!old.exists());
        cache.keep_recording(&shop, "0", "").unwrap();
        assert_eq!(fs::read_dir(cache.all_recordings()).unwrap().count(), 1);
    }
}
