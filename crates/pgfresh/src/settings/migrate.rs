//! Reads `[migrate]` and its exceptions (`[[migrate.allow]]`).

use migrations::{MigrationBudget, MigrationException, NamePattern, StatementPattern};
use toml::de::{DeTable, DeValue};

use super::schema::{AllowTable, MigrateTable};
use super::toml_file::File;
use super::values::{Count, Span};
use crate::failure::Failure;

/// Settings for migration checks.
#[derive(Debug, Default)]
pub(crate) struct MigrateSettings {
    /// Limits for a migration.
    pub(crate) budget: MigrationBudget,
    /// Statements that are allowed despite the limits, in file order.
    pub(crate) exceptions: Vec<MigrationException>,
    /// Command that fills the base copy with rows before the migration runs.
    pub(crate) data: Option<String>,
}

/// Reads the table.
pub(super) fn read(file: &File<'_>, table: DeTable<'_>) -> Result<MigrateSettings, Failure> {
    let (allowed, own): (DeTable<'_>, DeTable<'_>) =
        table.into_iter().partition(|(key, _)| key.get_ref() == "allow");
    if let Some((key, value)) = own.iter().find(|(_, value)| is_blank(value.get_ref())) {
        return Err(file.bad(value.span().start, key.get_ref(), "it is empty"));
    }
    let MigrateTable { access_exclusive, share, lock_timeout, rewrites, broken_statements, data, allow: _ } =
        file.read("migrate", &own)?;
    let mut settings = MigrateSettings {
        budget: MigrationBudget {
            access_exclusive: access_exclusive.map(|Span(time)| time),
            share: share.map(|Span(time)| time),
            lock_timeout: lock_timeout.map(|Span(time)| time),
            rewrites: rewrites.map(|Count(count)| count),
            broken_statements: broken_statements.map(|Count(count)| count),
        },
        exceptions: Vec::new(),
        data,
    };
    for (_, value) in allowed {
        let at = value.span().start;
        let wrong = || {
            let hint = "Write [[migrate.allow]], and below it statement = \"…\" or migration = \"…\", and reason = \"…\".";
            file.bad(at, "allow", "expected tables").hint(hint.to_owned())
        };
        let DeValue::Array(exceptions) = value.into_inner() else { return Err(wrong()) };
        for exception in exceptions {
            let at = exception.span().start;
            let DeValue::Table(exception) = exception.into_inner() else { return Err(wrong()) };
            settings.exceptions.push(read_exception(file, &exception, at)?);
        }
    }
    Ok(settings)
}

fn read_exception(file: &File<'_>, table: &DeTable<'_>, at: usize) -> Result<MigrationException, Failure> {
    if let Some((key, value)) = table.iter().find(|(_, value)| is_blank(value.get_ref())) {
        return Err(file.bad(value.span().start, key.get_ref(), "it is empty"));
    }
    let AllowTable { statement, migration, reason } = file.read("migrate.allow", table)?;
    if statement.is_none() && migration.is_none() {
        let failure = file.failure(at, "[[migrate.allow]] needs statement or migration");
        return Err(failure.hint("Write statement = \"DROP TABLE *\" or migration = \"0042_*\".".to_owned()));
    }
    let Some(reason) = reason else {
        let failure = file.failure(at, "[[migrate.allow]] needs a reason");
        return Err(failure.hint("Write reason = \"why this is safe\".".to_owned()));
    };
    Ok(MigrationException {
        statement: statement.map(|text| StatementPattern::new(&text)),
        migration: migration.map(|text| NamePattern::new(&text)),
        reason,
    })
}

fn is_blank(value: &DeValue<'_>) -> bool {
    matches!(value, DeValue::String(text) if text.trim().is_empty())
}
