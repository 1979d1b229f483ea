//! Tests `migrate compare`: an older template with the new migrations equals a full build, or
//! pgfresh shows the drift.

use super::{ORDERS, Project};

#[test]
fn new_migration_gives_the_same_schema() {
    let project = Project::new();
    project.write(
        "migrations/0002_notes.sql",
        "CREATE TABLE notes (id int, at timestamptz); INSERT INTO notes VALUES (1, clock_timestamp());",
    );
    let outcome = project.ends(&["compare", "main"], 0);
    // A row contains the current time, which differs in each build.
    assert!(outcome.stdout.contains("differs from a full build: 1 table"), "{outcome}");
    project.write("migrations/0002_notes.sql", "CREATE TABLE notes (id int);");
    let outcome = project.ends(&["compare", "main"], 0);
    assert!(outcome.stdout.contains("does not differ from a full build"), "{outcome}");
}

#[test]
fn edited_old_migration_is_drift() {
    let project = Project::new();
    project
        .write("migrations/0001_orders.sql", &format!("{ORDERS} CREATE INDEX by_status ON orders (status);"));
    let outcome = project.ends(&["compare", "main"], 1);
    assert!(outcome.stderr.contains("not run again: migrations/0001_orders.sql"), "{outcome}");
    assert!(outcome.stdout.contains("by_status"), "{outcome}");
    let outcome = project.ends(&["compare", "main", "--json"], 1);
    let json: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(json["passes"], false, "{outcome}");
}

#[test]
fn command_replaces_the_templates_setup() {
    let project = Project::new();
    project.write("migrations/0002_notes.sql", "CREATE TABLE notes (id int);");
    let by_hand = ["compare", "main", "--", "psql", "-Xqc", "CREATE TABLE notes (id bigint)"];
    let outcome = project.ends(&by_hand, 1);
    assert!(outcome.stdout.contains("public.notes"), "{outcome}");
}
