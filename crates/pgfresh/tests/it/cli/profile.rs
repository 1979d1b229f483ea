//! Tests `pgfresh run --profile` and `pgfresh profile` with real servers.

use std::collections::HashSet;
use std::fs;
use std::process::{Command, Stdio};

use crate::common::serve::Serve;
use crate::common::{Outcome, Scene, User, collect, finish, ground, line_of, majors, postgres, wait_until};
use serde_json::{Value, json};

/// Duration in seconds of an action that a profile can't miss, with one sample every 15 ms on an idle machine.
const SPAN: &str = "1.5";

pub(super) fn read(scene: &Scene, name: &str) -> Value {
    let text = fs::read_to_string(scene.directory.join(name)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn fact(profile: &Value, layer: &str, name: &str) -> f64 {
    let layers = profile["layers"].as_array().unwrap();
    let layer = layers.iter().find(|one| one["name"] == layer).unwrap_or_else(|| panic!("{profile}"));
    layer["facts"][name]["value"].as_f64().unwrap_or_else(|| panic!("{name}: {profile}"))
}

pub(super) fn rows<'a>(profile: &'a Value, title: &str) -> &'a Vec<Value> {
    let tables = profile["tables"].as_array().unwrap();
    let table = tables.iter().find(|table| table["title"] == title);
    table.unwrap_or_else(|| panic!("no table {title}: {profile}"))["rows"].as_array().unwrap()
}

/// Returns the session seconds in the row with `name` in `column`, or 0 without that row.
fn spent(profile: &Value, title: &str, column: &str, name: &str) -> f64 {
    let row = rows(profile, title).iter().find(|row| row[column] == name);
    row.map_or(0.0, |row| row["sessions"]["value"].as_f64().unwrap())
}

fn findings(profile: &Value) -> Vec<&str> {
    profile["findings"].as_array().unwrap().iter().map(|finding| finding["name"].as_str().unwrap()).collect()
}

/// Text in the `-vv` log records about a session that measures the cost of a new database.
const TRIAL: &str = "database=profile_";
/// Samples per second below which the machine is too busy for the test.
const FEW: f64 = 5.0;

/// Runs `script` under `run --profile` with `options`, again if the machine is too busy. Returns the profile.
fn profile_of(scene: &Scene, options: &[&str], script: &str) -> (Value, Outcome) {
    let words =
        [&["run", "--profile", "--report", "out.json"], options, &["--", "sh", "-euc", script]].concat();
    let mut seen = None;
    wait_until(&format!("a profile with more than {FEW} samples in a second"), || {
        let outcome = scene.run(&words);
        assert!(outcome.code == Some(0), "{outcome}");
        let profile = read(scene, "out.json");
        let is_seen = looks(&profile) > FEW * fact(&profile, "Suite", "wall");
        seen = Some((profile, outcome));
        is_seen
    });
    seen.unwrap()
}

/// Returns the number of samples.
fn looks(profile: &Value) -> f64 {
    let notes = profile["notes"].to_string();
    let (_, count) = notes.split_once("There were ").unwrap_or_else(|| panic!("{notes}"));
    count.split(' ').next().unwrap().replace(',', "").parse().unwrap()
}

#[test]
#[cfg_attr(pgfresh_portable, ignore = "reads the processor time of backends")]
fn statements_and_waits_are_separated_on_every_major() {
    let scene = Scene::new(User::Ourselves);
    let psql = ground::psql();
    // One session waits for a lock that a sleeping session holds, and a third session computes.
    let script = format!(
        "{psql} -XAtqc 'CREATE TABLE t ()'
         {psql} -XAtqc 'BEGIN; LOCK TABLE t; SELECT pg_sleep({SPAN}); COMMIT' & sleep 0.2
         {psql} -XAtqc 'TRUNCATE t' &
         {psql} -XAtqc \"DO 'BEGIN WHILE clock_timestamp() < now() + interval ''{SPAN} s'' LOOP END LOOP; END'\" & wait"
    );
    for major in majors() {
        let (profile, outcome) = profile_of(&scene, &["--postgres", &postgres(major)], &script);
        assert!(
            profile["environment"]["PostgreSQL"].as_str().unwrap().starts_with(&major.to_string()),
            "{major}"
        );
        assert!(spent(&profile, "Kinds of statements", "kind", "TRUNCATE") > 0.5, "{major}: {profile}");
        assert!(spent(&profile, "Waits", "for", "lock") > 0.5, "{major}: {profile}");
        assert!(spent(&profile, "Waits", "for", "other") > 0.5, "{major}: {profile}");
        assert!(spent(&profile, "Waits", "for", "CPU") > 0.3, "{major}: {profile}");
        assert!(fact(&profile, "Suite", "at most") >= 3.0, "{major}: {profile}");
        assert!(fact(&profile, "Suite", "sessions started") >= 4.0, "{major}: {profile}");
        assert!(fact(&profile, "Machine", "sessions' processor time") > 0.3, "{major}: {profile}");
        assert!(fact(&profile, "Server", "log") > 0.0, "{major}: {profile}");
        let statement =
            rows(&profile, "Statements").iter().find(|row| row["statement"] == "TRUNCATE t").unwrap();
        assert_eq!(statement["runs"]["value"], 1.0, "{statement}");
        assert_eq!(rows(&profile, "Databases")[0]["database"], "postgres");
        assert!(findings(&profile).contains(&"Sessions wait for each other's locks"), "{profile}");
        assert!(
            outcome.stderr.contains("in the database") && outcome.stderr.contains("TRUNCATE"),
            "{outcome}"
        );
    }
}

/// Returns how many session seconds the statement `text` took, and how often it ran.
fn of<'a>(profile: &'a Value, text: &str) -> (f64, &'a Value) {
    let row = rows(profile, "Statements").iter().find(|row| row["statement"] == text);
    let row = row.unwrap_or_else(|| panic!("no {text}: {profile}"));
    (row["sessions"]["value"].as_f64().unwrap(), &row["runs"]["value"])
}

fn is_exact(profile: &Value) -> bool {
    profile["notes"].to_string().contains("Times and runs of statements are exact")
}

#[test]
fn statements_through_the_gateway_are_timed_exactly() {
    let scene = Scene::new(User::Ourselves);
    let psql = ground::psql();
    scene.write("short.sql", &"SELECT 1;\n".repeat(123));
    // There are two concurrent sessions, short statements that sampling would miss, an open transaction,
    // and a canceled statement.
    let script = format!(
        "{psql} -Xqf short.sql >out
         {psql} -XAtqc 'SELECT pg_sleep(1)' -d one & {psql} -XAtqc 'SELECT pg_sleep(1)' -d two & wait
         {psql} -XAtq -c 'CREATE TABLE t ()' -c BEGIN -c 'TRUNCATE t' -c '\\! sleep 0.3' -c COMMIT
         timeout -s INT 0.3 {psql} -XAtqc 'SELECT pg_sleep(9), 1' || true"
    );
    for isolation in ["clone", "rollback"] {
        let (profile, _) = profile_of(&scene, &["--isolation", isolation], &script);
        assert!(is_exact(&profile), "{isolation}: {profile}");
        assert_eq!(*of(&profile, "SELECT ?").1, 123.0, "{isolation}: {profile}");
        let (slept, runs) = of(&profile, "SELECT pg_sleep(?)");
        assert!(slept >= 2.0 && *runs == 2.0, "{isolation}: {profile}");
        assert_eq!(
            (of(&profile, "TRUNCATE t").1, of(&profile, "COMMIT").1),
            (&json!(1.0), &json!(1.0)),
            "{isolation}"
        );
        assert!(of(&profile, "SELECT pg_sleep(?), ?").0 > 0.1, "{isolation}: {profile}");
        assert!((fact(&profile, "Suite", "sessions started") - 5.0).abs() < 0.1, "{isolation}: {profile}");
        assert!(fact(&profile, "Suite", "waiting for sessions") > 0.0, "{isolation}: {profile}");
        assert!(fact(&profile, "Suite", "outside, within a transaction") > 0.2, "{isolation}: {profile}");
        assert!(fact(&profile, "Suite", "at most") >= 2.0, "{isolation}: {profile}");
        let kinds: f64 = rows(&profile, "Kinds of statements")
            .iter()
            .map(|row| row["wall"]["value"].as_f64().unwrap())
            .sum();
        let inside = fact(&profile, "Suite", "in the database");
        assert!((kinds - inside).abs() < 1e-3 * inside + 1e-6, "{isolation}: {kinds} of {inside}: {profile}");
        assert!(spent(&profile, "Databases", "database", "two") >= 1.0, "{isolation}: {profile}");
    }
}

/// A command leaves a process behind whose statement is still running.
#[test]
fn running_statements_count_until_the_end() {
    let scene = Scene::new(User::Ourselves);
    let script = format!("({} -XAtqc 'SELECT pg_sleep(60)' >out 2>&1 &); sleep {SPAN}", ground::psql());
    let (profile, outcome) = profile_of(&scene, &[], &script);
    assert!(is_exact(&profile) && of(&profile, "SELECT pg_sleep(?)").0 > 0.5, "{profile}");
    assert!(spent(&profile, "Databases", "database", "postgres") > 0.5, "{profile}");
    assert!(spent(&profile, "Waits", "for", "other") > 0.5, "{profile}");
    let note = "A statement was still running at the end.";
    assert!(profile["notes"].to_string().contains(note), "{profile}");
    assert!(outcome.stderr.contains(note) && !outcome.stderr.contains("nothing was seen"), "{outcome}");
}

/// A client names several tests. Two of them run a query for each row, with literal and with bound values.
#[test]
fn profile_lists_repeated_queries_of_each_test() {
    let scene = Scene::new(User::Ourselves);
    let (psql, all) = (ground::psql(), "SELECT * FROM generate_series(1, 12) authors");
    let pgfresh = ground::program().display();
    let books = |sql: fn(u32) -> String| (1..=12).map(|author| sql(author) + "\n").collect::<String>();
    // pgbench binds its variables.
    let bound = books(|author| format!("\\set author {author}\nSELECT :author::int AS book;"));
    for (name, books) in [
        ("test_literal", books(|author| format!("SELECT {author} AS book;"))),
        ("test_bound", bound),
        ("test_same", books(|_| "SELECT 1 AS same;".to_owned()) + "INSERT INTO nowhere VALUES (1);\n"),
    ] {
        scene.write(&format!("{name}.sql"), &format!("{all};\n{books}"));
    }
    let pgbench = psql.replace("psql", "pgbench");
    let script = format!(
        "{psql} -XAtq -d test_literal -f test_literal.sql; {psql} -XAtq -d test_same -f test_same.sql 2>&1
         {pgbench} -n -M extended -t 1 -f test_bound.sql test_bound; {psql} -XAtq -d test_fine -c '{all}'
         for test in literal bound same fine; do {pgfresh} release test_$test --test test_$test; done"
    );
    // The gateway sees the whole action, so few samples are enough.
    let outcome = scene.run(["run", "--profile", "--report", "out.json", "--", "sh", "-euc", &script]);
    assert!(outcome.code == Some(0), "{outcome}");
    let profile = read(&scene, "out.json");
    let test = |name: &str| {
        let tests = profile["tests"].as_array().unwrap();
        tests.iter().find(|test| test["name"] == name).unwrap_or_else(|| panic!("{name}: {profile}")).clone()
    };
    for name in ["test_literal", "test_bound"] {
        let (test, all) = (test(name), "SELECT * FROM generate_series(?, …) authors");
        let sql = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        assert_eq!((&test["statements"], &test["rows"]), (&json!(13), &json!(24)), "{test}");
        assert_eq!(test["n_plus_one"].as_array().unwrap().len(), 1, "{test}");
        let found = &test["n_plus_one"][0];
        assert_eq!(
            (sql(&found["statement"]), &found["count"]),
            ("SELECT ? AS book".to_owned(), &json!(12)),
            "{test}"
        );
        assert_eq!(sql(&found["after"]), all, "{test}");
        assert!(test["seconds"].as_f64() >= found["seconds"].as_f64(), "{test}");
    }
    let same = test("test_same");
    assert_eq!((&same["n_plus_one"], &same["identical"][0]["count"]), (&json!([]), &json!(12)), "{same}");
    assert_eq!((test("test_fine")["identical"].clone(), same["statements"].clone()), (json!([]), json!(14)));
    let finding = profile["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == "One query for each row (N+1)");
    let evidence = finding.unwrap()["evidence"].as_str().unwrap();
    assert!(evidence.contains("test_literal runs SELECT ? AS book 12 times"), "{evidence}");
    assert!(evidence.contains("test_bound") && !evidence.contains("test_same"), "{evidence}");
    assert!(outcome.stderr.contains("\ntests     "), "{outcome}");
}

#[test]
fn clients_name_and_end_tests() {
    let scene = Scene::new(User::Ourselves);
    let (psql, pgfresh) = (ground::psql(), ground::program().display());
    let ask = format!("{psql} -XAtq -d scratch -c 'SELECT 1'");
    let script = format!(
        "{ask}; {pgfresh} reset scratch --test 'suite > one'; {ask}; {ask}; {pgfresh} reset scratch; {ask}
         {pgfresh} release scratch --test \"$(printf 'two\\n')\"; {pgfresh} url scratch; {ask}"
    );
    let outcome = scene.run(["run", "--profile", "--report", "out.json", "--", "sh", "-euc", &script]);
    assert!(outcome.code == Some(0), "{outcome}");
    let profile = read(&scene, "out.json");
    let tests = profile["tests"].as_array().unwrap();
    let mut tests: Vec<_> = tests
        .iter()
        .map(|test| (test["name"].as_str().unwrap(), test["statements"].as_u64().unwrap()))
        .collect();
    tests.sort_unstable();
    assert_eq!(tests, [("scratch", 1), ("scratch", 2), ("suite > one", 1), ("two", 1)], "{outcome}");
}

#[test]
fn a_hanging_server_ends_the_profile() {
    let scene = Scene::new(User::Ourselves);
    // The script stops the postmaster and all of its processes, and the guard ends them.
    let script = "server=$(pgrep -P $PPID -x postgres); kill -STOP $server; \
        for process in $(pgrep -P $server); do kill -STOP $process || true; done; exit 7";
    let outcome = scene.run(["run", "--profile", "--", "sh", "-euc", script]);
    assert_eq!(outcome.code, Some(7), "{outcome}");
    let expected = "pgfresh: could not finish the profile: the server has not responded for 20 s\nHINT:";
    assert!(outcome.stderr.contains(expected), "{outcome}");
    scene.assert_nothing_left("the end");
}

#[test]
fn ci_systems_get_each_test_as_a_testcase() {
    let scene = Scene::new(User::Ourselves);
    let (program, psql) = (ground::program().display(), ground::psql());
    let each = (0..12).map(|author| format!("SELECT {author};")).collect::<Vec<_>>().concat();
    scene.write("each.sql", &each.replace(';', ";\n"));
    let name = "tests/test_x.py::test_<é>[\"a\" & 'b']";
    let script = format!(
        "{psql} -XAtqf each.sql \"$({program} url one)\"; {program} release one --test \"$0\"; \
         {psql} -XAtqc 'CREATE TABLE a AS SELECT 1' \"$({program} url two)\"; {program} release two --test two"
    );
    let options = ["run", "--profile", "--report", "tests.xml", "--", "sh", "-euc", &script, name];
    let outcome = scene.run(options);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let text = fs::read_to_string(scene.directory.join("tests.xml")).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let suite = document.descendants().find(|node| node.has_tag_name("testsuite")).unwrap();
    let of_suite = ["tests", "failures", "errors"].map(|name| suite.attribute(name).unwrap());
    assert_eq!(of_suite, ["2", "0", "0"], "{text}");
    let case = |name: &str| {
        let found = suite.children().find(|node| node.attribute("name") == Some(name));
        found.unwrap_or_else(|| panic!("no {name:?} in {text}"))
    };
    let property = |test: &str, name: &str| -> String {
        let properties = case(test).descendants().filter(|node| node.has_tag_name("property"));
        let found = properties.filter(|node| node.attribute("name") == Some(name)).collect::<Vec<_>>();
        assert_eq!(found.len(), 1, "{name}: {text}");
        found[0].attribute("value").unwrap().to_owned()
    };
    assert_eq!(
        ["statements", "n_plus_one"].map(|property_name| property(name, property_name)),
        ["12", "12"],
        "{text}"
    );
    assert_eq!(["statements", "n_plus_one"].map(|name| property("two", name)), ["1", "0"], "{text}");
    assert!(
        property(name, "seconds").parse::<f64>().unwrap() > 0.0
            && case(name).attribute("time").unwrap().parse::<f64>().unwrap() > 0.0
    );
    let said =
        case(name).children().find(|node| node.has_tag_name("system-out")).and_then(|node| node.text());
    assert!(said.is_some_and(|said| said.starts_with("12 × SELECT ?") && said.contains(" (N+1, ")), "{text}");
    assert!(case("two").children().all(|node| !node.has_tag_name("system-out")), "{text}");
    // Commands that don't see tests don't write a test report.
    for (words, why) in [
        (&["run", "--compare", "--report", "tests.xml", "--", "true"][..], "has no results for single tests"),
        (&["profile", "--url", "postgresql://nowhere", "--report", "tests.xml"], "its name must end with"),
    ] {
        let refused = scene.run(words);
        assert!(refused.code != Some(0) && refused.stderr.contains(why), "{refused}");
    }
}

#[test]
fn looks_count_where_sessions_go_past_the_gateway() {
    let scene = Scene::new(User::Ourselves);
    let psql = ground::psql();
    let script = format!(
        "{psql} \"$({psql} -XAtqc 'SHOW unix_socket_directories' | sed 's|\"||g; s|.*|host=& port=5432 user=postgres|')\" -XAtqc 'SELECT pg_sleep({SPAN})'"
    );
    let (profile, _) = profile_of(&scene, &[], &script);
    assert!(
        !is_exact(&profile) && profile["notes"].to_string().contains("did not come through the gateway"),
        "{profile}"
    );
    assert!(spent(&profile, "Kinds of statements", "kind", "SELECT") > 0.5, "{profile}");
}

#[test]
fn time_is_split_by_database_and_rest() {
    let scene = Scene::new(User::Ourselves);
    let psql = ground::psql();
    let script = format!("sleep {SPAN}; {psql} -XAtqc 'SELECT pg_sleep({SPAN})'");
    let (profile, _) = profile_of(&scene, &[], &script);
    let [wall, inside, outside] =
        ["wall", "in the database", "outside"].map(|name| fact(&profile, "Suite", name));
    assert!((wall - inside - outside).abs() < 1e-6);
    assert!(inside > 0.7 && outside > 1.2, "{profile}");
}

#[test]
fn computing_suites_are_not_database_bound() {
    let scene = Scene::new(User::Ourselves);
    let psql = ground::psql();
    let script = format!(
        "{psql} -XAtqc 'SELECT 1'; end=$(($(date +%s) + 2)); while [ $(date +%s) -lt $end ]; do :; done; {psql} -XAtqc 'SELECT 1'"
    );
    let (profile, outcome) = profile_of(&scene, &["-vv"], &script);
    assert_eq!(findings(&profile), ["The database is not the problem"], "{profile}");
    assert!(!outcome.stderr.contains(TRIAL), "it waits for what no finding uses: {outcome}");
    assert!(profile["findings"][0]["gain"].is_null(), "{profile}");
    assert!(outcome.stderr.contains("The database is not the problem"), "{outcome}");
}

#[test]
fn clean_up_is_found_with_its_gain() {
    let scene = Scene::new(User::Ourselves);
    let psql = ground::psql();
    let tables: Vec<String> = (0..40).map(|table| format!("t{table}")).collect();
    let create = tables.join(" (id serial PRIMARY KEY, a text); CREATE TABLE ");
    let test = format!("TRUNCATE {} RESTART IDENTITY;\nINSERT INTO t0 (a) VALUES (1);\n", tables.join(", "));
    scene.write("tests.sql", &test.repeat(60));
    let (profile, outcome) = profile_of(
        &scene,
        &["-vv"],
        &format!(
            "{psql} -Xqc 'CREATE TABLE {create} (id serial PRIMARY KEY, a text)'; {psql} -Xqf tests.sql"
        ),
    );
    assert!(outcome.stderr.contains(TRIAL), "{outcome}");
    let finding = profile["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == "Tests clean up by TRUNCATE");
    let finding = finding.unwrap_or_else(|| panic!("{profile}"));
    let evidence = finding["evidence"].as_str().unwrap();
    assert!(evidence.contains(" runs of it, ") && evidence.contains("A new database takes "), "{evidence}");
    // On a busy machine, a new database might cost as much as this cleanup.
    if let Some(factor) = finding["gain"]["factor"]["value"].as_f64() {
        let [before, after] = [0, 1].map(|index| finding["gain"]["change"][index]["value"].as_f64().unwrap());
        assert!(after < before && (factor - before / after).abs() < 1e-6, "{finding}");
    } else {
        assert!(finding["remedy"].as_str().unwrap().contains("rollback"), "{finding}");
    }
}

#[test]
fn foreign_servers_are_watched_unchanged() {
    let scene = Scene::new(User::Ourselves);
    let mut serve = scene.pgfresh(["serve"]);
    let mut owner =
        serve.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let url = line_of(owner.stdout.as_mut().unwrap());
    let url = url.trim();
    let psql = ground::psql();
    let sql = format!("SELECT pg_sleep({SPAN})");
    // pgfresh doesn't pass a URL to the command here, so psql takes it as an argument.
    let outcome =
        scene.run(["profile", "--url", url, "--report", "out.json", "--", psql, "-XAtqc", &sql, "-d", url]);
    assert!(outcome.code == Some(0) && outcome.stderr.contains("in the database"), "{outcome}");
    let profile = read(&scene, "out.json");
    assert!(spent(&profile, "Kinds of statements", "kind", "SELECT") > 0.5, "{profile}");
    assert!(!profile["title"].as_str().unwrap().contains(&url[24..40]), "a password: {profile}");
    let watched = finish(scene.pgfresh(["profile", "--url", url, "--for", "300ms", "--json"]));
    assert!(watched.code == Some(0) && watched.stderr.is_empty(), "{watched}");
    let watched: Value = serde_json::from_str(&watched.stdout).unwrap();
    assert!(fact(&watched, "Suite", "wall") >= 0.3, "{watched}");
    let mut failing = None;
    // The server might start a waiting process during a measurement, and count it as a session.
    wait_until("a measurement without a session", || {
        let outcome = scene.run(["profile", "--url", url, "--", "sh", "-c", "exit 7"]);
        assert_eq!(outcome.code, Some(7), "{outcome}");
        let is_unused = outcome.stderr.contains("No client connected to this server");
        failing = Some(outcome);
        is_unused
    });
    let failing = failing.unwrap();
    assert!(failing.stderr.contains("Tests with a pgfresh client start a server of their own"), "{failing}");
    assert!(
        failing.stderr.contains("no session was seen at work") && !failing.stderr.contains("would"),
        "{failing}"
    );
    // Query for the time when the watch last sent a statement, which shows whether the watch continues.
    let asks =
        "SELECT query_start FROM pg_stat_activity WHERE query LIKE '%pgfresh%a.backend_type = ''client%'";
    let look = || {
        let mut asking = Command::new(psql);
        asking.args(["-XAtqc", asks, "-d", url]);
        finish(asking).stdout.trim().to_owned()
    };
    wait_until("the end of the watch before", || look().is_empty());
    let mut watching = scene.pgfresh(["profile", "--url", url, "--for", "10m"]);
    let watching = watching.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The watch first sends the statement to prepare it, before it reads the counters. The second execution is the
    // first sample, which is complete when the statement arrives for the third time.
    let mut sent = HashSet::new();
    wait_until("the first look", || {
        sent.extend(Some(look()).filter(|time| !time.is_empty()));
        sent.len() > 2
    });
    drop(owner.stdin.take());
    assert!(collect(owner).code == Some(0));
    let watched = collect(watching);
    assert!(watched.code == Some(1) && watched.stderr.contains("in the database"), "{watched}");
    assert!(watched.stderr.contains("the server went away while it was watched"), "{watched}");
}

#[test]
fn server_counters_are_shown_on_every_major() {
    for major in majors() {
        let preload =
            ["--postgres", &postgres(major), "--set", "shared_preload_libraries=pg_stat_statements"];
        let serve = Serve::at(Scene::new(User::Ourselves), preload);
        let url = serve.ready["url"].as_str().unwrap();
        let scene = Scene::new(User::Ourselves);
        let profile = |script: &str| {
            let words = ["profile", "--url", url, "--report", "out.json", "--", "sh", "-euc", script, url];
            let outcome = scene.run(words);
            assert!(outcome.code == Some(0), "{outcome}");
            (read(&scene, "out.json"), outcome.stderr)
        };
        let psql = format!("{} \"$0\" -XAtqc", ground::psql());
        let (without, said) = profile(&format!(
            "{psql} 'CREATE SCHEMA \"Own\"; CREATE EXTENSION pg_stat_statements SCHEMA \"Own\"'"
        ));
        assert!(
            said.contains("counted   nothing by the server: the database has no extension pg_stat"),
            "{said}"
        );
        assert!(without["notes"].to_string().contains("no extension pg_stat_statements"), "{without}");
        profile(&format!("{psql} 'SELECT 1 FROM pg_am'"));
        let script = format!(
            "{psql} 'SELECT -1 FROM pg_am'; {psql} 'SELECT 2 FROM pg_am'; {psql} 'SELECT pg_sleep(1)'"
        );
        let (with, said) = profile(&script);
        assert!(
            said.contains("counted   by pg_stat_statements: ")
                && said.contains(" in 1 of SELECT pg_sleep(?)"),
            "{said}"
        );
        let counted = rows(&with, "Counted by pg_stat_statements");
        let of = |text: &str| {
            counted.iter().find(|row| row["statement"] == text).unwrap_or_else(|| panic!("{major}: {with}"))
        };
        assert_eq!(of("SELECT ? FROM pg_am")["runs"]["value"], 2.0, "those before it began are not counted");
        assert!(of("SELECT pg_sleep(?)")["time"]["value"].as_f64().unwrap() >= 1.0, "{with}");
        // pgfresh itself calls this function to find the database of each backend that it starts ahead.
        let samples = |row: &Value| {
            let text = row.to_string();
            text.contains("pg_stat_get_activity") && !text.contains("database_of")
        };
        assert!(counted.iter().all(|row| row["database"] == "postgres" && !samples(row)), "{with}");
    }
}

#[test]
fn unwatchable_servers_fail_before_the_run() {
    let scene = Scene::new(User::Ourselves);
    for (url, expected) in [
        ("mysql://x", "cannot read the URL of the server"),
        ("postgresql://me@localhost/x?sslmode=require", "it requires encryption"),
        ("postgresql://me@/x?host=/nowhere", "could not connect to the server"),
    ] {
        let outcome = scene.run(["profile", "--url", url, "--", "touch", "ran"]);
        assert!(outcome.code == Some(1) && outcome.stderr.contains(expected), "{url}: {outcome}");
        assert!(outcome.stderr.contains("HINT:"), "{outcome}");
        assert!(!scene.directory.join("ran").exists(), "{url}");
    }
    for words in [
        &["run", "--profile"][..],
        &["run", "--compare"],
        &["profile", "--url", "postgresql://me@/x?host=/nowhere"],
    ] {
        let words = words.iter().chain(&["--report", "nowhere/out.json", "--", "touch", "ran"]);
        let outcome = scene.run(words);
        assert!(outcome.stderr.contains("could not write \"nowhere/out.json\""), "{outcome}");
        assert!(outcome.code != Some(0) && !scene.directory.join("ran").exists(), "{outcome}");
    }
    let outcome =
        scene.run(["run", "--profile", "--report", "out.json", "--postgres", "/nowhere", "--", "true"]);
    assert!(outcome.code != Some(0) && !scene.directory.join("out.json").exists(), "{outcome}");
    let outcome = scene.run(["run", "--profile", "--report", "out.pdf", "--", "true"]);
    assert!(
        outcome.code == Some(2) && outcome.stderr.contains(".html, .json, .md, .csv, .txt or .xml"),
        "{outcome}"
    );
}

#[test]
fn reports_keep_the_commands_output_and_code() {
    let scene = Scene::new(User::Ourselves);
    let names = ["out.json", "out.md", "out.csv", "out.txt", "out.html"];
    let reports = names.iter().flat_map(|name| ["--report", name]);
    let words = ["run", "--quiet", "--profile"].into_iter().chain(reports);
    let mut command = scene.pgfresh(words.chain(["--", "sh", "-c", "echo hello; exit 3"]));
    command.env("GITHUB_STEP_SUMMARY", scene.write("summary.md", "before\n"));
    let outcome = finish(command);
    assert_eq!((outcome.code, &outcome.stdout[..], &outcome.stderr[..]), (Some(3), "hello\n", ""));
    let text = |name: &str| fs::read_to_string(scene.directory.join(name)).unwrap();
    read(&scene, "out.json");
    assert!(text("out.md").starts_with("# Profile of sh -c"), "{}", text("out.md"));
    assert!(text("out.csv").starts_with("section,row,column,value,unit\n"));
    assert!(text("out.txt").starts_with("Profile of sh -c"));
    assert!(text("out.html").contains("<title>Profile of sh -c") && text("out.html").ends_with("</html>\n"));
    assert!(text("summary.md").starts_with("before\n# Profile of sh -c"), "{}", text("summary.md"));
}
