//! Identifies databases by oid and name, and checks that a session is in the right database.
//!
//! When a session starts, the server finds its database by name, but SQL may give that name to another database at any
//! moment. So before using a session, pgfresh asks the server for the oid of the session's database. From then on, the
//! session remains in that database, even if SQL renames it.

use server::{AdminConnection, Rows, literal};

use crate::error::LeaseError;

/// Selects the oid of the session's database.
const OWN_DATABASE: &str = "SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())";

/// A database's oid, and the name by which the server finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DatabaseAddress {
    pub(crate) oid: u32,
    pub(crate) name: String,
}

impl DatabaseAddress {
    pub(crate) fn new(oid: u32, name: &str) -> Self {
        Self { oid, name: name.to_owned() }
    }

    /// Checks that a session that pgfresh has just opened is in this database.
    ///
    /// # Errors
    /// Returns [`LeaseError::NotLeased`] if SQL has given the name to another database.
    pub(crate) fn expect_session(&self, session: &mut AdminConnection) -> Result<(), LeaseError> {
        let rows = session.query(OWN_DATABASE);
        let rows = rows.map_err(|source| LeaseError::Sql { verb: "look at a session", source })?;
        self.expect(oid_in(&rows))
    }

    /// Checks that a session is in this database. `oid` is the oid of the session's database, or `None` if the session
    /// has ended or only sends the log. Since such a session can't change a database, the check succeeds.
    ///
    /// # Errors
    /// Returns [`LeaseError::NotLeased`] if SQL has given the name to another database.
    pub(crate) fn expect(&self, oid: Option<u32>) -> Result<(), LeaseError> {
        if oid.is_none_or(|oid| oid == self.oid) {
            Ok(())
        } else {
            Err(LeaseError::NotLeased(self.name.clone()))
        }
    }
}

/// Parses the oid in the first column of the first row, if there is one.
pub(crate) fn oid_in(rows: &Rows) -> Option<u32> {
    rows.first()?.first()?.as_deref()?.parse().ok()
}

/// Returns an SQL literal for an array of names.
pub(crate) fn list_of<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let quoted = |name: &String| format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
    literal(&format!("{{{}}}", names.into_iter().map(quoted).collect::<Vec<_>>().join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_quotes_whatever_is_in_names() {
        let names = ["a", "b,c", "d\"e", "f\\g", "h'i", ""].map(str::to_owned);
        assert_eq!(list_of(&names), r#"'{"a","b,c","d\"e","f\\g","h''i",""}'"#);
    }

    #[test]
    fn a_session_elsewhere_is_refused() {
        let address = DatabaseAddress::new(7, "db");
        assert!(address.expect(Some(7)).is_ok() && address.expect(None).is_ok());
        assert!(matches!(address.expect(Some(8)), Err(LeaseError::NotLeased(name)) if name == "db"));
    }
}
