//! Tests attribution with sessions of real tools.
//!
//! `recorded/` contains the sessions in which each tool ran the last six migrations of its project in
//! `crates/pgfresh/tests/migration_tools`, as recorded by a proxy. In the files whose names end with `_failed`, the
//! ninth migration contained an error.
//!
//! Each line has five parts: the expected migration, the session number, `ok` or `error`, the SQL, and the parameters
//! as `text` or `binary`. The tool's own statements have `=` instead of a migration. Unknown statements have `-`.
//! `INSTA_UPDATE=always` rewrites the migrations in the files.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use pgwire::{StatementError, split_statements};
use plans::{BoundValue, RelationKind};

use super::*;

/// Returns the folder with the recorded sessions.
fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/attribution/recorded")
}

fn project(tool: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../pgfresh/tests/migration_tools").join(tool)
}

fn walk(folder: &Path, below: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder.join(below)).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.file_type().unwrap().is_dir() { walk(folder, &path, found) } else { found.push(path) }
    }
    found.sort();
}

/// A request of a recorded session.
struct Request<'a> {
    line: &'a str,
    session: usize,
    failed: bool,
    sql: String,
    parameters: Vec<BoundValue>,
}

impl<'a> Request<'a> {
    fn read(line: &'a str) -> Self {
        let mut parts = line.split('\t').skip(1);
        let session = parts.next().unwrap().parse().unwrap();
        let failed = parts.next().unwrap() == "error";
        let sql = parts.next().unwrap().replace("\\n", "\n").replace("\\t", "\t");
        let parameters = parts.map(|part| {
            let (format, value) = part.split_once(':').unwrap();
            let bytes = |hex: &str| {
                let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
                (0..hex.len()).step_by(2).map(byte).collect()
            };
            let (format, value) = match format {
                "text" => (0, Some(value.into())),
                "binary" => (1, Some(bytes(value))),
                _ => (0, None),
            };
            BoundValue { type_oid: 0, format, value }
        });
        Self { line, session, failed, sql, parameters: parameters.collect() }
    }
}

/// Returns the statements of the requests, and for each statement the index of its request.
fn observed(requests: &[Request<'_>]) -> (Observations, Vec<usize>) {
    let (mut statements, mut numbers, mut open, mut transactions) =
        (Vec::new(), Vec::new(), HashMap::new(), 0);
    for (number, request) in requests.iter().enumerate() {
        for sql in split_statements(&request.sql) {
            let in_block = open.contains_key(&request.session);
            if !in_block {
                transactions += 1;
            }
            let transaction = *open.entry(request.session).or_insert(transactions);
            if ends(sql) || !in_block && !begins(sql) {
                open.remove(&request.session);
            }
            let error =
                request.failed.then(|| StatementError { sqlstate: String::new(), message: String::new() });
            statements.push(ObservedStatement {
                session: request.session,
                sql: sql.to_owned(),
                parameters: request.parameters.clone(),
                transaction,
                error,
                ..ObservedStatement::default()
            });
            numbers.push(number);
        }
    }
    (Observations { statements, ..Observations::default() }, numbers)
}

#[test]
fn statements_of_each_tool_have_their_migration() {
    let mut tools = 0;
    for entry in fs::read_dir(recorded()).unwrap().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap();
        let name = entry.file_name().into_string().unwrap();
        let tool = name.split(['_', '.']).next().unwrap();
        let requests: Vec<_> = text.lines().map(Request::read).collect();
        let (observations, numbers) = observed(&requests);
        let (mut paths, folder) = (Vec::new(), project(tool));
        walk(&folder, "", &mut paths);
        let read = |path: &str| fs::read_to_string(folder.join(path)).unwrap();
        let found = attribute(&observations, &MigrationFiles::new(&paths, &read));
        let mut lines = Vec::new();
        for (number, request) in requests.iter().enumerate() {
            let here = numbers.iter().zip(&found).filter(|(of, _)| **of == number);
            let mut names: Vec<_> = here
                .map(
                    |(_, one)| if one.is_bookkeeping { "=" } else { one.migration.as_deref().unwrap_or("-") },
                )
                .collect();
            names.dedup();
            let rest = request.line.split_once('\t').unwrap().1;
            lines.push(format!("{}\t{rest}\n", names.join(" ")));
        }
        if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
            fs::write(entry.path(), lines.concat()).unwrap();
        } else {
            lines
                .iter()
                .zip(text.lines())
                .for_each(|(line, expected)| assert_eq!(line.trim_end(), expected.trim_end(), "{name}"));
        }
        tools += 1;
    }
    assert!(tools >= 22, "{tools}");
}

/// Returns a statement that a session sent with text parameters.
fn sent(session: usize, sql: &str, parameters: &[&str]) -> ObservedStatement {
    let value = |text: &&str| BoundValue { type_oid: 0, format: 0, value: Some(text.as_bytes().to_vec()) };
    let parameters = parameters.iter().map(value).collect();
    ObservedStatement { session, sql: sql.to_owned(), parameters, ..ObservedStatement::default() }
}

/// Returns the migration of each statement, where `=` stands for one of the tool's own statements and `-` for an
/// unknown migration.
fn names(statements: Vec<ObservedStatement>, files: &[(&str, &str)], added: &[&str]) -> Vec<String> {
    let paths: Vec<_> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
    let added: Vec<_> = added.iter().map(|path| (*path).to_owned()).collect();
    let read = |wanted: &str| {
        let file = files.iter().find(|(path, _)| *path == wanted);
        file.map(|(_, text)| (*text).to_owned()).unwrap_or_default()
    };
    let observations = Observations { statements, ..Observations::default() };
    let found = attribute(&observations, &MigrationFiles::new(&paths, &read).with_added(&added));
    let name = |one: StatementOrigin| {
        if one.is_bookkeeping { "=".to_owned() } else { one.migration.unwrap_or_else(|| "-".to_owned()) }
    };
    found.into_iter().map(name).collect()
}

/// For each tool: the INSERT into its ledger, the parameters, the migration's file and the expected name.
const OTHER_TOOLS: [(&str, &[&str], &str, &str); 13] = [
    ("insert into schema_migrations (version) values ($1)", &["0042"], "db/migrations/42_a.sql", "42_a.sql"),
    (
        "INSERT INTO \"schema_migrations\" (\"version\",\"inserted_at\") VALUES ($1,$2)",
        &["20260105000000", "2026-01-05 00:00:00"],
        "priv/repo/migrations/20260105000000_status.exs",
        "20260105000000_status.exs",
    ),
    (
        "INSERT INTO \"public\".\"pgmigrations\" (name, run_on) VALUES ('17_status', NOW())",
        &[],
        "migrations/17_status.js",
        "17_status",
    ),
    ("INSERT INTO \"SequelizeMeta\" (\"name\") VALUES ($1)", &["17-status.js"], "", "17-status.js"),
    (
        "INSERT INTO \"migrations\"(\"timestamp\", \"name\") VALUES ($1, $2)",
        &["17", "Status17"],
        "src/migration/17-Status.ts",
        "Status17",
    ),
    (
        "insert into \"migrations\" (\"migration\", \"batch\") values (?, ?)",
        &[],
        "database/migrations/2026_01_05_status.php",
        "-",
    ),
    (
        "insert into \"migrations\" (\"migration\", \"batch\") values ($1, $2)",
        &["2026_01_05_status", "1"],
        "database/migrations/2026_01_05_status.php",
        "2026_01_05_status",
    ),
    (
        "INSERT INTO \"__EFMigrationsHistory\" (\"MigrationId\", \"ProductVersion\") VALUES ('2026_Status', '9.0.0')",
        &[],
        "Migrations/2026_Status.cs",
        "2026_Status",
    ),
    (
        "INSERT INTO __diesel_schema_migrations (version) VALUES ($1)",
        &["20260105000000"],
        "migrations/2026-01-05-000000_status/up.sql",
        "2026-01-05-000000_status",
    ),
    (
        "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) VALUES (5, 'status', 'now', '1')",
        &[],
        "migrations/V5__status.sql",
        "V5__status.sql",
    ),
    (
        "insert into \"drizzle\".\"__drizzle_migrations\" (\"hash\", \"created_at\") values($1, $2)",
        &["8ab8a0", "1767312000000"],
        "drizzle/0001_email.sql",
        "0001_email.sql",
    ),
    // The project selected the names of these tables.
    (
        "INSERT INTO versions (version_num) VALUES ('3a0c')",
        &[],
        "db/versions/3a0c_status.py",
        "3a0c_status.py",
    ),
    ("INSERT INTO steps (id, version_id, is_applied) VALUES (1, 5, true)", &[], "sql/005_a.sql", "005_a.sql"),
];

#[test]
fn rows_of_other_tools_name_their_migrations() {
    for (row, parameters, file, name) in OTHER_TOOLS {
        let journal =
            r#"{"entries": [{"when": 1, "tag": "0000"}, {"when": 1767312000000, "tag": "0001_email"}]}"#;
        let files = [(file, ""), ("drizzle/meta/_journal.json", journal)];
        let statements = vec![sent(0, "ALTER TABLE orders ADD status text", &[]), sent(0, row, parameters)];
        assert_eq!(names(statements, &files, &[])[0], name, "{row}");
    }
}

#[test]
fn steps_back_have_the_names_of_their_migrations() {
    let alembic = [
        ("versions/3a_a.py", "revision: str = \"3a\"\ndown_revision: Union[str, None] = None"),
        ("versions/5b_b.py", "revision: str = '5b'\ndown_revision: Union[str, None] = '3a'"),
    ];
    let drop = || sent(0, "DROP TABLE orders", &[]);
    for (row, files, name) in [
        (
            "UPDATE alembic_version SET version_num='3a' WHERE alembic_version.version_num = '5b'",
            &alembic[..],
            "5b_b.py",
        ),
        (
            "UPDATE alembic_version SET version_num='5b' WHERE alembic_version.version_num = '3a'",
            &alembic,
            "5b_b.py",
        ),
        ("DELETE FROM alembic_version WHERE alembic_version.version_num = '3a'", &alembic, "3a_a.py"),
        (
            "DELETE FROM \"django_migrations\" WHERE (\"django_migrations\".\"app\" = 'shop' AND \"django_migrations\".\"name\" = '0002_a')",
            &[],
            "shop.0002_a",
        ),
        ("DELETE FROM goose_db_version WHERE version_id=2", &[("sql/00002_a.sql", "")], "00002_a.sql"),
        (
            "DELETE FROM public.databasechangelog WHERE ID = '1' AND AUTHOR = 'ada' AND FILENAME = 'a.yaml'",
            &[],
            "a.yaml::1::ada",
        ),
    ] {
        assert_eq!(names(vec![drop(), sent(0, row, &[])], files, &[])[0], name, "{row}");
    }
    // golang-migrate writes the number that the database has after the migration.
    let files = [("migrations/1_a.up.sql", ""), ("migrations/2_b.down.sql", "DROP TABLE orders;")];
    let row =
        |dirty| sent(0, "INSERT INTO schema_migrations (version, dirty) VALUES ($1, $2)", &["1", dirty]);
    assert_eq!(names(vec![row("t"), drop(), row("f")], &files, &[]), ["=", "2_b.down.sql", "="]);
}

#[test]
fn rows_from_another_session_name_statements() {
    let row = |session| sent(session, "INSERT INTO schema_migrations (version) VALUES ('7')", &[]);
    let create = |session| sent(session, "CREATE TABLE a ()", &[]);
    assert_eq!(names(vec![create(0), row(1)], &[], &[]), ["7", "="]);
    // Two sessions migrate two schemas concurrently.
    assert_eq!(names(vec![create(0), create(1), row(1), row(0)], &[], &[]), ["7", "7", "=", "="]);
    let mut other = create(1);
    other.database = "other".to_owned();
    assert_eq!(names(vec![other, create(0), row(0)], &[], &[]), ["-", "7", "="]);
}

#[test]
fn sql_files_own_equal_statements() {
    let files = [
        ("schema.sql", "CREATE TABLE a (id int); CREATE TABLE b (id int);"),
        ("migrations/1.sql", "-- First.\nBEGIN;\nCREATE TABLE a (id int);\nCOMMIT;"),
        (
            "migrations/2.sql",
            "BEGIN; SET lock_timeout = '1s'; ALTER TABLE a ADD x :type; INSERT INTO a VALUES (1); COMMIT;",
        ),
        ("migrations/3.sql", "BEGIN; INSERT INTO a VALUES (1); COMMIT;"),
    ];
    let statements = |all: &[&str]| all.iter().map(|sql| sent(0, sql, &[])).collect();
    let all = ["BEGIN;", "create table a (id int);", "COMMIT;", "SELECT 1", "UPDATE a SET id = 2"];
    assert_eq!(names(statements(&all), &files, &[]), ["1.sql", "1.sql", "1.sql", "=", "-"]);
    let all = [
        "BEGIN",
        "SET lock_timeout = '1s'",
        "ALTER TABLE a ADD x text",
        "INSERT INTO a VALUES (1)",
        "COMMIT",
    ];
    assert_eq!(names(statements(&all), &files, &[])[2..], ["2.sql"; 3]);
    let all = ["BEGIN", "INSERT INTO a VALUES (1)", "COMMIT", "BEGIN", "INSERT INTO a VALUES (1)", "COMMIT"];
    assert_eq!(names(statements(&all), &files, &[]), ["3.sql"; 6]);
}

#[test]
fn the_only_added_file_owns_the_rest() {
    let files = [("migrations/1.js", ""), ("migrations/2.js", ""), ("src/app.js", "")];
    let statements = || vec![sent(0, "CREATE TABLE a ()", &[]), sent(0, "SET ROLE a", &[])];
    assert_eq!(names(statements(), &files, &["migrations/2.js", "src/app.js"]), ["2.js", "="]);
    assert_eq!(names(statements(), &files, &["migrations/1.js", "migrations/2.js"]), ["-", "="]);
    let mut failed = statements();
    failed[0].is_unfinished = true;
    assert_eq!(names(failed, &files, &["migrations/1.js", "migrations/2.js"]), ["1.js", "="]);
}

#[test]
fn rows_of_django_after_migrations_are_its_own() {
    let statements = vec![
        sent(0, "ALTER TABLE a ADD b int", &[]),
        sent(
            0,
            "INSERT INTO \"django_migrations\" (\"app\", \"name\", \"applied\") VALUES ('shop', '0002_b', 'now')",
            &[],
        ),
        sent(0, "INSERT INTO \"django_content_type\" (\"app_label\", \"model\") VALUES ('shop', 'a')", &[]),
    ];
    assert_eq!(names(statements, &[], &[]), ["shop.0002_b", "=", "="]);
}

#[test]
fn files_of_the_project_win() {
    let paths = ["a/migrations/7_x.sql", "b/sql/7_y.sql"].map(str::to_owned);
    let read = |_: &str| "CREATE TABLE a ();".to_owned();
    let files = MigrationFiles::new(&paths, &read);
    let create = sent(0, "CREATE TABLE a ()", &[]);
    let other = sent(0, "CREATE TABLE b ()", &[]);
    let row = sent(0, "INSERT INTO schema_migrations (version) VALUES ('7')", &[]);
    for (project, name) in [("", "7_x.sql"), ("b", "7_y.sql"), ("a", "7_x.sql"), ("b/sq", "7_x.sql")] {
        for first in [&create, &other] {
            let statements = vec![first.clone(), row.clone()];
            let observations = Observations { statements, ..Observations::default() };
            let found = attribute(&observations, &files.with_project(project));
            assert_eq!(found[0].migration.as_deref(), Some(name), "{project}");
        }
    }
}

#[test]
fn statements_that_work_on_tables_are_no_bookkeeping() {
    let orders = RelationName { schema: "public".to_owned(), name: "orders".to_owned() };
    let mut hidden = sent(0, "SELECT change(relname) FROM pg_class", &[]);
    let lock = RelationLock { relation: orders, kind: RelationKind::Table, mode: LockMode::AccessExclusive };
    hidden.locks.push(lock.clone());
    let mut mentions = sent(0, "ALTER TABLE orders ADD COLUMN schema_migrations text", &[]);
    mentions.locks.push(lock);
    let mut failed = sent(0, "SET ROLE migrator", &[]);
    failed.error = Some(StatementError { sqlstate: "22023".to_owned(), message: String::new() });
    let harmless = sent(0, "SELECT relname FROM pg_class", &[]);
    let statements = vec![hidden, mentions, failed, harmless];
    let observations = Observations { statements, ..Observations::default() };
    let origins = attribute(&observations, &MigrationFiles::new(&[], &|_| String::new()));
    assert_eq!(
        origins.iter().map(|origin| origin.is_bookkeeping).collect::<Vec<_>>(),
        [false, false, false, true]
    );
}
