//! Tests PostgreSQL versions newer than those in pgfresh's tests. A wrapper around 18 pretends to be 20, doesn't
//! support one of pgfresh's settings, and rejects the value of another setting.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::{Outcome, Scene, User, finish, ground, postgres};

/// The wrapper's shell script.
const NEWER: &str = r#"
case "$1" in
--version) echo 'postgres (PostgreSQL) 20beta1'; exit ;;
--describe-config) "$REAL/postgres" --describe-config | grep -v '^jit	'; exit ;;
-C)
    for word; do [ "$word" != bgwriter_delay=10s ] || exit 1; done
    exec "$REAL/postgres" "$@" ;;
esac
if grep -E '^(jit|bgwriter_delay) ' "$2/postgresql.conf"; then
    echo 'FATAL:  unrecognized configuration parameter "jit"'
    exit 1
fi
exec "$REAL/postgres" "$@"
"#;

const NOTE: &str =
    "pgfresh: PostgreSQL 20 is newer than the versions that this pgfresh is tested with (13 to 19)\n";

/// Returns a directory with the wrapper and 18's initdb.
fn newer(scene: &Scene) -> String {
    let real = postgres(18);
    let script = NEWER.replace("$REAL", &real);
    let bin = scene.write_program("newer/postgres", &script).parent().unwrap().to_owned();
    fs::set_permissions(&bin, fs::Permissions::from_mode(0o777)).unwrap();
    std::os::unix::fs::symlink(format!("{real}/initdb"), bin.join("initdb")).unwrap();
    std::os::unix::fs::symlink(format!("{real}/pg_resetwal"), bin.join("pg_resetwal")).unwrap();
    bin.to_str().unwrap().to_owned()
}

#[track_caller]
fn check(outcome: &Outcome, stdout: &str) {
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), stdout), "{outcome}");
}

#[test]
fn newer_servers_skip_refused_settings() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    let bin = newer(&scene);
    let script =
        "for name in fsync bgwriter_delay bgwriter_lru_maxpages; do psql -XAtqc \"SHOW $name\"; done";
    let first = scene.run(["run", "--postgres", &bin, "--", "sh", "-euc", script]);
    check(&first, "off\n200ms\n0\n");
    assert!(first.stderr.starts_with(NOTE) && first.stderr.matches(NOTE).count() == 1, "{first}");
    // pgfresh runs a script each time, and gets the same results.
    let second = scene.run(["run", "--postgres", &bin, "--", "sh", "-euc", script]);
    check(&second, "off\n200ms\n0\n");
    assert_eq!(second.stderr, NOTE);
    let quiet = scene.run(["run", "--quiet", "--postgres", &bin, "--", "true"]);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""), "{quiet}");
}

#[test]
fn templates_and_resets_work_with_it() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    let bin = newer(&scene);
    scene.write("schema.sql", "CREATE TABLE t (id int); INSERT INTO t VALUES (1), (2);");
    check(&lease_in_turn(&scene, ["--quiet", "--postgres", &bin]), "2\n2\n2\n");
}

/// Leases a database with two rows three times under the same name, and releases it each time.
fn lease_in_turn<const N: usize>(scene: &Scene, options: [&str; N]) -> Outcome {
    let script = "for turn in 1 2 3; do psql -XAtq \"${DATABASE_URL%/*}/one\" -c 'SELECT count(*) FROM t' -c 'DELETE FROM t'
                  $PGFRESH release one; done";
    let mut arguments = vec!["run"];
    arguments.extend(options);
    arguments.extend(["--sql", "schema.sql", "--", "sh", "-euc", script]);
    let mut command = scene.pgfresh(arguments);
    command.env("PGFRESH", ground::program());
    finish(command)
}

#[test]
#[ignore = "PGFRESH_TEST_ONLY must name the binaries of a newer PostgreSQL"]
fn the_real_one_works() {
    let bin = std::env::var("PGFRESH_TEST_ONLY").expect("PGFRESH_TEST_ONLY names the binaries");
    let scene = Scene::with_empty_cache(User::Ourselves);
    let schema = "CREATE TABLE t (id int); INSERT INTO t VALUES (1), (2); CREATE UNLOGGED TABLE u (id int);";
    scene.write("schema.sql", schema);
    for isolation in ["clone", "rollback"] {
        let outcome = lease_in_turn(&scene, ["--isolation", isolation, "--postgres", &bin]);
        check(&outcome, "2\n2\n2\n");
    }
}
