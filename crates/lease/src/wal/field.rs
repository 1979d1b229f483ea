//! Reads numbers from the bytes of the log.

/// Returns the `N` bytes at offset `at`. Returns `None` if `bytes` is too short.
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
