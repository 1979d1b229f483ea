//! Compares tables and common errors, as users see them, with the files in `snapshots/`.
//!
//! To write these files and the help files again, run
//! `INSTA_UPDATE=always cargo test -p pgfresh --test it as_stored`.

use crate::common::{Scene, User, finish, ground};

/// Folder with the snapshots.
pub(super) const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/cli/snapshots");

/// Patterns for text that differs between runs and machines, each with its substitute.
const VOLATILE: [(&str, &str); 9] = [
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"\b[0-9a-f]{32}\b", "SECRET"),
    (r"\b[0-9a-f]{16}\b", "KEY"),
    (r"\b[0-9a-f]{8}\b", "PRINT"),
    (r" +\d+(\.\d+)? (ms|s|min|h)\b", " TIME"),
    (r" +\d+(\.\d+)? (B|kB|MB|GB)\b", " SIZE"),
    (r"\b(\d\d)\.\d+\b", "$1.MINOR"),
    (r"\b\d+ (files|ready|copied|recycled)\b", "N $1"),
    (r"\x1b\[[0-9;]*m", ""),
];

/// Runs pgfresh with `words` as on an 80-column terminal. Returns the command line, both outputs and the exit code.
pub(super) fn transcript(scene: &Scene, words: &[&str]) -> String {
    let mut command = scene.pgfresh(words);
    command.env("COLUMNS", "80").env("PGFRESH_POSTGRES", "15");
    let outcome = finish(command);
    let quoted =
        words.iter().map(|word| if word.contains(' ') { format!(" '{word}'") } else { format!(" {word}") });
    let code = outcome.code.expect("an exit code");
    let text = format!(
        "$ pgfresh{}\n{}{}[exit code {code}]\n\n",
        quoted.collect::<String>(),
        outcome.stdout,
        outcome.stderr
    );
    text.replace(scene.directory.to_str().unwrap(), "DIR")
        .replace(scene.place.to_str().unwrap(), "PLACE")
        .replace(env!("CARGO_PKG_VERSION"), "VERSION")
}

/// Fails unless `text` equals the snapshot `name`.
#[track_caller]
pub(super) fn compare(name: &str, text: &str) {
    compare_filtered(name, text, &[]);
}

/// Fails unless `text` equals the snapshot `name` after each pattern in `filters` has been
/// replaced by its substitute.
#[track_caller]
fn compare_filtered(name: &str, text: &str, filters: &[(&str, &'static str)]) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(FOLDER);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (pattern, substitute) in filters {
        settings.add_filter(pattern, *substitute);
    }
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// Makes a scene with two templates, and a cache that contains only the base image.
fn project() -> Scene {
    let scene = Scene::with_empty_cache(User::Ourselves);
    ground::copy_base_cache(scene.user, &scene.cache);
    scene.write(
        "pgfresh.toml",
        "[template.shop]\nsql = \"shop.sql\"\n\n[template.empty]\nsql = \"empty.sql\"\n",
    );
    let schema =
        "CREATE TABLE item (id int PRIMARY KEY, name text); INSERT INTO item VALUES (1, 'one'), (2, 'two');";
    scene.write("shop.sql", schema);
    scene.write("empty.sql", "SELECT 1;");
    scene
}

#[test]
fn tables_of_a_session_are_as_stored() {
    let scene = project();
    let changes = "INSERT INTO item VALUES (3); DELETE FROM item WHERE id = 1; CREATE TABLE note ()";
    let lines: [&[&str]; 15] = [
        &["template", "build", "--template", "shop"],
        &["template", "show", "--template", "shop"],
        &["template", "list"],
        &["url", "cart", "--template", "shop"],
        &["psql", "cart", "--template", "shop", "--", "-qc", changes],
        &["diff", "cart"],
        &["diff", "cart", "--json"],
        &["status"],
        &["reset", "cart"],
        &["diff", "cart"],
        &["snapshot", "cart", "as", "taken"],
        &["release", "cart"],
        &["status"],
        &["stop"],
        &["sweep"],
    ];
    let text: String = lines.iter().map(|words| transcript(&scene, words)).collect();
    compare_filtered("tables", &text, &VOLATILE);
}

#[test]
fn common_errors_are_as_stored() {
    let scene = project();
    let lines: [&[&str]; 22] = [
        &["frobnicate"],
        &["rnu", "--", "true"],
        &["run"],
        &["run", "--sapce", "1GB", "--", "true"],
        &["run", "--space", "1", "--", "true"],
        &["run", "--template", "shpo", "--", "true"],
        &["run", "--template", "shop", "--", "no-such-program"],
        &["serve", "--port", "99999"],
        &["serve", "--linger", "5"],
        &["serve", "--isolation", "none"],
        &["psql", "--template", "nothing"],
        &["status"],
        &["open"],
        &["reset"],
        &["reset", "cart"],
        &["release", "cart"],
        &["diff", "cart"],
        &["template", "verify", "missing"],
        &["postgres", "install", "9"],
        &["profile"],
        &["ci", "hudson"],
        &["init"],
    ];
    let text: String = lines.iter().map(|words| transcript(&scene, words)).collect();
    compare_filtered("errors", &text, &VOLATILE);
}
