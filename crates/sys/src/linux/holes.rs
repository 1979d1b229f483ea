//! Where a file has bytes, and where holes. Source: lseek(2).

use std::fs::File;
use std::io;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Where the next bytes begin, from `at` on; `None` if there is only a hole up to the end.
pub fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(start) => Ok(Some(start)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Where the next hole begins, from `at` on, or the file ends.
pub fn next_hole(file: &File, at: u64) -> io::Result<u64> {
    Ok(seek(file, SeekFrom::Hole(at))?)
}
