//! Tests the background server: the programs of a project share it, and it ends without leftovers when it is idle.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::depth::rounds;
use crate::common::random::Random;
use crate::common::{Outcome, Scene, User, collect, end_of, ground, line_of, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Runs `pgfresh url` with `options`, which must succeed.
fn url(scene: &Scene, options: &[&str]) -> String {
    let outcome = scene.run([&["url"], options].concat());
    assert_eq!(outcome.code, Some(0), "{outcome}");
    outcome.stdout.trim().to_owned()
}

/// Returns the server's part of the URL, without the database.
fn server_of(url: &str) -> String {
    url.rsplit_once('/').expect("a URL").0.to_owned()
}

fn stop(scene: &Scene) -> Outcome {
    let outcome = scene.run(["stop"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    outcome
}

fn status(scene: &Scene) -> Option<Value> {
    let outcome = scene.run(["status", "--json"]);
    (outcome.code == Some(0)).then(|| serde_json::from_str(&outcome.stdout).unwrap())
}

const SCHEMA: &str = "CREATE TABLE one (id int);";
const OTHER_SCHEMA: &str = "CREATE TABLE two (id int);";

/// Template configuration whose setup runs until the file "go" exists.
const WAITING: &str =
    "[template]\nsetup = \"touch begun; while [ ! -e go ]; do sleep 0.01; done\"\ninputs = [\"input\"]\n";

/// Makes a project for one test, so that the test doesn't join another test's server.
fn project(user: User) -> Scene {
    with_template(Scene::new(user))
}

fn with_template(scene: Scene) -> Scene {
    scene.write("pgfresh.toml", "[template]\nsql = \"schema.sql\"\n");
    scene.write("schema.sql", SCHEMA);
    scene
}

/// Starts a client that keeps the server until the client's standard input ends. Returns the client and
/// the URL that it printed.
fn holder(scene: &Scene) -> (Child, String) {
    let mut command = scene.pgfresh(["serve", "--shared"]);
    let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let url = line_of(holder.stdout.take().unwrap());
    (holder, url)
}

/// Returns the number of this project's servers in the cache.
fn slots(scene: &Scene) -> usize {
    let about = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("about")).unwrap_or_default();
    let entries = fs::read_dir(scene.cache.join("servers")).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.path().join("log").exists())
        .map(about)
        .filter(|about| about.contains(&format!("\"{}\"", scene.directory.display())))
        .count()
}

#[test]
fn parallel_clients_share_one_server() {
    for &user in User::all() {
        let scene = project(user);
        let children: Vec<Child> = (0..20)
            .map(|_| scene.pgfresh(["url"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
            .collect();
        let outcomes: Vec<_> = children.into_iter().map(collect).collect();
        let urls: BTreeSet<_> = outcomes.iter().map(|outcome| outcome.stdout.trim().to_owned()).collect();
        assert_eq!(urls.len(), 20, "{outcomes:#?}");
        assert_eq!(urls.iter().map(|url| server_of(url)).collect::<BTreeSet<_>>().len(), 1, "{urls:#?}");
        let psql = [ground::psql(), "-XAtqc", "SELECT count(*) FROM one", urls.first().unwrap()];
        let asked = Command::new(psql[0]).args(&psql[1..]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&asked.stdout), "0\n");
        assert_eq!(stop(&scene).stdout, "stopped the background server\n");
        assert_eq!(slots(&scene), 0);
        assert_eq!(stop(&scene).stdout, "nothing to stop\n");
    }
}

#[test]
fn a_name_keeps_its_database_until_release() {
    let scene = project(User::Ourselves);
    let first = url(&scene, &["orders"]);
    assert!(first.ends_with("/orders"), "{first}");
    assert_eq!(url(&scene, &["orders"]), first);
    assert_eq!(scene.run(["psql", "orders", "--", "-qc", "INSERT INTO one VALUES (1)"]).code, Some(0));
    let count = || scene.run(["psql", "orders", "--", "-XAtc", "SELECT count(*) FROM one"]).stdout;
    assert_eq!(count(), "1\n");
    assert_eq!(scene.run(["reset", "orders"]).code, Some(0));
    let mut psql = Command::new(ground::psql());
    let psql = psql.args(["-XAtq", &first]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut psql = psql.spawn().unwrap();
    writeln!(psql.stdin.as_ref().unwrap(), "SELECT 'there';").unwrap();
    assert_eq!(line_of(psql.stdout.as_mut().unwrap()), "there\n");
    for (words, hint) in [
        (&["reset", "orders"][..], "\"pgfresh reset orders --close\" closes them."),
        (&["snapshot", "orders", "as", "t"], "Close its sessions first."),
    ] {
        let refused = scene.run(words);
        let expected = format!("pgfresh: database \"orders\" has 1 open session\nHINT:  {hint}\n");
        assert_eq!((refused.code, refused.stderr), (Some(1), expected));
    }
    assert_eq!(scene.run(["reset", "orders", "--close"]).code, Some(0));
    drop(psql.stdin.take());
    end_of(&mut psql, "the close of its session");
    let refused = scene.run(["release", "nope"]);
    let expected =
        "pgfresh: database \"nope\" is not leased\nHINT:  \"pgfresh status\" lists those that are.\n";
    assert_eq!((refused.code, refused.stderr.as_str()), (Some(1), expected));
    assert_eq!(count(), "0\n");
    assert_eq!(scene.run(["release", "orders"]).code, Some(0));
    assert_eq!(status(&scene).unwrap()["leases"].as_array().unwrap().len(), 0);
    stop(&scene);
}

#[test]
fn psql_without_a_name_gets_a_temporary_database() {
    let scene = project(User::Ourselves);
    let outcome =
        scene.run(["psql", "--", "-XAtc", "SELECT current_database() ~ '^fresh_', count(*) FROM one"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "t|0\n"), "{outcome}");
    assert_eq!(status(&scene).unwrap()["leases"].as_array().unwrap().len(), 0);
    assert_eq!(scene.run(["psql", "--", "-qc", "no sql"]).code, Some(1));
    stop(&scene);
}

#[test]
fn leases_end_with_their_holder_by_any_signal() {
    let scene = project(User::Ourselves);
    for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
        let mut command = scene.pgfresh(["serve", "--shared", "--json"]);
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let line = line_of(BufReader::new(holder.stdout.take().unwrap()));
        let ready: Value = serde_json::from_str(&line).unwrap();
        assert!(ready["url"].as_str().unwrap().ends_with(ready["database"].as_str().unwrap()), "{line}");
        assert_eq!(status(&scene).unwrap()["leases"].as_array().unwrap().len(), 1, "{line}");
        match signal {
            None => drop(holder.stdin.take()),
            Some(signal) => kill_process(Pid::from_child(&holder), signal).unwrap(),
        }
        end_of(&mut holder, "a holder");
        wait_until("the end of its leases", || {
            status(&scene).unwrap()["leases"].as_array().unwrap().is_empty()
        });
    }
    stop(&scene);
}

#[test]
fn a_signal_ends_a_waiting_holder() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    scene.write("pgfresh.toml", WAITING);
    scene.write("input", "");
    let mut command = scene.pgfresh(["serve", "--shared"]);
    let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    wait_until("the build of its template", || scene.directory.join("begun").exists());
    kill_process(Pid::from_child(&holder), Signal::TERM).unwrap();
    assert_eq!(end_of(&mut holder, "SIGTERM").signal(), Some(15));
    scene.write("go", "");
    url(&scene, &[]);
    stop(&scene);
}

#[test]
fn holders_without_input_end_with_the_setup() {
    // Without inputs, the background server itself runs the setup.
    for inputs in ["inputs = [\"input\"]", ""] {
        let scene = Scene::with_empty_cache(User::Ourselves);
        let data = format!("$({} -XAtc 'SHOW data_directory')", ground::psql());
        let setup = format!("echo /proc/$$ {data} >>begun; [ -e go ] || sleep 300");
        scene.write("pgfresh.toml", &format!("[template]\nsetup = \"{setup}\"\n{inputs}\n"));
        scene.write("input", "");
        let start = || {
            let mut command = scene.pgfresh(["serve", "--shared", "--json"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let begun = || fs::read_to_string(scene.directory.join("begun")).unwrap_or_default();
        let mut builds = start();
        wait_until("the build of its template", || begun().ends_with('\n'));
        let mut waits = start();
        thread::sleep(Duration::from_millis(500));
        for holder in [&mut waits, &mut builds] {
            drop(holder.stdin.take());
            assert_eq!(end_of(holder, "the end of its input").code(), Some(0));
        }
        let setups = begun();
        assert_eq!(setups.lines().count(), 1, "one waited for the other: {setups}");
        for path in setups.split_whitespace().map(PathBuf::from) {
            wait_until("the end of the setup and of its server", || !path.exists());
        }
        scene.write("go", "");
        url(&scene, &[]);
        stop(&scene);
    }
}

#[test]
fn an_idle_server_ends_by_itself() {
    let scene = project(User::Ourselves);
    url(&scene, &["--idle", "2s"]);
    assert_eq!(slots(&scene), 1);
    // `pgfresh status` in another project isn't a client of this server.
    let other = project(User::Ourselves);
    wait_until("the end of an idle server", || {
        assert!(status(&other).is_none());
        slots(&scene) == 0
    });
    scene.assert_nothing_left("after it was idle");
}

#[test]
fn an_unused_server_without_slot_ends_alone() {
    let scene = with_template(Scene::with_empty_cache(User::Ourselves));
    let first = url(&scene, &["--idle", "2s"]);
    let slot = asked(&scene).pop_first().unwrap();
    let about: Value = serde_json::from_slice(&fs::read(slot.join("about")).unwrap()).unwrap();
    fs::remove_dir_all(&slot).unwrap();
    // The next server has the same key, and therefore the same cache slot.
    let next = url(&scene, &["--idle", "1min"]);
    assert_ne!(server_of(&next), server_of(&first));
    let directory = PathBuf::from(about["log"].as_str().unwrap()).parent().unwrap().to_owned();
    wait_until("the end of the server without a slot", || !directory.exists());
    assert_eq!(server_of(&url(&scene, &["--idle", "1min"])), server_of(&next));
    stop(&scene);
    scene.assert_nothing_left("after the slot was removed");
}

/// Simulates a person in a debugger, who needs longer than the server's idle time.
#[test]
fn an_idle_open_session_keeps_the_server() {
    let open = |isolation: &str| {
        let scene = project(User::Ourselves);
        let url = format!("{}/mine", server_of(&url(&scene, &["--idle", "1s"])));
        let mut psql = Command::new(ground::psql());
        psql.args(["-XAtq", &url]).env("PGOPTIONS", format!("-c pgfresh.isolation={isolation}"));
        let mut psql =
            psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        writeln!(psql.stdin.as_ref().unwrap(), "SELECT 'there';").unwrap();
        assert_eq!(line_of(psql.stdout.as_mut().unwrap()), "there\n");
        (scene, psql)
    };
    let sessions = ["clone", "rollback"].map(open);
    // In this time, the servers check several times whether they have been idle for long enough.
    thread::sleep(Duration::from_secs(5));
    for (scene, psql) in sessions {
        assert_eq!(slots(&scene), 1);
        writeln!(psql.stdin.as_ref().unwrap(), "SELECT 'still';").unwrap();
        let outcome = collect(psql);
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("still\n", ""), "{outcome}");
        wait_until("the end of an idle server", || slots(&scene) == 0);
        scene.assert_nothing_left("after its last session");
    }
}

#[test]
fn a_changed_template_replaces_the_server() {
    let scene = project(User::Ourselves);
    let (mut holder, former) = holder(&scene);
    scene.write("schema.sql", OTHER_SCHEMA);
    let latter = url(&scene, &[]);
    assert_ne!(server_of(&latter), server_of(&former));
    let psql = |url: &str, sql: &str| {
        let output =
            std::process::Command::new(ground::psql()).args(["-XAtqc", sql, url.trim()]).output().unwrap();
        output.status.success()
    };
    assert!(psql(&former, "TABLE one") && psql(&latter, "TABLE two"));
    drop(holder.stdin.take());
    end_of(&mut holder, "the former's holder");
    // Each query would keep the server alive, so the test pauses between them.
    wait_until("the end of the former", || {
        std::thread::sleep(std::time::Duration::from_secs(2));
        !psql(&former, "TABLE one")
    });
    assert!(psql(&latter, "TABLE two"));
    stop(&scene);
}

#[test]
fn a_former_template_joins_its_server_again() {
    let scene = project(User::Ourselves);
    let (mut holder, former) = holder(&scene);
    scene.write("schema.sql", OTHER_SCHEMA);
    let latter = url(&scene, &[]);
    scene.write("schema.sql", SCHEMA);
    assert_eq!(server_of(&url(&scene, &[])), server_of(&former));
    scene.write("schema.sql", OTHER_SCHEMA);
    assert_ne!(server_of(&url(&scene, &[])), server_of(&former));
    assert_ne!(server_of(&latter), server_of(&former));
    drop(holder.stdin.take());
    end_of(&mut holder, "the former's holder");
    stop(&scene);
}

/// A former server ends when its last client has left. A new request might arrive at that moment.
#[test]
fn alternating_templates_always_have_a_server() {
    let scene = project(User::Ourselves);
    let mut random = Random::new();
    for round in 0..rounds(8) {
        scene.write("schema.sql", if round % 2 == 0 { SCHEMA } else { OTHER_SCHEMA });
        url(&scene, &[]);
        thread::sleep(random.moment(Duration::from_millis(2_500)));
    }
    stop(&scene);
    scene.assert_nothing_left("after all were stopped");
}

#[test]
fn stop_ends_former_servers_with_clients() {
    let scene = project(User::Ourselves);
    let (mut holder, _) = holder(&scene);
    scene.write("schema.sql", OTHER_SCHEMA);
    url(&scene, &[]);
    assert_eq!(stop(&scene).stdout, "stopped 2 background servers\n");
    assert_eq!(slots(&scene), 0);
    end_of(&mut holder, "the holder of one that is gone");
    scene.assert_nothing_left("after both were stopped");
}

#[test]
fn a_killed_server_is_replaced_without_leftovers() {
    let scene = project(User::Ourselves);
    let first = url(&scene, &[]);
    let about = fs::read_dir(scene.cache.join("servers")).unwrap().flatten().find_map(|entry| {
        let about: Value =
            serde_json::from_str(&fs::read_to_string(entry.path().join("about")).ok()?).ok()?;
        (about["folder"] == scene.directory.display().to_string()).then_some(about)
    });
    let pid = i32::try_from(about.unwrap()["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    scene.assert_nothing_left("after a kill");
    assert!(status(&scene).is_none());
    assert_ne!(server_of(&url(&scene, &[])), server_of(&first));
    stop(&scene);
}

#[test]
fn a_failed_tests_database_outlives_its_run() {
    for &user in User::all() {
        let scene = project(user);
        let fill =
            "\"$0\" \"$(\"$1\" url broken)\" -qc 'INSERT INTO one VALUES (42)'; \"$1\" url other >/dev/null";
        let script = format!("{fill}; \"$1\" release broken --failed; \"$1\" release other; exit 3");
        let program = ground::program().to_str().unwrap();
        let command = ["sh", "-euc", &script, ground::psql(), program];
        let outcome = scene.run([&["run", "--"], &command[..]].concat());
        assert!(outcome.code == Some(3) && !outcome.stderr.contains("kept"), "not asked for: {outcome}");
        scene.assert_nothing_left("without --keep-failed");
        let outcome = scene.run([&["run", "--keep-failed", "--"], &command[..]].concat());
        assert_eq!(outcome.code, Some(3), "{outcome}");
        let mut lines = outcome.stderr.lines();
        assert_eq!(lines.next(), Some("pgfresh: kept the database of a failed test"), "{outcome}");
        let kept = lines.next().unwrap().strip_prefix("broken  ");
        assert!(kept.is_some_and(|url| url.contains("/broken_failed_")), "{outcome}");
        assert!(outcome.stderr.contains("  INSERT INTO one VALUES (42)\n"), "{outcome}");
        assert!(
            description_of(kept.unwrap()).contains("\"statement\":\"INSERT INTO one VALUES (42)\""),
            "{outcome}"
        );
        let psql = [ground::psql(), "-XAtqc", "TABLE one", kept.unwrap()];
        let asked = Command::new(psql[0]).args(&psql[1..]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&asked.stdout), "42\n", "{outcome}{asked:?}");
        let report = status(&scene).unwrap();
        let known = &report["kept"][0];
        assert_eq!((known["test"].as_str(), known["url"].as_str()), (Some("broken"), kept), "{report}");
        assert!(
            server_of(&url(&scene, &[])) != server_of(kept.unwrap()),
            "it is not the server of the project"
        );
        assert!(scene.run(["status"]).stdout.contains(&format!("failed broken  {}\n", kept.unwrap())));
        assert_eq!(stop(&scene).stdout, "stopped 2 background servers\n");
    }
}

/// Test names, percent-encoded as in HTTP requests, and as pgfresh prints them.
const TESTS: [(&str, &str); 6] = [
    ("tests%2Ftest_x.py%3A%3Atest_y%5B1%5D", "tests/test_x.py::test_y[1]"),
    ("tests%2Ftest_x.py%3A%3Atest_y%2F1", "tests/test_x.py::test_y/1"),
    ("tests%2Ftest_x.py%3A%3Atest-y%2F1", "tests/test_x.py::test-y/1"),
    ("a%0Apgfresh%3A%20b%1B%5D0%3Btitle%07%22'%5C%00", "a\\npgfresh: b\\u{1b}]0;title\\u{7}\"'\\\\0"),
    ("%FF%80x", "\u{fffd}\u{fffd}x"),
    ("", "five"),
];

#[test]
fn kept_databases_are_listed_with_any_test_name() {
    let scene = project(User::Ourselves);
    let name = "é/".repeat(5_000);
    let encoded = "%C3%A9%2F".repeat(5_000);
    let tests: Vec<_> = TESTS.into_iter().chain([(&*encoded, &*name)]).collect();
    let release = |at: usize, test: &str| {
        let name = ["zero", "one", "two", "three", "four", "five", "six"][at];
        format!(
            "\"$0\" url {name} >url; curl -fsS -X DELETE -H \"Authorization: Bearer $PGPASSWORD\" \
             \"http://$PGHOST:$PGPORT/v1/databases/{name}?failed=true&test={test}\"\n"
        )
    };
    let script: String = tests.iter().enumerate().map(|(at, (test, _))| release(at, test)).collect();
    scene.write("script", &script);
    let program = ground::program().to_str().unwrap();
    let outcome = scene.run(["run", "--keep-failed", "--", "sh", "-eu", "-c", ". ./script", program]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let mut lines = outcome.stderr.lines().skip_while(|line| !line.contains("kept"));
    assert_eq!(lines.next(), Some("pgfresh: kept the databases of 7 failed tests"), "{outcome}");
    let urls: Vec<_> = tests
        .iter()
        .map(|(_, shown)| {
            let shown: String = shown.chars().take(1000).collect();
            lines.next().unwrap().strip_prefix(&format!("{shown}  ")).expect(&shown).to_owned()
        })
        .collect();
    assert_eq!(lines.next(), Some("HINT:  \"pgfresh diff NAME\" shows what its test changed."), "{outcome}");
    for command in ["psql", "release"] {
        assert!(
            lines.next().unwrap().starts_with(&format!("       \"pgfresh {command} NAME\" ")),
            "{outcome}"
        );
    }
    assert!(lines.next().unwrap().starts_with("       \"pgfresh stop\" removes them"), "{outcome}");
    let names: Vec<_> = urls.iter().map(|url| url.rsplit_once('/').unwrap().1).collect();
    let stems: Vec<_> = names.iter().map(|name| name.rsplit_once("_failed_").unwrap().0).collect();
    assert_eq!(stems[..3], ["tests_test_x_py_test_y_1"; 3], "{outcome}");
    assert_eq!(stems[3..], ["a_pgfresh_b_0_title", "x", "five", "test_"], "{outcome}");
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{outcome}");
    for url in &urls {
        let asked = std::process::Command::new(ground::psql()).args(["-XAtqc", "TABLE one", url]).output();
        assert!(asked.unwrap().status.success(), "{url}");
    }
    let path = status(&scene).unwrap()["log"].as_str().map(PathBuf::from);
    // The server that takes over the data directory gives new names to the databases that it keeps.
    let (secret, rest) = urls[0].trim_start_matches("postgresql://postgres:").split_once('@').unwrap();
    let control = format!("http://:{secret}@{}", rest.split_once('/').unwrap().0);
    for _ in 0..2 {
        let mut command = scene.pgfresh(["url", "again"]);
        assert!(command.env("PGFRESH_CONTROL", &control).output().unwrap().status.success());
        let kept = ask(&urls[0], "DELETE", "again?failed=true&test=x");
        assert!(kept.contains("/x_failed_"), "{kept}");
        assert!(!names.iter().any(|name| kept.contains(&format!("/{name}\""))), "{kept}");
    }
    let log = fs::read_to_string(path.unwrap()).unwrap();
    assert!(log.contains("kept the database of a failed test") && !log.contains(secret), "{log}");
    stop(&scene);
}

/// Returns the response to `GET /v1/databases/NAME` for the database at `url`.
fn description_of(url: &str) -> String {
    ask(url, "GET", url.rsplit_once('/').unwrap().1)
}

/// Sends a request about the database `name` to the server at `url`, and returns the response.
fn ask(url: &str, method: &str, name: &str) -> String {
    let (secret, rest) = url.trim_start_matches("postgresql://postgres:").split_once('@').unwrap();
    let (address, _) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!(
        "{method} /v1/databases/{name} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {secret}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns the slots in `scene`'s cache that have, or once had, the lock of a starting server.
fn asked(scene: &Scene) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(scene.cache.join("servers")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.join("start.lock").exists()).collect()
}

#[test]
fn stop_all_ends_servers_that_are_starting() {
    const PROJECTS: usize = 4;
    let scene = Scene::with_empty_cache(User::Ourselves);
    assert_eq!(scene.run(["run", "--", "true"]).code, Some(0));
    let mut random = Random::new();
    let mut stopped = 0;
    for round in 0..rounds(8) {
        let requests: Vec<Child> = (0..PROJECTS)
            .map(|number| {
                scene.write(&format!("project{number}/pgfresh.toml"), "");
                let mut command = scene.pgfresh(["url"]);
                command.current_dir(scene.directory.join(format!("project{number}")));
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        thread::sleep(random.moment(Duration::from_millis(900)));
        let before = asked(&scene);
        let outcome = scene.run(["stop", "--all"]);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        let is_there = |slot: &PathBuf| sys::Lock::is_held(&slot.join("owner.lock")).unwrap();
        let left: Vec<_> = before.iter().filter(|slot| is_there(slot)).collect();
        assert!(left.is_empty(), "round {round}: still there: {left:?}");
        stopped += usize::from(outcome.stdout.starts_with("stopped"));
        for outcome in requests.into_iter().map(collect) {
            let names_stop = outcome.stderr.contains("\"pgfresh stop\" ran at the same time");
            let gone = names_stop
                || outcome.stderr.starts_with("pgfresh: could not ")
                || outcome.stderr.contains("shutting down");
            assert!(outcome.code == Some(0) || gone, "round {round}: {outcome}");
        }
        assert!(before.iter().all(|slot| !is_there(slot)), "round {round}: one has come later");
        scene.run(["stop", "--all"]);
        assert!(asked(&scene).is_empty(), "round {round}: {:?}", asked(&scene));
    }
    assert!(stopped > 0, "no round was late enough");
}

#[test]
fn stop_ends_the_wait_for_a_template() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    scene.write("input", "");
    scene.write("pgfresh.toml", WAITING);
    let request = scene.pgfresh(["url"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the build of its template", || scene.directory.join("begun").exists());
    assert_eq!(scene.run(["stop", "--all"]).stdout, "nothing to stop\n");
    scene.write("go", "");
    let outcome = collect(request);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert!(outcome.stderr.contains("\"pgfresh stop\" ran at the same time"), "{outcome}");
    assert!(asked(&scene).iter().all(|slot| !sys::Lock::is_held(&slot.join("owner.lock")).unwrap()));
    url(&scene, &[]);
    stop(&scene);
}

#[test]
fn a_killed_starter_leaves_a_stoppable_server() {
    let mut random = Random::new();
    let scene = Scene::with_empty_cache(User::Ourselves);
    assert_eq!(scene.run(["run", "--", "true"]).code, Some(0));
    for round in 0..rounds(5) {
        let mut starter =
            scene.pgfresh(["url"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        thread::sleep(random.moment(Duration::from_millis(300)));
        let _ = kill_process(Pid::from_child(&starter), Signal::KILL);
        starter.wait().unwrap();
        assert_eq!(scene.run(["stop", "--all"]).code, Some(0));
        let left = asked(&scene);
        let held = left.iter().filter(|slot| sys::Lock::is_held(&slot.join("owner.lock")).unwrap());
        assert_eq!(held.count(), 0, "round {round}: {left:?}");
        scene.assert_nothing_left(format!("round {round}"));
    }
}

#[test]
fn a_failed_start_prints_its_reason() {
    let scene = project(User::Ourselves);
    let outcome = scene.run(["url", "--template", "none", "--set", "shared_buffers=none"]);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert!(outcome.stderr.contains("shared_buffers"), "{outcome}");
    assert!(!outcome.stderr.contains("did not start\n"), "{outcome}");
    assert_eq!(slots(&scene), 0);
}

#[test]
fn clients_during_an_end_get_a_server() {
    let scene = project(User::Ourselves);
    // The server ends as soon as it can, again and again, while new clients connect.
    for round in 0..rounds(4) {
        let outcomes: Vec<_> = (0..4)
            .map(|_| {
                let mut command = scene.pgfresh(["url", "--idle", "0"]);
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .map(collect)
            .collect();
        for outcome in outcomes {
            assert_eq!(outcome.code, Some(0), "round {round}: {outcome}");
        }
    }
    wait_until("the end of the last one", || slots(&scene) == 0);
}
