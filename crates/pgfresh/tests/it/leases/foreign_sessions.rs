//! Tests sessions that bypass the gateway, such as those of background workers. These connect to a database by its
//! name, stay in it, and reconnect after their end.

use crate::common::{Scene, User, on_every_major, postgres};

on_every_major! {
    sessions_in_templates_allow_leases
    foreign_sessions_keep_later_leases_fresh
    leased_servers_ignore_sessions_of_templates
}

/// Setup without inputs, so that it runs on the same server as the tests. It leaves a session in the template's
/// database, over the server's own socket, and opens another session when that one ends.
const SETUP: &str = "psql -Xqc 'CREATE TABLE t (n int)'
    folder=$(psql -XAtc 'SHOW unix_socket_directories' | tr -d '\"')
    PGAPPNAME=worker PGHOST=$folder PGPORT=5432 sh -c 'while sleep 0.05; do psql -Xqc \"SELECT pg_sleep(600)\"; done' \
        >/dev/null 2>&1 &
    until [ \"$(psql -XAtqc \"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'worker'\")\" = 1 ]; do
        sleep 0.01
    done";

/// Shell function that waits until the worker is in the database `app`.
const WORKS: &str = "works() {
    until [ \"$(psql -XAtqd app -c \"SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'worker' AND datname = 'app'\")\" = 1 ]; do sleep 0.01; done; }";

fn shell(major: u32, script: &str) -> String {
    let options = ["--postgres", &postgres(major), "--setup", SETUP];
    Scene::new(User::Ourselves).shell(&options, &format!("{WORKS}\n{script}"))
}

fn sessions_in_templates_allow_leases(major: u32) {
    let names = "for name in app first second third fourth; do
            psql -XAtqd $name -c 'INSERT INTO t VALUES (1)' -c 'SELECT count(*) FROM t'
        done";
    assert_eq!(shell(major, names), "1\n".repeat(5), "PostgreSQL {major}");
}

fn foreign_sessions_keep_later_leases_fresh(major: u32) {
    let rounds = "for round in 1 2 3; do
            psql -XAtqd app -c 'INSERT INTO t VALUES (1)' -c 'SELECT count(*) FROM t'
            works
            \"$PGFRESH\" reset app --close
        done
        psql -XAtqd app -c 'SELECT count(*) FROM t'";
    let rounds = rounds.replace("$PGFRESH", &crate::common::ground::program().display().to_string());
    assert_eq!(shell(major, &rounds), "1\n1\n1\n0\n", "PostgreSQL {major}");
}

fn leased_servers_ignore_sessions_of_templates(major: u32) {
    let own = "for name in one two; do
            PGOPTIONS=-cpgfresh.isolation=server psql -XAtqd $name -c 'INSERT INTO t VALUES (1)' -c 'SELECT count(*) FROM t'
        done";
    assert_eq!(shell(major, own), "1\n1\n", "PostgreSQL {major}");
}
