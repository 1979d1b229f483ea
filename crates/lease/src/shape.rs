//! A template's shape: what in it a session can touch, and what it takes to undo that.
//!
//! Copies are made by files, so every oid of the template is the same in each of them. The shape is read once, in the
//! first copy, and holds for all.

use std::collections::HashMap;

use server::{Rows, Session, SessionError};

use crate::Digest;
use crate::sql::literal;

/// The largest table whose rows are kept in memory to be put back, in bytes on disk.
const LARGEST_SEED: u64 = 256 << 10;

/// Everything in a template that has rows or counts.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    pub(crate) tables: HashMap<u32, Table>,
    pub(crate) sequences: HashMap<u32, Sequence>,
    /// As [`Rest`](crate::rest::Rest) has them.
    pub(crate) attributes: String,
    /// A digest of `pg_class` without what TRUNCATE and VACUUM change.
    pub(crate) classes: String,
    /// File by oid: a table that was truncated has another.
    pub(crate) files: HashMap<u32, u32>,
    /// Asks for the counts of its relations where they are not zero: oid, rows changed or blocks read, bytes on disk.
    pub(crate) look: String,
    /// All that is in it, where recycled databases are compared.
    pub(crate) digest: Option<Digest>,
}

#[derive(Debug)]
pub(crate) struct Table {
    /// As SQL wants it.
    pub(crate) name: String,
    /// 0 if it has none.
    pub(crate) toast: u32,
    pub(crate) rows: Seed,
    /// Whether other tables refer to it, so that it cannot be truncated alone.
    pub(crate) referenced: bool,
}

/// What a table has in the template.
#[derive(Debug)]
pub(crate) enum Seed {
    Empty,
    /// Its rows as `COPY … (FORMAT binary)` gives them.
    Rows(Vec<u8>),
    /// Why they cannot be put back.
    Fixed(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(crate) name: String,
    pub(crate) last_value: i64,
    pub(crate) is_called: bool,
}

/// The tables, materialised views and sequences that are neither the system's nor `information_schema`'s.
const RELATIONS: &str = "SELECT c.oid, quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relkind, \
    c.reltoastrelid, pg_relation_size(c.oid), \
    EXISTS (SELECT FROM pg_constraint k WHERE k.confrelid = c.oid AND k.conrelid <> c.oid), \
    EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgenabled IN ('A', 'R')) \
    OR EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = c.oid AND r.ev_enabled IN ('A', 'R')) \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'm', 'S') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'";

/// `pg_class` without the columns that TRUNCATE, VACUUM and ANALYZE change.
pub(crate) const CLASSES: &str = "SELECT md5(string_agg((to_jsonb(c) - '{relfilenode,relpages,reltuples,\
    relallvisible,relallfrozen,relfrozenxid,relminmxid}'::text[])::text, ',' ORDER BY oid)) FROM pg_class c";

/// Oids and files of all relations that can be truncated or rewritten.
pub(crate) const FILES: &str =
    "SELECT oid, relfilenode FROM pg_class WHERE relkind IN ('r', 'm', 'S') AND relfilenode <> 0";

impl Shape {
    /// Reads it in a copy that nobody has used and that has these attributes, through a session of ours.
    pub(crate) fn read(
        session: &mut Session,
        attributes: String,
        paranoid: bool,
    ) -> Result<Self, SessionError> {
        let mut shape = Self {
            attributes,
            classes: text(&session.query(CLASSES)?),
            files: files(&session.query(FILES)?),
            digest: if paranoid { Some(Digest::read(session)?) } else { None },
            ..Self::default()
        };
        let mut sequences = Vec::new();
        for row in session.query(RELATIONS)? {
            let mut columns = row.into_iter().map(Option::unwrap_or_default);
            let mut next = || columns.next().unwrap_or_default();
            let (oid, name, kind) = (number(&next()), next(), next());
            let (toast, size) = (number(&next()), next().parse::<u64>().unwrap_or(0));
            let (referenced, fires) = (next() == "t", next() == "t");
            if kind == "S" {
                sequences.push((oid, name));
                continue;
            }
            let rows = match kind.as_str() {
                "m" => Seed::Fixed("a materialised view was refreshed"),
                _ if fires => Seed::Fixed("a table with triggers or rules that always fire was touched"),
                _ if size == 0 => Seed::Empty,
                _ => seed(session, &name, size)?,
            };
            shape.tables.insert(oid, Table { name, toast, rows, referenced });
        }
        shape.sequences = read_sequences(session, &sequences)?;
        shape.look = look(&shape);
        Ok(shape)
    }

    /// The tables, as SQL wants them.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.tables.values().map(|table| table.name.as_str()).collect()
    }
}

/// What asks for the counts of all tables, their toast and the sequences.
fn look(shape: &Shape) -> String {
    let list = |oids: &mut dyn Iterator<Item = u32>| {
        let oids: Vec<_> = oids.map(|oid| oid.to_string()).collect();
        format!("'{{{}}}'::oid[]", oids.join(","))
    };
    let toast = shape.tables.values().map(|table| table.toast).filter(|toast| *toast != 0);
    let tables = list(&mut shape.tables.keys().copied().chain(toast));
    let sequences = list(&mut shape.sequences.keys().copied());
    // OFFSET keeps the counts from being read once more for the condition.
    format!(
        "SELECT r, n, pg_relation_size(r) FROM (SELECT r, pg_stat_get_tuples_inserted(r) \
         + pg_stat_get_tuples_updated(r) + pg_stat_get_tuples_deleted(r) AS n FROM unnest({tables}) r OFFSET 0) t \
         WHERE n <> 0; \
         SELECT r, n, 0 FROM (SELECT r, pg_stat_get_blocks_fetched(r) AS n FROM unnest({sequences}) r OFFSET 0) s \
         WHERE n <> 0"
    )
}

/// The rows of a table that is not empty on disk.
fn seed(session: &mut Session, name: &str, size: u64) -> Result<Seed, SessionError> {
    if session.query(&format!("SELECT FROM ONLY {name} LIMIT 1"))?.is_empty() {
        return Ok(Seed::Empty);
    }
    if size > LARGEST_SEED {
        return Ok(Seed::Fixed("a large table with rows in the template was touched"));
    }
    match session.copy_out(&format!("COPY {name} TO STDOUT (FORMAT binary)")) {
        Ok(rows) => Ok(Seed::Rows(rows)),
        // A type without binary output.
        Err(SessionError::Server { .. }) => {
            Ok(Seed::Fixed("a table whose rows cannot be copied was touched"))
        }
        Err(error) => Err(error),
    }
}

/// Where the sequences stand.
pub(crate) fn read_sequences(
    session: &mut Session,
    sequences: &[(u32, String)],
) -> Result<HashMap<u32, Sequence>, SessionError> {
    let selects: Vec<_> = sequences
        .iter()
        .map(|(oid, name)| format!("SELECT {oid}, {}, last_value, is_called FROM {name}", literal(name)))
        .collect();
    let rows = if selects.is_empty() { Rows::new() } else { session.query(&selects.join(" UNION ALL "))? };
    let found = rows.into_iter().map(|row| {
        let mut columns = row.into_iter().map(Option::unwrap_or_default);
        let mut next = || columns.next().unwrap_or_default();
        let (oid, name) = (number(&next()), next());
        (oid, Sequence { name, last_value: next().parse().unwrap_or(0), is_called: next() == "t" })
    });
    Ok(found.collect())
}

/// The first column of the first row.
pub(crate) fn text(rows: &Rows) -> String {
    rows.first().and_then(|row| row.first().cloned().flatten()).unwrap_or_default()
}

pub(crate) fn files(rows: &Rows) -> HashMap<u32, u32> {
    let value = |column: &Option<String>| column.as_deref().map_or(0, number);
    rows.iter().map(|row| (value(&row[0]), value(&row[1]))).collect()
}

/// An oid; 0 for what is none.
pub(crate) fn number(text: &str) -> u32 {
    text.parse().unwrap_or(0)
}
