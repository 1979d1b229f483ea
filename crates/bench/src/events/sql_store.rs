//! Stores events in an SQL table.

use std::str::FromStr;
use std::time::Duration;

use postgres::config::{Host, SslMode};
use postgres::{Client, Config, NoTls, Statement};

use super::event::Event;
use super::store::Store;
use crate::BenchError;

/// Timeout for connecting, if the URL doesn't set one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The benchmark's schema. It must not exist before the benchmark starts.
const SCHEMA: &str = "pgfresh_bench";
/// The table for the events. Its columns and keys are those of Axon Framework's JPA event store. Source: its reference
/// guide, 4.x, "Event storage".
const CREATE_TABLE: &str = "CREATE TABLE pgfresh_bench.domain_event_entry (\
    global_index bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_identifier text NOT NULL UNIQUE, \
    aggregate_identifier text NOT NULL, sequence_number bigint NOT NULL, type text NOT NULL, \
    payload bytea NOT NULL, payload_type text NOT NULL, time_stamp text NOT NULL, \
    UNIQUE (aggregate_identifier, sequence_number))";
const INSERT: &str = "INSERT INTO pgfresh_bench.domain_event_entry (event_identifier, aggregate_identifier, \
    sequence_number, type, payload, payload_type, time_stamp) \
    VALUES ($1, $2, 0, 'Order', $3, 'shop.OrderPlaced', '2024-01-01T00:00:00Z')";

/// The report's description of an event.
pub(crate) const EVENT_DESCRIPTION: &str = "In SQL, an event is a row of an event store with three indexes and 300 bytes of content, in BEGIN, \
    INSERT and COMMIT over one connection.";

/// Parses a server URL.
///
/// # Errors
/// Returns an error if the text isn't a URL or if the URL requires encryption.
pub(crate) fn config(url: &str) -> Result<Config, BenchError> {
    let mut config = Config::from_str(url).map_err(BenchError::Url)?;
    if config.get_ssl_mode() == SslMode::Require {
        return Err(BenchError::Encryption);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    Ok(config)
}

/// Returns the server's host and port, or its Unix socket's directory.
pub(crate) fn location(config: &Config) -> String {
    let port = config.get_ports().first().copied().unwrap_or(5432);
    match config.get_hosts().first() {
        Some(Host::Tcp(host)) => format!("{host}:{port}"),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "localhost".to_owned(),
    }
}

/// A session that appends events.
pub(crate) struct SqlStore {
    client: Client,
    insert: Statement,
    version: String,
}

impl SqlStore {
    /// Connects and creates the table for the events.
    ///
    /// # Errors
    /// Returns an error if the schema exists, because another benchmark is running or left its data behind.
    pub(crate) fn create(config: &Config) -> Result<Self, BenchError> {
        let mut client = config.connect(NoTls).map_err(BenchError::Connect)?;
        // Use a single transaction, so that a failure leaves no schema behind.
        let mut transaction = client.transaction().map_err(BenchError::Store)?;
        transaction.batch_execute(&format!("CREATE SCHEMA {SCHEMA}")).map_err(BenchError::Schema)?;
        transaction.batch_execute(CREATE_TABLE).map_err(BenchError::Store)?;
        let insert = transaction.prepare(INSERT).map_err(BenchError::Store)?;
        let version = transaction.query_one("SHOW server_version", &[]).map_err(BenchError::Store)?;
        let version: String = version.get(0);
        transaction.commit().map_err(BenchError::Store)?;
        Ok(Self { client, insert, version: format!("PostgreSQL {version}") })
    }

    fn transaction(&mut self, event: &Event) -> Result<(), postgres::Error> {
        let mut transaction = self.client.transaction()?;
        transaction.execute(&self.insert, &[&event.id, &event.aggregate, &event.payload])?;
        transaction.commit()
    }
}

impl Store for SqlStore {
    fn version(&self) -> &str {
        &self.version
    }

    fn append(&mut self, event: &Event) -> Result<(), BenchError> {
        self.transaction(event).map_err(BenchError::Store)
    }
}

/// Drops the benchmark's schema, including the table.
pub(crate) fn remove(config: &Config) -> Result<(), BenchError> {
    let mut client = config.connect(NoTls).map_err(BenchError::Connect)?;
    client.batch_execute(&format!("DROP SCHEMA {SCHEMA} CASCADE")).map_err(BenchError::Store)
}
