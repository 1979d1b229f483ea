//! Machines simulated with files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Writes the files of a machine where `folder` lies on a disk partition. `files` describe the disk.
pub(crate) fn machine(root: &Path, folder: &Path, files: &[(&str, &str)]) {
    let put = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    for (file, text) in files {
        put(&format!("sys/devices/sdq/{file}"), text);
    }
    put("sys/devices/sdq/sdq1/partition", "1");
    put("proc/self/mountinfo", &format!("9 1 8:17 / {} rw,noatime - ext4 /dev/sdq1 rw", folder.display()));
    put("proc/diskstats", "8 16 sdq 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 50 0");
    fs::create_dir_all(root.join("sys/dev/block")).unwrap();
    symlink(root.join("sys/devices/sdq/sdq1"), root.join("sys/dev/block/8:17")).unwrap();
}
