//! Reads ledgers: the tables in which migration tools list the migrations that have run.

use std::collections::HashSet;

use super::written_row::{RowChange, WrittenRow};
use crate::ObservedStatement;

/// How a tool identifies a migration in its ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MigrationKey {
    /// A name that users know.
    Name(String),
    /// A name, and the file that the migration comes from according to the tool.
    NameInFile(String, String),
    /// The number at the start of a file name.
    Version(String),
    /// Alembic's revisions before and after an upgrade or downgrade.
    Revision { before: Option<String>, after: Option<String> },
    /// A time in Drizzle's journal, in milliseconds.
    JournalTime(String),
}

/// A ledger change that shows where a migration begins or ends in a tool's sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LedgerEvent {
    /// The statements after this one belong to the migration.
    Started(MigrationKey),
    /// The statements before this one belong to the migration. Without a key, it is the one that the session started.
    Ended(Option<MigrationKey>),
}

/// Describes the ledger of a tool.
struct Ledger {
    /// The table's usual name.
    table: &'static str,
    /// Columns that an INSERT for a migration names.
    columns: &'static [&'static str],
    /// Whether no other table has these columns, so that the ledger is recognized under any name.
    is_distinctive: bool,
    key: KeyColumns,
}

/// Columns that identify a migration.
enum KeyColumns {
    Name(&'static str),
    /// Django's columns for the application and the name.
    Django,
    Liquibase,
    Version(&'static str),
    Alembic,
    Drizzle,
}

const fn ledger(table: &'static str, columns: &'static [&'static str], key: KeyColumns) -> Ledger {
    Ledger { table, columns, is_distinctive: false, key }
}

const fn distinctive(table: &'static str, columns: &'static [&'static str], key: KeyColumns) -> Ledger {
    Ledger { table, columns, is_distinctive: true, key }
}

/// Ledgers of all supported tools. Sources: the statements that the tools sent, recorded in `recorded/` for most of
/// them, and the documentation of the others.
const LEDGERS: [Ledger; 20] = [
    distinctive("alembic_version", &["version_num"], KeyColumns::Alembic),
    ledger("django_migrations", &["app", "name", "applied"], KeyColumns::Django),
    distinctive(
        "flyway_schema_history",
        &["installed_rank", "script", "checksum"],
        KeyColumns::Name("script"),
    ),
    distinctive("databasechangelog", &["id", "author", "filename", "orderexecuted"], KeyColumns::Liquibase),
    distinctive("knex_migrations", &["batch", "migration_time", "name"], KeyColumns::Name("name")),
    distinctive("goose_db_version", &["version_id", "is_applied"], KeyColumns::Version("version_id")),
    ledger("_sqlx_migrations", &["version", "checksum"], KeyColumns::Version("version")),
    ledger("_prisma_migrations", &["migration_name"], KeyColumns::Name("migration_name")),
    distinctive("__drizzle_migrations", &["hash", "created_at"], KeyColumns::Drizzle),
    // golang-migrate uses this table name too, but keeps only one row.
    distinctive("schema_migrations", &["version", "dirty"], KeyColumns::Version("version")),
    // Rails, Ecto and dbmate use this ledger.
    ledger("schema_migrations", &["version"], KeyColumns::Version("version")),
    ledger("__diesel_schema_migrations", &["version"], KeyColumns::Version("version")),
    ledger("refinery_schema_history", &["version", "name"], KeyColumns::Version("version")),
    ledger("pgmigrations", &["name", "run_on"], KeyColumns::Name("name")),
    ledger("SequelizeMeta", &["name"], KeyColumns::Name("name")),
    // TypeORM and Laravel use a table with this name.
    ledger("migrations", &["timestamp", "name"], KeyColumns::Name("name")),
    ledger("migrations", &["migration", "batch"], KeyColumns::Name("migration")),
    ledger("seaql_migrations", &["version", "applied_at"], KeyColumns::Name("version")),
    // sql-migrate uses this ledger.
    ledger("gorp_migrations", &["id", "applied_at"], KeyColumns::Name("id")),
    ledger("__EFMigrationsHistory", &["migrationid", "productversion"], KeyColumns::Name("migrationid")),
];

/// Additional tables that tools keep beside their ledgers.
const COMPANIONS: [&str; 6] = [
    "ar_internal_metadata",
    "atlas_schema_revisions",
    "databasechangeloglock",
    "django_content_type",
    "knex_migrations_lock",
    "typeorm_metadata",
];

/// Tables that might not belong to the tool: applications have tables named `migrations`, and migrations change
/// `django_content_type`.
const SHARED: [&str; 2] = ["migrations", "django_content_type"];

/// Returns the usual names of the ledgers and of the additional tables that migration tools keep.
pub fn tables_of_tools() -> impl Iterator<Item = &'static str> {
    LEDGERS.iter().map(|ledger| ledger.table).chain(COMPANIONS)
}

/// The migration tools' own tables in a run.
pub(super) struct Ledgers {
    /// Names of the tables, in lowercase.
    tables: HashSet<String>,
}

impl Ledgers {
    /// Collects the tables. Recognizes a ledger with an unusual name by the columns that a statement inserts.
    pub(super) fn of(statements: &[ObservedStatement]) -> Self {
        let usual = tables_of_tools().filter(|table| !SHARED.contains(table));
        let mut tables: HashSet<_> = usual.map(str::to_lowercase).collect();
        let rows = statements.iter().filter_map(|one| WrittenRow::read(&one.sql, &one.parameters));
        let inserts = rows.filter(|row| row.change == RowChange::Insert);
        tables.extend(inserts.filter(|row| of_insert(row).is_some()).map(|row| row.table.to_lowercase()));
        Self { tables }
    }

    /// Returns true if `table` is a ledger, or an additional table of a tool.
    pub(super) fn has(&self, table: &str) -> bool {
        self.tables.contains(&table.to_lowercase())
    }

    /// Returns what a statement reveals about a migration. `None` if it doesn't change a ledger.
    pub(super) fn event(&self, statement: &ObservedStatement) -> Option<LedgerEvent> {
        let row = WrittenRow::read(&statement.sql, &statement.parameters)?;
        if row.change == RowChange::Insert {
            let key = of_insert(&row)?.key.read(&row)?;
            let is_dirty = row.new_value("dirty").is_some_and(|dirty| ["t", "true", "1"].contains(&dirty));
            let is_prisma = row.has(&["migration_name"]);
            let starts = is_dirty || is_prisma && row.new_value("finished_at").is_none();
            return Some(if starts { LedgerEvent::Started(key) } else { LedgerEvent::Ended(Some(key)) });
        }
        if !self.has(&row.table) {
            return None;
        }
        if row.table == "_prisma_migrations" {
            let ends = row.has(&["finished_at"]) || row.has(&["rolled_back_at"]);
            return ends.then_some(LedgerEvent::Ended(None));
        }
        let has_usual_name = LEDGERS.iter().any(|ledger| is_usual(ledger, &row));
        let is_it = |ledger: &&Ledger| {
            if has_usual_name { is_usual(ledger, &row) } else { ledger.is_distinctive }
        };
        let key = LEDGERS.iter().filter(is_it).find_map(|ledger| ledger.key.read(&row));
        key.map(|key| LedgerEvent::Ended(Some(key)))
    }
}

fn is_usual(ledger: &Ledger, row: &WrittenRow) -> bool {
    row.table.eq_ignore_ascii_case(ledger.table)
}

fn of_insert(row: &WrittenRow) -> Option<&'static Ledger> {
    LEDGERS.iter().find(|ledger| (ledger.is_distinctive || is_usual(ledger, row)) && row.has(ledger.columns))
}

impl KeyColumns {
    fn read(&self, row: &WrittenRow) -> Option<MigrationKey> {
        let value = |column: &str| row.value(column).map(str::to_owned);
        match self {
            Self::Name(column) => value(column).map(MigrationKey::Name),
            Self::Version(column) => value(column).map(MigrationKey::Version),
            Self::Drizzle => value("created_at").map(MigrationKey::JournalTime),
            Self::Django => {
                let (app, name) = (value("app")?, value("name")?);
                let file = format!("{}/migrations/{name}.py", app.rsplit('.').next().unwrap_or(&app));
                Some(MigrationKey::NameInFile(format!("{app}.{name}"), file))
            }
            Self::Liquibase => {
                let (id, author, file) = (value("id")?, value("author")?, value("filename")?);
                Some(MigrationKey::NameInFile(format!("{file}::{id}::{author}"), file))
            }
            Self::Alembic => {
                let owned = |value: Option<&str>| value.map(str::to_owned);
                let after = owned(row.new_value("version_num"));
                let before = owned(row.condition("version_num"));
                let has_key = after.is_some() || before.is_some();
                has_key.then_some(MigrationKey::Revision { before, after })
            }
        }
    }
}
