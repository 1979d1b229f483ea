//! Tests which kind of lease clients get, and when it ends, if several clients request the same name
//! with different options.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use serde_json::json;
use sys::lock;

use crate::common::connection::Connection;
use crate::common::gateway::Gateway;
use crate::common::random::Random;
use crate::common::serve::Serve;
use crate::common::{Scene, User, on_every_major, postgres, wait_until};

on_every_major! {
    a_name_gets_the_requested_template
    databases_marked_as_template_are_dropped
    clients_may_disconnect_during_a_close
    new_sessions_do_not_delay_a_close
    busy_clients_get_an_error_when_closed
    closing_sessions_works_without_linger
    names_of_ended_clients_allow_any_isolation
    one_of_several_snapshots_per_name_succeeds
}

/// Starts a gateway with two templates. Each has a table whose name contains the template's name.
fn with_two_templates(major: u32, options: &[&str]) -> Gateway {
    let scene = Scene::new(User::Ourselves);
    scene.write("pgfresh.toml", "[template.a]\nsql = \"a.sql\"\n[template.c]\nsql = \"c.sql\"\n");
    for name in ["a", "c"] {
        scene.write(&format!("{name}.sql"), &format!("CREATE TABLE of_{name} (v text)"));
    }
    let postgres = postgres(major);
    let words = [&["--postgres", &postgres, "--template", "a,c"], options].concat();
    Gateway { serve: Serve::at(scene, words), major }
}

/// Returns the name of the template that a session's database was copied from.
fn template_of(session: &mut Connection) -> String {
    session.value("SELECT relname FROM pg_class WHERE relname LIKE 'of\\__' AND relkind = 'r'").unwrap()
}

fn a_name_gets_the_requested_template(major: u32) {
    let gateway = with_two_templates(major, &["--linger", "60s"]);
    for isolation in ["clone", "rollback"] {
        let options = |words: &str| format!("-cpgfresh.isolation={isolation} {words}");
        let connect = |words: &str| gateway.connect(isolation, &options(words));
        let mut session = connect("-cpgfresh.template=a").unwrap();
        assert_eq!(template_of(&mut session), "of_a");
        let refused = || {
            let error = connect("-cpgfresh.template=c").map(drop).unwrap_err();
            let message = format!("database \"{isolation}\" is leased from template \"a\", not \"c\"");
            assert_eq!((&*error.sqlstate, error.message), ("55006", message));
        };
        refused();
        session.close();
        refused();
        // All sessions in a rollback lease have the same startup parameters.
        for words in ["-cpgfresh.template=a", ""].into_iter().take(if isolation == "clone" { 2 } else { 1 }) {
            let mut joined = connect(words).unwrap();
            assert_eq!(template_of(&mut joined), "of_a");
            joined.close();
        }
        let mut session = connect("-cpgfresh.template=c -cpgfresh.reset=on").unwrap();
        assert_eq!(template_of(&mut session), "of_c");
    }
    for isolation in ["clone", "rollback"] {
        let name = format!("http_{isolation}");
        let lease = |template: &str| {
            let body =
                format!(r#"{{"name": "{name}", "template": "{template}", "isolation": "{isolation}"}}"#);
            gateway.http("POST", "/v1/databases", &body).0
        };
        assert_eq!((lease("a"), lease("c")), (201, 409));
        let error = gateway.connect(&name, "-cpgfresh.template=c").map(drop).unwrap_err();
        assert_eq!(error.sqlstate, "55006", "{error}");
        let mut session = gateway.connect(&name, "").unwrap();
        assert_eq!(template_of(&mut session), "of_a");
    }
}

/// The test repeats this more often than the server has space for databases marked as templates.
fn databases_marked_as_template_are_dropped(major: u32) {
    let gateway = Gateway::start(major, "CREATE TABLE t (v text)", &["--space", "64MB", "--linger", "0"]);
    for number in 0..8 {
        let name = format!("test_{number}");
        let mut session = gateway.connect(&name, "").unwrap();
        session.rows(&format!("ALTER DATABASE {name} IS_TEMPLATE true")).unwrap();
        session.close();
    }
    assert_eq!(gateway.status()["errors"], serde_json::json!({}), "{}", gateway.status());
}

fn clients_may_disconnect_during_a_close(major: u32) {
    let gateway = Gateway::start(major, "CREATE TABLE t (v text)", &["--linger", "60s"]);
    let mut random = Random::new();
    for round in 0..150 {
        let isolation = *random.choose(&["clone", "rollback", "rollback"]);
        let (name, sessions) = (format!("{isolation}_{}", round % 3), 1 + random.below(3));
        let sessions = if isolation == "clone" { sessions } else { 1 };
        let options = format!("-cpgfresh.isolation={isolation}");
        let mut sessions: Vec<_> = (0..sessions).map(|_| gateway.connect(&name, &options).unwrap()).collect();
        for session in &mut sessions {
            let sql = *random.choose(&["SELECT 1", "INSERT INTO t VALUES (1)", "BEGIN", "LISTEN l"]);
            session.rows(sql).unwrap();
        }
        let stays = random.moment(Duration::from_millis(2));
        let (code, answer) = thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(stays);
                drop(sessions);
            });
            if random.chance(50) {
                gateway.reset(&name)
            } else {
                gateway.http("DELETE", &format!("/v1/databases/{name}"), "")
            }
        });
        assert_eq!(code, 204, "{name}: {answer}");
    }
    assert_eq!((&gateway.status()["errors"], gateway.dropped()), (&json!({}), json!({})));
}

/// A session can belong to a lease before it has a backend that pgfresh can end.
fn new_sessions_do_not_delay_a_close(major: u32) {
    let gateway = Gateway::start(major, "CREATE TABLE t (v text)", &["--linger", "60s"]);
    let mut random = Random::new();
    for round in 0..20 {
        let isolation =
            if round % 5 == 4 { "server" } else { *random.choose(&["clone", "clone", "rollback"]) };
        let (name, options) = (format!("{isolation}_{round}"), format!("-cpgfresh.isolation={isolation}"));
        let stay = Mutex::new(vec![gateway.connect(&name, &options).unwrap()]);
        let join = || {
            if let Ok(session) = gateway.connect(&name, &options) {
                lock(&stay).push(session);
            }
        };
        // In rollback isolation, a lease without sessions ends when it is reset. pgfresh rejects a close if
        // a session doesn't end.
        let is_served = |code: u16| assert!([204, 404].contains(&code), "{name}: {code}");
        let reset = || is_served(gateway.reset(&name).0);
        let release = || is_served(gateway.http("DELETE", &format!("/v1/databases/{name}"), "").0);
        thread::scope(|scope| {
            let acts: [&(dyn Fn() + Sync); 4] = [&reset, &join, &join, &release];
            for act in acts {
                let moment = random.moment(Duration::from_millis(3));
                scope.spawn(move || {
                    thread::sleep(moment);
                    act();
                });
            }
        });
    }
    assert_eq!(gateway.status()["errors"], json!({}));
}

/// The server can close the connection while it receives a statement. The client might then lose the
/// error, as on any server.
fn busy_clients_get_an_error_when_closed(major: u32) {
    let gateway = Gateway::start(major, "CREATE TABLE t (v text)", &["--linger", "60s"]);
    for round in 0..20 {
        let isolation = ["clone", "rollback"][round % 2];
        let mut session = gateway.connect("busy", &format!("-cpgfresh.isolation={isolation}")).unwrap();
        let (began, is_busy) = mpsc::channel();
        let (sqlstate, code) = thread::scope(|scope| {
            let client = scope.spawn(move || {
                session.rows("SELECT 1").unwrap();
                began.send(()).unwrap();
                loop {
                    if let Err(error) = session.rows("INSERT INTO t VALUES ('x')") {
                        return error.sqlstate;
                    }
                }
            });
            is_busy.recv().unwrap();
            let code = gateway.http("DELETE", "/v1/databases/busy", "").0;
            (client.join().unwrap(), code)
        });
        assert!(["57P01", "08006"].contains(&&*sqlstate), "{isolation}: {sqlstate}");
        assert_eq!(code, 204, "{isolation}");
    }
}

fn closing_sessions_works_without_linger(major: u32) {
    let gateway = Gateway::start(major, "CREATE TABLE t (v text)", &["--linger", "0"]);
    let requests = [
        ("DELETE", "", "", 204),
        ("POST", "/reset", r#"{"close_sessions": true}"#, 204),
        ("POST", "/snapshot", r#"{"template": "seen", "close_sessions": true}"#, 201),
    ];
    for isolation in ["clone", "rollback"] {
        for (at, (method, path, body, expected)) in requests.into_iter().enumerate() {
            let can = isolation == "clone" || at < 2;
            for round in 0..if at == 2 { 1 } else { 5 } {
                let name = format!("{isolation}_{at}_{round}");
                let mut session =
                    gateway.connect(&name, &format!("-cpgfresh.isolation={isolation}")).unwrap();
                session.rows("INSERT INTO t VALUES ('important')").unwrap();
                let answer = gateway.http(method, &format!("/v1/databases/{name}{path}"), body);
                assert!(!can || answer.0 == expected, "{method} {name}{path}: {answer:?}");
            }
        }
    }
}

/// Includes sessions that continue without their client.
fn names_of_ended_clients_allow_any_isolation(major: u32) {
    let gateway = Gateway::start(major, "CREATE TABLE t (v text)", &["--linger", "0"]);
    for (first, next) in [("clone", "rollback"), ("rollback", "clone"), ("clone", "clone")] {
        for (statement, waits) in [("INSERT INTO t VALUES ('x')", true), ("SELECT pg_sleep(3600)", false)] {
            let name = format!("{first}_{next}_{waits}");
            let mut session = gateway.connect(&name, &format!("-cpgfresh.isolation={first}")).unwrap();
            if waits {
                session.rows(statement).unwrap();
            } else {
                session.send(b'Q', format!("{statement}\0").as_bytes()).unwrap();
            }
            drop(session);
            let mut session = gateway.connect(&name, &format!("-cpgfresh.isolation={next}")).unwrap();
            assert_eq!(session.value("SELECT count(*) FROM t").unwrap(), "0", "{name}");
        }
    }
}

#[test]
fn parallel_resets_of_used_names_fail() {
    let gateway = Gateway::start(15, "CREATE TABLE t (v text)", &[]);
    let _session = gateway.connect("busy", "").unwrap();
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let (status, answer) = gateway.http("POST", "/v1/databases/busy/reset", "{}");
                assert_eq!(status, 409, "{answer}");
            });
        }
        thread::sleep(Duration::from_millis(100));
        gateway.connect("busy", "").unwrap();
    });
}

/// Concurrently snapshots several databases, each more than once, under the same name. One snapshot becomes the
/// template, and the others fail because the template exists.
fn one_of_several_snapshots_per_name_succeeds(major: u32) {
    let gateway = Gateway::start(major, "CREATE TABLE t (v int)", &["--linger", "60s"]);
    for number in 0..3 {
        let mut session = gateway.connect(&format!("source_{number}"), "").unwrap();
        session.rows(&format!("INSERT INTO t VALUES ({number})")).unwrap();
        session.close();
    }
    for round in 0..4 {
        let template = format!("taken_{round}");
        let snapshot = |number: usize| {
            let body = format!("{{\"template\": \"{template}\", \"close_sessions\": true}}");
            (number, gateway.http("POST", &format!("/v1/databases/source_{number}/snapshot"), &body))
        };
        let answers: Vec<_> = thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|client| scope.spawn(move || snapshot(client % 3))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let (made, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|(_, (status, _))| *status == 201);
        let [(number, _)] = made[..] else { panic!("{answers:?}") };
        for (_, (status, problem)) in refused {
            let error = &problem["error"];
            assert_eq!((*status, &error["code"]), (409, &json!("42P04")), "{error}");
            let message =
                format!("cannot use \"{template}\" as a name: a template with this name already exists");
            assert_eq!(error["message"], message);
        }
        let mut copy =
            gateway.connect(&format!("copy_{round}"), &format!("-cpgfresh.template={template}")).unwrap();
        assert_eq!(copy.value("SELECT string_agg(v::text, ',') FROM t").unwrap(), number.to_string());
        copy.close();
    }
    assert_eq!(gateway.status()["errors"], json!({}), "background tasks failed");
}

/// If no client receives a lease's name, the lease would otherwise last until the server ends.
#[test]
fn clients_without_their_answer_leave_no_lease() {
    let serve = Serve::at(Scene::new(User::Ourselves), [""; 0]);
    let (address, secret) = (serve.address(), serve.secret());
    let request = format!(
        "POST /v1/databases HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {secret}\r\nContent-Length: 0\r\n\r\n"
    );
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let mut client = TcpStream::connect(&address).unwrap();
                    client.write_all(request.as_bytes()).unwrap();
                }
            });
        }
    });
    let leased = || {
        let mut client = TcpStream::connect(&address).unwrap();
        let status = request.replace("POST /v1/databases", "GET /v1/status");
        client.write_all(status.replace("Content", "Connection: close\r\nContent").as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer.split("\"leases\":").nth(1).unwrap().starts_with("[]")
    };
    wait_until("the end of leases that no client knows", leased);
}
