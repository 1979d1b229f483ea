//! Checks that every error on the error page exists in the source.

use std::fs;
use std::path::{Path, PathBuf};

/// Messages from other programs (the operating system, drivers, clap), and messages that pgfresh combines from parts.
const ELSEWHERE: &[&str] = &[
    "No such file or directory",
    "Permission denied",
    "Address already in use",
    "Exec format error",
    "Connection refused",
    "is not enabled on the server",
    "server does not support",
    "sorry",
    "too many clients already",
    "certificate verify failed",
    "unable to get local issuer certificate",
    "for '--OPTION",
    "could not find a PostgreSQL installation",
    "could not find PostgreSQL",
    "could not examine",
    "could not read a certificate from",
    "could not read a private key from",
    "unknown table",
    "unknown key in",
];

#[test]
fn each_documented_message_is_in_the_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("it lies two below");
    let page = fs::read_to_string(root.join("docs/troubleshooting.md")).unwrap();
    let mut source = String::new();
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        gather(&entry.unwrap().path().join("src"), &mut source);
    }
    let missing = missing(&page, &joined(&source));
    assert!(
        missing.is_empty(),
        "docs/troubleshooting.md has messages that nothing says:\n{}",
        missing.join("\n")
    );
}

#[test]
fn a_message_that_nothing_says_is_found() {
    let page = "| message | what |\n|---|---|\n\
                | `could not open \"PATH\": it is a folder`, `sorry, too many clients already` | `not a message` |\n\
                | `could not close X: it was never open` | |\n";
    let source = "format!(\"could not open {path:?}: \\\n     it is a folder\")";
    assert_eq!(missing(page, &joined(source)), ["could not close X: it was never open"]);
}

/// Returns the messages in the first column of the page's tables that contain words which aren't in the source.
fn missing(page: &str, source: &str) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let messages = rows.flat_map(|row| row.split(" | ").next().unwrap_or(row).split('`').skip(1).step_by(2));
    let said = |words: &String| ELSEWHERE.contains(&words.as_str()) || source.contains(words);
    messages.filter(|message| !words(message).iter().all(said)).map(str::to_owned).collect()
}

/// Returns the word sequences between placeholders for names and values: capitals, numbers, quoted
/// words, or an ellipsis.
fn words(message: &str) -> Vec<String> {
    let mut runs = vec![Vec::new()];
    for word in message.split(' ') {
        let bare = word.trim_end_matches([':', ',', ';']);
        if bare.contains(['"', '…', '[']) || !bare.contains(|c: char| c.is_ascii_lowercase()) {
            runs.push(Vec::new());
            continue;
        }
        runs.last_mut().expect("there is one").push(bare);
        if bare != word {
            runs.push(Vec::new());
        }
    }
    runs.iter().map(|run| run.join(" ")).collect()
}

/// Returns the source with literals as pgfresh prints them: lines joined, and quotes without backslashes.
fn joined(source: &str) -> String {
    let mut parts = source.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start()).replace("\\\"", "\"")
}

fn gather(folder: &Path, source: &mut String) {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            gather(&path, source);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            source.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}
