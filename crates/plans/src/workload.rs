//! Computes what each plan of a suite would cost with a given set of candidate indexes.

use std::collections::{BTreeSet, HashMap};

use crate::tables::Tables;
use crate::{BoundStatement, CandidateId, Node, Plan, PlanMode, Planner};

/// A plan to improve.
#[derive(Debug)]
pub(crate) struct Item {
    /// Index of the statement in [`crate::Analysis::statements`].
    pub(crate) statement: usize,
    /// Text and values to explain.
    pub(crate) question: BoundStatement,
    pub(crate) mode: PlanMode,
    /// Plan without candidate indexes.
    pub(crate) before: Plan,
    /// Whether `question` is a foreign-key check that the statement causes, not the statement itself.
    pub(crate) foreign_key: bool,
    /// Places of the tables that the plan reads. Partitions count as part of their outermost partitioned table.
    pub(crate) tables: BTreeSet<usize>,
    /// Places of the tables that the statement inserts rows into or updates.
    pub(crate) writes: BTreeSet<usize>,
}

impl Item {
    /// Creates an item from a plan without candidate indexes.
    pub(crate) fn new(
        statement: usize,
        question: BoundStatement,
        mode: PlanMode,
        before: Plan,
        tables: &Tables<'_>,
    ) -> Self {
        let is_write = |node: &&Node| node.kind == "ModifyTable" && node.text("Operation") != Some("Delete");
        let places = |writes: bool| -> BTreeSet<usize> {
            let nodes = before.nodes().filter(|node| !writes || is_write(node));
            nodes.filter_map(|node| tables.of_node(node)).map(|place| tables.root(place)).collect()
        };
        let (tables, writes) = (places(false), places(true));
        Self { statement, question, mode, before, foreign_key: false, tables, writes }
    }
}

/// Cost and indexes of an item's plan with certain candidates.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) cost: f64,
    /// Candidates that the plan uses.
    pub(crate) used: BTreeSet<CandidateId>,
    /// Candidates whose row sets the plan intersects, for each intersection of several candidates.
    pub(crate) intersected: Vec<BTreeSet<CandidateId>>,
    /// Names of all indexes that the plan uses.
    pub(crate) indexes: BTreeSet<String>,
}

impl Outcome {
    pub(crate) fn of(plan: &Plan) -> Self {
        let indexes: BTreeSet<String> =
            plan.nodes().filter_map(|node| node.text("Index Name")).map(str::to_owned).collect();
        let used = indexes.iter().filter_map(|name| CandidateId::of_index(name)).collect();
        let intersections = plan.nodes().filter(|node| node.kind == "BitmapAnd").map(candidates);
        let intersected = intersections.filter(|candidates| candidates.len() > 1).collect();
        Self { cost: plan.root.total_cost, used, intersected, indexes }
    }
}

/// Returns the candidates that a node and its children search.
fn candidates(node: &Node) -> BTreeSet<CandidateId> {
    let own = node.text("Index Name").and_then(CandidateId::of_index);
    own.into_iter().chain(node.children.iter().flat_map(candidates)).collect()
}

type Question = (usize, Vec<CandidateId>, Vec<(String, String)>);

/// A planner that caches the outcome for each set of indexes, and only explains a limited number of statements.
pub(crate) struct CachedPlanner<'a> {
    planner: &'a mut dyn Planner,
    answers: HashMap<Question, Option<Outcome>>,
    /// Place of each candidate's table.
    homes: HashMap<CandidateId, usize>,
    left: usize,
}

impl<'a> CachedPlanner<'a> {
    /// Creates a planner that explains at most `limit` statements.
    pub(crate) fn new(planner: &'a mut dyn Planner, limit: usize) -> Self {
        Self { planner, answers: HashMap::new(), homes: HashMap::new(), left: limit }
    }

    /// Returns the underlying planner. Its results are neither cached nor counted.
    pub(crate) fn planner(&mut self) -> &mut dyn Planner {
        self.planner
    }

    /// Returns true if the limit has been reached.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.left == 0
    }

    /// Records that `candidate` is an index on `table`, given by its place in the catalog.
    pub(crate) fn home(&mut self, candidate: CandidateId, table: usize) {
        self.homes.insert(candidate, table);
    }

    /// Explains a statement that pgfresh wrote. Returns `None` if there is no plan or the limit has been reached.
    pub(crate) fn ask(&mut self, question: &BoundStatement, mode: PlanMode) -> Option<Plan> {
        self.left = self.left.checked_sub(1)?;
        self.planner.explain(question, mode, &[], &[]).ok()
    }

    /// Returns an item's plan with the candidates in `visible` and without the existing indexes in `hidden`.
    pub(crate) fn plan(
        &mut self,
        item: &Item,
        visible: &BTreeSet<CandidateId>,
        hidden: &[(String, String)],
    ) -> Option<Plan> {
        let visible = self.relevant(item, visible);
        self.left = self.left.checked_sub(1)?;
        self.planner.explain(&item.question, item.mode, &visible, hidden).ok()
    }

    /// Returns an item's cost with the candidates in `visible` and without the existing indexes in `hidden`.
    pub(crate) fn outcome(
        &mut self,
        (place, item): (usize, &Item),
        visible: &BTreeSet<CandidateId>,
        hidden: &[(String, String)],
    ) -> Option<Outcome> {
        let visible = self.relevant(item, visible);
        if visible.is_empty() && hidden.is_empty() {
            return Some(Outcome::of(&item.before));
        }
        let question = (place, visible, hidden.to_vec());
        if let Some(answer) = self.answers.get(&question) {
            return answer.clone();
        }
        self.left = self.left.checked_sub(1)?;
        let plan = self.planner.explain(&item.question, item.mode, &question.1, hidden);
        let outcome = plan.ok().map(|plan| Outcome::of(&plan));
        self.answers.insert(question, outcome.clone());
        outcome
    }

    /// Returns an item's cost with exactly those candidates in `visible` that its plan uses.
    pub(crate) fn settled(
        &mut self,
        (place, item): (usize, &Item),
        visible: &BTreeSet<CandidateId>,
    ) -> Option<Outcome> {
        let mut outcome = self.outcome((place, item), visible, &[])?;
        loop {
            let exact = self.outcome((place, item), &outcome.used, &[])?;
            if exact.used.len() == outcome.used.len() {
                return Some(exact);
            }
            outcome = exact;
        }
    }

    /// Returns the visible candidates on the item's tables. Other candidates can't change its plan.
    fn relevant(&self, item: &Item, visible: &BTreeSet<CandidateId>) -> Vec<CandidateId> {
        let is_relevant =
            |id: &&CandidateId| self.homes.get(id).is_some_and(|home| item.tables.contains(home));
        visible.iter().filter(is_relevant).copied().collect()
    }
}
