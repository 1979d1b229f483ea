//! Tests that no line of `run --profile`, `run --compare` and `doctor` is wider than the terminal.

use std::thread;

use crate::common::terminal::Terminal;
use crate::common::{Scene, User, ground};
use report::display_width;

/// Widths of terminals. The first is the minimum that docs/profile.md and docs/doctor.md promise.
const WIDTHS: [u16; 4] = [30, 40, 80, 200];

/// Runs pgfresh on a terminal with `columns` columns. Returns the lines that remain on the screen.
fn lines(scene: &Scene, columns: u16, words: &[&str]) -> Vec<String> {
    let (code, text) = Terminal::of_width(columns).run(scene.pgfresh(words));
    assert_eq!(code, Some(0), "{words:?}: {text}");
    // A line that pgfresh overwrites ends with a carriage return.
    let parts = text.split(['\n', '\r']).map(|line| line.replace("\x1b[K", ""));
    parts.map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

fn assert_fit(lines: &[String], columns: u16) {
    for line in lines {
        assert!(display_width(line) <= usize::from(columns), "{columns}: {line:?}\n{}", lines.join("\n"));
    }
}

#[test]
fn profiles_fit_terminals_of_any_width() {
    let scene = Scene::new(User::Ourselves);
    let (psql, pgfresh) = (ground::psql(), ground::program().display());
    let each = (0..12).map(|key| format!("SELECT {key} AS {};\n", "long_name_".repeat(6)));
    scene.write("each.sql", &each.collect::<String>());
    let name = format!("tests/test_orders.py::test_{}[日本-{}]", "x".repeat(150), "word ".repeat(30));
    let script = format!(
        "{psql} -XAtqf each.sql one >out; {pgfresh} release one --test \"$0\"
         {psql} -XAtqc 'CREATE TABLE t (); SELECT pg_sleep(0.3); TRUNCATE t' two >out"
    );
    for columns in WIDTHS {
        let lines = lines(&scene, columns, &["run", "--profile", "--", "sh", "-euc", &script, &name]);
        assert_fit(&lines, columns);
        let is_there = |word: &str| lines.iter().any(|line| line.starts_with(word));
        assert!(["suite ", "longest ", "tests ", "finding "].into_iter().all(is_there), "{lines:?}");
    }
}

/// A program prints escape sequences, and a file's name contains some. On a terminal, they would change the
/// title or clear the screen.
#[test]
fn terminals_get_no_escape_sequences_of_others() {
    let scene = Scene::new(User::Ourselves);
    let name = "\u{1b}[2J\u{1b}]0;title\u{7}\u{202e}.sql";
    scene.write(name, "CREATE EXTENSION nothing;");
    let setup = "printf '\\033[2J\\033]0;title\\007\\033[31mred\\342\\200\\256\\n' >&2; sleep 1; exit 1";
    for words in [["--setup", setup], ["--sql", name], ["--setup", "true"], ["--template", name]] {
        let words = ["run", words[0], words[1], "--inputs", name, "--", "true"];
        let (code, text) = Terminal::of_width(80).run(scene.pgfresh(words));
        for sequence in ["\u{1b}[2J", "\u{1b}]", "\u{7}", "\u{202e}", "\u{1b}[31mred"] {
            assert!(!text.contains(sequence), "{words:?} {code:?}: {text:?}");
        }
    }
}

#[test]
fn comparisons_fit_terminals_of_any_width() {
    let scene = Scene::new(User::Ourselves);
    let script = format!("{} -XAtqc 'SELECT 1' >out", ground::psql());
    let words = ["run", "--compare", "-n", "1", "--", "sh", "-euc", &script];
    for columns in WIDTHS {
        let lines = lines(&scene, columns, &words);
        assert_fit(&lines, columns);
        let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
        assert!(words.join(" ").contains("All 2 runs ended the same way"), "{lines:?}");
    }
}

#[test]
fn diagnoses_fit_terminals_of_any_width() {
    let scene = Scene::new(User::Ourselves);
    let place = scene.place.to_str().unwrap();
    let check = |columns| {
        let lines = lines(&scene, columns, &["doctor", "--quick", "--soak", "3s", place]);
        assert_fit(&lines, columns);
        let text = lines.join("\n");
        assert!(
            ["Soak", "Commits of one row", "Sync methods"].into_iter().all(|part| text.contains(part)),
            "{text}"
        );
    };
    // A measurement mostly waits, and its numbers don't matter here, so the measurements run concurrently.
    thread::scope(|scope| {
        for columns in WIDTHS {
            scope.spawn(move || check(columns));
        }
    });
}
