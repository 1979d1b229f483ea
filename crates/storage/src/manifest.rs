//! Writes and parses the manifest of a cache entry. The manifest lists the entry's directories
//! and files, with each file's size, time and digest, so that pgfresh can detect damage.
//!
//! ```text
//! pgfresh manifest 1
//! d base
//! f 8192 1700000000123456789 DIGEST base/1/1259
//! end DIGEST
//! ```
//! A directory is listed before its contents. Each `f` line contains a file's size in bytes, its modification
//! time in nanoseconds since 1970, and its BLAKE3 digest in hex. The last line is the digest of all preceding
//! lines, so a truncated manifest is invalid.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The first line. pgfresh can't parse manifests with a different version.
const HEADER: &str = "pgfresh manifest 1\n";

/// An entry's directory tree. Paths are relative, use `/` as the separator, and have no `.` or `..`
/// components.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Paths of all directories, sorted by name so that a parent precedes its children.
    pub(crate) directories: Vec<String>,
    pub(crate) files: Vec<File>,
}

/// One of an entry's regular files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) path: String,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Modification time in nanoseconds since 1970. Once a copy has compared a file with its digest, later
    /// copies trust the file as long as its times and size don't change.
    pub(crate) modified: i64,
    pub(crate) digest: blake3::Hash,
}

impl Manifest {
    /// Returns the total size of all files in bytes, including holes.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
    }

    /// Returns true if every path is unique and every directory's parent is listed. A manifest from an
    /// untrusted source might violate this.
    pub(crate) fn has_consistent_paths(&self) -> bool {
        let mut seen = HashSet::new();
        let paths = self.directories.iter().chain(self.files.iter().map(|file| &file.path));
        paths.into_iter().all(|path| seen.insert(path))
            && self.directories.iter().all(|path| self.parent_of(path).is_some())
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = HEADER.to_owned();
        for path in &self.directories {
            text.push_str(&format!("d {path}\n"));
        }
        for File { path, size, modified, digest } in &self.files {
            text.push_str(&format!("f {size} {modified} {digest} {path}\n"));
        }
        let digest = blake3::hash(text.as_bytes());
        text.push_str(&format!("end {digest}\n"));
        text
    }

    /// Parses the output of [`Self::to_text`]. Returns `None` for any other text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (lines, digest) = text.strip_suffix('\n')?.rsplit_once("\nend ")?;
        let lines = &text[..=lines.len()];
        if blake3::hash(lines.as_bytes()) != blake3::Hash::from_hex(digest).ok()? {
            return None;
        }
        let mut manifest = Self::default();
        for line in lines.strip_prefix(HEADER)?.lines() {
            match line.split_once(' ')? {
                ("d", path) => manifest.directories.push(path_inside_entry(path)?.to_owned()),
                ("f", rest) => {
                    let mut fields = rest.splitn(4, ' ');
                    let size = fields.next()?.parse().ok()?;
                    let modified = fields.next()?.parse().ok()?;
                    let digest = blake3::Hash::from_hex(fields.next()?).ok()?;
                    let path = path_inside_entry(fields.next()?)?.to_owned();
                    manifest.files.push(File { path, size, modified, digest });
                }
                _ => return None,
            }
        }
        let sorted = manifest.directories.is_sorted();
        (sorted && manifest.files.iter().all(|file| manifest.parent_of(&file.path).is_some()))
            .then_some(manifest)
    }

    /// Returns the index of the directory that contains `path`, and the name within that directory. The
    /// root's index is one past the last directory. Returns `None` if the manifest doesn't list the
    /// directory.
    pub(crate) fn parent_of<'a>(&self, path: &'a str) -> Option<(usize, &'a str)> {
        let Some((folder, name)) = path.rsplit_once('/') else { return Some((self.directories.len(), path)) };
        let at = self.directories.binary_search_by(|other| other.as_str().cmp(folder)).ok()?;
        Some((at, name))
    }
}

/// Returns `path` if it can't lead outside the entry.
pub(crate) fn path_inside_entry(path: &str) -> Option<&str> {
    let inside = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    (inside && !path.contains('\n')).then_some(path)
}

/// Returns the modification time in nanoseconds since 1970.
pub(crate) fn modified(meta: &Metadata) -> i64 {
    meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn manifests() -> impl Strategy<Value = Manifest> {
        let directories = prop::collection::btree_set("[a-zA-Z0-9_. -]{1,9}x(/[a-z0-9 é]{1,9}y){0,2}", 0..5);
        let file = (
            "[a-z0-9. é]{1,9}z",
            any::<u64>(),
            any::<i64>(),
            any::<[u8; 32]>(),
            any::<prop::sample::Index>(),
        );
        (directories, prop::collection::vec(file, 0..5)).prop_map(|(directories, files)| {
            let directories: Vec<String> = directories.into_iter().collect();
            let files = files.into_iter().map(|(name, size, modified, digest, folder)| {
                let folder = directories.get(folder.index(directories.len() + 1));
                let path = folder.map_or(name.clone(), |folder| format!("{folder}/{name}"));
                File { path, size, modified, digest: digest.into() }
            });
            Manifest { files: files.collect(), directories }
        })
    }

    proptest! {
        #[test]
        fn manifest_round_trips(manifest in manifests()) {
            prop_assert_eq!(Manifest::parse(&manifest.to_text()), Some(manifest));
        }

        #[test]
        fn changed_or_truncated_manifest_is_refused(manifest in manifests(), at in any::<prop::sample::Index>(), cut in any::<bool>()) {
            let mut bytes = manifest.to_text().into_bytes();
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] ^= 1 }
            if let Ok(text) = String::from_utf8(bytes) {
                prop_assert_eq!(Manifest::parse(&text), None);
            }
        }
    }

    #[test]
    fn path_outside_entry_is_refused() {
        for path in ["../x", "a/../b", "/etc/passwd", "a//b", "", "a\nb"] {
            assert_eq!(path_inside_entry(path), None, "{path:?}");
        }
    }
}
