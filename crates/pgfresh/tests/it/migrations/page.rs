//! Reads the examples in docs/migrations.md: each code block in a section has dangerous
//! statements and a safe sequence.

use migrations::AdviceTopic;
use pgwire::split_statements;

pub(super) const PAGE: &str = include_str!("../../../../../docs/migrations.md");

/// Statements in a migration. With `knows_suite`, none of the suite's statements fails after the migration.
pub(super) struct Migration {
    pub(super) statements: Vec<String>,
    pub(super) knows_suite: bool,
}

/// Part of a code block on the page.
pub(super) struct Example {
    pub(super) heading: String,
    pub(super) is_safe: bool,
    pub(super) first_major: u32,
    pub(super) migration: Migration,
}

/// Returns the examples in all sections.
pub(super) fn examples() -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let (mut heading, mut is_sql) = (String::new(), false);
    for line in PAGE.lines() {
        if let Some(text) = line.strip_prefix("### ") {
            text.clone_into(&mut heading);
        } else if line.starts_with("```") {
            is_sql = line == "```sql" && !heading.is_empty();
        } else if let Some(title) = line.strip_prefix("-- ").filter(|_| is_sql) {
            let (kind, rest) = title.split_once(' ').unwrap_or((title, ""));
            assert!(matches!(kind, "safe" | "dangerous"), "{line}");
            let first_major = rest.strip_prefix("from ").map_or(13, |from| from[..2].parse().unwrap());
            let migration = Migration { statements: Vec::new(), knows_suite: rest.starts_with("once") };
            let heading = heading.clone();
            examples.push(Example { heading, is_safe: kind == "safe", first_major, migration });
        } else if is_sql {
            let text = &mut examples.last_mut().unwrap().migration.statements;
            // A statement begins after the previous statement's comment.
            text.push(line.split(" -- ").next().unwrap_or_default().to_owned());
        }
    }
    for example in &mut examples {
        let text = example.migration.statements.join("\n");
        let split = split_statements(&text).into_iter();
        let mut statements: Vec<_> = split.map(|statement| refused(example, statement)).collect();
        if example.heading != AdviceTopic::LockTimeout.heading() {
            statements.insert(0, "SET lock_timeout = '2s'".to_owned());
        }
        example.migration.statements = statements;
    }
    examples
}

/// Adds the error to the page's statement that PostgreSQL rejects.
fn refused(example: &Example, statement: &str) -> String {
    let is_refused = example.heading == AdviceTopic::Enum.heading() && !example.is_safe;
    if is_refused && statement.starts_with("UPDATE") {
        format!("55P04! {statement}")
    } else {
        statement.to_owned()
    }
}
