//! `pgfresh doctor`: what it says of a disk, and that nothing of it stays.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use common::{Outcome, Scene, User};
use serde_json::Value;

fn json(outcome: &Outcome) -> Value {
    assert!(outcome.code == Some(0), "{outcome}");
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}\n{outcome}"))
}

fn layer<'a>(diagnosis: &'a Value, name: &str) -> &'a Value {
    let layers = diagnosis["layers"].as_array().unwrap();
    layers
        .iter()
        .find(|layer| layer["name"] == name)
        .unwrap_or_else(|| panic!("no layer {name}: {diagnosis}"))
}

fn verdict<'a>(diagnosis: &'a Value, name: &str) -> &'a str {
    layer(diagnosis, name)["verdict"].as_str().unwrap()
}

fn rows<'a>(diagnosis: &'a Value, title: &str) -> &'a Vec<Value> {
    let tables = diagnosis["tables"].as_array().unwrap();
    let table = tables.iter().find(|table| table["title"] == title);
    table.unwrap_or_else(|| panic!("no table {title}: {diagnosis}"))["rows"].as_array().unwrap()
}

/// Writes a stand-in for the machine: `folder` lies on a partition of the disk that `files` describe.
fn machine(root: &Path, folder: &Path, files: &[(&str, &str)]) {
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

#[test]
fn every_layer_is_told_with_its_evidence() {
    for &user in User::all() {
        let scene = Scene::new(user);
        let outcome = scene.run(["doctor", "--quick", "--json", scene.directory.to_str().unwrap()]);
        let diagnosis = json(&outcome);
        assert!(outcome.stderr.is_empty(), "{outcome}");
        for name in ["Device", "File system", "Sync"] {
            assert!(verdict(&diagnosis, name).ends_with('.'), "{diagnosis}");
        }
        assert!(layer(&diagnosis, "File system")["facts"]["free"]["value"].as_f64().unwrap() > 0.0);
        let methods = rows(&diagnosis, "Sync methods");
        assert_eq!(methods.len(), 18);
        for row in methods {
            let refused = row["refusal"] != "";
            assert!(refused || row["rate"]["value"].as_f64().unwrap() > 0.0, "{row}");
            assert!(refused || row["p50"]["value"].as_f64() <= row["p99"]["value"].as_f64(), "{row}");
        }
        let distributions = diagnosis["distributions"].as_array().unwrap();
        assert!(distributions.iter().any(|one| one["name"] == "one 8 kB write: fdatasync"), "{diagnosis}");
    }
}

#[test]
fn memory_is_called_memory() {
    let scene = Scene::new(User::Ourselves);
    let diagnosis = json(&scene.run(["doctor", "--quick", "--json", scene.place.to_str().unwrap()]));
    assert!(verdict(&diagnosis, "Device").starts_with("memory"), "{diagnosis}");
    assert!(verdict(&diagnosis, "Sync").contains("memory, nothing is flushed"), "{diagnosis}");
}

#[test]
fn a_drive_that_gets_no_flush_lies_and_one_that_is_too_quick_is_not_believed() {
    let scene = Scene::new(User::Ourselves);
    let root = scene.directory.join("machine");
    let drive = [
        ("queue/write_cache", "write back"),
        ("queue/rotational", "0"),
        ("device/model", "Samsung SSD 990 PRO 2TB"),
    ];
    machine(&root, &scene.place, &drive);
    let (sysfs, procfs) = (root.join("sys"), root.join("proc"));
    // The place is a tmpfs: what is written there is quick, and no disk gets a flush.
    let examine = || {
        let (sysfs, procfs) = (sysfs.to_str().unwrap(), procfs.to_str().unwrap());
        let place = scene.place.to_str().unwrap();
        json(&scene.run(["doctor", "--quick", "--json", "--sysfs", sysfs, "--procfs", procfs, place]))
    };
    let diagnosis = examine();
    assert!(
        verdict(&diagnosis, "Device").contains("sdq (Samsung SSD 990 PRO 2TB) has a volatile write cache")
    );
    assert_eq!(layer(&diagnosis, "Device")["facts"]["through"], "partition sdq1");
    assert!(verdict(&diagnosis, "Sync").contains("lies about flush"), "{diagnosis}");

    fs::remove_file(procfs.join("diskstats")).unwrap();
    assert!(verdict(&examine(), "Sync").contains("virtual or unproven"));
}

#[test]
fn what_cannot_be_written_to_is_an_error_that_says_so() {
    let scene = Scene::new(User::Ourselves);
    let missing = scene.directory.join("missing");
    let outcome = scene.run(["doctor", missing.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert!(
        outcome.stderr.starts_with("pgfresh: could not use \"") && outcome.stdout.is_empty(),
        "{outcome}"
    );
}
