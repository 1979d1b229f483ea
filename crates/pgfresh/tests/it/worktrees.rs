//! Tests Git worktrees: each folder of a repository has its own background server and databases, and all folders
//! share one cached template.

use std::path::Path;
use std::process::Command;

use crate::common::{Outcome, Scene, User, finish};

/// Runs pgfresh in `folder`. It must succeed.
fn pgfresh(scene: &Scene, folder: &Path, words: &[&str]) -> Outcome {
    let mut command = scene.pgfresh(words);
    command.current_dir(folder);
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    outcome
}

fn git(folder: &Path, words: &[&str]) {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=tester", "-c", "user.email=tester@example.org"]).args(words);
    git.current_dir(folder);
    let outcome = finish(git);
    assert_eq!(outcome.code, Some(0), "{outcome}");
}

/// Returns the server's part of the URL, without the database.
fn server_of(url: &Outcome) -> &str {
    url.stdout.rsplit_once('/').expect("a URL").0
}

const SCHEMA: &str = "CREATE TABLE one (id int);";

#[test]
fn each_worktree_has_its_own_server() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    scene.write("main/pgfresh.toml", "[template]\nsql = \"schema.sql\"\n");
    scene.write("main/schema.sql", SCHEMA);
    scene.write("main/tests/readme", "");
    let (main, feature) = (scene.directory.join("main"), scene.directory.join("feature"));
    git(&main, &["init", "--quiet"]);
    git(&main, &["add", "."]);
    git(&main, &["commit", "--quiet", "-m", "Begin"]);
    git(&main, &["worktree", "add", "--quiet", "../feature"]);

    let of_main = pgfresh(&scene, &main, &["url", "orders"]);
    let of_feature = pgfresh(&scene, &feature, &["url", "orders"]);
    assert_ne!(server_of(&of_main), server_of(&of_feature));
    assert!(of_main.stderr.contains("building template"), "{of_main}");
    assert!(!of_feature.stderr.contains("building template"), "{of_feature}");
    // In a folder below the project, pgfresh finds the same server.
    let below = pgfresh(&scene, &main.join("tests"), &["url", "orders"]);
    assert_eq!(below.stdout, of_main.stdout);

    let count = |folder: &Path, table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        pgfresh(&scene, folder, &["psql", "orders", "--", "-XAtqc", &sql]).stdout
    };
    pgfresh(&scene, &main, &["psql", "orders", "--", "-Xqc", "INSERT INTO one VALUES (1)"]);
    assert_eq!((count(&main, "one"), count(&feature, "one")), ("1\n".to_owned(), "0\n".to_owned()));

    // A new migration in one worktree doesn't affect the other worktree's server or data.
    scene.write("feature/schema.sql", "CREATE TABLE two (id int);");
    assert_eq!(count(&feature, "two"), "0\n");
    assert_eq!(pgfresh(&scene, &main, &["url", "orders"]).stdout, of_main.stdout);
    pgfresh(&scene, &feature, &["stop"]);
    assert_eq!(count(&main, "one"), "1\n");
    pgfresh(&scene, &main, &["stop"]);
}
