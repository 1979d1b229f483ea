//! Tests fault requests over HTTP: the response in each isolation mode, and that pgfresh reports a
//! fault that never fired.

use serde_json::{Value, json};

use crate::common::connection::Connection;
use crate::common::gateway::Gateway;
use crate::common::{Scene, User, ground, on_every_major};

const TEMPLATE: &str =
    "CREATE TABLE accounts (id int PRIMARY KEY, balance int); INSERT INTO accounts VALUES (1, 100);";
const FAULTS: &str = "/v1/databases/orders/faults";

on_every_major! {
    answers_tell_what_each_fault_has_done
}

fn start(major: u32, isolation: &str) -> Gateway {
    let gateway = Gateway::start(major, TEMPLATE, &["--isolation", isolation]);
    let (status, leased) = gateway.http("POST", "/v1/databases", r#"{"name": "orders"}"#);
    assert_eq!(status, 201, "{leased}");
    gateway
}

fn request(gateway: &Gateway, fault: &Value) -> (u16, Value) {
    gateway.http("POST", FAULTS, &fault.to_string())
}

fn add(gateway: &Gateway, fault: &Value) -> Value {
    let (status, added) = request(gateway, fault);
    assert_eq!(status, 201, "{added}");
    added
}

fn sqlstate(connection: &mut Connection, sql: &str) -> String {
    connection.rows(sql).err().map_or_else(String::new, |error| error.sqlstate)
}

fn answers_tell_what_each_fault_has_done(major: u32) {
    for isolation in ["clone", "rollback", "server"] {
        let gateway = start(major, isolation);
        let unused = add(&gateway, &json!({ "delay": "1ms", "statement": "SELECT 1" }));
        assert_eq!(unused["number"], 1, "a fault before the first session: {isolation}");
        let mut open = gateway.connect_in_time("orders", "");
        open.rows("SELECT 1").unwrap();
        let added = add(&gateway, &json!({ "error": "40001", "at": "commit", "times": 2 }));
        let expected = json!({
            "number": 2, "fault": "40001 at commit, 2 times", "times": 2, "fired": 0, "candidates": 0, "statements": []
        });
        assert_eq!(added, expected);
        add(&gateway, &json!({ "error": "57014", "statement": "UPDATE … balance", "nth": 2.0 }));
        // The session that was open before the requests is affected by both faults.
        open.rows("BEGIN; UPDATE accounts SET balance = 1").unwrap();
        assert_eq!(sqlstate(&mut open, "COMMIT"), "40001", "{isolation}");
        assert_eq!(sqlstate(&mut open, "update accounts\nset balance = 2"), "57014", "{isolation}");
        let (_, list) = gateway.http("GET", FAULTS, "");
        let seen =
            |at: usize| (list["faults"][at]["fired"].clone(), list["faults"][at]["statements"].clone());
        assert_eq!(seen(0), (json!(1), json!(["SELECT 1"])), "{list}");
        assert_eq!(seen(1), (json!(1), json!(["COMMIT"])), "{list}");
        assert_eq!(seen(2), (json!(1), json!(["update accounts\nset balance = 2"])), "{list}");
        assert_eq!((&list["faults"][2]["candidates"], &list["unfired_faults"]), (&json!(2), &json!([])));
        open.close();

        // A reset ends the faults.
        let closing = r#"{"close_sessions": true}"#;
        assert_eq!(gateway.http("POST", "/v1/databases/orders/reset", closing).0, 204, "{isolation}");
        let (_, list) = gateway.http("GET", FAULTS, "");
        assert_eq!(list, json!({ "faults": [], "unfired_faults": [] }), "{isolation}");
        let mut next = gateway.connect_in_time("orders", "");
        assert_eq!(sqlstate(&mut next, "BEGIN; COMMIT"), "");
        next.close();
        add(&gateway, &json!({ "delay": "1ms", "at": "connect" }));
        let unfired = json!(["delay of 1 ms at connect (no matching connection)"]);
        assert_eq!(gateway.http("GET", FAULTS, "").1["unfired_faults"], unfired);
        let (status, ended) = gateway.http("POST", "/v1/databases/orders/reset", closing);
        assert_eq!((status, &ended), (200, &json!({ "unfired_faults": unfired })), "{isolation}");
        add(&gateway, &json!({ "connection": "silent", "statement": "never", "nth": 3 }));
        let (status, ended) = gateway.http("DELETE", "/v1/databases/orders", "");
        let unfired =
            json!(["connection silent before statement \"never\", number 3 (no matching statement)"]);
        assert_eq!((status, ended), (200, json!({ "unfired_faults": unfired })), "{isolation}");
        // The next lease of the same name doesn't have the fault.
        assert_eq!(gateway.http("POST", "/v1/databases", r#"{"name": "orders"}"#).0, 201);
        assert_eq!(gateway.http("DELETE", "/v1/databases/orders", "").0, 204, "{isolation}");
    }
}

#[test]
fn impossible_fault_is_refused_with_remedy() {
    let gateway = start(15, "clone");
    for (fault, words) in [
        (json!({}), "a fault needs exactly one of \"error\", \"connection\", \"delay\" and \"bandwidth\""),
        (
            json!({ "error": "40001", "delay": "2s" }),
            "a fault needs exactly one of \"error\", \"connection\", \"delay\" and \"bandwidth\"",
        ),
        (json!({ "error": "4001" }), "\"4001\" is not an error SQLSTATE"),
        (json!({ "error": "00000" }), "\"00000\" is not an error SQLSTATE"),
        (
            json!({ "error": "40001", "at": "after commit" }),
            "\"at\" is \"after commit\", but only errors that end the session can happen then",
        ),
        (json!({ "error": "40001", "at": "noon" }), "\"at\" is \"noon\", which is not a moment"),
        (
            json!({ "error": "40001", "duration": "2s" }),
            "\"duration\" is set, but only a failover and 57P03 can have it",
        ),
        (
            json!({ "error": "57P03", "read_only": "2s" }),
            "\"read_only\" is set, but only a failover can have it",
        ),
        (json!({ "connection": "lost" }), "\"connection\" is \"lost\", which is not a known effect"),
        (json!({ "delay": "2" }), "\"delay\" is \"2\", which is not a duration"),
        (json!({ "bandwidth": "0B" }), "\"bandwidth\" is \"0B\", which is not a rate"),
        (json!({ "delay": "2s", "statement": " " }), "\"statement\" is empty"),
        (
            json!({ "delay": "2s", "statement": "SELECT", "at": "connect" }),
            "\"statement\" is set, but no statement runs at \"connect\"",
        ),
        (json!({ "delay": "2s", "times": 0 }), "\"times\" is 0, which is out of range"),
        (json!({ "delay": "2s", "nth": 1_000_001 }), "\"nth\" is 1000001, which is out of range"),
    ] {
        let (status, answer) = request(&gateway, &fault);
        let error = &answer["error"];
        assert_eq!(
            (status, &error["code"], &error["remedy"]),
            (400, &json!("22023"), &json!("correct_value")),
            "{fault}"
        );
        assert_eq!(error["message"], format!("cannot request the fault: {words}"), "{fault}");
        assert!(error["hint"].is_string(), "{fault}");
    }
    for body in [r#"{"eror": "40001"}"#, r#"{"delay": 2}"#, r#"{"delay": "2s", "times": 1.5}"#, "[]"] {
        let (status, answer) = gateway.http("POST", FAULTS, body);
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("22032")), "{body}");
    }
    assert_eq!(gateway.http("GET", FAULTS, "").1["faults"], json!([]));
    let fault = json!({ "delay": "2s" }).to_string();
    for (method, body) in [("GET", ""), ("POST", fault.as_str())] {
        let (status, answer) = gateway.http(method, "/v1/databases/none/faults", body);
        assert_eq!((status, &answer["error"]["code"]), (404, &json!("3D000")), "{method}");
    }
}

#[test]
fn reset_and_release_print_unfired_faults() {
    let scene = Scene::new(User::Ourselves);
    let script = r#"fault() { SQL -c "SET pgfresh.fault = '{\"error\": \"40001\", \"at\": \"commit\"}'"; }
        fault; PGFRESH reset one --test 'suite > one' 2>&1; echo $?
        PGFRESH reset one; echo $?
        fault; PGFRESH release one 2>&1; echo $?"#;
    let script = script.replace("SQL", &format!("{} -XAtq -d one", ground::psql()));
    let script = script.replace("PGFRESH", &ground::program().display().to_string());
    let outcome = scene.run(["run", "--", "sh", "-uc", &script]);
    let message = |test: &str| {
        format!("pgfresh: a fault did not fire\n{test}: 40001 at commit (no matching commit)\n1\n")
    };
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome}");
    assert_eq!(outcome.stdout, format!("{}0\n{}", message("suite > one"), message("one")), "{outcome}");
}

#[test]
fn run_fails_with_faults_that_nothing_reported() {
    let scene = Scene::new(User::Ourselves);
    let fault = r#"SET pgfresh.fault = '{\"error\": \"57014\", \"statement\": \"never\"}'"#;
    let script = format!(
        "SQL one -c \"{fault}\"; SQL two -c \"{fault}\"; SQL 'dbname=two options=-cpgfresh.reset=on' -c 'SELECT 1'
         SQL three -c \"{}\" -c 'SELECT 1' -c 'SELECT never'; PGFRESH release three",
        fault.replace("57014", "40001").replace("never", "SELECT 1")
    );
    let script = script.replace("SQL", &format!("{} -XAtq -d", ground::psql()));
    let script = script.replace("PGFRESH", &ground::program().display().to_string());
    let outcome = scene.run(["run", "--", "sh", "-c", &script]);
    let message = "pgfresh: 2 faults did not fire\n\
        two: 57014 before statement \"never\" (no matching statement)\n\
        one: 57014 before statement \"never\" (no matching statement)\n";
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert!(outcome.stderr.ends_with(message), "{outcome}");
}

#[test]
fn database_made_by_sql_refuses_faults() {
    let gateway = start(15, "clone");
    gateway.connect("shop", "").unwrap().rows("CREATE DATABASE made").unwrap();
    for database in ["made", "postgres"] {
        let message = format!("cannot request a fault for database \"{database}\": it is not leased");
        let mut session = gateway.connect(database, "").unwrap();
        let error = session.rows(r#"SET pgfresh.fault = '{"error": "40001"}'"#).unwrap_err();
        assert_eq!((error.sqlstate.as_str(), &error.message), ("22023", &message));
        // The session continues without the fault.
        assert_eq!(session.value("SELECT 1").unwrap(), "1");
        session.close();
        let path = format!("/v1/databases/{database}/faults");
        let (status, answer) = gateway.http("POST", &path, r#"{"error": "40001"}"#);
        assert_eq!((status, &answer["error"]["message"]), (404, &json!(message)));
        assert!(answer["error"]["detail"].as_str().unwrap().contains("SQL"), "{answer}");
    }
}
