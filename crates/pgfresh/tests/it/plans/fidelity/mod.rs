//! Tests that plans from statistics alone have the same shapes and costs as plans from data.
//!
//! `schema.sql` is the template, `production.sql` fills it, and `statements.txt` contains statements with
//! alternatives. The test imports the statistics into a scratch copy, and compares each statement's plans.

use std::collections::{BTreeMap, BTreeSet};

use plans::{BoundStatement, PlanMode, Scratch};
use serde_json::Value;

use super::production::Production;
use crate::common::depth::rounds;
use crate::common::majors;
use crate::common::random::Random;

const SCHEMA: &str = include_str!("schema.sql");
const DATA: &str = include_str!("production.sql");
const STATEMENTS: &str = include_str!("statements.txt");
/// Extension that the import needs to read B-tree heights.
const HEIGHTS: &str = "CREATE EXTENSION pageinspect";
/// Minimum share of statements whose plans have the same shape.
const SAME_SHAPE: f64 = 0.98;
/// Maximum relative difference between the costs of plans with the same shape.
const SAME_COST: f64 = 0.01;

/// Statement to compare.
struct Case {
    text: String,
    role: Option<&'static str>,
    generic: bool,
}

impl Case {
    /// Selects random alternatives in a line.
    fn draw(line: &str, random: &mut Random) -> Self {
        let (role, line) = match line.strip_prefix("reader: ") {
            Some(rest) => (Some("reader"), rest),
            None => (None, line),
        };
        let (generic, line) = match line.strip_prefix("generic: ") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (mut text, mut rest) = (String::new(), line);
        while let Some((before, after)) = rest.split_once('{') {
            let (choice, after) = after.split_once('}').unwrap();
            text += before;
            if choice.contains('{') {
                // This is an array or JSON literal that contains alternatives.
                text.push('{');
                rest = &rest[before.len() + 1..];
                continue;
            }
            if let Some((low, high)) = choice.split_once("..") {
                let (low, high): (i64, i64) = (low.parse().unwrap(), high.parse().unwrap());
                let span = usize::try_from(high - low + 1).unwrap();
                text += &(low + i64::try_from(random.below(span)).unwrap()).to_string();
            } else {
                let choices: Vec<&str> = choice.split('|').collect();
                text += random.choose::<&str>(&choices);
            }
            rest = after;
        }
        text += rest;
        Self { text, role, generic }
    }

    fn on_production(&self, production: &mut Production) -> Value {
        let mut begin = String::from("BEGIN;");
        if let Some(role) = self.role {
            begin += &format!("SET LOCAL ROLE {role};");
        }
        if self.generic {
            begin += &format!("SET LOCAL plan_cache_mode = force_generic_plan; PREPARE p AS {};", self.text);
        }
        production.session.query(&begin).unwrap_or_else(|error| panic!("{}: {error}", self.text));
        let text = if self.generic {
            let count = (1..9).filter(|number| self.text.contains(&format!("${number}"))).count();
            format!("EXECUTE p ({})", vec!["NULL"; count].join(", "))
        } else {
            self.text.clone()
        };
        let plan = production.explain_json(&text);
        let end = if self.generic { "ROLLBACK; DEALLOCATE p" } else { "ROLLBACK" };
        production.session.query(end).unwrap();
        plan
    }

    fn on_scratch(&self, scratch: &mut Scratch) -> Value {
        let role = self.role.map(|role| ("role".to_owned(), role.to_owned()));
        let statement = BoundStatement {
            text: self.text.clone(),
            settings: role.into_iter().collect(),
            ..BoundStatement::default()
        };
        let mode = if self.generic { PlanMode::Generic } else { PlanMode::Custom };
        scratch.explain_json(&statement, mode).unwrap_or_else(|refusal| panic!("{}: {refusal:?}", self.text))
    }
}

/// Returns the kinds, tables and indexes of a plan's nodes.
fn shape(node: &Value) -> Value {
    let names = [
        "Node Type",
        "Relation Name",
        "Index Name",
        "Join Type",
        "Strategy",
        "Scan Direction",
        "Partial Mode",
    ];
    let mut shape: Vec<Value> = names.iter().map(|name| node[name].clone()).collect();
    shape.extend(node["Plans"].as_array().into_iter().flatten().map(self::shape));
    Value::Array(shape)
}

/// Sorts each node's output columns. Production has dropped a column and added it again, so `SELECT *` has a
/// different order there.
fn sort_output(node: &mut Value) {
    if let Some(columns) = node["Output"].as_array_mut() {
        columns.sort_by_key(Value::to_string);
    }
    node["Plans"].as_array_mut().into_iter().flatten().for_each(sort_output);
}

/// Returns the names of the properties that differ.
fn differing(one: &Value, other: &Value) -> BTreeSet<String> {
    let names = one.as_object().into_iter().chain(other.as_object()).flatten().map(|(name, _)| name);
    let names: BTreeSet<String> =
        names.filter(|name| *name != "Plans" && one[*name] != other[*name]).cloned().collect();
    let children = [one, other].map(|node| node["Plans"].as_array().into_iter().flatten());
    let [ones, others] = children;
    ones.zip(others).fold(names, |names, (one, other)| &names | &differing(one, other))
}

/// Differences between all statements' plans on one major.
#[derive(Default)]
struct Outcome {
    statements: usize,
    other_shape: Vec<String>,
    other_cost: Vec<String>,
    identical: usize,
    /// Number of plans whose shape is the same but whose properties differ, by the set of properties.
    properties: BTreeMap<BTreeSet<String>, usize>,
}

impl Outcome {
    fn compare(&mut self, case: &Case, production: &Value, scratch: &Value) {
        let plans = [production, scratch].map(|plan| {
            let mut plan = plan[0]["Plan"].clone();
            sort_output(&mut plan);
            plan
        });
        self.statements += 1;
        if plans[0] == plans[1] {
            self.identical += 1;
            return;
        }
        let [expected, found] = [0, 1].map(|at| plans[at]["Total Cost"].as_f64().unwrap());
        let line = format!("{expected} {found} {}", case.text);
        if shape(&plans[0]) != shape(&plans[1]) {
            self.other_shape.push(format!("{line}\n{}\n{}", shape(&plans[0]), shape(&plans[1])));
            return;
        }
        *self.properties.entry(differing(&plans[0], &plans[1])).or_default() += 1;
        if (expected - found).abs() > SAME_COST * expected {
            self.other_cost.push(line);
        } else {
            println!("within 1 %: {line}");
        }
    }
}

#[test]
fn plans_from_statistics_equal_plans_from_data() {
    for major in majors() {
        let mut production = Production::new(major, SCHEMA, DATA);
        if let Err(error) = production.session.query(HEIGHTS) {
            println!("PostgreSQL {major}: heights of B-trees are estimated: {error}");
        }
        let statistics = production.statistics();
        let (mut scratch, applied) = production.scratch(&statistics);
        println!("PostgreSQL {major}: {:?}", applied.summary());
        let (mut random, mut outcome) = (Random::seeded(u64::from(major)), Outcome::default());
        for _ in 0..rounds(1) {
            for line in STATEMENTS.lines().filter(|line| !line.starts_with('#')) {
                let case = Case::draw(line, &mut random);
                let expected = case.on_production(&mut production);
                outcome.compare(&case, &expected, &case.on_scratch(&mut scratch));
            }
        }
        let Outcome { statements, other_shape, other_cost, identical, properties } = outcome;
        println!("properties that differ, and in how many plans: {properties:?}");
        println!(
            "PostgreSQL {major}: {statements} statements, {identical} plans identical, {} with another shape, {} with a cost beyond 1 %",
            other_shape.len(),
            other_cost.len()
        );
        let differences = format!("shapes:\n{}\ncosts:\n{}", other_shape.join("\n"), other_cost.join("\n"));
        println!("{differences}");
        #[allow(clippy::cast_precision_loss)]
        let part = |count: usize| count as f64 / statements as f64;
        assert!(part(statements - other_shape.len()) >= SAME_SHAPE, "{differences}");
        assert!(part(statements - other_shape.len() - other_cost.len()) >= SAME_SHAPE, "{differences}");
    }
}
