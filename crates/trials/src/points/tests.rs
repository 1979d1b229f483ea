use std::collections::BTreeSet;
use std::time::Instant;

use super::*;
use crate::steady::steady_leases;
use crate::testing::lease;

fn all(texts: &[&str]) -> Vec<Point> {
    let lease = lease(Instant::now(), texts);
    points(&steady_leases(vec![lease.clone()], vec![lease], &[]).0).0
}

fn names(texts: &[&str]) -> BTreeSet<String> {
    all(texts).iter().map(ToString::to_string).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn each_statement_has_the_faults_of_its_class() {
    for (texts, expected) in [
        (&["UPDATE t SET a = 1"][..], &["40001", "40P01", "57014", "lost after", "lost before"][..]),
        (&["T:UPDATE t SET a = 1"], &["40001", "40P01", "57014", "lost before"]),
        (&["SELECT a FROM t"], &["57014", "lost before"]),
        (&["T:SELECT a FROM t"], &["40001", "57014", "lost before"]),
        (&["T:SELECT a FROM t FOR UPDATE"], &["40001", "40P01", "57014", "lost before"]),
    ] {
        let faults: Vec<_> =
            names(texts).iter().map(|name| name.rsplit_once(':').unwrap().1.to_owned()).collect();
        assert_eq!(faults, expected, "{texts:?}");
    }
    let expected = ["app:COMMIT:40001", "app:COMMIT:lost after", "app:COMMIT:lost before"];
    let found = names(&["BEGIN", "T:DELETE FROM t", "T:COMMIT"]);
    assert!(found.is_superset(&set(&expected)) && found.len() == 7, "{found:?}");
}

#[test]
fn statements_without_stakes_are_left_out() {
    for text in [
        "SET search_path = a",
        "SHOW server_version",
        "SELECT 1",
        "SELECT oid FROM pg_type",
        "SELECT pg_catalog.set_config('a', 'b', false)",
        "SELECT current_setting('a')",
        "CREATE TABLE t (a int)",
        "VACUUM",
        "COMMIT",
        "23505:INSERT INTO t VALUES (1)",
    ] {
        assert_eq!(names(&[text]), set(&[]), "{text}");
    }
    // This transaction doesn't write, so it can't lose anything.
    assert!(!names(&["BEGIN", "T:SELECT a FROM t", "T:COMMIT"]).iter().any(|name| name.contains("COMMIT")));
}

#[test]
fn hidden_writes_give_faults_to_commit() {
    for write in [
        "WITH a AS (INSERT INTO t VALUES (1) RETURNING b) SELECT b FROM a",
        "SELECT pay(4200)",
        "EXECUTE pay",
        "COPY t FROM '/file'",
    ] {
        let found = names(&["BEGIN", &format!("T:{write}"), "T:COMMIT"]);
        assert!(found.contains("app:COMMIT:lost after") && found.len() == 7, "{write}: {found:?}");
        assert_eq!(names(&[write]).len(), 5, "{write}");
    }
    for read in ["SELECT count(*) FROM t", "COPY t TO STDOUT"] {
        assert_eq!(names(&["BEGIN", &format!("T:{read}"), "T:COMMIT"]).len(), 3, "{read}");
    }
}

#[test]
fn equal_statements_are_distinguished_by_number() {
    let texts = [
        "INSERT INTO t VALUES (1)",
        "23505:INSERT INTO t VALUES (1)",
        "T:25P02:INSERT INTO t VALUES (2)",
        "INSERT INTO t VALUES (3)",
    ];
    let found: BTreeSet<_> = all(&texts).iter().map(|point| (point.pattern.clone(), point.nth)).collect();
    let pattern = || "INSERT INTO t VALUES (…)".to_owned();
    assert_eq!(found, BTreeSet::from([(pattern(), 1), (pattern(), 3)]));
}

#[test]
fn candidates_depend_on_the_fault() {
    let texts =
        ["23505:INSERT INTO t VALUES (1)", "T:25P02:INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)"];
    let numbers: Vec<_> =
        all(&texts).iter().map(|point| (point.fault.to_string(), point.nth, point.candidate)).collect();
    for (fault, candidate) in [("lost after", 1), ("lost before", 3), ("40001", 2), ("57014", 2)] {
        assert!(numbers.contains(&(fault.to_owned(), 2, candidate)), "{fault}: {numbers:?}");
    }
    // A COMMIT outside of a transaction doesn't commit anything, although the server responds with the tag COMMIT.
    let points = all(&["COMMIT", "BEGIN", "T:DELETE FROM t", "T:COMMIT"]);
    let candidate = |name: &str| {
        points
            .iter()
            .find(|point| point.to_string().starts_with(name))
            .map(|point| (point.nth, point.candidate))
    };
    assert_eq!(candidate("app:COMMIT:lost after"), Some((1, 2)));
    assert_eq!(candidate("app:COMMIT:lost before"), Some((1, 1)));
}

#[test]
fn witness_is_a_write_of_the_same_session() {
    let mut lease = lease(
        Instant::now(),
        &["BEGIN", "T:INSERT INTO t VALUES (1)", "UPDATE log SET a = 1", "T:DELETE FROM log", "T:COMMIT"],
    );
    for at in [2, 3] {
        lease.statements[at].session = 2;
    }
    let (points, _) = points(&steady_leases(vec![lease.clone()], vec![lease], &[]).0);
    let commit = points.iter().find(|point| point.to_string().starts_with("app:COMMIT:")).unwrap();
    assert_eq!(commit.witness, "INSERT INTO t VALUES (…)");
}

#[test]
fn most_telling_points_come_first() {
    let order: Vec<_> = all(&["SELECT a FROM t", "BEGIN", "T:DELETE FROM t", "T:COMMIT"])
        .iter()
        .map(|point| format!("{}:{}", &point.pattern[..6], point.fault))
        .collect();
    assert_eq!(order[..3], ["COMMIT:lost after", "COMMIT:40001", "COMMIT:lost before"]);
    assert_eq!(order[3..5], ["DELETE:40001", "DELETE:lost before"]);
    assert_eq!(order[order.len() - 1], "SELECT:57014");
}

#[test]
fn statements_of_one_run_alone_are_counted() {
    let begun = Instant::now();
    let one = lease(begun, &["DELETE FROM t", "DELETE FROM t", "SELECT a FROM t"]);
    let other = lease(begun, &["DELETE FROM t", "SELECT b FROM t"]);
    let (found, unsteady) = points(&steady_leases(vec![one], vec![other], &[]).0);
    assert!(found.iter().all(|point| point.pattern == "DELETE FROM t" && point.nth == 1));
    assert_eq!((found.len(), unsteady), (5, 2));
}

#[test]
fn request_names_moment_and_statement() {
    let points = all(&["BEGIN", "T:DELETE FROM t", "T:COMMIT", "DELETE FROM t"]);
    let request =
        |name: &str| points.iter().find(|point| point.to_string().starts_with(name)).unwrap().request();
    for (name, moment, error, connection) in [
        ("app:COMMIT:lost after", "after commit", None, Some("reset")),
        ("app:COMMIT:lost before", "before commit", None, Some("reset")),
        ("app:COMMIT:40001", "commit", Some("40001"), None),
        ("app:DELETE FROM t:40P01", "before statement", Some("40P01"), None),
        ("app:DELETE FROM t #2:lost after", "after statement", None, Some("reset")),
    ] {
        let request = request(name);
        let seen = (request.at.as_deref(), request.error.as_deref(), request.connection.as_deref());
        assert_eq!(seen, (Some(moment), error, connection), "{name}");
    }
    assert_eq!(request("app:DELETE FROM t #2").nth, Some(2));
}
