//! Checks plans against a budget: limits that no statement of a suite may exceed in production.

use crate::numbers::{bytes, cost};
use crate::{Analysis, ExplainedStatement};

/// Limits for each statement's plan. `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PlanBudget {
    /// Maximum total cost of a plan, in the planner's units.
    pub cost: Option<f64>,
    /// Maximum number of bytes that a plan may read sequentially from a table. With a LIMIT, only the part that the
    /// plan reads counts.
    pub sequential_bytes: Option<u64>,
}

/// A statement that exceeds the budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverPlanBudget {
    /// Index of the statement in [`Analysis::statements`].
    pub statement: usize,
    /// The exceeded limits with the measured values, such as `cost 774,288, 100,000 allowed`.
    pub limits: Vec<String>,
}

impl PlanBudget {
    /// Returns the statements whose plan exceeds a limit, in the order of the analysis.
    #[must_use]
    pub fn exceeded(&self, analysis: &Analysis) -> Vec<OverPlanBudget> {
        let statements = analysis.statements.iter().enumerate();
        let over = statements.map(|(statement, explained)| OverPlanBudget {
            statement,
            limits: self.exceeded_limits(explained),
        });
        over.filter(|over| !over.limits.is_empty()).collect()
    }

    fn exceeded_limits(&self, explained: &ExplainedStatement) -> Vec<String> {
        let costs = explained.plans.iter().map(|plan| plan.plan.root.total_cost);
        let worst = costs.max_by(f64::total_cmp).zip(self.cost).filter(|(worst, allowed)| worst > allowed);
        let reads = explained.plans.iter().flat_map(|plan| &plan.sequential);
        let read = reads.max_by_key(|read| read.bytes).zip(self.sequential_bytes);
        let read = read.filter(|(read, allowed)| read.bytes > *allowed);
        let size = |size: u64| bytes(report::as_f64(size));
        let worst = worst.map(|(worst, allowed)| format!("cost {}, {} allowed", cost(worst), cost(allowed)));
        let read = read.map(|(read, allowed)| {
            format!("sequential scan of {} of {}, {} allowed", size(read.bytes), read.table, size(allowed))
        });
        worst.into_iter().chain(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ExplainedPlan, Plan, PlanMode, SequentialRead, Shape};

    fn statement(cost: f64, bytes: u64) -> ExplainedStatement {
        let plan = json!([{ "Plan": {
            "Node Type": "Seq Scan", "Startup Cost": 0.0, "Total Cost": cost, "Plan Rows": 1, "Plan Width": 4,
        }}]);
        let plan = Plan::parse(&plan).unwrap();
        let shape = Shape::of(&plan);
        let sequential = vec![SequentialRead { table: "orders".to_owned(), rows: 1.0, bytes }];
        let plan = ExplainedPlan { mode: PlanMode::Custom, plan, shape, tests: Vec::new(), sequential };
        ExplainedStatement { normalized: String::new(), runs: 1, tests: Vec::new(), plans: vec![plan] }
    }

    #[test]
    fn limits_allow_equality_but_not_excess() {
        let statements = vec![statement(1000.0, 1_000_000), statement(774_288.0, 4_000_000_000)];
        let analysis = Analysis { statements, ..Analysis::default() };
        let over = PlanBudget { cost: Some(1000.0), sequential_bytes: Some(1_000_000) }.exceeded(&analysis);
        let limits = ["cost 774,288, 1,000 allowed", "sequential scan of 4.00 GB of orders, 1.00 MB allowed"];
        assert_eq!(over, [OverPlanBudget { statement: 1, limits: limits.map(str::to_owned).to_vec() }]);
        assert!(PlanBudget::default().exceeded(&analysis).is_empty());
    }
}
