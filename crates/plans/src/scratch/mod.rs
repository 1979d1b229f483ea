//! Runs a scratch server: a copy of the template with production's statistics and sizes, but without production's rows.
//!
//! [`Scratch::start`] copies the template and starts a server without a gateway, so that clients can't reach it and the
//! copy never becomes a lease or a template. Then it takes four steps:
//!
//! 1. Write production's numbers into `pg_class`, `pg_statistic` and `pg_statistic_ext_data`.
//! 2. Shut the server down, because its buffers would hide changes to files.
//! 3. Give each table a sparse file of the same size as in production, and each B-tree the same height.
//! 4. Start the server again.
//!
//! The planner reads a table's size from its file and everything else from the catalogs, so it chooses the same plans
//! as in production. The suite's statements are never executed. The guard process removes the copy even if pgfresh is
//! killed.

mod applied;
mod candidates;
mod catalog;
mod columns;
mod error;
mod estimate;
mod extended;
mod files;
mod pages;
mod relations;
mod rows;
mod script;
mod session;
mod sizes;

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;
use server::{AdminConnection, Server, admin_params};
use storage::Account;
use template::Provisioner;

pub use self::applied::{Applied, Reason, UnappliedObject};
use self::error::During;
pub use self::error::ScratchError;
use self::files::{Files, Resize};
use self::pages::PAGE;
pub use self::script::{count_parameters, has_parameters};
pub use self::session::Refusal;
use self::session::Session;
use self::sizes::{Imported, Sizes};
use crate::{
    BoundStatement, Candidate, CandidateId, Catalog, ExplainError, Plan, PlanMode, Planner, Statistics,
};

/// Timeout for each response during the import. It is long because one statement matches all relations of a database.
const IMPORT_TIMEOUT: Duration = Duration::from_mins(10);
/// Statement timeout of the import. It is shorter than [`IMPORT_TIMEOUT`], so that the server reports the timeout
/// itself.
const IMPORT_LIMIT: &str = "9min";

/// A scratch server. After it has been dropped, the guard process removes the copy.
#[derive(Debug)]
pub struct Scratch {
    server: Server,
    session: Session,
    account: Account,
    /// Number of pages in a segment file.
    segment: u32,
    /// Tables with production's size, by OID.
    tables: HashMap<u32, Imported>,
    /// OIDs of each candidate's indexes, by [`CandidateId`].
    candidates: Vec<Vec<u32>>,
}

impl Scratch {
    /// Starts a server on a copy of the provisioner's default template, and writes production's statistics into the
    /// template's database.
    ///
    /// # Errors
    ///
    /// Returns an error if the server doesn't start, if the statistics can't be written, or if the files can't have the
    /// same sizes as in production. Statistics for objects that the copy lacks aren't an error: [`Applied`] lists them.
    pub fn start(
        provisioner: &Provisioner,
        statistics: &Statistics,
    ) -> Result<(Self, Applied), ScratchError> {
        let started = provisioner.start(&|_| ())?;
        let (mut server, place) = (started.server, started.place);
        let database = &started.database;
        drop(started.session);
        let major = provisioner.installation.version().major;
        let mut applied = Applied::default();
        let (sizes, segment) = import(&server, database, major, statistics, &mut applied)?;
        let guard = server.shut_down()?;
        let data = guard.run().data();
        resize(&data, &provisioner.account, segment, &sizes.resizes)?;
        let mut settings = provisioner.settings(place.budget())?;
        settings.set("autovacuum", "off").map_err(template::ProvisionError::from)?;
        server = provisioner.start_again(guard, &place, &settings)?;
        let session = Session::open(&server, database, major, &statistics.settings, &mut applied)?;
        let account = provisioner.account.clone();
        Ok((
            Self { server, session, account, segment, tables: sizes.tables, candidates: Vec::new() },
            applied,
        ))
    }

    /// Stops the server and removes the copy.
    ///
    /// # Errors
    ///
    /// Returns an error if it isn't certain that the server's processes have ended. The guard still removes the copy.
    pub fn stop(self) -> Result<(), ScratchError> {
        let Self { server, session, .. } = self;
        drop(session);
        server.stop()?;
        Ok(())
    }

    /// Returns the unchanged output of `EXPLAIN (VERBOSE, FORMAT JSON)`.
    ///
    /// # Errors
    ///
    /// Returns an error if the statement doesn't have a plan.
    pub fn explain_json(&mut self, statement: &BoundStatement, mode: PlanMode) -> Result<Value, Refusal> {
        self.explain_with(statement, mode, "")
    }

    /// Explains a statement in JSON. Runs `indexes` first, which is SQL that changes the visibility of indexes.
    fn explain_with(
        &mut self,
        statement: &BoundStatement,
        mode: PlanMode,
        indexes: &str,
    ) -> Result<Value, Refusal> {
        let options = ["VERBOSE", "FORMAT JSON"];
        let lines = self.session.explain(&self.server, statement, mode, &options, indexes)?;
        serde_json::from_str(&lines.concat())
            .map_err(|error| ExplainError::Gone(format!("it has sent no JSON: {error}")).into())
    }

    /// Returns a plan in PostgreSQL's text format. The text doesn't end with a line break.
    ///
    /// # Errors
    ///
    /// Returns an error if the statement doesn't have a plan.
    pub fn explain_text(&mut self, statement: &BoundStatement, mode: PlanMode) -> Result<String, Refusal> {
        let lines = self.session.explain(&self.server, statement, mode, &[], "")?;
        Ok(lines.join("\n"))
    }
}

impl Planner for Scratch {
    fn explain(
        &mut self,
        statement: &BoundStatement,
        mode: PlanMode,
        visible: &[CandidateId],
        hidden: &[(String, String)],
    ) -> Result<Plan, ExplainError> {
        let indexes = self.visibility(visible, hidden);
        let explained = self.explain_with(statement, mode, &indexes).map_err(|refusal| refusal.error)?;
        Plan::parse(&explained).map_err(|error| ExplainError::Gone(error.to_string()))
    }

    fn create(&mut self, candidates: &[Candidate]) -> Vec<Result<(CandidateId, u64), String>> {
        let created = self.create_candidates(candidates);
        created.unwrap_or_else(|error| candidates.iter().map(|_| Err(error.to_string())).collect())
    }

    fn catalog(&mut self) -> Result<Catalog, ExplainError> {
        self.read_catalog()
    }
}

/// Writes production's statistics into the catalogs of `database`. Returns the new file sizes and the number of pages
/// in a segment.
fn import(
    server: &Server,
    database: &str,
    major: u32,
    statistics: &Statistics,
    applied: &mut Applied,
) -> Result<(Sizes, u32), ScratchError> {
    let more = [("statement_timeout", IMPORT_LIMIT), ("allow_system_table_mods", "on")];
    let folder = server.run().socket_directory();
    let mut session =
        AdminConnection::open_with(&folder, &admin_params(major, &more), database, IMPORT_TIMEOUT)
            .during("connect")?;
    let segment = segment_pages(&mut session)?;
    // The template's event triggers must not react to the import's tables, so disable them.
    let sql = "UPDATE pg_event_trigger SET evtenabled = 'D' WHERE evtenabled <> 'D'";
    session.query(sql).during("prepare the import")?;
    relations::import(&mut session, major, statistics, applied)?;
    columns::import(&mut session, major, statistics, applied)?;
    extended::import(&mut session, major, statistics, applied)?;
    let sizes = sizes::decide(&mut session, statistics, applied)?;
    session.close().during("end the import")?;
    Ok((sizes, segment))
}

/// Returns the number of pages in a segment file. Returns an error unless the page size is 8 KiB.
fn segment_pages(session: &mut AdminConnection) -> Result<u32, ScratchError> {
    let sql = "SELECT current_setting('block_size'), setting FROM pg_settings WHERE name = 'segment_size'";
    let rows = session.query(sql).during("read the size of pages")?;
    let row = rows.first().map_or(&[][..], Vec::as_slice);
    match row {
        [Some(size), Some(segment)] if *size == PAGE.to_string() => {
            segment.parse().map_err(|_| ScratchError::BlockSize(segment.clone()))
        }
        [Some(size), _] => Err(ScratchError::BlockSize(size.clone())),
        _ => Err(ScratchError::BlockSize("?".to_owned())),
    }
}

/// Changes the files of a stopped server.
fn resize(
    data: &std::path::Path,
    account: &Account,
    segment: u32,
    resizes: &[Resize],
) -> Result<(), ScratchError> {
    let mut files = Files::open(data, account, segment)?;
    let pages: u64 = resizes.iter().map(|resize| u64::from(resize.pages)).sum();
    files.expect_holes(pages * PAGE as u64)?;
    resizes.iter().try_for_each(|resize| files.resize(resize))
}
