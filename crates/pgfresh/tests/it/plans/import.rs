//! Tests `template import --statistics`: it reads everything that the planner knows about a database, without
//! disturbing the server or revealing secrets.

mod redaction;
mod tls;

use std::fs;

use plans::{ColumnStatistics, RelationKind, Slot, Statistics};
use serde_json::{Value, json};

use crate::common::{Outcome, Scene, User, ground, on_every_major, postgres};

const SCHEMA: &str = include_str!("import/schema.sql");

/// Makes a scene with the schema. Scripts find pgfresh in `$pgfresh`.
fn scene() -> Scene {
    let scene = Scene::new(User::Ourselves);
    scene.write("schema.sql", SCHEMA);
    scene
}

/// Runs `script` in a database with the schema. Autovacuum must not analyze a table meanwhile. It runs once an hour,
/// but the end of any session can wake it earlier.
fn run(scene: &Scene, major: u32, script: &str) -> Outcome {
    let program = ground::program().display();
    let script = format!("pgfresh='{program}'; psql -Xqf schema.sql -v ON_ERROR_STOP=1; {script}");
    let outcome = scene.run([
        "run",
        "--postgres",
        &postgres(major),
        "--set",
        "autovacuum=off",
        "--",
        "sh",
        "-euc",
        &script,
    ]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    outcome
}

fn statistics(scene: &Scene, name: &str) -> Statistics {
    Statistics::parse(&fs::read(scene.directory.join(name)).unwrap()).unwrap()
}

/// Returns a number of type `real` as JSON.
fn real(number: f32) -> Value {
    serde_json::from_str(&number.to_string()).unwrap()
}

/// Returns the fields in `pg_stats` that [`SHOWN`] selects.
fn row(schema: &str, relation: &str, column: &ColumnStatistics) -> Value {
    let slot = |kind: i16| column.slots.iter().find(|slot| slot.kind == kind);
    let values = |kind: i16| slot(kind).and_then(|slot| slot.values.clone());
    let numbers = |kind: i16| {
        let numbers = slot(kind).and_then(|slot: &Slot| slot.numbers.clone());
        numbers.map(|numbers| numbers.into_iter().map(real).collect::<Vec<_>>())
    };
    json!([
        schema,
        relation,
        column.column,
        column.inherited,
        real(column.null_fraction),
        column.width,
        real(column.distinct),
        values(1),
        numbers(1),
        values(2),
        numbers(3).map(|numbers| numbers[0].clone()),
        values(4),
        numbers(4),
        numbers(5)
    ])
}

const SHOWN: &str = "
    SET datestyle = 'ISO, YMD'; SET timezone = 'UTC'; SET lc_monetary = 'C';
    SELECT coalesce(json_agg(json_build_array(schemaname, tablename, attname, inherited, null_frac, avg_width,
        n_distinct, most_common_vals::text::text[], most_common_freqs, histogram_bounds::text::text[], correlation,
        most_common_elems::text::text[], most_common_elem_freqs, elem_count_histogram)), '[]')
    FROM pg_stats WHERE schemaname NOT IN ('pg_catalog', 'information_schema')";

on_every_major! {
    import_has_what_pg_stats_shows
    sizes_and_definitions_are_those_of_the_server
    import_waits_for_no_table_lock
    a_role_sees_its_own_columns_only
    queries_are_simple_and_without_values
}

fn import_has_what_pg_stats_shows(major: u32) {
    let scene = scene();
    scene.write("shown.sql", SHOWN);
    let import = "$pgfresh template import --redact none --statistics \"$DATABASE_URL\"";
    let script = format!("psql -XAtqf shown.sql >shown; {import} >first; {import} --quiet >second");
    let outcome = run(&scene, major, &script);
    assert_eq!(
        outcome.stderr.lines().last(),
        Some("pgfresh: incomplete statistics of public.never: they have never been analyzed")
    );
    let statistics = statistics(&scene, "first");
    let shown: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(scene.directory.join("shown")).unwrap()).unwrap();
    let columns = statistics.relations.iter().flat_map(|relation| {
        relation.columns.iter().map(|column| row(&relation.schema, &relation.name, column))
    });
    let mut read: Vec<String> = columns.map(|row| row.to_string()).collect();
    let mut shown: Vec<String> = shown.iter().map(ToString::to_string).collect();
    read.sort();
    shown.sort();
    assert!(shown.len() > 30, "{shown:?}");
    assert_eq!(read, shown);
    // Equal statistics give equal files.
    let without_time = |name: &str| {
        let file = fs::read_to_string(scene.directory.join(name)).unwrap();
        file.lines().filter(|line| !line.starts_with(" \"taken\":")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(without_time("first"), without_time("second"));
    assert_eq!(statistics.server_version / 10_000, major);
    assert_eq!(statistics.settings["random_page_cost"], "4");
    assert!(statistics.settings.contains_key("enable_hashjoin"), "{:?}", statistics.settings);
    // Before version 17, only pg_statistic has range statistics.
    let users = statistics.relations.iter().find(|relation| relation.name == "users").unwrap();
    let ranges = users.columns.iter().find(|column| column.column == "address_range").unwrap();
    assert!(ranges.slots.iter().any(|slot| slot.kind == 7), "{ranges:?}");
}

fn sizes_and_definitions_are_those_of_the_server(major: u32) {
    let scene = scene();
    let sizes = "SELECT relname, CASE WHEN relkind IN ('p', 'I') THEN 0 ELSE pg_relation_size(oid) / 8192 END,
        reltuples, relallvisible, CASE WHEN relkind IN ('i', 'I') THEN pg_get_indexdef(oid) END
        FROM pg_class WHERE relkind IN ('r', 'm', 'i', 'p', 'I') AND relnamespace::regnamespace::text !~ '^(pg_|info)'";
    // The table grows after ANALYZE.
    let grow = "INSERT INTO never SELECT generate_series(1, 1000)";
    let expressions = if major >= 14 { "(lower(email)), country" } else { "email, country, id" };
    let extend = format!("CREATE STATISTICS odd ON {expressions} FROM users; ANALYZE users");
    let script = format!(
        "psql -Xqc \"{grow}\" -c '{extend}'; psql -XAtqc \"{sizes}\" >shown
        $pgfresh template import --redact none --statistics \"$DATABASE_URL\" >file"
    );
    run(&scene, major, &script);
    let statistics = statistics(&scene, "file");
    let mut read: Vec<String> = statistics
        .relations
        .iter()
        .map(|relation| {
            let definition = relation.definition.as_deref().unwrap_or_default();
            let (rows, visible) = (relation.rows, relation.all_visible);
            format!("{}|{}|{rows}|{visible}|{definition}", relation.name, relation.pages)
        })
        .collect();
    let shown = fs::read_to_string(scene.directory.join("shown")).unwrap();
    let mut shown: Vec<&str> = shown.lines().collect();
    read.sort();
    shown.sort_unstable();
    assert_eq!(read, shown);
    let find = |name: &str| statistics.relations.iter().find(|relation| relation.name == name).unwrap();
    assert_eq!((find("never").pages, find("never").analyzed_pages), (5, 0));
    assert_eq!(
        (find("visits").kind, find("visits_a").parents[0].name.as_str()),
        (RelationKind::PartitionedTable, "visits")
    );
    assert_eq!(find("users").generated["search"], ["email"]);
    let odd =
        statistics.extended.iter().find(|object| object.name == "odd" && object.schema != "public").unwrap();
    assert_eq!(odd.columns, ["a", "b", "C c"]);
    assert!(
        odd.dependencies.iter().any(|one| one.columns == ["a"] && one.determines == "b" && one.degree > 0.99)
    );
    assert!(
        odd.distinct.iter().any(|one| one.columns == ["a", "b"] && (9.5..10.5).contains(&one.count)),
        "{odd:?}"
    );
    assert_eq!((odd.common.len(), odd.common[0].values.len()), (100, 3));
    let expression =
        statistics.extended.iter().find(|object| object.name == "odd" && object.schema == "public");
    if major >= 14 {
        let expression = expression.unwrap();
        assert_eq!(expression.columns, ["country", "lower(email)"]);
        assert_eq!(expression.expressions[0].column, "lower(email)");
    }
}

/// A lock that conflicts with all modes except for ACCESS SHARE doesn't stop the import. The import doesn't wait
/// long for a stronger lock.
fn import_waits_for_no_table_lock(major: u32) {
    let scene = Scene::new(User::Ourselves);
    scene.write("schema.sql", "CREATE TABLE busy AS SELECT generate_series(1, 1000) AS x; CREATE TABLE gone (x int PRIMARY KEY); ANALYZE");
    let lock = "BEGIN; LOCK busy IN EXCLUSIVE MODE; LOCK gone; SELECT pg_sleep(1000)";
    let script = format!(
        "psql -Xqc '{lock}' & locker=$!
        until psql -XAtc \"SELECT 1 FROM pg_locks WHERE relation = 'gone'::regclass\" | grep -q 1; do :; done
        $pgfresh template import --statistics \"$DATABASE_URL\" >file; kill $locker"
    );
    let outcome = run(&scene, major, &script);
    let locked = "incomplete statistics of public.gone, public.gone_pkey: another session has locked them";
    assert!(outcome.stderr.contains(locked), "{outcome}");
    let statistics = statistics(&scene, "file");
    let pages: Vec<_> = statistics.relations.iter().map(|one| (one.name.as_str(), one.pages)).collect();
    assert_eq!(pages, [("busy", 5), ("gone", 0), ("gone_pkey", 1)]);
}

fn a_role_sees_its_own_columns_only(major: u32) {
    let scene = Scene::new(User::Ourselves);
    scene.write(
        "schema.sql",
        "CREATE ROLE reader; CREATE TABLE open AS SELECT g AS a, int4range(g, g + 9) AS b FROM generate_series(1, 100) g;
        CREATE TABLE half AS TABLE open; CREATE TABLE closed AS TABLE open; CREATE TABLE rows AS TABLE open;
        GRANT SELECT ON open, rows TO reader; GRANT SELECT (a) ON half TO reader;
        ALTER TABLE rows ENABLE ROW LEVEL SECURITY; ANALYZE",
    );
    let script = "$pgfresh template import --statistics \"$DATABASE_URL?options=-c%20role%3Dreader\" >file";
    let outcome = run(&scene, major, script);
    for expected in [
        "incomplete statistics of public.closed, public.half: the role lacks SELECT on some of their columns",
        "incomplete statistics of public.rows: row-level security hides them from the role",
    ] {
        assert!(outcome.stderr.contains(expected), "{outcome}");
    }
    let statistics = statistics(&scene, "file");
    let columns = statistics.relations.iter().flat_map(|relation| {
        relation.columns.iter().map(|column| format!("{}.{}", relation.name, column.column))
    });
    assert_eq!(columns.collect::<Vec<_>>(), ["half.a", "open.a", "open.b"]);
    let open = statistics.relations.iter().find(|relation| relation.name == "open").unwrap();
    assert_eq!(open.columns[1].slots.iter().any(|slot| slot.kind == 7), major >= 17, "{open:?}");
    assert!(statistics.relations.iter().all(|relation| relation.pages == 1 && relation.rows > 99.0));
}

/// A pooler might use a different session for each transaction, so none of the import's state can
/// outlive the transaction.
fn queries_are_simple_and_without_values(major: u32) {
    let scene = scene();
    let script = "$pgfresh template import -vv --redact none \
        --statistics \"$DATABASE_URL?options=-c%20log_statement%3Dall\" >file
        cat \"$(psql -XAtc 'SHOW data_directory')/../log\"";
    let outcome = run(&scene, major, script);
    let log = outcome.stdout.as_str();
    let statements: Vec<&str> = log.split("LOG:  statement: ").skip(1).collect();
    assert!(statements.len() > 10 && !log.contains("LOG:  execute "), "{outcome}");
    assert!(
        statements[0].trim_start().starts_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
        "{outcome}"
    );
    assert!(statements.last().unwrap().starts_with("COMMIT"), "{outcome}");
    for set in log.split(" SET ").skip(1) {
        assert!(set.starts_with("LOCAL "), "{set}");
    }
    for word in ["PREPARE", "TEMPORARY", "secret"] {
        assert!(!log.contains(word) && !outcome.stderr.contains(word), "{word} in {outcome}");
    }
}

#[test]
fn heights_come_from_pageinspect() {
    let scene = scene();
    let script = "psql -Xqc 'CREATE EXTENSION pageinspect'
        $pgfresh template import --statistics \"$DATABASE_URL\" >file";
    run(&scene, 15, script);
    let height = |name: &str| {
        statistics(&scene, "file").relations.iter().find(|relation| relation.name == name).unwrap().height
    };
    assert_eq!((height("users_pkey"), height("users_lower")), (Some(1), Some(1)));
    assert_eq!((height("users_tags"), height("users")), (None, None));
}

#[test]
fn import_errors_name_the_cause() {
    let scene = Scene::new(User::Ourselves);
    scene.write("wrong.json", "{\"format\": 1,\n \"server_version\": \"secret\"}");
    scene.write("empty", "");
    for (words, expected) in [
        (
            &["--statistics", "wrong.json"][..],
            "\"wrong.json\" has no valid statistics: line 2: this is not u32",
        ),
        (&["--statistics", "empty"], "\"empty\" has no valid statistics: line 1: the file has no statistics"),
        (&["--statistics", "none"], "could not read \"none\": No such file"),
        (&["--statistics", "postgresql://me:secret@127.0.0.1:1/x"], "cannot connect to 127.0.0.1:1: "),
        (&["--statistics", "postgresql://me:secret@x?sslmode=no"], "sslmode is not disable"),
        (&["--statistics", "empty", "--redact", "a.b.c.d"], "\"a.b.c.d\" is not a column pattern"),
        (&["--statistics", "empty", "--redact", "all,none"], "\"all\" cannot be combined with \"none\""),
        (&["--statistics", "empty", "postgresql://x", "y"], "cannot be used with"),
        (&["postgresql://x", "y", "--redact", "all"], "cannot be used with"),
        (&[], "required"),
    ] {
        let outcome = scene.run([&["template", "import"], words].concat());
        assert!(outcome.code != Some(0) && outcome.stderr.contains(expected), "{outcome}");
        assert!(!outcome.stderr.contains("secret") && outcome.stdout.is_empty(), "{outcome}");
    }
}
