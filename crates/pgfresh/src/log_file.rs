//! Writes a log file of limited size, so that a long-lived server can't fill the disk. When the current file is full,
//! it replaces the previous file, whose records are lost.
//!
//! ```text
//! PATH      the newest records
//! PATH.1    the records before them
//! ```
//! Both files are private (mode 0600). Only the process holding the directory's lock writes to them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// An open log file.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    /// Current size of the current file, in bytes.
    size: usize,
    /// Maximum size of each of the two files, in bytes.
    bound: usize,
}

impl LogFile {
    /// Opens the file at `path` for appending, creating the file if it is missing. Neither the current nor the
    /// previous file grows beyond `bound` bytes.
    pub(crate) fn open(path: &Path, bound: usize) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        Ok(Self { path: path.to_owned(), file, size, bound })
    }

    /// Makes the current file the previous one and creates a new file.
    fn rotate(&mut self) -> io::Result<()> {
        let mut earlier = self.path.clone().into_os_string();
        earlier.push(".1");
        fs::rename(&self.path, earlier)?;
        *self = Self::open(&self.path, self.bound)?;
        Ok(())
    }
}

impl Write for LogFile {
    /// Writes the whole record to one file. Truncates a record that is longer than the bound.
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let record = &record[..record.len().min(self.bound)];
        if self.size > 0 && self.size.saturating_add(record.len()) > self.bound {
            self.rotate()?;
        }
        let written = self.file.write(record)?;
        self.size += written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const BOUND: usize = 1000;

    /// Returns the contents of the previous and the current file.
    fn texts(path: &Path) -> [String; 2] {
        [path.with_extension("log.1"), path.to_owned()]
            .map(|path| fs::read_to_string(path).unwrap_or_default())
    }

    #[test]
    fn log_stays_bounded_and_drops_only_oldest_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.log");
        let mut log = LogFile::open(&path, BOUND).unwrap();
        let mut all = String::new();
        for number in 0..500_usize {
            let line = format!("{number} {}\n", "x".repeat(number * 37 % 190));
            log.write_all(line.as_bytes()).unwrap();
            all.push_str(&line);
            let [earlier, newer] = texts(&path);
            assert!(earlier.len() <= BOUND && newer.len() <= BOUND && !newer.is_empty());
            let kept = earlier + &newer;
            assert!(all.ends_with(&kept) && (kept.len() == all.len() || kept.len() > BOUND), "{number}");
            assert!(kept.len() == all.len() || all[..all.len() - kept.len()].ends_with('\n'), "{number}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn reopened_log_continues_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.log");
        for number in 0..5 {
            let mut log = LogFile::open(&path, BOUND).unwrap();
            log.write_all(format!("{number} {}\n", "x".repeat(300)).as_bytes()).unwrap();
        }
        let [earlier, newer] = texts(&path);
        let numbers = |text: &str| text.lines().map(|line| line[..1].to_owned()).collect::<String>();
        assert_eq!((numbers(&earlier), numbers(&newer)), ("012".to_owned(), "34".to_owned()));
    }

    #[test]
    fn log_files_are_private_and_split_long_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.log");
        let mut log = LogFile::open(&path, BOUND).unwrap();
        log.write_all(&[b'y'; BOUND * 3 / 2]).unwrap();
        let [earlier, newer] = texts(&path);
        assert_eq!((earlier.len(), newer.len()), (BOUND, BOUND / 2));
        for entry in fs::read_dir(folder.path()).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
