//! Reads a database's complete content, for comparison with another database: rows of every table, sequences,
//! catalogs, planner statistics, and the shared catalog rows about the database.
//!
//! A separate session bypasses the gateway to read the content. It leaves out values that users can't rely on: file
//! and transaction numbers, and the namespaces that sessions with temporary tables have used.

use std::collections::BTreeMap;

use crate::common::connection::{Address, Connection, SqlError};

/// Settings that give each value one exact text.
const EXACT: [(&str, &str); 2] = [
    ("client_encoding", "UTF8"),
    (
        "options",
        "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres -c extra_float_digits=3 -c bytea_output=hex \
         -c search_path=pg_catalog -c enable_indexscan=on -c session_replication_role=origin -c statement_timeout=0 \
         -c idle_session_timeout=0 -c jit=off -c default_transaction_read_only=off -c application_name=comparison",
    ),
];

/// Query for every relation with rows: its name, its kind, whether it is a catalog, whether it is unlogged, and its
/// columns. After the columns come the stored forms of columns whose text doesn't determine it. `regproc` columns are
/// read as OIDs, which the server prints much faster than function names.
const RELATIONS: &str = "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relkind, n.nspname = 'pg_catalog', \
    c.relpersistence = 'u', \
    string_agg('t.' || quote_ident(a.attname) || CASE a.atttypid WHEN 'regproc'::regtype THEN '::oid' ELSE '' END, \
        ', ' ORDER BY a.attnum), \
    string_agg(CASE WHEN a.atttypid = 'xml'::regtype \
        THEN ', xmlserialize(CONTENT t.' || quote_ident(a.attname) || ' AS text)' ELSE '' END \
        || CASE WHEN a.attlen = -1 AND current_setting('server_version_num')::int >= 140000 \
        THEN ', pg_column_compression(t.' || quote_ident(a.attname) || ')' ELSE '' END, '' ORDER BY a.attnum) \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
        AND NOT (c.oid = 'pg_class'::regclass AND a.attname IN ('relfilenode', 'relfrozenxid', 'relminmxid')) \
    WHERE c.relkind IN ('r', 'm', 'S') AND NOT c.relisshared AND n.nspname !~ '^pg_(toast_)?temp_' \
    GROUP BY n.nspname, c.relname, c.relkind, c.relpersistence, c.oid ORDER BY c.oid";

/// Query for the shared catalog rows about this database.
const SHARED: &str = "WITH own AS (SELECT * FROM pg_database WHERE datname = current_database()) \
    SELECT 'database', (to_jsonb(own) - '{oid,datname,datfrozenxid,datminmxid}'::text[])::text FROM own \
    UNION ALL SELECT 'settings of the database', string_agg(setrole || ' ' || setconfig::text, ' ' ORDER BY setrole) \
        FROM pg_db_role_setting, own WHERE setdatabase = own.oid \
    UNION ALL SELECT 'comment on the database', shobj_description(oid, 'pg_database') FROM own \
    UNION ALL SELECT 'dependencies on roles', md5(string_agg(s, ' ' ORDER BY s)) FROM (SELECT concat_ws(',', classid, \
        objid, objsubid, refclassid, refobjid, deptype) FROM pg_shdepend, own WHERE dbid = own.oid \
        UNION ALL SELECT concat_ws(',', refclassid, refobjid, deptype) FROM pg_shdepend, own \
        WHERE dbid = 0 AND classid = 'pg_database'::regclass AND objid = own.oid) x(s) \
    UNION ALL SELECT 'subscriptions', string_agg(subname, ',' ORDER BY subname) FROM pg_subscription, own WHERE subdbid = own.oid \
    UNION ALL SELECT 'replication slots', string_agg(slot_name, ',') FROM pg_replication_slots WHERE database = current_database() \
    UNION ALL SELECT 'prepared transactions', string_agg(gid, ',') FROM pg_prepared_xacts WHERE database = current_database()";

/// Rows in one relation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rows {
    /// Number of rows, and a hash of all rows in any order.
    values: String,
    /// Transactions that have written the rows. These are the template's transactions, until a
    /// reset restores the rows.
    writers: String,
    /// Hash of the rows with their positions, or an empty string for a catalog.
    places: String,
    /// Query that reads the rows as text.
    query: String,
    /// Whether a crash empties the relation.
    unlogged: bool,
}

/// Content of a database.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    relations: BTreeMap<String, Rows>,
    shared: BTreeMap<String, String>,
    address: Address,
    database: String,
}

impl Content {
    pub(crate) fn read(address: &Address, database: &str) -> Result<Self, SqlError> {
        let mut session = open(address, database)?;
        let mut relations = BTreeMap::new();
        let mut sql = Vec::new();
        for row in session.rows(RELATIONS)? {
            let mut columns = row.into_iter().map(Option::unwrap_or_default);
            let mut next = || columns.next().unwrap_or_default();
            let (name, kind, catalog, unlogged) = (next(), next(), next() == "t", next() == "t");
            let (columns, stored) = (next(), next());
            let (rows, places) = match (kind.as_str(), catalog) {
                ("S", _) => ("ROW(t.last_value, t.is_called)::text".to_owned(), false),
                (_, true) => (format!("ROW({columns})::text"), false),
                (_, false) => (format!("ROW({columns}{stored})::text"), true),
            };
            let filter =
                if name == "pg_catalog.pg_namespace" { " WHERE nspname !~ '^pg_(toast_)?temp_'" } else { "" };
            sql.push(summary(&name, &rows, places, filter));
            let query = format!(
                "SELECT r FROM (SELECT {rows} AS r FROM ONLY {name} t{filter}) x ORDER BY r COLLATE \"C\""
            );
            let rows = Rows {
                values: String::new(),
                writers: String::new(),
                places: String::new(),
                query,
                unlogged,
            };
            relations.insert(name, rows);
        }
        for row in session.rows(&sql.join(" UNION ALL "))? {
            let mut columns = row.into_iter().map(Option::unwrap_or_default);
            let mut next = || columns.next().unwrap_or_default();
            let rows = relations.get_mut(&next()).unwrap();
            (rows.values, rows.writers, rows.places) = (next(), next(), next());
        }
        let shared = session.rows(SHARED)?.into_iter().map(|row| {
            let mut columns = row.into_iter().map(|column| column.unwrap_or_else(|| "none".to_owned()));
            (columns.next().unwrap_or_default(), columns.next().unwrap_or_default())
        });
        let shared = shared.collect();
        session.close();
        Ok(Self { relations, shared, address: address.clone(), database: database.to_owned() })
    }

    /// Returns a line for each relation where `other` differs from this content. An unlogged relation can also match
    /// `crashed`, which is the content of this database after a crash.
    pub(crate) fn differences(&self, other: &Self, crashed: Option<&Self>) -> Vec<String> {
        let mut found = Vec::new();
        for (name, rows) in &self.relations {
            let emptied = crashed.filter(|_| rows.unlogged).map(|crashed| &crashed.relations[name].values);
            match other.relations.get(name) {
                Some(others) if emptied == Some(&others.values) => {}
                None => found.push(format!("{name} is missing")),
                Some(others) if others.values != rows.values => {
                    found.push(format!("{name} differs: {}", self.rows_that_differ(other, name)));
                }
                Some(others) if others.writers == rows.writers && others.places != rows.places => {
                    found.push(format!("{name} has its rows at other places, though they were not restored"));
                }
                Some(_) => {}
            }
        }
        let more = other.relations.keys().filter(|name| !self.relations.contains_key(*name));
        found.extend(more.map(|name| format!("{name} is new")));
        for (what, value) in &self.shared {
            let others = &other.shared[what];
            if value != others {
                found.push(format!("{what}: {others} instead of {value}"));
            }
        }
        found
    }

    /// Returns the number of relations that a reset has restored instead of leaving them unchanged.
    pub(crate) fn restored(&self, other: &Self) -> usize {
        let pairs = self.relations.iter().filter_map(|(name, rows)| Some((rows, other.relations.get(name)?)));
        pairs.filter(|(rows, others)| rows.writers != others.writers).count()
    }

    /// Returns some rows in a relation that only one of the two databases has.
    fn rows_that_differ(&self, other: &Self, name: &str) -> String {
        let read = |content: &Self| -> Result<Vec<String>, SqlError> {
            let mut session = open(&content.address, &content.database)?;
            let rows = session.rows(&content.relations[name].query)?;
            session.close();
            Ok(rows.into_iter().flatten().flatten().collect())
        };
        let (ours, theirs) = match (read(self), read(other)) {
            (Ok(ours), Ok(theirs)) => (ours, theirs),
            (Err(error), _) | (_, Err(error)) => return format!("(rows could not be read: {error})"),
        };
        let only = |some: &[String], others: &[String]| {
            some.iter()
                .filter(|row| !others.contains(row))
                .take(2)
                .map(|row| shorten(row))
                .collect::<Vec<_>>()
        };
        format!(
            "{} rows instead of {}, new {:?}, missing {:?}",
            theirs.len(),
            ours.len(),
            only(&theirs, &ours),
            only(&ours, &theirs)
        )
    }
}

/// Returns the start and the end of a long row.
fn shorten(row: &str) -> String {
    let characters: Vec<char> = row.chars().collect();
    if characters.len() <= 300 {
        return row.to_owned();
    }
    let (beginning, end) = (&characters[..200], &characters[characters.len() - 90..]);
    format!("{} … {}", beginning.iter().collect::<String>(), end.iter().collect::<String>())
}

fn open(address: &Address, database: &str) -> Result<Connection, SqlError> {
    // Versions before 14 don't have a timeout for idle sessions.
    let first = Connection::open(address, database, &EXACT);
    first.or_else(|error| {
        if error.sqlstate != "42704" {
            return Err(error);
        }
        let older = EXACT[1].1.replace("-c idle_session_timeout=0", "");
        Connection::open(address, database, &[EXACT[0], ("options", &older)])
    })
}

/// Returns the query for a relation's row count and hashes.
fn summary(name: &str, rows: &str, places: bool, filter: &str) -> String {
    let writers = if places {
        format!(
            "string_agg(DISTINCT t.xmin::text, ','), \
             sum(hashtextextended(concat_ws(' ', t.ctid, t.xmin, {rows}), 0))::text"
        )
    } else {
        "NULL, NULL".to_owned()
    };
    let quoted = name.replace('\'', "''");
    format!(
        "SELECT '{quoted}', count(*) || ' ' || coalesce(sum(hashtextextended({rows}, 0)), 0), {writers} \
         FROM ONLY {name} t{filter}"
    )
}
