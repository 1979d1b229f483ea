//! Account of an import: which statistics found their place in the scratch copy, and which did not.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// Number of objects that a summary names for each reason.
const NAMED: usize = 3;

/// Statistics that the scratch copy has, and those that it lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Number of tables that have production's size.
    pub tables: u64,
    /// Number of indexes that have production's size.
    pub indexes: u64,
    /// Number of columns and index expressions that have production's statistics.
    pub columns: u64,
    /// Number of extended statistics objects that have production's statistics.
    pub extended: u64,
    /// Size of all these tables and indexes in production, in bytes.
    pub bytes: u64,
    /// Objects that lack some statistics, in the order of the import.
    pub left_out: Vec<UnappliedObject>,
}

/// An object that lacks some of production's statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnappliedObject {
    /// Name of the table, index, column, statistics object or setting, such as `shop.orders.status`.
    pub object: String,
    /// Why it lacks them.
    pub reason: Reason,
}

/// Reason why statistics have no place in the scratch copy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Only production has the table.
    TableOnlyInProduction,
    /// Only the template has the table, so it is empty in the scratch copy.
    TableOnlyInTemplate,
    /// Only production has the index.
    IndexOnlyInProduction,
    /// Only the template has the index. pgfresh estimates its size.
    IndexOnlyInTemplate,
    /// Only production has the column.
    ColumnOnlyInProduction,
    /// Only the template has the column, so the planner assumes defaults.
    ColumnOnlyInTemplate,
    /// One side has a table and the other one a partitioned table, or a view.
    Kind,
    /// The indexes of this name have different definitions. pgfresh estimates the size.
    Definition,
    /// The types differ, and values of the one have no meaning in the other.
    Type {
        /// Type in production.
        production: String,
        /// Type in the template.
        template: String,
    },
    /// PostgreSQL refuses a value.
    Refused(String),
    /// The statistics contradict themselves, for example because they have more values than frequencies.
    Invalid(Cow<'static, str>),
    /// pgfresh cannot write statistics of this kind.
    Unsupported(&'static str),
    /// Only production has the extended statistics object, or its columns differ.
    ExtendedOnlyInProduction,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TableOnlyInProduction => f.write_str("only production has the table"),
            Self::TableOnlyInTemplate => {
                f.write_str("only the template has the table, so it counts as empty")
            }
            Self::IndexOnlyInProduction => f.write_str("only production has the index"),
            Self::IndexOnlyInTemplate => {
                f.write_str("only the template has the index, so its size is estimated")
            }
            Self::ColumnOnlyInProduction => f.write_str("only production has the column"),
            Self::ColumnOnlyInTemplate => {
                f.write_str("only the template has the column, so the planner assumes defaults")
            }
            Self::Kind => f.write_str("production has another kind of relation under this name"),
            Self::Definition => {
                f.write_str("production defines this index differently, so its size is estimated")
            }
            Self::Type { production, template } => {
                write!(
                    f,
                    "production has type {production} and the template {template}, so values are left out"
                )
            }
            Self::Refused(message) => write!(f, "PostgreSQL refuses it: {message}"),
            Self::Invalid(why) => write!(f, "the statistics contradict themselves: {why}"),
            Self::Unsupported(kind) => write!(f, "pgfresh cannot write {kind}"),
            Self::ExtendedOnlyInProduction => {
                f.write_str("the template lacks this statistics object, or its columns differ")
            }
        }
    }
}

impl Applied {
    pub(crate) fn leave_out(&mut self, object: impl Into<String>, reason: Reason) {
        self.left_out.push(UnappliedObject { object: object.into(), reason });
    }

    /// Returns a line for each reason, with the number of objects and the names of some.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let mut by_reason: BTreeMap<&Reason, Vec<&str>> = BTreeMap::new();
        for UnappliedObject { object, reason } in &self.left_out {
            by_reason.entry(reason).or_default().push(object);
        }
        let line = |(reason, objects): (&Reason, Vec<&str>)| {
            let named = objects.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
            let more = objects.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{named}{more}: {reason}")
        };
        by_reason.into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_groups_objects_by_reason() {
        let mut applied = Applied::default();
        for name in ["a", "b", "c", "d"] {
            applied.leave_out(format!("public.{name}"), Reason::TableOnlyInProduction);
        }
        applied.leave_out("public.e.x", Reason::Invalid("it has more values than frequencies".into()));
        assert_eq!(
            applied.summary(),
            [
                "public.a, public.b, public.c and 1 more: only production has the table",
                "public.e.x: the statistics contradict themselves: it has more values than frequencies",
            ]
        );
    }
}
