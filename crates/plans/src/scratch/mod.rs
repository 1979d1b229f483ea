//! A scratch server: a copy of the template that has production's statistics and sizes, but no rows of production.
//!
//! [`Scratch::start`] copies the template and starts a server without a gateway, so that no client reaches it and the copy
//! never becomes a lease or a template. Then it takes four steps:
//!
//! 1. It writes production's numbers into `pg_class`, `pg_statistic` and `pg_statistic_ext_data`.
//! 2. It shuts the server down, because the server's buffers would hide changes of files.
//! 3. It gives each table a sparse file with production's size, and each B-tree production's height.
//! 4. It starts the server again.
//!
//! The planner takes a table's size from its file, and everything else from the catalogs, so it chooses production's
//! plans. No statement of the suite is executed. The guard removes the copy, even after a kill.

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

/// Timeout for each answer during the import. One statement matches all relations of a database.
const IMPORT_TIMEOUT: Duration = Duration::from_mins(10);
/// Limit for each statement of the import, a little below that.
const IMPORT_LIMIT: &str = "9min";

/// A scratch server. If it is dropped, the guard removes the copy a moment later.
#[derive(Debug)]
pub struct Scratch {
    server: Server,
    session: Session,
    account: Account,
    /// Number of pages in a file.
    segment: u32,
    /// Tables with production's sizes, by their object identifiers.
    tables: HashMap<u32, Imported>,
    /// Indexes of each candidate.
    candidates: Vec<Vec<u32>>,
}

impl Scratch {
    /// Starts a server on a copy of the provisioner's template, and gives the template's database production's
    /// statistics. Of several templates, it is the default one.
    ///
    /// # Errors
    ///
    /// If the server does not start, the statistics cannot be written, or the files cannot have production's sizes.
    /// Statistics without a place in the copy are no error: [`Applied`] lists them.
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
    /// If the end of the server's processes cannot be observed. The guard removes the copy nevertheless.
    pub fn stop(self) -> Result<(), ScratchError> {
        let Self { server, session, .. } = self;
        drop(session);
        server.stop()?;
        Ok(())
    }

    /// Returns the plan of `EXPLAIN (VERBOSE, FORMAT JSON)`, unchanged.
    ///
    /// # Errors
    ///
    /// If there is no plan.
    pub fn explain_json(&mut self, statement: &BoundStatement, mode: PlanMode) -> Result<Value, Refusal> {
        self.explain_with(statement, mode, "")
    }

    /// Explains a statement in JSON after `indexes`, SQL that changes which indexes are visible.
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

    /// Returns PostgreSQL's own text of a plan. The lines have no line break at the end.
    ///
    /// # Errors
    ///
    /// If there is no plan.
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

/// Writes production's statistics into the catalogs of `database`. Returns the new sizes of files, and the number of
/// pages in a segment.
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
    // Triggers of the template must not see the tables of the import.
    let sql = "UPDATE pg_event_trigger SET evtenabled = 'D' WHERE evtenabled <> 'D'";
    session.query(sql).during("prepare the import")?;
    relations::import(&mut session, major, statistics, applied)?;
    columns::import(&mut session, major, statistics, applied)?;
    extended::import(&mut session, major, statistics, applied)?;
    let sizes = sizes::decide(&mut session, statistics, applied)?;
    session.close().during("end the import")?;
    Ok((sizes, segment))
}

/// Returns the number of pages in a file of the server.
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

/// Changes the files of a server that has stopped.
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
