//! Tests version managers: programs on `PATH` that start a different PostgreSQL, depending on
//! the folder or on a file.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::common::{Outcome, Scene, User, finish, ground, postgres};

/// Shell script that selects a version from the file `.tool` in the current folder or in a folder above,
/// as version managers do.
const BY_FOLDER: &str = "folder=$PWD
    until [ -f \"$folder/.tool\" ]; do
        [ -n \"$folder\" ] || { echo \"no version is set for $name\" >&2; exit 126; }
        folder=${folder%/*}
    done
    bin=$(cat \"$folder/.tool\")";

/// Puts `postgres` and `initdb` into the scene's folder `shims`. `choose` sets `bin`, and `start` starts a
/// program in that folder.
fn put_shims(scene: &Scene, choose: &str, start: &str) -> PathBuf {
    for name in ["postgres", "initdb"] {
        scene.write_program(&format!("shims/{name}"), &format!("name={name}\n{choose}\n{start}"));
    }
    scene.directory.join("shims")
}

/// Runs pgfresh in the scene's folder `folder`, with the shims first on `PATH`.
fn run_in(scene: &Scene, folder: &str, words: &[&str]) -> Outcome {
    let mut command = scene.pgfresh(words);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", scene.directory.join("shims").display()));
    command.current_dir(scene.directory.join(folder));
    finish(command)
}

fn bin_of(major: u32) -> String {
    if major == 15 {
        return Path::new(ground::psql()).canonicalize().unwrap().parent().unwrap().display().to_string();
    }
    postgres(major)
}

fn assert_path(outcome: &Outcome, major: u32) {
    let found = Path::new(outcome.stdout.trim_end()).canonicalize().unwrap_or_default();
    assert_eq!(found, Path::new(&bin_of(major)).canonicalize().unwrap(), "{outcome}");
}

#[test]
fn changed_versions_are_noticed() {
    let starts = ["exec \"$bin/$name\" \"$@\"", "\"$bin/$name\" \"$@\"; exit $?"];
    for (start, is_link) in [(starts[0], false), (starts[1], false), (starts[0], true)] {
        let scene = Scene::new(User::Ourselves);
        let version = scene.directory.join("version");
        let choose = format!("name=${{0##*/}}; bin=$(cat '{}')", version.display());
        let shims = put_shims(&scene, &choose, start);
        if is_link {
            std::fs::rename(shims.join("postgres"), scene.directory.join("manager")).unwrap();
            symlink("../manager", shims.join("postgres")).unwrap();
        }
        for major in [15, 18, 13, 15] {
            scene.write("version", &bin_of(major));
            assert_path(&run_in(&scene, ".", &["postgres", "path"]), major);
        }
    }
}

#[test]
fn shims_start_the_folders_version() {
    let scene = Scene::new(User::Ourselves);
    put_shims(&scene, BY_FOLDER, "exec \"$bin/$name\" \"$@\"");
    for major in [15, 18] {
        scene.write(&format!("{major}/.tool"), &bin_of(major));
        scene.write(&format!("{major}/below/file"), "");
    }
    for major in [15, 18] {
        let query = ["run", "--", ground::psql(), "-XAtqc", "SHOW server_version_num"];
        let outcome = run_in(&scene, &major.to_string(), &query);
        assert!(outcome.stdout.starts_with(&major.to_string()), "{outcome}");
        let shims = scene.directory.join("shims");
        let below = format!("{major}/below");
        assert_path(&run_in(&scene, &below, &["postgres", "path"]), major);
        assert_path(
            &run_in(&scene, &below, &["postgres", "path", "--postgres", shims.to_str().unwrap()]),
            major,
        );
    }
    // In folders where the manager doesn't select a version, pgfresh finds other installations.
    scene.write("none/file", "");
    let outcome = run_in(&scene, "none", &["postgres", "path"]);
    assert!(outcome.code == Some(0) && !outcome.stdout.contains("shims"), "{outcome}");
    let shims = scene.directory.join("shims");
    let outcome = run_in(&scene, "none", &["postgres", "path", "--postgres", shims.to_str().unwrap()]);
    assert!(outcome.stderr.contains("Output: no version is set for postgres"), "{outcome}");
}
