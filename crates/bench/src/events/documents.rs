//! An event store in `MongoDB`, by its own driver.

use mongodb::IndexModel;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Document, doc};
use mongodb::error::Error;
use mongodb::options::IndexOptions;
use mongodb::sync::{Client, Collection};

use super::event::Event;
use super::store::Store;
use crate::BenchError;

/// Of our own, so that nothing that is there is touched.
pub(crate) const DATABASE: &str = "pgfresh_bench";
/// As Axon Framework's extension for `MongoDB` calls it. Source: its reference guide, 4.x.
pub(crate) const COLLECTION: &str = "domainevents";

fn could_not(verb: &'static str) -> impl Fn(Error) -> BenchError {
    move |source| BenchError::Documents { verb, source: Box::new(source) }
}

/// A client that appends.
pub(crate) struct Events {
    collection: Collection<Document>,
    version: String,
}

impl Events {
    /// Connects, and makes the indexes. Whether an event is durable when it is taken, the URL and the server decide.
    ///
    /// # Errors
    /// The database has something in it: another bench is running, or was killed.
    pub(crate) fn create(url: &str) -> Result<Self, BenchError> {
        let connect = could_not("connect to MongoDB");
        let database = Client::with_uri_str(url).map_err(&connect)?.database(DATABASE);
        let about = database.run_command(doc! { "buildInfo": 1 }).run().map_err(&connect)?;
        let version = format!("MongoDB {}", about.get_str("version").unwrap_or("of unknown version"));
        if !database.list_collection_names().run().map_err(&connect)?.is_empty() {
            return Err(BenchError::NotEmpty { database: DATABASE });
        }
        let collection = database.collection(COLLECTION);
        let unique = || IndexOptions::builder().unique(true).build();
        let keys = [doc! { "eventIdentifier": 1 }, doc! { "aggregateIdentifier": 1, "sequenceNumber": 1 }];
        let models = keys.map(|keys| IndexModel::builder().keys(keys).options(unique()).build());
        collection.create_indexes(models).run().map_err(could_not("create indexes"))?;
        Ok(Self { collection, version })
    }
}

impl Store for Events {
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
        self.collection.insert_one(document).run().map(drop).map_err(could_not("append events"))
    }
}

/// Removes the database.
pub(crate) fn remove(url: &str) -> Result<(), BenchError> {
    let database = Client::with_uri_str(url).map_err(could_not("connect to MongoDB"))?.database(DATABASE);
    database.drop().run().map_err(could_not("remove database \"pgfresh_bench\""))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::documents_server::Server;
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
    fn every_event_arrives_once_and_nothing_stays() {
        let server = Server::start();
        let (report, failure) = measure(&server.url()).unwrap();
        assert!(failure.is_none(), "{failure:?}");
        // With the warm-up.
        let events = server.inserted();
        assert_eq!(events.len(), 4 * 7);
        for (serial, document) in (1..).zip(&events) {
            let expected = Event::new(serial);
            assert_eq!(document.get_str("eventIdentifier").ok(), Some(expected.id.as_str()));
            assert_eq!(document.get_str("aggregateIdentifier").ok(), Some(expected.aggregate.as_str()));
            assert_eq!(document.get_binary_generic("serializedPayload").ok(), Some(&expected.payload));
        }
        assert_eq!(server.commands("createIndexes"), 1);
        assert_eq!((server.commands("dropDatabase"), server.collections()), (1, 0));
        let json = report.to_json();
        assert_eq!(json["samples"][0]["phases"][0]["values"].as_array().unwrap().len(), 3);
        assert_eq!(json["distributions"][0]["count"], 21);
        assert!(
            json["notes"].to_string().contains("MongoDB: MongoDB 7.0.0, a server that was there."),
            "{json}"
        );
    }

    #[test]
    fn what_is_there_is_not_touched() {
        let server = Server::start();
        server.keep("something");
        let error = measure(&server.url()).unwrap_err();
        assert_eq!(error.to_string(), "database \"pgfresh_bench\" of MongoDB has collections in it already");
        assert!(error.hint().is_some_and(|hint| hint.contains("drop database")));
        assert_eq!((server.commands("dropDatabase"), server.collections()), (0, 1));
    }

    #[test]
    fn a_refused_event_ends_it_and_the_database_is_still_removed() {
        let server = Server::start();
        server.refuse_after(10);
        let (report, failure) = measure(&server.url()).unwrap();
        let failure = failure.unwrap();
        assert_eq!(failure.to_string(), "could not append events");
        // The first batch is a warm-up, the second was not finished.
        assert!(report.to_json()["samples"][0]["phases"].as_array().unwrap().is_empty());
        assert_eq!(server.commands("dropDatabase"), 1);
    }
}
