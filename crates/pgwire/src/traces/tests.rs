use std::hint::black_box;
use std::time::Instant;

use proptest::prelude::*;

use super::names::{ATTRIBUTE_PREFIXES, ATTRIBUTES, FUNCTIONS, KEYWORDS, SETTINGS, TEXT_SEARCH};
use super::*;

/// A table of statements. Each line contains a verdict and a statement.
const STATEMENTS: &str = include_str!("statements.txt");

/// The relevant part of a server's startup response.
const STARTUP_RESPONSE: &[u8] =
    b"S\0\0\0\x19client_encoding\0UTF8\0S\0\0\0\x23standard_conforming_strings\0on\0Z\0\0\0\x05I";

#[test]
fn every_statement_of_the_table_has_its_verdict() {
    let mut counts = [0, 0];
    for line in STATEMENTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (expected, sql) = line.split_once(' ').unwrap();
        let clean = expected == "nothing";
        assert!(clean || expected == "traces", "{line}");
        let sql = sql.replace("\\n", "\n");
        assert_eq!(leaves_nothing(sql.as_bytes()), clean, "{sql}");
        counts[usize::from(clean)] += 1;
    }
    assert!(counts[0] + counts[1] >= 200 && counts[0] >= 80, "{counts:?}");
}

#[test]
fn lists_are_sorted_and_name_nothing_twice() {
    for list in [FUNCTIONS, KEYWORDS, SETTINGS, ATTRIBUTES, ATTRIBUTE_PREFIXES, TEXT_SEARCH] {
        assert!(list.is_sorted_by(|one, next| one < next));
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(list.iter().all(|name| name.len() <= NAME && name.bytes().all(is_name)));
    }
    let letters = b"bdflpstw";
    let looked_up = |name: &&str| name.len() >= 3 && letters.contains(&name.as_bytes()[0]);
    assert!(ATTRIBUTES.iter().chain(ATTRIBUTE_PREFIXES).all(looked_up));
    let forbidden = |name: &&&str| {
        ATTRIBUTES.contains(name) || ATTRIBUTE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    assert_eq!(FUNCTIONS.iter().chain(KEYWORDS).find(forbidden), None);
}

#[test]
fn only_complete_messages_are_checked() {
    let query = b"SELECT 1\0";
    let parse = b"name\0SELECT $1\0\0\0";
    let large = [b"SELECT '", &vec![b'x'; LONGEST][..], b"'\0"].concat();
    let just = [b"SELECT '", &vec![b'x'; LONGEST - 10][..], b"'\0"].concat();
    for (tag, body, length, clean) in [
        (b'Q', &query[..], query.len(), true),
        (b'Q', &query[..4], query.len(), false),
        (b'Q', &query[..8], 8, false),
        (b'P', &parse[..], parse.len(), true),
        (b'P', &parse[..9], parse.len(), false),
        (b'P', b"DO\0SELECT 1\0\0\0", 14, true),
        (b'P', b"\0DO 'x'\0\0\0", 10, false),
        (b'Q', &large, large.len(), false),
        (b'Q', &just, just.len(), true),
        (b'F', b"", 0, false),
        (b'd', b"DO", 2, true),
        (b'B', b"DO\0DO\0", 6, true),
    ] {
        let mut traces = SessionTraces::of_session(STARTUP_RESPONSE);
        traces.observe_client(FramePrefix { tag, length, body });
        assert_eq!(traces.leaves_nothing(), clean, "{}", body.escape_ascii());
        // Once a session has left state, the state never disappears.
        traces.observe_client(FramePrefix { tag: b'Q', length: query.len(), body: query });
        assert_eq!(traces.leaves_nothing(), clean);
    }
}

#[test]
fn only_text_that_can_be_read_is_trusted() {
    let replaced =
        |from: &str, to: &str| String::from_utf8_lossy(STARTUP_RESPONSE).replace(from, to).into_bytes();
    assert!(SessionTraces::of_session(STARTUP_RESPONSE).leaves_nothing());
    assert!(SessionTraces::of_session(&replaced("UTF8", "SQL_ASCII")).leaves_nothing());
    for startup_response in [replaced("UTF8", "SJIS"), replaced("\0on\0", "\0off\0"), Vec::new()] {
        assert!(!SessionTraces::of_session(&startup_response).leaves_nothing());
    }
}

/// Calls of functions that leave state, as pairs of the function's name and its arguments.
const FORBIDDEN: &[(&str, &str)] = &[
    ("set_config", "'app.user', 'x', false"),
    ("setseed", "0.5"),
    ("dblink_connect", "'dbname=x'"),
    ("lo_create", "0"),
    ("query_to_xml", "'SELECT setseed(0.5)', true, true, ''"),
    ("ts_stat", "'SELECT 1'"),
    ("pg_replication_origin_session_setup", "'x'"),
    ("to_tsvector", "'the cats'"),
    ("convert_from", "'x', 'latin1'"),
    ("pg_get_loaded_modules", ""),
    ("mine", "1"),
];

/// Generates a way to write a name.
fn spelled() -> impl Strategy<Value = fn(&str) -> String> {
    prop::sample::select(vec![
        str::to_owned as fn(&str) -> String,
        str::to_uppercase,
        |name| format!("\"{name}\""),
        |name| format!("U&\"{}\"", name.replace('s', "\\0073")),
        |name| format!("u&\"{}\" UESCAPE '\\'", name.replace('_', "\\005f")),
        |name| format!("pg_catalog.{name}"),
        |name| format!("PG_Catalog . \"{name}\""),
        |name| format!("\"pg_catalog\"/**/.{}", name.to_uppercase()),
        |name| format!("public.{name}"),
    ])
}

fn blank() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", " ", "\n", "\t", "/* '( */", "-- '$$\n", "/*/**/ ; */", "--\r"])
}

/// Statements where `{}` stands for an expression.
const AROUND: &[&str] = &[
    "SELECT {}",
    "SELECT 1, {} AS x",
    "SELECT count({})",
    "SELECT (({}))::text",
    "SELECT CAST({} AS varchar(10))",
    "SELECT E'a\\'b', {}, E'\\\\'",
    "SELECT E'a'\n'\\'', {}, 'b'",
    "SELECT $$'$$, {}, $a$$b$a$",
    "SELECT 'it''s', {} -- '",
    "SELECT \"a\"\"b\", {} FROM t",
    "SELECT DISTINCT ON (a) {} FROM t",
    "SELECT a OPERATOR(pg_catalog.=) {} FROM t",
    "SELECT a AT TIME ZONE {}",
    "SELECT a[1:{}] FROM t",
    "SELECT CASE {} WHEN 1 THEN 2 END",
    "SELECT 1 WHERE x IN (SELECT {})",
    "SELECT * FROM {}",
    "SELECT * FROM t, LATERAL {} AS f (a, b)",
    "SELECT * FROM ROWS FROM ({}) WITH ORDINALITY",
    "SELECT row_number() OVER (ORDER BY {}) FROM t",
    "SELECT 1 ORDER BY {}",
    "SELECT 1 LIMIT {}",
    "WITH a AS (SELECT {}) SELECT * FROM a",
    "WITH RECURSIVE a (b) AS (SELECT 1), c AS MATERIALIZED (SELECT {}) TABLE c",
    "INSERT INTO t (a, b) VALUES (1, {})",
    "INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET b = {} RETURNING {}",
    "UPDATE t SET (a, b) = (1, {}) WHERE c = {}",
    "DELETE FROM t USING u WHERE {} IS NULL",
    "MERGE INTO t USING u ON {} WHEN NOT MATCHED THEN INSERT (a) VALUES (1)",
    "VALUES (1), ({})",
    "PREPARE p (int) AS SELECT {}",
    "EXECUTE p ({})",
    "EXPLAIN (ANALYZE, COSTS off) SELECT {}",
    "EXPLAIN ANALYZE EXECUTE p(1, {})",
    "EXPLAIN (SELECT {})",
    "DECLARE c CURSOR WITH HOLD FOR SELECT {}",
    "COPY (SELECT {}) TO STDOUT",
    "COPY t FROM STDIN WHERE a = {}",
    "(SELECT 1) UNION (SELECT {})",
    "BEGIN; SELECT {}; COMMIT",
    "SELECT 1;;SELECT lower({});",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn calls_that_leave_state_are_found_anywhere(
        around in prop::sample::select(AROUND),
        (name, arguments) in prop::sample::select(FORBIDDEN),
        spell in spelled(),
        (before, between, after) in (blank(), blank(), blank()),
        upper in any::<bool>(),
        casts in prop::bool::weighted(0.3),
    ) {
        let mut call = format!("{before}{}{between}({after}{arguments})", spell(name));
        if casts {
            call = format!("{call}::varchar(3)");
        }
        // Quoted text is data, so the test must not change its case.
        let frame = if upper && !around.contains(['\'', '"', '$']) { around.to_uppercase() } else { (*around).to_owned() };
        let sql = frame.replace("{}", &call);
        prop_assert!(!leaves_nothing(sql.as_bytes()), "{}", sql);
        // The frame on its own leaves no state.
        let clean = frame.replace("{}", "lower('x')");
        prop_assert!(leaves_nothing(clean.as_bytes()), "{}", clean);
    }

    #[test]
    fn no_statement_is_too_strange(
        line in prop::sample::select(STATEMENTS.lines().collect::<Vec<_>>()),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        noise in prop::collection::vec(prop_oneof![
            prop::sample::select(&b"'\"$\\/*-eE\n a1.(;:U&"[..]), any::<u8>(),
        ], 0..80),
    ) {
        let mut sql = line.as_bytes().to_vec();
        for (index, byte) in cuts {
            let at = index.index(sql.len() + 1);
            sql.insert(at, byte);
        }
        for bytes in [&sql[..], &noise] {
            black_box(leaves_nothing(bytes));
            let mut traces = SessionTraces::of_session(bytes);
            for tag in *b"QPF" {
                traces.observe_client(FramePrefix { tag, length: bytes.len(), body: bytes });
            }
        }
    }
}

/// Measures a verdict. Run it with `cargo test --release -p pgfresh-pgwire verdict_takes -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn a_verdict_takes_less_than_a_microsecond() {
    let insert = "INSERT INTO \"public\".\"User\" (\"id\", \"email\", \"name\") VALUES ($1, $2, $3) RETURNING \"id\", \"email\", lower(\"name\")";
    let join = "SELECT u.id, u.name, count(*) AS n FROM users u LEFT JOIN posts p ON p.user_id = u.id WHERE u.email = $1 AND p.deleted_at IS NULL GROUP BY u.id, u.name ORDER BY n DESC LIMIT 10";
    for sql in ["BEGIN", "SELECT 1", "SELECT id, word FROM item WHERE id = $1", insert, join] {
        assert!(leaves_nothing(sql.as_bytes()));
        // Use the shortest time, because other programs are running on the machine too.
        let batch = |_| {
            let begun = Instant::now();
            for _ in 0..1000 {
                black_box(leaves_nothing(black_box(sql.as_bytes())));
            }
            begun.elapsed().as_nanos() / 1000
        };
        let nanoseconds = (0..300).map(batch).min().unwrap_or_default();
        println!("{nanoseconds} ns for {} bytes: {sql}", sql.len());
    }
}
