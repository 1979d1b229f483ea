//! Tests budgets: pgfresh counts only the statements of a test, for each test, and reports a test
//! that exceeds its budget.

use serde_json::{Value, json};

use crate::common::gateway::Gateway;
use crate::common::{Scene, User, ground, on_every_major};

on_every_major! {
    a_record_has_the_statements_of_its_lease
    pipelined_and_copied_rows_are_counted
    a_reset_begins_another_test
}

const TEMPLATE: &str = "CREATE TABLE books (author int, title text); \
    INSERT INTO books SELECT number, 'title' FROM generate_series(1, 12) number;";

fn start(major: u32, options: &[&str]) -> Gateway {
    Gateway::start(major, TEMPLATE, options)
}

fn lease(gateway: &Gateway, body: &Value) -> Value {
    let (status, leased) = gateway.http("POST", "/v1/databases", &body.to_string());
    assert_eq!(status, 201, "{leased}");
    leased
}

fn statements(gateway: &Gateway, name: &str, budget: &str) -> Value {
    let (status, seen) = gateway.http("GET", &format!("/v1/databases/{name}/statements{budget}"), "");
    assert_eq!(status, 200, "{seen}");
    seen
}

/// Returns the text and count of each statement.
fn lines(seen: &Value) -> Vec<(&str, u64)> {
    let line = |line: &'_ Value| line["count"].as_u64().unwrap();
    seen["statements"]
        .as_array()
        .unwrap()
        .iter()
        .map(|statement| (statement["statement"].as_str().unwrap(), line(statement)))
        .collect()
}

fn limits(seen: &Value) -> Vec<(&str, u64, u64)> {
    let number = |value: &Value| value.as_u64().unwrap();
    seen["over_budget"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|over| over["limit"] != "time")
        .map(|over| (over["limit"].as_str().unwrap(), number(&over["allowed"]), number(&over["measured"])))
        .collect()
}

fn a_record_has_the_statements_of_its_lease(major: u32) {
    for isolation in ["clone", "rollback"] {
        let gateway = start(major, &["--isolation", isolation]);
        let leased = lease(&gateway, &json!({ "name": "orders", "record": true }));
        assert_eq!(leased["recorded"], true);
        let nothing = statements(&gateway, "orders", "?statements=0&n_plus_one=0&time=0");
        assert_eq!((&nothing["count"], &nothing["statements"]), (&json!(0), &json!([])), "{nothing}");
        assert_eq!(nothing["over_budget"], json!([]), "{nothing}");
        let mut one = gateway.connect("orders", "").unwrap();
        one.rows("BEGIN").unwrap();
        for author in 1..=6 {
            one.rows(&format!("SELECT title FROM books WHERE author = {author}")).unwrap();
        }
        one.rows("ROLLBACK").unwrap();
        one.rows("SELECT nonsense").unwrap_err();
        one.close();
        let mut other = gateway.connect_in_time("orders", "");
        other.rows("INSERT INTO books VALUES (13, 'more'), (14, 'more')").unwrap();
        other.rows(&format!("SELECT length('{}')", "x".repeat(100_000))).unwrap();
        let seen = statements(&gateway, "orders", "?statements=5&n_plus_one=5");
        assert_eq!(
            (&seen["complete"], &seen["count"], &seen["rows"]),
            (&json!(true), &json!(11), &json!(9)),
            "{seen}"
        );
        let found = lines(&seen);
        assert_eq!((found.len(), found[0]), (6, ("SELECT title FROM books WHERE author = ?", 6)), "{seen}");
        assert_eq!(
            (&seen["statements"][0]["n_plus_one"], &seen["statements"][0]["rows"]),
            (&json!(true), &json!(6))
        );
        assert_eq!(limits(&seen), [("statements", 5, 11), ("n_plus_one", 5, 6)], "{seen}");
        assert!(seen["seconds"].as_f64().unwrap() >= seen["statements"][0]["seconds"].as_f64().unwrap());
        assert!(!seen.to_string().contains("pgfresh"), "statements of pgfresh's own: {seen}");
        let message = seen["message"].as_str().unwrap();
        let begin = "11 statements, 5 allowed; one query ran 6 times with different values, 5 allowed\n      6 × SELECT title";
        assert!(message.starts_with(begin) && message.lines().count() == 7, "{message}");
        other.close();
    }
}

/// Sends extended-protocol messages, given as tags and bodies.
fn send(connection: &mut crate::common::connection::Connection, words: &[(u8, &[u8])]) {
    for (tag, body) in words {
        connection.send(*tag, body).unwrap();
    }
}

fn until_ready(connection: &mut crate::common::connection::Connection) {
    while connection.read().unwrap().0 != b'Z' {}
}

fn pipelined_and_copied_rows_are_counted(major: u32) {
    let gateway = start(major, &[]);
    lease(&gateway, &json!({ "name": "orders", "record": true }));
    let mut one = gateway.connect("orders", "").unwrap();
    // Binds one value in text format, the character `digit`.
    let bind = |digit: u8| [&b"\0insert\0\0\0\0\x01\0\0\0\x01"[..], &[digit], b"\0\0"].concat();
    let binds: Vec<_> = (b'1'..=b'7').map(bind).collect();
    let mut words: Vec<(u8, &[u8])> =
        vec![(b'P', b"insert\0INSERT INTO books VALUES ($1::int, 'new')\0\0\0")];
    for bind in &binds {
        words.extend([(b'B', bind.as_slice()), (b'E', &b"\0\0\0\0\0"[..])]);
    }
    words.push((b'S', b""));
    send(&mut one, &words);
    until_ready(&mut one);
    // Sends selects one after the other, each with a different value.
    send(&mut one, &[(b'P', b"select\0SELECT title FROM books WHERE author = $1::int\0\0\0"), (b'S', b"")]);
    until_ready(&mut one);
    for digit in b'1'..=b'6' {
        let bind = [&b"\0select\0\0\0\0\x01\0\0\0\x01"[..], &[digit], b"\0\0"].concat();
        send(&mut one, &[(b'B', &bind), (b'E', b"\0\0\0\0\0"), (b'S', b"")]);
        until_ready(&mut one);
    }
    send(&mut one, &[(b'Q', b"COPY books FROM STDIN\0")]);
    assert_eq!(one.read().unwrap().0, b'G');
    send(&mut one, &[(b'd', b"20\tcopied\n21\tcopied\n"), (b'd', b"22\tcopied\n"), (b'c', b"")]);
    until_ready(&mut one);
    let seen = statements(&gateway, "orders", "?n_plus_one=0");
    let found = lines(&seen);
    assert_eq!(found[0], ("INSERT INTO books VALUES (?, …)", 7), "{seen}");
    assert_eq!(found[1], ("SELECT title FROM books WHERE author = ?", 6), "{seen}");
    assert_eq!(
        (found[2], &seen["statements"][2]["rows"]),
        (("COPY books FROM STDIN", 1), &json!(3)),
        "{seen}"
    );
    assert_eq!((&seen["count"], limits(&seen)), (&json!(14), vec![("n_plus_one", 0, 6)]), "{seen}");
    one.close();
}

/// A simple query contains its values as literals, so the extended protocol doesn't bind any values.
#[test]
fn literal_values_count_as_n_plus_one() {
    let gateway = start(15, &[]);
    for name in ["simple", "extended"] {
        lease(&gateway, &json!({ "name": name, "record": true }));
        let mut one = gateway.connect(name, "").unwrap();
        for number in 1..=6 {
            let sql = format!("SELECT title FROM books WHERE author = {number}\0");
            let parse = [b"\0", sql.as_bytes(), b"\0\0"].concat();
            let words: &[(u8, &[u8])] = match name {
                "simple" => &[(b'Q', sql.as_bytes())],
                _ => &[(b'P', &parse), (b'B', b"\0\0\0\0\0\0\0\0"), (b'E', b"\0\0\0\0\0"), (b'S', b"")],
            };
            send(&mut one, words);
            until_ready(&mut one);
        }
        one.close();
        let seen = statements(&gateway, name, "?n_plus_one=0");
        assert_eq!(limits(&seen), [("n_plus_one", 0, 6)], "{name}: {seen}");
    }
}

fn a_reset_begins_another_test(major: u32) {
    for isolation in ["clone", "rollback"] {
        let gateway = start(major, &["--isolation", isolation]);
        lease(&gateway, &json!({ "name": "orders", "record": true }));
        let mut one = gateway.connect("orders", "").unwrap();
        one.rows("INSERT INTO books VALUES (1, 'one')").unwrap();
        one.rows("INSERT INTO books VALUES (2, 'two')").unwrap();
        // A database that can't be reset stays with its test.
        let (status, refused) =
            gateway.http("POST", "/v1/databases/orders/reset", r#"{"test": "one", "statements": 1}"#);
        assert_eq!((status, &refused["error"]["code"]), (409, &json!("55006")), "{refused}");
        assert_eq!(statements(&gateway, "orders", "")["count"], 2);
        let body = r#"{"close_sessions": true, "test": "one", "statements": 1, "time": "10min"}"#;
        let (status, over) = gateway.http("POST", "/v1/databases/orders/reset", body);
        assert_eq!((status, limits(&over)), (200, vec![("statements", 1, 2)]), "{over}");
        assert_eq!(
            (lines(&over), over["url"].clone()),
            (vec![("INSERT INTO books VALUES (?, …)", 2)], Value::Null)
        );
        assert!(over["message"].as_str().unwrap().starts_with("2 statements, 1 allowed\n"), "{over}");
        // The cleanup's statements don't count for any test.
        assert_eq!(statements(&gateway, "orders", "")["count"], 0);
        let mut two = gateway.connect_in_time("orders", "");
        assert_eq!(two.value("SELECT count(*) FROM books").unwrap(), "12");
        let (status, within) =
            gateway.http("DELETE", "/v1/databases/orders?test=two&statements=1&n_plus_one=0", "");
        assert_eq!((status, within), (204, Value::Null));
        two.wait_for_end();
        let (status, gone) = gateway.http("GET", "/v1/databases/orders/statements", "");
        assert_eq!((status, &gone["error"]["code"]), (404, &json!("3D000")));
        // Another lease of the same name doesn't have the first lease's statements or its record.
        let mut three = gateway.connect_in_time("orders", "");
        three.rows("SELECT 1").unwrap();
        let (status, unrecorded) = gateway.http("GET", "/v1/databases/orders/statements", "");
        assert_eq!((status, &unrecorded["error"]["code"]), (409, &json!("55000")), "{unrecorded}");
        let (status, _) = gateway.http("DELETE", "/v1/databases/orders?statements=1", "");
        assert_eq!(status, 409, "pgfresh refuses a budget that it cannot check");
        three.close();
    }
}

#[test]
fn a_session_option_records_its_lease() {
    let gateway = start(15, &[]);
    let mut before = gateway.connect("orders", "").unwrap();
    before.rows("SELECT 1").unwrap();
    let mut one = gateway.connect("orders", "-cpgfresh.record=on").unwrap();
    one.rows("SELECT 2").unwrap();
    let mut two = gateway.connect("orders", "").unwrap();
    two.rows("SELECT 3").unwrap();
    let seen = statements(&gateway, "orders", "");
    assert_eq!((lines(&seen), &seen["complete"]), (vec![("SELECT ?", 2)], &json!(false)), "{seen}");
    [before, one, two].into_iter().for_each(crate::common::connection::Connection::close);
    let mut next = gateway.connect_in_time("orders", "-cpgfresh.reset=on -cpgfresh.record=on");
    next.rows("SELECT 4").unwrap();
    let seen = statements(&gateway, "orders", "");
    assert_eq!((lines(&seen), &seen["complete"]), (vec![("SELECT ?", 1)], &json!(true)), "{seen}");
    assert!(gateway.connect("orders", "-cpgfresh.record=perhaps").is_err());
    next.close();
}

#[test]
fn parallel_sessions_count_for_one_test() {
    let gateway = start(15, &[]);
    lease(&gateway, &json!({ "name": "orders", "isolation": "server", "record": true }));
    for _ in 0..2 {
        let sessions: Vec<_> = (0..4).map(|_| gateway.connect_in_time("orders", "")).collect();
        let ran = sessions.into_iter().map(|mut session| {
            std::thread::spawn(move || {
                (0..5).for_each(|_| drop(session.rows("SELECT 1").unwrap()));
                session.close();
            })
        });
        ran.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(lines(&statements(&gateway, "orders", "")), [("SELECT ?", 20)]);
        assert_eq!(gateway.reset("orders").0, 204);
        assert_eq!(statements(&gateway, "orders", "")["count"], 0);
    }
    // A statement that runs while a lease ends doesn't count for a later test.
    let mut one = gateway.connect_in_time("orders", "");
    one.send(b'Q', b"SELECT pg_sleep(60)\0").unwrap();
    assert_eq!(gateway.http("DELETE", "/v1/databases/orders?test=last&statements=0", "").0, 204);
    one.wait_for_end();
    lease(&gateway, &json!({ "name": "orders", "record": true }));
    assert_eq!(statements(&gateway, "orders", "")["count"], 0);
}

#[test]
fn wrong_budgets_are_refused_before_anything_is_done() {
    let gateway = start(15, &[]);
    lease(&gateway, &json!({ "name": "orders", "record": true }));
    for (request, body, code) in [
        ("DELETE /v1/databases/orders?statements=-1", "", "22023"),
        ("DELETE /v1/databases/orders?time=200", "", "22023"),
        ("GET /v1/databases/orders/statements?n_plus_one=x", "", "22023"),
        ("POST /v1/databases/orders/reset", r#"{"statements": -1}"#, "22032"),
        ("POST /v1/databases/orders/reset", r#"{"time": "soon"}"#, "22023"),
        ("POST /v1/databases", r#"{"record": "yes"}"#, "22032"),
    ] {
        let (method, path) = request.split_once(' ').unwrap();
        let (status, answer) = gateway.http(method, path, body);
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(code)), "{request}: {answer}");
    }
    assert_eq!(statements(&gateway, "orders", "")["count"], 0);
}

/// Runs `script` with `budget` as the configuration's budget table. In the script, `SQL NAME` runs psql
/// in the database `NAME`.
fn run(scene: &Scene, budget: &str, script: &str) -> crate::common::Outcome {
    scene.write("pgfresh.toml", &format!("[budget]\n{budget}\n"));
    let script = script.replace("SQL", &format!("{} -XAtq -d", ground::psql()));
    let script = script.replace("PGFRESH", &ground::program().display().to_string());
    scene.run(["run", "--", "sh", "-uc", &script])
}

#[test]
fn a_run_fails_with_its_exceeded_budgets() {
    let scene = Scene::new(User::Ourselves);
    let each = (1..=6).map(|number| format!("-c 'SELECT {number} AS one'")).collect::<Vec<_>>().join(" ");
    let script = format!(
        "SQL test_many {each}; SQL test_few -c 'SELECT 1' -c 'SELECT 2'
         SQL test_reset -c 'SELECT 1' -c 'SELECT 2'; SQL 'dbname=test_reset options=-cpgfresh.reset=on' -c 'SELECT 3'"
    );
    let outcome = run(&scene, "statements = 3\nn_plus_one = 5", &script);
    let expected = "pgfresh: a test exceeded its budget\n\
        test_many: 6 statements, 3 allowed; one query ran 6 times with different values, 5 allowed\n\
        \x20     6 × SELECT ? AS one (N+1)\n";
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(1), expected), "{outcome}");
    // A failed run keeps its exit code, and reports all tests.
    let outcome = run(&scene, "statements = 1", &format!("{script}; exit 7"));
    assert_eq!(outcome.code, Some(7), "{outcome}");
    assert!(outcome.stderr.starts_with("pgfresh: 3 tests exceeded their budget\n"), "{outcome}");
    for line in ["\ntest_few: 2 statements, 1 allowed\n", "\ntest_reset: 2 statements, 1 allowed\n"] {
        assert!(outcome.stderr.contains(line), "{outcome}");
    }
    let outcome = run(&scene, "time = \"10min\"\nstatements = 6", &script);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome}");
}

#[test]
fn a_budget_without_fresh_databases_is_reported() {
    let scene = Scene::new(User::Ourselves);
    let note = "pgfresh: [budget] had no effect, because the command did not connect to a fresh database, only to \
        those of the server.\n";
    for (script, expected) in [
        ("SQL postgres -c 'SELECT 1' -c 'SELECT 2'", note),
        ("SQL postgres -c 'SELECT 1'; SQL test_one -c 'SELECT 1'", ""),
    ] {
        let outcome = run(&scene, "statements = 1", script);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), expected), "{outcome}");
    }
}

#[test]
fn an_exceeded_budget_is_reported_once() {
    let scene = Scene::new(User::Ourselves);
    let script = "PGFRESH reset one --test 'suite > first' 2>&1; SQL one -c 'SELECT 1'
        PGFRESH reset one --test 'suite > one' >&2; echo $?
        PGFRESH reset one --test 'suite > nothing' >&2; echo $?
        SQL one -c 'SELECT 2'; PGFRESH release one --test 'suite > two' 2>&1; echo $?";
    let outcome = run(&scene, "statements = 0", script);
    let message = |test: &str| {
        format!("pgfresh: a test exceeded its budget\n{test}: 1 statement, 0 allowed\n      1 × SELECT ?\n")
    };
    assert_eq!((outcome.code, outcome.stderr), (Some(0), message("suite > one")));
    assert!(
        outcome.stdout.ends_with(&format!("1\n1\n0\n2\n{}1\n", message("suite > two"))),
        "{}",
        outcome.stdout
    );
}

#[test]
fn invalid_budgets_give_one_clear_error() {
    let scene = Scene::new(User::Ourselves);
    for (budget, error) in [
        ("statements = -1", "bad value for \"statements\": expected a number of at least 0"),
        ("n_plus_one = \"many\"", "bad value for \"n_plus_one\": expected a number of at least 0"),
        ("time = 200", "bad value for \"time\": expected a time such as \"5s\""),
        ("queries = 5", "unknown key in [budget]: \"queries\""),
    ] {
        let outcome = run(&scene, budget, "true");
        assert!(
            outcome.code != Some(0) && outcome.stderr.contains(&format!("pgfresh.toml:2: {error}")),
            "{outcome}"
        );
    }
}

#[test]
fn hundreds_of_leases_are_each_measured() {
    let gateway = start(15, &[]);
    // pgfresh keeps fewer records of ended leases than this.
    for number in 0..520 {
        let name = format!("d{number}");
        let mut one = gateway.connect(&name, "-cpgfresh.record=on -cpgfresh.linger=0").unwrap();
        one.rows("SELECT 1").unwrap();
        if number % 100 == 0 || number > 510 {
            assert_eq!(statements(&gateway, &name, "")["count"], 1, "{name}");
        }
        one.close();
    }
}
