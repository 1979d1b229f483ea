//! Prints the differences between databases, except for those in the bookkeeping tables of migration tools.

use std::io;

use contract::{DatabaseDiff, ObjectChange};
use diff::{DiffLimits, format_diff, summarize};
use server::AdminConnection;

use crate::failure::Failure;
use crate::output::{print, print_line};

/// Output width in columns if standard output isn't a terminal.
const USUAL_WIDTH: usize = 100;
/// Differences between databases, without those in bookkeeping tables.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) diff: DatabaseDiff,
    /// Number of differences in bookkeeping tables.
    left_out: usize,
}

impl Difference {
    /// Compares two databases. `before` is the older or expected database.
    pub(super) fn between(before: AdminConnection, after: AdminConnection) -> Result<Self, Failure> {
        let compared = diff::compare(before, after, &DiffLimits::default());
        let compared = compared.map_err(|error| {
            Failure::new(format!("could not compare the databases: {error}")).detail(error.detail())
        })?;
        Ok(Self::without_lists(compared))
    }

    fn without_lists(mut diff: DatabaseDiff) -> Self {
        let all = diff.schema.len() + diff.sequences.len() + diff.tables.len();
        diff.schema.retain(|object| !is_of_list(&object.name));
        let all = all - diff.schema.iter().filter(|object| is_renumbered(object)).count();
        diff.schema.retain(|object| !is_renumbered(object));
        diff.sequences.retain(|sequence| !is_of_list(&sequence.name));
        diff.tables.retain(|table| !is_of_list(&table.table));
        let left = diff.schema.len() + diff.sequences.len() + diff.tables.len();
        Self { diff, left_out: all - left }
    }

    /// Prints the differences under the title `differs`, or prints `equal` if there are none.
    pub(super) fn show(&self, differs: &str, equal: &str) {
        if self.diff.is_empty() {
            print_line!("{equal}");
        } else {
            print_line!("{differs}: {}\n", summarize(&self.diff));
        }
        print(format_diff(&self.diff, sys::terminal_width(io::stdout()).unwrap_or(USUAL_WIDTH)));
        if self.left_out > 0 {
            let number = self.left_out;
            let differences = if number == 1 { "difference" } else { "differences" };
            print_line!("left out: {number} {differences} in the migration tool's own list");
        }
    }

    /// Returns true if any definitions differ.
    pub(super) fn has_definitions(&self) -> bool {
        !self.diff.schema.is_empty() || self.diff.schema_left_out > 0
    }
}

/// Returns true if columns only differ in their numbers, which have gaps where columns were dropped.
fn is_renumbered(object: &ObjectChange) -> bool {
    let is_same = object.old.is_none() && object.new.is_none() && !object.columns.is_empty();
    is_same && object.columns.iter().all(|column| column.column == "attnum")
}

/// Returns true if an object is a migration tool's bookkeeping table or belongs to one. The name of a dependent object
/// is the table's name with a suffix, such as `knex_migrations_id_seq`.
fn is_of_list(name: &str) -> bool {
    let words = name.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let mut words = words.filter(|word| !word.is_empty());
    let suffixes = ["", "_pkey", "_pkc", "_id_seq", "_s_idx", "_key", "_name_key", "_lock_index_seq"];
    words.any(|word| {
        migrations::tables_of_tools()
            .any(|list| word.strip_prefix(list).is_some_and(|rest| suffixes.contains(&rest)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_tools_are_known_by_name() {
        for name in [
            "public.alembic_version",
            "public.knex_migrations_id_seq",
            "\"public\".\"SequelizeMeta\"",
            "column public.flyway_schema_history.checksum",
            "flyway_schema_history_s_idx on public.flyway_schema_history",
        ] {
            assert!(is_of_list(name), "{name}");
        }
        for name in ["public.orders", "public.migrations_of_birds", "public.my_alembic_versions"] {
            assert!(!is_of_list(name), "{name}");
        }
    }
}
