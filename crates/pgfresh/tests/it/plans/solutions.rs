//! Tests that the cost after a suggestion is the one with exactly the indexes that the finding names.

use plans::{Analysis, BoundStatement, Limits, PlanFindingKind, Scratch, SuiteStatement, analyze};

use super::production::Production;

/// Maximum relative difference between two costs.
const SAME_COST: f64 = 0.1;

const SCHEMA: &str = "
CREATE TABLE customers (id bigint PRIMARY KEY, country text, city text, name text, created timestamptz, active boolean, filler text);
CREATE STATISTICS cc ON country, city FROM customers;
CREATE INDEX cust_active ON customers (created) WHERE active;
CREATE VIEW vcust AS SELECT id, name, country, created FROM customers WHERE active;
CREATE TABLE ev (id bigint PRIMARY KEY, customer_id bigint, big int, small int, kind text, d date, pt point, area box, ip inet,
                 attrs jsonb, score int, filler text);";

/// VACUUM FULL freezes the rows, so that VACUUM marks all pages as visible.
const ROWS: &str = "
SELECT setseed(0.5);
INSERT INTO customers SELECT g, 'C' || g % 100 % 20, 'City' || g % 100, 'Name' || g % 5000, timestamptz '2024-01-01' + g * interval '1 min',
       g % 10 = 0, repeat('f', 350) FROM generate_series(1, 100000) g ORDER BY random();
INSERT INTO ev SELECT g, 1 + (random() * 99999)::int, g, g % 100, 'kind' || g % 30, date '2024-01-01' + g % 1000, point(random() * 100, random() * 100),
       box(point(g % 300, g % 200), point(g % 300 + 1, g % 200 + 1)), '10.0.0.0'::inet + g, jsonb_build_object('k', g % 5000), g % 1000,
       repeat('f', 100) FROM generate_series(1, 150000) g ORDER BY random();
VACUUM FULL; VACUUM ANALYZE;";

/// A server with data, and a scratch server with its statistics.
struct Pair {
    production: Production,
    scratch: Scratch,
    limits: Limits,
    settings: Vec<(String, String)>,
}

impl Pair {
    fn new() -> Self {
        let mut production = Production::new(15, SCHEMA, ROWS);
        production.session.query("SET jit = off").unwrap();
        let (scratch, _) = production.scratch(&production.statistics());
        let limits = Limits { scan_bytes: 5_000_000, cost: 500.0, index_pages: 100, ..Limits::default() };
        Self { production, scratch, limits, settings: Vec::new() }
    }

    fn analyze(&mut self, statements: &[&str]) -> Analysis {
        let record = |text: &&str| SuiteStatement {
            statement: BoundStatement {
                text: (*text).to_owned(),
                settings: self.settings.clone(),
                ..BoundStatement::default()
            },
            normalized: (*text).to_owned(),
            ..SuiteStatement::default()
        };
        let statements: Vec<_> = statements.iter().map(record).collect();
        analyze(&mut self.scratch, &statements, &self.limits)
    }

    /// Returns a statement's cost on the data with exactly these indexes.
    fn cost_with(&mut self, statement: &str, indexes: &[&str]) -> f64 {
        let session = &mut self.production.session;
        session.query("BEGIN").unwrap();
        for sql in indexes {
            session.query(sql).unwrap();
        }
        let plan = self.production.explain_json(statement);
        self.production.session.query("ROLLBACK").unwrap();
        plan[0]["Plan"]["Total Cost"].as_f64().unwrap()
    }

    /// Compares each cost after a change with the data's.
    fn assert_costs(&mut self, analysis: &Analysis) {
        let sql = |places: &[usize]| -> Vec<&str> {
            places.iter().map(|place| analysis.suggestions[*place].sql.as_str()).collect()
        };
        let findings = analysis.findings.iter().filter_map(|finding| {
            let indexes = sql(&finding.suggestions);
            let named = indexes.iter().all(|index| finding.change.contains(index));
            assert!(named, "{finding:#?}");
            Some((finding.statement, indexes, finding.cost_after?))
        });
        let gains = analysis.suggestions.iter().enumerate().flat_map(|(place, suggestion)| {
            suggestion
                .gains
                .iter()
                .map(move |gain| (gain.statement, sql(&[&[place][..], &gain.with].concat()), gain.after))
        });
        for (statement, indexes, after) in findings.chain(gains) {
            let statement = &analysis.statements[statement].normalized;
            let real = self.cost_with(statement, &indexes);
            let differs = (after - real).abs() > SAME_COST * real;
            assert!(!differs, "{statement}: {after} with {indexes:?}, {real} on the data");
        }
    }
}

fn indexes(analysis: &Analysis) -> Vec<&str> {
    let sql =
        analysis.suggestions.iter().map(|suggestion| suggestion.sql.trim_start_matches("CREATE INDEX ON "));
    let mut sql: Vec<_> = sql.collect();
    sql.sort_unstable();
    sql
}

const EITHER: &str = "SELECT * FROM ev WHERE big = 5 OR small = 200";
const JOIN: &str = "SELECT count(*) FROM customers c JOIN ev ON ev.customer_id = c.id WHERE c.name = 'Name5' AND ev.small = 3";
const BOTH: &str = "SELECT * FROM customers WHERE country = 'C3' AND city = 'City3'";
const GROUPS: &str = "SELECT country, city, count(*) FROM customers GROUP BY 1, 2";

#[test]
fn cost_belongs_to_exactly_the_named_indexes() {
    let mut pair = Pair::new();
    for (statements, expected) in [
        (&[EITHER][..], &["ev (big)", "ev (small)"][..]),
        (&[JOIN], &["customers (name)", "ev (customer_id)"]),
        (&[BOTH], &["customers (city)"]),
        (&[BOTH, GROUPS], &["customers (city, country)"]),
        (
            &[GROUPS, BOTH, "SELECT * FROM customers WHERE country = 'C4' ORDER BY created LIMIT 9"],
            &["customers (country, city)", "customers (country, created)"],
        ),
    ] {
        let analysis = pair.analyze(statements);
        pair.assert_costs(&analysis);
        assert_eq!(indexes(&analysis), expected, "{statements:?}");
    }
}

#[test]
fn partial_index_discards_only_its_own_rows() {
    let mut pair = Pair::new();
    pair.settings =
        ["enable_seqscan", "enable_bitmapscan"].map(|name| (name.to_owned(), "off".to_owned())).to_vec();
    let statement = "SELECT count(name) FROM vcust WHERE country = 'C10'";
    let analysis = pair.analyze(&[statement]);
    let finding = analysis.findings.iter().find(|finding| finding.kind == PlanFindingKind::DiscardingScan);
    assert!(finding.is_none(), "{finding:#?}");
    pair.limits.discarded_rows = 100.0;
    pair.limits.discarded_fraction = 0.1;
    let analysis = pair.analyze(&[statement]);
    let finding = analysis.findings.iter().find(|finding| finding.kind == PlanFindingKind::DiscardingScan);
    let evidence = &finding.unwrap().evidence;
    let starts = ["cust_active finds about 9,", "cust_active finds about 10,"];
    assert!(starts.iter().any(|start| evidence.starts_with(start)), "{evidence}");
}

#[test]
fn operators_get_indexes_that_serve_them() {
    let mut pair = Pair::new();
    for (statement, expected) in [
        ("SELECT * FROM customers WHERE name LIKE 'Name77%'", "customers (name text_pattern_ops)"),
        ("SELECT * FROM ev WHERE attrs @> '{\"k\": 77}'", "ev USING gin (attrs jsonb_path_ops)"),
        ("SELECT * FROM ev WHERE pt <@ box(point(1, 1), point(4, 4))", "ev USING gist (pt)"),
        ("SELECT * FROM ev ORDER BY pt <-> point(1, 1) LIMIT 5", "ev USING gist (pt)"),
        ("SELECT * FROM ev WHERE ip << '10.0.5.0/24'", "ev (ip)"),
        ("SELECT * FROM ev WHERE score IS NULL OR score > 990", "ev (score)"),
    ] {
        let analysis = pair.analyze(&[statement]);
        assert_eq!(indexes(&analysis), [expected], "{statement}");
        pair.assert_costs(&analysis);
    }
}

#[test]
fn index_that_saves_too_little_is_named() {
    let mut pair = Pair::new();
    let analysis = pair.analyze(&["SELECT * FROM ev WHERE kind = 'kind1'"]);
    assert_eq!(indexes(&analysis), [] as [&str; 0]);
    let change = &analysis.findings[0].change;
    assert!(change.starts_with("CREATE INDEX ON ev (kind) saves only "), "{change}");
}
