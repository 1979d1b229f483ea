//! Defines the interface to a scratch server's planner, which plans statements with and without certain indexes and
//! describes its tables.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{BoundStatement, Plan, PlanMode, RelationKind};

/// Prefix of candidate index names in plans.
const PREFIX: &str = "pgfresh_candidate_";

/// An index that might help.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Candidate {
    /// Schema of the table.
    pub schema: String,
    /// Name of the table. For a partitioned table, all its partitions get the index.
    pub table: String,
    /// SQL text after `CREATE INDEX name`, such as `ON shop.orders USING btree (customer_id)`.
    pub definition: String,
}

/// Identifies a candidate index that the planner has created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CandidateId(pub usize);

impl CandidateId {
    /// Returns the index name in the scratch server and its plans. Indexes of partitions have this name with a suffix
    /// of an underscore and a number.
    #[must_use]
    pub fn index_name(self) -> String {
        format!("{PREFIX}{}", self.0)
    }

    /// Returns the candidate that the index `name` in a plan belongs to. `None` if the index isn't a candidate.
    #[must_use]
    pub fn of_index(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(PREFIX)?;
        rest.split('_').next()?.parse().ok().map(Self)
    }
}

/// Plans statements on a scratch server.
pub trait Planner {
    /// Explains a statement with `EXPLAIN (VERBOSE, FORMAT JSON)`. VERBOSE adds schemas, output columns and qualified
    /// column names to the plan.
    ///
    /// The planner sees all existing indexes except those in `hidden` (schema and name), and only the candidates in
    /// `visible`.
    ///
    /// # Errors
    ///
    /// Returns an error if the statement doesn't have a plan.
    fn explain(
        &mut self,
        statement: &BoundStatement,
        mode: PlanMode,
        visible: &[CandidateId],
        hidden: &[(String, String)],
    ) -> Result<Plan, ExplainError>;

    /// Creates candidate indexes, which [`Planner::explain`] makes visible on request. Returns one entry for each
    /// candidate: its number and its estimated size in bytes, or PostgreSQL's message if it rejects the index.
    fn create(&mut self, candidates: &[Candidate]) -> Vec<Result<(CandidateId, u64), String>>;

    /// Returns the tables of the scratch copy with production's sizes. Omits candidates and system tables.
    ///
    /// # Errors
    ///
    /// Returns an error if the scratch server doesn't respond.
    fn catalog(&mut self) -> Result<Catalog, ExplainError>;
}

/// Reason why a statement doesn't have a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// EXPLAIN doesn't support this kind of statement, such as `VACUUM` or `CREATE TABLE`.
    #[error("PostgreSQL cannot explain utility statements")]
    Utility,
    /// PostgreSQL rejects the statement.
    #[error("PostgreSQL refuses the statement: {message} (SQLSTATE {code})")]
    Refused {
        /// SQLSTATE, such as `42P01`.
        code: String,
        /// PostgreSQL's message.
        message: String,
    },
    /// Planning takes longer than the limit, for example because the planner evaluates a slow function.
    #[error("the planner takes longer than {} s", limit.as_secs_f64())]
    TooSlow {
        /// Maximum planning time.
        limit: Duration,
    },
    /// Too many statements were too slow to plan, so pgfresh doesn't explain any more.
    #[error("the planner took longer than {} s for {slow} statements, so pgfresh stopped explaining", limit.as_secs_f64())]
    Exhausted {
        /// Number of slow statements.
        slow: u32,
        /// Maximum planning time of each statement.
        limit: Duration,
    },
    /// The scratch server has ended or doesn't respond.
    #[error("the scratch server is gone: {0}")]
    Gone(String),
}

/// The tables of a database, as the planner sees them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    /// Server version as PostgreSQL numbers it, such as 150004.
    pub server_version: u32,
    /// Settings of the session that explains, as `SHOW` prints them. Includes at least `work_mem`,
    /// `hash_mem_multiplier` (since 15; in 13 and 14 the multiplier is 1) and `random_page_cost`.
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
    /// Schema and name of the partitioned table, if this table is a partition.
    pub parent: Option<(String, String)>,
    /// Size in pages of 8 KiB. 0 for partitioned tables.
    pub pages: u64,
    /// Estimated row count. -1 if unknown.
    pub rows: f64,
    /// Columns in table order, without dropped columns.
    pub columns: Vec<CatalogColumn>,
    /// Valid indexes of this table.
    pub indexes: Vec<CatalogIndex>,
    /// Foreign keys of this table, that is, its references to other tables.
    pub foreign_keys: Vec<ForeignKey>,
}

/// A column of a [`CatalogTable`].
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogColumn {
    /// Name of the column.
    pub name: String,
    /// Type as `format_type` prints it, such as `character varying(20)`.
    pub type_name: String,
    /// Number of distinct values or, if negative, minus their ratio to the row count, as in `pg_stats.n_distinct`.
    /// `None` without statistics.
    pub distinct: Option<f64>,
    /// Fraction of NULLs, from 0 to 1. 0 without statistics.
    pub null_fraction: f64,
}

/// An existing index of a [`CatalogTable`].
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogIndex {
    /// Name of the schema.
    pub schema: String,
    /// Name of the index.
    pub name: String,
    /// Definition as `pg_get_indexdef` prints it.
    pub definition: String,
    /// Schema and name of the partitioned index that this index is part of, if any.
    pub parent: Option<(String, String)>,
    /// Whether the index is unique. Also true for primary keys.
    pub unique: bool,
    /// Whether the index is needed by a constraint (primary key, unique or exclusion constraint) or by the replica
    /// identity.
    pub constraint: bool,
    /// Size in pages of 8 KiB. 0 for partitioned indexes.
    pub pages: u64,
    /// Estimated number of rows in the index. -1 if unknown.
    pub rows: f64,
}

/// A foreign key of a [`CatalogTable`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKey {
    /// Name of the constraint.
    pub name: String,
    /// Columns of this table, in the order of the constraint.
    pub columns: Vec<String>,
    /// Schema and name of the referenced table.
    pub references: (String, String),
    /// Columns of the referenced table, in the same order as `columns`.
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
