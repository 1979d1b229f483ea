//! Numbers in the bytes of the log.

/// Returns the `N` bytes of `bytes` from `at` on; `None` if there are fewer.
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
