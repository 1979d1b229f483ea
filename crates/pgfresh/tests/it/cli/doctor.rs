//! Tests that `pgfresh doctor` reports on a disk and a suite, and leaves nothing behind.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use crate::common::machine::machine;
use crate::common::{Outcome, Scene, User, collect, finish, ground, majors, postgres};
use serde_json::Value;

fn json(outcome: &Outcome) -> Value {
    assert!(outcome.code == Some(0), "{outcome}");
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}\n{outcome}"))
}

fn layer<'a>(diagnosis: &'a Value, name: &str) -> &'a Value {
    let layers = diagnosis["layers"].as_array().unwrap();
    layers
        .iter()
        .find(|layer| layer["name"] == name)
        .unwrap_or_else(|| panic!("no layer {name}: {diagnosis}"))
}

fn verdict<'a>(diagnosis: &'a Value, name: &str) -> &'a str {
    layer(diagnosis, name)["verdict"].as_str().unwrap()
}

fn rows<'a>(diagnosis: &'a Value, title: &str) -> &'a Vec<Value> {
    let tables = diagnosis["tables"].as_array().unwrap();
    let table = tables.iter().find(|table| table["title"] == title);
    table.unwrap_or_else(|| panic!("no table {title}: {diagnosis}"))["rows"].as_array().unwrap()
}

#[test]
#[cfg_attr(pgfresh_portable, ignore = "compares with a server in RAM")]
fn every_layer_is_reported_with_its_evidence() {
    for &user in User::all() {
        let scene = Scene::on_disk(user);
        let outcome = scene.run(["doctor", "--quick", "--json", scene.directory.to_str().unwrap()]);
        let diagnosis = json(&outcome);
        assert!(outcome.stderr.is_empty(), "{outcome}");
        for name in ["Device", "File system", "Sync", "Commit"] {
            assert!(verdict(&diagnosis, name).ends_with('.'), "{diagnosis}");
        }
        assert_eq!(rows(&diagnosis, "Commits of one row").len(), 6);
        assert!(!diagnosis["findings"].as_array().unwrap().is_empty(), "{diagnosis}");
        assert!(layer(&diagnosis, "File system")["facts"]["free"]["value"].as_f64().unwrap() > 0.0);
        let methods = rows(&diagnosis, "Sync methods");
        assert_eq!(methods.len(), 18);
        for row in methods {
            let refused = row["refusal"] != "";
            assert!(refused || row["rate"]["value"].as_f64().unwrap() > 0.0, "{row}");
            assert!(refused || row["p50"]["value"].as_f64() <= row["p99"]["value"].as_f64(), "{row}");
        }
        let distributions = diagnosis["distributions"].as_array().unwrap();
        assert!(distributions.iter().any(|one| one["name"] == "one 8 kB write: fdatasync"), "{diagnosis}");
    }
}

#[test]
fn invalid_report_formats_fail_before_measurements() {
    let scene = Scene::new(User::Ourselves);
    let here = scene.directory.to_str().unwrap();
    let outcome = scene
        .run(["doctor", "--quick", here, "--report", "a.html", "--report", "a.json", "--report", "a.md"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let read = |name: &str| fs::read_to_string(scene.directory.join(name)).unwrap();
    let diagnosis: Value = serde_json::from_str(&read("a.json")).unwrap();
    let page = read("a.html");
    for name in ["Device", "File system", "Sync", "Commit"] {
        assert!(page.contains(&format!("<h3>{name}</h3>")), "{name}: {page}");
        assert!(outcome.stdout.contains(&format!("\n{name}  ")), "{outcome}");
    }
    // The page has two pictures with a distribution for each row of the comparison, and the same
    // table as the terminal.
    assert_eq!(page.matches("<figure ").count(), 2, "{page}");
    assert!(
        page.contains("one 8 kB write: fdatasync: p50 ") && page.contains("a commit, durable: p50 "),
        "{page}"
    );
    assert!(page.contains("<h2>Commits of one row</h2>") && !page.contains("://"), "{page}");
    assert!(read("a.md").starts_with("# pgfresh doctor "), "{}", read("a.md"));
    let distributions = diagnosis["distributions"].as_array().unwrap();
    assert!(distributions.iter().any(|one| one["name"] == "one 8 kB write: fdatasync"), "{diagnosis}");
    for (file, why) in [("missing/a.html", "could not write"), ("a.xml", "its name must end with .html")] {
        let refused = scene.run(["doctor", "--quick", here, "--report", file]);
        assert!(
            refused.code != Some(0) && refused.stdout.is_empty() && refused.stderr.contains(why),
            "{refused}"
        );
    }
}

#[test]
fn memory_is_called_memory() {
    let scene = Scene::new(User::Ourselves);
    let diagnosis = json(&scene.run(["doctor", "--quick", "--json", scene.place.to_str().unwrap()]));
    assert!(verdict(&diagnosis, "Device").starts_with("memory"), "{diagnosis}");
    assert!(verdict(&diagnosis, "Sync").contains("memory, nothing is flushed"), "{diagnosis}");
}

#[test]
fn drives_without_real_flushes_are_reported() {
    let scene = Scene::new(User::Ourselves);
    let root = scene.directory.join("machine");
    let drive = [
        ("queue/write_cache", "write back"),
        ("queue/rotational", "0"),
        ("device/model", "Samsung SSD 990 PRO 2TB"),
    ];
    machine(&root, &scene.place, &drive);
    let (sysfs, procfs) = (root.join("sys"), root.join("proc"));
    // The directory is on a tmpfs, so that writes are fast and no disk is flushed.
    let examine = || {
        let (sysfs, procfs) = (sysfs.to_str().unwrap(), procfs.to_str().unwrap());
        let place = scene.place.to_str().unwrap();
        json(&scene.run(["doctor", "--quick", "--json", "--sysfs", sysfs, "--procfs", procfs, place]))
    };
    let diagnosis = examine();
    assert!(
        verdict(&diagnosis, "Device").contains("sdq (Samsung SSD 990 PRO 2TB) has a volatile write cache")
    );
    assert_eq!(layer(&diagnosis, "Device")["facts"]["through"], "partition sdq1");
    assert!(verdict(&diagnosis, "Sync").contains("lies about flush"), "{diagnosis}");

    fs::remove_file(procfs.join("diskstats")).unwrap();
    assert!(verdict(&examine(), "Sync").contains("virtual or unproven"));
}

#[test]
fn a_suites_waits_are_named_on_every_major() {
    let scene = Scene::new(User::Ourselves);
    let psql = ground::psql();
    let naps = "SELECT pg_sleep(0.2) FROM generate_series(1, 10)";
    let suite = format!("test \"$PGHOST\" && {psql} -Xqc '{naps}' && {psql} -XqAtc 'SELECT 1 / 0'");
    for major in majors() {
        let (place, postgres) = (scene.directory.to_str().unwrap(), postgres(major));
        let words = ["doctor", "--quick", "--json", "--postgres", &postgres, "--suite", &suite, place];
        let diagnosis = json(&scene.run(words));
        assert_eq!(verdict(&diagnosis, "Failure"), "The suite failed with exit code 1.", "{diagnosis}");
        let last = &layer(&diagnosis, "Failure")["facts"]["last line"];
        assert_eq!(last, "ERROR:  division by zero", "{diagnosis}");
        let facts = &layer(&diagnosis, "Suite")["facts"];
        assert_eq!(facts["usual number of sessions at work"]["value"], 1.0, "{facts}");
        assert!(facts["in the database"]["value"].as_f64().unwrap() > 0.5, "{facts}");
        // Ten sleeps of 0.2 s take most of the time, and aren't syncs. A busy machine takes few samples and
        // misses part of the time.
        let findings = diagnosis["findings"].as_array().unwrap();
        let named = |name| findings.iter().any(|one| one["name"] == name);
        assert!(named("The database is at work, and waits for nothing"), "{findings:?}");
        assert!(!named("The server waits for the disk"), "{findings:?}");
        assert!(diagnosis["environment"]["PostgreSQL"].as_str().unwrap().starts_with(&major.to_string()));
    }
}

#[test]
fn an_earlier_profile_replaces_the_suite() {
    let scene = Scene::new(User::Ourselves);
    let (place, file) = (scene.directory.to_str().unwrap(), scene.directory.join("profile.json"));
    let file = file.to_str().unwrap();
    let ran = scene.run(["run", "--profile", "--report", file, "--", "sleep", "0.3"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let diagnosis = json(&scene.run(["doctor", "--quick", "--json", "--profile", file, place]));
    assert!(verdict(&diagnosis, "Suite").ends_with("outside."), "{diagnosis}");
    let findings = diagnosis["findings"].as_array().unwrap();
    assert!(findings.iter().any(|one| one["name"] == "No client connected to the database"), "{findings:?}");
    assert!(diagnosis["notes"].to_string().contains("Profile of sleep 0.3"), "{diagnosis}");

    for (text, why) in [
        ("{}", "it is not a JSON report"),
        (
            r#"{"title": "A fresh database", "layers": [], "findings": []}"#,
            "it is a report, but not of a suite",
        ),
    ] {
        fs::write(file, text).unwrap();
        let refused = scene.run(["doctor", "--quick", "--profile", file, place]);
        let said = &refused.stderr;
        assert_eq!(refused.code, Some(1), "{said}");
        assert!(said.contains(why) && said.contains("--report profile.json"), "{said}");
    }
}

#[test]
fn remedies_are_tried_in_turn() {
    let scene = Scene::new(User::Ourselves);
    let place = scene.directory.to_str().unwrap();
    let diagnosis = json(&scene.run(["doctor", "--quick", "--json", "--try", "--suite", "true", place]));
    let tried = rows(&diagnosis, "Remedies tried on the suite");
    let names: Vec<_> = tried.iter().map(|row| row["remedy"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["as it is", "synchronous_commit=off", "nothing flushed"]);
    assert!(tried.iter().all(|row| row["rounds"] == "6"), "{tried:?}");
}

#[test]
fn a_soak_shows_temperatures_until_interrupted() {
    let scene = Scene::new(User::Ourselves);
    let root = scene.directory.join("machine");
    let drive = [("queue/write_cache", "write back"), ("device/hwmon/hwmon0/temp1_input", "41850")];
    machine(&root, &scene.place, &drive);
    let (sysfs, procfs) = (root.join("sys"), root.join("proc"));
    let (sysfs, procfs) = (sysfs.to_str().unwrap(), procfs.to_str().unwrap());
    let place = scene.place.to_str().unwrap();
    let words = ["doctor", "--quick", "--soak", "3s", "--sysfs", sysfs, "--procfs", procfs, place];
    let diagnosis = json(&scene.run([&words[..], &["--json"]].concat()));
    let plot = &diagnosis["plots"][0];
    let series: Vec<_> = plot["series"].as_array().unwrap().iter().map(|series| &series["name"]).collect();
    assert_eq!(series, ["fdatasyncs", "temperature", "unwritten", "I/O waits per second"]);
    assert_eq!(plot["series"][1]["values"][7], 41.85);
    assert!(verdict(&diagnosis, "Soak").ends_with('.'), "{diagnosis}");

    // Ctrl-C prints the results so far, and ends with the usual exit code.
    let mut command = scene.pgfresh([&words[..3], &["60m", place]].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    scene.watch(child.id(), Duration::from_millis(1500));
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let outcome = collect(child);
    assert_eq!(outcome.code, Some(130), "{outcome}");
    assert!(outcome.stdout.contains("\nSoak ") && outcome.stdout.contains("fdatasyncs of 8 kB"), "{outcome}");
}

/// Returns the report of `doctor --url` within a `run` with the options `words`, after `script`, which has the
/// server's URL in `$URL`.
fn of_url(scene: &Scene, words: &[&str], script: &str) -> Value {
    let program = ground::program().display();
    let script = format!("URL=$DATABASE_URL; {script}\nexec {program} doctor --quick --json --url \"$URL\"");
    let mut command = scene.pgfresh([&["run"], words, &["--", "sh", "-euc", &script]].concat());
    command.env("POSTGRES_SHARED_BUFFERS", "256MB").env("POSTGRES_PASSWORD", "hush-hush");
    let outcome = finish(command);
    assert!(!outcome.stdout.contains("hush-hush"), "{outcome}");
    json(&outcome)
}

fn findings(diagnosis: &Value) -> Vec<&str> {
    let findings = diagnosis["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["name"].as_str().unwrap()).collect()
}

#[test]
fn foreign_servers_are_read_on_every_major() {
    let scene = Scene::new(User::Ourselves);
    for major in majors() {
        let postgres = postgres(major);
        let diagnosis = of_url(&scene, &["--postgres", &postgres, "--preset", "durable"], "");
        assert_eq!(verdict(&diagnosis, "Settings"), "every commit waits until it is on disk.");
        assert!(verdict(&diagnosis, "Server").contains("you are a superuser"), "{diagnosis}");
        assert!(verdict(&diagnosis, "Data").ends_with("is in RAM (tmpfs)."), "{diagnosis}");
        assert!(findings(&diagnosis).contains(&"POSTGRES_SHARED_BUFFERS has no effect"), "{diagnosis}");
        let statements = rows(&diagnosis, "Commits there");
        assert!(statements.iter().all(|row| row["commits"]["value"].as_f64() >= Some(24.0)), "{diagnosis}");
    }
}

#[test]
fn foreign_servers_stay_unchanged() {
    let scene = Scene::new(User::Ourselves);
    let (program, psql) = (ground::program().display(), ground::psql());
    // The list contains every relation, function, setting and role.
    let catalog = "SELECT oid, relname FROM pg_class UNION ALL SELECT oid, proname FROM pg_proc UNION ALL \
        SELECT 0, name || setting FROM pg_settings UNION ALL SELECT oid, rolname FROM pg_roles ORDER BY 1, 2";
    let look = format!("{psql} -XqAtc \"{catalog}\" \"$URL\"");
    let next = format!("{psql} -XqAtc 'SELECT txid_current()' \"$URL\" >>transactions");
    let script = format!(
        "{look} >before\n{next}\n{program} doctor --url \"$URL\" >said\n{next}\n{look} >after\ncmp before after"
    );
    of_url(&scene, &[], &script);
    let read = |name: &str| fs::read_to_string(scene.directory.join(name)).unwrap();
    let said = read("said");
    let numbers: Vec<u64> = read("transactions").lines().map(|number| number.parse().unwrap()).collect();
    // Each transaction that writes has a number. docs/doctor.md promises at most 308, and the server adds its own.
    assert!(numbers[1] - numbers[0] < 400, "{numbers:?} {said}");
    assert!(said.contains("pgfresh changed nothing on the server"), "{said}");
}

#[test]
fn users_with_few_rights_get_a_report() {
    let scene = Scene::new(User::Ourselves);
    let psql = ground::psql();
    let script = format!("{psql} -Xqc 'CREATE ROLE little' \"$URL\"\nexport PGOPTIONS='-c role=little'");
    let diagnosis = of_url(&scene, &[], &script);
    assert!(verdict(&diagnosis, "Server").contains("only your own sessions"), "{diagnosis}");
    assert!(verdict(&diagnosis, "Data").starts_with("unknown"), "{diagnosis}");
}

#[test]
fn a_server_out_of_reach_is_an_error() {
    let scene = Scene::new(User::Ourselves);
    let outcome = scene.run(["doctor", "--url", "postgresql://postgres@127.0.0.1:1/postgres"]);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert!(outcome.stderr.starts_with("pgfresh: could not query the server: "), "{outcome}");
    assert!(outcome.stderr.contains("HINT: "), "{outcome}");
}

#[test]
fn without_an_installation_the_disk_is_still_examined() {
    let scene = Scene::new(User::Ourselves);
    let place = scene.directory.to_str().unwrap();
    let diagnosis = json(&scene.run(["doctor", "--quick", "--json", "--postgres", "/nowhere", place]));
    assert!(verdict(&diagnosis, "Sync").ends_with('.'));
    assert!(verdict(&diagnosis, "Server").contains("could not"), "{diagnosis}");
}

#[test]
fn a_missing_template_fails_after_the_report() {
    let scene = Scene::new(User::Ourselves);
    let place = scene.directory.to_str().unwrap();
    scene.write("pgfresh.toml", "[template]\nsetup = \"exit 3\"\ninputs = \"pgfresh.toml\"\n");
    let outcome = scene.run(["doctor", "--quick", "--suite", "true", place]);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    let words = "could not examine the suite: template \"app\"";
    assert!(outcome.stdout.contains("Commits of one row") && outcome.stderr.contains(words), "{outcome}");
}

#[test]
fn an_unwritable_place_is_an_error() {
    let scene = Scene::new(User::Ourselves);
    let missing = scene.directory.join("missing");
    let outcome = scene.run(["doctor", missing.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert!(
        outcome.stderr.starts_with("pgfresh: could not use \"") && outcome.stdout.is_empty(),
        "{outcome}"
    );
}

#[test]
fn an_unrunnable_suite_is_an_error() {
    let scene = Scene::new(User::Ourselves);
    let place = scene.place.to_str().unwrap();
    let outcome = scene.run(["doctor", "--quick", "--suite", "pytst -q", place]);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    let words = "pgfresh: could not examine the suite: sh: 1: pytst: not found";
    assert!(outcome.stderr.contains(words) && !outcome.stdout.contains("No client"), "{outcome}");
}
