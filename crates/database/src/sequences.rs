//! Sequences, which no rollback sets back.

use std::collections::HashMap;
use std::fmt::Write as _;

use server::{Session, SessionError};

use crate::shape::{Sequence, number, read_sequences};
use crate::sql::literal;

/// All sequences that are no temporary ones.
const ALL: &str = "SET LOCAL search_path = pg_catalog; SELECT c.oid, quote_ident(nspname) || '.' || quote_ident(relname) \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE relkind = 'S' AND relpersistence <> 't' ORDER BY c.oid";

/// Where the sequences of a fresh database stand.
#[derive(Debug)]
pub struct Sequences {
    sequences: HashMap<u32, Sequence>,
    touched_sql: Option<String>,
}

impl Sequences {
    /// Reads them through a session that may.
    pub fn read(session: &mut Session) -> Result<Self, SessionError> {
        let rows = session.query(ALL)?;
        let found = rows.into_iter().map(|row| {
            let mut columns = row.into_iter().map(Option::unwrap_or_default);
            let mut next = || columns.next().unwrap_or_default();
            (number(&next()), next())
        });
        let found: Vec<_> = found.collect();
        let oids: Vec<_> = found.iter().map(|(oid, _)| oid.to_string()).collect();
        let touched_sql = (!found.is_empty()).then(|| {
            format!(
                "SELECT s FROM pg_catalog.unnest('{{{}}}'::pg_catalog.oid[]) s \
                 WHERE pg_catalog.pg_stat_get_xact_blocks_fetched(s) > 0",
                oids.join(",")
            )
        });
        Ok(Self { sequences: read_sequences(session, &found)?, touched_sql })
    }

    /// The query for those that the running transaction has touched, if there are any at all. The backend that runs it
    /// counts them itself, and has not told others before the transaction has ended. It may also name some that an
    /// earlier transaction has touched.
    #[must_use]
    pub fn touched_sql(&self) -> Option<&str> {
        self.touched_sql.as_deref()
    }

    /// The statements that set those back; `None` if there are none. A sequence's owner or a superuser may.
    #[must_use]
    pub fn restore_sql<'a>(&self, touched: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let mut sql = String::new();
        for Sequence { name, last_value, is_called } in
            touched.into_iter().filter_map(|oid| self.sequences.get(&number(oid)))
        {
            let comma = if sql.is_empty() { "SET TRANSACTION READ WRITE; SELECT " } else { ", " };
            let name = literal(name);
            let _ = write!(sql, "{comma}pg_catalog.setval({name}, {last_value}, {is_called})");
        }
        (!sql.is_empty()).then_some(sql)
    }
}
