//! Tests real drivers through the gateway, each in its own language. Their programs connect, prepare, copy and
//! cancel, and use batches, pipelines, notifications, errors, large values and pools.
//!
//! The programs are in `tests/drivers/`, with the drivers' versions. `scripts/prepare test` installs the drivers.

mod rust;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::{Scene, User, end_of, line_of};

/// Returns the path of an installed driver. Fails if it isn't installed, so that no test is skipped.
pub(crate) fn installed(path: &str) -> PathBuf {
    let folder = std::env::var_os("PGFRESH_TEST_DRIVERS").map(PathBuf::from).unwrap_or_default();
    let installed = folder.join(path);
    assert!(installed.exists(), "no \"{path}\" in PGFRESH_TEST_DRIVERS: run \"make test\"");
    installed
}

/// Returns the path of a program in the folder with the drivers' tests.
pub(crate) fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drivers").join(path)
}

/// Runs a program under `pgfresh run`, then while pgfresh times the program's statements, and then over TLS with a
/// client that verifies the server. Fails with the first of the program's checks that fails.
fn run(words: impl IntoIterator<Item = impl Into<OsString>>) {
    let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    for pgfresh in [
        &["run", "--"][..],
        &["run", "--profile", "--report", "out.md", "--"],
        &["run", "--tls", "--env", "PGSSLMODE=verify-full", "--"],
    ] {
        let scene = Scene::new(User::Ourselves);
        let outcome = scene.run(pgfresh.iter().map(OsString::from).chain(words.iter().cloned()));
        assert!(outcome.code == Some(0), "{outcome}");
        assert!(outcome.stdout.lines().count() > 8, "{outcome}");
        // The tracker has parsed all messages.
        let report = fs::read_to_string(scene.directory.join("out.md")).unwrap_or_default();
        let exact = report.contains("Times and runs of statements are exact");
        assert!(exact == pgfresh.contains(&"--profile"), "{report}");
    }
}

#[test]
fn psycopg() {
    run([installed("python/bin/python"), source("python/psycopg_.py")]);
}

#[test]
fn asyncpg() {
    run([installed("python/bin/python"), source("python/asyncpg_.py")]);
}

#[test]
fn pgx() {
    run([installed("go/drivers")]);
}

#[test]
fn node_postgres() {
    let mut modules = OsString::from("NODE_PATH=");
    modules.push(installed("node/node_modules"));
    // The Node.js runtime, not the driver, determines which certificates it trusts.
    let script = "NODE_EXTRA_CA_CERTS=${PGSSLROOTCERT-} exec node \"$0\"";
    run(["env".into(), modules, "sh".into(), "-c".into(), script.into(), source("node/drivers.js").into()]);
}

#[test]
fn pgjdbc() {
    let library = installed("java/postgresql.jar");
    run(["java".into(), "-cp".into(), library, source("java/Drivers.java")]);
}

#[test]
fn tokio_postgres() {
    let scene = Scene::new(User::Ourselves);
    let mut serve = scene.pgfresh(["serve"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let url = line_of(serve.stdout.take().unwrap());
    rust::keeps_its_promises(url.trim_end());
    drop(serve.stdin.take());
    assert!(end_of(&mut serve, "its standard input is closed").success());
}
