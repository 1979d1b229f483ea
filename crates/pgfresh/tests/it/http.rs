//! Tests the HTTP interface of `pgfresh serve`: it leases, resets, keeps and releases databases, serves integresql's
//! clients, reports its state, and rejects clients without the secret.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::common::serve::Serve;
use crate::common::{Scene, User, WAIT_TIMEOUT, as_root, ground, wait_until};
use serde_json::{Value, json};

/// User ID of another user.
const OTHER_UID: u32 = 65_534;

fn start() -> Serve {
    Serve::at(Scene::new(User::Ourselves), [""; 0])
}

impl Serve {
    /// Sends a request with `headers` and `Host`. Returns the stream with the response.
    fn send(&self, request: &str, headers: &[&str], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        stream.write_all(self.wording(request, headers, body).as_bytes()).unwrap();
        stream
    }

    fn wording(&self, request: &str, headers: &[&str], body: &str) -> String {
        let host = if headers.iter().any(|header| header.starts_with("Host:")) {
            String::new()
        } else {
            format!("Host: {}\r\n", self.address())
        };
        let headers: String = headers.iter().flat_map(|header| [header, "\r\n"]).collect();
        let length = body.len();
        format!(
            "{request} HTTP/1.1\r\n{host}{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    }

    /// Sends a request with `headers`, and waits for the complete response.
    fn ask(&self, request: &str, headers: &[&str], body: &str) -> Answer {
        let mut text = String::new();
        self.send(request, headers, body).read_to_string(&mut text).unwrap();
        Answer::read(&text)
    }

    /// Sends a request with the token.
    fn call(&self, request: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.ask(request, &[&format!("Authorization: Bearer {}", self.secret())], &body)
    }

    /// Becomes a holder until the caller drops the reader. Returns the reader and the holder's name.
    fn hold(&self) -> (BufReader<TcpStream>, String) {
        let token = format!("Authorization: Bearer {}", self.secret());
        let mut answer = BufReader::new(self.send("GET /v1/hold", &[&token], ""));
        let mut line = String::new();
        while !line.starts_with("{\"holder\"") {
            line.clear();
            assert!(answer.read_line(&mut line).unwrap() > 0, "the name of a holder");
        }
        let said: Value = serde_json::from_str(&line).unwrap();
        (answer, said["holder"].as_str().unwrap().to_owned())
    }

    /// Leases a database. Returns the response body.
    fn lease(&self, request: &Value) -> Value {
        let answer = self.call("POST /v1/databases", request);
        assert_eq!(answer.status, 201, "{request}: {answer:?}");
        answer.json()
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Self { status: status.unwrap_or(0), head: head.to_lowercase(), body: body.to_owned() }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the SQLSTATE in an error response.
    fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// Runs `sql` in the database at `url`. Returns the output, or the error.
fn psql(url: &str, sql: &str) -> String {
    let output = Command::new(ground::psql()).args([url, "-XAtqc", sql]).output().unwrap();
    let text = if output.status.success() { output.stdout } else { output.stderr };
    String::from_utf8(text).unwrap().trim().to_owned()
}

#[test]
fn leased_servers_restart_stop_and_crash() {
    let serve = start();
    let leased = serve.lease(&json!({ "name": "mine", "isolation": "server" }));
    let (url, socket) = (leased["url"].as_str().unwrap(), leased["socket_url"].as_str().unwrap());
    assert_eq!(serve.call("POST /v1/databases", &json!({ "name": "mine" })).code(), "42P04");
    let does = |what: &str| serve.call(&format!("POST /v1/databases/mine/{what}"), &Value::Null).status;
    assert_eq!(
        psql(url, "CREATE ROLE only_here; CREATE TABLE t AS SELECT 1 a; SELECT current_database()"),
        "mine"
    );
    assert_eq!(psql(url, "CREATE UNLOGGED TABLE u AS SELECT 1 a"), "");
    assert_eq!(psql(url, "ALTER SYSTEM SET work_mem = '7MB'"), "");
    // The setting doesn't affect another session, not even on another server.
    let other = serve.lease(&json!({ "isolation": "server" }));
    for url in [serve.ready["url"].as_str().unwrap(), other["url"].as_str().unwrap()] {
        assert_eq!(psql(url, "SELECT count(*) FROM pg_roles WHERE rolname = 'only_here'"), "0");
    }
    let state = "SELECT current_setting('work_mem'), (SELECT count(*) FROM t), (SELECT count(*) FROM u)";
    assert_eq!((psql(url, state).as_str(), does("restart")), ("4MB|1|1", 204));
    assert_eq!((psql(url, state).as_str(), does("crash")), ("7MB|1|1", 204));
    assert_eq!(psql(url, state), "7MB|1|0", "recovery empties what is not logged");
    assert_eq!(does("stop"), 204);
    assert!(psql(url, "SELECT 1").contains("the server of database \"mine\" is stopped"));
    assert_eq!((does("restart"), psql(socket, state).as_str()), (204, "7MB|1|0"));
    assert_eq!((does("reset"), psql(url, "SELECT to_regclass('t') IS NULL").as_str()), (204, "t"));
    assert_eq!(psql(url, "ALTER SYSTEM SET shared_preload_libraries = 'nothing_like_it'"), "");
    assert_eq!(does("restart"), 500);
    let refused = psql(url, "SELECT 1");
    assert!(refused.contains("the server of database \"mine\" did not restart"), "{refused}");
    assert!(refused.contains("nothing_like_it"), "the reason stays: {refused}");
    assert_eq!((does("reset"), psql(url, "SELECT 1").as_str()), (204, "1"));
    assert_eq!(serve.call("DELETE /v1/databases/mine", &Value::Null).status, 204);
    assert_eq!(does("crash"), 409, "it has no server of its own any more");

    let plain = url.replace("/mine", "/asked");
    let asked = format!("{plain}?options=-cpgfresh.isolation%3Dserver");
    assert_eq!(psql(&asked, "CREATE ROLE only_there; SELECT current_database()"), "asked");
    assert_eq!(psql(&plain, "SELECT count(*) FROM pg_roles WHERE rolname = 'only_there'"), "1");
}

#[test]
fn a_database_is_leased_reset_kept_and_released() {
    let serve = start();
    let leased = serve.lease(&json!({ "name": "shop", "template": "template1" }));
    assert_eq!([&leased["name"], &leased["template"]], [&json!("shop"), &json!("template1")]);
    let (url, socket) = (leased["url"].as_str().unwrap(), leased["socket_url"].as_str().unwrap());
    assert!(leased["jdbc_url"].as_str().unwrap().starts_with("jdbc:postgresql://127.0.0.1:"), "{leased}");
    assert_eq!(psql(socket, "CREATE TABLE a AS SELECT 1 b; SELECT current_database()"), "shop");
    // The socket belongs to the gateway, so connecting to an unused name makes a database.
    assert_eq!(psql(&socket.replacen("shop", "another", 1), "SELECT current_database()"), "another");
    assert_eq!(psql(url, "SELECT count(*) FROM a"), "1");

    let kept = json!({ "template": "seeded", "close_sessions": true });
    assert_eq!(serve.call("POST /v1/databases/shop/snapshot", &kept).status, 201);
    assert_eq!(serve.call("POST /v1/databases/shop/snapshot", &kept).code(), "42P04");
    let seeded = serve.lease(&json!({ "template": "seeded" }));
    assert_eq!(psql(seeded["url"].as_str().unwrap(), "SELECT b FROM a"), "1");

    let reset = serve.call("POST /v1/databases/shop/reset", &json!({ "close_sessions": true }));
    assert_eq!((reset.status, reset.body.as_str()), (204, ""));
    assert_eq!(psql(url, "SELECT to_regclass('a') IS NULL"), "t");

    let gone = |name: &str| serve.call(&format!("DELETE /v1/databases/{name}"), &Value::Null);
    assert_eq!(gone("shop").status, 204);
    let twice = gone("shop");
    assert_eq!((twice.status, twice.code().as_str()), (404, "3D000"));
}

#[test]
fn released_leases_leave_their_holder() {
    let serve = start();
    let (holding, holder) = serve.hold();
    for name in ["orders", "last"] {
        serve.lease(&json!({ "name": name, "holder": holder }));
    }
    assert_eq!(serve.call("DELETE /v1/databases/orders", &Value::Null).status, 204);
    let (_other, other) = serve.hold();
    serve.lease(&json!({ "name": "orders", "holder": other }));
    drop(holding);
    let is_leased = |name: &str| serve.call(&format!("GET /v1/databases/{name}"), &Value::Null).status == 200;
    // pgfresh releases the holder's leases in the order of their start.
    wait_until("the end of the holder's last lease", || !is_leased("last"));
    assert!(is_leased("orders"), "it is another client's");
}

/// Some clients close their sending direction, such as `printf … | nc -N`.
#[test]
fn half_closed_clients_keep_their_leases() {
    let serve = start();
    let token = format!("Authorization: Bearer {}", serve.secret());
    let rest = |mut stream: TcpStream| {
        stream.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    for (request, headers, body, status) in [
        ("GET /v1/status", &[&*token][..], "", 200),
        ("POST /v1/databases", &[&token], r#"{"name":"mine"}"#, 201),
        ("DELETE /v1/databases/mine", &[&token], "", 204),
        ("POST /v1/databases", &[&token], r#"{"isolation":"server"}"#, 201),
        ("POST /api/v1/templates", &[], r#"{"hash":"half"}"#, 200),
        ("PUT /api/v1/templates/half", &[], "", 204),
        ("GET /api/v1/templates/half/tests", &[], "", 200),
    ]
    .into_iter()
    .cycle()
    .take(21)
    {
        let answer = Answer::read(&rest(serve.send(request, headers, body)));
        if request.ends_with("/templates") && answer.status == 423 {
            continue;
        }
        assert_eq!(answer.status, status, "{request}: {answer:?}");
    }
    // The client sends several requests without waiting for responses.
    let status = serve.wording("GET /v1/status", &[&token], "").replace("Connection: close\r\n", "");
    let mut stream = TcpStream::connect(serve.address()).unwrap();
    stream.write_all(status.repeat(3).as_bytes()).unwrap();
    assert_eq!(rest(stream).matches("HTTP/1.1 200 OK").count(), 3);

    let (holding, holder) = serve.hold();
    holding.get_ref().shutdown(Shutdown::Write).unwrap();
    serve.lease(&json!({ "name": "held", "holder": holder }));
    let is_leased = || serve.call("GET /v1/databases/held", &Value::Null).status == 200;
    thread::sleep(Duration::from_secs(1));
    assert!(is_leased(), "its holder is still there");
    drop(holding);
    wait_until("the end of what is held", || !is_leased());
}

/// If the client has ended, its lease would otherwise take up space until the server ends.
#[test]
fn disconnects_with_unread_requests_are_noticed() {
    let serve = start();
    let (mut holding, holder) = serve.hold();
    serve.lease(&json!({ "name": "held", "holder": holder }));
    holding.get_mut().write_all(b"GET /v1/status HTTP/1.1\r\n").unwrap();
    drop(holding);
    wait_until("the end of what is held", || {
        serve.call("GET /v1/databases/held", &Value::Null).status == 404
    });
}

#[test]
fn leases_of_ended_holders_are_released() {
    let serve = start();
    let (holding, holder) = serve.hold();
    let token = format!("Authorization: Bearer {}", serve.secret());
    // A server takes longer than these durations to start.
    for (name, moment) in [("one", 10), ("two", 50)] {
        let wanted = json!({ "name": name, "isolation": "server", "holder": holder }).to_string();
        let request = serve.send("POST /v1/databases", &[&token], &wanted);
        thread::sleep(Duration::from_millis(moment));
        drop(request);
    }
    drop(holding);
    for name in ["one", "two"] {
        wait_until(name, || serve.call("POST /v1/databases", &json!({ "name": name })).status == 201);
    }
}

#[test]
fn keep_failed_records_last_statements() {
    let serve = Serve::at(Scene::new(User::Ourselves), ["--keep-failed"]);
    let look = |name: &str| serve.call(&format!("GET /v1/databases/{name}"), &Value::Null);
    let run = |answer: &Answer| -> Vec<String> {
        let all = answer.json()["statements"].as_array().unwrap().clone();
        all.iter().map(|ran| ran["statement"].as_str().unwrap().to_owned()).collect()
    };
    let url = serve.lease(&json!({ "name": "shop" }))["url"].as_str().unwrap().to_owned();
    assert_eq!(run(&look("shop")), [""; 0]);
    psql(&url, "CREATE TABLE a AS SELECT 1 b");
    psql(&url, "SELECT pg_sleep(0.05)");
    assert!(psql(&url, "TABLE nothing").contains("does not exist"));
    let seen = look("shop");
    assert_eq!(run(&seen), ["CREATE TABLE a AS SELECT 1 b", "SELECT pg_sleep(0.05)", "TABLE nothing"]);
    assert!(!seen.body.contains(serve.secret()), "the page's cookie, which is for looking, gets this too");
    let (seen, last) = (seen.json(), &seen.json()["statements"][2]);
    assert!(seen["statements"][1]["seconds"].as_f64().unwrap() >= 0.05, "{seen}");
    assert_eq!([&last["error"]["code"], &seen["template"]], [&json!("42P01"), &json!("template1")]);

    // Each lookup names a different test, and doesn't return statements from before a reset or before this lease.
    assert_eq!(serve.call("POST /v1/databases/shop/reset", &json!({})).status, 204);
    assert_eq!(run(&look("shop")), [""; 0]);
    (0..25).for_each(|number| drop(psql(&url, &format!("SELECT {number}"))));
    assert_eq!((run(&look("shop")).len(), run(&look("shop"))[19].as_str()), (20, "SELECT 24"));
    assert_eq!(serve.call("DELETE /v1/databases/shop", &Value::Null).status, 204);
    assert_eq!((look("shop").status, look("shop").code().as_str()), (404, "3D000"));
    serve.lease(&json!({ "name": "shop" }));
    assert_eq!(run(&look("shop")), [""; 0]);
    serve.lease(&json!({ "name": "rolled", "isolation": "rollback" }));
    psql(&url.replace("/shop", "/rolled"), "SELECT 'in rollback isolation'");
    assert_eq!(run(&look("rolled")), ["SELECT 'in rollback isolation'"]);

    // As on a PostgreSQL server, only the first 63 bytes of a name count.
    let long = "x".repeat(70);
    let url = serve.lease(&json!({ "name": long }))["url"].as_str().unwrap().to_owned();
    psql(&url, "SELECT 'in a long name'");
    assert_eq!(run(&look(&long)), ["SELECT 'in a long name'"]);

    let plain = start();
    plain.lease(&json!({ "name": "shop" }));
    assert!(plain.call("GET /v1/databases/shop", &Value::Null).json()["statements"].is_null());
}

#[test]
fn invalid_requests_get_clear_errors() {
    let serve = start();
    serve.lease(&json!({ "name": "leased" }));
    for (request, body, status, code) in [
        ("POST /v1/databases", json!({ "template": "nothing" }), 404, "3D000"),
        ("POST /v1/databases", json!({ "nmae": "a" }), 400, "22032"),
        ("POST /v1/databases", json!([]), 400, "22032"),
        ("POST /v1/databases", json!({ "name": "pgfresh_a" }), 400, "42602"),
        ("POST /v1/databases", json!({ "name": "" }), 400, "42602"),
        ("POST /v1/databases", json!({ "name": "a\0b" }), 400, "42602"),
        ("POST /v1/databases", json!({ "template": "a\0b" }), 400, "42602"),
        ("GET /v1/databases/a%00b", Value::Null, 400, "22021"),
        ("DELETE /v1/databases/a%00b", Value::Null, 400, "22021"),
        ("DELETE /v1/databases/%00?failed=true", Value::Null, 400, "22021"),
        ("POST /v1/databases/%00/reset", Value::Null, 400, "22021"),
        ("POST /v1/databases/%00/crash", Value::Null, 400, "22021"),
        ("POST /v1/databases/%00/snapshot", json!({ "template": "b" }), 400, "22021"),
        ("POST /v1/databases/leased/snapshot", json!({ "template": "a\0b" }), 400, "42602"),
        ("POST /v1/databases/leased/snapshot", json!({ "template": "a".repeat(64) }), 400, "42602"),
        ("POST /v1/databases/leased/snapshot", json!({ "template": "none" }), 400, "42602"),
        ("POST /api/v1/templates", json!({ "hash": "a\0b" }), 400, "22021"),
        ("PUT /api/v1/templates/%00", Value::Null, 400, "22021"),
        ("DELETE /api/v1/templates/a/tests/%00", Value::Null, 400, "22021"),
        ("POST /v1/databases", json!({ "isolation": "none" }), 400, "22023"),
        ("POST /v1/databases/a/reset", Value::Null, 404, "3D000"),
        ("POST /v1/databases/a/snapshot", json!({}), 400, "22032"),
        ("DELETE /v1/databases/%ff", Value::Null, 400, "22021"),
        ("GET /v1/databases", Value::Null, 405, "0A000"),
        ("GET /v2", Value::Null, 404, "42704"),
        ("POST /v1/databases", json!({ "name": "a".repeat(1 << 20) }), 413, "54000"),
    ] {
        let answer = serve.call(request, &body);
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{request}");
        assert!(!answer.json()["error"]["message"].as_str().unwrap().is_empty());
    }
    assert!(serve.call("GET /v1/databases", &Value::Null).head.contains("\r\nallow: post\r\n"));
}

#[test]
fn a_name_may_be_whatever_a_server_takes() {
    let serve = start();
    for name in ["\u{1}\t\n\u{7f}", "é ü\"'%/?#", &"é".repeat(40)] {
        let leased = serve.lease(&json!({ "name": name }));
        // Like a PostgreSQL server, pgfresh truncates names at 63 bytes, between two characters.
        let kept = leased["name"].as_str().unwrap();
        assert_eq!(kept, &name[..name.floor_char_boundary(63)]);
        assert_eq!(psql(leased["url"].as_str().unwrap(), "SELECT current_database()"), kept, "{name:?}");
    }
    let look = serve.call(&format!("GET /v1/databases/{}", "%C3%A9".repeat(40)), &Value::Null);
    assert_eq!(look.json()["name"], "é".repeat(31));
}

#[test]
fn integresql_is_spoken_as_its_clients_know_it() {
    let serve = start();
    let ask = |request: &str, body: &str| serve.ask(&request.replace('~', "/api/v1/templates"), &[], body);
    let named =
        |answer: &Answer| answer.json()["database"]["config"]["database"].as_str().unwrap().to_owned();

    assert_eq!(ask("GET ~/3f9a/tests", "").status, 404);
    let building = ask("POST ~", r#"{"hash":"3f9a"}"#);
    assert_eq!(building.status, 200, "{building:?}");
    let database = &building.json()["database"];
    assert_eq!(database["templateHash"], "3f9a");
    let config = json!({
        "host": "127.0.0.1",
        "port": serve.ready["port"],
        "username": "postgres",
        "password": serve.secret(),
        "database": named(&building),
    });
    assert_eq!(database["config"], config);
    let locked = ask("POST ~", r#"{"hash":"3f9a"}"#);
    assert_eq!((locked.status, &locked.json()["message"]), (423, &json!("template is already initialized")));

    // The session bypasses the gateway. The copy waits for sessions that end soon.
    let socket = serve.lease(&json!({ "name": "mine" }))["socket_url"].as_str().unwrap().to_owned();
    let name = named(&building);
    let at = |name: &str| socket.replacen("mine", name, 1);
    assert_eq!(psql(&at(&name), "CREATE TABLE a AS SELECT 7 b; SELECT current_database()"), name);

    thread::scope(|scope| {
        let waiting = scope.spawn(|| ask("GET ~/3f9a/tests", ""));
        assert_eq!(ask("PUT ~/3f9a", "null").status, 204);
        let test = waiting.join().unwrap();
        assert_eq!((test.status, &test.json()["id"]), (200, &json!(0)));
        assert_eq!(psql(&at(&named(&test)), "DELETE FROM a RETURNING b"), "7");
    });
    assert_eq!(ask("PUT ~/3f9a", "").status, 204, "again");
    assert_eq!(ask("GET ~/3f9a/tests", "").json()["id"], 1);
    for request in ["DELETE ~/3f9a/tests/0", "POST ~/3f9a/tests/1/unlock"] {
        assert_eq!(ask(request, "").status, 204, "{request}");
        assert_eq!(ask(request, "").status, 404, "{request} again");
    }
    let again = ask("GET ~/3f9a/tests", "");
    assert_eq!(again.json()["id"], 0);
    assert_eq!(psql(&at(&named(&again)), "SELECT b FROM a"), "7", "a number that came back is fresh");
    assert_eq!(ask("POST ~/3f9a/tests/0/recreate", "").status, 204);
    assert_eq!(ask("DELETE ~/3f9a/tests/x", "").status, 400);
    assert_eq!(ask("DELETE ~/3f9a", "").status, 204);
    assert_eq!(ask("DELETE ~/3f9a", "").status, 404);
    let leases = serve.call("GET /v1/status", &Value::Null).json()["leases"].clone();
    assert_eq!(leases[0]["database"], "mine", "nothing else is left: {leases}");
    assert_eq!(leases[1], Value::Null, "nothing else is left: {leases}");
}

/// A connection pool might open further connections, even after its test has returned the database.
#[test]
fn late_integresql_clients_get_the_same_template() {
    let serve = start();
    let ask = |request: &str, body: &str| serve.ask(&request.replace('~', "/api/v1/templates"), &[], body);
    let named =
        |answer: &Answer| answer.json()["database"]["config"]["database"].as_str().unwrap().to_owned();
    let other = serve.lease(&json!({ "name": "mine" }))["url"].as_str().unwrap().to_owned();
    let at = |name: &str, sql: &str| psql(&other.replacen("/mine", &format!("/{name}"), 1), sql);
    let is_missing = |name: &str| {
        let said = at(name, "SELECT 1");
        assert!(said.ends_with(&format!("FATAL:  database \"{name}\" does not exist")), "{said}");
    };

    let building = named(&ask("POST ~", r#"{"hash":"late"}"#));
    at(&building, "CREATE TABLE a AS SELECT 7 b");
    assert_eq!(ask("PUT ~/late", "").status, 204);
    is_missing(&building);
    let test = named(&ask("GET ~/late/tests", ""));
    assert_eq!(at(&test, "DELETE FROM a RETURNING b"), "7");
    assert_eq!(ask("DELETE ~/late/tests/0", "").status, 204);
    is_missing(&test);
    let refused = serve.call("POST /v1/databases", &json!({ "name": test }));
    assert_eq!((refused.status, refused.code()), (400, "42602".to_owned()), "{refused:?}");

    let again = ask("GET ~/late/tests", "");
    assert_eq!((again.status, &again.json()["id"]), (200, &json!(0)), "{again:?}");
    assert_eq!(at(&test, "SELECT b FROM a"), "7", "the same name, and a fresh copy");
    // pgfresh skips a name that SQL has already used.
    let next = test.replace("test_0", "test_1");
    assert_eq!(at("postgres", &format!("CREATE DATABASE {next}")), "");
    let after = ask("GET ~/late/tests", "");
    assert_eq!((after.status, &after.json()["id"]), (200, &json!(2)), "{after:?}");
    assert_eq!(at(&named(&after), "SELECT b FROM a"), "7");
    assert_eq!(ask("DELETE ~/late/tests/1", "").status, 404);
}

/// Only one of the requests ends the lease. When the other requests arrive, the next client might
/// already have the database.
#[test]
fn parallel_returns_release_a_database_once() {
    let serve = start();
    let ask = |request: &str, body: &str| serve.ask(&request.replace('~', "/api/v1/templates"), &[], body);
    assert_eq!(ask("POST ~", r#"{"hash":"once"}"#).status, 200);
    assert_eq!(ask("PUT ~/once", "").status, 204);
    for _ in 0..10 {
        assert_eq!(ask("GET ~/once/tests", "").status, 200);
        let answers = thread::scope(|scope| {
            let back =
                [0; 6].map(|id| scope.spawn(move || ask(&format!("DELETE ~/once/tests/{id}"), "").status));
            back.map(|back| back.join().unwrap())
        });
        assert_eq!(answers.iter().filter(|status| **status == 204).count(), 1, "{answers:?}");
        assert!(answers.iter().all(|status| [204, 404].contains(status)), "{answers:?}");
    }
}

#[test]
fn discarding_an_integresql_template_ends_waits() {
    let serve = start();
    assert_eq!(serve.ask("POST /api/v1/templates", &[], r#"{"hash":"0c12"}"#).status, 200);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| serve.ask("GET /api/v1/templates/0c12/tests", &[], "").status);
        assert_eq!(serve.ask("DELETE /api/v1/admin/templates", &[], "").status, 204);
        // The status is 404 if the request arrived later.
        assert!([410, 404].contains(&waiting.join().unwrap()));
    });
    assert_eq!(serve.call("GET /v1/status", &Value::Null).json()["leases"], json!([]));
}

#[test]
fn status_has_json_events_and_prometheus_metrics() {
    let serve = start();
    serve.lease(&json!({ "name": "shop" }));
    let status = serve.call("GET /v1/status", &Value::Null).json();
    let lease = status["leases"].as_array().unwrap().iter().find(|lease| lease["database"] == "shop");
    assert_eq!(lease.unwrap()["template"], "template1");
    assert!(status["uptime_seconds"].as_f64().unwrap() > 0.0, "{status}");

    let metrics = serve.call("GET /metrics", &Value::Null);
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    for line in ["# TYPE pgfresh_leases gauge", "pgfresh_leases{template=\"template1\"} 1"] {
        assert!(metrics.body.lines().any(|known| known == line), "{line} is missing in\n{}", metrics.body);
    }

    let token = format!("Authorization: Bearer {}", serve.secret());
    let events = BufReader::new(serve.send("GET /v1/events", &[&token], ""));
    let lines = events.lines().map(Result::unwrap);
    let data = lines.filter_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    let ages: Vec<f64> = data
        .take(2)
        .map(|data| {
            serde_json::from_str::<Value>(&data).unwrap()["leases"][0]["age_seconds"].as_f64().unwrap()
        })
        .collect();
    assert!(ages[0] < ages[1], "{ages:?}");
}

#[test]
fn nobody_comes_in_without_the_secret() {
    let serve = start();
    let secret = serve.secret();
    for path in ["/", "/v1/status", "/v1/events", "/metrics", "/nothing", "/?token=", "/token/x/v1/status"] {
        let answer = serve.ask(&format!("GET {path}"), &[], "");
        assert_eq!((answer.status, answer.code().as_str()), (401, "28P01"), "{path}");
        assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
    }
    let page = serve.ask(&format!("GET /?token={secret}"), &[], "");
    assert_eq!(page.status, 200);
    assert!(!page.body.contains(secret) && !page.head.contains(secret), "the secret goes nowhere");
    let cookie = page.head.split("set-cookie: ").nth(1).unwrap().split(';').next().unwrap().to_owned();
    let cookie = format!("Cookie: {cookie}");
    assert_eq!(serve.ask("GET /v1/status", &[&cookie], "").status, 200);
    assert_eq!(serve.ask("POST /v1/databases", &[&cookie], "").status, 401, "it is good for looking only");
    assert_eq!(serve.ask(&format!("GET /token/{secret}/v1/status"), &[], "").status, 200);

    let token = format!("Authorization: Bearer {secret}");
    for header in
        ["Host: evil.example", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site", "Origin: null"]
    {
        let answer = serve.ask("GET /v1/status", &[&token, header], "");
        assert_eq!((answer.status, answer.code().as_str()), (403, "28000"), "{header}");
        assert_eq!(serve.ask("POST /api/v1/templates", &[header], "{}").status, 403, "{header}");
    }
}

/// A response to an integresql client is as valuable as the secret, and these clients don't send the secret. Other
/// users' programs must send it.
#[test]
fn integresql_is_for_programs_of_the_same_user() {
    if !as_root("be another user") {
        return;
    }
    let serve = start();
    let request = |path: &str| serve.wording(&format!("POST {path}"), &[], r#"{"hash":""}"#);
    let stranger = |path: &str| {
        let script = "exec 3<>/dev/tcp/127.0.0.1/$1; printf %s \"$2\" >&3; exec cat <&3";
        let mut bash = Command::new("bash");
        bash.args(["-c", script, "bash"]).arg(serve.ready["port"].to_string()).arg(request(path));
        let output = bash.uid(OTHER_UID).gid(OTHER_UID).current_dir("/").output().unwrap();
        Answer::read(&String::from_utf8(output.stdout).unwrap()).status
    };
    assert_eq!(serve.ask("POST /api/v1/templates", &[], r#"{"hash":""}"#).status, 400, "ourselves");
    assert_eq!(stranger("/api/v1/templates"), 401);
    assert_eq!(stranger(&format!("/token/{}/api/v1/templates", serve.secret())), 400);
}

/// pgfresh reads a body even if it ignores it, because the next request follows on the same connection.
#[test]
fn connections_survive_unused_request_bodies() {
    let serve = start();
    let mut stream = TcpStream::connect(serve.address()).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for request in ["DELETE /api/v1/templates/x", "GET /api/v1/templates/x/tests", "PUT /api/v1/templates/x"]
    {
        let head =
            format!("{request} HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n", serve.address());
        for part in [head.as_str(), "5\r\nhe", "llo\r\n", "0\r\n\r\n"] {
            stream.write_all(part.as_bytes()).unwrap();
            thread::yield_now();
        }
        let (mut line, mut length) = (String::new(), 0);
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 404"), "{request}: {line}");
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
            let header = line.to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
        }
        reader.read_exact(&mut vec![0; length]).unwrap();
    }
}
