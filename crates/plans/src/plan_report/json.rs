//! Converts plans to JSON.

use serde_json::{Value, json};

use super::PlanReport;
use crate::{
    BaselineChanges, ChangedPlan, ExplainedStatement, IndexSuggestion, OverPlanBudget, PlanFinding,
    PlanFindingKind,
};

impl PlanFindingKind {
    /// Returns the name of the kind in JSON reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SequentialScan => "sequential_scan",
            Self::DiscardingScan => "discarding_scan",
            Self::LargeSort => "large_sort",
            Self::LargeHash => "large_hash",
            Self::NestedLoop => "nested_loop",
            Self::GenericPlan => "generic_plan",
            Self::GrowingOffset => "growing_offset",
            Self::ForeignKeyWithoutIndex => "foreign_key_without_index",
        }
    }

    /// Returns the name of the kind in reports for people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::SequentialScan => "sequential scan",
            Self::DiscardingScan => "index scan that discards rows",
            Self::LargeSort => "large sort",
            Self::LargeHash => "large hash",
            Self::NestedLoop => "nested loop",
            Self::GenericPlan => "generic plan",
            Self::GrowingOffset => "growing OFFSET",
            Self::ForeignKeyWithoutIndex => "foreign key without an index",
        }
    }
}

impl PlanReport {
    /// Returns an object for each statement, most expensive first. `node`, `table`, `rows` and `bytes` come from the
    /// statement's first finding or, without findings, from its plan's outermost node.
    pub(super) fn plans_to_json(&self) -> Value {
        self.analysis
            .statements
            .iter()
            .enumerate()
            .map(|(place, statement)| self.plan_to_json(place, statement))
            .collect()
    }

    fn plan_to_json(&self, place: usize, statement: &ExplainedStatement) -> Value {
        let findings = || self.analysis.findings.iter().filter(|finding| finding.statement == place);
        let worst = statement.plans.first();
        let root = worst.map(|worst| &worst.plan.root);
        let read = worst.and_then(|worst| worst.sequential.first());
        let (node, table, rows, bytes) = match findings().next() {
            Some(finding) => {
                (Some(finding.node.as_str()), finding.table.as_deref(), Some(finding.rows), finding.bytes)
            }
            None => (
                root.map(|root| root.kind.as_str()),
                read.map(|read| read.table.as_str()),
                root.map(|root| root.rows),
                read.map_or(0, |read| read.bytes),
            ),
        };
        // A custom and a generic plan can have the same shape.
        let mut shapes: Vec<&[String]> = Vec::new();
        for plan in &statement.plans {
            if !shapes.contains(&plan.shape.lines()) {
                shapes.push(plan.shape.lines());
            }
        }
        let over = self.over_budget.iter().find(|over| over.statement == place);
        json!({
            "statement": statement.normalized,
            "tests": statement.tests,
            "runs": statement.runs,
            "node": node,
            "table": table,
            "rows": rows,
            "bytes": bytes,
            "cost": root.map(|root| root.total_cost),
            "shapes": shapes,
            "suggestion": self.suggestion_to_json(place),
            "findings": findings().map(finding_to_json).collect::<Vec<_>>(),
            "over_budget": over.map_or(&[][..], |OverPlanBudget { limits, .. }| limits),
        })
    }

    /// Returns the indexes of the plan that improves a statement most, with the statement's cost after their creation.
    /// `null` if no index helps.
    fn suggestion_to_json(&self, statement: usize) -> Value {
        let suggestions = self.analysis.suggestions.iter().enumerate();
        let gains = suggestions.flat_map(|(place, index)| {
            index.gains.iter().filter(|gain| gain.statement == statement).map(move |gain| (place, gain))
        });
        let best = gains
            .max_by(|(_, one), (_, other)| (one.before - one.after).total_cmp(&(other.before - other.after)));
        best.map_or(Value::Null, |(place, gain)| {
            let mut places = [&[place][..], &gain.with].concat();
            places.sort_unstable();
            let bytes: u64 = places.iter().map(|place| self.analysis.suggestions[*place].bytes).sum();
            json!({ "sql": self.sql(&places), "cost": gain.after, "bytes": bytes })
        })
    }

    /// Returns the statistics, the suggested indexes, the unused indexes, and the statements without a plan.
    pub(super) fn facts_to_json(&self) -> Value {
        let Self { analysis, statistics, left_out, unseen, seconds, .. } = self;
        let suggestions = analysis.suggestions.iter().map(
            |IndexSuggestion { sql, table, bytes, replaces, writers, gains }| {
                json!({
                    "sql": sql, "table": table, "bytes": bytes, "replaces": replaces, "writers": writers,
                    "statements": gains.iter().map(|gain| json!({
                        "statement": analysis.statements.get(gain.statement).map(|one| &one.normalized),
                        "before": gain.before, "after": gain.after,
                        "with": gain.with.iter().map(|place| self.sql(&[*place])).collect::<Vec<_>>(),
                    })).collect::<Vec<_>>(),
                })
            },
        );
        let unexplained = analysis
            .unexplained
            .iter()
            .map(|one| json!({ "cause": one.cause, "count": one.count, "example": one.example }));
        json!({
            "statistics": statistics.day, "tables": statistics.tables, "bytes": statistics.bytes, "seconds": seconds,
            "suggestions": suggestions.collect::<Vec<_>>(), "unused": analysis.unused,
            "unexplained": unexplained.collect::<Vec<_>>(), "unseen": unseen, "left_out": left_out,
        })
    }
}

impl PlanFinding {
    /// Returns the finding as a JSON object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        finding_to_json(self)
    }
}

fn finding_to_json(finding: &PlanFinding) -> Value {
    json!({
        "kind": finding.kind.name(), "node": finding.node, "table": finding.table, "rows": finding.rows,
        "bytes": finding.bytes, "cost": finding.cost, "cost_after": finding.cost_after,
        "seconds": finding.seconds.map(|(from, to)| [from, to]), "tests": finding.tests,
        "evidence": finding.evidence, "change": finding.change,
    })
}

/// Returns the differences from the baseline.
pub(super) fn changes_to_json(changes: &BaselineChanges) -> Value {
    let list = |list: &[ChangedPlan]| -> Value {
        list.iter()
            .map(|ChangedPlan { statement, tests, before, after }| {
                json!({ "statement": statement, "tests": tests, "before": before, "after": after })
            })
            .collect()
    };
    let BaselineChanges { statistics, postgres, changed, new, vanished } = changes;
    json!({
        "statistics": statistics, "postgres": postgres,
        "changed": list(changed), "new": list(new), "vanished": list(vanished),
    })
}
