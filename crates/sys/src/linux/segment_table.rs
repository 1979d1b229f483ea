//! Lists System V shared memory segments and semaphores. Source: proc(5), `/proc/sysvipc/shm`.

use std::fs;
use std::io;

use rustix::process::Pid;

use crate::posix::segments::Segment;

/// Returns the segments that `account` owns and the process `creator` created. Returns none if the kernel has no table,
/// because such a kernel has no System V memory.
pub(crate) fn segments(creator: Pid, account: u32) -> io::Result<Vec<Segment>> {
    let table = match fs::read_to_string("/proc/sysvipc/shm") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let segment = |line: &str| {
        let fields: Vec<i64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let &[_key, id, _mode, _size, made_by, _last, attached, owner, ..] = fields.as_slice() else {
            return None;
        };
        let ours = made_by == i64::from(creator.as_raw_nonzero().get()) && owner == i64::from(account);
        Some(Segment { id: i32::try_from(id).ok().filter(|_| ours)?, is_attached: attached != 0 })
    };
    Ok(table.lines().skip(1).filter_map(segment).collect())
}

/// Returns an empty list in place of the sets of semaphores of a server. On Linux, servers keep their semaphores in
/// shared memory.
pub(crate) fn semaphores(_creator: Pid, _account: u32) -> Vec<i32> {
    Vec::new()
}
