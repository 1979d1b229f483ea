//! Tests libpq variables that users export for other servers.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::common::{Scene, User, finish, postgres};

/// Variables that concern a session rather than its server. A command sees the user's values.
const OF_SESSIONS: [(&str, &str); 8] = [
    ("PGAPPNAME", "suite"),
    ("PGCLIENTENCODING", "LATIN1"),
    ("PGCONNECT_TIMEOUT", "45"),
    ("PGDATESTYLE", "German"),
    ("PGGEQO", "off"),
    ("PGOAUTHDEBUG", "none"),
    ("PGOPTIONS", "-c work_mem=1234kB"),
    ("PGTZ", "Asia/Tokyo"),
];
/// Prefix of libpq's names for results, which aren't variables.
const RESULTS: &str = "PGRES_";

/// Returns all variables that the libpq in `folder` supports, based on the strings in it.
fn known_to(folder: &Path) -> BTreeSet<String> {
    let bytes = fs::read(folder.join("libpq.so.5")).unwrap();
    let is_name = |word: &&[u8]| {
        word.len() > 3
            && word.starts_with(b"PG")
            && word.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_')
    };
    let names = bytes.split(|byte| *byte == 0).filter(is_name);
    names
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .filter(|name| !name.starts_with(RESULTS))
        .collect()
}

#[test]
fn no_variable_of_libpq_leads_elsewhere() {
    let bin = postgres(18);
    let names = known_to(&Path::new(&bin).with_file_name("lib"));
    assert!(names.len() > 40 && names.contains("PGCHANNELBINDING"), "{names:?}");
    let of_sessions: Vec<_> = OF_SESSIONS.iter().map(|(name, _)| *name).collect();
    let scene = Scene::new(User::Ourselves);
    scene.write("input", "");
    let look = "env | grep =astray && exit 1; psql -XAtqc 'CREATE TABLE IF NOT EXISTS made ()' && \
        psql -XAtqc 'SHOW work_mem' -c 'SHOW application_name' -c 'SHOW TimeZone' -c \"SELECT to_regclass('made')\"";
    for options in [&[][..], &["--tls"]] {
        let setup = ["--setup", look, "--inputs", "input"];
        let words = [&["run"], options, &setup, &["--", "sh", "-c", look]].concat();
        let mut command = scene.pgfresh(words);
        for name in names.iter().filter(|name| !of_sessions.contains(&name.as_str())) {
            command.env(name, "astray");
        }
        command.env("PGREQUIRESSL", "1").envs(OF_SESSIONS);
        let outcome = finish(command);
        assert_eq!(outcome.stdout, "1234kB\nsuite\nAsia/Tokyo\nmade\n", "{options:?}: {outcome}");
    }
    for (name, _) in OF_SESSIONS {
        assert!(names.contains(name), "libpq of PostgreSQL 18 has no {name}");
    }
}
