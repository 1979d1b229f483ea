//! How much memory this process and its children may still use: the machine's, and every control group's above us.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of memory that may still be used without swapping or being killed: the smallest of `MemAvailable` and what
/// the limits of our control groups (v1 and v2, at every level) leave. Page cache that the kernel can drop is free.
///
/// `root` is `/`, or a folder with `proc` and `sys` below it for tests.
pub fn available_memory(root: &Path) -> io::Result<u64> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo"))?;
    let machine = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no MemAvailable in /proc/meminfo"))?
        .saturating_mul(1024);
    Ok(group_folders(root).iter().filter_map(left_in).fold(machine, u64::min))
}

/// A control group's folder and the names of its files.
struct Group {
    folder: PathBuf,
    limit: &'static str,
    usage: &'static str,
    reclaimable: &'static str,
}

/// Our memory control groups, each with all its ancestors that we can see.
fn group_folders(root: &Path) -> Vec<Group> {
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
        let Some(mount) = mounts.lines().find_map(|line| mount_of(line, v2)) else { continue };
        let mount = root.join(mount.trim_start_matches('/'));
        // In a container the path is often one of the host's; the mount itself is then our group.
        let mut folder = mount.join(path.trim_start_matches('/'));
        if !folder.is_dir() {
            folder.clone_from(&mount);
        }
        loop {
            groups.push(if v2 {
                Group {
                    folder: folder.clone(),
                    limit: "memory.max",
                    usage: "memory.current",
                    reclaimable: "inactive_file",
                }
            } else {
                Group {
                    folder: folder.clone(),
                    limit: "memory.limit_in_bytes",
                    usage: "memory.usage_in_bytes",
                    reclaimable: "total_inactive_file",
                }
            });
            if folder == mount || !folder.pop() {
                break;
            }
        }
    }
    groups
}

/// The mount point of a line of mountinfo, if it is the memory hierarchy of that version.
fn mount_of(line: &str, v2: bool) -> Option<&str> {
    let (mount, source) = line.split_once(" - ")?;
    let mut source = source.split(' ');
    let right = match source.next()? {
        "cgroup2" => v2,
        "cgroup" => !v2 && source.nth(1)?.split(',').any(|option| option == "memory"),
        _ => false,
    };
    if right { mount.split(' ').nth(4) } else { None }
}

/// Bytes left in one group; `None` where it has no limit or does not say.
fn left_in(group: &Group) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(group.folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number(group.limit)?;
    let usage = number(group.usage)?;
    let reclaimable = fs::read_to_string(group.folder.join("memory.stat"))
        .ok()
        .and_then(|stat| {
            let line =
                stat.lines().find_map(|line| line.strip_prefix(group.reclaimable)?.strip_prefix(' '))?;
            line.trim().parse::<u64>().ok()
        })
        .unwrap_or(0);
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
    fn without_groups_the_machine_decides() {
        assert_eq!(available_memory(machine(&[MEMINFO]).path()).unwrap(), 1000 * 1024);
    }

    #[test]
    fn a_v2_limit_of_any_ancestor_counts_and_page_cache_is_free() {
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
    fn a_v1_limit_counts_also_where_the_container_sees_only_the_mount() {
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
