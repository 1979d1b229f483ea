//! Tests the short and long help of every command, as on an 80-column terminal.

use std::collections::BTreeSet;
use std::fs;

use super::snapshots::{FOLDER, compare, transcript};
use crate::common::{Scene, User};

#[test]
fn help_of_every_command_is_as_stored() {
    let scene = Scene::new(User::Ourselves);
    let mut compared = BTreeSet::new();
    for command in super::commands(&scene) {
        let name = [&["help".to_owned()], &command[..]].concat().join("-");
        let words: Vec<_> = command.iter().map(String::as_str).collect();
        let texts = ["-h", "--help"].map(|flag| transcript(&scene, &[&words[..], &[flag]].concat()));
        compare(&name, &texts.concat());
        compared.insert(name);
    }
    let files = fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let stored = files.filter_map(|file| Some(file.strip_suffix(".snap")?.to_owned()));
    let stored: BTreeSet<_> = stored.filter(|name| name.split('-').next() == Some("help")).collect();
    assert_eq!(stored, compared, "remove the files of former commands from {FOLDER}");
}
