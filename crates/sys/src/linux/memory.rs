//! Determines how much memory this process and its children can still use. The limit can
//! come from the machine or from any of the control groups that contain this process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::Mount;
use crate::kernel_files::bytes_of;

/// Returns how many bytes of memory we can use without swapping or triggering the OOM killer. This is the
/// minimum of `MemAvailable` and the amount that each of our control groups has left under its limit (v1 and
/// v2, all levels). Page cache that the kernel can drop counts as free.
///
/// `root` is normally `/`. Tests pass a directory that contains `proc` and `sys`. Without `/proc`, returns
/// the machine's unused memory, which excludes the page cache and ignores the limits of control groups.
///
/// # Errors
/// Returns an error if `/proc/meminfo` can't be read or has no `MemAvailable`. Limits of control groups that
/// can't be read don't count.
pub fn available_memory(root: &Path) -> io::Result<u64> {
    let meminfo = match fs::read_to_string(root.join("proc/meminfo")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(unused_memory()),
        meminfo => meminfo?,
    };
    let machine = bytes_of(&meminfo, "MemAvailable")
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no MemAvailable in /proc/meminfo"))?;
    Ok(group_folders(root).iter().filter_map(left_in).fold(machine, u64::min))
}

/// Returns the machine's unused memory in bytes. Source: sysinfo(2).
fn unused_memory() -> u64 {
    let machine = rustix::system::sysinfo();
    machine.freeram.saturating_mul(u64::from(machine.mem_unit))
}

/// The names of the files with a group's limit and usage, and the name of the reclaimable memory in
/// `memory.stat`, for each version of control groups.
const V1: [&str; 3] = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"];
const V2: [&str; 3] = ["memory.max", "memory.current", "inactive_file"];

/// Returns the directories of our memory control groups and of their visible ancestors, each with the file
/// names for its version.
fn group_folders(root: &Path) -> Vec<(PathBuf, [&'static str; 3])> {
    let memberships = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mut groups = Vec::new();
    for membership in memberships.lines() {
        let mut fields = membership.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let v2 = controllers.is_empty();
        if !v2 && !controllers.split(',').any(|name| name == "memory") {
            continue;
        }
        let mut mounts = mounts.lines().filter_map(Mount::parse);
        let Some(mount) = mounts.find(|mount| has_memory(mount, v2)) else { continue };
        let mount = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
        // In a container, this is often a path on the host. In that case, the mount itself is our group.
        let mut folder = mount.join(path.trim_start_matches('/'));
        if !folder.is_dir() {
            folder.clone_from(&mount);
        }
        loop {
            groups.push((folder.clone(), if v2 { V2 } else { V1 }));
            if folder == mount || !folder.pop() {
                break;
            }
        }
    }
    groups
}

/// Returns true if the mount is the memory hierarchy of the given version.
fn has_memory(mount: &Mount, v2: bool) -> bool {
    match mount.kind.as_str() {
        "cgroup2" => v2,
        "cgroup" => !v2 && mount.super_options.split(',').any(|option| option == "memory"),
        _ => false,
    }
}

/// Returns the number of bytes left in one group, or `None` if
/// the group doesn't have a limit or its files can't be read.
fn left_in((folder, [limit, usage, reclaimable]): &(PathBuf, [&str; 3])) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let (limit, usage, stat) = (number(limit)?, number(usage)?, read("memory.stat").unwrap_or_default());
    let line = stat.lines().find_map(|line| line.strip_prefix(reclaimable)?.strip_prefix(' '));
    let reclaimable = line.and_then(|line| line.trim().parse::<u64>().ok()).unwrap_or(0);
    Some(limit.saturating_sub(usage.saturating_sub(reclaimable)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:       2000 kB\nMemAvailable:   1000 kB\n");

    #[test]
    fn machine_limit_applies_without_control_groups() {
        assert_eq!(available_memory(machine(&[MEMINFO]).path()).unwrap(), 1000 * 1024);
    }

    #[test]
    fn cgroup_v2_ancestor_limit_counts_except_page_cache() {
        let root = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/a/memory.max", "500000\n"),
            ("sys/fs/cgroup/a/memory.current", "300000\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "7\n"),
        ]);
        assert_eq!(available_memory(root.path()).unwrap(), 300_000);
    }

    #[test]
    fn cgroup_v1_limit_counts_inside_container_mount() {
        let root = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "4:memory:/docker/abc\n1:cpu:/x\n"),
            (
                "proc/self/mountinfo",
                "31 1 0:27 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "200000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "150000\n"),
        ]);
        assert_eq!(available_memory(root.path()).unwrap(), 50_000);
    }
}
