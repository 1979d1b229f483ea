//! Tests the commands and their messages.

mod bench;
mod compare;
mod diff;
mod doctor;
mod errors;
mod faults;
mod help;
mod init;
mod logging;
mod migrate;
mod open;
mod output;
mod profile;
mod run;
mod serve_name;
mod smoke;
mod snapshots;
mod terminal_width;

use std::fs;

use crate::common::Scene;

/// Returns every command in order, as its words after `pgfresh`, from the man pages that pgfresh writes.
fn commands(scene: &Scene) -> Vec<Vec<String>> {
    let folder = scene.directory.join("man");
    fs::create_dir(&folder).unwrap();
    let outcome = scene.run(["man".as_ref(), folder.as_os_str()]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let mut commands: Vec<Vec<String>> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|page| page.trim_end_matches(".1").split('-').skip(1).map(str::to_owned).collect())
        .collect();
    commands.sort();
    commands
}
