//! Stands in for requests to an `NVMe` drive, because POSIX doesn't have a call for them.

use std::fs::File;

use crate::kernel_files::nvme::PAGE_SIZE;

/// Returns `None` without opening a drive.
pub(crate) fn open_drive(_name: &str, _number: &str) -> Option<File> {
    None
}

/// Returns false and leaves `page` unchanged.
pub(crate) fn read_health_page(_device: &File, _page: &mut [u8; PAGE_SIZE]) -> bool {
    false
}
