//! Reads tables and indexes: their rows in `pg_class`, file sizes, index definitions and B-tree heights.

use std::collections::{BTreeMap, HashMap};

use super::Gaps;
use super::error::ImportError;
use super::session::{Row, Session};
use crate::statistics::PAGE_SIZE;
use crate::{RelationKind, RelationName, RelationStatistics};

const PART: &str = "tables and indexes";
/// Number of relations whose files a single query opens.
const BATCH: usize = 500;
/// Maximum page count of a relation, `MaxBlockNumber`.
pub(crate) const MOST_PAGES: u32 = u32::MAX - 1;

/// SQL condition that selects user schemas. Names that begin with `pg_` are reserved for the system.
pub(super) const USER_SCHEMA: &str = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'";

/// All relations, and the position of each relation by its name.
pub(super) struct Relations {
    all: Vec<RelationStatistics>,
    by_name: HashMap<RelationName, usize>,
}

impl Relations {
    /// Returns the relation with this name.
    pub(super) fn find(&mut self, name: &RelationName) -> Option<&mut RelationStatistics> {
        self.by_name.get(name).map(|&index| &mut self.all[index])
    }

    pub(super) fn into_statistics(self) -> Vec<RelationStatistics> {
        self.all
    }
}

/// A relation, with properties that don't belong to its statistics.
struct Found {
    oid: u32,
    relation: RelationStatistics,
    is_btree: bool,
}

pub(super) fn relations(session: &mut Session, gaps: &mut Gaps) -> Result<Relations, ImportError> {
    let query = format!(
        "SELECT c.oid, n.nspname, c.relname, c.relkind, greatest(c.relpages, 0) AS relpages, c.reltuples,
            greatest(c.relallvisible, 0) AS relallvisible, t.relname AS indexed, am.amname = 'btree' AS btree,
            has_table_privilege(c.oid, 'SELECT') AS readable, row_security_active(c.oid) AS hidden
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            LEFT JOIN pg_index i ON i.indexrelid = c.oid LEFT JOIN pg_class t ON t.oid = i.indrelid
            LEFT JOIN pg_am am ON am.oid = c.relam
        WHERE c.relkind IN ('r', 'p', 'm', 'f', 'i', 'I') AND c.relpersistence <> 't' AND {USER_SCHEMA}"
    );
    let mut found = Vec::new();
    session.each(PART, &query, |row| {
        found.push(relation(row, gaps)?);
        Ok(())
    })?;
    read_sizes(session, &mut found, gaps)?;
    read_heights(session, &mut found)?;
    read_parents(session, &mut found)?;
    read_generated(session, &mut found)?;
    let all: Vec<_> = found.into_iter().map(|found| found.relation).collect();
    let by_name = all.iter().enumerate().map(|(index, relation)| (relation.relation_name(), index)).collect();
    Ok(Relations { all, by_name })
}

fn relation(row: &Row, gaps: &mut Gaps) -> Result<Found, ImportError> {
    let kind = match row.text("relkind")? {
        "r" => RelationKind::Table,
        "p" => RelationKind::PartitionedTable,
        "m" => RelationKind::MaterializedView,
        "f" => RelationKind::ForeignTable,
        "i" => RelationKind::Index,
        "I" => RelationKind::PartitionedIndex,
        _ => return Err(row.invalid("relkind")),
    };
    let relation = RelationStatistics {
        schema: row.text("nspname")?.to_owned(),
        name: row.text("relname")?.to_owned(),
        kind,
        pages: row.number("relpages")?,
        analyzed_pages: row.number("relpages")?,
        rows: row.number("reltuples")?,
        all_visible: row.number("relallvisible")?,
        table: row.optional("indexed").map(str::to_owned),
        definition: None,
        parents: Vec::new(),
        generated: BTreeMap::new(),
        height: None,
        columns: Vec::new(),
    };
    let is_index = kind.is_index();
    if !is_index && row.is_true("hidden") {
        gaps.row_security.push(relation.relation_name());
    } else if !is_index && !row.is_true("readable") {
        gaps.without_privilege.push(relation.relation_name());
    }
    let has_file = matches!(kind, RelationKind::Table | RelationKind::MaterializedView);
    // Before version 14, a table has 0 rows until its first ANALYZE, so the row count alone doesn't show whether it was
    // analyzed.
    if has_file && (relation.rows < 0.0 || relation.rows == 0.0 && relation.analyzed_pages == 0) {
        gaps.never_analyzed.push(relation.relation_name());
    }
    Ok(Found { oid: row.number("oid")?, relation, is_btree: row.is_true("btree") })
}

/// Reads file sizes and index definitions. Both need an ACCESS SHARE lock, which the server releases immediately.
fn read_sizes(session: &mut Session, found: &mut [Found], gaps: &mut Gaps) -> Result<(), ImportError> {
    let by_oid: HashMap<u32, usize> = found.iter().enumerate().map(|(at, found)| (found.oid, at)).collect();
    let query = |oids: &str| {
        format!(
            "SELECT c.oid, CASE WHEN c.relkind IN ('r', 'm', 'i') THEN pg_relation_size(c.oid) END AS bytes,
                CASE WHEN c.relkind IN ('i', 'I') THEN pg_get_indexdef(c.oid) END AS definition
            FROM pg_class c WHERE c.oid IN ({oids})"
        )
    };
    let oids: Vec<u32> = found.iter().map(|found| found.oid).collect();
    let mut locked = Vec::new();
    in_batches(session, &oids, &query, &mut locked, &mut |row| {
        let Some(&at) = by_oid.get(&row.number("oid")?) else { return Ok(()) };
        let relation = &mut found[at].relation;
        relation.definition = row.optional("definition").map(str::to_owned);
        if row.optional("bytes").is_some() {
            let pages = row.number::<u64>("bytes")? / u64::from(PAGE_SIZE);
            relation.pages = u32::try_from(pages).unwrap_or(MOST_PAGES).min(MOST_PAGES);
        }
        Ok(())
    })?;
    gaps.locked.extend(locked.into_iter().map(|oid| found[by_oid[&oid]].relation.relation_name()));
    Ok(())
}

/// Runs a query for all relations in large batches. If a batch fails, splits it to find the relations that cause the
/// failure.
fn in_batches(
    session: &mut Session,
    oids: &[u32],
    query: &dyn Fn(&str) -> String,
    failed: &mut Vec<u32>,
    each: &mut dyn FnMut(&Row) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    for batch in oids.chunks(BATCH) {
        let list = batch.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        match (session.try_rows(PART, &query(&list))?, batch) {
            (Some(rows), _) => rows.iter().try_for_each(&mut *each)?,
            (None, [single]) => failed.push(*single),
            (None, _) => {
                let (first, second) = batch.split_at(batch.len() / 2);
                in_batches(session, first, query, failed, each)?;
                in_batches(session, second, query, failed, each)?;
            }
        }
    }
    Ok(())
}

/// Reads B-tree heights, if the extension pageinspect is installed and the role may use it.
fn read_heights(session: &mut Session, found: &mut [Found]) -> Result<(), ImportError> {
    let query =
        "SELECT quote_ident(n.nspname) AS schema FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE p.proname = 'bt_metap' AND current_setting('is_superuser') = 'on'
            AND EXISTS (SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
                WHERE d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
                    AND e.extname = 'pageinspect')";
    let rows = session.rows(PART, query)?;
    let Some(schema) = rows.first().map(|row| row.text("schema")).transpose()? else { return Ok(()) };
    let is_btree = |found: &&Found| found.is_btree && found.relation.kind == RelationKind::Index;
    let oids: Vec<u32> = found.iter().filter(is_btree).map(|found| found.oid).collect();
    let by_oid: HashMap<u32, usize> = found.iter().enumerate().map(|(at, found)| (found.oid, at)).collect();
    let query = |oids: &str| {
        format!(
            "SELECT c.oid, m.fastlevel FROM pg_class c, {schema}.bt_metap(c.oid::regclass::text) m
            WHERE c.oid IN ({oids})"
        )
    };
    // Leaves the height unknown for these indexes, so that it is estimated from their size.
    let mut unread = Vec::new();
    in_batches(session, &oids, &query, &mut unread, &mut |row| {
        if let Some(&at) = by_oid.get(&row.number("oid")?) {
            found[at].relation.height = Some(row.number("fastlevel")?);
        }
        Ok(())
    })
}

fn read_parents(session: &mut Session, found: &mut [Found]) -> Result<(), ImportError> {
    let names: HashMap<u32, (usize, RelationName)> = found
        .iter()
        .enumerate()
        .filter(|(_, found)| found.relation.table.is_none())
        .map(|(at, found)| (found.oid, (at, found.relation.relation_name())))
        .collect();
    session.each(PART, "SELECT inhrelid, inhparent FROM pg_inherits", |row| {
        let (child, parent) = (row.number("inhrelid")?, row.number("inhparent")?);
        if let (Some((at, _)), Some((_, parent))) = (names.get(&child), names.get(&parent)) {
            found[*at].relation.parents.push(parent.clone());
        }
        Ok(())
    })
}

/// Reads the columns that each generated column depends on.
fn read_generated(session: &mut Session, found: &mut [Found]) -> Result<(), ImportError> {
    let by_oid: HashMap<u32, usize> = found.iter().enumerate().map(|(at, found)| (found.oid, at)).collect();
    // Until version 14, `pg_depend` stores this dependency for the column. Later versions store it for the column's
    // default.
    let query = "
        SELECT a.attrelid, a.attname, array_agg(b.attname ORDER BY b.attname) AS sources
        FROM pg_attribute a JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
            JOIN pg_depend p ON p.refclassid = 'pg_class'::regclass AND p.refobjid = a.attrelid
                AND p.refobjsubid <> a.attnum
                AND (p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
                    OR p.classid = 'pg_class'::regclass AND p.objid = a.attrelid AND p.objsubid = a.attnum)
            JOIN pg_attribute b ON b.attrelid = p.refobjid AND b.attnum = p.refobjsubid AND b.attnum > 0
        WHERE a.attgenerated <> '' GROUP BY a.attrelid, a.attname";
    session.each(PART, query, |row| {
        if let Some(&at) = by_oid.get(&row.number("attrelid")?) {
            let column = row.text("attname")?.to_owned();
            found[at].relation.generated.insert(column, row.list("sources")?);
        }
        Ok(())
    })
}
