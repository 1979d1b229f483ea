use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, Builder};

use serde_json::json;

use super::http;
use crate::server::{Environment, Server};
use crate::{Database, Options, this_test};

const MODULE: &str = "tests::names::";

/// Leases a database for the running test. Returns the database, and a channel that receives the path of the release
/// request.
fn leased() -> (Database, Receiver<String>) {
    let (sender, released) = channel();
    let port = http::serve(move |request| {
        if request.method == "DELETE" {
            sender.send(request.path).unwrap();
            return Some((204, None));
        }
        let body = json!({"name": "fresh_1", "url": "", "jdbc_url": "", "socket_url": "", "template": "app"});
        Some((201, Some(body)))
    });
    let control = ("PGFRESH_CONTROL".into(), format!("http://:secret@127.0.0.1:{port}").into());
    let server = Server::join(&Environment::from([control])).unwrap();
    (Options::default().lease_for_test(&Arc::new(server)).unwrap(), released)
}

fn assert_released(released: &Receiver<String>, failed: &str, test: &str) {
    let test = format!("{MODULE}{test}").replace(':', "%3A");
    assert_eq!(released.recv().unwrap(), format!("/v1/databases/fresh_1?{failed}test={test}"));
}

#[test]
fn drop_in_unnamed_thread_reports_test() {
    let (database, released) = leased();
    let thread = thread::spawn(move || {
        let _database = database;
        panic!("on purpose");
    });
    thread.join().unwrap_err();
    assert_released(&released, "failed=true&", "drop_in_unnamed_thread_reports_test");
}

#[test]
fn drop_in_tokio_worker_reports_test() {
    let (database, released) = leased();
    let worker = Builder::new().name("tokio-rt-worker".to_owned()).spawn(move || drop(database)).unwrap();
    worker.join().unwrap();
    assert_released(&released, "", "drop_in_tokio_worker_reports_test");
}

#[test]
fn lease_of_tokio_worker_belongs_to_dropping_test() {
    let worker = Builder::new().name("tokio-rt-worker".to_owned()).spawn(leased).unwrap();
    let (database, released) = worker.join().unwrap();
    assert_eq!(this_test(), format!("{MODULE}lease_of_tokio_worker_belongs_to_dropping_test"));
    drop(database);
    assert_released(&released, "", "lease_of_tokio_worker_belongs_to_dropping_test");
}
