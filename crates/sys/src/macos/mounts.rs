//! Finds the mount that contains a path.

use std::ffi::c_char;
use std::io;
use std::path::Path;

use crate::Mount;

/// Finds the mount that contains `path`. The device, the root and the options are
/// placeholders, because the system call doesn't report them. Source: statfs(2).
///
/// # Errors
/// Returns an error if `path` doesn't exist.
pub(crate) fn mount_of(path: &Path) -> io::Result<Mount> {
    let found = rustix::fs::statfs(path)?;
    Ok(Mount {
        id: 0,
        device: (0, 0),
        root: "/".into(),
        point: text(&found.f_mntonname).into(),
        options: String::new(),
        kind: text(&found.f_fstypename),
        source: text(&found.f_mntfromname),
        super_options: String::new(),
    })
}

/// Returns the characters before the first zero.
fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> =
        field.iter().take_while(|byte| **byte != 0).map(|byte| byte.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
