//! Tests that `pgfresh bench` times every contender, writes the results to the requested files, and
//! leaves nothing behind.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::common::depth::some_of;
use crate::common::machine::machine;
use crate::common::{MAJORS, Outcome, Scene, User, collect, ground, majors, postgres, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn json(outcome: &Outcome) -> Value {
    assert!(outcome.code == Some(0), "{outcome}");
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}\n{outcome}"))
}

/// Returns the row whose first column is `what`, in the table `title`.
fn row<'a>(report: &'a Value, title: &str, column: &str, what: &str) -> &'a Value {
    let tables = report["tables"].as_array().unwrap();
    let table = tables.iter().find(|table| table["title"] == title);
    let rows = table.unwrap_or_else(|| panic!("no table {title}: {report}"))["rows"].as_array().unwrap();
    rows.iter().find(|row| row[column] == what).unwrap_or_else(|| panic!("no row {what}: {rows:?}"))
}

fn number(value: &Value) -> f64 {
    value["value"].as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Returns the number of values for each contender, by phase.
fn counts(report: &Value) -> Vec<usize> {
    let samples = report["samples"].as_array().unwrap();
    let phases = samples.iter().flat_map(|sample| sample["phases"].as_array().unwrap());
    phases.map(|phase| phase["values"].as_array().unwrap().len()).collect()
}

/// Waits until the file contains `text`.
fn wait_for(file: &Path, text: &str) {
    let what = format!("\"{text}\" in \"{}\"", file.display());
    wait_until(&what, || fs::read_to_string(file).is_ok_and(|content| content.contains(text)));
}

/// Returns what is in the run directories under `place`.
fn left_in(place: &Path) -> Vec<PathBuf> {
    let folders = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    folders(place).flat_map(|root| folders(&root)).collect()
}

#[test]
fn one_shard_of_a_fleet_builds() {
    let scene = Scene::new(User::Ourselves);
    // On a busy machine, the benchmark takes longer than other tests.
    let words = ["bench", "fleet", "--shards", "2", "--seconds", "1", "--json"];
    let output = scene.pgfresh(words).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let title = "2 shards with empty caches, a set-up of 1 s";
    let builds = |way| row(&report, title, "way", way)["set-ups"].as_str().unwrap().to_owned();
    assert_eq!(builds("every shard migrates"), "2");
    assert_eq!(builds("every shard restores a dump"), "0");
    // If a machine is too busy for a download, its shard builds the template itself and reports it.
    let notes = report["notes"].as_array().unwrap();
    let refused = notes.iter().filter(|note| note.as_str().unwrap().contains(" is built here: ")).count();
    let built: usize =
        ["remote, empty", "remote, filled"].map(|way| builds(way).parse::<usize>().unwrap()).iter().sum();
    assert_eq!(built, 1 + refused, "{notes:?}");
    assert_eq!(counts(&report), [2; 4], "{report}");
}

#[test]
#[cfg_attr(pgfresh_portable, ignore = "compares with a server in RAM")]
fn clean_up_methods_are_timed_on_every_major() {
    for major in majors() {
        let scene = Scene::on_disk(User::Ourselves);
        let (disk, postgres) = (scene.directory.to_str().unwrap(), postgres(major));
        let words = ["bench", "truncate", "--rounds", "1", "--json", "--postgres", &postgres, disk];
        let report = json(&scene.run(words));
        assert_eq!(counts(&report), [1; 10], "{report}");
        let title = "A test and its clean-up, in turn";
        let fresh = row(&report, title, "what", "pgfresh: a fresh database for each test");
        assert!(number(&fresh["a test"]) > 0.0 && number(&fresh["× as fast"]) > 0.0, "{fresh}");
        let title = "TRUNCATE on a slow disk, beside the published figures";
        let published = row(&report, title, "what", "published: 24 tests, data directory moved to tmpfs");
        assert!((number(&published["× as fast"]) - 58.9).abs() < 0.1, "{published}");
        let moved = row(&report, title, "what", "here: a test, data directory moved to RAM");
        let (before, after) = (number(&moved["before"]), number(&moved["after"]));
        assert!((number(&moved["× as fast"]) / (before / after) - 1.0).abs() < 1e-9, "{moved}");
        assert!(report["environment"]["PostgreSQL"].as_str().unwrap().starts_with(&major.to_string()));
        let notes = report["notes"].as_array().unwrap();
        let on_disk = format!("normal settings, on disk: disk at \"{disk}\": as asked.");
        assert!(notes.iter().any(|note| *note == on_disk), "{notes:?}");
    }
}

#[test]
#[cfg_attr(pgfresh_portable, ignore = "compares with a server in RAM")]
fn transactions_are_counted_by_number_of_clients() {
    // The majors run concurrently, because each takes a second for each of 42 rounds.
    thread::scope(|scope| {
        for major in some_of([MAJORS[0], MAJORS[2]]) {
            scope.spawn(move || count_transactions(major));
        }
    });
}

fn count_transactions(major: u32) {
    let scene = Scene::new(User::Ourselves);
    let (disk, postgres) = (scene.directory.to_str().unwrap(), postgres(major));
    let words = ["bench", "pgbench", "--rounds", "1", "--seconds", "1", "--scale", "1", "--json"];
    let mut command = scene.pgfresh(words.iter().chain(&["--postgres", postgres.as_str(), disk]));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    let outcome = collect(child);
    assert!(outcome.code == Some(0), "{outcome}");
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(counts(&report), [1; 21], "{report}");
    let ours = row(&report, "Transactions a second", "server", "pgfresh");
    let normal = row(&report, "Transactions a second", "server", "normal settings, on disk");
    let title = "How many times as many as with normal settings on disk";
    let gain = row(&report, title, "server", "pgfresh");
    for clients in ["clients: 1", "clients: 2", "clients: 3"] {
        let expected = number(&ours[clients]) / number(&normal[clients]);
        assert!((number(&gain[clients]) / expected - 1.0).abs() < 1e-9, "{report}");
    }
    let published = row(&report, title, "server", "published: three settings off (dangerous)");
    assert!((number(&published["clients: 3"]) - 12.27).abs() < 0.01, "{published}");
}

/// Also runs as root. Then the servers run as a different account than the programs that start them.
#[test]
fn starts_are_timed_beside_those_by_hand() {
    for &user in User::all() {
        let report = json(&Scene::new(user).run(["bench", "start", "--rounds", "3", "--json"]));
        let rows = report["tables"][0]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 6, "{report}");
        for row in rows {
            assert!(number(&row["all of it"]) > 0.0, "{row}");
        }
    }
}

#[test]
fn resets_are_timed_by_number_of_tables() {
    for major in majors() {
        let (scene, postgres) = (Scene::new(User::Ourselves), postgres(major));
        let words =
            ["bench", "fresh", "--tables=5,120", "--rounds", "3", "--json", "--postgres", postgres.as_str()];
        let report = json(&scene.run(words));
        // With five tables, the variants that write to ten or a hundred tables are left out.
        assert_eq!(counts(&report), [3; 8], "{report}");
        let rows = report["tables"][0]["rows"].as_array().unwrap();
        let shown: Vec<_> = rows.iter().map(|row| (&row["tables"], &row["written to"])).collect();
        assert_eq!(format!("{shown:?}").matches("120").count(), 3, "{shown:?}");
        let first = row(&report, "The first use of a template", "tables", "120");
        assert!(
            number(&first["its tables made by SQL"]) > 0.0 && number(&first["the first reset"]) > 0.0,
            "{first}"
        );
    }
}

#[test]
fn the_running_average_equals_that_of_batches() {
    for major in majors() {
        let scene = Scene::on_disk(User::Ourselves);
        let (disk, postgres) = (scene.directory.to_str().unwrap(), postgres(major));
        let words = ["bench", "events", "--batches", "4", "--batch", "25", "--json", "--postgres"];
        let report = json(&scene.run(words.iter().chain(&[postgres.as_str(), disk])));
        assert_eq!(counts(&report), [4; 3], "{report}");
        for (index, name) in
            ["durable, on disk", "synchronous_commit=off, on disk", "pgfresh"].iter().enumerate()
        {
            assert_eq!(row(&report, "Single events", "where", name)["events"]["value"], 100.0, "{report}");
            assert_eq!(report["distributions"][index]["count"], 100, "{report}");
            let series = &report["plots"][index]["series"];
            let values = |one: &Value| -> Vec<f64> {
                one["values"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
            };
            let (means, running) = (values(&series[0]), values(&series[1]));
            assert!((running[3] / (means.iter().sum::<f64>() / 4.0) - 1.0).abs() < 1e-9, "{report}");
            assert_eq!(report["plots"][index]["end"]["value"], 100.0);
        }
        let notes = report["notes"].to_string();
        assert!(notes.contains(&format!("pgfresh: PostgreSQL {major}.")), "{notes}");
    }
}

#[test]
fn foreign_servers_and_passwords_stay_untouched() {
    let scene = Scene::new(User::Ourselves);
    let script = "\"$0\" bench events --batches 2 --batch 5 --json --target \"$DATABASE_URL\" >output; cat output; \
                  ! grep -q \"$PGPASSWORD\" output; \"$1\" -XAtqc \"SELECT 'schemas', count(*) FROM pg_namespace \
                  WHERE nspname LIKE 'pgfresh%'\" >&2; \"$1\" -XAtqc 'CREATE SCHEMA pgfresh_bench'; \
                  \"$0\" bench events --target \"$DATABASE_URL\" || exit 3";
    let program = ground::program().to_str().unwrap();
    let outcome = scene.run(["run", "--", "sh", "-uc", script, program, ground::psql()]);
    let report: Value =
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}\n{outcome}"));
    assert_eq!(counts(&report), [2], "{outcome}");
    let expected = "schemas|0\npgfresh: could not create schema \"pgfresh_bench\"";
    assert!(outcome.code == Some(3) && outcome.stderr.starts_with(expected), "{outcome}");
    assert!(outcome.stderr.contains("HINT:  A benchmark that was killed leaves it behind"), "{outcome}");
}

#[test]
fn a_refused_table_leaves_no_schema() {
    let scene = Scene::new(User::Ourselves);
    let refuse = "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$; \
                  CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE PROCEDURE refuse()";
    let script = "\"$1\" -XAtqc \"$2\"; \"$0\" bench events --target \"$DATABASE_URL\"; \
                  \"$1\" -XAtqc \"SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pgfresh%'\"";
    let program = ground::program().to_str().unwrap();
    let outcome = scene.run(["run", "--", "sh", "-uc", script, program, ground::psql(), refuse]);
    assert_eq!(outcome.stdout, "0\n", "{outcome}");
    assert!(outcome.stderr.contains("could not append events"), "{outcome}");
}

#[test]
fn an_unknown_target_is_an_error() {
    let scene = Scene::new(User::Ourselves);
    let mut unknown =
        vec![("mysql://localhost", "expected durable, async, fast, postgresql://… or mongodb://…")];
    if cfg!(not(feature = "mongodb")) {
        unknown.push(("mongodb://localhost", "this pgfresh was built without MongoDB's driver"));
    }
    for (target, words) in unknown {
        let outcome = scene.run(["bench", "events", "--target", target]);
        assert!(outcome.code == Some(2) && outcome.stderr.contains(words), "{outcome}");
    }
}

#[test]
fn the_temperature_is_drawn_beside_the_events() {
    let scene = Scene::new(User::Ourselves);
    let root = scene.directory.join("machine");
    let drive = [("queue/write_cache", "write back"), ("device/hwmon/hwmon0/temp1_input", "61500")];
    machine(&root, &scene.place, &drive);
    let (sysfs, procfs, page) = (root.join("sys"), root.join("proc"), root.join("page.html"));
    let words =
        ["bench", "events", "--target", "durable", "--batches", "3", "--batch", "5", "--json", "--html"];
    let folders = [&page, Path::new("--sysfs"), &sysfs, Path::new("--procfs"), &procfs, &scene.place];
    let report = json(&scene.run(words.iter().map(AsRef::as_ref).chain(folders.map(Path::as_os_str))));
    let degrees = &report["plots"][0]["series"][2];
    assert_eq!((&degrees["unit"], &degrees["values"][2]), (&"celsius".into(), &61.5.into()), "{report}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains(">temperature</li>") && page.contains(">61.5 °C</text>"), "{page}");
}

#[test]
#[cfg_attr(pgfresh_portable, ignore = "compares with a server in RAM")]
fn a_suite_runs_on_three_servers_in_turn() {
    let scene = Scene::new(User::Ourselves);
    let psql = ground::psql();
    let script = format!("{psql} -XAtqc 'SHOW fsync; SHOW data_directory' >>turns; echo 12 passed in 1.2s");
    let path = scene.directory.join("disk");
    fs::create_dir(&path).unwrap();
    User::Ourselves.give(&path);
    let words =
        ["bench", "suite", "--rounds", "2", "--json", "--csv=values.csv", "--path", path.to_str().unwrap()];
    let outcome = scene.run(words.iter().chain(&["--", "sh", "-euc", &script]));
    let report = json(&outcome);
    assert!(outcome.stderr.is_empty(), "{outcome}");
    let turns = fs::read_to_string(scene.directory.join("turns")).unwrap();
    let turns: Vec<_> = turns.lines().collect();
    let kinds: Vec<_> =
        turns.chunks(2).map(|turn| (turn[0], turn[1].starts_with(path.to_str().unwrap()))).collect();
    let forth = [("on", true), ("off", true), ("off", false)];
    assert_eq!(kinds, forth.into_iter().chain(forth.into_iter().rev()).collect::<Vec<_>>());
    assert_eq!(counts(&report), [2; 9], "{report}");
    assert_eq!(report["notes"][0], "All 6 runs ended the same way: exit code 0, 12 passed.", "{report}");
    let gain = row(&report, "How many times as fast", "server", "nothing flushed, in RAM");
    assert!(number(&gain["gain"]) > 0.0, "{report}");
    let values = fs::read_to_string(scene.directory.join("values.csv")).unwrap();
    assert!(values.contains("\n\"Samples: nothing flushed, in RAM\",2,suite,"), "{values}");
}

#[test]
#[cfg_attr(pgfresh_portable, ignore = "compares with a server in RAM")]
fn a_failing_suite_determines_the_exit_code() {
    let scene = Scene::new(User::Ourselves);
    let outcome = scene.run(["bench", "suite", "--rounds", "1", "--", "sh", "-c", "echo the reason; exit 7"]);
    assert_eq!(outcome.code, Some(7), "{outcome}");
    assert_eq!(outcome.stderr.matches("):\nthe reason\n").count(), 3, "{outcome}");
    let verdict = "All 3 runs ended the same way: exit code 7; no gain is reported for a command that fails.";
    assert!(outcome.stdout.replace('\n', " ").contains(verdict), "{outcome}");
    assert!(!outcome.stdout.contains(" ×"), "{outcome}");
}

#[test]
fn a_signal_between_runs_ends_the_benchmark() {
    let scene = Scene::new(User::Ourselves);
    let mut command = scene.pgfresh(["bench", "suite", "--rounds", "2", "--", "sh", "-c", "echo >>turns"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let turns = || fs::read_to_string(scene.directory.join("turns")).unwrap_or_default().len();
    wait_until("the first run", || turns() > 0);
    // The next server takes longer than this to start.
    thread::sleep(Duration::from_millis(20));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let outcome = collect(child);
    assert!(outcome.code != Some(0) && turns() < 6, "{outcome}");
}

#[test]
fn an_interrupt_writes_the_finished_rounds() {
    for &user in User::all() {
        let scene = Scene::new(user);
        let (page, values) = (scene.directory.join("page.html"), scene.directory.join("values.csv"));
        let disk = scene.directory.join("disk");
        fs::create_dir(&disk).unwrap();
        user.give(&disk);
        let csv = format!("--csv={}", values.display());
        let words = ["bench", "truncate", "--rounds", "500", "--html", page.to_str().unwrap(), &csv];
        let mut command = scene.pgfresh(words.iter().copied().chain([disk.to_str().unwrap()]));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        wait_for(&values, "Samples: pgfresh: rollback isolation,1,a test,");
        wait_for(&page, "pgfresh: rollback isolation");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let outcome = collect(child);
        // stderr contains only progress messages.
        let is_progress = |line: &str| line.starts_with("pgfresh: ") && line.contains("rounds");
        assert!(outcome.code == Some(130) && outcome.stderr.lines().all(is_progress), "{outcome}");
        assert!(outcome.stdout.contains("A test and its clean-up, in turn"), "{outcome}");
        let page = fs::read_to_string(page).unwrap();
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{page}");
        let values = fs::read_to_string(values).unwrap();
        assert!(values.lines().all(|line| line.matches(',').count() >= 4), "{values}");
        wait_until("the end of what was on the disk", || left_in(&disk).is_empty());
    }
}

#[test]
fn unwritable_files_fail_before_measurements() {
    let scene = Scene::new(User::Ourselves);
    let page = scene.directory.join("missing/page.html");
    let outcome = scene.run(["bench", "truncate", "--html", page.to_str().unwrap()]);
    let expected = format!(
        "pgfresh: could not write \"{}\": No such file or directory\nHINT:  Create its directory first, or name another file.\n",
        page.display()
    );
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(1), expected.as_str()), "{outcome}");
}

#[test]
fn an_end_before_results_prints_no_tables() {
    let scene = Scene::new(User::Ourselves);
    for words in [["bench", "start"], ["doctor", "--quick"]] {
        let mut command = scene.pgfresh(words);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Send the signal as soon as pgfresh has a handler for it.
        let status = format!("/proc/{}/status", child.id());
        wait_until("the handler", || {
            let status = fs::read_to_string(&status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
            u64::from_str_radix(caught, 16).unwrap() & 2 != 0
        });
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let outcome = collect(child);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(130), ""), "{words:?} {outcome}");
        assert!(outcome.stderr.ends_with("pgfresh: nothing was measured yet\n"), "{outcome}");
    }
    let outcome = scene.run(["bench", "suite", "--", "nope"]);
    assert!(outcome.stdout.is_empty() && outcome.stderr.contains("nope"), "{outcome}");
}
