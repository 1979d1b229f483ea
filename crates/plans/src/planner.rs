//! Questions to the planner of a scratch server: plans with and without indexes, and the tables of its database.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{BoundStatement, Plan, PlanMode, RelationKind};

/// Prefix of the names of candidate indexes in plans.
const PREFIX: &str = "pgfresh_candidate_";

/// An index that might help.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Candidate {
    /// Schema of the table.
    pub schema: String,
    /// Name of the table. A partitioned table stands for all its partitions.
    pub table: String,
    /// Text that follows `CREATE INDEX name` in SQL, such as `ON shop.orders USING btree (customer_id)`.
    pub definition: String,
}

/// Number of a candidate index that the planner has created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CandidateId(pub usize);

impl CandidateId {
    /// Returns the name of the index in the scratch server and in its plans. The index of a partition has this name
    /// with an underscore and a number appended.
    #[must_use]
    pub fn index_name(self) -> String {
        format!("{PREFIX}{}", self.0)
    }

    /// Returns the candidate that an index in a plan belongs to. `None` for other indexes.
    #[must_use]
    pub fn of_index(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(PREFIX)?;
        rest.split('_').next()?.parse().ok().map(Self)
    }
}

/// Answers questions about plans.
pub trait Planner {
    /// Explains one statement with `EXPLAIN (VERBOSE, FORMAT JSON)`. VERBOSE adds schemas, output columns and qualified
    /// column names to the plan.
    ///
    /// The planner sees all existing indexes but those in `hidden` (schema and name), and no candidates but those in
    /// `visible`.
    ///
    /// # Errors
    ///
    /// If there is no plan.
    fn explain(
        &mut self,
        statement: &BoundStatement,
        mode: PlanMode,
        visible: &[CandidateId],
        hidden: &[(String, String)],
    ) -> Result<Plan, ExplainError>;

    /// Creates candidate indexes, which [`Planner::explain`] shows on request. The result has one entry for each
    /// candidate: its number and its estimated size in bytes, or PostgreSQL's message if it refuses the index.
    fn create(&mut self, candidates: &[Candidate]) -> Vec<Result<(CandidateId, u64), String>>;

    /// Returns the tables of the scratch copy with production's sizes, without candidates and system tables.
    ///
    /// # Errors
    ///
    /// If the scratch server does not answer.
    fn catalog(&mut self) -> Result<Catalog, ExplainError>;
}

/// Reason why a statement has no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// EXPLAIN does not know this kind of statement, such as `VACUUM` or `CREATE TABLE`.
    #[error("PostgreSQL cannot explain utility statements")]
    Utility,
    /// PostgreSQL refuses the statement.
    #[error("PostgreSQL refuses the statement: {message} (SQLSTATE {code})")]
    Refused {
        /// SQLSTATE, such as `42P01`.
        code: String,
        /// PostgreSQL's message.
        message: String,
    },
    /// The planner takes longer than the limit, for example because it evaluates a slow function.
    #[error("the planner takes longer than {} s", limit.as_secs_f64())]
    TooSlow {
        /// Maximum duration.
        limit: Duration,
    },
    /// Too many other statements were too slow, so pgfresh explains no more.
    #[error("the planner took longer than {} s for {slow} statements, so pgfresh explains no others", limit.as_secs_f64())]
    Exhausted {
        /// Number of slow statements.
        slow: u32,
        /// Maximum duration of each.
        limit: Duration,
    },
    /// The scratch server has ended or does not answer.
    #[error("the scratch server is gone: {0}")]
    Gone(String),
}

/// Tables of a database, as the planner sees them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    /// Version of the server in its own numbers, such as 150004.
    pub server_version: u32,
    /// Settings of the session that explains, as `SHOW` prints them, at least `work_mem`, `hash_mem_multiplier` (from
    /// 15 on; 13 and 14 have 1) and `random_page_cost`.
    pub settings: BTreeMap<String, String>,
    /// Tables, partitioned tables, partitions and materialized views.
    pub tables: Vec<CatalogTable>,
}

/// A table of a [`Catalog`].
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogTable {
    /// Name of the schema.
    pub schema: String,
    /// Name of the table.
    pub name: String,
    /// Kind of the relation. Never an index.
    pub kind: RelationKind,
    /// Schema and name of the partitioned table that this table is a partition of.
    pub parent: Option<(String, String)>,
    /// Size in pages of 8 KiB. 0 for partitioned tables.
    pub pages: u64,
    /// Estimated number of rows. -1 if unknown.
    pub rows: f64,
    /// Columns in the table's order, without dropped ones.
    pub columns: Vec<CatalogColumn>,
    /// Valid indexes.
    pub indexes: Vec<CatalogIndex>,
    /// Foreign keys of this table, that is, its references to other tables.
    pub foreign_keys: Vec<ForeignKey>,
}

/// A column of a [`CatalogTable`].
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogColumn {
    /// Name of the column.
    pub name: String,
    /// Type in SQL, as `format_type` prints it, such as `character varying(20)`.
    pub type_name: String,
    /// Number of distinct values, or minus their number divided by the number of rows, as in `pg_stats.n_distinct`.
    /// `None` without statistics.
    pub distinct: Option<f64>,
    /// Fraction of NULLs, from 0 to 1. 0 without statistics.
    pub null_fraction: f64,
}

/// An existing index of a [`CatalogTable`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogIndex {
    /// Name of the schema.
    pub schema: String,
    /// Name of the index.
    pub name: String,
    /// `pg_get_indexdef` of the index.
    pub definition: String,
    /// Schema and name of the partitioned index that this index is a part of.
    pub parent: Option<(String, String)>,
    /// Whether the index is unique. True for primary keys.
    pub unique: bool,
    /// Whether a constraint (primary key, unique or exclusion constraint) or the replica identity needs the index.
    pub constraint: bool,
    /// Size in pages of 8 KiB. 0 for partitioned indexes.
    pub pages: u64,
}

/// A foreign key of a [`CatalogTable`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKey {
    /// Name of the constraint.
    pub name: String,
    /// Columns of this table, in the constraint's order.
    pub columns: Vec<String>,
    /// Schema and name of the referenced table.
    pub references: (String, String),
    /// Columns of the referenced table, in the same order.
    pub referenced_columns: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidate_is_found_by_its_index() {
        let name = CandidateId(12).index_name();
        assert_eq!(CandidateId::of_index(&name), Some(CandidateId(12)));
        assert_eq!(CandidateId::of_index(&format!("{name}_3")), Some(CandidateId(12)));
        assert_eq!(CandidateId::of_index("orders_pkey"), None);
    }
}
