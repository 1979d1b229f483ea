//! Dropping a database, with what would keep it from being dropped.

use server::{AdminConnection, SessionError, identifier, literal};

use crate::LeaseError;
use crate::admin::AdminPool;
use crate::reset::roll_back_prepared;

/// Drops a database and ends whatever sessions, prepared transactions, subscriptions and slots it has; one that is not
/// there is no error.
pub(crate) fn drop_database(name: &str, admin: &AdminPool) -> Result<(), LeaseError> {
    let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", identifier(name));
    let drop = || admin.run("drop a database", &sql).map(drop);
    match drop() {
        // FORCE does not mean these, and most can be ended from within only.
        Err(error) if matches!(error.sqlstate(), "42809" | "55006" | "2BP01") => {
            admin.run("open a database", &open(name))?;
            admin.ask(name, "end what hangs on a database", clear)?;
            drop()
        }
        other => other,
    }
}

/// Takes back what a client has said of it by `ALTER DATABASE`: a template is not dropped, and one that is closed is not entered.
fn open(name: &str) -> String {
    format!(
        "UPDATE pg_catalog.pg_database SET datistemplate = false, datallowconn = true, datconnlimit = -1 \
         WHERE datname = {}",
        literal(name)
    )
}

/// Ends what keeps a database from being dropped.
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
