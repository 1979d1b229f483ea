//! Copies of a database within a server, with the properties that CREATE DATABASE leaves out.

use server::{identifier, literal};

/// Returns SQL that makes the database `to` from `from`, owned by the superuser. It must be alone in its query.
///
/// From version 15 on, the copy uses files. The server's own default writes each page to the WAL, which takes twice
/// as long.
#[must_use]
pub fn create_copy(from: &str, to: &str, major: u32) -> String {
    let strategy = if major >= 15 { " STRATEGY FILE_COPY" } else { "" };
    format!("CREATE DATABASE {} TEMPLATE {}{strategy}", identifier(to), identifier(from))
}

/// Returns SQL that ends all other sessions of a database, with a row for each. The server neither renames nor copies
/// a database that has a session, and a background worker keeps its session for ever.
#[must_use]
pub fn end_sessions(database: &str) -> String {
    let database = literal(database);
    format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {database} AND pid <> pg_backend_pid()"
    )
}

/// Returns SQL that gives such a copy the original's rows in the shared catalogs: owner, settings, grants, connection
/// limit and comment.
#[must_use]
pub fn complete_copy(from: &str, to: &str) -> String {
    let [from, to] = [from, to].map(literal);
    let [from, to] = [from, to].map(|name| format!("(SELECT oid FROM pg_database WHERE datname = {name})"));
    format!(
        "INSERT INTO pg_db_role_setting SELECT {to}, setrole, setconfig \
           FROM pg_db_role_setting WHERE setdatabase = {from}; \
         INSERT INTO pg_shdepend SELECT dbid, classid, {to}, objsubid, refclassid, refobjid, deptype \
           FROM pg_shdepend WHERE classid = 'pg_database'::regclass AND objid = {from} AND deptype IN ('a', 'o'); \
         INSERT INTO pg_shdescription SELECT {to}, classoid, description \
           FROM pg_shdescription WHERE classoid = 'pg_database'::regclass AND objoid = {from}; \
         UPDATE pg_database n SET datdba = t.datdba, datacl = t.datacl, datconnlimit = t.datconnlimit \
           FROM pg_database t WHERE n.oid = {to} AND t.oid = {from}"
    )
}
