//! Tests that candidate indexes cost about as much as the same indexes on data.

use plans::{BoundStatement, Candidate, PlanMode, Planner};

use super::production::Production;
use crate::common::majors;

/// Maximum relative difference between two costs.
const SAME_COST: f64 = 0.1;

const SCHEMA: &str = "
CREATE TABLE sale (id bigint PRIMARY KEY, shop int, day date, buyer text, state text, price numeric(10,2), code uuid, weight float8,
                   note varchar(40), at timestamptz, ok bool, rare int, tags int[], data jsonb);
CREATE TABLE log (at timestamptz NOT NULL, shop int, line text) PARTITION BY RANGE (at);
CREATE TABLE log_1 PARTITION OF log FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE log_2 PARTITION OF log DEFAULT;";

const DATA: &str = "
SELECT setseed(0.5);
INSERT INTO sale SELECT g, 1 + (random() ^ 2 * 299)::int, date '2020-01-01' + (random() * 1500)::int, 'buyer ' || (random() * 20000)::int,
       (ARRAY['new', 'paid', 'paid', 'paid', 'sent', 'sent', 'sent', 'lost'])[1 + (random() * 7)::int], random() * 1000,
       md5(g::text)::uuid, random() * 90, CASE WHEN g % 3 = 0 THEN repeat('n', g % 37) END,
       timestamptz '2024-01-01' + g * interval '17 s', g % 10 > 0, CASE WHEN g % 100 = 0 THEN g % 977 END,
       ARRAY[g % 50, g % 70], jsonb_build_object('k', g % 1000)
       FROM generate_series(1, 150000) g;
INSERT INTO log SELECT timestamptz '2024-01-01' + g * interval '1 min', 1 + g % 500, 'line ' || g FROM generate_series(1, 90000) g;
VACUUM ANALYZE;";

/// Indexes, each with a statement that uses it.
const CANDIDATES: [(&str, &str); 28] = [
    ("ON public.sale USING btree (shop)", "SELECT * FROM sale WHERE shop = 250"),
    ("ON public.sale USING btree (day)", "SELECT * FROM sale WHERE day = '2021-03-04'"),
    ("ON public.sale USING btree (buyer)", "SELECT * FROM sale WHERE buyer = 'buyer 77'"),
    ("ON public.sale USING btree (state)", "SELECT count(*) FROM sale WHERE state = 'new'"),
    ("ON public.sale USING btree (price)", "SELECT * FROM sale WHERE price > 999"),
    ("ON public.sale USING btree (code)", "SELECT * FROM sale WHERE code = md5('77')::uuid"),
    ("ON public.sale USING btree (weight)", "SELECT * FROM sale ORDER BY weight LIMIT 50"),
    ("ON public.sale USING btree (note)", "SELECT count(*) FROM sale WHERE note = 'nnnn'"),
    ("ON public.sale USING btree (at)", "SELECT max(at) FROM sale WHERE shop = 3"),
    ("ON public.sale USING btree (rare)", "SELECT * FROM sale WHERE rare = 300"),
    ("ON public.sale USING btree (shop, day)", "SELECT * FROM sale WHERE shop = 17 AND day > '2023-12-01'"),
    (
        "ON public.sale USING btree (state, price DESC)",
        "SELECT * FROM sale WHERE state = 'new' ORDER BY price DESC LIMIT 9",
    ),
    ("ON public.sale USING btree (buyer, at)", "SELECT * FROM sale WHERE buyer = 'buyer 5' ORDER BY at"),
    ("ON public.sale USING btree (shop) INCLUDE (price)", "SELECT sum(price) FROM sale WHERE shop = 299"),
    ("ON public.sale USING btree (lower(buyer))", "SELECT * FROM sale WHERE lower(buyer) = 'buyer 9'"),
    (
        "ON public.sale USING btree (at) WHERE state = 'new'",
        "SELECT * FROM sale WHERE state = 'new' AND at > '2024-01-30'",
    ),
    (
        "ON public.sale USING btree (day) WHERE rare IS NOT NULL",
        "SELECT * FROM sale WHERE rare IS NOT NULL AND day < '2020-06-01'",
    ),
    (
        "ON public.sale USING btree (shop, state, day)",
        "SELECT count(*) FROM sale WHERE shop = 5 AND state = 'lost'",
    ),
    ("ON public.sale USING btree (ok, day)", "SELECT * FROM sale WHERE NOT ok AND day = '2022-02-02'"),
    (
        "ON public.sale USING btree (day, code)",
        "SELECT code FROM sale WHERE day BETWEEN '2021-01-01' AND '2021-01-09'",
    ),
    (
        "ON public.sale USING btree (buyer text_pattern_ops)",
        "SELECT * FROM sale WHERE buyer LIKE 'buyer 77%'",
    ),
    ("ON public.sale USING btree ((data ->> 'k'))", "SELECT * FROM sale WHERE data ->> 'k' = '77'"),
    ("ON public.sale USING gin (tags)", "SELECT * FROM sale WHERE tags @> ARRAY[3]"),
    ("ON public.sale USING gin (data jsonb_path_ops)", "SELECT * FROM sale WHERE data @> '{\"k\": 77}'"),
    ("ON public.sale USING hash (buyer)", "SELECT * FROM sale WHERE buyer = 'buyer 70'"),
    ("ON public.sale USING btree (shop, price)", "UPDATE sale SET note = '' WHERE shop = 3 AND price = 4"),
    ("ON public.sale USING btree (rare, shop)", "DELETE FROM sale WHERE rare = 7 AND shop = 3"),
    ("ON public.log USING btree (shop)", "SELECT * FROM log WHERE shop = 77"),
];

#[test]
fn candidates_cost_what_real_indexes_cost() {
    for major in majors() {
        let mut production = Production::new(major, SCHEMA, DATA);
        let (mut scratch, _) = production.scratch(&production.statistics());
        let candidates = CANDIDATES.map(|(definition, _)| Candidate {
            schema: "public".to_owned(),
            table: if definition.contains("log") { "log" } else { "sale" }.to_owned(),
            definition: definition.to_owned(),
        });
        let created = scratch.create(&candidates);
        let mut report = Vec::new();
        for ((definition, statement), created) in CANDIDATES.iter().zip(created) {
            let (id, bytes) = created.unwrap();
            let asked = BoundStatement { text: (*statement).to_owned(), ..BoundStatement::default() };
            let without = scratch.explain(&asked, PlanMode::Custom, &[], &[]).unwrap();
            let with = scratch.explain(&asked, PlanMode::Custom, &[id], &[]).unwrap();
            let uses = with.nodes().filter_map(|node| node.text("Index Name"));
            assert!(uses.into_iter().any(|name| name.starts_with(&id.index_name())), "{definition} {with:?}");
            production.session.query(&format!("CREATE INDEX built {definition}")).unwrap();
            let real = production.explain_json(statement);
            let real_bytes = production.session.query(
                "SELECT sum(pg_relation_size(indexrelid)) FROM pg_index WHERE indexrelid = 'built'::regclass \
                 OR indexrelid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'built'::regclass)",
            );
            let real_bytes: u64 = real_bytes.unwrap()[0][0].as_ref().unwrap().parse().unwrap();
            production.session.query("DROP INDEX built").unwrap();
            let real_cost = real[0]["Plan"]["Total Cost"].as_f64().unwrap();
            let cost = with.root.total_cost;
            report.push(format!(
                "{cost} {real_cost} {bytes} {real_bytes} {} {definition}",
                without.root.total_cost
            ));
            if (cost - real_cost).abs() > SAME_COST * real_cost {
                report.push("^ differs".to_owned());
            }
        }
        let report = report.join("\n");
        println!("PostgreSQL {major}: cost, cost on data, bytes, bytes on data, cost without\n{report}");
        assert!(!report.contains("differs"), "{report}");
    }
}

#[test]
fn existing_indexes_can_be_hidden_for_one_statement() {
    for major in majors() {
        let schema = "CREATE TABLE t (id int PRIMARY KEY, x int); CREATE INDEX t_x ON t (x);";
        let data = "INSERT INTO t SELECT g, g FROM generate_series(1, 50000) g; VACUUM ANALYZE";
        let production = Production::new(major, schema, data);
        let (mut scratch, _) = production.scratch(&production.statistics());
        let asked =
            BoundStatement { text: "SELECT * FROM t WHERE x = 7".to_owned(), ..BoundStatement::default() };
        let hidden = [("public".to_owned(), "t_x".to_owned())];
        for (hidden, kind) in [(&[][..], "Index Scan"), (&hidden, "Seq Scan"), (&[], "Index Scan")] {
            let plan = scratch.explain(&asked, PlanMode::Custom, &[], hidden).unwrap();
            assert_eq!(plan.root.kind, kind);
        }
        let refused = Candidate {
            schema: "public".to_owned(),
            table: "t".to_owned(),
            definition: "ON public.t USING btree (nothing)".to_owned(),
        };
        let created = scratch.create(&[refused]);
        assert_eq!(created, [Err("column \"nothing\" does not exist".to_owned())]);
        let catalog = scratch.catalog().unwrap();
        assert_eq!(catalog.tables.len(), 1);
        assert_eq!((catalog.tables[0].rows, catalog.tables[0].indexes.len()), (50_000.0, 2));
    }
}
