//! Finds the mount that contains a path.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::Mount;
use crate::kernel_files::mount::not_in;

/// Finds the mount that contains the canonical `path`. The lookup uses the mount id, because the
/// device numbers of files on btrfs don't match any mount. If the id isn't in the table (possible
/// on kernels before 5.8), the lookup falls back to the longest mount point above `path`.
///
/// # Errors
/// Returns an error if the table of mounts can't be read or contains no mount above `path`.
pub(crate) fn mount_of(path: &Path) -> io::Result<Mount> {
    let table = Path::new("/proc/self/mountinfo");
    let text = fs::read_to_string(table)?;
    let mut mounts = text.lines().filter_map(Mount::parse);
    let by_number = mount_id(path).and_then(|number| mounts.find(|mount| mount.id == number));
    by_number.or_else(|| Mount::in_table(&text, path)).ok_or_else(|| not_in(table))
}

/// Returns the mount id for `path`. Source: statx(2), `STATX_MNT_ID`, Linux 5.8; proc(5), fdinfo, for older
/// kernels.
fn mount_id(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    if stat.stx_mask & StatxFlags::MNT_ID.bits() != 0 {
        return Some(stat.stx_mnt_id);
    }
    let file = File::open(path).ok()?;
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}
