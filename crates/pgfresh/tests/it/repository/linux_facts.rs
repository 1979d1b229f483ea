//! Checks that tests about facts of Linux, which don't run with `--cfg pgfresh_portable`, are few, and that
//! `docs/porting.md` lists all of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::house::{root, sources, write};

/// Attribute that marks these tests. Its text is the reason.
const MARK: &str = "#[cfg_attr(pgfresh_portable, ignore = \"";
/// Maximum number of marked tests.
const MOST: usize = 20;
/// Heading of the page's section with the list, which has one test in each row.
const HEADING: &str = "## Tests about facts of Linux\n";

#[test]
fn tests_about_linux_are_few_and_listed() {
    let marked = marked(&root());
    let page = fs::read_to_string(root().join("docs/porting.md")).unwrap();
    assert_eq!(listed(&page), marked, "the page and the tests differ");
    assert!(marked.len() <= MOST, "{} tests, {MOST} are allowed: {marked:?}", marked.len());
}

#[test]
fn planted_marks_and_rows_are_found() {
    let planted = tempfile::tempdir().unwrap();
    let source = format!("#[test]\n{MARK}why\")]\nfn one() {{}}\n#[test]\nfn other() {{}}\n");
    write(planted.path(), "crates/pgfresh/tests/it/cli/bench.rs", &source);
    let one: BTreeSet<_> = [("one".to_owned(), "why".to_owned())].into();
    assert_eq!(marked(planted.path()), one);
    let page = format!(
        "| `no` | test |\n{HEADING}\n| test | reason |\n|---|---|\n| `cli::bench::one` | why |\n## Next\n| `x` | y |\n"
    );
    assert_eq!(listed(&page), one);
}

/// Returns the names of all marked tests, each with its reason.
fn marked(root: &Path) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for file in sources(root) {
        let mut lines = file.text.lines();
        while let Some(line) = lines.next() {
            let Some(reason) = line.trim_start().strip_prefix(MARK) else { continue };
            let reason = reason.trim_end_matches("\")]").to_owned();
            let name =
                lines.by_ref().find_map(|line| line.trim_start().strip_prefix("fn ")?.split('(').next());
            found.insert((name.unwrap_or_default().to_owned(), reason));
        }
    }
    found
}

/// Returns the tests and reasons in a page's list.
fn listed(page: &str) -> BTreeSet<(String, String)> {
    let (_, list) = page.split_once(HEADING).unwrap();
    let list = list.split("\n## ").next().unwrap_or_default();
    let rows =
        list.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "));
    rows.map(|(path, reason)| (path.rsplit("::").next().unwrap_or_default().to_owned(), reason.to_owned()))
        .collect()
}
