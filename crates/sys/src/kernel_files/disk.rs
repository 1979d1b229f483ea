//! Reads a disk's properties and flush count from sysfs, and our control group's limit on writes to the disk.

use std::fs;
use std::path::{Path, PathBuf};

use super::mount::Roots;

/// A block device at the bottom of a stack, which means that it isn't a partition, a
/// mapping or an image of a different visible device. Fields are `None` if the kernel
/// doesn't report the value. Source: Linux, Documentation/ABI/stable/sysfs-block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Disk {
    /// Name in `/dev`, e.g. `nvme0n1`.
    pub name: String,
    /// Vendor and model.
    pub model: Option<String>,
    /// Firmware revision.
    pub firmware: Option<String>,
    /// Size in bytes.
    pub bytes: Option<u64>,
    /// Whether the device reports itself as a rotating disk. Virtual disks often report this.
    pub rotational: Option<bool>,
    /// The I/O scheduler in use.
    pub scheduler: Option<String>,
    /// Maximum number of commands that the device accepts concurrently.
    pub queue_depth: Option<u32>,
    /// Maximum number of requests the kernel queues.
    pub requests: Option<u32>,
    /// The write cache mode that the kernel assumes. The kernel sends flushes with `write back`, but not with
    /// `write through`.
    pub write_cache: Option<String>,
    /// The cache mode that a SCSI drive itself reports. If this differs from `write_cache`, an administrator
    /// has overridden the mode and the kernel sends no flushes.
    pub drive_cache: Option<String>,
    /// Whether the device supports writes with forced unit access.
    pub fua: Option<bool>,
    /// Logical and physical sector sizes, in bytes.
    pub sectors: Option<(u32, u32)>,
    /// The device's directory in sysfs.
    pub folder: PathBuf,
}

impl Disk {
    /// Reads the properties of the device whose sysfs directory is `folder`.
    pub(super) fn read(folder: &Path, name: String) -> Self {
        let queue = |file: &str| read_trimmed(&folder.join("queue").join(file));
        let number = |text: Option<String>| text?.parse::<u32>().ok();
        let flag = |text: Option<String>| Some(text? != "0");
        let device = folder.join("device");
        let attribute = |file: &str| read_trimmed(&device.join(file)).filter(|text| !text.is_empty());
        let model = match (attribute("vendor"), attribute("model")) {
            // Omit "ATA", which isn't a vendor, and the hexadecimal number that virtio reports as its vendor.
            (Some(vendor), Some(model)) if vendor != "ATA" && !vendor.starts_with("0x") => {
                Some(format!("{vendor} {model}"))
            }
            (_, model) => model,
        };
        let scheduler = queue("scheduler").map(|all| {
            let chosen = all.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            chosen.map_or(all.clone(), |(chosen, _)| chosen.to_owned())
        });
        let logical = number(queue("logical_block_size"));
        let physical = number(queue("physical_block_size"));
        let drive = sorted_entries(&device.join("scsi_disk"));
        Self {
            model,
            firmware: attribute("firmware_rev").or_else(|| attribute("rev")),
            bytes: read_trimmed(&folder.join("size"))
                .and_then(|text| text.parse::<u64>().ok())
                .map(|sectors| sectors * 512),
            rotational: flag(queue("rotational")),
            scheduler,
            queue_depth: number(attribute("queue_depth")),
            requests: number(queue("nr_requests")),
            write_cache: queue("write_cache"),
            drive_cache: drive.first().and_then(|drive| read_trimmed(&drive.join("cache_type"))),
            fua: flag(queue("fua")),
            sectors: logical.zip(physical),
            name,
            folder: folder.to_owned(),
        }
    }

    /// Returns the number of flushes that the device has completed for the kernel since boot. Source: Linux,
    /// Documentation/admin-guide/iostats.rst, field 16, since 5.5.
    #[must_use]
    pub fn flushes(&self, roots: &Roots) -> Option<u64> {
        let table = fs::read_to_string(roots.procfs.join("diskstats")).ok()?;
        let line = table.lines().find(|line| line.split_whitespace().nth(2) == Some(&self.name))?;
        line.split_whitespace().nth(18)?.parse().ok()
    }

    /// Returns this process's control group limit on write operations per second, or `None` if there is no
    /// limit.
    ///
    /// Source: Linux, Documentation/admin-guide/cgroup-v2.rst (`io.max`) and cgroup-v1/blkio-controller.rst.
    #[must_use]
    pub fn write_cap(&self, roots: &Roots) -> Option<u64> {
        let device = read_trimmed(&self.folder.join("dev"))?;
        let groups = roots.sysfs.join("fs/cgroup");
        let memberships = fs::read_to_string(roots.procfs.join("self/cgroup")).unwrap_or_default();
        let folder_of = |controller: &str, base: PathBuf| {
            let path = memberships.lines().find_map(|line| {
                let (names, path) = line.split_once(':')?.1.split_once(':')?;
                names.split(',').any(|name| name == controller).then_some(path)
            });
            base.join(path.unwrap_or_default().trim_start_matches('/'))
        };
        let v2 = read_trimmed(&folder_of("", groups.clone()).join("io.max"));
        let limits = v2.unwrap_or_default();
        let limit = limits.lines().find_map(|line| line.strip_prefix(&device)?.strip_prefix(' '));
        let limit = limit.and_then(|limits| limits.split(' ').find_map(|limit| limit.strip_prefix("wiops=")));
        let base = groups.join("blkio");
        let v1 = [folder_of("blkio", base.clone()), base].into_iter().find_map(|folder| {
            let limits = read_trimmed(&folder.join("blkio.throttle.write_iops_device"))?;
            limits.lines().find_map(|line| Some(line.strip_prefix(&device)?.trim().to_owned()))
        });
        limit.map(str::to_owned).or(v1)?.parse().ok()
    }
}

/// Reads a file and trims its text. Returns `None` if the file can't be read.
pub(crate) fn read_trimmed(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Returns the paths of a directory's entries, sorted. Returns an empty list if the directory can't be read.
pub(crate) fn sorted_entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::super::fake_machine::Machine;
    use super::super::readings::Sensors;
    use super::super::storage_stack::Bottom;

    #[test]
    fn partition_resolves_to_its_described_disk() {
        let machine = Machine::new();
        let nvme = [
            ("queue/rotational", "0"),
            ("queue/write_cache", "write back"),
            ("queue/fua", "1"),
            ("queue/scheduler", "[none] mq-deadline"),
            ("queue/logical_block_size", "512"),
            ("queue/physical_block_size", "4096"),
            ("queue/nr_requests", "1023"),
            ("size", "3907029168"),
            ("device/model", "Samsung SSD 990 PRO 2TB                 "),
            ("device/firmware_rev", "4B2QJXD7"),
        ];
        machine.block("pci0/nvme/nvme0/nvme0n1", "259:0", &nvme);
        machine.block("pci0/nvme/nvme0/nvme0n1/nvme0n1p2", "259:2", &[("partition", "2")]);
        machine.put(
            "proc/diskstats",
            " 259 2 nvme0n1p2 1 2 3\n 259 0 nvme0n1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 77 5",
        );
        machine.put("sys/devices/pci0/nvme/nvme0/nvme0n1/device/hwmon3/temp1_input", "64850");
        machine.put("sys/devices/pci0/nvme/nvme0/nvme0n1/device/hwmon3/temp2_input", "79850");
        machine.put("sys/devices/pci0/nvme/nvme0/nvme0n1/device/hwmon3/temp1_max", "82850");
        let stack = machine.below("259:2", "ext4", "/dev/nvme0n1p2", "rw", "");
        assert_eq!(stack.layers, ["partition nvme0n1p2"]);
        let Bottom::Disks(disks) = &stack.bottom else { panic!("{stack:?}") };
        let disk = &disks[0];
        assert_eq!(disk.model.as_deref(), Some("Samsung SSD 990 PRO 2TB"));
        assert_eq!((disk.rotational, disk.fua, disk.sectors), (Some(false), Some(true), Some((512, 4096))));
        assert_eq!(
            (disk.scheduler.as_deref(), disk.requests, disk.queue_depth),
            (Some("none"), Some(1023), None)
        );
        assert_eq!((disk.bytes, disk.write_cache.as_deref()), (Some(2_000_398_934_016), Some("write back")));
        assert_eq!(disk.flushes(&machine.roots), Some(77));
        let sensors = Sensors::of(&machine.roots, Some(disk));
        assert_eq!((sensors.read().temperature, sensors.limit), (Some(79.85), Some(82.85)));
        assert_eq!((sensors.read().alarm, sensors.read().heat), (None, None));
        machine.put("sys/devices/pci0/nvme/nvme0/nvme0n1/device/hwmon3/temp1_alarm", "1");
        assert_eq!(sensors.read().alarm, Some(true));
    }

    #[test]
    fn edited_cache_mode_and_cgroup_caps_are_detected() {
        let machine = Machine::new();
        let files =
            [("queue/write_cache", "write through"), ("device/scsi_disk/0:0:0:0/cache_type", "write back")];
        machine.block("scsi/sda", "8:0", &files);
        let stack = machine.below("8:0", "ext4", "/dev/sda", "rw", "");
        let Bottom::Disks(disks) = stack.bottom else { unreachable!() };
        let [disk] = &disks[..] else { unreachable!() };
        assert_eq!(disk.write_cache.as_deref(), Some("write through"));
        assert_eq!(disk.drive_cache.as_deref(), Some("write back"));
        assert_eq!(disk.write_cap(&machine.roots), None);
        machine.put("proc/self/cgroup", "4:blkio:/job\n0::/job");
        machine.put("sys/fs/cgroup/job/io.max", "8:16 wiops=9\n8:0 rbps=max wbps=max riops=max wiops=1500");
        assert_eq!(disk.write_cap(&machine.roots), Some(1500));
        machine.put("sys/fs/cgroup/job/io.max", "8:0 rbps=max wbps=max riops=max wiops=max");
        machine.put("sys/fs/cgroup/blkio/blkio.throttle.write_iops_device", "8:0 1000");
        machine.put("sys/fs/cgroup/job/io.max", "");
        assert_eq!(disk.write_cap(&machine.roots), Some(1000));
    }
}
