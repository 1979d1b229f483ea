//! Tests that libpq inside a server reaches the server's own run, and never another server on the machine.

use std::process::Command;

use crate::common::gateway::Gateway;
use crate::common::{Outcome, Scene, User, as_root, finish, ground, on_every_major, postgres};

on_every_major! {
    dblink_without_a_host_reaches_its_own_lease
    dblink_in_a_setup_reaches_the_template
    dblink_in_rollback_isolation_is_refused
    no_other_server_is_reached_by_default
}

/// SQL for autonomous transactions with `dblink`, and for foreign tables in the leased database itself.
const SETUP: &str = "CREATE EXTENSION dblink; CREATE EXTENSION postgres_fdw;
    CREATE TABLE audit (word text);
    CREATE FUNCTION log_alone(word text) RETURNS text LANGUAGE sql AS $$
        SELECT dblink_exec('dbname=' || current_database(), format('INSERT INTO audit VALUES (%L)', word)) $$;
    CREATE SERVER own FOREIGN DATA WRAPPER postgres_fdw OPTIONS (dbname 'app');
    CREATE SERVER own_port FOREIGN DATA WRAPPER postgres_fdw OPTIONS (dbname 'app', port '5432');
    CREATE USER MAPPING FOR postgres SERVER own;
    CREATE USER MAPPING FOR postgres SERVER own_port;
    CREATE FOREIGN TABLE far (word text) SERVER own OPTIONS (table_name 'audit');
    CREATE FOREIGN TABLE far_port (word text) SERVER own_port OPTIONS (table_name 'audit');";

fn scene() -> Scene {
    let scene = Scene::new(User::Ourselves);
    scene.write("setup.sql", SETUP);
    scene
}

fn query(scene: &Scene, major: u32, options: &[&str], sql: &str) -> String {
    scene.query(&[&["--postgres", &postgres(major), "--sql", "setup.sql"], options].concat(), sql)
}

fn dblink_without_a_host_reaches_its_own_lease(major: u32) {
    let scene = scene();
    let sql = "BEGIN; SELECT log_alone('kept'); INSERT INTO audit VALUES ('undone'); ROLLBACK;
        SELECT * FROM audit; SELECT * FROM far; SELECT * FROM far_port;
        SELECT * FROM dblink('dbname=another', 'SELECT current_database()') AS t (name text);
        COPY (SELECT 1) TO PROGRAM 'psql -XAtqc ''INSERT INTO audit VALUES ($$shell$$)'' app';
        SELECT string_agg(word, ' ') FROM audit";
    let seen = query(&scene, major, &[], sql);
    assert_eq!(seen, "INSERT 0 1\nkept\nkept\nkept\nanother\nkept shell", "PostgreSQL {major}");
}

fn dblink_in_a_setup_reaches_the_template(major: u32) {
    let scene = scene();
    scene.write("more.sql", "SELECT log_alone('by the setup');");
    let seen = query(&scene, major, &["--sql", "more.sql"], "SELECT * FROM audit");
    assert_eq!(seen, "by the setup", "PostgreSQL {major}");
    let each_time = ["--setup", "psql -Xqc \"SELECT log_alone('each time')\""];
    let seen = query(&scene, major, &each_time, "SELECT log_alone('by a test'); SELECT * FROM audit");
    assert_eq!(seen, "INSERT 0 1\neach time\nby a test", "PostgreSQL {major}");
}

fn dblink_in_rollback_isolation_is_refused(major: u32) {
    let scene = scene();
    let sql = "DO $$DECLARE detail text; BEGIN PERFORM log_alone('kept'); EXCEPTION WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL; INSERT INTO audit VALUES (detail); END$$; SELECT * FROM audit";
    let seen = query(&scene, major, &["--isolation", "rollback"], sql);
    assert!(seen.contains("database \"app\" already has a session"), "PostgreSQL {major}: {seen}");
}

/// Runs pgfresh in a new mount namespace where libpq's default sockets are those of `other`.
fn beside(scene: &Scene, other: &str, arguments: &[&str]) -> Outcome {
    let script = "for folder in /tmp /var/run/postgresql; do
            mkdir -p $folder; mount -t tmpfs none $folder; ln -s \"$OTHER\"/.s.PGSQL.5432 $folder
        done
        exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "sh", "-euc", script, "sh"]);
    command.arg(ground::program()).args(arguments);
    scene.set(&mut command);
    command.env("OTHER", other);
    finish(command)
}

fn no_other_server_is_reached_by_default(major: u32) {
    if !as_root("mount") {
        return;
    }
    let version = postgres(major);
    let victim = Gateway::start(major, SETUP, &[]);
    victim.direct("postgres", "CREATE DATABASE app").unwrap();
    let folder = victim.socket_directory().display().to_string();
    let scene = scene();
    let sql = "SELECT log_alone('here');
        COPY (SELECT 1) TO PROGRAM 'psql -XAtqc ''INSERT INTO audit VALUES ($$shell$$)'' app';
        SELECT dblink_connect('a', 'dbname=app port=5432'); SELECT dblink_connect('b', 'dbname=app user=postgres');
        SELECT count(*) FROM audit";
    let words = ["run", "--postgres", &version, "--sql", "setup.sql", "--", ground::psql(), "-XAtqc", sql];
    let outcome = beside(&scene, &folder, &words);
    assert_eq!(outcome.stdout, "INSERT 0 1\nOK\nOK\n2\n", "{outcome}");
}
