//! Tests complete error messages and exit codes.
//!
//! `DIR`, `PLACE` and `N` stand for text that differs between runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::leftovers::postmaster_of;
use crate::common::{Outcome, Scene, User, collect, finish, ground, is_root, line_of, postgres};

/// Replaces text that differs between runs: directories, durations, sizes and process IDs.
fn plain(scene: &Scene, text: &str) -> String {
    let text = text.replace(scene.directory.to_str().unwrap(), "DIR");
    let text = text.replace(scene.place.to_str().unwrap(), "PLACE");
    let words: Vec<_> = text.split(' ').map(plain_word).collect();
    // A message about a server that ended quickly doesn't contain a duration, so remove durations.
    words.join(" ").replace(" after N s", "")
}

/// Replaces a number with a fraction, which is either a duration or a size.
fn plain_word(word: &str) -> &str {
    let fraction = word.split_once('.').is_some_and(|(whole, rest)| {
        !whole.is_empty() && [whole, rest].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
    });
    if fraction { "N" } else { word }
}

/// Fails unless `outcome` has the exit code `code` and exactly the message `expected`. Ignores the
/// indentation of the lines.
#[track_caller]
fn assert_says(scene: &Scene, outcome: &Outcome, code: i32, expected: &str) {
    let expected: Vec<_> = expected.lines().map(str::trim_start).filter(|line| !line.is_empty()).collect();
    let said = plain(scene, &outcome.stderr);
    let said: Vec<_> = said.lines().map(str::trim_start).filter(|line| !line.is_empty()).collect();
    assert_eq!(said, expected, "{outcome}");
    assert_eq!(outcome.code, Some(code), "{outcome}");
}

/// Runs pgfresh with `arguments`, which must fail with `code` and print `expected`.
#[track_caller]
fn check(arguments: &[&str], code: i32, expected: &str) {
    let scene = Scene::new(User::Ourselves);
    let outcome = scene.run(arguments);
    assert_says(&scene, &outcome, code, expected);
    assert_eq!(outcome.stdout, "");
}

/// Returns the directory with the real binaries.
fn real_bin() -> &'static Path {
    Path::new(ground::psql()).parent().unwrap()
}

/// Makes an installation with a real initdb and a `postgres` that runs the shell script `script`.
fn installation(scene: &Scene, script: &str) -> String {
    let postgres = scene.write_program("stub/postgres", script);
    let bin = postgres.parent().unwrap();
    fs::set_permissions(bin, fs::Permissions::from_mode(0o755)).unwrap();
    let _ = std::os::unix::fs::symlink(real_bin().join("initdb"), bin.join("initdb"));
    bin.to_str().unwrap().to_owned()
}

/// Checks the error for a `postgres` that runs the shell script `script`.
#[track_caller]
fn check_installation(script: &str, expected: &str) {
    let scene = Scene::new(User::Ourselves);
    let bin = installation(&scene, script);
    let outcome = scene.run(["run", "--quiet", "--postgres", &bin, "--", "true"]);
    assert_says(&scene, &outcome, 125, expected);
}

#[test]
fn an_empty_database_name_is_refused() {
    for command in ["psql", "url", "diff", "reset", "release"] {
        let scene = Scene::new(User::Ourselves);
        let outcome = scene.run([command, ""]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""), "{outcome}");
        assert!(outcome.stderr.contains("it is empty"), "{outcome}");
    }
}

#[test]
fn the_commands_own_exit_code_is_passed_through() {
    let scene = Scene::new(User::Ourselves);
    let scripts =
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -9 $$", 137)];
    for (script, code) in scripts {
        assert_says(&scene, &scene.run(["run", "--quiet", "--", "sh", "-c", script]), code, "");
    }
    // pgfresh doesn't parse options that follow the command's name.
    let outcome = scene.run(["run", "env", "-i", "A=b", "env"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "A=b\n"));
}

#[test]
fn a_command_that_cannot_be_run() {
    check(
        &["run", "--", "nothing-of-this-name"],
        127,
        r#"pgfresh: could not run "nothing-of-this-name": No such file or directory
        HINT:  Write a program and its arguments after "--". For shell syntax, use: -- sh -c '…'."#,
    );
    check(
        &["run", "--", "/etc/passwd"],
        126,
        r#"pgfresh: could not run "/etc/passwd": Permission denied
        HINT:  Write a program and its arguments after "--". For shell syntax, use: -- sh -c '…'."#,
    );
}

#[test]
fn an_unrunnable_psql_leaves_no_lease() {
    let scene = Scene::new(User::Ourselves);
    let bin = installation(&scene, &format!("exec {}/postgres \"$@\"", real_bin().display()));
    let psql = scene.write("stub/psql", "#!/missing\n");
    let outcome = scene.run(["psql", "--quiet", "--postgres", &bin]);
    let expected = format!("pgfresh: could not run \"{}\": ", psql.display());
    assert!(matches!(outcome.code, Some(126 | 127)) && outcome.stderr.starts_with(&expected), "{outcome}");
    let status = scene.run(["status", "--json"]);
    assert!(status.stdout.contains("\"leases\":[]"), "{status}");
    assert_eq!(scene.run(["stop"]).code, Some(0));
}

#[test]
fn words_that_the_command_line_does_not_know() {
    check(
        &["run", "--postgres", "latest", "--", "true"],
        2,
        "pgfresh: invalid value 'latest' for '--postgres <MAJOR|PATH>': expected a major from 13 on, or a path to a directory with postgres and initdb
        HINT:  \"pgfresh run --help\" lists what it accepts.",
    );
    check(
        &["run", "--place", "tmp", "--", "true"],
        2,
        "pgfresh: invalid value 'tmp' for '--place <PLACE>': expected auto, ram, disk or a path with a \"/\" in it
        HINT:  \"pgfresh run --help\" lists what it accepts.",
    );
    check(
        &["run", "--preset", "slow", "--", "true"],
        2,
        "pgfresh: invalid value 'slow' for '--preset <PRESET>': expected fast or durable
        HINT:  \"pgfresh run --help\" lists what it accepts.",
    );
    let outcome = Scene::new(User::Ourselves).run(["run", "--bogus", "--", "true"]);
    assert!(outcome.code == Some(2) && outcome.stderr.contains("'--bogus' found"), "{outcome}");
}

#[test]
fn variables_that_cannot_be_filled_in() {
    for (assignment, why) in [
        ("URL", "expected NAME=TEMPLATE"),
        ("=x", "the name is empty"),
        (
            "A={nothing}",
            "\"{nothing}\" is not a placeholder: expected {url}, {host}, {port}, {user}, {password}, {database}",
        ),
        ("A={url", "a \"{\" is not closed"),
    ] {
        let expected = format!(
            "pgfresh: invalid value '{assignment}' for '--env <NAME=TEMPLATE>': {why}
            HINT:  \"pgfresh run --help\" lists what it accepts."
        );
        check(&["run", "--env", assignment, "--", "true"], 2, &expected);
    }
}

/// The error names the variable that the user must correct.
#[test]
fn errors_name_variables_with_invalid_values() {
    let scene = Scene::new(User::Ourselves);
    let said = |variable: &str, value: &str, words: &[&str]| {
        let mut command = scene.pgfresh(words);
        command.env(variable, value);
        finish(command)
    };
    let outcome = said("PGFRESH_SPACE", "1X", &["run", "--", "true"]);
    let expected =
        "pgfresh: invalid value '1X' for PGFRESH_SPACE: expected a size with a unit, such as 10GB\n";
    assert!(outcome.code == Some(2) && outcome.stderr.starts_with(expected), "{outcome}");
    let outcome = said("PGFRESH_LINGER", "x", &["serve", "--linger", "y"]);
    assert!(outcome.stderr.starts_with("pgfresh: invalid value 'y' for '--linger <TIME>'"), "{outcome}");
    let outcome = said("PGFRESH_SET", "jit=off; x", &["run", "--", "true"]);
    let expected = "pgfresh: cannot read \" x\" in PGFRESH_SET: expected NAME=VALUE, such as work_mem=64MB\n";
    assert!(outcome.code == Some(125) && outcome.stderr.starts_with(expected), "{outcome}");
}

#[test]
fn no_installation_of_a_major() {
    let scene = Scene::new(User::Ourselves);
    let list = scene.run(["postgres", "list"]).stdout;
    let has = |major: &u32| list.lines().any(|line| line.starts_with(&format!("{major}.")));
    let major = (13..=18).find(|major| !has(major)).expect("this machine has all majors");
    let mut command = scene.pgfresh(["run", "--postgres", &major.to_string(), "--", "true"]);
    command.env("PATH", "/nowhere");
    let outcome = finish(command);
    let (said, found) = outcome.stderr.split_once(" Found there: ").unwrap();
    assert!(found.contains("15"), "{outcome}");
    let hint = found.split_once('\n').unwrap().1;
    let outcome = Outcome { stderr: format!("{said}\n{hint}"), ..outcome };
    let expected = format!(
        "pgfresh: could not find PostgreSQL {major}
        DETAIL:  Searched PATH, \"pg_config --bindir\", /usr/lib/postgresql/*/bin, /usr/pgsql-*/bin, \
        /opt/homebrew/opt/postgresql@*/bin, /usr/local/opt/postgresql@*/bin, \
        /home/linuxbrew/.linuxbrew/opt/postgresql@*/bin, /Applications/Postgres.app/Contents/Versions/*/bin, \
        /Library/PostgreSQL/*/bin, /opt/local/lib/postgresql*/bin, /usr/lib/postgresql*/bin, /usr/local/pgsql/bin.
        HINT:  Install it (Debian: apt install postgresql-{major}; Homebrew: brew install postgresql@{major}), \
        or npm or pip, which pgfresh uses to download it."
    );
    assert_says(&scene, &outcome, 125, &expected);
}

#[test]
fn binaries_that_are_not_there() {
    check(
        &["run", "--postgres", "/nowhere/bin", "--", "true"],
        125,
        r#"pgfresh: could not examine "/nowhere/bin/postgres": No such file or directory
        HINT:  Name a directory that has PostgreSQL's postgres and initdb with --postgres."#,
    );
}

#[test]
fn binaries_that_are_something_else() {
    check_installation(
        "echo garbage; echo more",
        r#"pgfresh: "DIR/stub/postgres" is not a PostgreSQL server
        DETAIL:  Output: garbage
        HINT:  Name a directory that has PostgreSQL's postgres and initdb with --postgres."#,
    );
    check_installation(
        "echo 'postgres (PostgreSQL) 15.1'",
        r#"pgfresh: "DIR/stub/postgres" is not a PostgreSQL server
        DETAIL:  Output: postgres (PostgreSQL) 15.1
        HINT:  Name a directory that has PostgreSQL's postgres and initdb with --postgres."#,
    );
    check_installation(
        "echo 'postgres (PostgreSQL) 12.22'",
        r#"pgfresh: "DIR/stub/postgres" is version 12.22, which pgfresh does not support
        HINT:  pgfresh supports version 13 and later; select one with --postgres."#,
    );
    check_installation(
        "echo 'a library is missing' >&2; exit 127",
        r#"pgfresh: could not run "DIR/stub/postgres --version": exit status: 127
        DETAIL:  Output: a library is missing
        HINT:  Name a directory that has PostgreSQL's postgres and initdb with --postgres."#,
    );
    check_installation(
        "kill -SEGV $$",
        r#"pgfresh: could not run "DIR/stub/postgres --version": signal: 11 (SIGSEGV)
        DETAIL:  Output: (nothing)
        HINT:  Name a directory that has PostgreSQL's postgres and initdb with --postgres."#,
    );
}

#[test]
fn binaries_that_never_answer() {
    check_installation(
        "exec sleep 600",
        r#"pgfresh: could not run "DIR/stub/postgres --version": no response after 10 s
        HINT:  Name a directory that has PostgreSQL's postgres and initdb with --postgres."#,
    );
}

/// pgfresh ignores a broken program on PATH if it finds another installation.
#[test]
fn a_liar_on_path_is_passed_over() {
    let scene = Scene::new(User::Ourselves);
    let stub = installation(&scene, "exit 1");
    let mut command = scene.pgfresh(["postgres", "path"]);
    command.env("PATH", stub);
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert!(!outcome.stdout.contains("stub"), "{outcome}");
}

/// Returns a `postgres` script that behaves like the real program, but runs `script` when it should start a server.
fn traitor(script: &str) -> String {
    format!("case $1 in -D) {script};; *) exec {}/postgres \"$@\";; esac", real_bin().display())
}

#[test]
fn a_crash_at_boot_shows_the_log() {
    check_installation(
        &traitor("echo 'LOG:  starting'; echo 'FATAL:  could not boot'; exit 1"),
        "pgfresh: could not start server: postmaster ended with exit status: 1
        DETAIL:  Last log line: FATAL:  could not boot",
    );
    check_installation(
        &traitor("kill -KILL $$"),
        "pgfresh: could not start server: postmaster ended with signal: 9 (SIGKILL)
        DETAIL:  The log is empty.",
    );
}

#[test]
fn an_initdb_that_fails() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    let bin = installation(&scene, &traitor("exit 1"));
    fs::remove_file(Path::new(&bin).join("initdb")).unwrap();
    scene.write_program("stub/initdb", "echo 'initdb: error: no such luck' >&2; exit 4");
    let outcome = scene.run(["run", "--quiet", "--postgres", &bin, "--", "true"]);
    assert_says(
        &scene,
        &outcome,
        125,
        "pgfresh: could not create a cluster: initdb ended with exit status: 4
        DETAIL:  Last line of the output: initdb: error: no such luck",
    );
}

#[test]
fn settings_that_pgfresh_refuses() {
    for name in ["port", "Listen_Addresses", "data_directory", "unix_socket_directories", "logging_collector"]
    {
        let (pair, lower) = (format!("{name}=x"), name.to_lowercase());
        let expected = format!("pgfresh: cannot set \"{lower}\": pgfresh uses it to keep the server private");
        check(&["run", "--set", &pair, "--", "true"], 125, &expected);
    }
    check(
        &["run", "--set", "work_mem", "--", "true"],
        2,
        "pgfresh: invalid value 'work_mem' for '--set <NAME=VALUE>': expected NAME=VALUE, such as work_mem=64MB
        HINT:  \"pgfresh run --help\" lists what it accepts.",
    );
    check(
        &["run", "--set", "a b=1", "--", "true"],
        125,
        "pgfresh: cannot set \"a b\": a name can contain only letters, digits, underscores and dots",
    );
}

#[test]
fn settings_that_the_server_refuses() {
    for (pair, reason) in [
        ("work_mem=plenty", "invalid value for parameter \"work_mem\": \"plenty\""),
        ("work_mem=7XB", "invalid value for parameter \"work_mem\": \"7XB\""),
        ("shared_buffers=1", "outside the valid range for parameter \"shared_buffers\""),
        ("fsync=maybe", "requires a Boolean value"),
        ("max_connections=1", "must be less than"),
        ("ssl=on", "could not load server certificate file"),
        ("wal_level=minimal", "WAL streaming ("),
    ] {
        let scene = Scene::new(User::Ourselves);
        let outcome = scene.run(["run", "--set", pair, "--", "true"]);
        let said: Vec<_> = outcome.stderr.lines().collect();
        assert!(said[0].starts_with("pgfresh: could not start server: postmaster ended with exit status: 1"));
        assert!(said[1].starts_with("DETAIL:  Last log line: ") && said[1].contains(reason), "{outcome}");
        assert_eq!(said[2], "HINT:  Correct the setting in --set, PGFRESH_SET or pgfresh.toml.");
        assert_eq!(outcome.code, Some(125));
    }
    check(
        &["run", "--postgres", &postgres(15), "--set", "work_mme=64MB", "--", "true"],
        125,
        "pgfresh: PostgreSQL 15 has no setting \"work_mme\"
        HINT:  Did you mean \"work_mem\"? Correct it in --set, PGFRESH_SET or pgfresh.toml.",
    );
    check(
        &["run", "--postgres", &postgres(15), "--set", "no_such_setting=1", "--", "true"],
        125,
        "pgfresh: PostgreSQL 15 has no setting \"no_such_setting\"
        HINT:  Correct the setting in --set, PGFRESH_SET or pgfresh.toml.",
    );
}

#[test]
fn configuration_files_are_corrected_by_line_and_word() {
    let known = "expected a major from 13 on, or a path to a directory with postgres and initdb";
    for (file, expected) in [
        (
            "\n[postgres]\nverson = 15\n",
            "3: unknown key in [postgres]: \"verson\"\nHINT:  Did you mean \"version\"?",
        ),
        ("[postgras]\n", "1: unknown table: \"postgras\"\nHINT:  Did you mean \"postgres\"?"),
        (
            "[postgres]\nzzz = 1\n",
            "2: unknown key in [postgres]: \"zzz\"\nHINT:  Expected one of: version, settings, preset, place, space.",
        ),
        ("[postgres]\nversion = 12\n", &format!("2: bad value for \"version\": {known}")),
        ("[postgres]\npreset = \"slow\"\n", "2: bad value for \"preset\": expected fast or durable"),
        ("[postgres]\n\nplace = 7\n", "3: bad value for \"place\": expected a string"),
        ("[postgres]\nsettings = 7\n", "2: bad value for \"settings\": expected a table of names and values"),
        (
            "[postgres.settings]\nfsync = true\nwork_mem = []\n",
            "3: bad value for \"work_mem\": expected a string, a number, true or false",
        ),
        ("postgres = 1\n", "1: \"postgres\" must be a table"),
        ("[postgres\n", "1: unclosed table, expected `]`"),
        (
            "\nversion = \"15\"\n",
            "2: unknown key outside of all tables: \"version\"\nHINT:  \"version\" belongs in [postgres].",
        ),
        (
            "verson = \"15\"\n",
            "1: unknown key outside of all tables: \"verson\"\nHINT:  \"version\" belongs in [postgres].",
        ),
        (
            "[server]\nidle = \"1m\"\nlinger = \"5s\"\n",
            "3: unknown key in [server]: \"linger\"\nHINT:  \"linger\" belongs in [database].",
        ),
        (
            "[database]\nlinger = 7\n",
            "2: bad value for \"linger\": expected a time such as \"5s\"\n\
             HINT:  A number needs its unit, as in \"7s\".",
        ),
        ("[database]\nlinger = [7]\n", "2: bad value for \"linger\": expected a time such as \"5s\""),
        (
            "[cache]\nsize = \"4096\"\n",
            "2: bad value for \"size\": expected a size such as \"10GB\"\n\
             HINT:  A number needs its unit, as in \"4096MB\".",
        ),
    ] {
        let scene = Scene::new(User::Ourselves);
        scene.write("pgfresh.toml", file);
        let outcome = scene.run(["run", "--", "true"]);
        assert_says(&scene, &outcome, 125, &format!("pgfresh: DIR/pgfresh.toml:{expected}"));
    }
    check(
        &["run", "--config", "/nowhere.toml", "--", "true"],
        125,
        "pgfresh: could not read \"/nowhere.toml\": No such file or directory",
    );
    let outcome = Scene::new(User::Ourselves).run(["run", "--cache-size", "4096", "--", "true"]);
    assert!(outcome.stderr.contains("expected a size with a unit, such as 10GB"), "{outcome}");
}

#[test]
fn places_that_cannot_be_used() {
    check(
        &["run", "--place", "/nowhere/at/all", "--", "true"],
        125,
        "pgfresh: could not use \"/nowhere/at/all\": No such file or directory
        HINT:  Create the directory, or use a different one: --place PATH, or place = \"PATH\".",
    );
    let closed = |scene: &Scene| {
        let place = scene.directory.join("closed/place");
        fs::create_dir_all(&place).unwrap();
        fs::set_permissions(place.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
        place.to_str().unwrap().to_owned()
    };
    let hint =
        "HINT:  Use a directory with enough space and write permission: --place PATH, or place = \"PATH\".";
    if is_root() {
        let scene = Scene::new(User::Ourselves);
        let place = closed(&scene);
        let outcome = scene.run(["run", "--place", &place, "--", "true"]);
        let (said, account) = outcome.stderr.split_once("(uid ").unwrap();
        assert!(said.starts_with("pgfresh: cannot place "), "{outcome}");
        assert!(said.ends_with("/closed/place\": the server's account "), "{outcome}");
        let rest = account.trim_start_matches(|letter: char| letter.is_ascii_digit());
        assert_eq!(rest.trim_end(), format!(") cannot enter it\n{hint}"));
        let scene = Scene::new(User::Nobody);
        let place = closed(&scene);
        let outcome = scene.run(["run", "--place", &place, "--", "true"]);
        let expected = r#"pgfresh: could not use "DIR/closed/place": Permission denied
            HINT:  Choose a writable directory with PGFRESH_CACHE (the cache), --place PATH (the data), or XDG_DATA_HOME (servers with a name)."#;
        assert_says(&scene, &outcome, 125, expected);
    }
}

#[test]
fn a_cache_that_others_can_write_in() {
    let scene = Scene::new(User::Ourselves);
    let cache = scene.directory.join("open");
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    let outcome = scene.run(["run", "--cache", cache.to_str().unwrap(), "--", "true"]);
    assert_says(
        &scene,
        &outcome,
        125,
        r#"pgfresh: could not use "DIR/open": it belongs to a different user, or other users can write to it
        HINT:  Choose a writable directory with PGFRESH_CACHE (the cache), --place PATH (the data), or XDG_DATA_HOME (servers with a name)."#,
    );
}

#[test]
fn a_commands_lost_server_is_reported() {
    let scene = Scene::new(User::Ourselves);
    let ask = format!("{} -XAtqc \"SELECT pg_read_file('postmaster.pid')\"", ground::psql());
    let script = format!("kill -9 $({ask} | head -n 1); cat; exit 5");
    let mut command = scene.pgfresh(["run", "--", "sh", "-c", &script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let said = line_of(child.stderr.as_mut().unwrap());
    let why = "postmaster ended with signal: 9 (SIGKILL)";
    assert_eq!(
        said.trim_end(),
        format!("pgfresh: the server went away while the command was running: {why}")
    );
    drop(child.stdin.take());
    let outcome = collect(child);
    assert_eq!(outcome.code, Some(5), "{outcome}");
}

#[test]
fn serve_fails_when_its_server_ends() {
    let scene = Scene::new(User::Ourselves);
    let mut command = scene.pgfresh(["serve", "--json"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let ready = line_of(child.stdout.as_mut().unwrap());
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    let postmaster = postmaster_of(child.id()).expect("a server that is ready");
    assert_eq!(ready["pid"], postmaster.pid);
    assert!(postmaster.kill());
    // The standard input of `serve` is still open.
    let stdin = child.stdin.take();
    let outcome = collect(child);
    drop(stdin);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert!(
        outcome.stderr.starts_with(
            "pgfresh: the server went away\nDETAIL:  The cause: postmaster ended with signal: 9 (SIGKILL)"
        ),
        "{outcome}"
    );
}

#[test]
fn keep_leaves_failed_servers_until_a_sweep() {
    let scene = Scene::new(User::Ourselves);
    let outcome = scene.run(["run", "--quiet", "--keep", "--", "sh", "-c", "exit 3"]);
    let said = outcome.stderr.strip_prefix("pgfresh: kept log and data in \"").unwrap();
    let said = said.strip_suffix("\" removes them\n").unwrap();
    let (kept, _) = said.split_once("\"; \"pgfresh sweep --kept ").unwrap();
    assert_eq!(outcome.code, Some(3));
    assert!(Path::new(kept).join("data/PG_VERSION").is_file() && Path::new(kept).join("log").is_file());
    // Only `sweep --kept` removes the kept server.
    assert_eq!(scene.run(["sweep"]).stdout, "nothing to remove\n");
    assert!(Path::new(kept).is_dir());
    assert_eq!(scene.run(["sweep", "--kept"]).stdout, format!("removed \"{kept}\"\n"));
    assert_eq!(
        scene.run(["run", "--quiet", "--keep", "--", "true"]).stderr,
        "",
        "what went well is not kept"
    );
}

#[test]
fn an_unwritable_cache_is_an_error() {
    check(
        &["template", "list", "--cache", "/proc/x"],
        1,
        "pgfresh: could not create \"/proc/x\": No such file or directory",
    );
}

/// Both commands work in a shell exactly as pgfresh prints them, with `--place` and `--cache` if necessary.
#[test]
fn printed_commands_open_and_remove_kept_servers() {
    for &user in User::all() {
        let scene = Scene::new(user);
        let place = scene.directory.join("it's here");
        fs::create_dir(&place).unwrap();
        user.give(&place);
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
            scene.set(&mut command);
            let path = [ground::program().parent().unwrap(), real_bin(), Path::new("/usr/bin:/bin")];
            command.env("PATH", path.map(|path| path.to_str().unwrap()).join(":"));
            command.env_remove("PGFRESH_PLACE").env_remove("PGFRESH_CACHE");
            collect(command.spawn().unwrap())
        };
        let keep = ["--keep", "--place", place.to_str().unwrap()];

        let outcome = scene.run(["run", "--quiet"].iter().chain(&keep).chain(&["--", "false"]));
        let (_, said) = outcome.stderr.split_once("\"; \"").unwrap_or_else(|| panic!("{outcome}"));
        let removed = shell(said.trim_end().strip_suffix("\" removes them").unwrap());
        assert!(removed.stdout.contains("kept-") && removed.code == Some(0), "{removed}");

        scene.write("input", "");
        let setup = ["--setup", "exit 3", "--inputs", "input"];
        let outcome = scene.run(["template", "build"].iter().chain(&keep).chain(&setup));
        let (_, said) = outcome.stderr.split_once("\"; \"").unwrap_or_else(|| panic!("{outcome}"));
        let (sweep, open) = said.trim_end().split_once("\" removes it. To open it: ").unwrap();
        let opened = shell(open);
        assert!(opened.code == Some(0) && opened.stdout.contains("server started"), "{opened}");
        let (start, _) = open.split_once(" -l ").unwrap();
        let stopped = shell(&format!("{start} stop"));
        assert_eq!(stopped.code, Some(0), "{stopped}");
        let removed = shell(sweep);
        assert!(removed.stdout.contains("kept-") && removed.code == Some(0), "{removed}");
    }
}
