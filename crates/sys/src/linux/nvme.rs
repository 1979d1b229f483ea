//! Requests a log page from an `NVMe` drive. Source: Linux, `include/uapi/linux/nvme_ioctl.h`.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::kernel_files::nvme::PAGE_SIZE;

/// An admin command for the controller: `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct Command {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_and_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_length: u32,
    length: u32,
    words_10_to_15: [u32; 6],
    timeout: u32,
    result: u32,
}

/// Opens the drive `name`. Returns `None` if it isn't the block device with the device number `number`, such as
/// `259:0`, or if we have no permission.
pub(crate) fn open_drive(name: &str, number: &str) -> Option<File> {
    let path = Path::new("/dev").join(name);
    let file = fs::metadata(&path).ok()?;
    let its_number = format!("{}:{}", rustix::fs::major(file.rdev()), rustix::fs::minor(file.rdev()));
    let is_it = file.file_type().is_block_device() && its_number == number;
    if is_it { File::open(&path).ok() } else { None }
}

/// Fills `page` with the health log page of a drive. Returns false if the drive or the kernel refuses the request.
#[allow(unsafe_code)]
pub(crate) fn read_health_page(device: &File, page: &mut [u8; PAGE_SIZE]) -> bool {
    const SUBMIT: libc::Ioctl = libc::_IOWR::<Command>(b'N' as u32, 0x41);
    let mut command = Command {
        opcode: 0x02, // Get Log Page
        namespace: u32::MAX,
        address: page.as_mut_ptr() as u64,
        length: 512,
        // The page's length in 32-bit words minus one, and its id.
        words_10_to_15: [(512 / 4 - 1) << 16 | 0x02, 0, 0, 0, 0, 0],
        // Use the kernel's default timeout, usually 60 s. The kernel resets the controller after a timeout, so a
        // shorter one would be dangerous.
        timeout: 0,
        ..Command::default()
    };
    // SAFETY: the command has the layout that the kernel expects. Both the command and the page it points to outlive
    // the call, which returns only after the controller has finished with them.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), SUBMIT, &raw mut command) };
    // A negative status comes from the kernel, and a positive one from the controller.
    status == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvme_command_has_the_kernels_layout() {
        assert_eq!((size_of::<Command>(), std::mem::offset_of!(Command, words_10_to_15)), (72, 40));
    }
}
