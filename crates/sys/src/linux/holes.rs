//! Finds the data and the holes in sparse files. Source: lseek(2).

use std::fs::File;
use std::io;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Returns the offset of the first byte of data at or after `at`. Returns `None` if the rest of the file is a
/// hole.
pub fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(start) => Ok(Some(start)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the offset of the next hole at or after `at`. If there is no further hole, this is the end of the
/// file.
pub fn next_hole(file: &File, at: u64) -> io::Result<u64> {
    Ok(seek(file, SeekFrom::Hole(at))?)
}
