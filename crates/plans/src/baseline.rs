//! Stores the shapes of all plans in a baseline file for git, and compares later runs with it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Analysis, ExplainedStatement};

/// Version of the file format.
const FORMAT: u32 = 1;
/// Line that separates two shapes of the same statement.
const OR: &str = "or";

/// Lines of a shape.
type Lines = Vec<String>;

/// The shapes of a suite's plans.
///
/// The file is JSON with sorted keys and one line for each plan node, so that a diff shows which nodes changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Baseline {
    /// Day on which the statistics were read, such as `2026-11-20`.
    pub statistics: String,
    /// Major version of PostgreSQL that chose the plans.
    pub postgres: u32,
    /// Shapes by normalized statement. A statement whose plan depends on its values has several shapes.
    shapes: BTreeMap<String, BTreeSet<Lines>>,
}

/// Contents of a file. The fields are sorted by name, because they are written in this order.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    plans: BTreeMap<String, Lines>,
    postgres: u32,
    statistics: String,
}

/// Reason why a text isn't a baseline.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// The text isn't JSON, or a field is missing.
    #[error("it is not a plan baseline: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The file has an unknown format version, so a newer pgfresh has written it.
    #[error("its format is {0}, and this pgfresh reads format {FORMAT}")]
    Format(u32),
}

/// Differences between a run and its baseline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BaselineChanges {
    /// Day on which the baseline's statistics were read.
    pub statistics: String,
    /// Major version of PostgreSQL in the baseline.
    pub postgres: u32,
    /// Statements that have a plan whose shape isn't in the baseline.
    pub changed: Vec<ChangedPlan>,
    /// Statements that aren't in the baseline.
    pub new: Vec<ChangedPlan>,
    /// Statements that are in the baseline but not in the run.
    pub vanished: Vec<ChangedPlan>,
}

/// A statement whose plans differ from those in the baseline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedPlan {
    /// Normalized text.
    pub statement: String,
    /// Names of the tests that ran the statement. Empty if the run doesn't contain the statement.
    pub tests: Vec<String>,
    /// Lines of the shapes in the baseline. The line `or` separates shapes. Empty if the baseline doesn't contain the
    /// statement.
    pub before: Vec<String>,
    /// Lines of the shapes in this run, in the same form.
    pub after: Vec<String>,
}

impl Baseline {
    /// Returns the shapes of an analysis.
    #[must_use]
    pub fn of(analysis: &Analysis, statistics: String, postgres: u32) -> Self {
        let statements = analysis.statements.iter();
        let shapes = statements.map(|statement| (statement.normalized.clone(), shapes(statement))).collect();
        Self { statistics, postgres, shapes }
    }

    /// Parses the contents of a baseline file.
    ///
    /// # Errors
    ///
    /// Returns an error if the text isn't a baseline, or if a newer pgfresh wrote it.
    pub fn parse(text: &str) -> Result<Self, BaselineError> {
        /// The only field that exists in all versions of the format.
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let Version { format } = serde_json::from_str(text)?;
        if format != FORMAT {
            return Err(BaselineError::Format(format));
        }
        let File { plans, postgres, statistics, .. } = serde_json::from_str(text)?;
        let split = |lines: Lines| lines.split(|line| line == OR).map(<[_]>::to_vec).collect();
        let shapes = plans.into_iter().map(|(statement, lines)| (statement, split(lines))).collect();
        Ok(Self { statistics, postgres, shapes })
    }

    /// Returns the contents of a baseline file. Equal baselines produce equal files.
    ///
    /// # Panics
    ///
    /// Never panics, because all keys are strings.
    #[must_use]
    pub fn to_json(&self) -> String {
        let plans = self.shapes.iter().map(|(statement, shapes)| (statement.clone(), join(shapes))).collect();
        let Self { statistics, postgres, .. } = self;
        let file = File { format: FORMAT, plans, postgres: *postgres, statistics: statistics.clone() };
        serde_json::to_string_pretty(&file).expect("all keys are strings") + "\n"
    }

    /// Compares the plans in `analysis` with this baseline.
    #[must_use]
    pub fn changes(&self, analysis: &Analysis) -> BaselineChanges {
        let mut changes = BaselineChanges {
            statistics: self.statistics.clone(),
            postgres: self.postgres,
            ..BaselineChanges::default()
        };
        let mut vanished = self.shapes.clone();
        for statement in &analysis.statements {
            let (before, after) = (vanished.remove(&statement.normalized), shapes(statement));
            let change = |before: &BTreeSet<Lines>| ChangedPlan {
                statement: statement.normalized.clone(),
                tests: statement.tests.clone(),
                before: join(before),
                after: join(&after),
            };
            match before {
                None => changes.new.push(change(&BTreeSet::new())),
                Some(before) if !after.is_subset(&before) => changes.changed.push(change(&before)),
                Some(_) => {}
            }
        }
        let vanished = vanished.into_iter().map(|(statement, shapes)| ChangedPlan {
            statement,
            tests: Vec::new(),
            before: join(&shapes),
            after: Vec::new(),
        });
        changes.vanished = vanished.collect();
        for list in [&mut changes.changed, &mut changes.new] {
            list.sort_by(|one, other| one.statement.cmp(&other.statement));
        }
        changes
    }
}

fn shapes(statement: &ExplainedStatement) -> BTreeSet<Lines> {
    statement.plans.iter().map(|plan| plan.shape.lines().to_vec()).collect()
}

fn join(shapes: &BTreeSet<Lines>) -> Lines {
    let shapes: Vec<_> = shapes.iter().map(Vec::as_slice).collect();
    shapes.join(&OR.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ExplainedPlan, Plan, PlanMode, Shape};

    fn plan(kind: &str, table: &str) -> ExplainedPlan {
        let plan = json!([{ "Plan": {
            "Node Type": "Limit", "Startup Cost": 0.0, "Total Cost": 1.0, "Plan Rows": 1, "Plan Width": 4,
            "Plans": [{
                "Node Type": kind, "Relation Name": table, "Startup Cost": 0.0, "Total Cost": 1.0, "Plan Rows": 1,
                "Plan Width": 4,
            }],
        }}]);
        let plan = Plan::parse(&plan).unwrap();
        let shape = Shape::of(&plan);
        ExplainedPlan { mode: PlanMode::Custom, plan, shape, tests: Vec::new(), sequential: Vec::new() }
    }

    fn analysis(statements: &[(&str, &[&str])]) -> Analysis {
        let statements = statements.iter().map(|(text, kinds)| ExplainedStatement {
            normalized: (*text).to_owned(),
            runs: 1,
            tests: vec!["test".to_owned()],
            plans: kinds.iter().map(|kind| plan(kind, "t")).collect(),
        });
        Analysis { statements: statements.collect(), ..Analysis::default() }
    }

    fn baseline(statements: &[(&str, &[&str])]) -> Baseline {
        let baseline = Baseline::of(&analysis(statements), "2026-11-20".to_owned(), 15);
        Baseline::parse(&baseline.to_json()).unwrap()
    }

    #[test]
    fn file_is_sorted_with_a_line_per_node() {
        let text = baseline(&[("b", &["Seq Scan"]), ("a", &["Seq Scan", "Index Scan"])]).to_json();
        let expected = r#"{
  "format": 1,
  "plans": {
    "a": [
      "Limit",
      "  Index Scan on t",
      "or",
      "Limit",
      "  Seq Scan on t"
    ],
    "b": [
      "Limit",
      "  Seq Scan on t"
    ]
  },
  "postgres": 15,
  "statistics": "2026-11-20"
}
"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn changes_name_both_plans() {
        let before = baseline(&[
            ("changed", &["Index Scan"]),
            ("one of two", &["Index Scan", "Seq Scan"]),
            ("same", &["Seq Scan"]),
            ("vanished", &["Seq Scan"]),
        ]);
        let after = analysis(&[
            ("new", &["Seq Scan"]),
            ("changed", &["Seq Scan"]),
            ("one of two", &["Seq Scan"]),
            ("same", &["Seq Scan"]),
        ]);
        let changes = before.changes(&after);
        let names = |list: &[ChangedPlan]| list.iter().map(|one| one.statement.clone()).collect::<Vec<_>>();
        let lists = [&changes.changed, &changes.new, &changes.vanished].map(|list| names(list));
        assert_eq!(lists, [["changed"], ["new"], ["vanished"]]);
        let ChangedPlan { before, after, tests, .. } = &changes.changed[0];
        let nodes = |scan: &str| ["Limit".to_owned(), format!("  {scan} on t")];
        assert_eq!((&before[..], &after[..]), (&nodes("Index Scan")[..], &nodes("Seq Scan")[..]));
        assert_eq!(tests, &["test"]);
    }

    #[test]
    fn other_files_are_refused() {
        let error = |text: &str| Baseline::parse(text).unwrap_err().to_string();
        assert!(error("{").starts_with("it is not a plan baseline"));
        assert!(error("{}").contains("format"));
        assert_eq!(error(r#"{"format": 2}"#), "its format is 2, and this pgfresh reads format 1");
        assert!(error(r#"{"format": 1, "plans": {}}"#).contains("postgres"));
    }
}
