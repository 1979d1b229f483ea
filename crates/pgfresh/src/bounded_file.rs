//! Reads files whose size is unknown, such as devices and pipes, up to a limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a file. Returns an error if the file has more than `most` bytes.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_from(File::open(path)?, most)
}

/// Reads `source` to its end. Returns an error if that takes more than `most` bytes.
pub(crate) fn read_from(source: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let message = format!("it is larger than {}", storage::human_bytes(most));
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Reads a text file. Returns an error if the file has more than `most` bytes.
pub(crate) fn read_text(path: &Path, most: u64) -> io::Result<String> {
    text(read(path, most)?)
}

/// Converts a file's contents to text, or returns an error if they aren't valid UTF-8.
pub(crate) fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_a_limit() {
        assert_eq!(read_from(&b"abc"[..], 3).unwrap(), b"abc");
        let endless = read_from(io::repeat(0), 5_000_000).unwrap_err();
        assert_eq!(endless.to_string(), format!("it is larger than {}", storage::human_bytes(5_000_000)));
        assert_eq!(read(Path::new("/dev/zero"), 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(text(vec![0xff]).is_err());
    }
}
