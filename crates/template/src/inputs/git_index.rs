//! Reads the paths tracked by git from a repository's index. pgfresh needs these because git never ignores a tracked
//! path, even if `.gitignore` lists it.
//!
//! Source: gitformat-index(5) of git 2.39, versions 2 to 4.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Size in bytes of the first part of an index entry, up to its object name.
const STAT_SIZE: usize = 40;
/// Possible lengths of an object name, for SHA-1 and SHA-256.
/// The index doesn't specify its hash, so the reader tries both.
const OBJECT_NAME_SIZES: [usize; 2] = [20, 32];
/// Flag that marks an entry with 16 additional flags.
const EXTENDED: u16 = 0x4000;

/// The tracked paths, relative to the repository's root and sorted by their bytes. A submodule counts as a single path.
#[derive(Debug)]
pub(super) struct TrackedPaths(Vec<Vec<u8>>);

impl TrackedPaths {
    /// Reads the index in `git_folder`. Without an index, no path is tracked. Returns `None` if pgfresh can't read or
    /// understand the index, for example because it is a split index.
    pub(super) fn read(git_folder: &Path) -> Option<Self> {
        match fs::read(git_folder.join("index")) {
            Ok(bytes) => OBJECT_NAME_SIZES.into_iter().find_map(|length| parse(&bytes, length)).map(Self),
            Err(error) if error.kind() == ErrorKind::NotFound && git_folder.is_dir() => {
                Some(Self(Vec::new()))
            }
            Err(_) => None,
        }
    }

    pub(super) fn contains(&self, path: &[u8]) -> bool {
        self.0.binary_search_by(|tracked| tracked.as_slice().cmp(path)).is_ok()
    }

    /// Returns true if any tracked path is below `folder`.
    pub(super) fn has_below(&self, folder: &[u8]) -> bool {
        let below = [folder, b"/"].concat();
        let first = self.0.partition_point(|tracked| *tracked < below);
        self.0.get(first).is_some_and(|tracked| tracked.starts_with(&below))
    }
}

fn parse(bytes: &[u8], object_name: usize) -> Option<Vec<Vec<u8>>> {
    let mut reader = Reader { bytes, at: 0 };
    if reader.take(4)? != b"DIRC" {
        return None;
    }
    let version = reader.number()?;
    let count = reader.number()?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let mut paths: Vec<Vec<u8>> = Vec::new();
    for _ in 0..count {
        let begun = reader.at;
        reader.take(STAT_SIZE + object_name)?;
        let flags = u16::from_be_bytes(reader.take(2)?.try_into().ok()?);
        if flags & EXTENDED != 0 {
            reader.take(2)?;
        }
        let mut path = Vec::new();
        if version == 4 {
            let before = paths.last().map_or(&[][..], Vec::as_slice);
            let kept = before.len().checked_sub(reader.variable_length()?)?;
            path.extend_from_slice(&before[..kept]);
        }
        path.extend_from_slice(reader.until_nul()?);
        if version < 4 {
            // Each entry is padded to a multiple of 8 bytes with at least one NUL. We've already read the first one.
            let length = reader.at - begun;
            reader.take(length.next_multiple_of(8) - length)?;
        }
        paths.push(path);
    }
    // The extensions must end where the checksum begins. git can ignore extensions whose names begin with a capital
    // letter. Among the others, "sdir" only means that an entry can be a folder.
    while reader.at + object_name < bytes.len() {
        let name = reader.take(4)?;
        let length = reader.number()?;
        if !name[0].is_ascii_uppercase() && name != b"sdir" {
            return None;
        }
        reader.take(usize::try_from(length).ok()?)?;
    }
    paths.sort_unstable();
    (reader.at + object_name == bytes.len()).then_some(paths)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..)?.get(..count)?;
        self.at += count;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// Reads a number with seven bits per byte, most significant bits first. If another byte follows, one is added to
    /// the number so far.
    fn variable_length(&mut self) -> Option<usize> {
        let mut number = 0_usize;
        loop {
            let byte = self.take(1)?[0];
            number = number.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
            number = number.checked_add(1)?;
        }
    }

    /// Reads a path and the NUL that follows it.
    fn until_nul(&mut self) -> Option<&'a [u8]> {
        let length = self.bytes.get(self.at..)?.iter().position(|&byte| byte == 0)?;
        let taken = self.take(length);
        self.at += 1;
        taken
    }
}
