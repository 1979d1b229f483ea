//! Numbers in the bytes of the log.

/// `N` bytes of `bytes` from `at` on.
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
