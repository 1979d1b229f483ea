//! Finds the disks below a mount, because a measurement is useful only if the report names the measured
//! disk. The search descends through partitions, device mappers, RAID arrays and loop devices.

use std::path::{Path, PathBuf};

use super::disk::{Disk, read_trimmed, sorted_entries};
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
    /// A file system on a different machine or on this machine's
    /// host. The text contains the file system's type and source.
    Network(String),
    /// Unknown storage, with the reason why it is unknown.
    Unknown(String),
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

    /// Descends from an overlay to the file system of its upper directory. A container can't see that directory,
    /// because the path is a path on the host. In that case, the search continues at files that the container engine
    /// mounts into the container, such as /etc/hosts. These are usually on the same file system as the upper directory.
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
            let why = format!("btrfs does not report the disks of \"{}\"", mount.source);
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

#[cfg(test)]
mod tests {
    use super::super::fake_machine::Machine;
    use super::*;

    fn names(stack: &Stack) -> Vec<&str> {
        let Bottom::Disks(disks) = &stack.bottom else { panic!("{stack:?}") };
        disks.iter().map(|disk| disk.name.as_str()).collect()
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
}
