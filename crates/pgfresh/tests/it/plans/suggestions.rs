//! Tests that the index suggestions for a suite are useful, new and minimal.

use plans::{
    BoundStatement, IndexSuggestion, Limits, Plan, PlanFindingKind, Scratch, SuiteStatement, analyze,
};
use server::AdminConnection;

use super::production::Production;
use crate::common::majors;

const SCHEMA: &str = include_str!("shop.sql");
const ROWS: &str = include_str!("shop_rows.sql");

/// Starts a server with rows, and a scratch server without rows.
fn servers(major: u32, schema: &str, rows: &str) -> (Production, Scratch) {
    let mut production = Production::new(major, schema, rows);
    production.session.query("SET jit = off").unwrap();
    production.session.query("VACUUM ANALYZE").unwrap();
    let (scratch, _) = production.scratch(&production.statistics());
    (production, scratch)
}

/// Statements in a suite.
const SUITE: [&str; 15] = [
    "SELECT * FROM orders WHERE customer_id = 7",
    "SELECT * FROM orders WHERE customer_id = 9 ORDER BY created DESC LIMIT 10",
    "SELECT * FROM orders WHERE customer_id = 9 AND status = 'new'",
    "SELECT count(*) FROM orders WHERE total > 990",
    "SELECT * FROM orders WHERE lower(note) = 'abc'",
    "SELECT * FROM orders WHERE region = 5 AND total = 77",
    "SELECT * FROM orders WHERE region = 3 AND total BETWEEN 900 AND 905",
    "SELECT * FROM orders WHERE tags && array[3, 4]",
    "SELECT c.name, sum(o.total) FROM customers c JOIN orders o ON o.customer_id = c.id WHERE c.email = 'u7@example.com' GROUP BY 1",
    "SELECT * FROM lines WHERE sku = 's7'",
    "SELECT * FROM lines WHERE sku = 's7' AND qty = 3",
    "SELECT * FROM events WHERE kind = 77 AND at > '2024-08-01'",
    "DELETE FROM customers WHERE id = 5",
    "INSERT INTO orders (id, customer_id) VALUES (0, 1)",
    "SELECT status, count(*) FROM orders GROUP BY status",
];

fn statement(text: &str) -> BoundStatement {
    BoundStatement { text: text.to_owned(), ..BoundStatement::default() }
}

fn cost(admin: &mut AdminConnection, text: &str) -> (f64, Plan) {
    let rows = admin.query(&format!("EXPLAIN (VERBOSE, FORMAT JSON) {text}")).unwrap();
    let json = serde_json::from_str(rows[0][0].as_ref().unwrap()).unwrap();
    let plan = Plan::parse(&json).unwrap();
    (plan.root.total_cost, plan)
}

fn suite() -> Vec<SuiteStatement> {
    let record = |text: &&str| SuiteStatement {
        statement: statement(text),
        normalized: (*text).to_owned(),
        runs: 1,
        tests: vec!["test".to_owned()],
    };
    SUITE.iter().map(record).collect()
}

fn limits() -> Limits {
    Limits { scan_bytes: 5_000_000, cost: 500.0, index_pages: 100, ..Limits::default() }
}

#[test]
fn suggestions_are_used_and_minimal() {
    majors().into_iter().for_each(build_suggestions);
}

/// Builds all suggested indexes on loaded data. Each index must be in a plan, and without it a
/// statement must be slower.
fn build_suggestions(major: u32) {
    let (mut production, mut scratch) = servers(major, SCHEMA, ROWS);
    let analysis = analyze(&mut scratch, &suite(), &limits());
    assert_eq!(analysis.unexplained, []);
    let admin = &mut production.session;
    println!("{:#?}", analysis.suggestions);
    let sql: Vec<&str> = analysis.suggestions.iter().map(|suggestion| suggestion.sql.as_str()).collect();
    assert!(sql.len() >= 6, "{sql:?}");
    for (number, sql) in sql.iter().enumerate() {
        admin.query(&sql.replacen("INDEX", &format!("INDEX suggested_{number}"), 1)).unwrap();
    }
    for (number, suggestion) in analysis.suggestions.iter().enumerate() {
        assert!(is_needed(admin, number, suggestion, &analysis), "{major}: {} is not needed", suggestion.sql);
    }
    let kinds: Vec<PlanFindingKind> = analysis.findings.iter().map(|finding| finding.kind).collect();
    for kind in [
        PlanFindingKind::SequentialScan,
        PlanFindingKind::DiscardingScan,
        PlanFindingKind::ForeignKeyWithoutIndex,
    ] {
        assert!(kinds.contains(&kind), "{major}: {kinds:?}");
    }
    // The suite reads the table with these indexes, but never uses them.
    assert_eq!(analysis.unused, ["orders_created", "orders_note"], "{major}");
    let replaced: Vec<&str> =
        analysis.suggestions.iter().flat_map(|suggestion| &suggestion.replaces).map(String::as_str).collect();
    assert_eq!(replaced, ["orders_region"], "{major}");
}

/// Returns whether a statement costs more without a suggested index.
fn is_needed(
    admin: &mut AdminConnection,
    number: usize,
    suggestion: &IndexSuggestion,
    analysis: &plans::Analysis,
) -> bool {
    suggestion.gains.iter().any(|gain| {
        let text = if gain.foreign_key {
            "SELECT 1 FROM orders WHERE customer_id = 5 FOR KEY SHARE"
        } else {
            &analysis.statements[gain.statement].normalized
        };
        let (with, _) = cost(admin, text);
        admin.query(&format!("BEGIN; DROP INDEX suggested_{number}")).unwrap();
        let (without, _) = cost(admin, text);
        admin.query("ROLLBACK").unwrap();
        println!("{}: {with} with it, {without} without: {text}", suggestion.sql);
        without > 1.05 * with
    })
}

#[test]
fn suggestions_quote_every_reserved_word() {
    majors().into_iter().for_each(suggest_reserved_words);
}

/// Makes a table with a column for each word that needs quotes, and for some other names.
fn suggest_reserved_words(major: u32) {
    let names = "SELECT word FROM pg_get_keywords() WHERE catcode IN ('R', 'T') \
                 UNION ALL SELECT * FROM unnest(array['Mixed Case', 'a\"b', 'straße', '1st'])";
    let schema = format!(
        "DO $do$ BEGIN EXECUTE (SELECT 'CREATE TABLE words (' || string_agg(quote_ident(word) || ' int', ', ') || ')' FROM ({names}) w); \
         END $do$"
    );
    let rows = "DO $do$ BEGIN EXECUTE (SELECT 'INSERT INTO words SELECT ' || string_agg('g', ', ') || ' FROM generate_series(1, 3000) g' \
                FROM pg_attribute WHERE attrelid = 'words'::regclass AND attnum > 0); END $do$;";
    let (mut production, mut scratch) = servers(major, &schema, rows);
    let words = production.session.query(&format!("SELECT quote_ident(word) FROM ({names}) w")).unwrap();
    let words: Vec<String> = words.into_iter().map(|row| row[0].clone().unwrap()).collect();
    let record = |word: &String| {
        let text = format!("SELECT * FROM words WHERE {word} = 1");
        SuiteStatement { statement: statement(&text), normalized: text, ..SuiteStatement::default() }
    };
    let statements: Vec<SuiteStatement> = words.iter().map(record).collect();
    let limits = Limits { cost: 50.0, index_pages: 10, ..Limits::default() };
    let analysis = analyze(&mut scratch, &statements, &limits);
    let mut sql: Vec<String> = analysis.suggestions.into_iter().map(|suggestion| suggestion.sql).collect();
    let mut expected: Vec<String> =
        words.iter().map(|word| format!("CREATE INDEX ON words ({word})")).collect();
    sql.sort();
    expected.sort();
    assert_eq!(sql, expected);
}
