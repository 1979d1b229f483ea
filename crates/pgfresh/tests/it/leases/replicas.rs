//! Tests replicas: a leased server has a standby that lags as much as a client requests, and that can take over from
//! the server. For other leases, a copy stands in for the replica.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::connection::{Address, Connection, SqlError};
use crate::common::gateway::Gateway;
use crate::common::random::Random;
use crate::common::serve::Serve;
use crate::common::{Scene, User, depth, ground, on_every_major, postgres, wait_until};
use crate::gateway::drivers;

on_every_major! {
    replica_shows_commits_as_its_lag_says
    promoted_replica_takes_the_primarys_place
    promoted_replica_has_every_commit
    copy_stands_in_for_other_leases
}

const CONFIG: &str = "[template]\nsql = \"template.sql\"\nreplicas = 1\n";
const TEMPLATE: &str = "CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (0);";

/// Returns a scene whose template has a replica.
fn scene(user: User) -> Scene {
    let scene = Scene::new(user);
    scene.write("pgfresh.toml", CONFIG);
    scene.write("template.sql", TEMPLATE);
    scene
}

/// Starts a gateway whose leases have the isolation mode `isolation`.
fn start(major: u32, isolation: &str) -> Gateway {
    let postgres = postgres(major);
    let options = ["--postgres", &postgres, "--isolation", isolation, "--linger", "60s"];
    Gateway { serve: Serve::at(scene(User::Ourselves), options), major }
}

/// Returns the replicas' host and port.
fn replica_host(gateway: &Gateway) -> String {
    let url = gateway.serve.ready["replica_url"].as_str().unwrap();
    url.split(['@', '/']).nth(3).unwrap().to_owned()
}

fn connect_replica(gateway: &Gateway, database: &str) -> Result<Connection, SqlError> {
    let address =
        Address::Tcp { address: replica_host(gateway), password: gateway.serve.secret().to_owned() };
    Connection::open(&address, database, &[])
}

fn write(gateway: &Gateway, id: u32) {
    gateway.connect("app", "").unwrap().rows(&format!("INSERT INTO orders VALUES ({id})")).unwrap();
}

fn count(session: &mut Connection) -> String {
    session.value("SELECT count(*) FROM orders").unwrap()
}

fn act(gateway: &Gateway, action: &str, body: &str) -> (u16, Value) {
    gateway.http("POST", &format!("/v1/databases/app/{action}"), body)
}

fn assert_does(gateway: &Gateway, action: &str, body: &str) {
    let (code, answer) = act(gateway, action, body);
    assert_eq!(code, 204, "{action} {body}: {answer}");
}

fn set_lag(gateway: &Gateway, lag: &str) {
    assert_does(gateway, "replica", &format!("{{\"lag\": \"{lag}\"}}"));
}

fn replica_shows_commits_as_its_lag_says(major: u32) {
    let gateway = start(major, "server");
    let mut replica = connect_replica(&gateway, "app").unwrap();
    let facts = "SELECT current_database() || ' ' || pg_is_in_recovery()";
    assert_eq!(replica.value(facts).unwrap(), "app true");
    for id in 1..=20 {
        write(&gateway, id);
        assert_eq!(count(&mut replica), (id + 1).to_string());
    }
    assert_eq!(replica.rows("INSERT INTO orders VALUES (99)").unwrap_err().sqlstate, "25006");
    for lag in ["paused", "10min"] {
        set_lag(&gateway, lag);
        let before = count(&mut replica);
        write(&gateway, before.parse().unwrap());
        thread::sleep(Duration::from_millis(100));
        assert_eq!(count(&mut replica), before, "{lag}");
        set_lag(&gateway, "none");
        assert_ne!(count(&mut replica), before, "{lag}");
    }
    set_lag(&gateway, "paused");
    write(&gateway, 50);
    set_lag(&gateway, "1ms");
    wait_until("a delayed commit", || count(&mut replica) == "24");
    // The replica continues after its primary has restarted.
    set_lag(&gateway, "none");
    for (id, action) in [(51, "restart"), (52, "crash")] {
        assert_does(&gateway, action, "");
        write(&gateway, id);
        assert_eq!(count(&mut replica), (id - 26).to_string(), "{action}");
    }
    // A reset makes another server, whose replica doesn't lag.
    set_lag(&gateway, "paused");
    assert_eq!(gateway.reset("app").0, 204);
    assert!(replica.value("SELECT 1").is_err());
    write(&gateway, 1);
    assert_eq!(count(&mut connect_replica(&gateway, "app").unwrap()), "2");
}

fn promoted_replica_takes_the_primarys_place(major: u32) {
    let gateway = start(major, "server");
    let mut primary = gateway.connect("app", "").unwrap();
    let mut replica = connect_replica(&gateway, "app").unwrap();
    set_lag(&gateway, "paused");
    write(&gateway, 1);
    let mut busy = gateway.connect("app", "").unwrap();
    busy.send(b'Q', b"INSERT INTO orders SELECT 99 FROM pg_sleep(3600)\0").unwrap();
    assert_does(&gateway, "promote", "");
    assert_eq!(primary.value("SELECT 1").unwrap_err().sqlstate, "57P01");
    let (tag, body) = busy.read().unwrap();
    assert_eq!((tag, pgwire::ErrorResponse::read(&body).sqlstate.as_ref()), (b'E', "57P01"));
    let refusal = gateway.connect("app", "").map(drop).unwrap_err();
    assert_eq!(refusal.sqlstate, "57P03", "{refusal}");
    // Nothing that the primary has committed is lost.
    assert_eq!(count(&mut replica), "2");
    replica.rows("INSERT INTO orders VALUES (2)").unwrap();
    for (action, body) in [("promote", ""), ("replica", r#"{"lag": "none"}"#)] {
        let (code, answer) = act(&gateway, action, body);
        assert_eq!((code, answer["error"]["code"].as_str()), (409, Some("57P03")), "{answer}");
    }
    // The promoted server belongs to the lease.
    let (code, answer) = gateway.http("GET", "/v1/databases/app/diff", "");
    assert_eq!(code, 200, "{answer}");
    for action in ["restart", "crash"] {
        assert_does(&gateway, action, "");
        assert_eq!(count(&mut connect_replica(&gateway, "app").unwrap()), "3");
    }
    assert_eq!(gateway.reset("app").0, 204);
    assert_eq!(count(&mut gateway.connect("app", "").unwrap()), "1");
    assert_eq!(count(&mut connect_replica(&gateway, "app").unwrap()), "1");
}

/// A replica whose replay is paused or delayed doesn't reconnect to its primary, whatever ended the connection.
fn promoted_replica_has_every_commit(major: u32) {
    let gateway = start(major, "server");
    let mut random = Random::new();
    for _ in 0..depth::rounds(5) {
        let mut done = vec!["paused", "restart"];
        done.extend((0..random.below(6)).map(|_| {
            *random.choose(&["none", "1ms", "500ms", "10min", "paused", "restart", "crash", "cut", "switch"])
        }));
        write(&gateway, 1);
        let mut commits = 2;
        for step in &done {
            match *step {
                "restart" | "crash" => assert_does(&gateway, step, ""),
                "cut" | "switch" => {
                    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_replication";
                    let sql = if *step == "cut" { cut } else { "SELECT pg_switch_wal()" };
                    gateway.connect("app", "").unwrap().rows(sql).unwrap();
                }
                lag => set_lag(&gateway, lag),
            }
            write(&gateway, commits);
            commits += 1;
        }
        if random.chance(30) {
            assert_does(&gateway, "stop", "");
            done.push("stop");
        }
        assert_does(&gateway, "promote", "");
        let mut promoted = connect_replica(&gateway, "app").unwrap();
        assert_eq!(count(&mut promoted), commits.to_string(), "PostgreSQL {major}: {done:?}");
        assert_eq!(gateway.reset("app").0, 204);
    }
}

fn copy_stands_in_for_other_leases(major: u32) {
    for isolation in ["clone", "rollback"] {
        let gateway = start(major, isolation);
        write(&gateway, 1);
        let mut replica = connect_replica(&gateway, "app").unwrap();
        for setting in ["in_hot_standby", "default_transaction_read_only"] {
            let reported: Vec<_> = replica.parameters.iter().filter(|(name, _)| name == setting).collect();
            assert!(matches!(reported[..], [(_, value)] if value == "on"), "{isolation}: {reported:?}");
        }
        assert_eq!(count(&mut replica), "1", "{isolation}");
        assert_eq!(replica.rows("INSERT INTO orders VALUES (9)").unwrap_err().sqlstate, "25006");
        for (action, body) in [("promote", ""), ("replica", r#"{"lag": "paused"}"#)] {
            let (code, answer) = act(&gateway, action, body);
            assert_eq!((code, answer["error"]["remedy"].as_str()), (409, Some("use_server")), "{answer}");
        }
        // A reset also undoes the work of a session that has made itself writable.
        replica.rows("SET transaction_read_only = off; INSERT INTO orders VALUES (9)").unwrap();
        assert_eq!(count(&mut replica), "2", "{isolation}");
        assert_eq!(gateway.reset("app").0, 204);
        let mut replica = connect_replica(&gateway, "app").unwrap();
        assert_eq!(count(&mut replica), "1", "{isolation}");
        // The copy's sessions end with the lease, which in rollback isolation begins again with a session.
        gateway.connect("app", "").unwrap().close();
        assert_eq!(gateway.http("DELETE", "/v1/databases/app", "").0, 204, "{isolation}");
        wait_until("the end of the copy", || replica.value("SELECT 1").is_err());
    }
}

/// Returns the process ID of the replica's postmaster.
fn postmaster(gateway: &Gateway) -> Pid {
    let data = connect_replica(gateway, "app").unwrap().value("SHOW data_directory").unwrap();
    let pid = fs::read_to_string(format!("{data}/postmaster.pid")).unwrap();
    Pid::from_raw(pid.lines().next().unwrap().parse().unwrap()).unwrap()
}

#[test]
fn dead_replica_is_named_at_once() {
    let gateway = start(15, "server");
    kill_process(postmaster(&gateway), Signal::KILL).unwrap();
    for _ in 0..20 {
        let refusal = connect_replica(&gateway, "app").map(drop).unwrap_err();
        assert_eq!(refusal.sqlstate, "57P03", "{refusal}");
    }
    for (action, body) in [
        ("replica", r#"{"lag": "paused"}"#),
        ("replica", r#"{"lag": "none"}"#),
        ("replica", r#"{"lag": "500ms"}"#),
        ("promote", ""),
    ] {
        let (_, answer) = act(&gateway, action, body);
        assert_eq!(answer["error"]["code"], "57P03", "{body}: {answer}");
        assert_eq!(
            answer["error"]["message"], "the replica of database \"app\" has ended",
            "{body}: {answer}"
        );
    }
    write(&gateway, 1);
    assert_eq!(gateway.reset("app").0, 204);
    assert_eq!(count(&mut connect_replica(&gateway, "app").unwrap()), "1");
}

#[test]
fn replica_may_die_while_its_lag_changes() {
    let gateway = start(15, "server");
    let mut random = Random::new();
    for round in 0..depth::rounds(2) {
        let postmaster = postmaster(&gateway);
        let end = random.moment(Duration::from_millis(100));
        let changes: Vec<_> = (0..100).map(|_| *random.choose(&["none", "paused", "1ms"])).collect();
        let last = thread::scope(|scope| {
            let gateway = &gateway;
            let changes = scope.spawn(move || {
                let change = |lag: &&str| act(gateway, "replica", &format!("{{\"lag\": \"{lag}\"}}"));
                changes.iter().map(change).find(|(code, _)| *code != 204)
            });
            thread::sleep(end);
            kill_process(postmaster, Signal::KILL).unwrap();
            changes.join().unwrap()
        });
        let (_, answer) = last.unwrap_or_else(|| act(&gateway, "replica", r#"{"lag": "none"}"#));
        assert_eq!(answer["error"]["code"], "57P03", "{answer}");
        // Commits don't wait for the dead replica.
        write(&gateway, round + 1);
        assert_eq!(gateway.reset("app").0, 204);
    }
}

#[test]
fn replica_refuses_what_it_cannot_do() {
    let plain = Gateway::start(15, TEMPLATE, &["--isolation", "server"]);
    assert_eq!(plain.serve.ready["replica_url"], Value::Null);
    plain.connect("app", "").unwrap().close();
    let (code, answer) = act(&plain, "promote", "");
    assert_eq!((code, answer["error"]["code"].as_str()), (409, Some("0A000")), "{answer}");
    let gateway = start(15, "server");
    for lag in ["", "5", "25d", "577h", "Paused"] {
        let (code, answer) = act(&gateway, "replica", &format!("{{\"lag\": \"{lag}\"}}"));
        assert_eq!((code, answer["error"]["code"].as_str()), (400, Some("22023")), "{lag}: {answer}");
    }
    let (code, answer) = gateway.http("POST", "/v1/databases/other/replica", r#"{"lag": "none"}"#);
    assert_eq!((code, answer["error"]["code"].as_str()), (409, Some("0A000")), "{answer}");
    let scene = scene(User::Ourselves);
    scene.write("pgfresh.toml", "[template]\nsetup = \"true\"\nreplicas = 1\n");
    let words = ["run", "--isolation", "server", "--", ground::psql(), "-XAtqc", "SELECT 1"];
    let outcome = scene.run(words);
    assert!(outcome.stderr.contains("cannot start a replica from template \"app\""), "{outcome}");
    scene.write("pgfresh.toml", "[template]\nsql = \"template.sql\"\nreplicas = 2\n");
    let outcome = scene.run(["run", "--", "true"]);
    assert!(
        outcome.stderr.contains("pgfresh.toml:3: bad value for \"replicas\": expected 0 or 1"),
        "{outcome}"
    );
}

#[test]
fn every_user_gets_a_replica() {
    for &user in User::all() {
        let scene = scene(user);
        let script = "exec \"$0\" \"$DATABASE_REPLICA_URL\" -XAtqc 'SELECT pg_is_in_recovery()'";
        let words = ["run", "--isolation", "server", "--", "sh", "-c", script, ground::psql()];
        let outcome = scene.run(words);
        assert!(outcome.code == Some(0) && outcome.stdout == "t\n", "{user:?}: {outcome}");
        scene.assert_nothing_left(format!("{user:?}"));
    }
}

#[test]
fn failed_test_names_its_reads_of_lagging_replica() {
    let gateway = start(15, "server");
    let mut replica = connect_replica(&gateway, "app").unwrap();
    replica.rows("SELECT 'before'").unwrap();
    set_lag(&gateway, "paused");
    replica.rows("BEGIN; SELECT 'during'; COMMIT").unwrap();
    let path = "/v1/databases/app?failed=true&test=test_total";
    let (code, answer) = gateway.http("DELETE", path, "");
    assert_eq!(code, 200, "{answer}");
    let expected = serde_json::json!([{ "statement": "SELECT 'during'", "lag": "paused" }]);
    assert_eq!(answer["lagging_statements"], expected, "{answer}");
    let scene = scene(User::Ourselves);
    let script = r#"api() { curl -fsS -o /dev/null -H "Authorization: Bearer $PGPASSWORD" -X "$@"; }
        "$0" -XAtqc 'SELECT 1'
        api POST -d '{"lag": "500ms"}' "http://$PGHOST:$PGPORT/v1/databases/app/replica"
        "$0" "$DATABASE_REPLICA_URL" -XAtqc 'SELECT count(*) FROM orders'
        api DELETE "http://$PGHOST:$PGPORT/v1/databases/app?failed=true&test=test_total""#;
    let words = ["run", "--isolation", "server", "--linger", "60s", "--", "sh", "-c", script, ground::psql()];
    let outcome = scene.run(words);
    let report = "pgfresh: a failed test has read from a replica that lagged\n\
        test_total:\n  SELECT count(*) FROM orders (lag 500ms)\n";
    assert!(outcome.code == Some(0) && outcome.stderr.ends_with(report), "{outcome}");
}

/// Returns the output of a program that connects to a URL, without the final newline.
fn reached(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Asserts that libpq, pgx and pgjdbc reach the server `wanted` with a URL that has both hosts.
fn assert_reach(gateway: &Gateway, wanted: &str, by_libpq: &str, by_jdbc: &str) {
    let hosts = format!("{},{}", gateway.serve.address(), replica_host(gateway));
    let secret = gateway.serve.secret();
    let url =
        format!("postgresql://postgres:{secret}@{hosts}/app?sslmode=disable&target_session_attrs={by_libpq}");
    let sql = "SELECT current_database(), pg_is_in_recovery()";
    let psql = reached(Command::new(ground::psql()).args([&url, "-XAtqc", sql]));
    let word = if wanted.ends_with(" true") { "t" } else { "f" };
    assert_eq!(psql, wanted.split(' ').next().unwrap().to_owned() + "|" + word, "{by_libpq}");
    assert_eq!(reached(Command::new(drivers::installed("go/drivers")).arg(&url)), wanted, "{by_libpq}");
    let jdbc =
        format!("jdbc:postgresql://{hosts}/app?user=postgres&password={secret}&targetServerType={by_jdbc}");
    let mut java = Command::new("java");
    java.arg("-cp").arg(drivers::installed("java/postgresql.jar")).arg(drivers::source("java/Reach.java"));
    assert_eq!(reached(java.arg(jdbc)), wanted, "{by_jdbc}");
}

#[test]
fn drivers_find_the_right_one_of_two_hosts() {
    let gateway = start(15, "server");
    gateway.connect("app", "").unwrap().close();
    assert_reach(&gateway, "app false", "read-write", "primary");
    assert_reach(&gateway, "app true", "standby", "secondary");
    assert_does(&gateway, "promote", "");
    assert_reach(&gateway, "app false", "read-write", "primary");
    drop(gateway);
    let gateway = start(15, "clone");
    gateway.connect("app", "").unwrap().close();
    assert_reach(&gateway, "app false", "read-write", "primary");
    assert_reach(&gateway, "pgfresh_replica_app false", "read-only", "secondary");
}
