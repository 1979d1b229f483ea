//! Tests `migrate check` on the configurations that `init` writes for Docker Compose services: the check doesn't run the
//! steps of the image again.

use super::Project;
use crate::common::finish;

/// New migration: the check prints advice only about tables that the old template has.
const TYPE_CHANGE: &str = "ALTER TABLE first ALTER COLUMN id TYPE bigint; CREATE INDEX ON first (id);";

/// Writes a project with a service and a migration, and runs `init` before the commit.
fn project(environment: &str, files: &[(&str, &str)]) -> Project {
    let compose = format!(
        "services:\n  db:\n    image: postgres:15\n    environment: {{{environment}}}\n    volumes: [\"./initdb:/docker-entrypoint-initdb.d\"]\n"
    );
    let all = [&[("compose.yaml", compose.as_str())], files].concat();
    let project = Project::of(&all, |project| {
        let mut init = project.scene.pgfresh(["init"]);
        init.current_dir(project.folder());
        let outcome = finish(init);
        assert_eq!(outcome.code, Some(0), "{outcome}");
    });
    project.write("migrations/002 more tables.sql", TYPE_CHANGE);
    project
}

#[test]
fn steps_of_image_do_not_run_again() {
    let first = ("migrations/001.sql", "CREATE TABLE first (id int);");
    let granted = ("migrations/001.sql", "CREATE TABLE first (id int); GRANT ALL ON first TO shop;");
    let psql = "psql -Xq -v ON_ERROR_STOP=1";
    for (environment, files) in [
        ("POSTGRES_USER: shop", &[granted][..]),
        ("A: b", &[first, ("initdb/a.sh", &format!("{psql} -c 'CREATE SCHEMA app'"))]),
        ("POSTGRES_INITDB_ARGS: --locale=C", &[first]),
        (
            "A: b",
            &[
                first,
                ("initdb/a.sql", "CREATE DATABASE orders;"),
                (".env", "DATABASE_URL=postgres://h/orders"),
            ],
        ),
    ] {
        let project = project(environment, files);
        let outcome = project.ends(&["check"], 0);
        for part in ["002 more tables.sql\n", "rewrites first", "instead: ", "2 statements of 1 migration"] {
            assert!(outcome.stdout.contains(part), "{part:?} {environment} {outcome}");
        }
    }
}

#[test]
fn changed_prepare_command_is_named() {
    let config = |role: &str| {
        format!(
            "[template]\nprepare = \"psql -Xqc 'CREATE ROLE {role}'\"\nsql = \"migrations/*.sql\"\ninputs = \"migrations/*.sql\"\n"
        )
    };
    let project = Project::with(&config("keeper"));
    project.write("pgfresh.toml", &config("clerk"));
    project.write("migrations/0002_grant.sql", "GRANT SELECT ON orders TO clerk;");
    let outcome = project.ends(&["check"], 3);
    assert!(outcome.stderr.contains("), and not run again: prepare\n"), "{outcome}");
    assert!(outcome.stdout.contains("role \"clerk\" does not exist"), "{outcome}");
}
