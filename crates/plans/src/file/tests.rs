use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::*;
use crate::{RelationKind, Slot};

/// Shortened output of `pg_dump --statistics-only` from PostgreSQL 18.
const DUMP: &str = r#"--
-- PostgreSQL database dump
--

\restrict VaatC3NMmum7RytapY4Q8kStNoNfDfpaJKdybzBiJEuswB30ls2BxHhRaFSMKtB

SET statement_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);

--
-- Statistics for Name: Tab le; Type: STATISTICS DATA; Schema: Odd "schema; Owner: -
--

SELECT * FROM pg_catalog.pg_restore_relation_stats(
	'version', '180004'::integer,
	'schemaname', 'Odd "schema',
	'relname', 'Tab''le',
	'relpages', '11'::integer,
	'reltuples', '2000'::real,
	'relallvisible', '0'::integer,
	'relallfrozen', '0'::integer
);
SELECT * FROM pg_catalog.pg_restore_attribute_stats(
	'version', '180004'::integer,
	'schemaname', 'Odd "schema',
	'relname', 'Tab''le',
	'attname', 'note',
	'inherited', 'f'::boolean,
	'null_frac', '0.33333334'::real,
	'avg_width', '23'::integer,
	'n_distinct', '-0.5'::real,
	'most_common_vals', E'{"odd \\"quoted\\" \\\\ {x,y}",it''s}'::text,
	'most_common_freqs', '{0.25,0.125}'::real[],
	'correlation', '0.25'::real
);
SELECT * FROM pg_catalog.pg_restore_relation_stats(
	'version', '180004'::integer,
	'schemaname', 'public',
	'relname', 'users_lower',
	'relpages', '-1'::integer,
	'reltuples', '-1'::real,
	'relallvisible', '0'::integer
);
SELECT * FROM pg_catalog.pg_restore_attribute_stats(
	'version', '180004'::integer,
	'schemaname', 'public',
	'relname', 'users_lower',
	'attnum', '1'::smallint,
	'inherited', 'f'::boolean,
	'null_frac', '0'::real,
	'avg_width', '23'::integer,
	'n_distinct', '-1'::real,
	'histogram_bounds', '{a,b,c}'::text
);

\unrestrict VaatC3NMmum7RytapY4Q8kStNoNfDfpaJKdybzBiJEuswB30ls2BxHhRaFSMKtB

"#;

/// Statistics in pgfresh's format, with an object of each kind.
fn example() -> Value {
    json!({
        "format": 1, "server_version": 150_004, "taken": 1, "settings": {"work_mem": "4MB"},
        "relations": [
            {
                "schema": "public", "name": "users", "kind": "table", "pages": 1, "analyzed_pages": 1, "rows": 10.0,
                "all_visible": 0, "columns": [
                    {
                        "column": "email", "type_name": "text", "inherited": false, "null_fraction": 0.0, "width": 8,
                        "distinct": -1.0, "slots": [
                            {"kind": 1, "numbers": [0.5], "values": ["planted"]},
                            {"kind": 2, "values": ["planted", "zoe"]},
                            {"kind": 3, "numbers": [0.5]}
                        ]
                    }
                ]
            },
            {
                "schema": "public", "name": "users_pkey", "kind": "index", "pages": 1, "analyzed_pages": 1, "rows": 10.0,
                "all_visible": 0, "table": "users", "definition": "CREATE …", "height": 2
            }
        ],
        "extended": [{
            "schema": "public", "name": "pairs", "table": {"schema": "public", "name": "users"}, "inherited": false,
            "columns": ["a", "b"], "distinct": [{"columns": ["a", "b"], "count": 3.0}],
            "dependencies": [{"columns": ["a"], "determines": "b", "degree": 0.5}],
            "common": [{"values": ["planted", null], "frequency": 0.5, "base_frequency": 0.25}]
        }]
    })
}

fn error(file: &[u8]) -> String {
    Statistics::parse(file).unwrap_err().to_string()
}

#[test]
fn files_survive_a_round_trip() {
    let statistics = Statistics::parse(example().to_string().as_bytes()).unwrap();
    let text = statistics.to_json();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), example());
    assert_eq!(Statistics::parse(text.as_bytes()).unwrap(), statistics);
    assert!(text.starts_with("{\n \"format\":1,\n \"server_version\":150004,\n"), "{text}");
    let lines: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("{\"column\"")).collect();
    assert_eq!(lines.len(), 1, "{text}");
}

#[test]
fn output_of_pg_dump_is_read() {
    let statistics = Statistics::parse(DUMP.as_bytes()).unwrap();
    assert_eq!((statistics.server_version, statistics.relations.len()), (180_004, 2));
    let table = &statistics.relations[0];
    assert_eq!(
        (table.name.as_str(), table.kind, table.pages, table.rows),
        ("Tab'le", RelationKind::Unknown, 11, 2000.0)
    );
    let column = &table.columns[0];
    let values = vec!["odd \"quoted\" \\ {x,y}".to_owned(), "it's".to_owned()];
    let common = Slot { kind: 1, numbers: Some(vec![0.25, 0.125]), values: Some(values) };
    let correlation = Slot { kind: 3, numbers: Some(vec![0.25]), values: None };
    assert_eq!((column.column.as_str(), &column.slots), ("note", &vec![common, correlation]));
    let index = &statistics.relations[1];
    assert_eq!((index.pages, index.rows, index.columns[0].number), (0, -1.0, Some(1)));
    // With standard_conforming_strings off, pg_dump doubles backslashes in plain literals.
    let old = DUMP.replace("strings = on", "strings = off").replace("E'{", "'{");
    assert_eq!(Statistics::parse(old.as_bytes()).unwrap(), statistics);
}

#[test]
fn damaged_dumps_are_errors_with_a_line() {
    for (from, to, expected) in [
        (
            "SELECT * FROM pg_catalog.pg_restore_attribute_stats",
            "DROP TABLE",
            "line 25: this is not a call that",
        ),
        ("pg_restore_attribute_stats", "lo_unlink", "line 25: this is not a call that"),
        ("'UTF8'", "'LATIN1'", "line 8: the file is not in UTF-8"),
        ("'11'::integer", "'eleven'::integer", "line 16: argument \"relpages\" is not a valid number"),
        ("'11'::integer", "'99999999999'::integer", "line 16: argument \"relpages\" is too large"),
        ("'11'::integer", "(SELECT 1)", "line 16: argument \"relpages\" is not a literal, number or word"),
        ("\t'relpages', '11'::integer,\n", "", "line 16: argument \"relpages\" is missing"),
        ("{0.25,0.125}", "{0.25,NaN}", "line 25: argument \"most_common_freqs\" is not an array of numbers"),
        (
            "{0.25,0.125}",
            "{0.25}",
            "column \"note\" of Tab'le: slot of kind 1: it does not have 2 \"numbers\"",
        ),
        ("{a,b,c}", "{a,b,c", "line 46: argument \"histogram_bounds\" is not an array of values"),
        (
            "'relname', 'users_lower',\n\t'attnum'",
            "'relname', 'none',\n\t'attnum'",
            "line 46: relation \"public\".\"none\" has no size",
        ),
        (
            "'users_lower',\n\t'relpages'",
            "'users_lower',\n\t'relname', 'b',\n\t'relpages'",
            "line 38: argument \"relname\" occurs twice",
        ),
        ("\n);\n\n\\unrestrict", "\n", "does not end"),
    ] {
        assert!(DUMP.contains(from), "{from}");
        let error = error(DUMP.replacen(from, to, 1).as_bytes());
        assert!(error.contains(expected), "{error}, not {expected}");
    }
    let twice = [DUMP, DUMP].concat();
    assert!(error(twice.as_bytes()).contains("occurs twice"), "{}", error(twice.as_bytes()));
    assert_eq!(error(b"a\n\xff"), "line 2: a byte is not UTF-8");
}

#[test]
fn hostile_files_are_errors_without_values() {
    for (pointer, value, expected) in [
        ("/format", json!(2), "the file has format 2, but this pgfresh reads format 1"),
        ("/server_version", json!(7), "\"server_version\" is not a PostgreSQL version"),
        ("/settings/work_mem", json!("4MB'; DROP"), "the value of \"work_mem\" is not a number"),
        ("/settings", json!({"archive_command": "x"}), "\"archive_command\" is not a planner setting"),
        ("/relations/0/pages", json!(-1), "this is not u32"),
        ("/relations/0/pages", json!(u32::MAX), "relation \"public\".\"users\": \"pages\" is above"),
        ("/relations/0/rows", json!(1e300), "\"rows\" is not between -1 and 3.4e38"),
        ("/relations/0/rows", json!(-2), "\"rows\" is not between -1 and 3.4e38"),
        ("/relations/0/kind", json!("view"), "this is not one of"),
        ("/relations/0/name", json!("users_pkey"), "it occurs twice"),
        ("/relations/0/name", json!(""), "a name is empty"),
        ("/relations/0/name", json!("a\0b"), "a text contains NUL"),
        ("/relations/1/table", Value::Null, "it is an index without a \"table\""),
        ("/relations/1/height", json!(33), "\"height\" is above 32"),
        ("/relations/0/columns/0/null_fraction", json!(1.5), "column \"email\" of users: \"null_fraction\""),
        ("/relations/0/columns/0/null_fraction", Value::Null, "this is not f32"),
        ("/relations/0/columns/0/width", json!(-1), "\"width\" is negative"),
        ("/relations/0/columns/0/distinct", json!(1e39), "\"distinct\" is not a number"),
        ("/relations/0/columns/0/slots/0/kind", json!(8), "\"kind\" is not between 1 and 7"),
        ("/relations/0/columns/0/slots/1/kind", json!(1), "it has two slots of kind 1"),
        ("/relations/0/columns/0/slots/0/numbers", json!([-0.5]), "a frequency is not between"),
        ("/relations/0/columns/0/slots/0/numbers", json!([0.5, 0.5]), "it does not have 1 \"numbers\""),
        ("/relations/0/columns/0/slots/0/values", json!(vec!["planted"; 10_001]), "not between 1 and 10000"),
        ("/relations/0/columns/0/slots/1/values", json!(["planted"]), "not between 2 and 10001"),
        ("/relations/0/columns/0/slots/1/values", json!([["planted"], "b"]), "this is not a string"),
        ("/relations/0/columns/0/slots/2/numbers", json!([3]), "it is not a correlation"),
        ("/extended/0/columns", json!(["a", "a"]), "a column occurs twice"),
        ("/extended/0/columns", json!(["a"]), "a combination does not consist of distinct columns"),
        ("/extended/0/common/0/values", json!(["planted"]), "does not have one value for each column"),
        ("/extended/0/common/0/frequency", json!(2), "a frequency is not between"),
        ("/extended/0/dependencies/0/determines", json!("a"), "\"determines\" is not a different column"),
        ("/extended/0/distinct/0/count", json!(-1), "\"count\" is not a number"),
        ("/taken", json!("planted"), "this is not u64"),
    ] {
        let mut file = example();
        *file.pointer_mut(pointer).unwrap() = value;
        let error = error(file.to_string().as_bytes());
        assert!(error.contains(expected) && !error.contains("planted"), "{pointer}: {error}");
    }
}

#[test]
fn malformed_files_are_errors_without_values() {
    let huge = "9".repeat(400);
    for (file, expected) in [
        ("{".repeat(100_000), "line 1: "),
        (format!("{{\"format\":{}", "[".repeat(100_000)), "line 1: "),
        (example().to_string().replace("\"pages\":1,", &format!("\"pages\":{huge},")), "number out of range"),
        (example().to_string().replace("\"rows\":10.0", "\"rows\":NaN"), "line 1: expected value"),
        (example().to_string().replace("\"taken\"", "\"planted\""), "this is not one of"),
        (example().to_string().replace(",\"taken\":1", ""), "missing field `taken`"),
        (String::new(), "line 1: the file has no statistics"),
    ] {
        let error = error(file.as_bytes());
        assert!(error.contains(expected) && !error.contains("planted"), "{error}");
    }
}

/// Replaces `length` bytes of a file, starting at `at`.
fn damage(file: &str, at: Index, length: usize, with: &[u8]) -> Vec<u8> {
    let mut bytes = file.as_bytes().to_vec();
    let start = at.index(bytes.len());
    let end = (start + length).min(bytes.len());
    bytes.splice(start..end, with.iter().copied());
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// pgfresh can redact and write every file that the parser accepts.
    #[test]
    fn damaged_files_give_a_result(
        at: Index, length in 0..40_usize, with in proptest::collection::vec(any::<u8>(), 0..9), of_dump: bool,
    ) {
        let json = example().to_string();
        let file = damage(if of_dump { DUMP } else { &json }, at, length, &with);
        if let Ok(mut statistics) = Statistics::parse(&file) {
            let words = ["all".to_owned()];
            crate::redact::Redaction::parse(&words).unwrap().apply(&mut statistics).unwrap();
            let again = Statistics::parse(statistics.to_json().as_bytes()).unwrap();
            prop_assert_eq!(again, statistics);
        }
    }
}

#[test]
fn fifty_thousand_tables_are_read() {
    let mut file = example();
    let table = file["relations"][0].clone();
    let tables = (0..50_000).map(|number| {
        let mut table = table.clone();
        table["name"] = json!(format!("users_{number}"));
        // The first 200 tables inherit in a circle. The others are partitions of the same table.
        let parent = if number < 200 { (number + 1) % 200 } else { 200 };
        table["parents"] = json!([{"schema": "public", "name": format!("users_{parent}")}]);
        table
    });
    file["relations"] = tables.collect();
    let mut statistics = Statistics::parse(file.to_string().as_bytes()).unwrap();
    crate::redact::Redaction::parse(&[]).unwrap().apply(&mut statistics).unwrap();
    assert!(statistics.relations.iter().all(|relation| relation.columns[0].redacted));
    assert_eq!(statistics.settings, BTreeMap::from([("work_mem".to_owned(), "4MB".to_owned())]));
}
