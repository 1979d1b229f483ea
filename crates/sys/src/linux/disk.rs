//! Finds the disks below a mount, because a measurement is useful only if we know which disk was measured.
//! The search descends through partitions, device mappers, RAID arrays and loop devices.

use std::fs;
use std::path::{Path, PathBuf};

use super::mount::{Mount, Roots};

/// Maximum depth of stacked devices. No real stack is this deep.
const MAX_STACK_DEPTH: usize = 16;

/// The layers from a mount down to the storage that contains its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// The layers from top to bottom, e.g. `"overlay"`, `"partition sda1"`, `"LVM vg-root"`.
    pub layers: Vec<String>,
    /// The storage at the bottom of the stack.
    pub bottom: Bottom,
}

/// The storage at the bottom of a [`Stack`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bottom {
    /// One or more disks, each listed once.
    Disks(Vec<Disk>),
    /// The memory of this machine.
    Memory,
    /// A file system on another machine or on this machine's host. The text contains its type and source.
    Network(String),
    /// Unknown storage, with the reason why it is unknown.
    Unknown(String),
}

/// A block device at the bottom of a stack. In other words, it isn't a partition, a mapping or an image of
/// another visible device. Fields are `None` if the kernel doesn't report the value. Source: Linux,
/// Documentation/ABI/stable/sysfs-block.
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
    /// Maximum number of commands the device accepts at once.
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

/// The state of a search that descends from a mount.
struct StackSearch<'a> {
    roots: &'a Roots,
    layers: Vec<String>,
    disks: Vec<Disk>,
}

impl Stack {
    /// Finds the storage below `mount`.
    #[must_use]
    pub fn below(roots: &Roots, mount: &Mount) -> Self {
        let mut walk = StackSearch { roots, layers: Vec::new(), disks: Vec::new() };
        let end = walk.mount(mount, 0);
        let bottom = match end {
            Some(end) if walk.disks.is_empty() => end,
            _ => Bottom::Disks(walk.disks),
        };
        Self { layers: walk.layers, bottom }
    }
}

impl StackSearch<'_> {
    /// Descends from `mount` to the storage below, adding each disk to [`Self::disks`]. Returns the storage
    /// if it isn't a disk.
    fn mount(&mut self, mount: &Mount, depth: usize) -> Option<Bottom> {
        if depth > MAX_STACK_DEPTH {
            return Some(Bottom::Unknown("devices are stacked too deep to follow".to_owned()));
        }
        let kind = mount.kind.as_str();
        match kind {
            "tmpfs" | "ramfs" | "rootfs" => Some(Bottom::Memory),
            "overlay" | "aufs" => self.overlay(mount, depth),
            "btrfs" => self.btrfs(mount, depth),
            "zfs" => Some(Bottom::Unknown(format!("only zpool knows the disks of \"{}\"", mount.source))),
            "9p" | "virtiofs" | "vboxsf" | "prl_fs" | "fuse.vmhgfs-fuse" | "fuse.grpcfuse" | "fakeowner" => {
                Some(Bottom::Network(format!("{kind}: a folder of the host, shared with this machine")))
            }
            "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "glusterfs" | "lustre" | "afs" | "fuse.sshfs"
            | "fuse.glusterfs" | "fuse.ceph" | "fuse.s3fs" => {
                Some(Bottom::Network(format!("{kind}: \"{}\"", mount.source)))
            }
            _ if mount.device.0 == 0 => {
                Some(Bottom::Unknown(format!("{kind} has no device that the kernel names")))
            }
            _ => self.device(mount.device, depth),
        }
    }

    /// Descends from an overlay to the file system of its upper directory. A container can't see that
    /// directory, because the path is a path on the host. In that case we look at files that the container
    /// engine mounts into the container, such as /etc/hosts, which are usually on the same file system as the
    /// upper directory.
    fn overlay(&mut self, mount: &Mount, depth: usize) -> Option<Bottom> {
        self.layers.push(mount.kind.clone());
        let outside = |found: &Mount| found.kind != mount.kind;
        let upper =
            mount.super_option("upperdir").and_then(|upper| Mount::of(self.roots, Path::new(&upper)).ok());
        if let Some(upper) = upper.filter(outside) {
            return self.mount(&upper, depth + 1);
        }
        let beside = ["/etc/hosts", "/etc/resolv.conf", "/etc/hostname"].iter().find_map(|file| {
            let found = Mount::of(self.roots, Path::new(file)).ok()?;
            (found.point == Path::new(file) && found.device.0 != 0).then_some((file, found))
        });
        let Some((file, beside)) = beside else {
            let why = "the upper folder of the overlay is out of sight, as usual in a container";
            return Some(Bottom::Unknown(why.to_owned()));
        };
        self.layers.push(format!("beside {file}, presumably"));
        self.mount(&beside, depth + 1)
    }

    fn btrfs(&mut self, mount: &Mount, depth: usize) -> Option<Bottom> {
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let source = Path::new(&mount.source).canonicalize().unwrap_or_else(|_| PathBuf::from(&mount.source));
        let wanted = name(&source).unwrap_or_default();
        let pools = sorted_entries(&self.roots.sysfs.join("fs/btrfs"));
        let members = pools.iter().map(|pool| sorted_entries(&pool.join("devices")));
        let members = members
            .into_iter()
            .find(|members| members.iter().any(|member| name(member).as_deref() == Some(&wanted)));
        let Some(members) = members else {
            let why = format!("btrfs does not tell the disks of \"{}\"", mount.source);
            return Some(Bottom::Unknown(why));
        };
        self.layers.push(match members.len() {
            1 => "btrfs".to_owned(),
            count => format!("btrfs over {count} devices"),
        });
        members.iter().filter_map(|member| self.block(&name(member)?, depth + 1)).last()
    }

    fn device(&mut self, (major, minor): (u32, u32), depth: usize) -> Option<Bottom> {
        let link = self.roots.sysfs.join(format!("dev/block/{major}:{minor}"));
        match link.canonicalize() {
            Ok(folder) => self.folder(&folder, depth),
            Err(error) => {
                let why = format!("the kernel does not show device {major}:{minor} ({error})");
                Some(Bottom::Unknown(why))
            }
        }
    }

    fn block(&mut self, name: &str, depth: usize) -> Option<Bottom> {
        let link = self.roots.sysfs.join("class/block").join(name);
        match link.canonicalize() {
            Ok(folder) => self.folder(&folder, depth),
            Err(error) => Some(Bottom::Unknown(format!("the kernel does not show \"{name}\" ({error})"))),
        }
    }

    /// Descends from the block device whose sysfs directory is `folder`.
    fn folder(&mut self, folder: &Path, depth: usize) -> Option<Bottom> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if depth > MAX_STACK_DEPTH {
            return Some(Bottom::Unknown("devices are stacked too deep to follow".to_owned()));
        }
        if folder.join("partition").exists() {
            self.layers.push(format!("partition {name}"));
            return self.folder(folder.parent()?, depth + 1);
        }
        if let Some(file) = read_trimmed(&folder.join("loop/backing_file")) {
            self.layers.push(format!("{name} over the file \"{file}\""));
            return match Mount::of(self.roots, Path::new(&file)) {
                Ok(mount) => self.mount(&mount, depth + 1),
                Err(error) => Some(Bottom::Unknown(format!("\"{file}\" is out of sight ({error})"))),
            };
        }
        let slaves = sorted_entries(&folder.join("slaves"));
        if slaves.is_empty() {
            let disk = Disk::read(folder, name);
            if !self.disks.contains(&disk) {
                self.disks.push(disk);
            }
            return None;
        }
        self.layers.push(mapping(folder, &name, slaves.len()));
        let names = slaves.iter().filter_map(|slave| Some(slave.file_name()?.to_string_lossy().into_owned()));
        names.filter_map(|slave| self.block(&slave, depth + 1)).last()
    }
}

/// Describes a device built on top of other devices. The prefixes come from lvm2, cryptsetup, multipath-tools
/// and kpartx.
fn mapping(folder: &Path, name: &str, members: usize) -> String {
    if let Some(level) = read_trimmed(&folder.join("md/level")) {
        return format!("RAID {name} ({level}, {members} members)");
    }
    let uuid = read_trimmed(&folder.join("dm/uuid")).unwrap_or_default();
    let title = read_trimmed(&folder.join("dm/name")).unwrap_or_else(|| name.to_owned());
    match uuid.split('-').next().unwrap_or_default() {
        "LVM" => format!("LVM {title}"),
        "CRYPT" => format!("encryption {title}"),
        "mpath" => format!("multipath {title}"),
        part if part.starts_with("part") => format!("partition {title}"),
        _ if folder.join("bcache").exists() => format!("bcache {name}"),
        _ => format!("mapping {title}"),
    }
}

impl Disk {
    fn read(folder: &Path, name: String) -> Self {
        let queue = |file: &str| read_trimmed(&folder.join("queue").join(file));
        let number = |text: Option<String>| text?.parse::<u32>().ok();
        let flag = |text: Option<String>| Some(text? != "0");
        let device = folder.join("device");
        let told = |file: &str| read_trimmed(&device.join(file)).filter(|text| !text.is_empty());
        let model = match (told("vendor"), told("model")) {
            // Omit "ATA", which isn't a vendor, and the number that virtio reports.
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
            firmware: told("firmware_rev").or_else(|| told("rev")),
            bytes: read_trimmed(&folder.join("size"))
                .and_then(|text| text.parse::<u64>().ok())
                .map(|sectors| sectors * 512),
            rotational: flag(queue("rotational")),
            scheduler,
            queue_depth: number(told("queue_depth")),
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
    use std::os::unix::fs::symlink;

    use super::super::readings::Sensors;
    use super::*;

    /// A fake machine: a temporary directory with files like those in sysfs and procfs.
    struct Machine {
        root: tempfile::TempDir,
        roots: Roots,
    }

    impl Machine {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let roots = Roots { sysfs: root.path().join("sys"), procfs: root.path().join("proc") };
            Self { root, roots }
        }

        fn put(&self, path: &str, text: &str) -> PathBuf {
            let path = self.root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, format!("{text}\n")).unwrap();
            path
        }

        fn link(&self, path: &str, target: &Path) {
            let path = self.root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        }

        /// Creates a block device whose sysfs directory is `sys/devices/PATH`.
        fn block(&self, path: &str, number: &str, files: &[(&str, &str)]) {
            let folder = self.root.path().join("sys/devices").join(path);
            let name = folder.file_name().unwrap().to_str().unwrap();
            self.put(&format!("sys/devices/{path}/dev"), number);
            for (file, text) in files {
                self.put(&format!("sys/devices/{path}/{file}"), text);
            }
            self.link(&format!("sys/class/block/{name}"), &folder);
            self.link(&format!("sys/dev/block/{number}"), &folder);
        }

        fn slave(&self, path: &str, slave: &str) {
            self.link(
                &format!("sys/devices/{path}/slaves/{slave}"),
                &self.roots.sysfs.join("class/block").join(slave),
            );
        }

        /// Returns the stack below a root mount with this device and file system type. `more` contains
        /// additional lines for mountinfo.
        fn below(&self, device: &str, kind: &str, source: &str, options: &str, more: &str) -> Stack {
            let line = format!("30 1 {device} / / rw - {kind} {source} {options}\n{more}");
            self.put("proc/self/mountinfo", &line);
            Stack::below(&self.roots, &Mount::of(&self.roots, Path::new("/")).unwrap())
        }
    }

    fn names(stack: &Stack) -> Vec<&str> {
        let Bottom::Disks(disks) = &stack.bottom else { panic!("{stack:?}") };
        disks.iter().map(|disk| disk.name.as_str()).collect()
    }

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
    fn lvm_luks_raid_stack_resolves_to_both_disks() {
        let machine = Machine::new();
        for (disk, number, part) in [("sda", "8:0", "8:1"), ("sdb", "8:16", "8:17")] {
            let files = [
                ("device/vendor", "ATA     "),
                ("device/model", "ST4000DM004"),
                ("device/queue_depth", "30"),
            ];
            machine.block(&format!("ata/{disk}"), number, &files);
            machine.block(&format!("ata/{disk}/{disk}1"), part, &[("partition", "1")]);
            machine.slave("virtual/md0", &format!("{disk}1"));
        }
        machine.block("virtual/md0", "9:0", &[("md/level", "raid1")]);
        machine.block("virtual/dm-0", "253:0", &[("dm/uuid", "CRYPT-LUKS2-0a-luks"), ("dm/name", "luks")]);
        machine.block("virtual/dm-1", "253:1", &[("dm/uuid", "LVM-a0b1"), ("dm/name", "vg-root")]);
        machine.slave("virtual/dm-0", "md0");
        machine.slave("virtual/dm-1", "dm-0");
        let stack = machine.below("253:1", "xfs", "/dev/mapper/vg-root", "rw", "");
        assert_eq!(
            stack.layers,
            [
                "LVM vg-root",
                "encryption luks",
                "RAID md0 (raid1, 2 members)",
                "partition sda1",
                "partition sdb1"
            ]
        );
        assert_eq!(names(&stack), ["sda", "sdb"]);
        let Bottom::Disks(disks) = &stack.bottom else { unreachable!() };
        assert_eq!((disks[0].model.as_deref(), disks[0].queue_depth), (Some("ST4000DM004"), Some(30)));
    }

    #[test]
    fn loop_device_resolves_to_disk_without_endless_recursion() {
        let machine = Machine::new();
        let file = machine.put("images/disk.img", "");
        machine.block("virtual/loop0", "7:0", &[("loop/backing_file", file.to_str().unwrap())]);
        machine.block("pci0/vda", "254:0", &[("device/vendor", "0x554d4551")]);
        let more = format!("31 1 254:0 / {} rw - ext4 /dev/vda rw", machine.root.path().display());
        let stack = machine.below("7:0", "ext4", "/dev/loop0", "rw", &more);
        assert_eq!((stack.layers.len(), names(&stack)), (1, vec!["vda"]));
        // The file behind this loop device is on the very mount that the device provides, so the search would
        // never end.
        let stack = machine.below("7:0", "ext4", "/dev/loop0", "rw", "");
        assert!(matches!(stack.bottom, Bottom::Unknown(_)), "{stack:?}");
    }

    #[test]
    fn btrfs_lists_its_devices_without_own_device_number() {
        let machine = Machine::new();
        for (disk, number) in [("sda", "8:0"), ("sdb", "8:16"), ("sdc", "8:32")] {
            machine.block(&format!("ata/{disk}"), number, &[]);
            let pool = if disk == "sdc" { "other" } else { "pool" };
            let target = machine.roots.sysfs.join("class/block").join(disk);
            machine.link(&format!("sys/fs/btrfs/{pool}/devices/{disk}"), &target);
        }
        let stack = machine.below("0:40", "btrfs", "/dev/sdb", "rw,subvol=/@", "");
        assert_eq!(
            (stack.layers.as_slice(), names(&stack)),
            (&["btrfs over 2 devices".to_owned()][..], vec!["sda", "sdb"])
        );
    }

    #[test]
    fn overlay_resolves_on_host_and_guesses_in_container() {
        let machine = Machine::new();
        machine.block("pci0/vda", "254:0", &[]);
        let upper = machine.put("upper/file", "");
        let upper = upper.parent().unwrap().display().to_string();
        let options = format!("rw,lowerdir=/l,upperdir={upper},workdir=/w");
        let more = format!("31 1 254:0 / {upper} rw - ext4 /dev/vda rw");
        let stack = machine.below("0:50", "overlay", "overlay", &options, &more);
        assert_eq!((stack.layers.join(", ").as_str(), names(&stack)), ("overlay", vec!["vda"]));

        let options = "rw,lowerdir=/l,upperdir=/nowhere/diff,workdir=/w";
        let hosts = "31 1 254:0 /var/lib/docker/c/hosts /etc/hosts rw - ext4 /dev/vda rw";
        let stack = machine.below("0:50", "overlay", "overlay", options, hosts);
        assert_eq!(stack.layers, ["overlay", "beside /etc/hosts, presumably"]);
        assert_eq!(names(&stack), ["vda"]);

        let stack = machine.below("0:50", "overlay", "overlay", options, "");
        let Bottom::Unknown(why) = &stack.bottom else { panic!("{stack:?}") };
        assert!(why.contains("out of sight"), "{why}");
    }

    #[test]
    fn non_disk_storage_is_classified() {
        let machine = Machine::new();
        assert_eq!(machine.below("0:30", "tmpfs", "tmpfs", "rw", "").bottom, Bottom::Memory);
        for (kind, source) in [("nfs4", "srv:/export"), ("cifs", "//srv/share"), ("9p", "hostshare")] {
            let stack = machine.below("0:31", kind, source, "rw", "");
            assert!(matches!(&stack.bottom, Bottom::Network(what) if what.starts_with(kind)), "{stack:?}");
        }
        for (kind, device) in [("zfs", "0:32"), ("fuse.mystery", "0:33"), ("ext4", "8:99")] {
            let stack = machine.below(device, kind, "x", "rw", "");
            assert!(matches!(stack.bottom, Bottom::Unknown(_)), "{stack:?}");
        }
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

    #[test]
    fn pressure_and_unwritten_pages_are_read() {
        let machine = Machine::new();
        machine.put("proc/pressure/io", "some avg10=1.00 avg60=0.00 avg300=0.00 total=1500000\nfull total=9");
        machine.put(
            "proc/meminfo",
            "MemTotal: 1 kB\nDirty:            30 kB\nWriteback:         2 kB\nWritebackTmp: 9 kB",
        );
        machine.put("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3");
        machine.put("sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "4");
        machine.put("proc/pressure/cpu", "some avg10=1.00 avg60=0.00 avg300=0.00 total=2500000");
        let readings = Sensors::of(&machine.roots, None).read();
        assert_eq!(
            (readings.io_pressure, readings.cpu_pressure, readings.dirty),
            (Some(1.5), Some(2.5), Some(32 * 1024))
        );
        assert_eq!((readings.throttles, readings.temperature), (Some(7), None));
    }
}
