//! Tests limits: with too little space, or too few rights, pgfresh reports a clear error and leaves nothing behind.

use std::thread;
use std::time::Duration;

use crate::common::client::{Client, failure, startup};
use crate::common::gateway::Gateway;
use crate::common::{Outcome, ground, majors, mounts, postgres, wait_until};

/// Returns shell commands that mount a file system with the limits `bounds` at `$MOUNTED`, and make it the place.
fn tmpfs(bounds: &str) -> String {
    format!("mount -t tmpfs -o mode=0711,{bounds} none \"$MOUNTED\"; export PGFRESH_PLACE=\"$MOUNTED\"")
}

fn assert_clean(outcome: &Outcome) {
    assert!(!outcome.stdout.contains("left:"), "{outcome}");
}

#[test]
fn a_full_place_fails_at_boot() {
    let Some(scene) = mounts::scene() else { return };
    assert_eq!(scene.run(["run", "--", "true"]).code, Some(0));
    // The image has 737 files. So with these limits, the place is full at the first directory, during the copy, or
    // while the server boots.
    for files in [4, 6, 40, 450, 752, 762, 772] {
        let mount = tmpfs(&format!("size=1g,nr_inodes={files}"));
        let outcome = mounts::run(&scene, &mount, &["run", "--", "echo", "reached"]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""), "{files}: {outcome}");
        assert!(outcome.stderr.contains("No space left on device"), "{files}: {outcome}");
    }
    let outcome = mounts::run(&scene, &tmpfs("size=20m"), &["run", "--", "echo", "reached"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""), "{outcome}");
    assert!(outcome.stderr.contains("cannot place "), "{outcome}");
}

#[test]
#[cfg_attr(pgfresh_portable, ignore = "needs a place in RAM")]
fn memory_with_few_inodes_is_passed_over() {
    let Some(scene) = mounts::scene() else { return };
    for files in [300, 1200, 6000] {
        let mount = format!(
            "for folder in /dev/shm /tmp; do mount -t tmpfs -o mode=1777,size=4g,nr_inodes={files} none $folder; done
            unset PGFRESH_PLACE XDG_RUNTIME_DIR"
        );
        let sessions =
            "for n in 1 2 3 4 5 6 7 8; do psql -XAtqd d$n -c 'CREATE TABLE t ()' -c 'SELECT 1'; done";
        let outcome = mounts::run(&scene, &mount, &["-v", "run", "--", "sh", "-euc", sessions]);
        assert_eq!(
            (outcome.code, outcome.stdout.as_str()),
            (Some(0), &*"1\n".repeat(8)),
            "{files}: {outcome}"
        );
        let left = "\"/dev/shm\" and memory have inodes for ";
        assert!(
            outcome.stderr.contains(left) && outcome.stderr.contains("files left, "),
            "{files}: {outcome}"
        );
    }
}

#[test]
fn databases_stay_within_the_space() {
    for major in majors() {
        let gateway =
            Gateway::start(major, "CREATE TABLE t (v text)", &["--space", "64MB", "--linger", "60s"]);
        let mut sessions = Vec::new();
        let refused = loop {
            match gateway.connect(&format!("lease_{}", sessions.len()), "") {
                Ok(session) => sessions.push(session),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.sqlstate, "53100", "{refused:?}");
        // A database takes 7 to 8 MB, and copies can take half of the space.
        assert_eq!(sessions.len(), 4, "PostgreSQL {major}");
        assert_eq!(gateway.status()["templates"][0]["ready"], 0);
        sessions.pop();
        let (status, answer) = gateway.http("DELETE", "/v1/databases/lease_3", "");
        assert_eq!(status, 204, "{answer}");
        gateway.connect("another", "").unwrap();
    }
}

#[test]
fn excess_clients_get_their_turn() {
    let gateway = Gateway::start(15, "CREATE TABLE t (v text)", &["--space", "64MB", "--linger", "0"]);
    thread::scope(|scope| {
        for worker in 0..12 {
            let gateway = &gateway;
            scope.spawn(move || {
                for test in 0..10 {
                    let mut session = gateway.connect(&format!("test_{worker}_{test}"), "").unwrap();
                    session.rows("INSERT INTO t VALUES ('x')").unwrap();
                    thread::sleep(Duration::from_millis(20));
                    assert_eq!(session.value("SELECT count(*) FROM t").unwrap(), "1");
                }
            });
        }
    });
}

/// All databases are in use, so these clients wait. They get an error and don't delay the shutdown.
#[test]
fn a_shutdown_ends_waits_for_databases() {
    let options = ["--space", "64MB", "--linger", "60s"];
    let mut gateway = Gateway::start(15, "CREATE TABLE t (v text)", &options);
    let _sessions: Vec<_> = (0..4).map(|at| gateway.connect(&format!("lease_{at}"), "").unwrap()).collect();
    let (address, secret) = (gateway.serve.address(), gateway.serve.secret().to_owned());
    let enter = |at| Client::enter(&address, &secret, &startup(&format!("waits_{at}"), &[]));
    let waiting: Vec<_> = (0..12).map(|at| enter(at).ok().unwrap()).collect();
    // Once the gateway has read a password, the client waits for its database.
    let is_read = |fields: &Vec<String>| fields[4].ends_with(":00000000");
    wait_until("the gateway to have all clients", || gateway.connections().iter().all(is_read));
    let answers: Vec<_> =
        waiting.into_iter().map(|mut client| thread::spawn(move || client.read())).collect();
    assert!(gateway.serve.end());
    for answer in answers {
        let error = failure(&answer.join().unwrap());
        assert_eq!(
            (error.sqlstate.as_str(), error.message.as_str()),
            ("57P01", "pgfresh is shutting down"),
            "{error:?}"
        );
    }
}

#[test]
fn a_full_place_gives_the_servers_error() {
    let Some(scene) = mounts::scene() else { return };
    let sql = "CREATE TABLE big AS SELECT md5(i::text) FROM generate_series(1, 1500000) i";
    let psql = [ground::psql(), "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql];
    let outcome = mounts::run(&scene, &tmpfs("size=60m"), &[&["run", "--"], &psql[..]].concat());
    assert!(outcome.code.is_some_and(|code| code != 0 && code != 125), "{outcome}");
    assert_clean(&outcome);
}

#[test]
fn a_full_cache_gets_no_incomplete_image() {
    let Some(scene) = mounts::scene() else { return };
    let mount = "mount -t tmpfs -o mode=0711,size=15m none \"$MOUNTED\"; export PGFRESH_CACHE=\"$MOUNTED\"";
    let outcome = mounts::run(&scene, mount, &["run", "--", "true"]);
    assert_eq!(outcome.code, Some(125), "{outcome}");
    assert!(outcome.stderr.to_lowercase().contains("no space left"), "{outcome}");
    assert_clean(&outcome);
}

#[test]
fn a_full_cache_is_named_by_psql() {
    let Some(scene) = mounts::scene() else { return };
    // The cache only has space for the template.
    let mount = "mount -t tmpfs -o mode=0711,size=200m none \"$MOUNTED\"; export PGFRESH_CACHE=\"$MOUNTED\"
        \"$1\" run -- true; \"$1\" psql -- -qc ''; \"$1\" stop
        dd if=/dev/zero of=\"$MOUNTED/large\" bs=1M 2>errors || true";
    for command in [&["url"][..], &["serve", "--shared", "--json"]] {
        let outcome = mounts::run(&scene, mount, command);
        assert_eq!(outcome.code, Some(1), "{outcome}");
        let last = outcome.stderr.lines().rev().take(2).collect::<Vec<_>>();
        assert!(last[0].starts_with("HINT:  Free some space"), "{outcome}");
        assert!(last[1].ends_with(": No space left on device") && last[1].contains("/mounted/"), "{outcome}");
    }
}

#[test]
fn a_containers_small_shared_memory_is_not_taken() {
    let Some(scene) = mounts::scene() else { return };
    let mount = "mount -t tmpfs -o size=64m none /dev/shm; export PGFRESH_PLACE=auto";
    let outcome = mounts::run(&scene, mount, &["run", "--verbose", "--", "ls", "-A", "/dev/shm"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert!(outcome.stderr.contains("disk at"), "{outcome}");
    assert_eq!(outcome.stdout, "", "something lies in RAM");
}

#[test]
fn blocks_are_shared_where_the_file_system_can() {
    for (kind, make) in [("xfs", "mkfs.xfs -m reflink=1"), ("btrfs", "mkfs.btrfs")] {
        let Some(scene) = mounts::scene() else { return };
        let mount = format!(
            "truncate -s 400M image; {make} -q image >made; mount -o loop image \"$MOUNTED\"; chmod 711 \"$MOUNTED\"
            export PGFRESH_CACHE=\"$MOUNTED/cache\" PGFRESH_PLACE=disk"
        );
        let query = [ground::psql(), "-XAtqc", "SELECT count(*) > 300 FROM pg_class"];
        let outcome = mounts::run(&scene, &mount, &[&["-v", "run", "--"], &query[..]].concat());
        assert_eq!((outcome.code, outcome.stdout.trim()), (Some(0), "t"), "{kind}: {outcome}");
        assert!(outcome.stderr.contains("pgfresh: cloned "), "{kind}: {outcome}");
    }
}

/// The file system is smaller than all databases together. The setup freezes the rows, so that
/// reads don't write to them.
#[test]
fn copies_share_blocks_on_18() {
    const SETUP: &str = "psql -XAtqc 'CREATE TABLE filler AS SELECT repeat(md5(id::text), 30) FROM generate_series(1, 60000) AS id' \
        -c 'VACUUM (FREEZE) filler'";
    const SUITE: &str = "for name in one two three four five six; do
            psql -XAtqd $name -c 'SELECT pg_total_relation_size($$filler$$) > 50000000, count(*) FROM filler'
        done";
    for (kind, make) in [("xfs", "mkfs.xfs -m reflink=1"), ("btrfs", "mkfs.btrfs")] {
        let Some(scene) = mounts::scene() else { return };
        scene.write(
            "pgfresh.toml",
            &format!("[template]\nsetup = \"{SETUP}\"\ninputs = [\"pgfresh.toml\"]\n"),
        );
        let mount = format!(
            "truncate -s 400M image; {make} -q image >made; mount -o loop image \"$MOUNTED\"; chmod 711 \"$MOUNTED\"
            export PGFRESH_CACHE=\"$MOUNTED/cache\" PGFRESH_PLACE=disk"
        );
        let options = [
            "run",
            "--postgres",
            &postgres(18),
            "--linger",
            "1min",
            "--space",
            "4GB",
            "--",
            "sh",
            "-euc",
            SUITE,
        ];
        let outcome = mounts::run(&scene, &mount, &options);
        let answers = "t|60000\n".repeat(6);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), answers.as_str()), "{kind}: {outcome}");
    }
}
