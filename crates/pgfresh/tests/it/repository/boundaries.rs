//! Checks that only `sys` names the operating system, that only crates from `server` on name PostgreSQL's files, and
//! that only settings read the environment.

use std::fs;
use std::path::{Path, PathBuf};

/// Identifiers from the operating system's interfaces.
const SYSTEM: &[&str] = &["rustix", "libc::", "std::os::linux", "\"/proc", "\"/sys/"];

/// Files that are allowed to name the operating system.
const EXEMPT: &[(&str, &str)] = &[
    ("bench/src/floor.rs", "the floor beside pgfresh's own copy shares no code with it"),
    ("profile/src/recorder.rs", "says where the procfs is that `machine` reads; tests make others"),
];

/// Names of PostgreSQL's files and directories.
const FILES: &[&str] =
    &["PGSQL", "postmaster.pid", "postgresql.conf", "pg_hba.conf", "pg_wal\"", "PG_VERSION", "pg_control"];

/// Crates that don't deal with servers.
const BELOW_SERVER: &[&str] = &["sys", "storage", "pgwire", "report"];

/// Calls that read the environment.
const ENVIRONMENT: &[&str] = &["env::var"];

/// Files other than the settings that read the environment, and why they do.
const READS_ENVIRONMENT: &[(&str, &str)] = &[
    ("pgfresh/src/settings/mod.rs", "settings: what clap does not read of PGFRESH_*"),
    (
        "pgfresh/src/logging.rs",
        "PGFRESH_LOG: main asks for it before there are settings, which write records",
    ),
    ("pgfresh/src/control.rs", "PGFRESH_CONTROL: the server of this run, said by pgfresh and no setting"),
    ("pgfresh/src/browser.rs", "BROWSER and what tells of a display: the desktop's, and no setting"),
    ("pgfresh/src/report_file.rs", "where a CI system wants its summary"),
    ("profile/src/target.rs", "PGPASSWORD, as psql reads it"),
    ("plans/src/import/server.rs", "the same, and how libpq encrypts"),
    (
        "template/src/build.rs",
        "the values of the variables that a template names: they belong to its fingerprint",
    ),
    ("sys/src/posix/environment.rs", "takes a secret out of it before anything is started"),
    (
        "pgfresh/src/settings/remote.rs",
        "settings: which branch a CI system runs for, and what came from a variable",
    ),
    ("remote/src/objects.rs", "what each cloud calls its endpoint: its own clients read the same variables"),
    ("remote/src/login.rs", "where docker and podman keep logins"),
    ("storage/src/cache.rs", "where the user's cache directory is"),
    ("storage/src/persistent.rs", "where the user's data directory is"),
    ("storage/src/place.rs", "where the user's RAM disk may be"),
    ("server/src/locate.rs", "PATH: where programs are"),
    ("server/src/installation.rs", "PATH, and which variables a child must not inherit"),
    ("server/src/package_tool.rs", "the same"),
    ("bench/src/pgbench.rs", "which variables a child must not inherit"),
    ("lease/src/table/simulation.rs", "the seed of a test"),
    ("bench/src/events/ferretdb.rs", "the programs that a test runs"),
    ("pgfresh/src/service.rs", "whether a test plants a panic or wants transcripts, in debug builds only"),
    ("pgfresh/src/cli/reference.rs", "whether a test writes the page that it compares"),
    ("contract/src/openapi.rs", "the same"),
];

#[test]
fn the_environment_is_read_with_the_settings() {
    let found = occurrences(&crates(), ENVIRONMENT, |path| {
        READS_ENVIRONMENT.iter().all(|(exempt, _)| *exempt != path)
    });
    assert!(found.is_empty(), "the environment is read below the settings:\n{}", found.join("\n"));
    for (path, _) in READS_ENVIRONMENT {
        let reads = occurrences(&crates(), ENVIRONMENT, |other| other == *path);
        assert!(!reads.is_empty(), "{path} is exempt for nothing");
    }
}

#[test]
fn only_sys_names_the_operating_system() {
    let found = occurrences(&crates(), SYSTEM, |path| {
        !path.starts_with("sys/") && EXEMPT.iter().all(|(exempt, _)| *exempt != path)
    });
    assert!(found.is_empty(), "the operating system outside crates/sys:\n{}", found.join("\n"));
    for (path, _) in EXEMPT {
        assert!(
            !occurrences(&crates(), SYSTEM, |other| other == *path).is_empty(),
            "{path} is exempt for nothing"
        );
    }
}

#[test]
fn files_of_postgres_are_named_from_server_on() {
    let found = occurrences(&crates(), FILES, |path| {
        BELOW_SERVER.iter().any(|name| path.starts_with(&format!("{name}/")))
    });
    assert!(found.is_empty(), "files of PostgreSQL below crates/server:\n{}", found.join("\n"));
}

/// A check that doesn't find anything proves something only if it can find something.
#[test]
fn planted_violations_are_found() {
    let planted = tempfile::tempdir().unwrap();
    let folder = planted.path().join("storage/src");
    fs::create_dir_all(&folder).unwrap();
    let text = "//! Of rustix.\nuse rustix::fs; // rustix\nconst F: &str = \"pg_wal\"; /* pg_wal */\n\
                #[cfg(test)]\nmod tests {\n    use rustix::io;\n}\n";
    fs::write(folder.join("lib.rs"), text).unwrap();
    assert_eq!(occurrences(planted.path(), SYSTEM, |_| true), ["crates/storage/src/lib.rs:2: rustix"]);
    assert_eq!(occurrences(planted.path(), FILES, |_| true), ["crates/storage/src/lib.rs:3: pg_wal\""]);
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns each line of code that contains one of `words`, in the source files below `crates` for which `is_checked`
/// returns true. Skips comments, and tests, which are at the end of a file.
fn occurrences(crates: &Path, words: &[&str], is_checked: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for path in sources(crates) {
        let name = path.strip_prefix(crates).unwrap().to_str().unwrap();
        if !is_checked(name) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (line, number) in code.lines().zip(1..) {
            let line = line.split("//").next().unwrap_or_default();
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                found.push(format!("crates/{name}:{number}: {word}"));
            }
        }
    }
    found.sort();
    found
}

fn sources(crates: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path().join("src")).collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("tests.rs")
            {
                found.push(path);
            }
        }
    }
    found
}
