//! Defines the targets for events: pgfresh's own servers and existing servers.

use std::str::FromStr;

use postgres::Config;
use server::{Preset, SUPERUSER, Server};
use storage::{Cache, PlaceRequest};
use template::{Provisioner, ServerOptions};

#[cfg(feature = "mongodb")]
use super::document_store;
use super::store::Store;
use super::{Events, sql_store};
use crate::BenchError;

/// A target as specified by the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventStore {
    /// A pgfresh server on disk, with PostgreSQL's default durability.
    Durable,
    /// A pgfresh server on disk whose commits don't wait for the disk.
    Asynchronous,
    /// A pgfresh server in its usual place, without flushes.
    Fast,
    /// The URL of an existing server.
    Url(String),
}

/// Error returned if a text isn't a valid target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseEventStoreError {
    /// The text is neither a target's name nor a URL of a known scheme.
    #[error("expected durable, async, fast, postgresql://… or mongodb://…")]
    Unknown,
    /// The text is a `MongoDB` URL, but this pgfresh was built without `MongoDB` support.
    #[error("this pgfresh was built without MongoDB's driver: cargo install … --features mongodb")]
    WithoutMongoDb,
}

impl FromStr for EventStore {
    type Err = ParseEventStoreError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "durable" => Ok(Self::Durable),
            "async" => Ok(Self::Asynchronous),
            "fast" => Ok(Self::Fast),
            url if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Ok(Self::Url(url.to_owned()))
            }
            url if url.starts_with(MONGODB) && cfg!(feature = "mongodb") => Ok(Self::Url(url.to_owned())),
            url if url.starts_with(MONGODB) => Err(ParseEventStoreError::WithoutMongoDb),
            _ => Err(ParseEventStoreError::Unknown),
        }
    }
}

/// The prefix of `MongoDB` URLs.
const MONGODB: &str = "mongodb://";

/// A target's protocol and connection options.
enum Connection {
    Sql(Box<Config>),
    #[cfg(feature = "mongodb")]
    Documents(Box<mongodb::options::ClientOptions>),
}

/// A target that is ready to use.
pub(crate) struct EventsFixture {
    name: String,
    /// Location of the server's data. Empty for an existing server.
    place: String,
    /// The server's name and version. Empty until [`Self::open`] connects.
    version: String,
    connection: Connection,
    /// The pgfresh server, which stops when this value is dropped. `None` for an existing server.
    server: Option<Server>,
}

impl EventsFixture {
    pub(crate) fn of(target: &EventStore, events: &Events<'_>) -> Result<Self, BenchError> {
        let disk = events.disk.clone().map_or(PlaceRequest::Disk, PlaceRequest::At);
        let server_options =
            |place, preset| ServerOptions { place, preset, template: None, ..events.server_options.clone() };
        let (name, server_options) = match target {
            EventStore::Durable => ("durable, on disk", server_options(disk, Preset::Durable)),
            EventStore::Asynchronous => {
                let mut server_options = server_options(disk, Preset::Durable);
                server_options.settings.push(("synchronous_commit".to_owned(), "off".to_owned()));
                ("synchronous_commit=off, on disk", server_options)
            }
            EventStore::Fast => {
                ("pgfresh", server_options(events.server_options.place.clone(), Preset::Fast))
            }
            EventStore::Url(url) => return Self::from_url(url),
        };
        let cache = Cache::locate(events.cache.as_deref())?;
        let started = Provisioner::find(server_options, cache, events.program.clone())?.start(&|_| ())?;
        let mut config = Config::new();
        config.host_path(started.server.run().socket_directory()).user(SUPERUSER).dbname("postgres");
        let place = started.place.why();
        let (name, connection) = (name.to_owned(), Connection::Sql(Box::new(config)));
        Ok(Self { name, place, version: String::new(), connection, server: Some(started.server) })
    }

    fn from_url(url: &str) -> Result<Self, BenchError> {
        #[cfg(feature = "mongodb")]
        if url.starts_with(MONGODB) {
            let options = document_store::options(url)?;
            let (name, connection) =
                (document_store::location(&options), Connection::Documents(Box::new(options)));
            return Ok(Self { name, place: String::new(), version: String::new(), connection, server: None });
        }
        let config = sql_store::config(url)?;
        let (name, connection) = (sql_store::location(&config), Connection::Sql(Box::new(config)));
        Ok(Self { name, place: String::new(), version: String::new(), connection, server: None })
    }

    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }

    /// Describes the target for the report, in one sentence.
    pub(crate) fn describe(&self) -> String {
        match self.server {
            Some(_) => format!("{}: {}, {}.", self.name, self.version, self.place),
            None => format!("{}: {}, an existing server.", self.name, self.version),
        }
    }

    /// Describes for the report what an event is on this target, in one sentence.
    pub(crate) fn event(&self) -> &'static str {
        match self.connection {
            Connection::Sql(_) => sql_store::EVENT_DESCRIPTION,
            #[cfg(feature = "mongodb")]
            Connection::Documents(_) => document_store::EVENT_DESCRIPTION,
        }
    }

    /// Creates the table or collection for the events.
    pub(crate) fn open(&mut self) -> Result<Box<dyn Store>, BenchError> {
        let store: Box<dyn Store> = match &self.connection {
            Connection::Sql(config) => Box::new(sql_store::SqlStore::create(config)?),
            #[cfg(feature = "mongodb")]
            Connection::Documents(options) => Box::new(document_store::DocumentStore::create(options)?),
        };
        store.version().clone_into(&mut self.version);
        Ok(store)
    }

    /// Removes the events from an existing server. pgfresh servers don't need this.
    pub(crate) fn close(self) -> Result<(), BenchError> {
        if self.server.is_some() || self.version.is_empty() {
            return Ok(());
        }
        match &self.connection {
            Connection::Sql(config) => sql_store::remove(config),
            #[cfg(feature = "mongodb")]
            Connection::Documents(options) => document_store::remove(options),
        }
    }
}
