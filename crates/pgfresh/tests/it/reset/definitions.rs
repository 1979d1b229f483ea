//! Tests resets with definitions: a template's functions, which run while rows are restored, and a
//! client's own functions.

use super::{BRIEF, LASTING};
use crate::common::gateway::Gateway;
use crate::common::on_every_major;

on_every_major! {
    a_reset_restores_function_indexes_and_checks
    a_reset_restores_values_of_builtin_functions
    default_text_search_permits_resets
    a_clients_casts_hide_nothing
    backends_with_client_functions_are_not_reused
}

/// The functions depend on the session's time zone and on other functions, although they are declared immutable.
fn a_reset_restores_function_indexes_and_checks(major: u32) {
    let template = "ALTER DATABASE app SET timezone = 'Asia/Tokyo'; SET timezone = 'Asia/Tokyo'; \
        CREATE FUNCTION day_of(timestamptz) RETURNS date IMMUTABLE LANGUAGE sql AS 'SELECT $1::date'; \
        CREATE FUNCTION fold(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT lower($1)'; \
        CREATE FUNCTION norm(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN fold($1); END'; \
        CREATE DOMAIN short AS text CHECK (norm(VALUE) <> ''); \
        CREATE TABLE ev (at timestamptz); CREATE INDEX ON ev (day_of(at)); \
        CREATE TABLE checked (n text CHECK (norm(n) <> '')); CREATE TABLE of_domain (n short); \
        INSERT INTO ev SELECT '2026-01-01 20:00+00'::timestamptz FROM generate_series(1, 20); \
        INSERT INTO checked VALUES ('a'); INSERT INTO of_domain VALUES ('a');";
    let gateway = Gateway::start(major, template, &[]);
    let by_index = "SET enable_seqscan = off; SELECT count(*) FROM ev WHERE day_of(at) = '2026-01-02'";
    for (round, change) in ["UPDATE ev SET at = at", "DELETE FROM checked", "DELETE FROM of_domain"]
        .into_iter()
        .cycle()
        .take(9)
        .enumerate()
    {
        let mut session = gateway.connect(&format!("indexed_{round}"), BRIEF).unwrap();
        assert_eq!(session.value(by_index).unwrap(), "20", "round {round}");
        let rows = "SELECT (SELECT count(*) FROM checked), (SELECT count(*) FROM of_domain)";
        assert_eq!(
            session.rows(rows).unwrap(),
            [[Some("1".to_owned()), Some("1".to_owned())]],
            "round {round}"
        );
        session.rows(change).unwrap();
        session.close();
    }
}

/// The functions depend on settings and on the text search configuration, although the server
/// declares them immutable.
fn a_reset_restores_values_of_builtin_functions(major: u32) {
    const NUMBER: &str = "'0.30000000000000004'::float8";
    let template = format!(
        "SET extra_float_digits = 0; SET bytea_output = escape; SET quote_all_identifiers = on; \
        CREATE TEXT SEARCH CONFIGURATION mine (COPY = english); \
        CREATE TABLE number (v float8, t text GENERATED ALWAYS AS (v::text COLLATE \"C\") STORED); \
        CREATE TABLE bytes (v bytea, t text GENERATED ALWAYS AS (v::text COLLATE \"C\") STORED); \
        CREATE TABLE called (v text, t text GENERATED ALWAYS AS (quote_ident(v)) STORED); \
        CREATE TABLE place (v point); CREATE INDEX ON place ((v::text COLLATE \"C\")); \
        CREATE TABLE part (v float8); CREATE INDEX ON part (v) WHERE v::text COLLATE \"C\" = '0.3'; \
        CREATE TABLE words (v text, t tsvector GENERATED ALWAYS AS (to_tsvector('english', v)) STORED); \
        CREATE TABLE found (v text); CREATE INDEX ON found USING gin (to_tsvector('mine', v)); \
        INSERT INTO number VALUES ({NUMBER}); INSERT INTO bytes VALUES ('abc'); INSERT INTO called VALUES ('abc'); \
        INSERT INTO place VALUES (point({NUMBER}, 1)); INSERT INTO part VALUES ({NUMBER}); \
        INSERT INTO words VALUES ('the running dogs'); INSERT INTO found VALUES ('the running dogs'); \
        ALTER TEXT SEARCH CONFIGURATION english DROP MAPPING FOR asciiword; \
        ALTER TEXT SEARCH CONFIGURATION mine ALTER MAPPING FOR asciiword WITH simple"
    );
    let gateway = Gateway::start(major, &template, &[]);
    let settings = "SET enable_seqscan = off; SET extra_float_digits = 0; ";
    let queries = [
        "SELECT t FROM number",
        "SELECT t FROM bytes",
        "SELECT t FROM called",
        "SELECT count(*) FROM place WHERE v::text COLLATE \"C\" = '(0.3,1)'",
        "SELECT count(*) FROM part WHERE v::text COLLATE \"C\" = '0.3'",
        "SELECT t FROM words",
        "SELECT count(*) FROM found WHERE to_tsvector('mine', v) @@ 'dog'::tsquery",
    ];
    let said = ["0.3", "abc", "\"abc\"", "1", "1", "'dog':3 'run':2", "1"];
    let tables = ["number", "bytes", "called", "place", "part", "words", "found"];
    for (round, table) in tables.iter().cycle().take(2 * tables.len()).enumerate() {
        let mut session = gateway.connect(&format!("computed_{round}"), BRIEF).unwrap();
        session.rows(settings).unwrap();
        for (query, said) in queries.iter().zip(said) {
            assert_eq!(session.value(query).unwrap(), said, "round {round}: {query}");
        }
        session.rows(&format!("INSERT INTO {table} SELECT v FROM {table}; DELETE FROM {table}")).unwrap();
        session.close();
    }
}

/// Also covers casts to text that don't depend on anything else.
fn default_text_search_permits_resets(major: u32) {
    let template = "CREATE TABLE words (v text, t tsvector GENERATED ALWAYS AS (to_tsvector('english', v)) STORED); \
        CREATE TABLE found (v jsonb); CREATE INDEX ON found ((v->>'a')); CREATE INDEX ON found (((v->>'b')::int)); \
        CREATE INDEX ON found USING gin (to_tsvector('simple', v->>'a')); \
        INSERT INTO words VALUES ('the running dogs'); INSERT INTO found VALUES ('{\"a\": \"c\", \"b\": 1}')";
    let gateway = Gateway::start(major, template, &[]);
    gateway.connect("first", LASTING).unwrap().rows("DELETE FROM words; DELETE FROM found").unwrap();
    let (status, answer) = gateway.reset("first");
    assert_eq!(status, 204, "{answer}");
    let mut session = gateway.connect("first", LASTING).unwrap();
    assert_eq!(session.value("SELECT t FROM words").unwrap(), "'dog':3 'run':2");
    session.close();
    assert_eq!(gateway.dropped(), serde_json::json!({}), "{}", gateway.status());
}

/// A client defines a cast from a row type to text, which could hide the row from a comparison.
fn a_clients_casts_hide_nothing(major: u32) {
    let gateway = Gateway::start(major, "CREATE TABLE t (id int)", &[]);
    let hide = |catalog: &str, shown: &str| {
        format!(
            "CREATE FUNCTION hide_{catalog}(pg_catalog.{catalog}) RETURNS text LANGUAGE sql \
             AS $f$ SELECT CASE WHEN {shown} THEN textin(record_out($1)) END $f$; \
             CREATE CAST (pg_catalog.{catalog} AS text) WITH FUNCTION hide_{catalog}(pg_catalog.{catalog}) AS ASSIGNMENT;"
        )
    };
    let sql = [
        hide("pg_proc", "($1).oid < 16384"),
        hide("pg_cast", "($1).oid < 16384"),
        hide("pg_depend", "($1).classid NOT IN (1255, 2605) OR ($1).objid < 16384"),
        "CREATE FUNCTION leftover() RETURNS int LANGUAGE sql AS 'SELECT 1'".to_owned(),
    ]
    .concat();
    for round in 0..20 {
        let mut session = gateway.connect(&format!("cast_{round}"), BRIEF).unwrap();
        let left = session.value("SELECT count(*) FROM pg_proc WHERE proname = 'leftover'").unwrap();
        assert_eq!(left, "0", "round {round}");
        session.rows(&sql).unwrap();
        session.close();
    }
}

/// A different session defines, uses and drops the function, so it only remains in that session's memory.
fn backends_with_client_functions_are_not_reused(major: u32) {
    let gateway = Gateway::start(major, "CREATE TABLE t (id int)", &[]);
    for early in ["a", "b", "c"] {
        gateway.connect(early, LASTING).unwrap().value("SELECT count(*) FROM t").unwrap();
    }
    let define = "CREATE FUNCTION leave(int, int) RETURNS bool LANGUAGE plpgsql \
        AS $f$ BEGIN PERFORM set_config('app.x', 'left', false); RETURN true; END $f$; \
        CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = leave); \
        CREATE VIEW seeds AS SELECT 1 FROM setseed(0.5)";
    let undefine = "DROP VIEW seeds; DROP OPERATOR === (int, int); DROP FUNCTION leave(int, int)";
    for (round, used) in ["SELECT 1 === 2", "SELECT * FROM seeds"].into_iter().cycle().take(8).enumerate() {
        let name = format!("left_{round}");
        let mut definer = gateway.connect(&name, LASTING).unwrap();
        let mut user = gateway.connect(&name, LASTING).unwrap();
        definer.rows(define).unwrap();
        user.rows(used).unwrap();
        let pid = user.value("SELECT pg_backend_pid()").unwrap();
        definer.rows(undefine).unwrap();
        user.close();
        definer.close();
        let (status, answer) = gateway.reset(&name);
        assert_eq!(status, 204, "{answer}");
        for _ in 0..3 {
            let mut next = gateway.connect(&name, LASTING).unwrap();
            assert_ne!(next.value("SELECT pg_backend_pid()").unwrap(), pid, "{used}");
            assert_eq!(next.value("SELECT current_setting('app.x', true) IS NULL").unwrap(), "t", "{used}");
        }
    }
}
