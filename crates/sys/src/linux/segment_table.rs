//! Lists System V shared memory segments and semaphores. Source: shmctl(2).

use std::io;
use std::mem::MaybeUninit;

use rustix::process::Pid;

use crate::posix::segments::Segment;

/// Command that returns the last index in the kernel's table of segments. Source: `linux/shm.h`.
const SHM_INFO: libc::c_int = 14;
/// Command that returns the segment at an index, even without the
/// right to read the segment. Source: `linux/shm.h`, Linux 4.17.
const SHM_STAT_ANY: libc::c_int = 15;

/// Returns the segments that `account` owns and the process `creator` created.
/// Returns an empty list if the kernel doesn't support System V memory.
#[expect(clippy::unnecessary_wraps, reason = "macOS can fail to read its table")]
pub(crate) fn segments(creator: Pid, account: u32) -> io::Result<Vec<Segment>> {
    let Some((last, _)) = ask(0, SHM_INFO) else { return Ok(Vec::new()) };
    let segment = |index| {
        let (id, about) = ask(index, SHM_STAT_ANY)?;
        let ours = about.shm_cpid == creator.as_raw_nonzero().get() && about.shm_perm.uid == account;
        ours.then_some(Segment { id, is_attached: about.shm_nattch != 0 })
    };
    Ok((0..=last).filter_map(segment).collect())
}

/// Returns the result and the structure that shmctl(2) fills, or `None` if the call fails.
#[allow(unsafe_code)]
fn ask(index: i32, command: libc::c_int) -> Option<(i32, libc::shmid_ds)> {
    let mut about = MaybeUninit::<libc::shmid_ds>::zeroed();
    // SAFETY: `SHM_STAT_ANY` fills this structure, and `SHM_INFO` a smaller one.
    let number = unsafe { libc::shmctl(index, command, about.as_mut_ptr()) };
    // SAFETY: the structure contains only integers, and none of its bytes is uninitialized.
    (number >= 0).then(|| (number, unsafe { about.assume_init() }))
}

/// Returns an empty list, because servers on Linux keep their
/// semaphores in shared memory instead of System V semaphore sets.
pub(crate) fn semaphores(_creator: Pid, _account: u32) -> Vec<i32> {
    Vec::new()
}
