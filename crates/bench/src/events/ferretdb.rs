//! Tests with `FerretDB`, a server that speaks `MongoDB`'s protocol and stores its data in a pgfresh server.
//!
//! The program that starts `FerretDB` is in `tests/ferretdb/`, which also pins `FerretDB`'s version. The program is
//! built by `scripts/prepare test`.

use std::error::Error as _;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use mongodb::bson::{Document, doc};
use mongodb::sync::Client;
use postgres::NoTls;

use super::document_store::{COLLECTION, DATABASE, DocumentStore, options, remove};
use super::event::Event;
use super::store::Store;
use crate::{BenchError, EventStore, Measured};

/// Returns the path of a program prepared by `make test`. Fails the test if the program is missing.
fn prepared(variable: &str) -> PathBuf {
    let program = std::env::var_os(variable).map(PathBuf::from).unwrap_or_default();
    assert!(program.is_file(), "{variable} names no program: run \"make test\"");
    program
}

/// `FerretDB` and its PostgreSQL server, which stop when this value is dropped.
struct Servers {
    _folder: tempfile::TempDir,
    child: Child,
    /// The process's standard input. Closing it stops both servers.
    input: Option<ChildStdin>,
    mongodb: String,
    postgres: String,
}

impl Servers {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(prepared("PGFRESH_TEST_PROGRAM"));
        command.args(["run", "--quiet", "--"]).arg(prepared("PGFRESH_TEST_FERRETDB"));
        command.args(["sh", "-c", "echo \"$MONGODB_URL\"; echo \"$DATABASE_URL\"; cat"]);
        command.current_dir(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = || lines.next().expect("both servers start").unwrap();
        let (mongodb, postgres) = (line(), line());
        Self { _folder: folder, input: child.stdin.take(), child, mongodb, postgres }
    }

    /// Returns `FerretDB`'s URL with a user, a password and options.
    fn url_as(&self, user: &str, options: &str) -> String {
        format!("{}?{options}", self.mongodb.replace("mongodb://", &format!("mongodb://{user}@")))
    }

    fn stored(&self) -> Vec<Document> {
        let client = Client::with_uri_str(&self.mongodb).unwrap();
        let collection = client.database(DATABASE).collection(COLLECTION);
        collection
            .find(doc! {})
            .sort(doc! { "eventIdentifier": 1 })
            .run()
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }

    /// Returns the schemas created by benchmarks.
    fn schemas(&self) -> Vec<String> {
        let mut client = postgres::Client::connect(&self.postgres, NoTls).unwrap();
        let statement = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'pgfresh%'";
        client.query(statement, &[]).unwrap().iter().map(|row| row.get(0)).collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

fn measure(targets: &[&str]) -> Result<Measured, BenchError> {
    let events = crate::Events {
        server_options: template::ServerOptions::default(),
        cache: None,
        program: PathBuf::new(),
        disk: None,
        targets: targets.iter().map(|url| EventStore::Url((*url).to_owned())).collect(),
        batch: 7,
        thermometer: &|| None,
    };
    events.measure(3, &())
}

#[test]
fn benchmark_measures_ferretdb_and_postgres_and_cleans_up() {
    let servers = Servers::start();
    let (report, failure) = measure(&[&servers.postgres, &servers.mongodb]).unwrap();
    assert!(failure.is_none(), "{failure:?}");
    let json = report.to_json();
    let place = servers.mongodb.trim_start_matches("mongodb://").trim_end_matches('/');
    assert_eq!(json["samples"][1]["name"], place, "{json}");
    for target in 0..2 {
        assert_eq!(json["samples"][target]["phases"][0]["values"].as_array().unwrap().len(), 3);
        assert_eq!(json["distributions"][target]["count"], 21);
    }
    let notes = json["notes"].to_string();
    let server = format!("{place}: FerretDB 1.24.0 over PostgreSQL, which answers as MongoDB 7.0.");
    assert!(notes.contains(&server) && notes.contains("In SQL, an event is a row"), "{notes}");
    assert!(notes.contains("By MongoDB's protocol, an event is a document"), "{notes}");
    assert_eq!(servers.schemas(), [""; 0]);
}

#[test]
fn ferretdb_stores_events_unchanged_and_refuses_duplicates() {
    let servers = Servers::start();
    // `FerretDB` doesn't support write concerns, so it has to ignore the one in this URL.
    let options = options(&format!("{}?journal=true", servers.mongodb)).unwrap();
    let mut store = DocumentStore::create(&options).unwrap();
    let events: Vec<Event> = (1..=20).map(Event::new).collect();
    for event in &events {
        store.append(event).unwrap();
    }
    let again = store.append(&events[7]).unwrap_err();
    assert_eq!(again.to_string(), "could not append events");
    let reason = again.source().unwrap().to_string();
    assert!(reason.starts_with("E11000 duplicate key error") && !reason.contains('\n'), "{reason}");

    let stored = servers.stored();
    let mut expected: Vec<&Event> = events.iter().collect();
    expected.sort_by(|one, other| one.id.cmp(&other.id));
    assert_eq!(stored.len(), expected.len());
    for (document, event) in stored.iter().zip(expected) {
        assert_eq!(document.get_str("eventIdentifier").ok(), Some(event.id.as_str()));
        assert_eq!(document.get_str("aggregateIdentifier").ok(), Some(event.aggregate.as_str()));
        assert_eq!(document.get_binary_generic("serializedPayload").ok(), Some(&event.payload));
    }
    assert!(matches!(DocumentStore::create(&options), Err(BenchError::NotEmpty { .. })));
    assert_eq!(servers.stored().len(), 20);
    remove(&options).unwrap();
    assert_eq!(servers.schemas(), [""; 0]);
}

#[test]
fn target_name_hides_the_password() {
    let servers = Servers::start();
    let password = servers.postgres.split(':').nth(2).unwrap().split('@').next().unwrap();
    let right = servers.url_as(&format!("postgres:{password}"), "authMechanism=PLAIN");
    let (report, failure) = measure(&[&right]).unwrap();
    assert!(failure.is_none() && !report.to_json().to_string().contains(password));
    let wrong = servers.url_as("postgres:wrongly-remembered", "authMechanism=PLAIN");
    let error = measure(&[&wrong]).unwrap_err();
    let reason = error.source().unwrap().to_string();
    assert_eq!(error.to_string(), "could not connect to the server");
    assert!(reason.contains("password authentication failed") && !reason.contains('\n'), "{reason}");
    assert!(!reason.contains("wrongly-remembered") && !reason.contains(password), "{reason}");
}
