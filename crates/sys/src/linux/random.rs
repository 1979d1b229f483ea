//! Provides cryptographically secure random bytes.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes` from the kernel's random number generator.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
