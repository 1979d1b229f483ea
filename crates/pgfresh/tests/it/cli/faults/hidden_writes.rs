//! Tests statements that write although they look like queries.

use std::collections::BTreeSet;

use super::{SCHEMA, findings, scene, shell};
use crate::common::{Scene, on_every_major};

on_every_major! {
    lost_commit_of_hidden_write_is_found
}

fn scene_with_functions() -> Scene {
    let scene = scene();
    let functions = "CREATE FUNCTION sell(text) RETURNS int LANGUAGE sql AS \
        'INSERT INTO orders (item) VALUES ($1) RETURNING id'; \
        CREATE FUNCTION sold() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM orders';";
    scene.write("schema.sql", &format!("{SCHEMA} {functions}"));
    scene
}

fn lost_commit_of_hidden_write_is_found(major: u32) {
    let scene = scene_with_functions();
    for write in [
        "WITH made AS (INSERT INTO orders (item) VALUES ('lamp') RETURNING id) SELECT * FROM made",
        "SELECT sell('lamp')",
        "PREPARE sale AS INSERT INTO orders (item) VALUES ('lamp'); EXECUTE sale",
    ] {
        let (outcome, report) = shell(&scene, major, &format!("retry transaction \"{write}\""));
        assert_eq!(outcome.code, Some(1), "{write}: {outcome}");
        assert_eq!(findings(&report), BTreeSet::from([("doubled_rows", "lost after")]), "{write}: {outcome}");
        assert_eq!(report["findings"][0]["statement"], "COMMIT", "{write}: {outcome}");
        assert_eq!(report["runs"]["made"], 7, "{write}: {outcome}");
        let (outcome, report) = shell(&scene, major, &format!("retry psql -c \"{write}\""));
        assert!(findings(&report).contains(&("doubled_rows", "lost after")), "{write}: {outcome}");
    }
}

#[test]
fn functions_that_read_have_no_finding() {
    let scene = scene_with_functions();
    for (read, runs) in [("SELECT sold()", 7), ("SELECT count(*) FROM orders", 3)] {
        let (outcome, report) = shell(&scene, 15, &format!("retry transaction \"{read}\""));
        assert_eq!((outcome.code, findings(&report)), (Some(0), BTreeSet::new()), "{outcome}");
        assert_eq!(report["runs"]["made"], runs, "{read}: {outcome}");
    }
}
