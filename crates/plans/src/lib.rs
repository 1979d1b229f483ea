//! Shows which plans a test suite's statements would get in production, using nothing from production but its
//! statistics.
//!
//! [`Statistics`] contain what production's planner knows: the sizes of tables and indexes, and column statistics.
//! pgfresh gives them to a scratch copy of the template, together with sparse files of the same sizes as in production.
//! The scratch server's planner then chooses the same plans as production. pgfresh never executes the suite's
//! statements there. This crate doesn't print anything and doesn't depend on the command line.

mod analysis;
mod analyze;
mod baseline;
mod bound_query;
mod candidates;
mod conditions;
mod day;
mod definition;
#[cfg(test)]
mod fake;
mod file;
mod findings;
pub mod import;
mod limits;
mod names;
mod numbers;
mod plan;
mod plan_budget;
mod plan_report;
mod planner;
pub mod redact;
mod scratch;
mod settings;
mod shape;
mod statement;
mod statistics;
mod tables;
mod walk;
mod workload;

pub use analysis::{
    Analysis, ExplainedPlan, ExplainedStatement, IndexGain, IndexSuggestion, PlanFinding, PlanFindingKind,
    SequentialRead, Unexplained,
};
pub use analyze::analyze;
pub use baseline::{Baseline, BaselineChanges, BaselineError, ChangedPlan};
pub use bound_query::run_bound;
pub use file::StatisticsFileError;
pub use limits::Limits;
pub use pgwire::BoundValue;
pub use plan::{Node, Plan, PlanError};
pub use plan_budget::{OverPlanBudget, PlanBudget};
pub use plan_report::{PlanReport, StatisticsSummary};
pub use planner::{
    Candidate, CandidateId, Catalog, CatalogColumn, CatalogIndex, CatalogTable, ExplainError, ForeignKey,
    Planner,
};
pub use scratch::{
    Applied, Reason, Refusal, Scratch, ScratchError, UnappliedObject, count_parameters, has_parameters,
};
pub use shape::Shape;
pub use statement::{BoundStatement, PlanMode, SuiteStatement};
pub use statistics::{
    ColumnStatistics, CommonCombination, Dependency, DistinctCombinations, ExtendedStatistics, RelationKind,
    RelationName, RelationStatistics, Slot, Statistics,
};
