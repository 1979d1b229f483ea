//! Predicts how long a migration's statements take in production: it scales the observed scans and rewrites to the
//! production table sizes and to the measured speeds of this machine.
//!
//! The low end of a range assumes that all data is in memory. The high end assumes that the slowest disk reads and
//! writes all of it. Only statements whose time grows with the number of rows have a prediction.

mod cost;
mod shape;

use std::collections::BTreeMap;

use plans::{RelationKind, RelationName};
use report::as_f64;

use self::cost::{Cost, EXPRESSION, Table};
use self::shape::{Build, Kind, Shape};
use crate::sizes::ProductionTable;
use crate::{LockMode, Observations, ObservedStatement, Prediction, Production, Speeds};

/// Minimum number of rows that the template's table needs before the share of changed rows says something about
/// production.
const KNOWN_FRACTION: f64 = 100.0;
/// Factor by which the share of changed rows may differ between production and the template.
const FRACTION_SPREAD: f64 = 2.0;
/// Factor for running a query or code, relative to reading its tables.
const QUERY: f64 = 3.0;
/// Minimum time that a statement must take in the migration's own run before this time is scaled to production, in
/// seconds.
const MEASURED_SECONDS: f64 = 0.2;
/// Minimum number of rows that the statement must read for that.
const MEASURED_ROWS: f64 = 10_000.0;
/// Factor by which the scaled time may differ from the time in production.
const MEASURED_SPREAD: f64 = 2.0;

/// Predicts the time of each statement. The prediction is `None` if the statement failed, if its time doesn't grow with
/// the number of rows, or if it needs a table whose size is unknown.
#[must_use]
pub fn predict(
    observations: &Observations,
    production: &Production,
    speeds: &Speeds,
) -> Vec<Option<Prediction>> {
    let predict = |statement| Estimate::new(statement, production, speeds).prediction();
    observations.statements.iter().map(predict).collect()
}

/// Predicts how long each statement's locks are held: from its start to the end of its transaction. `predicted` is the
/// result of [`predict`]. The prediction is `None` if neither the statement nor a later one of the transaction has one.
#[must_use]
pub fn predict_held(
    observations: &Observations,
    predicted: &[Option<Prediction>],
) -> Vec<Option<Prediction>> {
    let statements = &observations.statements;
    let held = |(at, statement): (usize, &ObservedStatement)| {
        let is_rest = |other: &ObservedStatement| {
            other.transaction == statement.transaction
                && other.session == statement.session
                && other.database == statement.database
        };
        let rest = statements[at..].iter().zip(&predicted[at..]).filter(|(other, _)| is_rest(other));
        let growing: Vec<_> = rest.filter_map(|(other, range)| Some((other.seconds, (*range)?))).collect();
        let here: f64 = growing.iter().map(|(seconds, _)| seconds).sum();
        let constant = (statement.held_seconds - here).max(0.0);
        let sum =
            |end: fn(&Prediction) -> f64| constant + growing.iter().map(|(_, range)| end(range)).sum::<f64>();
        (!growing.is_empty())
            .then(|| Prediction { low: sum(|range| range.low), high: sum(|range| range.high) })
    };
    statements.iter().enumerate().map(held).collect()
}

/// Returns the assumptions that the predictions make, one sentence each.
#[must_use]
pub fn prediction_assumptions(production: &Production) -> Vec<String> {
    let mut sentences = production.assumptions().to_vec();
    sentences.extend([
        "Times are for this machine's processor, which pgfresh has just measured.".to_owned(),
        format!(
            "At the low end, all data is in memory. At the high end, all of it is read from and written to a disk, at {:.0} MB a second.",
            cost::DISK / 1e6
        ),
        "Times do not include a statement's wait for its own locks.".to_owned(),
    ]);
    sentences
}

/// Returns a sentence if some statements have no prediction because a table's size is unknown.
#[must_use]
pub fn unpredicted(observations: &Observations, production: &Production) -> Option<String> {
    let unknown = |statement: &ObservedStatement| {
        let relations = statement.scans.iter().map(|scan| &scan.relation);
        let relations = relations.chain(statement.rewrites.iter().map(|rewrite| &rewrite.relation));
        let is_unknown =
            |name: &RelationName| production.table(name).is_some_and(|table| table.rows.is_none());
        relations.filter(|name| is_unknown(name)).cloned().collect::<Vec<_>>()
    };
    let mut names: Vec<RelationName> = observations.statements.iter().flat_map(unknown).collect();
    names.sort();
    names.dedup();
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let them = if names.len() == 1 { "its" } else { "their" };
    (!names.is_empty()).then(|| {
        format!(
            "Production's size of {} is unknown, so {them} statements have no prediction.",
            names.join(", ")
        )
    })
}

/// Estimates the time of one statement.
struct Estimate<'a> {
    statement: &'a ObservedStatement,
    production: &'a Production,
    speeds: &'a Speeds,
    shape: Shape,
    /// Number of sequential scans of each table.
    scans: BTreeMap<&'a RelationName, u64>,
    /// Tables that the statement copies into new files.
    rewritten: Vec<&'a RelationName>,
}

impl<'a> Estimate<'a> {
    fn new(statement: &'a ObservedStatement, production: &'a Production, speeds: &'a Speeds) -> Self {
        let rewrites =
            statement.rewrites.iter().filter(|rewrite| !rewrite.is_emptied && rewrite.table.is_none());
        Self {
            statement,
            production,
            speeds,
            shape: Shape::read(&statement.sql),
            scans: statement.scans.iter().map(|scan| (&scan.relation, scan.scans)).collect(),
            rewritten: rewrites.map(|rewrite| &rewrite.relation).collect(),
        }
    }

    fn prediction(&self) -> Option<Prediction> {
        if self.statement.error.is_some() || self.statement.is_unfinished {
            return None;
        }
        let mut cost = Cost::default();
        for name in self.read_tables() {
            // A table that the migration itself created isn't in the template. It has few rows, so skip it.
            let Some(table) = self.production.table(name) else { continue };
            table.rows?;
            cost += self.definition(name, table);
        }
        if matches!(self.shape.kind, Kind::Update | Kind::Delete | Kind::Insert) {
            let targets = self.targets();
            if targets.is_empty() {
                return self.of_query(cost);
            }
            cost = self.of_index_scan(cost);
            cost += self.changes(&targets)?;
        } else if self.shape.kind == Kind::Query {
            return self.of_query(cost);
        }
        self.finish(cost)
    }

    /// Returns the prediction, or `None` if there is no work. The prediction is at least as long as the time in the
    /// migration's own run suggests.
    fn finish(&self, cost: Cost) -> Option<Prediction> {
        if cost.high == 0.0 {
            return None;
        }
        let mut range = cost.prediction();
        let (mut here, mut there) = (0.0, 0.0);
        for name in self.read_tables() {
            let table = self.production.table(name);
            here += table.map_or(0.0, |table| table.template_rows);
            there += table.and_then(|table| table.rows).unwrap_or(0.0);
        }
        if here >= MEASURED_ROWS && self.statement.seconds >= MEASURED_SECONDS {
            let scaled = self.statement.seconds * there / here;
            range.low = range.low.max(scaled / MEASURED_SPREAD);
            range.high = range.high.max(scaled * MEASURED_SPREAD);
        }
        Some(range)
    }

    /// Returns the tables that the statement reads completely in production.
    fn read_tables(&self) -> Vec<&'a RelationName> {
        let mut tables: Vec<&RelationName> =
            self.scans.keys().copied().chain(self.rewritten.clone()).collect();
        let rebuilt = self.statement.rewrites.iter().filter_map(|rewrite| rewrite.table.as_ref());
        tables.extend(rebuilt.filter(|_| !self.statement.rewrites.iter().any(|rewrite| rewrite.is_emptied)));
        if self.shape.checks_reference || !self.shape.builds.is_empty() {
            // Checks and index builds read a locked table even if the scan counters don't show it, because the
            // template's table is empty.
            let locks = self.statement.locks.iter().filter(|lock| {
                matches!(lock.kind, RelationKind::Table | RelationKind::MaterializedView)
                    && lock.mode != LockMode::AccessShare
                    && lock.mode != LockMode::RowExclusive
            });
            tables.extend(locks.map(|lock| &lock.relation));
        }
        tables.sort();
        tables.dedup();
        tables
    }

    /// Returns the cost of the observed work on a table: rewrites, index builds, checks and scans.
    fn definition(&self, name: &RelationName, production: &ProductionTable) -> Cost {
        let table = Table { speeds: self.speeds, table: production };
        let mut cost = Cost::default();
        let mut scans = self.scans.get(name).copied().unwrap_or(0);
        let is_rewritten = self.rewritten.contains(&name);
        if is_rewritten {
            cost += table.rewrite();
            scans = scans.saturating_sub(1);
        }
        let mut is_cached = is_rewritten;
        // An index that is replaced within its transaction appears both as a rewrite and in `builds`, so count it only
        // once.
        let rebuilt = if is_rewritten || self.shape.builds.is_empty() {
            self.rebuilt(name, production)
        } else {
            Vec::new()
        };
        for (width, pages, method) in rebuilt {
            cost += table.scan(is_cached);
            cost += table.build(width, pages, &method);
            (is_cached, scans) = (true, scans.saturating_sub(1));
        }
        let is_changed = self
            .statement
            .locks
            .iter()
            .all(|lock| lock.relation != *name || lock.mode >= LockMode::ShareUpdateExclusive);
        for build in self.shape.builds.iter().filter(|_| is_changed) {
            let built = table.build(width(build, production), None, &build.method);
            cost += table.scan(is_cached);
            cost += if build.is_partial { built.between(0.0, 1.0) } else { built };
            (is_cached, scans) = (true, scans.saturating_sub(1));
        }
        if self.shape.checks_reference && self.is_reference() {
            cost += table.reference();
            cost += table.scan(is_cached);
            (is_cached, scans) = (true, scans.saturating_sub(1));
        }
        for _ in 0..scans.min(10) {
            cost += table.scan(is_cached);
            is_cached = true;
        }
        cost
    }

    /// Returns the width, the number of pages and the access method of each rebuilt index of the table.
    fn rebuilt(&self, name: &RelationName, table: &ProductionTable) -> Vec<(f64, Option<f64>, String)> {
        let rewrites = self.statement.rewrites.iter().filter(|rewrite| !rewrite.is_emptied);
        let of_table = rewrites.filter(|rewrite| rewrite.table.as_ref() == Some(name));
        let describe = |rewrite: &crate::Rewrite| match table.indexes.get(&rewrite.relation) {
            Some(index) => (index.width, Some(index.pages), index.method.clone()),
            None => (EXPRESSION, None, "btree".to_owned()),
        };
        of_table.map(describe).collect()
    }

    /// Returns true if the statement checks a foreign key. VALIDATE CONSTRAINT may validate a CHECK constraint instead,
    /// which doesn't lock a second table.
    fn is_reference(&self) -> bool {
        let words = &self.shape.words;
        words.iter().any(|word| word == "references")
            || self.statement.locks.iter().any(|lock| lock.mode == LockMode::RowShare)
            || self.scans.len() > 1
    }

    /// Returns the tables that the statement changes, with their files. Empty if it changes something else, such as a
    /// view.
    fn targets(&self) -> Vec<&'a RelationName> {
        let Some((schema, name)) = &self.shape.target else { return Vec::new() };
        let mut targets = self.production.named(schema.as_deref(), name);
        let locks = &self.statement.locks;
        let is_seen = |target: &RelationName| {
            self.scans.contains_key(target) || locks.iter().any(|lock| lock.relation == *target)
        };
        if targets.iter().any(|target| is_seen(target)) {
            targets.retain(|target| is_seen(target));
        }
        targets
    }

    /// Returns the cost of changing rows, without finding them. `None` if a table's size is unknown.
    fn changes(&self, targets: &[&RelationName]) -> Option<Cost> {
        // An index found the rows, so their number doesn't grow with the table. Changing them then takes equally long
        // in production.
        if self.scans.is_empty() {
            return Some(Cost::default());
        }
        let is_insert = self.shape.kind == Kind::Insert;
        let sources: Vec<&RelationName> =
            if is_insert { self.scans.keys().copied().collect() } else { targets.to_vec() };
        let (mut here, mut there) = (0.0, 0.0);
        for name in sources {
            let Some(table) = self.production.table(name) else { continue };
            here += table.template_rows;
            there += table.rows?;
        }
        let (low, high) = self.fraction(here, is_insert || self.shape.has_condition);
        let mut cost = Cost::default();
        for target in targets {
            let production = self.production.table(target)?;
            let table = Table { speeds: self.speeds, table: production };
            let added = there / as_f64(targets.len()) / production.rows?.max(1.0);
            let changed = match self.shape.kind {
                Kind::Delete => table.delete(1.0),
                _ => table.update(if is_insert { added } else { 1.0 }),
            };
            cost += changed.between(low, high);
        }
        Some(cost)
    }

    /// Returns the share of the read rows that the statement writes, as a minimum and a maximum. `may_filter` means
    /// that it might write only some of them.
    fn fraction(&self, here: f64, may_filter: bool) -> (f64, f64) {
        let count = self.statement.tag.as_deref().and_then(|tag| tag.rsplit(' ').next()?.parse::<f64>().ok());
        match count {
            _ if !may_filter => (1.0, 1.0),
            Some(count) if here >= KNOWN_FRACTION => {
                let fraction = count / here;
                (fraction / FRACTION_SPREAD, (fraction * FRACTION_SPREAD).min(fraction.max(1.0)))
            }
            _ => (0.0, 1.0),
        }
    }

    /// Returns the cost of finding rows. In production, an index may find them faster: the planner prefers an index if
    /// a table has many rows.
    fn of_index_scan(&self, cost: Cost) -> Cost {
        let uses = |name: &&RelationName| {
            let indexes = self.production.table(name).into_iter().flat_map(|table| table.indexes.values());
            let mut leading = indexes.filter_map(|index| index.leading.as_ref());
            leading.any(|column| self.shape.words.contains(column))
        };
        let may_use_index = self.shape.has_condition && self.scans.keys().any(uses);
        if may_use_index { cost.between(0.0, 1.0) } else { cost }
    }

    /// Returns the prediction for a query or code that reads the scanned tables and may change others.
    fn of_query(&self, cost: Cost) -> Option<Prediction> {
        let mut cost = self.of_index_scan(cost).between(1.0, QUERY);
        if cost.high == 0.0 {
            return None;
        }
        if self.shape.stores_rows {
            cost += self.stored_rows()?;
        }
        for lock in self.statement.locks.iter().filter(|lock| lock.mode == LockMode::RowExclusive) {
            if let Some(production) = self.production.table(&lock.relation) {
                production.rows?;
                let table = Table { speeds: self.speeds, table: production };
                cost += table.update(1.0).between(0.0, 1.0);
            }
        }
        self.finish(cost)
    }

    /// Returns the cost of writing a query's rows into a new table, whose rows are assumed to be as wide as those that
    /// the query reads. `None` if a table's size is unknown.
    fn stored_rows(&self) -> Option<Cost> {
        let mut cost = Cost::default();
        let mut here = 0.0;
        for production in self.scans.keys().filter_map(|name| self.production.table(name)) {
            production.rows?;
            here += production.template_rows;
            cost += Table { speeds: self.speeds, table: production }.rewrite();
        }
        let (low, high) = self.fraction(here, true);
        Some(cost.between(low, high))
    }
}

/// Returns the width of the keys in a new index, in bytes.
fn width(build: &Build, table: &ProductionTable) -> f64 {
    let of = |column: &Option<String>| {
        let known = column.as_ref().and_then(|column| table.columns.get(column));
        known.copied().unwrap_or(if column.is_some() { 8.0 } else { EXPRESSION })
    };
    build.columns.iter().map(of).sum::<f64>().max(4.0)
}

#[cfg(test)]
mod tests;
