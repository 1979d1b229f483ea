//! Stores events in `MongoDB`, or in a server that speaks `MongoDB`'s protocol, using the official driver.

use std::time::Duration;

use mongodb::IndexModel;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::options::{ClientOptions, IndexOptions};
use mongodb::sync::{Client, Collection};

use super::event::Event;
use super::store::Store;
use crate::BenchError;

/// The benchmark's database. It must not exist before the benchmark starts.
///
/// `FerretDB` stores this database in a PostgreSQL schema of the same name. The name must therefore differ from the
/// schema of [`super::sql_store`], so that both targets can share a PostgreSQL server.
pub(crate) const DATABASE: &str = "pgfresh_bench_documents";
/// The collection used by Axon Framework's `MongoDB` extension. Source: its reference guide, 4.x.
pub(crate) const COLLECTION: &str = "domainevents";
/// The report's description of an event.
pub(crate) const EVENT_DESCRIPTION: &str = "By MongoDB's protocol, an event is a document with 300 bytes of content in a collection with three \
    indexes, in one insert command over one connection.";
/// Timeout for finding a server, if the URL doesn't set one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

fn driver_error(verb: &'static str) -> impl Fn(Error) -> BenchError {
    move |source| BenchError::Documents { verb, source: reason(&source).into() }
}

/// Formats the error's reason on one line. The driver's own text contains the response's raw bytes.
fn reason(error: &Error) -> String {
    let text = match &*error.kind {
        ErrorKind::Command(failure) => failure.message.clone(),
        ErrorKind::Write(WriteFailure::WriteError(failure)) => failure.message.clone(),
        ErrorKind::Write(WriteFailure::WriteConcernError(failure)) => failure.message.clone(),
        // The driver's message describes each server and also contains the last attempt's error.
        ErrorKind::ServerSelection { message, .. } => {
            let last =
                message.split_once("Error: Kind: ").and_then(|(_, last)| last.split_once(", labels: "));
            last.map_or(message.clone(), |(last, _)| format!("no server answered: {last}"))
        }
        other => other.to_string(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Parses a server URL.
///
/// # Errors
/// Returns an error if the driver rejects the URL.
pub(crate) fn options(url: &str) -> Result<ClientOptions, BenchError> {
    let mut options = ClientOptions::parse(url).run().map_err(driver_error("read the URL"))?;
    options.server_selection_timeout.get_or_insert(CONNECT_TIMEOUT);
    Ok(options)
}

/// Returns the server's host and port.
pub(crate) fn location(options: &ClientOptions) -> String {
    options.hosts.first().map_or_else(|| "MongoDB".to_owned(), ToString::to_string)
}

fn connect(options: &ClientOptions) -> Result<Client, BenchError> {
    Client::with_options(options.clone()).map_err(driver_error("connect to the server"))
}

/// Returns the server's name and version. `FerretDB` reports two versions: its own version, and the version of the
/// `MongoDB` it emulates.
fn version(build_info: &Document) -> String {
    let mongodb = format!("MongoDB {}", build_info.get_str("version").unwrap_or("of unknown version"));
    match build_info.get_str("ferretdbVersion") {
        Ok(version) => {
            format!(
                "FerretDB {} over PostgreSQL, which answers as {mongodb}",
                version.trim_start_matches('v')
            )
        }
        Err(_) => mongodb,
    }
}

/// A client that appends events to the store.
pub(crate) struct DocumentStore {
    collection: Collection<Document>,
    version: String,
}

impl DocumentStore {
    /// Connects and creates the indexes. Whether an acknowledged event is durable depends on the URL and the server.
    ///
    /// # Errors
    /// Returns an error if the database isn't empty, because another benchmark is running or left its data behind.
    pub(crate) fn create(options: &ClientOptions) -> Result<Self, BenchError> {
        let failed = driver_error("connect to the server");
        let database = connect(options)?.database(DATABASE);
        let build_info = database.run_command(doc! { "buildInfo": 1 }).run().map_err(&failed)?;
        if !database.list_collection_names().run().map_err(&failed)?.is_empty() {
            return Err(BenchError::NotEmpty { database: DATABASE });
        }
        let collection = database.collection(COLLECTION);
        let unique = || IndexOptions::builder().unique(true).build();
        let keys = [doc! { "eventIdentifier": 1 }, doc! { "aggregateIdentifier": 1, "sequenceNumber": 1 }];
        let models = keys.map(|keys| IndexModel::builder().keys(keys).options(unique()).build());
        if let Err(error) = collection.create_indexes(models).run() {
            // The server may have created the collection before failing, so remove it.
            remove(options)?;
            return Err(driver_error("create indexes")(error));
        }
        Ok(Self { collection, version: version(&build_info) })
    }
}

impl Store for DocumentStore {
    fn version(&self) -> &str {
        &self.version
    }

    fn append(&mut self, event: &Event) -> Result<(), BenchError> {
        let payload = Binary { subtype: BinarySubtype::Generic, bytes: event.payload.clone() };
        let document = doc! {
            "eventIdentifier": &event.id,
            "aggregateIdentifier": &event.aggregate,
            "sequenceNumber": 0_i64,
            "type": "Order",
            "serializedPayload": payload,
            "payloadType": "shop.OrderPlaced",
            "timestamp": "2024-01-01T00:00:00Z",
        };
        self.collection.insert_one(document).run().map(drop).map_err(driver_error("append events"))
    }
}

/// Drops the benchmark's database.
pub(crate) fn remove(options: &ClientOptions) -> Result<(), BenchError> {
    connect(options)?
        .database(DATABASE)
        .drop()
        .run()
        .map_err(driver_error("remove database \"pgfresh_bench_documents\""))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::fake_document_server::FakeServer;
    use super::*;
    use crate::events::EventStore;

    fn measure(url: &str) -> Result<(report::Report, Option<BenchError>), BenchError> {
        let events = crate::Events {
            server_options: template::ServerOptions::default(),
            cache: None,
            program: PathBuf::new(),
            disk: None,
            targets: vec![EventStore::Url(url.to_owned())],
            batch: 7,
            thermometer: &|| None,
        };
        events.measure(3, &())
    }

    #[test]
    fn events_arrive_once_and_database_is_removed() {
        let server = FakeServer::start();
        let (report, failure) = measure(&server.url()).unwrap();
        assert!(failure.is_none(), "{failure:?}");
        // These events include the warm-up batch.
        let events = server.inserted();
        assert_eq!(events.len(), 4 * 7);
        for (serial, document) in (1..).zip(&events) {
            let expected = Event::new(serial);
            assert_eq!(document.get_str("eventIdentifier").ok(), Some(expected.id.as_str()));
            assert_eq!(document.get_str("aggregateIdentifier").ok(), Some(expected.aggregate.as_str()));
            assert_eq!(document.get_binary_generic("serializedPayload").ok(), Some(&expected.payload));
        }
        assert_eq!(server.command_count("createIndexes"), 1);
        assert_eq!((server.command_count("dropDatabase"), server.collection_count()), (1, 0));
        let json = report.to_json();
        assert_eq!(json["samples"][0]["phases"][0]["values"].as_array().unwrap().len(), 3);
        assert_eq!(json["distributions"][0]["count"], 21);
        assert!(json["notes"].to_string().contains(": MongoDB 7.0.0, an existing server."), "{json}");
        let place = server.url().trim_start_matches("mongodb://").split('/').next().map(str::to_owned);
        assert_eq!(json["samples"][0]["name"].as_str(), place.as_deref(), "{json}");
    }

    #[test]
    fn existing_collections_are_not_touched() {
        let server = FakeServer::start();
        server.add_collection("something");
        let error = measure(&server.url()).unwrap_err();
        assert_eq!(error.to_string(), "database \"pgfresh_bench_documents\" has collections in it already");
        assert!(error.hint().is_some_and(|hint| hint.contains("drop database")));
        assert_eq!((server.command_count("dropDatabase"), server.collection_count()), (0, 1));
    }

    /// Returns an error's cause, which users see as well.
    fn cause(error: &BenchError) -> String {
        std::error::Error::source(error).unwrap().to_string()
    }

    #[test]
    fn database_is_removed_after_refused_indexes() {
        let server = FakeServer::start();
        server.refuse_indexes();
        let error = measure(&server.url()).unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), cause(&error).as_str()),
            ("could not create indexes", "no rights")
        );
        assert_eq!((server.command_count("dropDatabase"), server.collection_count()), (1, 0));
    }

    #[test]
    fn connection_failure_is_explained_on_one_line() {
        let error = measure("mongodb://user:secret@127.0.0.1:1/?serverSelectionTimeoutMS=50").unwrap_err();
        assert_eq!(error.to_string(), "could not connect to the server");
        assert!(
            cause(&error).starts_with("no server answered: I/O error: Connection refused"),
            "{}",
            cause(&error)
        );
        let error = measure("mongodb://user:secret@localhost/?colour=red").unwrap_err();
        assert_eq!(error.to_string(), "could not read the URL");
        assert!(cause(&error).contains("colour is an invalid option"), "{}", cause(&error));
        assert!(!cause(&error).contains('\n') && !cause(&error).contains("secret"), "{}", cause(&error));
    }

    #[test]
    fn refused_event_ends_benchmark_and_database_is_removed() {
        let server = FakeServer::start();
        server.refuse_after(10);
        let (report, failure) = measure(&server.url()).unwrap();
        let failure = failure.unwrap();
        assert_eq!(
            (failure.to_string().as_str(), cause(&failure).as_str()),
            ("could not append events", "no room left")
        );
        // The first batch is the warm-up, and the second batch is incomplete.
        assert!(report.to_json()["samples"][0]["phases"].as_array().unwrap().is_empty());
        assert_eq!(server.command_count("dropDatabase"), 1);
    }
}
