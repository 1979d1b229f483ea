//! Drops databases after removing everything that would prevent the server from dropping them.
//!
//! DROP DATABASE accepts only a name, which SQL may have given to a different database in the meantime. Therefore
//! pgfresh looks up the database by oid and first renames it to a unique name.

use std::collections::BTreeSet;

use ::template::PREFIX;
use server::{AdminConnection, SessionError, identifier, literal};

use crate::address::{DatabaseAddress, list_of};
use crate::admin::{AdminPool, number, text};
use crate::error::LeaseError;
use crate::reset::recycle::roll_back_prepared;

/// Prefix for the names of databases about to be dropped.
pub(crate) fn dropped_prefix() -> String {
    format!("{PREFIX}dropped_")
}

/// Drops the database with this name, if one exists.
pub(crate) fn drop_named(name: &str, admin: &AdminPool) -> Result<(), LeaseError> {
    let sql = format!("SELECT oid FROM pg_database WHERE datname = {}", literal(name));
    let oid = number(&text(&admin.run("drop a database", &sql)?));
    drop_database(oid, &BTreeSet::from([name.to_owned()]), admin)
}

/// Drops the database with this oid, along with its sessions, prepared transactions, subscriptions and replication
/// slots. Does nothing if SQL has dropped the database or renamed it to something outside `names`.
pub(crate) fn drop_database(oid: u32, names: &BTreeSet<String>, admin: &AdminPool) -> Result<(), LeaseError> {
    let dropped = DatabaseAddress::new(oid, &format!("{}{oid}", dropped_prefix()));
    // An earlier attempt may already have renamed the database. Also forbid connections, so that programs that visit
    // all databases skip this one.
    let sql = format!(
        "UPDATE pg_database SET datname = {to}, datallowconn = false \
         WHERE oid = {oid} AND (datname = {to} OR datname = ANY ({})) RETURNING oid",
        list_of(names),
        to = literal(&dropped.name)
    );
    if admin.run("drop a database", &sql)?.is_empty() {
        return Ok(());
    }
    let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", identifier(&dropped.name));
    let drop = || admin.run("drop a database", &sql).map(drop);
    match drop() {
        // Some obstacles remain despite FORCE, such as subscriptions.
        // Most of them can only be removed in a session in the database.
        Err(error) if matches!(error.sqlstate(), "42809" | "55006" | "2BP01") => {
            admin.run("open a database", &open(oid))?;
            admin.ask(&dropped, "end what hangs on a database", clear)?;
            drop()
        }
        other => other,
    }
}

/// Returns SQL that allows connections to a database and makes it droppable, even after a client's `ALTER DATABASE`:
/// the server refuses to drop templates.
fn open(oid: u32) -> String {
    format!(
        "UPDATE pg_catalog.pg_database SET datistemplate = false, datallowconn = true, datconnlimit = -1 \
         WHERE oid = {oid}"
    )
}

/// Removes everything in the database that prevents dropping it.
fn clear(session: &mut AdminConnection) -> Result<(), SessionError> {
    roll_back_prepared(session)?;
    let subscriptions = "SELECT subname FROM pg_subscription s JOIN pg_database d ON d.oid = s.subdbid \
        WHERE datname = current_database()";
    for row in session.query(subscriptions)? {
        let name = identifier(row.first().and_then(Option::as_deref).unwrap_or_default());
        session.query(&format!(
            "ALTER SUBSCRIPTION {name} DISABLE; ALTER SUBSCRIPTION {name} SET (slot_name = NONE); DROP SUBSCRIPTION {name}"
        ))?;
    }
    session.query(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots \
         WHERE database = current_database() AND active_pid IS NOT NULL",
    )?;
    session.query("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")?;
    Ok(())
}
