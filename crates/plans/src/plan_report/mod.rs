//! Reports on a suite's plans, as text for a terminal and as parts of a [`Report`] in all formats.

mod document;
mod json;
mod summary;

use crate::day::day;
use crate::numbers::{bytes, cost, number};
use crate::statistics::PAGE_SIZE;
use crate::{Analysis, BaselineChanges, OverPlanBudget, PlanFinding, RelationKind, Statistics};

/// Maximum length of a column list that is printed in full, in characters.
const SHORT_LIST: usize = 20;

/// Everything that a run found out about its plans.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanReport {
    /// Date and size of production's statistics.
    pub statistics: StatisticsSummary,
    /// Version of the PostgreSQL server that chose the plans.
    pub postgres: String,
    /// Plans, findings and suggestions.
    pub analysis: Analysis,
    /// Statistics that the scratch copy lacks, as a sentence for each reason.
    pub left_out: Vec<String>,
    /// Statements that pgfresh couldn't explain because it didn't see their full text, as a sentence for each reason.
    pub unseen: Vec<String>,
    /// Differences from the baseline. `None` if there is no baseline.
    pub changes: Option<BaselineChanges>,
    /// Statements whose plans exceed the budget.
    pub over_budget: Vec<OverPlanBudget>,
    /// Time for planning all statements after the command ended, in seconds.
    pub seconds: f64,
}

/// Date and size of production's statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatisticsSummary {
    /// Day on which the statistics were read, such as `2026-11-20`.
    pub day: String,
    /// Number of tables, partitions and materialized views.
    pub tables: usize,
    /// Total size of all relations in production, in bytes.
    pub bytes: u64,
    /// Version of the production server as PostgreSQL numbers it, such as 150004.
    pub server_version: u32,
}

impl StatisticsSummary {
    /// Summarizes statistics.
    #[must_use]
    pub fn of(statistics: &Statistics) -> Self {
        let is_table = |kind| {
            matches!(
                kind,
                RelationKind::Table | RelationKind::MaterializedView | RelationKind::PartitionedTable
            )
        };
        let pages: u64 = statistics.relations.iter().map(|relation| u64::from(relation.pages)).sum();
        Self {
            day: day(statistics.taken),
            tables: statistics.relations.iter().filter(|relation| is_table(relation.kind)).count(),
            bytes: pages * u64::from(PAGE_SIZE),
            server_version: statistics.server_version,
        }
    }

    /// Returns the date and the size as a short phrase.
    fn description(&self) -> String {
        let Self { day, tables, bytes: size, .. } = self;
        format!(
            "statistics of {day}, {}, {}",
            count(*tables, "table", "tables"),
            bytes(report::as_f64(*size))
        )
    }

    /// Returns the major version of the production server.
    fn major(&self) -> u32 {
        self.server_version / 10_000
    }
}

/// Returns a number with the singular or plural of its noun.
fn count(number_of: usize, one: &str, several: &str) -> String {
    let text = number(report::as_f64(number_of as u64));
    format!("{text} {}", if number_of == 1 { one } else { several })
}

/// Returns the number of tests, with the names of up to `shown` of them.
fn test_list(tests: &[String], shown: usize) -> String {
    let named: Vec<_> = tests.iter().take(shown).map(String::as_str).collect();
    let more = if tests.len() > shown { ", …" } else { "" };
    format!("{}: {}{more}", count(tests.len(), "test", "tests"), named.join(", "))
}

/// Returns a statement without its column list if the list is long, because the rest reveals more about the plan.
fn without_columns(statement: &str) -> String {
    let head = ["SELECT DISTINCT ", "SELECT "]
        .into_iter()
        .find(|head| statement.get(..head.len()).is_some_and(|start| start.eq_ignore_ascii_case(head)));
    let Some(head) = head else { return statement.to_owned() };
    let mut depth = 0_usize;
    for (at, sign) in statement.char_indices().skip(head.len()) {
        match sign {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 && at > head.len() + SHORT_LIST => {
                let rest = &statement[at..];
                if rest.get(..6).is_some_and(|word| word.eq_ignore_ascii_case(" from ")) {
                    return format!("{}…{rest}", &statement[..head.len()]);
                }
            }
            _ => {}
        }
    }
    statement.to_owned()
}

impl PlanReport {
    /// Returns the total size in bytes of the suggestions that solve a finding. `None` if no suggestion does.
    fn size(&self, finding: &PlanFinding) -> Option<u64> {
        let solution = finding.suggestions.iter().filter_map(|place| self.analysis.suggestions.get(*place));
        (!finding.suggestions.is_empty()).then(|| solution.map(|index| index.bytes).sum())
    }

    /// Returns the SQL statements that create the suggestions at `places`.
    fn sql(&self, places: &[usize]) -> String {
        let indexes = places.iter().filter_map(|place| self.analysis.suggestions.get(*place));
        indexes.map(|index| index.sql.as_str()).collect::<Vec<_>>().join("; ")
    }

    /// Returns the costs before and after the finding's change.
    fn costs(finding: &PlanFinding) -> String {
        match finding.cost_after {
            Some(after) => format!("cost {} → {}", cost(finding.cost), cost(after)),
            None => format!("cost {}", cost(finding.cost)),
        }
    }
}

#[cfg(test)]
mod tests;
