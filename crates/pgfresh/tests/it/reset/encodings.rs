//! Tests names and rows with non-ASCII characters, in databases and sessions with any encoding.

use std::time::Duration;

use lease::{Backend, Connected};
use pgwire::StartupParams;
use server::AdminConnection;
use template::ServerOptions;

use crate::common::digests::in_place;
use crate::common::leases::{LeaseFixture, params};
use crate::common::{WAIT_TIMEOUT, wait_until};

/// Query for the database's OID and rows.
const SEEN: &str = r#"SELECT oid, (SELECT string_agg(name, ',' ORDER BY id) FROM U&"gr\00f6\00dfe") FROM pg_database
    WHERE datname = current_database()"#;

/// Starts a server with a template in the encoding `encoding`, which psql makes with `sql`.
fn server_in(encoding: &str, sql: &str) -> LeaseFixture {
    let sql = format!(
        "\\connect postgres\nDROP DATABASE app;\n\
         CREATE DATABASE app TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C';\n\
         \\connect app\n\\encoding UTF8\n{sql};"
    );
    LeaseFixture::noted(in_place(ServerOptions::default()), &sql, None, Duration::from_mins(10), |_| ())
}

/// Runs `sql` in a session with `params`, returns its backend to the pool, and resets the database.
fn visit(server: &LeaseFixture, params: &StartupParams, sql: &str) -> Vec<Option<String>> {
    let Connected { backend: Backend { stream, startup_response, seat }, guard } =
        server.connect_with("a", None, params).unwrap();
    let mut session = AdminConnection::adopt(stream, WAIT_TIMEOUT).unwrap();
    let rows = session.query(sql).unwrap().concat();
    session.query("DISCARD ALL").unwrap();
    guard.give_back(Backend { stream: session.release().unwrap(), startup_response, seat });
    server.leases.reset("a", false).unwrap();
    rows
}

fn in_utf8() -> StartupParams {
    StartupParams::new([("user", "postgres"), ("client_encoding", "UTF8")])
}

#[test]
fn latin1_templates_with_any_names_are_recycled() {
    let sql = "CREATE TABLE \"größe\" (id serial, name text); INSERT INTO \"größe\" (name) VALUES ('süß');
        CREATE TABLE \"leer\\é\"\"\" (id int)";
    let server = server_in("LATIN1", sql);
    let first = visit(&server, &in_utf8(), SEEN);
    assert_eq!(first[1].as_deref(), Some("süß"));
    for _ in 0..3 {
        let change = r#"INSERT INTO U&"gr\00f6\00dfe" (name) VALUES (U&'\00e9');
            INSERT INTO U&"leer\\\00e9""" VALUES (1)"#;
        visit(&server, &in_utf8(), change);
        assert_eq!(visit(&server, &in_utf8(), SEEN), first);
    }
    let status = server.leases.status();
    assert!(status.dropped.is_empty() && status.errors.is_empty(), "{status:?}");
}

/// The encoding `SQL_ASCII` doesn't convert anything, so names that aren't UTF-8 can't be written.
#[test]
fn names_beyond_utf8_prevent_recycling() {
    let sql = r#"DO $$BEGIN EXECUTE 'CREATE TABLE "gr' || E'\xf6' || 'e" (id int)'; END$$; CREATE TABLE t (id int)"#;
    let server = server_in("SQL_ASCII", &sql.replace("DO", "\\encoding SQL_ASCII\nDO"));
    for _ in 0..3 {
        let rows = visit(&server, &params("postgres"), "SELECT count(*) FROM t; INSERT INTO t VALUES (1)");
        assert_eq!(rows, [Some("0".to_owned())]);
    }
    let status = server.leases.status();
    assert_eq!(status.recycled.0, 0, "{status:?}");
    let reason = "its template's catalog could not be read";
    assert!(status.dropped.iter().any(|(why, _)| *why == reason), "{:?}", status.dropped);
    assert!(status.errors.iter().any(|(verb, _)| verb.contains("catalog")), "{:?}", status.errors);
}

#[test]
fn utf8_names_in_sql_ascii_are_recycled() {
    let server = server_in("SQL_ASCII", "CREATE TABLE \"größe\" (id int)");
    for _ in 0..3 {
        let rows = visit(
            &server,
            &params("postgres"),
            "SELECT count(*) FROM \"größe\"; INSERT INTO \"größe\" VALUES (1)",
        );
        assert_eq!(rows, [Some("0".to_owned())]);
    }
    assert!(server.leases.status().dropped.is_empty(), "{:?}", server.leases.status().dropped);
}

/// The pool resets a database in a backend that waits for a client.
#[test]
fn resets_ignore_settings_of_waiting_clients() {
    let sql = "CREATE TABLE \"größe\" (id serial, name text); CREATE SCHEMA own";
    let server = LeaseFixture::new(in_place(ServerOptions::default()), sql, Duration::from_mins(10), false);
    let latin1 = StartupParams::new([
        ("user", "postgres"),
        ("client_encoding", "LATIN1"),
        (
            "options",
            "-c standard_conforming_strings=off -c search_path=own -c statement_timeout=10s \
             -c default_transaction_read_only=on -c default_transaction_isolation=serializable \
             -c datestyle=German -c quote_all_identifiers=on -c array_nulls=off",
        ),
    ]);
    // pgfresh reads the catalog in the second copy.
    wait_until("two ready databases", || server.leases.status().ready[0].1 > 1);
    let first = visit(&server, &in_utf8(), SEEN);
    let change = r#"BEGIN READ WRITE; INSERT INTO public.U&"gr\00f6\00dfe" (name) VALUES ('x'); COMMIT"#;
    for params in [latin1.clone(), in_utf8(), latin1, in_utf8()] {
        visit(&server, &params, change);
        let next = "SELECT pg_sequence_last_value('\"größe_id_seq\"')";
        assert_eq!(visit(&server, &in_utf8(), next), [None]);
        let seen = visit(&server, &in_utf8(), SEEN);
        assert_eq!(seen, first, "{params:?} {:?}", server.leases.status());
    }
    let status = server.leases.status();
    assert!(status.errors.is_empty(), "{:?}", status.errors);
    assert!(status.warm > 4, "{status:?}");
}
