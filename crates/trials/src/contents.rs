//! Reads the rows of all tables of a database.

use std::collections::BTreeMap;

use server::{AdminConnection, SessionError, identifier};

/// Maximum number of rows to read from a table. For a larger table, [`Table`] only has the row count.
const MAX_ROWS: usize = 2000;
/// Maximum length of a value in characters. The query replaces a longer value with its beginning and a digest.
const MAX_VALUE: usize = 200;

/// Selects the tables of all user schemas, with one row for each column.
const COLUMNS: &str = "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), a.attname, \
      a.attidentity <> '' OR coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE '%nextval(%', false), \
      CASE WHEN t.typname IN ('int2', 'int4', 'int8') THEN 'integer' \
        WHEN t.typcategory IN ('S', 'A') OR t.typname IN ('json', 'jsonb', 'xml', 'bytea') THEN 'text' \
        WHEN t.typcategory = 'D' THEN 'time' END \
    FROM pg_catalog.pg_class c \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum \
    WHERE c.relkind = 'r' AND c.relpersistence <> 't' \
      AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' \
    ORDER BY 1, a.attnum";
/// Selects the last values of sequences that don't belong to a column or a default. The server never calls `nextval` on
/// these sequences by itself, so only clients do.
const SEQUENCES: &str = "SELECT s.seqrelid::pg_catalog.regclass, pg_catalog.pg_sequence_last_value(s.seqrelid) \
    FROM pg_catalog.pg_sequence s \
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_depend d \
      WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND ( \
        d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = s.seqrelid AND d.refobjsubid > 0 \
        OR d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND d.refobjid = s.seqrelid))";

/// Rows of all tables of a database at one point in time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// Tables by their qualified names.
    pub(crate) tables: BTreeMap<String, Table>,
    /// Last values of the sequences that only clients advance, by sequence name.
    pub(crate) sequences: BTreeMap<String, i64>,
}

/// Rows of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    /// Number of rows.
    pub(crate) count: u64,
    /// The rows. `None` for a table with more than [`MAX_ROWS`] rows.
    pub(crate) rows: Option<Vec<Row>>,
}

/// A row's values as text, in column order. `None` for NULL.
pub(crate) type Row = Vec<Option<String>>;

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) content: ColumnContent,
}

/// Kind of values in a column, which determines how its values can differ between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnContent {
    /// The server generates the values with a sequence.
    Generated,
    /// An integer in a column that, judging by its name, refers to a row (`order_id`).
    Reference,
    /// Any other integer. A client can have taken it from a sequence.
    Integer,
    /// Text, bytes, an array or a document, which can contain numbers from a sequence.
    Text,
    /// A date or time, which can be the time when the attempt ran.
    Time,
    /// Any other value.
    Plain,
}

impl Contents {
    /// Reads the rows through a superuser's session in the database.
    ///
    /// # Errors
    /// Returns an error if the session fails.
    pub fn read(session: &mut AdminConnection) -> Result<Self, SessionError> {
        let mut tables = BTreeMap::<String, Table>::new();
        for row in session.query(COLUMNS)? {
            let [Some(table), Some(name), generated, content] = &row[..] else { continue };
            let content = match content.as_deref() {
                _ if generated.as_deref() == Some("t") => ColumnContent::Generated,
                Some("integer") if is_reference(name) => ColumnContent::Reference,
                Some("integer") => ColumnContent::Integer,
                Some("text") => ColumnContent::Text,
                Some("time") => ColumnContent::Time,
                _ => ColumnContent::Plain,
            };
            tables.entry(table.clone()).or_default().columns.push(Column { name: name.clone(), content });
        }
        for (name, table) in &mut tables {
            table.read(name, session)?;
        }
        let last_value = |row: Vec<Option<String>>| match &row[..] {
            [Some(name), Some(value)] => Some((name.clone(), value.parse().ok()?)),
            _ => None,
        };
        let sequences = session.query(SEQUENCES)?.into_iter().filter_map(last_value).collect();
        Ok(Self { tables, sequences })
    }
}

/// Returns true if the name of an integer column suggests a reference to a row: `id`, `order_id` or `orderId`.
fn is_reference(name: &str) -> bool {
    let is_word = |name: &str| name.eq_ignore_ascii_case("id");
    is_word(name) || name.ends_with("Id") || name.rsplit_once('_').is_some_and(|(_, last)| is_word(last))
}

impl Table {
    fn read(&mut self, name: &str, session: &mut AdminConnection) -> Result<(), SessionError> {
        let value = |column: &Column| {
            let text = format!("{}::pg_catalog.text", identifier(&column.name));
            // Generated numbers differ between runs, so the length and the digest of a text must not depend on its
            // numbers. The digest must not contain digits either.
            let (text_to_cut, digits) = match column.content {
                ColumnContent::Text => {
                    (format!("pg_catalog.regexp_replace({text}, '[0-9]+', '…', 'g')"), "'ghijklmnop'")
                }
                _ => (text.clone(), "'0123456789'"),
            };
            format!(
                "CASE WHEN pg_catalog.length({text_to_cut}) > {MAX_VALUE} \
                 THEN pg_catalog.left({text_to_cut}, 60) || '… ' || \
                   pg_catalog.translate(pg_catalog.md5({text_to_cut}), '0123456789', {digits}) \
                 ELSE {text} END"
            )
        };
        let values: Vec<_> = self.columns.iter().map(value).collect();
        let rows = session.query(&format!(
            "SELECT {} FROM ONLY {name} LIMIT {}",
            values.join(", "),
            MAX_ROWS + 1
        ))?;
        if rows.len() <= MAX_ROWS {
            (self.count, self.rows) = (rows.len() as u64, Some(rows));
            return Ok(());
        }
        let count = session.query(&format!("SELECT pg_catalog.count(*) FROM ONLY {name}"))?;
        let count = count.first().and_then(|row| row.first()?.as_deref()?.parse().ok());
        self.count = count.unwrap_or_default();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_references_end_in_the_word_id() {
        for name in ["id", "ID", "order_id", "ORDER_ID", "orderId", "order_Id"] {
            assert!(is_reference(name), "{name}");
        }
        for name in ["paid", "bid", "grid", "solid", "idle", "id_count"] {
            assert!(!is_reference(name), "{name}");
        }
    }
}
