//! Matches production's tables and indexes with the copy's, and writes production's sizes into `pg_class`.
//!
//! Tables are matched by schema and name. Indexes are matched by name and definition or, failing that, by definition
//! alone, because frameworks change how they name indexes from version to version.

use server::{AdminConnection, SessionError};

use super::applied::{Applied, Reason};
use super::error::{During, ScratchError};
use super::rows::Rows;
use crate::redact::without_literals;
use crate::{RelationKind, RelationStatistics, Statistics};

/// Lists the copy's relations.
const COPIED: &str = include_str!("copied_relations.sql");
/// Matches relations and updates `pg_class`.
const MATCH: &str = include_str!("relations.sql");
/// Maximum `reltuples` that pgfresh writes. It exceeds what 2^32 pages can hold.
const MOST_ROWS: f64 = 1e13;
/// First server version that sets `reltuples` to -1 for a table that was never analyzed. Older versions set both
/// numbers to 0.
const UNKNOWN_ROWS_SINCE: u32 = 140_000;

const TABLES: &str = "
CREATE TEMP TABLE production_relation (
    ord int4, schema text, name text, kind text, table_name text, definition text,
    analyzed_pages int8, rows float8, all_visible int8);
CREATE FUNCTION pg_temp.without_name(definition text, name text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN substr(definition, strpos(definition, ' INDEX ') + 7, length(quote_ident(name))) = quote_ident(name)
           THEN left(definition, strpos(definition, ' INDEX '))
                || substr(definition, strpos(definition, ' INDEX ') + 7 + length(quote_ident(name)))
           ELSE definition END
$$";

/// Selects the copy's index definitions whose literals the file may lack.
const WITH_LITERALS: &str = "
SELECT l.oid, l.definition FROM template_relation l
WHERE l.definition IS NOT NULL
      AND EXISTS (SELECT FROM production_relation p WHERE p.schema = l.schema AND p.table_name = l.table_name
                  AND strpos(p.definition, '?') > 0)";

/// Redacts the copy's index definitions that match a definition in the file only without their literals.
const REDACT: &str = "
UPDATE template_relation l SET definition = d.definition FROM redacted_definition d
WHERE d.oid = l.oid
      AND EXISTS (SELECT FROM production_relation p WHERE p.schema = l.schema AND p.table_name = l.table_name
                  AND p.definition = d.definition)
      AND NOT EXISTS (SELECT FROM production_relation p WHERE p.schema = l.schema AND p.table_name = l.table_name
                      AND p.definition = l.definition)";

/// Selects production's relations that the copy lacks or defines differently. Omits indexes whose table is missing.
const ONLY_IN_PRODUCTION: &str = "
SELECT p.ord, CASE WHEN l.oid IS NULL THEN 'missing' WHEN l.table_name IS NOT NULL AND p.table_name IS NOT NULL THEN 'definition'
              ELSE 'kind' END
FROM production_relation p LEFT JOIN template_relation l ON l.schema = p.schema AND l.name = p.name
WHERE p.ord NOT IN (SELECT ord FROM relation_match)
      AND (p.table_name IS NULL OR EXISTS (
          SELECT FROM relation_match m JOIN production_relation t ON t.ord = m.ord
          WHERE t.schema = p.schema AND t.name = p.table_name))
ORDER BY p.ord";

/// Selects the copy's relations that production lacks. Omits indexes whose table is missing in production.
const ONLY_IN_TEMPLATE: &str = "
SELECT l.schema, l.name, l.table_name IS NOT NULL
FROM template_relation l
WHERE l.oid NOT IN (SELECT oid FROM relation_match)
      AND (l.table_oid IS NULL OR l.table_oid IN (SELECT oid FROM relation_match))
      AND NOT EXISTS (SELECT FROM production_relation p WHERE p.schema = l.schema AND p.name = l.name)
ORDER BY 1, 2";

/// Imports relation sizes into the copy that `session` is connected to. Leaves the temporary tables
/// `production_relation`, `template_relation` and `relation_match` behind for later steps.
pub(super) fn import(
    session: &mut AdminConnection,
    major: u32,
    statistics: &Statistics,
    applied: &mut Applied,
) -> Result<(), ScratchError> {
    session.query(TABLES).during("prepare the import")?;
    let mut rows = Rows::default();
    for (ord, relation) in statistics.relations.iter().enumerate() {
        match check(relation) {
            Ok(()) => add(&mut rows, ord, relation, statistics.server_version, major),
            Err(why) => applied.leave_out(label(relation), Reason::Invalid(why.into())),
        }
    }
    rows.copy_to(session, "production_relation").during("import the sizes of tables")?;
    session.query(COPIED).during("match tables and indexes")?;
    redact_definitions(session).during("match tables and indexes")?;
    session.query(MATCH).during("match tables and indexes")?;
    report(session, statistics, applied)
}

/// Replaces the literals in the copy's index definitions, where the file has a redacted definition.
fn redact_definitions(session: &mut AdminConnection) -> Result<(), SessionError> {
    let mut rows = Rows::default();
    for row in session.query(WITH_LITERALS)? {
        let [Some(oid), Some(definition)] = &row[..] else { continue };
        rows.add(&[Some(oid), Some(&without_literals(definition))]);
    }
    session.query("CREATE TEMP TABLE redacted_definition (oid oid, definition text)")?;
    rows.copy_to(session, "redacted_definition")?;
    session.query(REDACT).map(drop)
}

/// Checks a relation's numbers. Returns the reason if they can't be valid.
fn check(relation: &RelationStatistics) -> Result<(), &'static str> {
    let names =
        [Some(&relation.schema), Some(&relation.name), relation.table.as_ref(), relation.definition.as_ref()];
    if names.into_iter().flatten().any(|name| name.contains('\0')) {
        return Err("a name has a zero byte");
    }
    if !relation.rows.is_finite() || relation.rows > MOST_ROWS {
        return Err("the number of rows is out of range");
    }
    // PostgreSQL reserves the highest page number. Source: `InvalidBlockNumber`.
    if relation.pages == u32::MAX || relation.analyzed_pages == u32::MAX || relation.all_visible == u32::MAX {
        return Err("the number of pages is out of range");
    }
    Ok(())
}

fn add(rows: &mut Rows, ord: usize, relation: &RelationStatistics, version: u32, major: u32) {
    let mut count = relation.rows;
    let unknown = count < 0.0 || version < UNKNOWN_ROWS_SINCE && count == 0.0 && relation.analyzed_pages == 0;
    if unknown {
        count = if major * 10_000 < UNKNOWN_ROWS_SINCE { 0.0 } else { -1.0 };
    }
    rows.add(&[
        Some(&ord.to_string()),
        Some(&relation.schema),
        Some(&relation.name),
        Some(kind(relation.kind)),
        relation.table.as_deref(),
        relation.definition.as_deref(),
        Some(&relation.analyzed_pages.to_string()),
        Some(&count.to_string()),
        Some(&relation.all_visible.min(relation.pages).to_string()),
    ]);
}

/// Returns `pg_class.relkind`, or `?` for an unknown kind.
fn kind(kind: RelationKind) -> &'static str {
    match kind {
        RelationKind::Table => "r",
        RelationKind::PartitionedTable => "p",
        RelationKind::MaterializedView => "m",
        RelationKind::ForeignTable => "f",
        RelationKind::Index => "i",
        RelationKind::PartitionedIndex => "I",
        RelationKind::Unknown => "?",
    }
}

/// Returns a relation's name for messages.
pub(super) fn label(relation: &RelationStatistics) -> String {
    format!("{}.{}", relation.schema, relation.name)
}

fn report(
    session: &mut AdminConnection,
    statistics: &Statistics,
    applied: &mut Applied,
) -> Result<(), ScratchError> {
    for row in session.query(ONLY_IN_PRODUCTION).during("compare tables and indexes")? {
        let [Some(ord), Some(why)] = &row[..] else { continue };
        let Some(relation) = ord.parse().ok().and_then(|ord: usize| statistics.relations.get(ord)) else {
            continue;
        };
        let reason = match (why.as_str(), &relation.table) {
            ("definition", _) => Reason::Definition,
            ("kind", _) => Reason::Kind,
            (_, Some(_)) => Reason::IndexOnlyInProduction,
            (_, None) => Reason::TableOnlyInProduction,
        };
        applied.leave_out(label(relation), reason);
    }
    for row in session.query(ONLY_IN_TEMPLATE).during("compare tables and indexes")? {
        let [Some(schema), Some(name), Some(is_index)] = &row[..] else { continue };
        let reason = if is_index == "t" { Reason::IndexOnlyInTemplate } else { Reason::TableOnlyInTemplate };
        applied.leave_out(format!("{schema}.{name}"), reason);
    }
    Ok(())
}
