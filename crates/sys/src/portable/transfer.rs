//! Copies the contents of files through our own memory.

use std::fs::File;
use std::io::{self, Read, Write};

/// Size of each read, in bytes.
const BUFFER_SIZE: u64 = 256 << 10;

/// Copies up to `length` bytes between the current offsets of two files. Returns the number of copied bytes, which is
/// less than `length` only at the end of `from`.
pub fn transfer(mut from: &File, mut to: &File, length: u64) -> io::Result<u64> {
    let size = usize::try_from(length.min(BUFFER_SIZE)).map_err(io::Error::other)?;
    let mut buffer = vec![0; size];
    let mut done = 0;
    while done < length {
        let most = usize::try_from(length - done).unwrap_or(size).min(size);
        match from.read(&mut buffer[..most]) {
            Ok(0) => break,
            Ok(count) => {
                to.write_all(&buffer[..count])?;
                done += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use super::*;

    #[test]
    fn transfer_copies_the_requested_length() {
        let (mut from, mut to) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let bytes: Vec<u8> = (0..700_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        from.write_all(&bytes).unwrap();
        from.rewind().unwrap();
        assert_eq!(transfer(&from, &to, 600_000).unwrap(), 600_000);
        assert_eq!(transfer(&from, &to, 600_000).unwrap(), 100_000);
        to.rewind().unwrap();
        let mut copied = Vec::new();
        to.read_to_end(&mut copied).unwrap();
        assert!(copied == bytes);
    }
}
