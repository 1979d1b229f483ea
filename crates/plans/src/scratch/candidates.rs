//! Creates candidate indexes. PostgreSQL creates real indexes while their tables are empty, in three steps:
//!
//! 1. pgfresh truncates the table files, so that CREATE INDEX doesn't read any pages.
//! 2. The server creates the indexes. pgfresh marks them invalid, so that the planner ignores them. CREATE INDEX also
//!    counts the table's rows, so pgfresh writes production's numbers again.
//! 3. pgfresh restores the size of the table files, and gives the index files their estimated size and height.
//!
//! The server keeps running. This is safe because its buffers contain neither pages of the empty tables nor pages of
//! the new B-trees, and because a new session reopens the files. [`super::Scratch::explain_with`] makes a candidate
//! visible for one statement.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pgwire::SqlLexer;
use server::{identifier, literal};

use super::Scratch;
use super::estimate::Tree;
use super::files::{Contents, Files, Resize};
use super::pages::PAGE;
use super::session::LIMIT;
use super::sizes::{Imported, guess, key_columns, number, trees};
use crate::{BoundStatement, Candidate, CandidateId, ExplainError, PlanMode};

/// A table or partition that gets an index of a candidate.
struct Target {
    table: u32,
    /// Qualified name in SQL notation.
    name: String,
    schema: String,
    /// Whether this is a partition of the candidate's table.
    is_partition: bool,
}

/// An index that was created for a candidate.
#[derive(Debug)]
struct Created {
    oid: u32,
    table: u32,
    path: String,
    method: String,
    /// Condition of a partial index. `None` for other indexes.
    condition: Option<String>,
    table_name: String,
}

/// A candidate's number and its size in bytes, or the server's message if it rejects the index.
type Answer = Result<(CandidateId, u64), String>;

/// The indexes created for a candidate, or the server's message if it rejects the index.
type Attempted = Result<Vec<Created>, String>;

impl Scratch {
    /// Creates candidates. See [`crate::Planner::create`].
    pub(super) fn create_candidates(
        &mut self,
        candidates: &[Candidate],
    ) -> Result<Vec<Answer>, ExplainError> {
        let targets = self.targets(candidates)?;
        let tables: BTreeSet<u32> = targets.values().flatten().map(|target| target.table).collect();
        let imported: Vec<Imported> =
            tables.iter().filter_map(|table| self.tables.get(table).cloned()).collect();
        self.resize_tables(&imported, |_| 0)?;
        let attempted = self.create_all(candidates, &targets);
        let restored = self.restore_rows(&tables);
        self.resize_tables(&imported, |table| table.pages)?;
        restored?;
        let attempted = attempted?;
        let sizes = self.give_sizes(&attempted)?;
        let mut results = Vec::new();
        for attempt in attempted {
            results.push(attempt.map(|created| {
                let oids: Vec<u32> = created.iter().map(|index| index.oid).collect();
                let bytes =
                    oids.iter().filter_map(|oid| sizes.get(oid)).map(|pages| u64::from(*pages) * PAGE as u64);
                let bytes = bytes.sum();
                self.candidates.push(oids);
                (CandidateId(self.candidates.len() - 1), bytes)
            }));
        }
        Ok(results)
    }

    /// Returns the tables that get an index, by the candidate's position in `candidates`. For a partitioned table,
    /// returns its partitions.
    fn targets(&mut self, candidates: &[Candidate]) -> Result<BTreeMap<usize, Vec<Target>>, ExplainError> {
        let values = candidates.iter().enumerate().map(|(index, candidate)| {
            format!("({index}, {}, {})", literal(&candidate.schema), literal(&candidate.table))
        });
        let values: Vec<String> = values.collect();
        let mut targets = BTreeMap::new();
        if values.is_empty() {
            return Ok(targets);
        }
        let sql = format!(
            "SELECT v.position, c.oid, pg_catalog.format('%I.%I', n.nspname, c.relname), n.nspname, c.oid <> t.oid \
             FROM (VALUES {}) v(position, schema, name) JOIN pg_catalog.pg_namespace p ON p.nspname = v.schema \
             JOIN pg_catalog.pg_class t ON t.relname = v.name AND t.relnamespace = p.oid \
             CROSS JOIN LATERAL (SELECT t.oid WHERE t.relkind <> 'p' UNION ALL \
               SELECT relid FROM pg_catalog.pg_partition_tree(t.oid) WHERE isleaf AND t.relkind = 'p') l(oid) \
             JOIN pg_catalog.pg_class c ON c.oid = l.oid AND c.relkind IN ('r', 'm') \
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace ORDER BY v.position, 3",
            values.join(", ")
        );
        for row in self.session.query(&self.server, &sql)? {
            let [position, table, Some(name), Some(schema), is_partition] = &row[..] else { continue };
            let target = Target {
                table: number(table.as_ref()),
                name: name.clone(),
                schema: schema.clone(),
                is_partition: is_partition.as_deref() == Some("t"),
            };
            targets.entry(number(position.as_ref())).or_insert_with(Vec::new).push(target);
        }
        Ok(targets)
    }

    /// Changes the page counts of tables. New sessions see the new sizes.
    fn resize_tables(
        &mut self,
        tables: &[Imported],
        pages: impl Fn(&Imported) -> u32,
    ) -> Result<(), ExplainError> {
        let resizes = tables.iter().map(|table| Resize {
            path: table.path.clone(),
            pages: pages(table),
            contents: Contents::Zeros,
        });
        self.resize(&resizes.collect::<Vec<_>>())
    }

    fn resize(&mut self, resizes: &[Resize]) -> Result<(), ExplainError> {
        self.session.close();
        let data = self.server.run().data();
        let files = Files::open(&data, &self.account, self.segment);
        let changed = files.and_then(|mut files| resizes.iter().try_for_each(|resize| files.resize(resize)));
        changed.map_err(|error| ExplainError::Gone(error.to_string()))
    }

    fn create_all(
        &mut self,
        candidates: &[Candidate],
        targets: &BTreeMap<usize, Vec<Target>>,
    ) -> Result<Vec<Attempted>, ExplainError> {
        let (mut attempted, mut next) = (Vec::new(), self.candidates.len());
        for (position, candidate) in candidates.iter().enumerate() {
            let attempt = match targets.get(&position) {
                None => Err(format!("there is no table {}.{}", candidate.schema, candidate.table)),
                Some(targets) => self.create_one(candidate, CandidateId(next), targets)?,
            };
            next += usize::from(attempt.is_ok());
            attempted.push(attempt);
        }
        self.session.query(&self.server, "CHECKPOINT")?;
        Ok(attempted)
    }

    /// Creates the indexes of a candidate in one transaction, which also hides them from the planner.
    fn create_one(
        &mut self,
        candidate: &Candidate,
        id: CandidateId,
        targets: &[Target],
    ) -> Result<Attempted, ExplainError> {
        let Some(rest) = after_table(&candidate.definition) else {
            return Ok(Err("the definition does not begin with ON and a table".to_owned()));
        };
        let is_partitioned = targets.iter().any(|target| target.is_partition);
        let mut sql = format!("BEGIN; SET LOCAL statement_timeout = {};", LIMIT.as_millis());
        let mut names = Vec::new();
        for (position, target) in targets.iter().enumerate() {
            let suffix = if is_partitioned { format!("_{}", position + 1) } else { String::new() };
            let name = identifier(&format!("{}{suffix}", id.index_name()));
            sql += &format!("CREATE INDEX {name} ON {} {rest};", target.name);
            names.push(literal(&format!("{}.{name}", identifier(&target.schema))));
        }
        let names = names.join(", ");
        sql += &format!(
            "SET LOCAL allow_system_table_mods = on; UPDATE pg_catalog.pg_index SET indisvalid = false \
             WHERE indexrelid = ANY (ARRAY[{names}]::pg_catalog.regclass[]); COMMIT; \
             SELECT i.indexrelid, i.indrelid, pg_catalog.pg_relation_filepath(i.indexrelid), a.amname, \
             pg_catalog.pg_get_expr(i.indpred, i.indrelid), i.indrelid::pg_catalog.regclass \
             FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid \
             JOIN pg_catalog.pg_am a ON a.oid = c.relam WHERE i.indexrelid = ANY (ARRAY[{names}]::pg_catalog.regclass[])"
        );
        match self.session.query(&self.server, &sql) {
            Ok(rows) => Ok(Ok(rows.iter().filter_map(|row| created(row)).collect())),
            Err(ExplainError::Refused { message, .. }) => {
                self.session.query(&self.server, "ROLLBACK")?;
                Ok(Err(message))
            }
            Err(error @ ExplainError::TooSlow { .. }) => {
                self.session.close();
                Ok(Err(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes production's numbers into `pg_class` again, because CREATE INDEX has overwritten them.
    fn restore_rows(&mut self, tables: &BTreeSet<u32>) -> Result<(), ExplainError> {
        let values: Vec<String> = tables
            .iter()
            .filter_map(|table| Some((table, self.tables.get(table)?)))
            .map(|(oid, table)| {
                format!("({oid}, {}, {}, {})", table.relpages, table.reltuples, table.relallvisible)
            })
            .collect();
        if values.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "SET allow_system_table_mods = on; UPDATE pg_catalog.pg_class c SET relpages = v.pages::pg_catalog.int4, \
             reltuples = v.rows::pg_catalog.float4, relallvisible = v.visible::pg_catalog.int4 \
             FROM (VALUES {}) v(oid, pages, rows, visible) WHERE c.oid = v.oid::pg_catalog.oid; \
             RESET allow_system_table_mods",
            values.join(", ")
        );
        self.session.query(&self.server, &sql).map(drop)
    }

    /// Gives new indexes their estimated sizes. Returns the page count of each index by its OID.
    fn give_sizes(&mut self, attempted: &[Attempted]) -> Result<HashMap<u32, u32>, ExplainError> {
        let created: Vec<&Created> = attempted.iter().flatten().flatten().collect();
        if created.is_empty() {
            return Ok(HashMap::new());
        }
        let oids: Vec<String> = created.iter().map(|index| index.oid.to_string()).collect();
        let condition = format!("i.indexrelid IN ({})", oids.join(", "));
        let mut trees = trees(&self.session.query(&self.server, &key_columns(&condition))?);
        let (mut sizes, mut resizes, mut values) = (HashMap::new(), Vec::new(), Vec::new());
        for index in created {
            let table = self.tables.get(&index.table).cloned();
            let (table_pages, table_rows) =
                table.as_ref().map_or((0, 0.0), |table| (table.pages, table.rows()));
            let rows = match &index.condition {
                Some(condition) => self.estimate_rows(&index.table_name, condition).min(table_rows),
                None => table_rows,
            };
            let tree = trees.remove(&index.oid).map(|tree: Tree| Tree { rows, table_rows, ..tree });
            let (pages, contents) = match (&tree, index.method.as_str()) {
                (Some(tree), _) => {
                    let (pages, height) = tree.size();
                    (pages, Contents::Tree { height: Some(height).filter(|_| pages > 1) })
                }
                (None, method) => (guess(Some(method), table_pages), Contents::Kept),
            };
            // A table that only exists in the template keeps its rows, so its indexes keep their contents.
            if table.is_some() {
                sizes.insert(index.oid, pages);
                values.push(format!("({}, {}, {rows})", index.oid, pages.cast_signed()));
                resizes.push(Resize { path: index.path.clone(), pages, contents });
            }
        }
        if !values.is_empty() {
            let sql = format!(
                "SET allow_system_table_mods = on; UPDATE pg_catalog.pg_class c SET relpages = v.pages::pg_catalog.int4, \
                 reltuples = v.rows::pg_catalog.float4 FROM (VALUES {}) v(oid, pages, rows) \
                 WHERE c.oid = v.oid::pg_catalog.oid; RESET allow_system_table_mods",
                values.join(", ")
            );
            self.session.query(&self.server, &sql)?;
        }
        self.resize(&resizes)?;
        Ok(sizes)
    }

    /// Returns SQL that makes candidates visible and hides existing indexes until the transaction ends. Hiding a
    /// partitioned index hides its partitions, too.
    pub(super) fn visibility(&self, visible: &[CandidateId], hidden: &[(String, String)]) -> String {
        if visible.is_empty() && hidden.is_empty() {
            return String::new();
        }
        let shown =
            visible.iter().filter_map(|id| self.candidates.get(id.0)).flatten().map(ToString::to_string);
        let shown: Vec<String> = shown.collect();
        let hidden: Vec<String> =
            hidden.iter().map(|(schema, name)| format!("({}, {})", literal(schema), literal(name))).collect();
        let mut sql = String::from("SET LOCAL allow_system_table_mods = on;");
        if !shown.is_empty() {
            let shown = shown.join(", ");
            sql +=
                &format!("UPDATE pg_catalog.pg_index SET indisvalid = true WHERE indexrelid IN ({shown});");
        }
        if !hidden.is_empty() {
            sql += &format!(
                "WITH RECURSIVE hidden(oid) AS (SELECT c.oid FROM pg_catalog.pg_class c \
                 JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE (n.nspname, c.relname) IN ({}) \
                 UNION SELECT i.inhrelid FROM hidden h JOIN pg_catalog.pg_inherits i ON i.inhparent = h.oid) \
                 UPDATE pg_catalog.pg_index SET indisvalid = false WHERE indexrelid IN (SELECT oid FROM hidden);",
                hidden.join(", ")
            );
        }
        sql + "SET LOCAL allow_system_table_mods = off;"
    }

    /// Returns the planner's estimate of how many rows meet a condition, or 0 if there is no estimate.
    fn estimate_rows(&mut self, table: &str, condition: &str) -> f64 {
        let text = format!("SELECT FROM ONLY {table} WHERE {condition}");
        let statement = BoundStatement { text, ..BoundStatement::default() };
        let plan = self.explain_json(&statement, PlanMode::Custom).unwrap_or_default();
        plan.pointer("/0/Plan/Plan Rows").and_then(serde_json::Value::as_f64).unwrap_or(0.0)
    }
}

fn created(row: &[Option<String>]) -> Option<Created> {
    let [oid, table, path, method, condition, table_name] = row else { return None };
    Some(Created {
        oid: number(oid.as_ref()),
        table: number(table.as_ref()),
        path: path.clone()?,
        method: method.clone()?,
        condition: condition.clone(),
        table_name: table_name.clone()?,
    })
}

/// Returns the part of a definition that follows `ON`, `ONLY` and the table name.
fn after_table(definition: &str) -> Option<&str> {
    let mut lexer = SqlLexer::new(definition.as_bytes(), true);
    let first = lexer.token().filter(|token| token.is_word(b"on"));
    first.and_then(|_| {
        let mut name = lexer.token()?;
        if name.is_word(b"only") {
            name = lexer.token()?;
        }
        name.is_name().then_some(())?;
        let mut end = lexer.position();
        while lexer.token().is_some_and(|token| token.is_sign(b'.')) {
            lexer.token().filter(pgwire::Token::is_name)?;
            end = lexer.position();
        }
        Some(definition[end..].trim_start())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_read_behind_the_table() {
        for definition in [
            "ON shop.orders USING btree (a)",
            "on \"a.b\".\"USING\"USING btree (a)",
            "ON ONLY t USING btree (a)",
        ] {
            assert_eq!(after_table(definition), Some("USING btree (a)"), "{definition}");
        }
        for wrong in ["", "ON", "INDEX x ON t (a)", "ON (a)", "ON a. (b)"] {
            assert_eq!(after_table(wrong), None, "{wrong}");
        }
    }
}
