//! Identifies the current boot.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

/// Returns a random id that changes with each boot, or an empty string if the kernel doesn't provide one.
/// Source: sysctlbyname(3); `kern.bootsessionuuid` in `bsd/kern/kern_sysctl.c` of XNU.
#[must_use]
#[allow(unsafe_code)]
pub fn boot_id() -> String {
    // The id has 36 bytes. The kernel can't overwrite the last zero, so the text always ends with a zero byte.
    let mut buffer = [0; 64];
    let mut length = buffer.len() - 1;
    let place = buffer.as_mut_ptr().cast::<c_void>();
    // SAFETY: the kernel writes at most `length` bytes.
    let result = unsafe {
        libc::sysctlbyname(c"kern.bootsessionuuid".as_ptr(), place, &raw mut length, null_mut(), 0)
    };
    let id = CStr::from_bytes_until_nul(&buffer).ok().filter(|_| result == 0);
    id.map(|id| id.to_string_lossy().into_owned()).unwrap_or_default()
}
