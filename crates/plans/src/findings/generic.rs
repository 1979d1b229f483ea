//! Finds generic plans of prepared statements that are far more expensive than custom plans.

use report::as_f64;

use super::Problem;
use crate::conditions::outer_words;
use crate::numbers::cost;
use crate::{Limits, Plan, PlanFindingKind};

/// Number of runs of a prepared statement that get custom plans, before the server considers a generic plan.
const CUSTOM_RUNS: u64 = 5;

/// Cost that the server adds to a custom plan for planning it: 1,000 `cpu_operator_cost` for each relation, plus 1,000.
fn planning_cost(plan: &Plan) -> f64 {
    let relations = plan.nodes().filter(|node| node.text("Relation Name").is_some()).count();
    1000.0 * 0.0025 * (as_f64(relations) + 1.0)
}

/// Returns true if the server would choose the generic plan after `prepared_runs` runs of the prepared statement.
pub(crate) fn is_chosen(generic: &Plan, custom: &[&Plan], prepared_runs: u64) -> bool {
    let total: f64 = custom.iter().map(|plan| plan.root.total_cost + planning_cost(plan)).sum();
    prepared_runs > CUSTOM_RUNS
        && !custom.is_empty()
        && generic.root.total_cost < total / as_f64(custom.len())
}

/// Returns true if LIMIT or OFFSET is a parameter. For a generic plan, the planner then assumes a tenth of all rows, so
/// the plan's cost isn't meaningful.
fn has_open_limit(text: &str) -> bool {
    let is_limit = |word: &str| {
        ["limit", "offset", "first", "next"].iter().any(|known| word.eq_ignore_ascii_case(known))
    };
    outer_words(text).windows(2).any(|pair| is_limit(pair[0].0) && pair[1].0.starts_with('$'))
}

/// Returns a problem if the generic plan costs far more than the custom plan.
pub(crate) fn expensive_generic(
    text: &str,
    generic: &Plan,
    custom: &Plan,
    limits: &Limits,
) -> Option<Problem> {
    let (before, after) = (generic.root.total_cost, custom.root.total_cost);
    if has_open_limit(text) || before < limits.cost || before < limits.generic_ratio * after {
        return None;
    }
    Some(Problem {
        kind: PlanFindingKind::GenericPlan,
        node: generic.root.kind.clone(),
        table: None,
        rows: generic.root.rows,
        bytes: 0.0,
        seconds: None,
        evidence: format!(
            "The application prepares this statement. Its generic plan costs {}, the plan for the test's values {}. By \
             default, the server notices this and plans each run. With plan_cache_mode = force_generic_plan, it does not.",
            cost(before),
            cost(after)
        ),
        change: "Do not run this statement with plan_cache_mode = force_generic_plan.".to_owned(),
        costs: Some((before, after)),
    })
}
