//! Derives findings that don't need a measurement, because the properties of a device or a file system reveal
//! the problem.

use report::{Finding, Quantity, Unit, as_f64};

use crate::device::{Device, FlushDurability};
use crate::filesystem::FilesystemInfo;

/// Returns the findings about the device and the file system.
pub(crate) fn from_properties(device: &Device, files: &FilesystemInfo) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |name: &str, evidence: String, remedy: &str| {
        findings.push(Finding { name: name.to_owned(), evidence, gain: None, remedy: remedy.to_owned() });
    };
    if device.flush_durability() == FlushDurability::FlushesDisabled {
        add(
            "The disk's cache is not flushed",
            "The drive has a volatile write cache, but its queue/write_cache says \"write through\", so the kernel \
            sends no flush: a power cut loses what was committed."
                .to_owned(),
            "If the data must survive a power cut, write \"write back\" to that file. For tests, the setting does no harm.",
        );
    }
    if let Some(cap) = device.cap {
        let cap = Quantity::new(as_f64(cap), Unit::PerSecond);
        add(
            "Writes are capped",
            format!("The control group of this process may write {cap} (io.max or blkio.throttle)."),
            "Raise the cap, or keep the data in RAM: \"pgfresh run --place ram\".",
        );
    }
    if files.mount.kind == "overlay" {
        add(
            "The data is on an overlay file system",
            "An overlay is a container's own layer: it copies each file up when that is first written to, and its \
            disk is shared with all containers."
                .to_owned(),
            "Give the server a volume or a tmpfs (docker run --tmpfs /var/lib/postgresql/data; for PostgreSQL 18, \
             /var/lib/postgresql).",
        );
    }
    if let Some(shm) = files.shm.filter(|_| files.has_small_shm()) {
        let size = Quantity::new(as_f64(shm.total), Unit::Bytes);
        add(
            "/dev/shm is small",
            format!(
                "/dev/shm has {size} in total, as is usual in containers: too little for parallel queries or for data in RAM."
            ),
            "Start the container with --shm-size=1g, or give it a --tmpfs /tmp.",
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sys::{Bottom, Disk, Filesystem, FilesystemKind, Mount, Roots, Stack};

    use super::*;

    fn files(kind: &str, shm: u64) -> FilesystemInfo {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("self")).unwrap();
        let table = format!("1 1 0:50 / / rw - {kind} none rw");
        std::fs::write(folder.path().join("self/mountinfo"), table).unwrap();
        let roots = Roots { procfs: folder.path().to_owned(), ..Roots::default() };
        let here =
            Filesystem { kind: FilesystemKind::Disk, total: 1 << 40, free: 1 << 39, free_files: u64::MAX };
        let shm =
            Some(Filesystem { kind: FilesystemKind::Memory, total: shm, free: shm, free_files: u64::MAX });
        let mount = Mount::of(&roots, Path::new("/")).unwrap();
        FilesystemInfo { mount, here, reflinks: Some(false), shm, memory: None }
    }

    fn names(device: &Device, files: &FilesystemInfo) -> Vec<String> {
        from_properties(device, files).into_iter().map(|finding| finding.name).collect()
    }

    #[test]
    fn each_problem_has_exactly_one_finding() {
        let disk =
            Disk { name: "sda".to_owned(), write_cache: Some("write back".to_owned()), ..Disk::default() };
        let device = |disk: &Disk, cap| Device {
            stack: Stack { layers: Vec::new(), bottom: Bottom::Disks(vec![disk.clone()]) },
            cap,
        };
        assert_eq!(names(&device(&disk, None), &files("ext4", 1 << 30)), [""; 0]);
        assert_eq!(names(&device(&disk, Some(900)), &files("ext4", 1 << 30)), ["Writes are capped"]);
        assert_eq!(
            names(&device(&disk, None), &files("overlay", 1 << 30)),
            ["The data is on an overlay file system"]
        );
        assert_eq!(names(&device(&disk, None), &files("ext4", 64 << 20)), ["/dev/shm is small"]);
        let edited = Disk {
            write_cache: Some("write through".to_owned()),
            drive_cache: Some("write back".to_owned()),
            ..disk
        };
        assert_eq!(
            names(&device(&edited, None), &files("ext4", 1 << 30)),
            ["The disk's cache is not flushed"]
        );
    }
}
