//! Builds the SQL that copies a database within a server, including the properties that CREATE DATABASE doesn't copy.

use server::{Major, identifier, literal};

/// Returns SQL that copies the database `from` to `to`. The copy belongs to the superuser. Don't add other statements
/// to the query.
///
/// From version 15 on, the SQL tells the server to copy files. By default, the server would write each page to the WAL,
/// which takes twice as long.
#[must_use]
pub fn create_copy(from: &str, to: &str, major: u32) -> String {
    let strategy = if Major(major).has_create_strategy() { " STRATEGY FILE_COPY" } else { "" };
    format!("CREATE DATABASE {} TEMPLATE {}{strategy}", identifier(to), identifier(from))
}

/// Returns SQL that terminates all other sessions of a database and yields one row for
/// each, with the pid first. This is necessary because the server can't rename or copy a
/// database with sessions, and background workers never end their sessions on their own.
#[must_use]
pub fn end_sessions(database: &str) -> String {
    let database = literal(database);
    format!(
        "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {database} AND pid <> pg_backend_pid()"
    )
}

/// Returns SQL that copies the properties stored in the shared catalogs: owner, settings, grants, connection limit and
/// comment.
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
