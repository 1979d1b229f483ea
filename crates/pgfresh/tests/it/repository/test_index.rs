//! Checks that pages refer to existing tests: the index in CONTRIBUTING.md has each module, and pages only
//! name tests that exist.

use std::collections::BTreeSet;
use std::path::Path;

use super::house::{read, report, root, sources, write};
use super::test_names::names;

/// Folder with the modules, relative to the repository's root.
const IT: &str = "crates/pgfresh/tests/it/";
/// Heading of the index in CONTRIBUTING.md.
const HEADING: &str = "## Index of tests";

#[test]
fn the_index_has_every_module_of_tests() {
    report(&index_errors(&root()));
}

#[test]
fn pages_name_existing_tests() {
    report(&wrong_names(&root()));
}

#[test]
fn planted_gaps_of_the_index_are_found() {
    let planted = tempfile::tempdir().unwrap();
    let root = planted.path();
    for module in ["main.rs", "reset/mod.rs", "reset/data.rs", "leases.rs"] {
        write(root, &format!("{IT}{module}"), "#[test] fn rows_come_back() {}");
    }
    write(root, &format!("{IT}common/mod.rs"), "");
    let index = format!(
        "`leases`\n{HEADING}\n\n| `reset` | `reset::data`, `gone` |\n\n## Next\n\n| a | `leases` |\n"
    );
    write(root, "CONTRIBUTING.md", &index);
    assert_eq!(
        index_errors(root),
        [
            "CONTRIBUTING.md: the index of tests lacks leases",
            "CONTRIBUTING.md: the index of tests lacks reset",
            "CONTRIBUTING.md: the index of tests names gone, which has no tests",
        ]
    );
    let page = "`tests/it/reset`: `rows_come_back`, `a_row_that_left`; `tests/it/gone.rs`\n";
    write(root, "docs/internals.md", page);
    write(root, "ARCHITECTURE.md", "");
    assert_eq!(
        wrong_names(root),
        [
            "docs/internals.md:1: tests/it/gone.rs does not exist",
            "docs/internals.md:1: no test has the name a_row_that_left",
        ]
    );
}

/// Returns the modules with tests that aren't in the index, and the index's names that don't have tests.
fn index_errors(root: &Path) -> Vec<String> {
    let page = read(&root.join("CONTRIBUTING.md"));
    let index = page.split(HEADING).nth(1).expect("CONTRIBUTING.md has an index of tests");
    let index = index.split("\n## ").next().unwrap_or_default();
    let rows = index.lines().filter_map(|line| line.trim_end_matches([' ', '|']).rsplit_once('|'));
    let named: BTreeSet<&str> = rows.flat_map(|(_, modules)| quoted(modules)).collect();
    let modules = modules(root);
    let missing = modules.iter().filter(|module| !named.contains(module.as_str()));
    let stray = named.iter().filter(|name| !modules.contains(**name));
    missing
        .map(|module| format!("CONTRIBUTING.md: the index of tests lacks {module}"))
        .chain(
            stray.map(|name| format!("CONTRIBUTING.md: the index of tests names {name}, which has no tests")),
        )
        .collect()
}

/// Returns the path of each module with tests, such as `reset::data`.
fn modules(root: &Path) -> BTreeSet<String> {
    let files = sources(root);
    let own = files.iter().filter_map(|file| Some((file, file.name.strip_prefix(IT)?)));
    let with_tests = own.filter(|(file, name)| *name != "main.rs" && !names(file).is_empty());
    with_tests
        .map(|(_, name)| name.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::"))
        .collect()
}

/// Returns the file names and test names in pages that no source contains.
fn wrong_names(root: &Path) -> Vec<String> {
    let files = sources(root);
    // Functions and settings can have names of this form too.
    let is_known = |name: &str| files.iter().any(|file| file.text.contains(name));
    let mut found = Vec::new();
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/internals.md"] {
        for (line, number) in read(&root.join(page)).lines().zip(1..) {
            let words: Vec<&str> = quoted(line).collect();
            let files = words.iter().filter(|word| word.starts_with("tests/it/"));
            let absent = files.filter(|file| !root.join("crates/pgfresh").join(file).exists());
            found.extend(absent.map(|file| format!("{page}:{number}: {file} does not exist")));
            let unknown = words.iter().filter(|word| is_test_name(word) && !is_known(word));
            found.extend(unknown.map(|name| format!("{page}:{number}: no test has the name {name}")));
        }
    }
    found
}

/// Returns the strings between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether a word looks like the name of a test, which has at least four words and is longer than other names.
fn is_test_name(word: &str) -> bool {
    word.split('_').count() > 3
        && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}
