//! Where no PostgreSQL is installed: one is brought, or it is said why not.

mod common;

use std::fs;
use std::process::Stdio;

use common::{Scene, User, finish, wait_until};

/// A major that neither Debian nor `make test` has put where pgfresh looks.
const MAJOR: &str = "14";

#[test]
fn a_major_that_is_not_there_is_brought_once_and_used() {
    for &user in User::all() {
        let scene = Scene::with_empty_cache(user);
        let version = || {
            let script = "psql -XAtqc 'SHOW server_version' | cut -d . -f 1";
            scene.run(["run", "--postgres", MAJOR, "--", "sh", "-euc", script])
        };
        let first = version();
        assert_eq!((first.code, first.stdout.as_str()), (Some(0), "14\n"), "{first}");
        assert!(
            first.stderr.starts_with("pgfresh: installing PostgreSQL 14 with npm, this once\n"),
            "{first}"
        );
        let second = version();
        assert_eq!((second.code, second.stderr.as_str()), (Some(0), ""), "{second}");
        let list = scene.run(["postgres", "list"]);
        let line = list.stdout.lines().find(|line| line.starts_with("14."));
        assert!(line.is_some_and(|line| line.ends_with("(pgfresh postgres install)")), "{list}");
        let again = scene.run(["postgres", "install", MAJOR]);
        assert!(again.code == Some(0) && again.stdout.starts_with("PostgreSQL 14."), "{again}");
    }
}

#[test]
fn a_client_whose_pgfresh_is_killed_ends_with_it_and_leaves_nothing() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    let download = "while [ \"$1\" != --prefix ]; do shift; done; touch \"$2/half\" begun; sleep 600; exit 1";
    let answers = "case $1 in --version) exit 0 ;; view) echo '[\"14.0.0\"]'; exit 0 ;; esac";
    scene.write_program("npm", &format!("{answers}\n{download}"));
    let mut command = scene.pgfresh(["postgres", "install", MAJOR]);
    command.env("PATH", format!("{}:/usr/bin:/bin", scene.directory.display()));
    let mut pgfresh = command.stderr(Stdio::null()).spawn().unwrap();
    wait_until("the download", || scene.directory.join("begun").exists());
    pgfresh.kill().unwrap();
    pgfresh.wait().unwrap();
    scene.assert_nothing_left("after a kill");
    let left = fs::read_dir(scene.cache.join("installations")).unwrap().flatten();
    assert_eq!(left.map(|entry| entry.file_name()).collect::<Vec<_>>(), ["lock"]);
}

#[test]
fn a_client_that_fails_is_quoted_and_leaves_nothing() {
    let scene = Scene::new(User::Ourselves);
    scene.write_program("npm", "[ \"$1\" = --version ] && exit 0; echo 'npm error: no line' >&2; exit 1");
    let mut command = scene.pgfresh(["run", "--postgres", MAJOR, "--", "true"]);
    command.env("PATH", format!("{}:/usr/bin:/bin", scene.directory.display()));
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(125), "{outcome}");
    assert_eq!(
        outcome.stderr,
        "pgfresh: installing PostgreSQL 14 with npm, this once\n\
         pgfresh: could not install PostgreSQL 14 with npm\n\
         DETAIL:  It said: npm error: no line\n\
         HINT:  Its registry must be reachable; pgfresh uses the client as it is configured.\n"
    );
    let left = fs::read_dir(scene.cache.join("installations")).unwrap().flatten();
    assert_eq!(left.map(|entry| entry.file_name()).collect::<Vec<_>>(), ["lock"]);
}
