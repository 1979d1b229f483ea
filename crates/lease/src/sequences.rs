//! Sequences, which no rollback sets back.

use server::{Session, SessionError};

use crate::shape::{number, read_sequences};

/// All sequences that are no temporary ones.
const ALL: &str = "SET LOCAL search_path = pg_catalog; SELECT c.oid, quote_ident(nspname) || '.' || quote_ident(relname) \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE relkind = 'S' AND relpersistence <> 't' ORDER BY c.oid";
/// Those that the session has touched of late: in its last transaction, or up to a second before. Its own backend counts
/// them, and tells others later.
const TOUCHED: &str = "pg_catalog.pg_stat_get_xact_blocks_fetched(oid) > 0";

/// Where the sequences of a fresh database stand.
#[derive(Debug)]
pub struct Sequences {
    /// A row for each, as SQL's FROM wants them: oid, last value, whether it has been called. `None` if there are none.
    rows: Option<String>,
}

impl Sequences {
    /// Reads them through a session that may.
    pub fn read(session: &mut Session) -> Result<Self, SessionError> {
        let found = session.query(ALL)?.into_iter().map(|row| {
            let mut columns = row.into_iter().map(Option::unwrap_or_default);
            let mut next = || columns.next().unwrap_or_default();
            (number(&next()), next())
        });
        let found: Vec<_> = found.collect();
        let (mut oids, mut values, mut called) = (Vec::new(), Vec::new(), Vec::new());
        for (oid, sequence) in read_sequences(session, &found)? {
            oids.push(oid.to_string());
            values.push(sequence.last_value.to_string());
            called.push(sequence.is_called.to_string());
        }
        let column = |values: &[String], of: &str| {
            format!("pg_catalog.unnest('{{{}}}'::pg_catalog.{of}[])", values.join(","))
        };
        let rows = format!(
            "FROM ROWS FROM ({}, {}, {}) s(oid, value, called)",
            column(&oids, "oid"),
            column(&values, "int8"),
            column(&called, "bool"),
        );
        Ok(Self { rows: (!oids.is_empty()).then_some(rows) })
    }

    /// The query for those that the session has touched, if there are any at all.
    #[must_use]
    pub fn touched_sql(&self) -> Option<String> {
        self.rows.as_ref().map(|rows| format!("SELECT oid {rows} WHERE {TOUCHED}"))
    }

    /// The statement that sets those back that the session has touched. A superuser may.
    #[must_use]
    pub fn restore_touched_sql(&self) -> Option<String> {
        self.restore_where(TOUCHED)
    }

    /// The statement that sets those back with these oids.
    #[must_use]
    pub fn restore_sql(&self, touched: &[&str]) -> Option<String> {
        self.restore_where(&format!("oid = ANY ('{{{}}}')", touched.join(",")))
            .filter(|_| !touched.is_empty())
    }

    fn restore_where(&self, condition: &str) -> Option<String> {
        let set = "pg_catalog.setval(oid::pg_catalog.regclass, value, called)";
        self.rows.as_ref().map(|rows| format!("SELECT pg_catalog.count({set}) {rows} WHERE {condition}"))
    }
}
