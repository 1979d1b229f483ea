//! Tests the environment of the command's server: it is separate, the same on every machine, private, and has
//! the requested settings.

mod fixed_url;
mod kept_databases;
mod linger_advice;
mod unwritable_reports;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use crate::common::{Scene, User, collect, end_of, finish, ground, line_of, majors, postgres, wait_until};

/// Parses the output of `env -0`.
fn variables(text: &str) -> BTreeMap<&str, &str> {
    text.split('\0').filter_map(|line| line.split_once('=')).collect()
}

#[test]
fn the_command_gets_only_its_servers_variables() {
    for &user in User::all() {
        let scene = Scene::new(user);
        let mut command = scene.pgfresh(["run", "--", "env", "-0"]);
        let misleading = ["PGHOSTADDR", "PGSERVICE", "PGSERVICEFILE", "PGPASSFILE", "PGSSLMODE"];
        let usual = ["DATABASE_URL", "PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE"];
        for name in misleading.iter().chain(&usual) {
            command.env(name, "somewhere else");
        }
        command.env("OURS", "as it was");
        let outcome = finish(command);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        let seen = variables(&outcome.stdout);
        for name in misleading {
            assert!(!seen.contains_key(name), "{name} leads elsewhere");
        }
        assert_eq!((seen["OURS"], seen["PGUSER"], seen["PGDATABASE"]), ("as it was", "postgres", "postgres"));
        let (password, host, port) = (seen["PGPASSWORD"], seen["PGHOST"], seen["PGPORT"]);
        let url = format!("postgresql://postgres:{password}@{host}:{port}/postgres");
        assert_eq!(seen["DATABASE_URL"], url);
    }
}

#[test]
fn variables_and_url_lead_to_the_same_server() {
    let scene = Scene::new(User::Ourselves);
    let ask = format!("{} -XAtqc 'SELECT pg_postmaster_start_time()'", ground::psql());
    let answers = scene.shell(&[], &format!("{ask}; {ask} \"$DATABASE_URL\""));
    let answers: Vec<_> = answers.lines().collect();
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn env_placeholders_are_filled_in() {
    let scene = Scene::new(User::Ourselves);
    let options = [
        "run",
        "--env=JDBC=jdbc:{host}:{port}/{database}?user={user}&password={password}",
        "--env=COPY={url}",
        "--env=EMPTY=",
        "--env=PGDATABASE=of my own",
    ];
    let outcome = scene.run(options.iter().chain(&["--", "env", "-0"]));
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let seen = variables(&outcome.stdout);
    let (host, port, password) = (seen["PGHOST"], seen["PGPORT"], seen["PGPASSWORD"]);
    assert_eq!(seen["JDBC"], format!("jdbc:{host}:{port}/postgres?user=postgres&password={password}"));
    assert_eq!((seen["COPY"], seen["EMPTY"]), (seen["DATABASE_URL"], ""));
    assert_eq!(seen["PGDATABASE"], "of my own", "what is asked for wins");
}

#[test]
fn standard_input_and_output_are_the_commands_own() {
    let scene = Scene::new(User::Ourselves);
    let mut command = scene.pgfresh(["run", "--quiet", "--", "sh", "-c", "cat; echo aside >&2"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"as it came\n").unwrap();
    let outcome = collect(child);
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("as it came\n", "aside\n"));
}

#[test]
fn nothing_is_written_into_the_project() {
    for &user in User::all() {
        let scene = Scene::new(user);
        scene.write("pgfresh.toml", "[postgres]\nsettings = { work_mem = \"5MB\" }\n");
        fs::create_dir(scene.directory.join("below")).unwrap();
        let mut command = scene.pgfresh(["run", "--", ground::psql(), "-XAtqc", "SHOW work_mem"]);
        command.current_dir(scene.directory.join("below"));
        let outcome = finish(command);
        assert_eq!(outcome.stdout, "5MB\n", "the file is found from below: {outcome}");
        let mut names: Vec<_> =
            fs::read_dir(&scene.directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["below", "pgfresh.toml"]);
        assert_eq!(fs::read_dir(scene.directory.join("below")).unwrap().count(), 0);
    }
}

/// Returns the settings' values on one line, as `SHOW` prints them.
fn show(scene: &Scene, options: &[&str], names: &[&str]) -> String {
    let list: Vec<_> = names.iter().map(|name| format!("current_setting('{name}')")).collect();
    scene.query(options, &format!("SELECT concat_ws(' ', {})", list.join(", ")))
}

#[test]
fn every_major_starts_with_both_presets() {
    const NAMES: [&str; 6] =
        ["fsync", "synchronous_commit", "full_page_writes", "jit", "listen_addresses", "data_checksums"];
    for &user in User::all() {
        let scene = Scene::new(user);
        for major in majors() {
            let with = format!("--postgres={}", postgres(major));
            let version = show(&scene, &[&with], &["server_version_num"]);
            assert_eq!(version.parse::<u32>().unwrap() / 10_000, major);
            assert_eq!(show(&scene, &[&with], &NAMES), "off off off off  off");
            assert_eq!(show(&scene, &[&with, "--preset=durable"], &NAMES), "on on on off  off");
        }
    }
}

#[test]
fn the_last_word_on_a_setting_wins() {
    let scene = Scene::new(User::Ourselves);
    let names = ["work_mem", "fsync", "app.motto"];
    let show = |options: &[&str], environment: &str| {
        let words = names.map(|name| format!("current_setting('{name}', true)")).join(", ");
        let sql = format!("SELECT concat_ws('|', {words})");
        let psql = ground::psql();
        let mut command = scene.pgfresh([&["run"], options, &["--", psql, "-XAtqc", &sql]].concat());
        command.env("PGFRESH_SET", environment);
        let outcome = finish(command);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        outcome.stdout.trim_end().to_owned()
    };
    assert_eq!(show(&[], ""), "4MB|off");
    let file =
        "[postgres]\nsettings = { work_mem = \"5MB\", fsync = true, \"app.motto\" = \"it's a \\\\\" }\n";
    scene.write("pgfresh.toml", file);
    assert_eq!(show(&[], ""), "5MB|on|it's a \\");
    assert_eq!(show(&[], "work_mem=6MB; app.motto = x"), "6MB|on|x");
    assert_eq!(show(&["--set", "WORK_MEM=8192kB", "--set=fsync=off"], "work_mem=6MB"), "8MB|off|it's a \\");
}

/// The server writes some names or values in a different way.
#[test]
fn settings_accept_every_spelling_of_the_server() {
    for (asked, effective) in [
        ("timezone=utc", "UTC"),
        ("TimeZone=europe/berlin", "Europe/Berlin"),
        ("timezone=-5", "<-05>+05"),
        ("datestyle=German", "German, DMY"),
        ("DateStyle=ISO,dmy", "ISO, DMY"),
        ("intervalstyle=SQL_STANDARD", "sql_standard"),
        ("client_min_messages=Warning", "warning"),
    ] {
        let scene = Scene::new(User::Ourselves);
        let name = asked.split_once('=').unwrap().0;
        assert_eq!(scene.query(&["--set", asked], &format!("SHOW {name}")), effective, "{asked}");
    }
}

/// Sort order, case conversion and messages are the same for all users, whatever the machine's
/// locale and time zone are.
#[test]
fn locale_encoding_and_time_zone_are_fixed() {
    const SQL: &str = "SELECT concat_ws('|', current_setting('server_encoding'), current_setting('TimeZone'),
        current_setting('log_timezone'), current_setting('DateStyle'), current_setting('lc_messages'),
        current_setting('lc_monetary'), current_setting('lc_numeric'), current_setting('lc_time'),
        current_setting('default_text_search_config'), upper('straße ärger'), lower('ÀÉ'), to_char(1234.5, '9G999D9'),
        (SELECT string_agg(word, '' ORDER BY word) FROM unnest(string_to_array('a,B,ä,Z,é,_', ',')) word),
        timestamptz '2026-07-01 12:00+00', to_char(date '2026-07-01', 'TMMonth'))";
    let expected = "UTF8|UTC|UTC|ISO, MDY|C|C|C|C|pg_catalog.english|STRAßE ÄRGER|àé| 1,234.5|BZ_aäé|\
                    2026-07-01 12:00:00+00|July";
    let users = User::all().iter().cycle();
    let machines = majors()
        .into_iter()
        .flat_map(|major| [(major, "de_DE.UTF-8", "Asia/Tokyo"), (major, "xx_XX.nothing", "No/Where")]);
    for ((major, lang, zone), &user) in machines.zip(users) {
        // With an empty cache, pgfresh runs initdb under that locale too.
        let scene = Scene::with_empty_cache(user);
        let with = postgres(major);
        let mut command = scene.pgfresh(["run", "--postgres", &with, "--", ground::psql(), "-XAtqc", SQL]);
        command.env("PGCLIENTENCODING", "UTF8").env("TZ", zone);
        for name in ["LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_COLLATE", "LC_MESSAGES"] {
            command.env(name, lang);
        }
        let outcome = finish(command);
        assert_eq!(outcome.stdout.trim_end(), expected, "{user:?}, {major}, {lang}: {outcome}");
    }
}

#[test]
fn unicode_works_in_names_and_values() {
    let scene = Scene::new(User::Ourselves);
    for major in majors() {
        let sql = "CREATE DATABASE \"größe 😀\"; CREATE TABLE \"日本\" (\"näme\" text);
            INSERT INTO \"日本\" VALUES ('数🦀é');
            SELECT concat_ws(' ', \"näme\", length(\"näme\"), octet_length(\"näme\")) FROM \"日本\"";
        let psql = ground::psql();
        // The statements run one at a time, because CREATE DATABASE can't run in a transaction block.
        let script = format!("printf %s \"$SQL\" | {psql} -XAtq -v ON_ERROR_STOP=1");
        let with = format!("--postgres={}", postgres(major));
        let mut command = scene.pgfresh(["run", &with, "--", "sh", "-c", &script]);
        command.env("SQL", sql).env("PGCLIENTENCODING", "UTF8");
        let outcome = finish(command);
        assert_eq!(outcome.stdout, "数🦀é 3 9\n", "{outcome}");
    }
}

/// Each run writes its number, waits until all runs have written, and reads.
#[test]
fn parallel_runs_are_independent() {
    const RUNS: usize = 4;
    let scenes: Vec<_> = (0..RUNS).map(|run| Scene::new(User::all()[run % User::all().len()])).collect();
    let psql = ground::psql();
    let start = |(run, scene): (usize, &Scene)| {
        let script = format!(
            "{psql} -XAtqc 'CREATE TABLE mine AS SELECT {run} AS number; CREATE ROLE mine'
             echo there; read -r line
             {psql} -XAtqc 'SELECT number FROM mine'"
        );
        let mut command = scene.pgfresh(["run", "--", "sh", "-euc", &script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut children: Vec<_> = scenes.iter().enumerate().map(start).collect();
    // A failed run ends its output early. The comparison below prints its error.
    let first_line = |child: &mut Child| {
        let mut line = String::new();
        child.stdout.as_mut().unwrap().take("there\n".len() as u64).read_to_string(&mut line).unwrap();
        line
    };
    let lines: Vec<_> = children.iter_mut().map(first_line).collect();
    for (run, (mut child, line)) in children.into_iter().zip(lines).enumerate() {
        let _ = child.stdin.take().unwrap().write_all(b"on\n");
        let outcome = collect(child);
        let said = line + &outcome.stdout;
        assert_eq!(said, format!("there\n{run}\n"), "{outcome}");
    }
}

#[test]
fn every_run_begins_afresh() {
    let scene = Scene::new(User::Ourselves);
    let sql = "SELECT count(*) FROM pg_class WHERE relname = 'left_over'; CREATE TABLE left_over (); \
               ALTER SYSTEM SET work_mem = '9MB'; SELECT pg_reload_conf()";
    for _ in 0..2 {
        let script = format!("printf %s \"$0\" | {} -XAtq", ground::psql());
        let outcome = scene.run(["run", "--", "sh", "-c", &script, sql]);
        assert_eq!(
            outcome.stdout, "0\nt\n",
            "ALTER SYSTEM works, and lasts as long as the server: {outcome}"
        );
    }
    assert_eq!(show(&scene, &[], &["work_mem"]), "4MB");
}

#[test]
fn servers_live_in_private_directories() {
    for &user in User::all() {
        let scene = Scene::new(user);
        let psql = ground::psql();
        let script = format!(
            "data=$({psql} -XAtqc 'SHOW data_directory'); cd \"$data/..\"; stat -c '%a %u' . data socket; pwd"
        );
        let text = scene.shell(&[], &script);
        let lines: Vec<_> = text.lines().collect();
        // Root's servers run as a different account, which must be able to enter root's directory.
        let run = if user.uid() == 0 { "711 0".to_owned() } else { format!("700 {}", user.uid()) };
        assert_eq!(lines[0], run);
        assert!(lines[1].starts_with("700 ") && lines[1] == lines[2], "{text}");
        assert!(!lines[1].ends_with(" 0"), "{text}");
        assert!(lines[3].starts_with(scene.place.to_str().unwrap()), "{text}");
    }
}

#[test]
fn psql_opens_a_database_by_any_name() {
    let scene = Scene::new(User::Ourselves);
    let ask = ["--", "-XAtqc", "SELECT current_database() || current_user"];
    let outcome = scene.run(["psql", "a \"b\" ç"].iter().chain(&ask));
    assert_eq!(outcome.stdout, "a \"b\" çpostgres\n", "{outcome}");
    let outcome = scene.run(["psql", "--", "-c", "SELECT nonsense"]);
    assert_eq!(outcome.code, Some(1), "psql's own code: {outcome}");
    assert_eq!(scene.run(["stop"]).code, Some(0));
}

#[test]
fn serve_prints_its_url_and_ends_with_input() {
    for &user in User::all() {
        let scene = Scene::new(user);
        let mut command = scene.pgfresh(["serve", "--json"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let ready = line_of(child.stdout.as_mut().unwrap());
        let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
        let url = ready["url"].as_str().unwrap();
        let mut psql = Command::new(ground::psql());
        psql.args(["-XAtqc", "SELECT current_setting('server_version')", url]);
        let answer = finish(psql);
        assert!(answer.stdout.starts_with(ready["version"].as_str().unwrap()), "{answer}");
        let log = ready["log"].as_str().unwrap().to_owned();
        assert!(log.starts_with(scene.place.to_str().unwrap()) && fs::metadata(&log).is_ok());
        drop(child.stdin.take());
        assert!(end_of(&mut child, "lifeline").success());
        wait_until("the log to go", || fs::metadata(&log).is_err());
    }
}

#[test]
fn postgres_list_and_path_agree() {
    let scene = Scene::new(User::Ourselves);
    let path = scene.run(["postgres", "path", "--postgres", "15"]).stdout;
    let list = scene.run(["postgres", "list", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
    let found = list.as_array().unwrap().iter().find(|found| found["bin"] == path.trim_end());
    assert!(found.is_some_and(|found| found["version"].as_str().unwrap().starts_with("15.")), "{list}");
}

/// The command's descriptors are the caller's: pgfresh adds none, which a daemon of the command would keep open.
#[test]
fn the_command_inherits_no_descriptor_of_pgfresh() {
    let list = "ls /proc/self/fd";
    let scene = Scene::new(User::Ourselves);
    let mut alone = Command::new("sh");
    alone.args(["-c", list]);
    let expected = finish(alone);
    let outcome = scene.run(["run", "--", "sh", "-c", list]);
    assert_eq!((outcome.code, outcome.stdout), (Some(0), expected.stdout));
}

#[test]
fn only_variables_separate_values_with_semicolons() {
    let scene = Scene::new(User::Ourselves);
    scene.write("a;b.sql", "CREATE TABLE t AS SELECT 1 AS n");
    scene.write("b.sql", "INSERT INTO t VALUES (2)");
    let query = ["run", "--", "psql", "-XAtqc", "SELECT count(*) FROM t"];
    let mut command =
        scene.pgfresh([&query[..1], &["--sql", "a;b.sql", "--sql", "b.sql"], &query[1..]].concat());
    command.env("PGFRESH_SQL", "c.sql;d.sql");
    let outcome = finish(command);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "2\n"), "{outcome}");
    scene.write("c.sql", "CREATE TABLE t (n int)");
    let mut command = scene.pgfresh(query);
    command.env("PGFRESH_SQL", "c.sql;b.sql");
    let outcome = finish(command);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "1\n"), "{outcome}");
}

#[test]
fn pipe_as_configuration_is_an_error() {
    let scene = Scene::new(User::Ourselves);
    let made = Command::new("mkfifo").arg(scene.directory.join("pgfresh.toml")).status().unwrap();
    assert!(made.success());
    let outcome = scene.run(["run", "--", "true"]);
    assert!(outcome.code == Some(125) && outcome.stderr.contains("it is a pipe"), "{outcome}");
}
