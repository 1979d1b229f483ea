//! Provides a server with data, which plays the production server, and scratch servers with the same template.

use plans::import::{self, StatisticsServer};
use plans::{Applied, Scratch, Statistics};
use serde_json::Value;
use server::AdminConnection;
use template::{Provisioner, Started};

use crate::common::WAIT_TIMEOUT;
use crate::common::provisioner::{DATABASE, provisioner};
use crate::common::watchdog::Watchdog;

/// Server with data. Tests compare it with scratch servers that have its statistics.
pub(super) struct Production {
    provisioner: Provisioner,
    started: Started,
    pub(super) session: AdminConnection,
    _watchdog: Watchdog,
}

impl Production {
    /// Starts a PostgreSQL `major` server whose template is `schema`, and runs `data` in it.
    pub(super) fn new(major: u32, schema: &str, data: &str) -> Self {
        let (provisioner, watchdog) = provisioner(major, schema);
        let started = provisioner.start(&|_| ()).unwrap();
        let socket = started.server.run().socket_directory();
        let mut session = AdminConnection::open(&socket, "postgres", DATABASE, WAIT_TIMEOUT).unwrap();
        for statement in pgwire::split_statements(data) {
            session.query(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        Self { provisioner, started, session, _watchdog: watchdog }
    }

    /// Reads the statistics as `pgfresh template import --statistics` does.
    pub(super) fn statistics(&self) -> Statistics {
        let url = self.started.server.address(DATABASE).url();
        import::read(StatisticsServer::from_url(&url).unwrap()).unwrap().statistics
    }

    /// Starts a scratch server with these statistics.
    pub(super) fn scratch(&self, statistics: &Statistics) -> (Scratch, Applied) {
        Scratch::start(&self.provisioner, statistics).unwrap()
    }

    /// Explains a statement on the server with data.
    pub(super) fn explain_json(&mut self, statement: &str) -> Value {
        let rows = self.session.query(&format!("EXPLAIN (VERBOSE, FORMAT JSON) {statement}")).unwrap();
        serde_json::from_str(rows[0][0].as_ref().unwrap()).unwrap()
    }
}
