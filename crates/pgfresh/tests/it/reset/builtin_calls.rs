//! Tests objects that run built-in functions which don't appear in the client's statement. The template or the
//! lease contains the objects.

use std::collections::BTreeSet;

use super::LASTING;
use crate::common::connection::Connection;
use crate::common::gateway::Gateway;
use crate::common::{depth, on_every_major, wait_until};

on_every_major! {
    backend_that_used_template_object_is_not_reused
    backend_that_used_lease_object_is_not_reused
    a_template_that_leaves_nothing_keeps_its_backends
}

/// Calls of built-in functions that leave something in a backend.
const CALLS: [&str; 3] =
    ["setseed(0.5)::text", "set_config('app.x', 'left', false)", "to_tsvector('english', 'cats')::text"];

/// Objects that contain one of these calls, what removes them, and what uses them.
const OBJECTS: [[&str; 3]; 8] = [
    ["CREATE VIEW o AS SELECT {call} AS one", "DROP VIEW o", "TABLE o"],
    ["CREATE TABLE o (id int, x text DEFAULT {call})", "DROP TABLE o", "INSERT INTO o (id) VALUES (1)"],
    ["CREATE TABLE o (id int CHECK ({call} IS NOT NULL))", "DROP TABLE o", "INSERT INTO o VALUES (1)"],
    [
        "CREATE DOMAIN d AS int CHECK ({call} IS NOT NULL); CREATE TABLE o (id d)",
        "DROP TABLE o; DROP DOMAIN d",
        "INSERT INTO o VALUES (1)",
    ],
    [
        "CREATE DOMAIN d AS text DEFAULT {call}; CREATE TABLE o (id int, x d)",
        "DROP TABLE o; DROP DOMAIN d",
        "INSERT INTO o (id) VALUES (1)",
    ],
    [
        "CREATE TABLE o (id int); CREATE RULE r AS ON INSERT TO o DO ALSO SELECT {call}",
        "DROP TABLE o",
        "INSERT INTO o VALUES (1)",
    ],
    [
        "CREATE TABLE o (id int); INSERT INTO o VALUES (1); ALTER TABLE o ENABLE ROW LEVEL SECURITY; \
         GRANT SELECT ON o TO reader; CREATE POLICY p ON o USING ({call} IS NOT NULL)",
        "DROP TABLE o",
        "SET ROLE reader; TABLE o",
    ],
    [
        "CREATE TABLE o (id int); INSERT INTO o VALUES (1); CREATE TRIGGER t BEFORE UPDATE ON o FOR EACH ROW \
         WHEN ({call} IS NOT NULL) EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "DROP TABLE o",
        "UPDATE o SET id = 2",
    ],
];

/// Objects that contain a single specific function.
const OTHERS: [[&str; 3]; 6] = [
    [
        "CREATE OPERATOR ## (RIGHTARG = float8, FUNCTION = setseed)",
        "DROP OPERATOR ## (NONE, float8)",
        "SELECT ## 0.5::float8",
    ],
    [
        "CREATE INDEX i ON words USING gin (to_tsvector('english', x))",
        "DROP INDEX i",
        "INSERT INTO words VALUES ('cats')",
    ],
    [
        "CREATE INDEX i ON words (x) WHERE to_tsvector('english', x) IS NOT NULL",
        "DROP INDEX i",
        "INSERT INTO words VALUES ('cats')",
    ],
    [
        "CREATE TABLE o (x text, v tsvector GENERATED ALWAYS AS (to_tsvector('english', x)) STORED)",
        "DROP TABLE o",
        "INSERT INTO o VALUES ('cats')",
    ],
    [
        "CREATE TABLE o (x text, v tsvector); CREATE TRIGGER t BEFORE INSERT ON o FOR EACH ROW \
         EXECUTE FUNCTION tsvector_update_trigger(v, 'pg_catalog.english', x)",
        "DROP TABLE o",
        "INSERT INTO o VALUES ('cats')",
    ],
    [
        "CREATE VIEW o AS TABLE pg_settings",
        "DROP VIEW o",
        "UPDATE o SET setting = '77' WHERE name = 'lock_timeout'",
    ],
];

/// Template that doesn't leave anything in a backend.
const PLAIN: &str = "CREATE ROLE reader; CREATE TABLE words (x text);";

/// Returns a part of all objects.
fn some_objects() -> Vec<[String; 3]> {
    let with_calls = OBJECTS
        .iter()
        .flat_map(|object| CALLS.iter().map(|call| object.map(|sql| sql.replace("{call}", call))));
    depth::some_of(with_calls.chain(OTHERS.iter().map(|object| object.map(ToOwned::to_owned))))
}

/// Returns the process ID of the session's backend.
fn process(session: &mut Connection) -> String {
    session.value("SELECT pg_backend_pid()").unwrap()
}

/// Opens a session in a database that pgfresh has reset, so that pgfresh has analyzed the template.
fn in_known_template(gateway: &Gateway, name: &str) -> Connection {
    gateway.connect_in_time(name, LASTING).close();
    let (status, answer) = gateway.reset(name);
    assert_eq!(status, 204, "{answer}");
    gateway.connect_in_time(name, LASTING)
}

/// Checks that the backend ends, so that no other session gets it.
fn is_nobodys(gateway: &Gateway, name: &str, pid: &str, why: &str) {
    let mut next = gateway.connect_in_time(name, LASTING);
    let left = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    wait_until(why, || next.value(&left).unwrap() == "0");
    assert_eq!(next.value("SELECT current_setting('app.x', true) IS NULL").unwrap(), "t", "{why}");
}

fn backend_that_used_template_object_is_not_reused(major: u32) {
    for [create, _, used] in some_objects() {
        let gateway = Gateway::start(major, &format!("{PLAIN}{create}"), &[]);
        let mut user = in_known_template(&gateway, "used");
        let pid = process(&mut user);
        user.rows(&used).unwrap_or_else(|error| panic!("{used} after {create}: {error}"));
        user.close();
        is_nobodys(&gateway, "used", &pid, &format!("{create}; {used}"));
    }
}

fn backend_that_used_lease_object_is_not_reused(major: u32) {
    let gateway = Gateway::start(major, PLAIN, &[]);
    for (round, [create, drop, used]) in some_objects().into_iter().enumerate() {
        let name = format!("made_{round}");
        let mut definer = in_known_template(&gateway, &name);
        let mut user = gateway.connect_in_time(&name, LASTING);
        definer.rows(&create).unwrap();
        user.rows(&used).unwrap_or_else(|error| panic!("{used} after {create}: {error}"));
        let pid = process(&mut user);
        definer.rows(&drop).unwrap();
        user.close();
        definer.close();
        let (status, answer) = gateway.reset(&name);
        assert_eq!(status, 204, "{answer}");
        is_nobodys(&gateway, &name, &pid, &format!("{create}; {used}"));
    }
}

/// The template contains all kinds of expressions that depend only on rows, sequences and the clock.
fn a_template_that_leaves_nothing_keeps_its_backends(major: u32) {
    let template = "CREATE SEQUENCE s; CREATE TABLE o (id int DEFAULT nextval('s') CHECK (id > random() - 2), \
            at timestamptz DEFAULT now(), x text, v tsvector GENERATED ALWAYS AS (array_to_tsvector(ARRAY[x])) STORED); \
        CREATE VIEW v AS SELECT id, lower(x), count(*) FROM o WHERE current_setting('app.x', true) IS NULL GROUP BY 1, 2; \
        CREATE INDEX i ON o (lower(x)); CREATE DOMAIN d AS text CHECK (VALUE ~ 'x'); ALTER TABLE o ADD uuid uuid DEFAULT gen_random_uuid();";
    let gateway = Gateway::start(major, template, &[]);
    in_known_template(&gateway, "kept").close();
    let mut used = BTreeSet::new();
    wait_until("a backend that serves another client", || {
        let mut session = gateway.connect_in_time("kept", LASTING);
        session.rows("INSERT INTO o (x) VALUES ('a'); TABLE v").unwrap();
        let is_new = used.insert(process(&mut session));
        session.close();
        !is_new
    });
}
