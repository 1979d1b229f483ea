//! Tests `migrate roundtrip`: "down" undoes "up", or pgfresh shows what is left.

use super::Project;

const UP: &str = "psql -Xqv ON_ERROR_STOP=1 -c 'ALTER TABLE orders ADD COLUMN note text; CREATE TABLE notes (id int, body text)'";
const DOWN: &str = "psql -Xqv ON_ERROR_STOP=1 -c 'ALTER TABLE orders DROP COLUMN note; DROP TABLE notes'";

#[test]
fn complete_down_leaves_nothing_behind() {
    let project = Project::new();
    let outcome = project.ends(&["roundtrip", "--up", UP, "--down", DOWN], 0);
    assert!(outcome.stdout.contains("\"down\" leaves nothing behind\n"), "{outcome}");
    assert!(outcome.stdout.contains("has the same result as the first\n"), "{outcome}");
}

#[test]
fn leftovers_of_down_are_shown() {
    let project = Project::new();
    let up = "psql -Xqv ON_ERROR_STOP=1 -c 'CREATE TABLE IF NOT EXISTS notes (id int)' -c 'DELETE FROM orders WHERE id = 7'";
    let words = ["roundtrip", "--up", up, "--down", "true"];
    let outcome = project.ends(&words, 1);
    for part in
        ["\"down\" leaves behind: 1 table, 1 definition", "+ table public.notes", "public.orders: 1 deleted"]
    {
        assert!(outcome.stdout.contains(part), "{part} {outcome}");
    }
    let outcome = project.ends(&[&words[..], &["--json"]].concat(), 1);
    let json: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((&json["passes"], &json["format"]), (&false.into(), &1.into()), "{outcome}");
    assert!(json["left_by_down"].to_string().contains("public.notes"), "{outcome}");
    assert_eq!(json["changed_by_second_up"]["schema"], serde_json::json!([]), "{outcome}");
}

#[test]
fn failing_command_keeps_its_exit_code() {
    let project = Project::new();
    let outcome = project.ends(&["roundtrip", "--up", "exit 7", "--down", "true"], 7);
    assert!(outcome.stderr.contains("--up failed with exit code 7"), "{outcome}");
    let up = "psql -Xqv ON_ERROR_STOP=1 -c 'CREATE TABLE notes (id int)'";
    let outcome = project.ends(&["roundtrip", "--up", up, "--down", "true"], 1);
    assert!(outcome.stderr.contains("--up, the second time, failed with exit code 1"), "{outcome}");
    assert!(outcome.stdout.contains("+ table public.notes"), "{outcome}");
}

#[test]
fn lists_of_migration_tools_do_not_count() {
    let project = Project::new();
    let up = "psql -Xqv ON_ERROR_STOP=1 -c 'CREATE TABLE IF NOT EXISTS knex_migrations (id serial PRIMARY KEY, at timestamptz)' \
        -c 'INSERT INTO knex_migrations (at) VALUES (clock_timestamp())'";
    let down = "psql -Xqc 'DELETE FROM knex_migrations'";
    let outcome = project.ends(&["roundtrip", "--up", up, "--down", down], 0);
    assert!(outcome.stdout.contains("in the migration tool's own list"), "{outcome}");
}

#[test]
fn revoked_grants_leave_nothing_behind() {
    let project = Project::new();
    let psql = |sql: &str| format!("psql -Xqv ON_ERROR_STOP=1 -c '{sql}'");
    let objects =
        ["TABLE orders", "SCHEMA public", "FUNCTION one()", "SEQUENCE numbers", "TYPE color", "DATABASE app"];
    project.git(&["checkout", "--quiet", "main"]);
    project.write(
        "migrations/0002_more.sql",
        "CREATE ROLE reader; CREATE ROLE writer; CREATE SEQUENCE numbers; CREATE TYPE color AS ENUM ();
         CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1'; GRANT SELECT ON orders TO reader, writer;",
    );
    project.commit();
    let each = |verb: &str, to: &str| -> String {
        objects.map(|object| format!("{verb} ALL ON {object} {to} writer; ")).concat()
    };
    let up = each("GRANT", "TO") + "GRANT SELECT (id) ON orders TO writer; REVOKE ALL ON orders FROM reader";
    let down = each("REVOKE", "FROM")
        + "REVOKE SELECT (id) ON orders FROM writer; GRANT SELECT ON orders TO writer; GRANT SELECT ON orders TO reader";
    let words = ["roundtrip", "--from", "main", "--up", &psql(&up), "--down", &psql(&down)];
    let outcome = project.ends(&words, 0);
    assert!(outcome.stdout.contains("\"down\" leaves nothing behind\n"), "{outcome}");
    let outcome = project.ends(&[&words[..5], &["--down", "true"]].concat(), 1);
    for object in ["orders", "schema public", "one()", "numbers", "color", "database"] {
        assert!(outcome.stdout.contains(object), "{object} {outcome}");
    }
}

#[test]
fn objects_of_renumbered_columns_are_equal() {
    let project = Project::with("[template]\nsql = \"migrations/*.sql\"\n");
    let psql = |sql: &str| format!("psql -Xqv ON_ERROR_STOP=1 -c '{sql}'");
    let up = "ALTER TABLE orders ADD COLUMN rr int CHECK (rr > 0) UNIQUE REFERENCES orders, ADD COLUMN ss int; \
        CREATE INDEX ON orders (rr, ss, abs(ss)); CREATE STATISTICS rr_ss ON rr, ss FROM orders; \
        CREATE PUBLICATION shop FOR TABLE orders (id, rr); \
        CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$; \
        CREATE TRIGGER touch BEFORE UPDATE OF rr ON orders FOR EACH ROW EXECUTE FUNCTION touch()";
    let down = "DROP PUBLICATION shop; DROP TRIGGER touch ON orders; DROP FUNCTION touch(); \
        ALTER TABLE orders DROP COLUMN rr, DROP COLUMN ss";
    let outcome = project.ends(&["roundtrip", "--up", &psql(up), "--down", &psql(down)], 0);
    assert!(outcome.stdout.contains("has the same result as the first\n"), "{outcome}");
}
