//! Checks the minimum Rust version, which `rust-version` in Cargo.toml defines. Pages and other manifests repeat it.

use std::fs;
use std::path::{Path, PathBuf};

/// Strings that a Rust version follows.
const STATED: [&str; 3] = ["rust-version = \"", "Rust 1.", "| Rust | 1."];

#[test]
fn pages_and_manifests_state_the_minimum_rust() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let [minimum] = stated(&manifest)[..] else { panic!("Cargo.toml states no version") };
    let mut pages = 0;
    let mut wrong = Vec::new();
    for path in texts(root) {
        let text = fs::read_to_string(&path).unwrap();
        let versions = stated(&text);
        pages += usize::from(!versions.is_empty());
        let others = versions.iter().filter(|version| **version != minimum);
        wrong.extend(others.map(|version| format!("{}: {version}", path.display())));
    }
    assert!(wrong.is_empty(), "{minimum} is the minimum, but these state another:\n{}", wrong.join("\n"));
    assert!(pages >= 6, "only {pages} files state it: has their wording changed?");
}

/// Returns the Rust versions in a text, such as `1.91`.
fn stated(text: &str) -> Vec<&str> {
    let mut versions = Vec::new();
    for start in STATED {
        for (at, _) in text.match_indices(start) {
            let from = at + start.trim_end_matches("1.").len();
            let version = &text[from..];
            let end =
                version.find(|sign: char| !sign.is_ascii_digit() && sign != '.').unwrap_or(version.len());
            versions.push(version[..end].trim_end_matches('.'));
        }
    }
    versions.retain(|version| !version.is_empty());
    versions
}

/// Returns the paths of the pages for users and contributors, and of other workspaces' manifests.
fn texts(root: &Path) -> Vec<PathBuf> {
    let mut texts = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    for folder in ["docs", "docs/quickstart", "clients/rust", "examples/rust-tickets"] {
        let entries = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        texts.extend(entries.filter(|path| {
            let name = path.file_name().unwrap_or_default();
            name == "Cargo.toml" || path.extension().is_some_and(|extension| extension == "md")
        }));
    }
    texts
}

#[test]
fn minimum_rust_is_found_in_any_wording() {
    let text = "rust-version = \"1.2\"\nRust 1.30 or newer, with rustfmt.\n| Rust | 1.4 or newer |\nRust 1.5.\nRust 2";
    assert_eq!(stated(text), ["1.2", "1.30", "1.5", "1.4"]);
}
