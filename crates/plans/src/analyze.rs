//! Analyzes a suite: explains its statements, finds problems in their plans, and looks for indexes that solve them.

use std::collections::{BTreeMap, BTreeSet};

use crate::candidates::{Advice, WeakIndexes, advise, unused};
use crate::findings::{
    ForeignKeyCheck, NO_INDEX, Problem, checks, describe, discarding, expensive_generic, growing_offset,
    is_chosen, problems, sequential_reads,
};
use crate::names::short_name;
use crate::numbers::{cost, percent, whole};
use crate::tables::Tables;
use crate::workload::{CachedPlanner, Item};
use crate::{
    Analysis, BoundStatement, ExplainError, ExplainedPlan, ExplainedStatement, Limits, Plan, PlanFinding,
    PlanFindingKind, PlanMode, Planner, Shape, SuiteStatement, Unexplained, has_parameters,
};

/// Limitation of EXPLAIN that applies to every suite.
const NOT_SEEN: &str = "EXPLAIN does not show statements inside functions and triggers, and pgfresh explains foreign-key \
     checks only where an index is missing";

/// Explains each statement with each of its value sets, and returns plans, findings and index suggestions.
///
/// Statements with the same normalized text count as one statement. [`Limits::value_sets`], [`Limits::explains`] and
/// [`Limits::candidates`] bound the work. If a limit is reached, [`Analysis::notes`] describes what was left out.
pub fn analyze(planner: &mut dyn Planner, statements: &[SuiteStatement], limits: &Limits) -> Analysis {
    let groups = groups(statements);
    let catalog = match planner.catalog() {
        Ok(catalog) => catalog,
        Err(error) => return nothing(&groups, &error),
    };
    let tables = Tables::new(&catalog);
    let mut run = Run {
        tables: &tables,
        limits,
        analysis: Analysis::default(),
        used: BTreeSet::new(),
        skipped_values: 0,
    };
    let mut explained = run.explain(planner, groups);
    explained.sort_by(|left, right| right.worst().total_cmp(&left.worst()));
    let mut cached = CachedPlanner::new(planner, limits.explains);
    run.judge(&mut cached, &explained);
    run.note_skipped_values();
    run.analysis.statements = explained.into_iter().map(|group| group.statement).collect();
    run.analysis
}

/// All recorded statements with the same normalized text.
struct Group<'a> {
    normalized: &'a str,
    records: Vec<&'a SuiteStatement>,
}

/// A group of statements with its plans.
struct Explained<'a> {
    statement: ExplainedStatement,
    /// Text and values behind each plan in `statement`, in the same order.
    questions: Vec<&'a BoundStatement>,
    /// Text and values of all runs.
    values: Vec<&'a BoundStatement>,
    /// The generic plan and the most expensive custom plan, if the statement was prepared.
    generic: Option<(Plan, Plan)>,
}

impl Explained<'_> {
    fn worst(&self) -> f64 {
        self.statement.plans.first().map_or(0.0, |plan| plan.plan.root.total_cost)
    }
}

fn groups(statements: &[SuiteStatement]) -> Vec<Group<'_>> {
    let mut groups: BTreeMap<&str, Group<'_>> = BTreeMap::new();
    for record in statements {
        let normalized = record.normalized.as_str();
        let group = groups.entry(normalized).or_insert_with(|| Group { normalized, records: Vec::new() });
        if !group
            .records
            .iter()
            .any(|known| known.statement == record.statement && known.tests == record.tests)
        {
            group.records.push(record);
        }
    }
    groups.into_values().collect()
}

/// Returns an analysis without plans, for a scratch server that can't be used.
fn nothing(groups: &[Group<'_>], error: &ExplainError) -> Analysis {
    let unexplained = groups.first().map(|group| Unexplained {
        cause: error.to_string(),
        count: groups.len(),
        example: group.normalized.to_owned(),
    });
    Analysis { unexplained: unexplained.into_iter().collect(), ..Analysis::default() }
}

/// Returns a key that is the same for errors with the same cause, and a description of the cause.
fn cause(error: &ExplainError) -> (String, String) {
    match error {
        ExplainError::Refused { code, .. } if code == "42P01" => (
            code.clone(),
            "a table or view does not exist in the template, because only the test made it".to_owned(),
        ),
        ExplainError::Refused { code, .. } => (code.clone(), error.to_string()),
        _ => (error.to_string(), error.to_string()),
    }
}

/// State of one analysis.
struct Run<'a> {
    tables: &'a Tables<'a>,
    limits: &'a Limits,
    analysis: Analysis,
    /// Names of all indexes that a plan uses.
    used: BTreeSet<String>,
    /// Number of value sets that weren't explained because of [`Limits::value_sets`].
    skipped_values: usize,
}

/// A problem, with the statement and tests it belongs to.
struct Found {
    problem: Problem,
    statement: usize,
    /// Index of the item whose plan has the problem. `None` if an index can't solve it.
    item: Option<usize>,
    tests: BTreeSet<String>,
}

impl Run<'_> {
    /// Explains all groups. Counts groups without a plan by cause.
    fn explain<'r>(&mut self, planner: &mut dyn Planner, groups: Vec<Group<'r>>) -> Vec<Explained<'r>> {
        let mut explained = Vec::new();
        let mut causes: BTreeMap<String, Unexplained> = BTreeMap::new();
        let mut gone = None;
        for group in groups {
            let result = match &gone {
                Some(error) => Err(ExplainError::clone(error)),
                None => self.explain_group(planner, &group),
            };
            match result {
                Ok(group) => explained.push(group),
                Err(error) => {
                    let (group_of, cause) = cause(&error);
                    let example = group.normalized.to_owned();
                    causes.entry(group_of).or_insert(Unexplained { cause, count: 0, example }).count += 1;
                    gone = gone.or_else(|| matches!(error, ExplainError::Gone(_)).then_some(error));
                }
            }
        }
        self.analysis.unexplained = causes.into_values().collect();
        self.analysis.unexplained.sort_by_key(|cause| std::cmp::Reverse(cause.count));
        explained
    }

    fn explain_group<'r>(
        &mut self,
        planner: &mut dyn Planner,
        group: &Group<'r>,
    ) -> Result<Explained<'r>, ExplainError> {
        let records = &group.records[..group.records.len().min(self.limits.value_sets)];
        self.skipped_values += group.records.len() - records.len();
        let mut plans: Vec<(ExplainedPlan, &'r BoundStatement)> = Vec::new();
        let mut refused = None;
        for record in records {
            // A custom plan requires parameter values. Without them, only a generic plan is possible.
            let has_values =
                !record.statement.parameters.is_empty() || !has_parameters(&record.statement.text);
            let mode = if has_values { PlanMode::Custom } else { PlanMode::Generic };
            match planner.explain(&record.statement, mode, &[], &[]) {
                Ok(plan) => self.add_plan(&mut plans, mode, plan, record),
                // Planning would take just as long with other values, so give up on this statement.
                Err(error) if !matches!(error, ExplainError::Refused { .. } | ExplainError::Utility) => {
                    return Err(error);
                }
                Err(error) => drop(refused.get_or_insert(error)),
            }
        }
        if let (true, Some(error)) = (plans.is_empty(), refused) {
            return Err(error);
        }
        let prepared = records.iter().max_by_key(|record| record.statement.prepared_runs);
        let prepared = prepared
            .filter(|record| record.statement.prepared_runs > 0 && !record.statement.parameters.is_empty());
        let mut generic = None;
        if let Some(record) = prepared
            && let Ok(plan) = planner.explain(&record.statement, PlanMode::Generic, &[], &[])
        {
            let custom: Vec<&Plan> = plans.iter().map(|(plan, _)| &plan.plan).collect();
            let chosen = is_chosen(&plan, &custom, record.statement.prepared_runs);
            let worst = custom
                .into_iter()
                .max_by(|left, right| left.root.total_cost.total_cmp(&right.root.total_cost));
            generic = worst.map(|worst| (plan.clone(), worst.clone()));
            if chosen {
                self.add_plan(&mut plans, PlanMode::Generic, plan, record);
            }
        }
        plans.sort_by(|left, right| right.0.plan.root.total_cost.total_cmp(&left.0.plan.root.total_cost));
        let (plans, questions) = plans.into_iter().unzip();
        let tests: BTreeSet<String> =
            group.records.iter().flat_map(|record| &record.tests).cloned().collect();
        Ok(Explained {
            statement: ExplainedStatement {
                normalized: group.normalized.to_owned(),
                runs: group.records.iter().map(|record| record.runs).sum(),
                tests: tests.into_iter().collect(),
                plans,
            },
            questions,
            values: group.records.iter().map(|record| &record.statement).collect(),
            generic,
        })
    }

    /// Adds a plan. If a plan of the same shape exists, merges their tests and keeps the more expensive plan.
    fn add_plan<'r>(
        &mut self,
        plans: &mut Vec<(ExplainedPlan, &'r BoundStatement)>,
        mode: PlanMode,
        plan: Plan,
        record: &'r SuiteStatement,
    ) {
        self.used.extend(plan.nodes().filter_map(|node| node.text("Index Name")).map(str::to_owned));
        let shape = Shape::of(&plan);
        let known = plans.iter_mut().find(|(known, _)| known.mode == mode && known.shape == shape);
        let Some((known, question)) = known else {
            let sequential = sequential_reads(&plan, self.tables);
            let mut tests = record.tests.clone();
            tests.sort();
            tests.dedup();
            plans.push((ExplainedPlan { mode, plan, shape, tests, sequential }, &record.statement));
            return;
        };
        known.tests.extend(record.tests.iter().cloned());
        known.tests.sort();
        known.tests.dedup();
        if plan.root.total_cost > known.plan.root.total_cost {
            known.sequential = sequential_reads(&plan, self.tables);
            known.plan = plan;
            *question = &record.statement;
        }
    }

    /// Finds problems in the plans, and indexes that solve them.
    fn judge(&mut self, cached: &mut CachedPlanner<'_>, explained: &[Explained<'_>]) {
        let mut items = Vec::new();
        let mut tests: Vec<BTreeSet<String>> = Vec::new();
        for (statement, group) in explained.iter().enumerate() {
            for (plan, question) in group.statement.plans.iter().zip(&group.questions) {
                items.push(Item::new(
                    statement,
                    (*question).clone(),
                    plan.mode,
                    plan.plan.clone(),
                    self.tables,
                ));
                tests.push(plan.tests.iter().cloned().collect());
            }
        }
        let checks = self.checks(cached, explained, &mut items, &mut tests);
        let mut found: Vec<Found> = Vec::new();
        for (place, item) in items.iter().enumerate() {
            let problems = match checks.get(&place) {
                Some(check) => vec![describe(check, self.tables)],
                None => self.problems(cached, item, &item.before),
            };
            found.extend(problems.into_iter().map(|problem| Found {
                problem,
                statement: item.statement,
                item: Some(place),
                tests: tests[place].clone(),
            }));
        }
        for (statement, group) in explained.iter().enumerate() {
            let generic = group.generic.as_ref();
            let text = group.values.first().map_or("", |statement| statement.text.as_str());
            let generic =
                generic.and_then(|(plan, custom)| expensive_generic(text, plan, custom, self.limits));
            let offset = growing_offset(cached, &group.values, self.limits);
            found.extend(generic.into_iter().chain(offset).map(|problem| Found {
                problem,
                statement,
                item: None,
                tests: group.statement.tests.iter().cloned().collect(),
            }));
        }
        let advice = advise(cached, &items, self.tables, self.limits);
        self.finish(cached, &items, found, &advice, &checks);
        let set = advice.set();
        for (place, item) in items.iter().enumerate() {
            let outcome = cached.outcome((place, item), &set, &[]);
            self.used.extend(outcome.into_iter().flat_map(|outcome| outcome.indexes));
        }
        let read: BTreeSet<usize> = items.iter().flat_map(|item| item.tables.iter().copied()).collect();
        self.analysis.unused = unused(&self.used, &read, self.tables);
        let replaced: BTreeSet<&String> =
            advice.suggestions.iter().flat_map(|suggestion| &suggestion.replaces).collect();
        self.analysis.unused.retain(|index| !replaced.contains(index));
        self.analysis.suggestions = advice.suggestions;
        self.analysis.notes.push(NOT_SEEN.to_owned());
        self.analysis.notes.extend(advice.notes);
    }

    fn note_skipped_values(&mut self) {
        let (limit, skipped) = (self.limits.value_sets, self.skipped_values);
        if skipped > 0 {
            self.analysis.notes.push(format!(
                "pgfresh explained at most {limit} value sets of a statement, and left out {skipped}"
            ));
        }
    }

    /// Adds an item for each foreign-key check that the plans cause. Returns the checks by the index of their item.
    fn checks(
        &self,
        cached: &mut CachedPlanner<'_>,
        explained: &[Explained<'_>],
        items: &mut Vec<Item>,
        tests: &mut Vec<BTreeSet<String>>,
    ) -> BTreeMap<usize, ForeignKeyCheck> {
        let mut found: BTreeMap<usize, ForeignKeyCheck> = BTreeMap::new();
        for (statement, group) in explained.iter().enumerate() {
            for (plan, question) in group.statement.plans.iter().zip(&group.questions) {
                for check in checks(&question.text, &plan.plan, self.tables, self.limits) {
                    let same =
                        |known: &&ForeignKeyCheck| (known.table, known.key) == (check.table, check.key);
                    if let Some(place) = found.iter().find(|(_, known)| same(known)).map(|(place, _)| *place)
                    {
                        tests[place].extend(plan.tests.iter().cloned());
                        continue;
                    }
                    let Some(before) = cached.ask(&check.question, PlanMode::Generic) else { continue };
                    if before.root.total_cost < self.limits.cost {
                        continue;
                    }
                    let question = check.question.clone();
                    let item = Item::new(statement, question, PlanMode::Generic, before, self.tables);
                    found.insert(items.len(), check);
                    items.push(Item { foreign_key: true, ..item });
                    tests.push(plan.tests.iter().cloned().collect());
                }
            }
        }
        found
    }

    fn problems(&self, cached: &mut CachedPlanner<'_>, item: &Item, plan: &Plan) -> Vec<Problem> {
        let mut found = problems(plan, self.tables, &item.question.settings, self.limits);
        found.extend(discarding(cached, item, plan, self.tables, self.limits));
        found
    }

    /// Turns problems into findings, and adds the index that solves a problem. Keeps one finding for each statement,
    /// kind and table.
    fn finish(
        &mut self,
        cached: &mut CachedPlanner<'_>,
        items: &[Item],
        found: Vec<Found>,
        advice: &Advice,
        checks: &BTreeMap<usize, ForeignKeyCheck>,
    ) {
        let set = advice.set();
        let mut merged: BTreeMap<(usize, PlanFindingKind, Option<String>), PlanFinding> = BTreeMap::new();
        let mut after: BTreeMap<usize, Option<Plan>> = BTreeMap::new();
        for Found { problem, statement, item, tests } in found {
            let mut finding = finding(problem.clone(), statement, tests, self.tables);
            if let Some(place) = item {
                let item = &items[place];
                finding.cost = item.before.root.total_cost;
                if let Some(weak) = advice.weak.get(&place)
                    && finding.change == NO_INDEX
                    && problem.table.is_some_and(|table| weak.tables.contains(&table))
                {
                    finding.change = too_weak(weak, finding.cost, self.limits);
                }
                let plan = after.entry(place).or_insert_with(|| {
                    let used = cached.settled((place, item), &set).map(|found| found.used);
                    used.filter(|used| !used.is_empty()).and_then(|used| cached.plan(item, &used, &[]))
                });
                if let Some(plan) = plan.clone() {
                    let still = |rest: &Problem| (rest.kind, rest.table) == (problem.kind, problem.table);
                    let pays = finding.cost - plan.root.total_cost >= self.limits.index_gain * finding.cost;
                    let is_solved = pays
                        && (checks.contains_key(&place)
                            || !self.problems(cached, item, &plan).iter().any(still));
                    if is_solved && let Some(solution) = self.solution(&plan, &problem, advice) {
                        let sql = solution.iter().map(|place| advice.suggestions[*place].sql.as_str());
                        finding.change = sql.collect::<Vec<_>>().join("; ");
                        finding.cost_after = Some(plan.root.total_cost);
                        finding.suggestions = solution;
                    }
                }
            }
            let key = (finding.statement, finding.kind, finding.table.clone());
            match merged.get_mut(&key) {
                None => drop(merged.insert(key, finding)),
                Some(known) => merge(known, finding),
            }
        }
        self.analysis.findings = merged.into_values().collect();
        self.analysis.findings.sort_by(|left, right| {
            let unsolved = |finding: &PlanFinding| finding.suggestions.is_empty();
            unsolved(left).cmp(&unsolved(right)).then(right.cost.total_cmp(&left.cost))
        });
    }

    /// Returns the suggestions that `plan` uses, those on the problem's table first. `None` if the problem has a table but
    /// no suggestion is on it.
    fn solution(&self, plan: &Plan, problem: &Problem, advice: &Advice) -> Option<Vec<usize>> {
        let name = problem.table.map(|place| self.tables.table(place));
        let name = name.map(|table| short_name(&table.schema, &table.name));
        let used = crate::workload::Outcome::of(plan).used;
        let (own, others): (Vec<usize>, Vec<usize>) = advice
            .places(&used)
            .into_iter()
            .partition(|place| name.as_ref().is_none_or(|name| *name == advice.suggestions[*place].table));
        (!own.is_empty()).then(|| [own, others].concat())
    }
}

fn finding(problem: Problem, statement: usize, tests: BTreeSet<String>, tables: &Tables<'_>) -> PlanFinding {
    let table = problem.table.map(|place| tables.table(place));
    PlanFinding {
        kind: problem.kind,
        statement,
        tests: tests.into_iter().collect(),
        node: problem.node,
        table: table.map(|table| short_name(&table.schema, &table.name)),
        rows: problem.rows,
        bytes: whole(problem.bytes),
        cost: problem.costs.map_or(0.0, |(before, _)| before),
        cost_after: problem.costs.map(|(_, after)| after),
        seconds: problem.seconds,
        evidence: problem.evidence,
        change: problem.change,
        suggestions: Vec::new(),
    }
}

/// Explains why pgfresh doesn't suggest indexes that the planner uses.
fn too_weak(weak: &WeakIndexes, before: f64, limits: &Limits) -> String {
    let WeakIndexes { sql, cost: after, .. } = weak;
    let saved = percent((before - after) / before);
    let (before, after) = (cost(before), cost(*after));
    let least = percent(limits.index_gain);
    format!(
        "{sql} saves only {saved} of the cost ({before} → {after}). pgfresh suggests an index that saves at least {least}."
    )
}

/// Keeps the more important of two findings, with the tests of both.
fn merge(known: &mut PlanFinding, other: PlanFinding) {
    let tests: BTreeSet<String> = known.tests.iter().chain(&other.tests).cloned().collect();
    // A finding without a solution outranks a finding with one, because the problem remains after all indexes have been
    // created.
    let rank = |finding: &PlanFinding| (finding.suggestions.is_empty(), finding.cost);
    if rank(&other).partial_cmp(&rank(known)) == Some(std::cmp::Ordering::Greater) {
        *known = other;
    }
    known.tests = tests.into_iter().collect();
}
