//! Checks that only `server::Major` has conditions on PostgreSQL's major version. Other code asks for a capability,
//! so a new major requires changes in one file only.

use std::fs;
use std::path::{Path, PathBuf};

/// File with the conditions' names. It compares the number in a `Major` (`self.0`).
const LIST: &str = "crates/server/src/major.rs";

#[test]
fn only_server_major_compares_with_numbers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    assert!(root.join(LIST).is_file());
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        collect(&entry.unwrap().path().join("src"), &mut files);
    }
    let mut found = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().display();
        let lines = text.lines().enumerate().filter(|(_, line)| compares(line));
        found.extend(lines.map(|(number, line)| format!("{name}:{}: {}", number + 1, line.trim())));
    }
    assert!(found.is_empty(), "give the condition a name in {LIST}:\n{}", found.join("\n"));
}

/// Whether a line of code compares a major with a number, or matches it against a range.
fn compares(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let is_major = ["major", "MAJOR"].iter().any(|name| code.contains(name));
    let signs = ["< ", "> ", "<= ", ">= ", "== ", "match major", "match self.major"];
    let is_number = |rest: &str| rest.starts_with(|sign: char| sign.is_ascii_digit());
    is_major
        && signs.iter().any(|sign| {
            code.match_indices(sign)
                .any(|(at, sign)| sign.starts_with("match") || is_number(&code[at + sign.len()..]))
        })
}

#[test]
fn comparisons_with_numbers_are_recognised() {
    for line in ["if major >= 15 {", "self.major < 18 && x", "match major {", "Version.major == 13"] {
        assert!(compares(line), "{line}");
    }
    for line in ["if version.major > *MAJORS.end() {", "// major < 15", "count < 15", "major: 15,"] {
        assert!(!compares(line), "{line}");
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
