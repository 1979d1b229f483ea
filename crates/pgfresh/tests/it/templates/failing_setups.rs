//! Tests setups that fail silently: they change another database, or their program doesn't exist.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{assert_fails, project};
use crate::common::{User, finish, postgres};

/// Warning about a setup that hasn't changed anything.
const NOTHING: &str = "pgfresh: the setup of template \"app\" created nothing in its database: check that it connects to \
    DATABASE_URL\n";

#[test]
fn only_setups_without_effect_are_reported() {
    let scene = project(User::Ourselves, "");
    scene.write("empty.sql", "-- Nothing yet.");
    let elsewhere = "createdb second && psql -Xqc 'CREATE TABLE orders ()' second && psql -Xqc 'CREATE TEMP TABLE orders ()'";
    // A session that has ended might still be dropping its temporary tables. This session simulates that.
    let going_on = "( psql -Xqc 'CREATE TEMP TABLE orders ()' -c '\\! touch made' -c 'SELECT pg_sleep(600)' & ) >/dev/null 2>&1; \
        until test -e made; do sleep 0.01; done";
    for (step, words, is_reported) in [
        ("--setup", elsewhere, true),
        ("--setup", going_on, true),
        ("--setup", "psql -Xqc 'CREATE TABLE orders ()'", false),
        ("--setup", "psql -Xqc 'CREATE FUNCTION seven() RETURNS int LANGUAGE sql AS $$SELECT 7$$'", false),
        ("--setup", "psql -Xqc 'CREATE DOMAIN positive AS int CHECK (VALUE > 0)'", false),
        ("--setup", "psql -Xqc 'CREATE SCHEMA shop'", false),
        ("--setup", "psql -Xqc 'CREATE EXTENSION tcn'", false),
        ("--setup", "psql -Xqc 'SELECT lo_create(0)'", false),
        ("--sql", "empty.sql", false),
    ] {
        let mut command = vec!["template", "build", step, words];
        if step == "--setup" {
            command.extend(["--inputs", "empty.sql"]);
        }
        let outcome = scene.run(&command);
        assert_eq!(
            (outcome.code, outcome.stderr.contains(NOTHING)),
            (Some(0), is_reported),
            "{words}: {outcome}"
        );
        // The template is in the cache nevertheless.
        let again = scene.run(&command);
        assert_eq!((again.code, again.stderr.as_str()), (Some(0), ""), "{words}: {again}");
    }
    let bare = scene.run(["run", "--", "true"]);
    assert!(bare.code == Some(0) && !bare.stderr.contains("created nothing"), "{bare}");
}

#[test]
fn a_setup_cannot_move_the_servers_log() {
    let scene = project(User::Ourselves, "");
    let moved = scene.directory.join("moved");
    fs::create_dir(&moved).unwrap();
    fs::set_permissions(&moved, fs::Permissions::from_mode(0o777)).unwrap();
    for destination in ["stderr", "csvlog", "syslog"] {
        let sql = format!(
            "ALTER SYSTEM SET logging_collector = on; ALTER SYSTEM SET log_destination = '{destination}';
            ALTER SYSTEM SET log_directory = '{}'; ALTER SYSTEM SET work_mem = '1234kB'; CREATE TABLE t ();",
            moved.display()
        );
        scene.write("log.sql", &sql);
        let crash =
            "psql -XAtqc 'SHOW work_mem'; psql -XAtqc \"COPY (SELECT 1) TO PROGRAM 'kill -9 \\$PPID'\"";
        let outcome = scene.run(["run", "--sql", "log.sql", "--", "sh", "-c", crash]);
        assert_eq!(outcome.stdout, "1234kB\n", "{outcome}");
        let expected = "the server crashed while the command was running: LOG:  server process";
        assert!(outcome.stderr.contains(expected), "{destination}: {outcome}");
        assert_eq!(fs::read_dir(&moved).unwrap().count(), 0, "{destination}");
    }
}

#[test]
fn unrunnable_setup_programs_are_named() {
    const MISSING: &str =
        "\nHINT:  sh cannot find the setup's program: install it, or write it with its path.";
    const REFUSED: &str = "\nHINT:  sh cannot run the setup's program: make it executable (chmod +x), or run it with its interpreter.";
    let scene = project(User::Ourselves, "");
    fs::write(scene.directory.join("migrate"), "true\n").unwrap();
    for (setup, expected) in [("alembc upgrade head", MISSING), ("./migrate", REFUSED)] {
        let build = ["template", "build", "--setup", setup, "--inputs", "pgfresh.toml"];
        let outcome = scene.run(build);
        assert_fails(&outcome, &["is incomplete: setup ended with exit status: 12", expected]);
        assert!(!outcome.stderr.contains("--keep"), "{outcome}");
        let kept = scene.run(build.into_iter().chain(["--keep"]));
        assert_fails(&kept, &[expected, "The incomplete server is in"]);
        scene.run(["sweep", "--kept"]);
    }
}

#[test]
fn sql_files_that_leave_a_transaction_open_fail() {
    let scene = project(User::Ourselves, "");
    let open = "pgfresh: \"open.sql\" leaves a transaction open\n\
        HINT:  End the transaction with COMMIT in the same file: each file runs in its own session.\n";
    scene.write("whole.sql", "BEGIN; CREATE TABLE whole (); COMMIT;");
    // This also applies without psql.
    let bare = postgres(18);
    let without_psql = |words: &[&str]| {
        let mut command = scene.pgfresh([&["template", "build", "--postgres", &bare], words].concat());
        command.env("PATH", "/nowhere");
        finish(command)
    };
    scene.write("open.sql", "START TRANSACTION; SAVEPOINT a; CREATE TABLE lost (); RELEASE a;\n");
    let before = ["--sql", "open.sql", "--sql", "whole.sql"];
    let after = ["--sql", "whole.sql", "--sql", "open.sql"];
    for files in [&before[..], &after, &["--dump", "open.sql"]] {
        assert_fails(&scene.run([&["template", "build"], files].concat()), &[open]);
    }
    assert_fails(&without_psql(&after), &[open]);
    scene.write("open.sql", "\\set AUTOCOMMIT off\nCREATE TABLE lost ();");
    assert_fails(&scene.run(["template", "build", "--sql", "open.sql"]), &[open]);
    // There is nothing to lose.
    for text in [
        "BEGIN; SELECT 1;",
        "BEGIN; CREATE TABLE undone (); ROLLBACK;",
        "\\set AUTOCOMMIT off\nCREATE TABLE kept ();\nCOMMIT;",
    ] {
        scene.write("open.sql", text);
        let outcome = scene.run(["template", "build", "--sql", "open.sql"]);
        assert_eq!(outcome.code, Some(0), "{text}: {outcome}");
    }
    assert_eq!(without_psql(&["--sql", "whole.sql"]).code, Some(0));
}

#[test]
fn compressed_sql_files_are_named_with_a_remedy() {
    let scene = project(User::Ourselves, "");
    scene.write("plain.sql", "CREATE TABLE orders ();");
    scene.shell(&[], "gzip -k plain.sql && bzip2 -k plain.sql");
    for (name, unpack) in [("plain.sql.gz", "gunzip -c"), ("plain.sql.bz2", "bzip2 -dc")] {
        let setup = format!("{unpack} {name} | psql -Xq -v ON_ERROR_STOP=1");
        let hint =
            format!("HINT:  Unpack it, or let a setup do so: setup = \"{setup}\", inputs = [\"{name}\"].\n");
        for option in ["--sql", "--dump"] {
            let outcome = scene.run(["run", option, name, "--", "true"]);
            assert_fails(&outcome, &[&format!("pgfresh: cannot run \"{name}\": it is compressed\n{hint}")]);
        }
        let options = ["--setup", &setup, "--inputs", name];
        assert_eq!(scene.query(&options, "SELECT to_regclass('orders')"), "orders");
    }
}

#[test]
fn setup_for_another_database_gets_naming_hint() {
    let scene = project(User::Ourselves, "");
    let outcome = scene.run([
        "template",
        "build",
        "--setup",
        "psql -Xq -d hc -c 'SELECT 1'",
        "--inputs",
        "pgfresh.toml",
    ]);
    let hint = "HINT:  Name the template \"hc\" ([template.hc] in pgfresh.toml), or let the setup connect to $PGDATABASE.";
    assert_fails(&outcome, &["database \"hc\" does not exist", hint]);
    scene.write(
        "pgfresh.toml",
        "[template.hc]\nsetup = \"psql -Xq -d hc -c 'CREATE TABLE orders ()'\"\ninputs = 'pgfresh.toml'\n",
    );
    assert_eq!(scene.query(&[], "SELECT to_regclass('orders')"), "orders");
}

#[test]
fn failing_file_prints_only_its_own_results() {
    let scene = project(User::Ourselves, "[template]\nsql = \"migrations/*.sql\"\n");
    scene.write("migrations/0002.sql", "SELECT 'seen' AS column; SELECT 1/0;");
    let outcome = scene.run(["template", "build"]);
    assert_fails(&outcome, &["    seen\n", "division by zero"]);
    assert_eq!(outcome.stderr.matches("(1 row)").count(), 1, "{outcome}");
}

#[test]
fn session_variables_reach_no_step() {
    let scene = project(User::Ourselves, "");
    let setup = "psql -Xqc 'CREATE TABLE orders ()' && test \"$PGOPTIONS\" = \"$EXPECTED\"";
    for (file, expected) in [
        ("[template]\nsql = \"migrations/*.sql\"\n".to_owned(), ""),
        (format!("[template]\nsetup = '''{setup}'''\ninputs = \"migrations\"\n"), ""),
        (
            format!("[template]\nsetup = '''{setup}'''\ninputs = \"migrations\"\nenv = \"PGOPTIONS\"\n"),
            "-c jit=off",
        ),
    ] {
        scene.write("pgfresh.toml", &file);
        let mut command = scene.pgfresh(["template", "build"]);
        let options = if expected.is_empty() { "-c search_path=foo" } else { expected };
        command.env("PGOPTIONS", options).env("EXPECTED", expected);
        let outcome = finish(command);
        assert_eq!(outcome.code, Some(0), "{file}: {outcome}");
    }
}

#[test]
fn setup_for_another_server_gets_hint() {
    let scene = project(User::Ourselves, "");
    for setup in ["psql -h 127.0.0.1 -p 1 -c 'SELECT 1'", "echo 'connect ECONNREFUSED 127.0.0.1:5432'; false"]
    {
        let outcome = scene.run(["template", "build", "--setup", setup, "--inputs", "migrations"]);
        assert_fails(
            &outcome,
            &["HINT:  The setup seems to connect to another server. It must connect to DATABASE_URL"],
        );
    }
    let other = "echo \"ModuleNotFoundError: No module named 'psycopg2'\"; false";
    let outcome = scene.run(["template", "build", "--setup", other, "--inputs", "migrations"]);
    assert!(!outcome.stderr.contains("another server"), "{outcome}");
}
