//! Tests templates: pgfresh builds them once and completely, finds them again, rebuilds them for a reason, and leaves
//! nothing behind after a failed or interrupted build.

mod failing_setups;
mod frozen_time;
mod imports_and_snapshots;
mod incremental;
mod invalid_settings;
mod several;
mod shared_builds;
mod signed;

use std::fs;
use std::net::TcpStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Outcome, Scene, User, end_of, finish, ground, majors, postgres, wait_until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

/// Configuration whose setup records its run, and then runs `migrations/*.sql` with psql.
const CONFIG: &str = r#"
[template]
setup = "echo ran >>runs; cat migrations/*.sql | psql -XAtq -v ON_ERROR_STOP=1"
inputs = ["migrations/**"]
"#;

/// Makes a scene with a project that has one migration.
fn project(user: User, config: &str) -> Scene {
    let scene = Scene::with_empty_cache(user);
    // The cache is new, because a shared cache would also show other tests' builds. It contains the base image.
    ground::copy_base_cache(user, &scene.cache);
    furnish(scene, config)
}

fn furnish(scene: Scene, config: &str) -> Scene {
    let user = scene.user;
    scene.write("pgfresh.toml", config);
    scene.write("migrations/0001.sql", "CREATE TABLE orders (id int PRIMARY KEY);");
    for path in ["migrations", "migrations/0001.sql"] {
        user.give(&scene.directory.join(path));
    }
    scene
}

/// Returns how many times the setup has run.
fn runs(scene: &Scene) -> usize {
    fs::read_to_string(scene.directory.join("runs")).map_or(0, |text| text.lines().count())
}

/// Fails unless `outcome` failed with all of `words` on standard error.
fn assert_fails(outcome: &Outcome, words: &[&str]) {
    assert_ne!(outcome.code, Some(0), "{outcome}");
    for word in words {
        assert!(outcome.stderr.contains(word), "no {word:?} in {outcome}");
    }
}

/// Dumps a database as SQL. An empty `database` is the default database.
fn dump(scene: &Scene, options: &[&str], database: &str) -> String {
    let text = scene.shell(options, &format!("pg_dump --create {database}"));
    // The newest versions put lines with a random word around a dump.
    let is_random = |line: &&str| line.starts_with("\\restrict ") || line.starts_with("\\unrestrict ");
    text.split_inclusive('\n').filter(|line| !is_random(line)).collect()
}

/// Returns the lines in `template list` about this scene's templates.
fn templates(scene: &Scene) -> Vec<String> {
    let list = scene.run(["template", "list"]).stdout;
    let here = scene.directory.display().to_string();
    list.lines().filter(|line| line.contains(&here)).map(str::to_owned).collect()
}

#[test]
fn a_setup_runs_once_and_completely() {
    const EVERYTHING: &str = "
        CREATE ROLE shop LOGIN; CREATE ROLE reader;
        CREATE DATABASE second OWNER shop;
        ALTER DATABASE app SET work_mem = '7MB';
        ALTER DATABASE app OWNER TO shop;
        ALTER SYSTEM SET seq_page_cost = '3';
        CREATE TABLE orders (id int PRIMARY KEY);
        ALTER TABLE orders OWNER TO shop;
        GRANT SELECT ON orders TO reader;
        CREATE UNLOGGED TABLE quick AS SELECT 7 AS number;
        INSERT INTO orders SELECT generate_series(1, 1000);";
    const QUESTION: &str = "
        SELECT current_database(), current_setting('work_mem'), current_setting('seq_page_cost'), count(*),
            (SELECT number FROM quick), has_table_privilege('reader', 'orders', 'SELECT'),
            (SELECT tableowner FROM pg_tables WHERE tablename = 'orders'),
            (SELECT string_agg(datname || ' ' || pg_get_userbyid(datdba), ',' ORDER BY datname)
             FROM pg_database WHERE datname IN ('app', 'second')) FROM orders";
    let majors = majors().into_iter().map(|major| (User::Ourselves, major));
    let users = User::all().iter().skip(1).map(|&user| (user, 15));
    for (user, major) in majors.chain(users) {
        let scene = project(user, CONFIG);
        scene.write("migrations/0001.sql", EVERYTHING);
        let postgres = postgres(major);
        for _ in 0..2 {
            let answer = scene.query(&["--postgres", &postgres], QUESTION);
            assert_eq!(answer, "app|7MB|3|1000|7|t|shop|app shop,second shop", "{major}");
        }
        assert_eq!(runs(&scene), 1);
    }
}

#[test]
fn prepare_command_runs_first_and_once() {
    let config = "[template]\nprepare = \"psql -Xq -c 'CREATE ROLE keeper' -f first.sql\"\nsql = \"migrations/*.sql\"\n";
    let scene =
        project(User::Ourselves, &format!("{config}inputs = \"first.sql\"\nsteps = \"append-only\"\n"));
    scene.write("first.sql", "CREATE TABLE trace (step text);");
    scene.write("migrations/0001.sql", "INSERT INTO trace VALUES ('one'); GRANT ALL ON trace TO keeper;");
    let ask = "SELECT string_agg(step, ' ') FROM trace";
    assert_eq!(scene.query(&[], ask), "one");
    scene.write("migrations/0002.sql", "INSERT INTO trace VALUES ('two');");
    let outcome = scene.run(["template", "build"]);
    assert!(outcome.stderr.contains(": new migrations/0002.sql\n"), "{outcome}");
    assert_eq!(scene.query(&[], ask), "one two");
    assert!(scene.run(["template", "list"]).stdout.lines().all(|line| line.len() > 20));
    // Without inputs, pgfresh doesn't know what the command reads.
    scene.write("pgfresh.toml", config);
    assert_fails(&scene.run(["template", "build"]), &["runs each time"]);
    scene.write("pgfresh.toml", "[template]\nprepare = \"nothing-like-this\"\ninputs = \"first.sql\"\n");
    let words = ["prepare ended with exit status: 127", "sh cannot find the setup's program"];
    assert_fails(&scene.run(["template", "build"]), &words);
}

/// Sessions in copies start with the relation cache that the template's last session has written.
#[test]
fn copies_have_a_current_relation_cache() {
    // After a session has written a relation cache, all catalogs get new files, and a table gets a
    // column and statistics.
    const REWRITES: &str = "
        CREATE TABLE orders (id int PRIMARY KEY);
        VACUUM FULL;
        REINDEX SYSTEM app;
        ALTER TABLE orders ADD word text DEFAULT 'a word';
        CREATE TYPE mood AS ENUM ('sad', 'happy');
        INSERT INTO orders SELECT generate_series(1, 100);
        ANALYZE;";
    // Query about the template, which no session connects to, and about the first copies.
    const QUESTION: &str = "
        SELECT count(*) FILTER (WHERE modification IS NOT NULL), count(*) >= 2,
            (SELECT count(*) || min(word) || 'happy'::mood FROM orders)
        FROM pg_database, pg_stat_file('base/' || oid || '/pg_internal.init', true)
        WHERE datname = 'pgfresh_template_app' OR datname = current_database()";
    for major in majors() {
        let scene = project(User::Ourselves, CONFIG);
        scene.write("migrations/0001.sql", REWRITES);
        let postgres = postgres(major);
        for _ in 0..2 {
            let answer = scene.query(&["--postgres", &postgres], QUESTION);
            assert_eq!(answer, "2|t|100a wordhappy", "{major}");
        }
    }
}

#[test]
fn extensions_are_in_the_template() {
    let scene = project(User::Ourselves, CONFIG);
    scene.write("migrations/0001.sql", "CREATE EXTENSION pg_trgm; CREATE EXTENSION hstore;");
    for _ in 0..2 {
        let answer =
            scene.query(&["--postgres", "15"], "SELECT similarity('word', 'word'), 'a=>1'::hstore -> 'a'");
        assert_eq!(answer, "1|1");
    }
    assert_eq!(runs(&scene), 1);
}

#[test]
fn each_change_is_named_as_reason() {
    let scene = project(User::Ourselves, &CONFIG.replace("inputs", "env = [\"FLAVOUR\"]\ninputs"));
    let build = |options: &[&str], environment: &[(&str, &str)]| {
        let mut command = scene.pgfresh([&["template", "build"], options].concat());
        command.envs(environment.iter().copied());
        let outcome = finish(command);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        outcome.stderr
    };
    assert!(build(&[], &[]).contains("building template \"app\""));
    assert_eq!(build(&[], &[]), "");
    scene.write("migrations/0002.sql", "CREATE TABLE carts ();");
    let outcome = scene.run(["template", "show"]);
    assert!(outcome.stdout.contains("to be rebuilt: migrations/0002.sql added"), "{outcome}");
    assert!(build(&[], &[]).contains("rebuilding") && runs(&scene) == 2);
    scene.write("migrations/0002.sql", "CREATE TABLE carts (id int);");
    assert!(build(&[], &[]).contains("): migrations/0002.sql changed\n"));
    assert!(build(&[], &[("FLAVOUR", "sour")]).contains("environment variable FLAVOUR changed"));
    assert!(build(&["--set", "work_mem=9MB"], &[]).contains("setting work_mem added"));
    assert_eq!((build(&[], &[]).as_str(), runs(&scene)), ("", 5), "it is still there");
    fs::remove_file(scene.directory.join("migrations/0002.sql")).unwrap();
    assert_eq!((build(&[], &[]).as_str(), runs(&scene)), ("", 5), "so is the first");
    assert!(scene.run(["template", "show"]).stdout.contains("built, "));
    assert_eq!(templates(&scene).len(), 5);
}

#[test]
fn setups_without_inputs_run_each_time() {
    let config = "[template]\nsetup = \"echo ran >>runs; psql -qc 'CREATE TABLE orders ()'\"\n";
    let scene = project(User::Ourselves, config);
    for count in 1..=2 {
        let outcome = scene.run(["run", "--", ground::psql(), "-XAtqc", "SELECT count(*) FROM orders"]);
        assert_eq!(
            (outcome.code, outcome.stdout.as_str(), runs(&scene)),
            (Some(0), "0\n", count),
            "{outcome}"
        );
        assert!(outcome.stderr.contains("runs each time: list what it reads"), "{outcome}");
    }
    assert_fails(
        &scene.run(["template", "build"]),
        &["its setup has no inputs", "HINT:  List what the setup reads"],
    );
}

#[test]
fn failed_setups_show_output_and_publish_nothing() {
    for &user in User::all() {
        let scene = project(user, CONFIG);
        scene.write("migrations/0002.sql", "CREATE TABLE orders ();");
        let outcome = scene.run(["run", "--", "touch", "reached"]);
        assert_eq!(outcome.code, Some(125), "{outcome}");
        assert_fails(
            &outcome,
            &["is incomplete: setup ended with exit status: 3", "ERROR:  relation \"orders\" already exists"],
        );
        let named = outcome.stderr.split('"').map(Path::new);
        let log = named.into_iter().find(|path| path.extension().is_some_and(|end| end == "log"));
        let log = log.expect("the log is named");
        assert!(fs::read_to_string(log).unwrap().contains("already exists"));
        assert!(!scene.directory.join("reached").exists());
        assert!(templates(&scene).is_empty());
        scene.assert_nothing_left("after a failed setup");
        scene.write("migrations/0002.sql", "");
        assert_eq!(scene.query(&[], "SELECT count(*) FROM orders"), "0");
    }
}

#[test]
fn failed_builds_are_kept_with_a_command() {
    let scene = project(User::Ourselves, CONFIG);
    scene.write("migrations/0002.sql", "BROKEN");
    let outcome = scene.run(["template", "build", "--keep", "--postgres", "15"]);
    assert_fails(&outcome, &["syntax error", "To open it: "]);
    let words = outcome.stderr.split("To open it: ").nth(1).unwrap().trim();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{words} -XAtqc 'SELECT count(*) FROM orders'")]);
    // A daemon keeps the files that it inherits, so the output must not go to a pipe.
    let answer = scene.directory.join("answer");
    command.stdout(fs::File::create(&answer).unwrap()).stdin(Stdio::null()).current_dir("/");
    assert!(command.status().unwrap().success(), "{words}");
    assert!(fs::read_to_string(&answer).unwrap().ends_with("0\n"));
    let stop = words.replace("-w start", "-w -m immediate stop");
    let stop = stop.split(" && ").next().unwrap();
    assert!(Command::new("sh").args(["-c", stop]).stdout(Stdio::null()).status().unwrap().success());
    assert!(scene.run(["sweep", "--kept"]).stdout.contains("kept-"));
}

#[test]
fn sql_files_run_in_order_in_psql() {
    let scene = project(
        User::Ourselves,
        "[template]\nsql = [\"schema.sql\", \"seeds/*.sql\"]\ninputs = [\"rows.csv\"]\n",
    );
    scene.write("schema.sql", "\\i migrations/0001.sql\n");
    scene.write("seeds/b.sql", "UPDATE orders SET id = id + 10;");
    scene.write("seeds/a.sql", "\\copy orders FROM 'rows.csv'\n");
    scene.write("rows.csv", "1\n2\n");
    for _ in 0..2 {
        assert_eq!(scene.query(&[], "SELECT sum(id) FROM orders"), "23");
    }
    scene.write("seeds/c.sql", "SELECT 1;\nbroken;\n");
    assert_fails(
        &scene.run(["template", "build"]),
        &["psql with \"seeds/c.sql\"", "psql:seeds/c.sql:2: ERROR"],
    );
}

#[test]
fn dumps_of_all_formats_are_restored() {
    let scene = project(User::Ourselves, CONFIG);
    scene.write("migrations/0001.sql", "CREATE TABLE orders AS SELECT generate_series(1, 100) AS id;");
    scene.shell(
        &["--postgres", "15"],
        "for format in p c d t; do pg_dump -F $format -f dump.$format; done; psql -qc 'SELECT 1' >/dev/null",
    );
    for format in ["p", "c", "d", "t"] {
        let dump = format!("dump.{format}");
        let options = ["--postgres", "15", "--template", "restored", "--dump", &dump];
        for _ in 0..2 {
            let answer = scene.query(&options, "SELECT current_database(), count(*) FROM orders");
            assert_eq!(answer, "restored|100", "{format}");
        }
    }
    assert_eq!((templates(&scene).len(), runs(&scene)), (5, 1));
    fs::write(scene.directory.join("dump.c"), "PGDMPbroken").unwrap();
    assert_fails(
        &scene.run(["run", "--dump", "dump.c", "--", "true"]),
        &["pg_restore with \"dump.c\" ended"],
    );
}

#[test]
fn chained_templates_share_their_base() {
    let config = "
        [template.base]\nsetup = \"echo ran >>runs; psql -qf migrations/0001.sql\"\ninputs = \"migrations\"\n\
        [template.app]\nfrom = \"base\"\nsql = \"app.sql\"\n\
        [template.other]\nfrom = \"base\"\nsetup = \"psql -qc 'CREATE TABLE made_each_time ()'\"\n";
    let scene = project(User::Ourselves, config);
    scene.write("app.sql", "INSERT INTO orders VALUES (1); ALTER DATABASE app SET work_mem = '5MB';");
    let question = "SELECT current_database(), count(*), current_setting('work_mem') FROM orders";
    assert_eq!(scene.query(&["--template", "app"], question), "app|1|5MB");
    assert_eq!(scene.query(&["--template", "base"], question), "base|0|4MB");
    let question =
        "SELECT current_database(), count(*) FROM made_each_time, pg_database WHERE datname = 'base'";
    assert_eq!(scene.query(&["--template", "other"], question), "other|0");
    assert_eq!(runs(&scene), 1);
    assert_eq!(scene.query(&["--template", "none"], "SELECT current_database()"), "postgres");
    assert_fails(
        &scene.run(["run", "--", "true"]),
        &["cannot select a template", "The templates are: base, app, other.", "--template NAME"],
    );
    assert_fails(&scene.run(["run", "--template", "ap", "--", "true"]), &["there is no template \"ap\""]);
    scene.write("migrations/0001.sql", "CREATE TABLE orders (id bigint);");
    scene.query(&["--template", "app"], "SELECT 1");
    assert_eq!(runs(&scene), 2, "what the parent is made of counts for the child");
}

#[test]
fn flags_and_variables_can_define_a_template() {
    let scene = project(User::Ourselves, "");
    let flags = ["--setup", "echo ran >>runs; psql -qf migrations/0001.sql", "--inputs", "migrations/*.sql"];
    for _ in 0..2 {
        assert_eq!(scene.query(&flags, "SELECT count(*) FROM orders"), "0");
    }
    let mut command = scene.pgfresh(["run", "--", ground::psql(), "-XAtqc", "SELECT count(*) FROM orders"]);
    command.env("PGFRESH_SETUP", flags[1]).env("PGFRESH_INPUTS", "migrations/0001.sql;migrations");
    assert_eq!(finish(command).stdout, "0\n");
    assert_eq!(runs(&scene), 1, "the same files by other globs are the same template");
    assert_fails(&scene.run(["run", "--inputs", "x", "--", "true"]), &["cannot use --inputs"]);
    assert_fails(
        &scene.run(["run", "--setup", "true", "--inputs", "migratoins/**", "--", "true"]),
        &["no file matches \"migratoins/**\"", "HINT"],
    );
}

#[test]
fn changing_inputs_are_rebuilt_a_bounded_time() {
    let config = "[template]\nsetup = \"echo ran >>runs; date >>DATE; echo made >schema.txt\"\ninputs = [\"schema.txt\"]\n";
    let scene = project(User::Ourselves, config);
    scene.write("schema.txt", "");
    let outcome = scene.run(["template", "build"]);
    assert!(
        outcome
            .stderr
            .contains("building again, because inputs changed during the build: schema.txt changed"),
        "{outcome}"
    );
    assert_eq!((outcome.code, runs(&scene)), (Some(0), 2));
    let config = config.replace("echo made >", "date +%N >>");
    scene.write("pgfresh.toml", &config);
    assert_fails(
        &scene.run(["template", "build"]),
        &["its inputs change each time", "Changed during the last build: schema.txt changed."],
    );
}

#[test]
fn parallel_builds_run_once_and_survive_kills() {
    for kill in [false, true] {
        let scene = project(User::Ourselves, CONFIG);
        scene.run(["template", "build", "--sql", "migrations/0001.sql"]);
        let wait = "while ! test -e go; do sleep 0.01; done; ";
        scene.write("pgfresh.toml", &CONFIG.replace("; cat", &format!("; {wait} cat")));
        let build = || {
            let mut command = scene.pgfresh(["template", "build"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let mut first = build();
        wait_until("the setup", || runs(&scene) == 1);
        let said = scene.directory.join("said");
        let mut second = scene.pgfresh(["template", "build"]);
        second.stdout(Stdio::null()).stderr(fs::File::create(&said).unwrap());
        let mut second = second.spawn().unwrap();
        wait_until("the second to wait", || {
            fs::read_to_string(&said).unwrap().contains("waiting for template \"app\"")
        });
        if kill {
            kill_process(Pid::from_child(&first), Signal::KILL).unwrap();
            end_of(&mut first, "killed");
            wait_until("the second to take over", || runs(&scene) == 2);
        }
        scene.write("go", "");
        assert!(end_of(&mut second, "the second").success());
        assert_eq!(end_of(&mut first, "the first").success(), !kill);
        assert_eq!((runs(&scene), templates(&scene).len()), (1 + usize::from(kill), 2));
    }
}

#[test]
fn interrupted_builds_leave_nothing() {
    for &user in User::all() {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL] {
            // The setup has a grandchild that ignores signals, and a process in another session.
            let setup = "setsid sleep 600 & (trap '' INT TERM HUP; sleep 600) & echo ran >>runs; sleep 600";
            let scene = project(user, &CONFIG.replace("echo ran", &format!("{setup}; echo")));
            let mut command = scene.pgfresh(["run", "--", "true"]);
            command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            wait_until("the setup", || runs(&scene) == 1);
            if signal == Signal::INT {
                kill_process_group(Pid::from_child(&child), signal).unwrap();
            } else {
                kill_process(Pid::from_child(&child), signal).unwrap();
            }
            end_of(&mut child, format!("{signal:?}"));
            let place = scene.place.join(format!("pgfresh-{}", user.uid()));
            wait_until("the guard", || !place.exists());
            // The build leaves only its lock, which no process holds, and the files that it was writing to the
            // cache, for the next start.
            let images = scene.cache.join("images");
            let staging = images.join("0123456789abcdef.staging");
            fs::create_dir(&staging).unwrap();
            user.give(&staging);
            let names = fs::read_dir(&images).unwrap().map(|entry| entry.unwrap().path());
            let mut left: Vec<_> = names.filter(|path| path.extension().is_some()).collect();
            left.sort();
            assert_eq!(left.len(), 2, "{left:?}");
            let said: Vec<_> = left.iter().map(|path| format!("removed \"{}\"", path.display())).collect();
            assert_eq!(scene.run(["sweep"]).stdout.lines().collect::<Vec<_>>(), said);
            assert!(!left.iter().any(|path| path.exists()), "{left:?}");
            assert_eq!(scene.run(["sweep"]).stdout, "nothing to remove\n");
            scene.assert_nothing_left(format!("a build ended by {signal:?}"));
            assert!(templates(&scene).is_empty());
        }
    }
}

#[test]
fn a_damaged_template_is_noticed_and_made_anew() {
    let scene = furnish(Scene::with_empty_cache(User::Ourselves), CONFIG);
    assert_eq!(scene.query(&[], "SELECT count(*) FROM orders"), "0");
    let images = scene.cache.join("images");
    for entry in fs::read_dir(&images).unwrap() {
        let control = entry.unwrap().path().join("data/global/pg_control");
        let bytes = fs::read(&control).unwrap();
        fs::write(&control, &bytes[1..]).unwrap();
    }
    let outcome = scene.run(["run", "--", ground::psql(), "-XAtqc", "SELECT count(*) FROM orders"]);
    assert_eq!((outcome.code, outcome.stdout.as_str(), runs(&scene)), (Some(0), "0\n", 2), "{outcome}");
    assert!(outcome.stderr.contains("damaged"), "{outcome}");
}

#[test]
fn the_cache_is_listed_bounded_and_cleared() {
    let scene = furnish(Scene::with_empty_cache(User::Ourselves), CONFIG);
    for text in ["SELECT 1;", "SELECT 2;", "SELECT 3;"] {
        scene.write("migrations/0001.sql", text);
        let outcome = scene.run(["template", "build", "--cache-size", "80MB", "-v"]);
        assert_eq!(outcome.code, Some(0), "{outcome}");
    }
    // The cache contains a base image of 20 to 40 MB, and as many templates of that size as its limit allows.
    let left = templates(&scene).len();
    assert!(left == 1 || left == 2, "{left}");
    let list = scene.run(["template", "list", "--json"]).stdout;
    assert!(list.contains("\"name\":\"app\"") && list.contains("\"name\":null"), "{list}");
    let removed = scene.run(["template", "rm", "app"]);
    assert_eq!(removed.stdout.lines().count(), left, "{removed}");
    assert_fails(&scene.run(["template", "rm", "app"]), &["there is no template \"app\""]);
    assert!(scene.run(["template", "rm", "--all"]).stdout.contains("removed (base image)"));
    assert!(scene.run(["template", "list"]).stdout.is_empty());
}

/// A background server holds a lock on its template until its process ends.
#[test]
fn templates_can_be_removed_after_stop() {
    let scene = project(User::Ourselves, CONFIG);
    for _ in 0..3 {
        let url = scene.run(["url"]);
        assert_eq!(url.code, Some(0), "{url}");
        let server = fs::read_dir(scene.cache.join("servers")).unwrap().next().unwrap().unwrap().path();
        let about: Value = serde_json::from_slice(&fs::read(server.join("about")).unwrap()).unwrap();
        assert_eq!(scene.run(["stop"]).stdout, "stopped the background server\n");
        // When a process has ended, its link is gone, even if the process hasn't been reaped.
        let program = fs::read_link(format!("/proc/{}/exe", about["pid"]));
        assert!(program.is_err(), "it still runs: {program:?}");
        let removed = scene.run(["template", "rm", "app"]);
        assert!(removed.stdout.contains("removed app"), "{removed}");
    }
}

#[test]
fn a_template_travels_in_a_directory() {
    let scene = project(User::Ourselves, CONFIG);
    let pushed = scene.run(["template", "push", "carried"]);
    assert_eq!(pushed.code, Some(0), "{pushed}");
    let other = scene.directory.join("other-cache");
    let at_other = |words: &[&str]| {
        let mut command = scene.pgfresh(words);
        command.env("PGFRESH_CACHE", &other);
        finish(command)
    };
    assert!(at_other(&["template", "pull", "carried"]).stdout.contains("taken over"));
    assert!(at_other(&["template", "pull", "carried"]).stdout.contains("is already in the cache"));
    let outcome = at_other(&["run", "--", ground::psql(), "-XAtqc", "SELECT count(*) FROM orders"]);
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str(), runs(&scene)), ("0\n", "", 1), "{outcome}");
}

#[test]
fn interrupted_transfers_leave_nothing() {
    for &user in User::all() {
        let scene = project(user, CONFIG);
        scene.run(["template", "push", "carried"]);
        let (cache, carrier) = (scene.directory.join("other-cache"), scene.directory.join("carrier"));
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let pull = [(&cache, cache.join("images"), ["pull", "carried"])];
            let push = [(&carrier, carrier.clone(), ["push", "carrier"])];
            for (target, staged, [verb, folder]) in pull.into_iter().chain(push) {
                // The command might end before the signal arrives.
                let ended = (0..200).any(|_| {
                    drop(fs::remove_dir_all(target));
                    let mut command = scene.pgfresh(["template", verb, folder]);
                    if verb == "pull" {
                        command.env("PGFRESH_CACHE", &cache);
                    }
                    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
                    let is_staging =
                        |entry: fs::DirEntry| entry.file_name().to_string_lossy().contains(".staging");
                    let mut over = false;
                    wait_until("a staging directory, or the end", || {
                        over = child.try_wait().unwrap().is_some();
                        over || fs::read_dir(&staged).into_iter().flatten().flatten().any(is_staging)
                    });
                    if !over {
                        kill_process(Pid::from_child(&child), signal).unwrap();
                    }
                    let status = end_of(&mut child, format!("{verb} and {signal:?}"));
                    let ended = status.signal() == Some(signal.as_raw());
                    assert!(ended || status.success(), "{verb}: {status}");
                    let names = fs::read_dir(&staged).unwrap().map(|entry| entry.unwrap().file_name());
                    let left: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
                    // The entry is complete, under its fingerprint.
                    assert!(
                        !left.iter().any(|name| name.contains('.')),
                        "{verb} and {signal:?} left {left:?}"
                    );
                    ended && left.is_empty()
                });
                assert!(ended, "{verb} was never ended half-way");
            }
        }
    }
}

#[test]
fn setup_ports_refuse_other_users() {
    let scene = project(User::Ourselves, "");
    let setup = "echo \"$DATABASE_URL $PGHOST $PGPORT\" > seen && psql -c 'CREATE TABLE t AS SELECT 7 AS n' \
        && { [ \"$(id -u)\" != 0 ] || ! setpriv --reuid=65534 --clear-groups psql -c 'SELECT 1'; }";
    let options = ["--setup", setup, "--inputs", "pgfresh.toml"];
    assert_eq!(scene.query(&options, "SELECT n FROM t"), "7");
    let seen = fs::read_to_string(scene.directory.join("seen")).unwrap();
    let (url, port) = seen.trim_end().split_once(" 127.0.0.1 ").unwrap();
    assert_eq!(url, format!("postgresql://postgres@127.0.0.1:{port}/app"));
    assert!(TcpStream::connect(format!("127.0.0.1:{port}")).is_err(), "it is still open");
}
