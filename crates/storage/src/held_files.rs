//! Files of one directory of an entry, held in memory. If many copies follow each other, writing them from memory
//! takes a quarter less processor time than reading each file for each copy.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// A page that contains only zeros becomes a hole in the copy, which takes no space and no time.
const PAGE: usize = 4096;

/// The files of one directory.
#[derive(Debug, Default)]
pub struct HeldFiles {
    pub(crate) files: Vec<HeldFile>,
    /// The contents of all files, one after another.
    bytes: Vec<u8>,
}

/// One of the files.
#[derive(Debug)]
pub(crate) struct HeldFile {
    pub(crate) name: String,
    /// The file's contents in [`HeldFiles::bytes`].
    contents: Range<usize>,
    /// The parts of the contents that are not zero, without holes in between.
    data: Vec<Range<usize>>,
}

impl HeldFiles {
    /// Reserves memory for files of this size.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { files: Vec::new(), bytes: Vec::with_capacity(bytes) }
    }

    /// Reads a file from its current position and adds it. Returns its size.
    pub(crate) fn add(&mut self, name: &str, mut from: &File) -> io::Result<usize> {
        let start = self.bytes.len();
        let size = from.read_to_end(&mut self.bytes)?;
        let contents = start..start + size;
        let data = data_in(&self.bytes[contents.clone()]);
        self.files.push(HeldFile { name: name.to_owned(), contents, data });
        Ok(size)
    }

    /// Writes one of the files to a new, empty file.
    pub(crate) fn write(&self, file: &HeldFile, to: &File) -> io::Result<()> {
        let contents = &self.bytes[file.contents.clone()];
        for data in &file.data {
            to.write_all_at(&contents[data.clone()], data.start as u64)?;
        }
        if file.data.last().map_or(0, |data| data.end) < contents.len() {
            to.set_len(contents.len() as u64)?;
        }
        Ok(())
    }
}

/// Returns the parts of `contents` without the pages that contain only zeros.
fn data_in(contents: &[u8]) -> Vec<Range<usize>> {
    let mut data: Vec<Range<usize>> = Vec::new();
    for (number, page) in contents.chunks(PAGE).enumerate() {
        if page.iter().all(|byte| *byte == 0) {
            continue;
        }
        let start = number * PAGE;
        let end = start + page.len();
        match data.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => data.push(start..end),
        }
    }
    data
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};
    use std::os::unix::fs::MetadataExt;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Pages, some of which are zero, and a rest.
        #[test]
        fn held_file_is_written_as_it_was_read(
            pages in prop::collection::vec(any::<bool>(), 0..8),
            rest in prop::collection::vec(0_u8..2, 0..100),
        ) {
            let mut contents: Vec<u8> = pages.iter().flat_map(|full| [u8::from(*full); PAGE]).collect();
            contents.extend(rest);
            let mut from = tempfile::tempfile().unwrap();
            from.write_all(&contents).unwrap();
            from.rewind().unwrap();
            let mut held = HeldFiles::with_capacity(contents.len());
            held.add("other", &tempfile::tempfile().unwrap()).unwrap();
            prop_assert_eq!(held.add("file", &from).unwrap(), contents.len());
            let mut to = tempfile::tempfile().unwrap();
            held.write(&held.files[1], &to).unwrap();
            let mut written = Vec::new();
            to.read_to_end(&mut written).unwrap();
            prop_assert_eq!(written, contents);
        }
    }

    #[test]
    fn pages_of_zeros_become_holes() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("from");
        std::fs::write(&path, vec![0; 100 * PAGE]).unwrap();
        let mut held = HeldFiles::default();
        held.add("file", &File::open(&path).unwrap()).unwrap();
        let to = File::create(directory.path().join("to")).unwrap();
        held.write(&held.files[0], &to).unwrap();
        let meta = to.metadata().unwrap();
        assert_eq!((meta.len(), meta.blocks()), (100 * PAGE as u64, 0));
    }
}
