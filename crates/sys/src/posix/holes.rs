//! Finds the data and the holes in sparse files. Source: lseek(2).

use std::fs::File;
use std::io;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Returns the offset of the first data byte at or after `at`, or `None` if the rest of the file is a hole.
pub fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(start) => Ok(Some(start)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the offset of the next hole at or after `at`, or the end of the file if no hole follows.
pub fn next_hole(file: &File, at: u64) -> io::Result<u64> {
    Ok(seek(file, SeekFrom::Hole(at))?)
}
