//! Tests statistics that don't match the template, or that can't be trusted: they affect what they can,
//! but don't break anything.

use plans::{
    BoundStatement, ColumnStatistics, ExplainError, ExtendedStatistics, Limits, PlanMode, Reason,
    RelationKind, RelationName, RelationStatistics, Scratch, Slot, Statistics, SuiteStatement,
};

use super::production::Production;
use crate::common::majors;

const SCHEMA: &str = r#"
CREATE SCHEMA "odd ""schema";
CREATE TABLE "odd ""schema"."ta'ble \ x" ("co""l" text, "Int" int, "drop me" int, kept int);
ALTER TABLE "odd ""schema"."ta'ble \ x" DROP COLUMN "drop me";
CREATE INDEX "in dex" ON "odd ""schema"."ta'ble \ x" ("co""l");
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE t (id int PRIMARY KEY, number int, word text, mood mood, list int[]);
CREATE TABLE here (id int);
CREATE FUNCTION slow() RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM pg_sleep(60); RETURN 1; END';
CREATE FUNCTION count_rows() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no tables''; END';
CREATE EVENT TRIGGER refuse ON ddl_command_start EXECUTE FUNCTION refuse();
"#;

const SMALL: &str = "CREATE TABLE t (id int PRIMARY KEY, number int); CREATE TABLE here (id int);";

fn column(name: &str, type_name: &str, slots: Vec<Slot>) -> ColumnStatistics {
    ColumnStatistics {
        column: name.to_owned(),
        type_name: type_name.to_owned(),
        width: 4,
        distinct: -0.5,
        slots,
        ..ColumnStatistics::default()
    }
}

fn slot(kind: i16, numbers: &[f32], values: &[&str]) -> Slot {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    Slot {
        kind,
        numbers: Some(numbers.to_vec()).filter(|numbers| !numbers.is_empty()),
        values: Some(values).filter(|values| !values.is_empty()),
    }
}

fn table(schema: &str, name: &str, pages: u32, columns: Vec<ColumnStatistics>) -> RelationStatistics {
    RelationStatistics {
        schema: schema.to_owned(),
        name: name.to_owned(),
        kind: RelationKind::Table,
        pages,
        analyzed_pages: pages,
        rows: f64::from(pages) * 50.0,
        all_visible: 0,
        table: None,
        definition: None,
        parents: Vec::new(),
        generated: std::collections::BTreeMap::new(),
        height: None,
        columns,
    }
}

fn statistics(relations: Vec<RelationStatistics>) -> Statistics {
    Statistics {
        format: 1,
        server_version: 150_004,
        taken: 0,
        settings: std::collections::BTreeMap::new(),
        relations,
        extended: Vec::new(),
    }
}

fn explain(scratch: &mut Scratch, text: &str) -> Result<String, ExplainError> {
    let statement = BoundStatement { text: text.to_owned(), ..BoundStatement::default() };
    scratch.explain_text(&statement, PlanMode::Custom).map_err(|refusal| refusal.error)
}

#[test]
fn statistics_without_place_are_reported() {
    for major in majors() {
        let production = Production::new(major, SCHEMA, "");
        let mut settings = statistics(vec![
            table(
                "odd \"schema",
                "ta'ble \\ x",
                1000,
                vec![
                    column("co\"l", "text", vec![slot(1, &[0.25], &["a \"quoted\" \\ {value}"])]),
                    column("Int", "text", vec![slot(2, &[], &["1", "x"])]),
                    column("drop me", "integer", Vec::new()),
                ],
            ),
            table(
                "public",
                "t",
                1000,
                vec![
                    column("number", "bigint", vec![slot(1, &[0.5], &["7"])]),
                    column("word", "text", vec![slot(1, &[0.5, 0.2], &["only one"])]),
                    column("mood", "public.mood", vec![slot(1, &[0.5, 0.2], &["sad", "furious"])]),
                    column(
                        "list",
                        "integer[]",
                        vec![slot(4, &[0.5, 0.5, 0.5, 0.0], &["3"]), slot(77, &[0.1], &[])],
                    ),
                ],
            ),
            table("public", "gone", 10, Vec::new()),
        ]);
        settings.settings.insert("shared_preload_libraries".to_owned(), "x".to_owned());
        settings.settings.insert("random_page_cost".to_owned(), "1.5".to_owned());
        let (mut scratch, applied) = production.scratch(&settings);
        let reason = |object: &str| {
            let mut all = applied.left_out.iter().filter(|left| left.object == object);
            all.next().unwrap_or_else(|| panic!("{object}: {applied:?}")).reason.clone()
        };
        assert_eq!(reason("public.gone"), Reason::TableOnlyInProduction);
        assert_eq!(reason("public.here"), Reason::TableOnlyInTemplate);
        assert_eq!(reason("odd \"schema.ta'ble \\ x.drop me"), Reason::ColumnOnlyInProduction);
        assert_eq!(reason("odd \"schema.ta'ble \\ x.kept"), Reason::ColumnOnlyInTemplate);
        assert_eq!(reason("odd \"schema.in dex"), Reason::IndexOnlyInTemplate);
        assert!(matches!(reason("odd \"schema.ta'ble \\ x.Int"), Reason::Type { .. }));
        assert!(matches!(reason("public.t.word"), Reason::Invalid(_)));
        assert!(matches!(reason("public.t.mood"), Reason::Refused(message) if !message.contains("furious")));
        assert!(matches!(reason("public.t.list"), Reason::Invalid(_)));
        assert_eq!(reason("shared_preload_libraries"), Reason::Setting);
        assert_eq!(applied.columns, 6);
        // These are a common value with quotes, a value of a wider type, and the size.
        let plan = explain(
            &mut scratch,
            "SELECT * FROM \"odd \"\"schema\".\"ta'ble \\ x\" WHERE \"co\"\"l\" = 'a \"quoted\" \\ {value}'",
        );
        assert!(plan.as_ref().unwrap().contains("rows=12500 "), "{plan:?}");
        let plan = explain(&mut scratch, "SELECT * FROM t WHERE number = 7").unwrap();
        assert!(plan.contains("rows=25000 "), "{plan}");
    }
}

#[test]
fn huge_tables_are_sparse_and_absurd_ones_refused() {
    for major in majors() {
        let production = Production::new(major, SCHEMA, "");
        let mut huge = table("public", "t", 600_000_000, Vec::new());
        huge.rows = 5e10;
        let (mut scratch, applied) = production.scratch(&statistics(vec![huge.clone()]));
        assert_eq!(applied.bytes, 600_000_000 * 8192);
        let plan = explain(&mut scratch, "SELECT * FROM t WHERE id = 7").unwrap();
        assert!(plan.starts_with("Index Scan using t_pkey"), "{plan}");
        let plan = explain(&mut scratch, "SELECT * FROM t").unwrap();
        assert!(plan.contains("rows=49999"), "{plan}");
        // pgfresh must not apply more pages than page numbers allow, or more rows than pages can hold.
        huge.pages = u32::MAX;
        let mut many = table("public", "here", 1, Vec::new());
        many.rows = 1e300;
        let (mut scratch, applied) = production.scratch(&statistics(vec![huge, many]));
        assert_eq!(applied.tables, 0);
        assert!(explain(&mut scratch, "SELECT * FROM t, here").is_ok());
    }
}

#[test]
fn slow_planning_ends_at_the_limit() {
    for major in majors() {
        let production = Production::new(major, SCHEMA, "");
        let (mut scratch, _) = production.scratch(&statistics(vec![table("public", "t", 1000, Vec::new())]));
        let slow = explain(&mut scratch, "SELECT * FROM t WHERE id = slow()");
        assert!(matches!(slow, Err(ExplainError::TooSlow { .. })), "{slow:?}");
        assert!(matches!(explain(&mut scratch, "VACUUM t"), Err(ExplainError::Utility)));
        let two = explain(&mut scratch, "SELECT 1; DROP TABLE t");
        assert!(matches!(&two, Err(ExplainError::Refused { code, .. }) if code == "42601"), "{two:?}");
        assert!(explain(&mut scratch, "SELECT * FROM t WHERE id = 1").is_ok());
    }
}

#[test]
fn settings_of_the_database_hide_no_finding() {
    for major in majors() {
        let settings = [
            "default_transaction_read_only = on",
            "statement_timeout = '1ms'",
            "client_encoding = 'LATIN1'",
            "work_mem = '64kB'",
            "role = 'pg_monitor'",
        ];
        let settings = settings.map(|setting| {
            format!(
                "EXECUTE format('ALTER DATABASE %I SET {}', current_database());",
                setting.replace('\'', "''")
            )
        });
        let schema =
            format!("{SMALL} GRANT SELECT ON t TO pg_monitor; DO $$BEGIN {} END$$;", settings.concat());
        let production = Production::new(major, &schema, "");
        let (mut scratch, _) = production.scratch(&statistics(vec![table(
            "public",
            "t",
            100_000,
            vec![column("number", "integer", Vec::new())],
        )]));
        let record = |text: &str| SuiteStatement {
            statement: BoundStatement { text: text.to_owned(), ..BoundStatement::default() },
            normalized: text.to_owned(),
            ..SuiteStatement::default()
        };
        let suite = [record("SELECT * FROM t WHERE number = 7"), record("SELECT * FROM here")];
        let analysis = plans::analyze(&mut scratch, &suite, &Limits::default());
        let suggested: Vec<_> = analysis.suggestions.iter().map(|index| index.sql.as_str()).collect();
        assert_eq!(suggested, ["CREATE INDEX ON t (number)"], "{analysis:?}");
        // Statements are still explained with the privileges of the database's role.
        assert!(analysis.unexplained[0].cause.contains("permission denied for table here"), "{analysis:?}");
    }
}

#[test]
fn extended_statistics_of_expressions_are_reported() {
    let schema = "CREATE TABLE t (a int, b text); CREATE STATISTICS odd ON (lower(b)), a FROM t;";
    let production = Production::new(18, schema, "");
    let mut file = statistics(vec![table("public", "t", 100, Vec::new())]);
    file.extended.push(ExtendedStatistics {
        schema: "public".to_owned(),
        name: "odd".to_owned(),
        table: RelationName { schema: "public".to_owned(), name: "t".to_owned() },
        columns: vec!["a".to_owned(), "lower(b)".to_owned()],
        inherited: false,
        distinct: Vec::new(),
        dependencies: Vec::new(),
        common: Vec::new(),
        expressions: vec![column("lower(b)", "text", Vec::new())],
    });
    let (_, applied) = production.scratch(&file);
    let left = applied.left_out.iter().find(|left| left.object == "public.odd");
    assert!(matches!(left.map(|left| &left.reason), Some(Reason::Unsupported(_))), "{applied:?}");
    assert_eq!(applied.extended, 1);
}
