//! Lists which of production's statistics the scratch copy received, and which it lacks.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of objects that a summary names for each reason.
const NAMED: usize = 3;

/// Statistics that the scratch copy received, and objects that lack some of their statistics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Number of tables with production's size.
    pub tables: u64,
    /// Number of indexes with production's size.
    pub indexes: u64,
    /// Number of columns and index expressions with production's statistics.
    pub columns: u64,
    /// Number of extended statistics objects with production's statistics.
    pub extended: u64,
    /// Total size in production of the tables and indexes counted here, in bytes.
    pub bytes: u64,
    /// Objects that lack some statistics, in import order.
    pub left_out: Vec<UnappliedObject>,
}

/// An object that lacks some of production's statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnappliedObject {
    /// Name of the table, index, column, statistics object or setting, such as `shop.orders.status`.
    pub object: String,
    /// Why the object lacks statistics.
    pub reason: Reason,
}

/// Reason why the scratch copy lacks an object's statistics.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The table only exists in production.
    TableOnlyInProduction,
    /// The table only exists in the template, so it is empty in the scratch copy.
    TableOnlyInTemplate,
    /// The index only exists in production.
    IndexOnlyInProduction,
    /// The index only exists in the template, so pgfresh estimates its size.
    IndexOnlyInTemplate,
    /// The column only exists in production.
    ColumnOnlyInProduction,
    /// The column only exists in the template, so the planner assumes default statistics.
    ColumnOnlyInTemplate,
    /// The kinds differ. For example, a table in production is a partitioned table or a view in the template.
    Kind,
    /// Both sides have an index with this name, but their definitions differ, so pgfresh estimates its size.
    Definition,
    /// The types differ, and values of one type can't be used as values of the other.
    Type {
        /// Type in production.
        production: String,
        /// Type in the template.
        template: String,
    },
    /// PostgreSQL rejects a value. Contains its message.
    Refused(String),
    /// The statistics are inconsistent. For example, they have more values than frequencies.
    Invalid(Cow<'static, str>),
    /// The setting isn't one of the planner's settings, or its value can't be one of them.
    Setting,
    /// pgfresh doesn't support this kind of statistics.
    Unsupported(&'static str),
    /// The extended statistics object only exists in production, or its columns differ.
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
            Self::Kind => f.write_str("production has a different kind of relation with this name"),
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
            Self::Setting => f.write_str("pgfresh applies only planner settings with plausible values"),
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

    /// Returns one line for each reason, with the number of objects and some of their names.
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
