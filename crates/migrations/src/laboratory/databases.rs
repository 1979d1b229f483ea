//! Creates the laboratory's databases: an unchanged copy of the template's database, and the databases that the
//! migration changes.

use std::collections::{BTreeMap, HashSet};

use pgwire::{SessionTranscript, StartupParams, frames, split_statements, split_zero};
use server::{AdminConnection, Server, admin_params};
use template::{complete_copy, create_copy};

use super::error::{During, LaboratoryError};
use super::sizes::Sizes;
use super::{ADMIN, TIMEOUT};
use crate::sql_text::tokens;

/// Database that a session connects to while it copies [`ADMIN`].
const OTHER: &str = "template1";
/// Copy of the template's database that no statement changes.
const BASE: &str = "pgfresh_base";
/// Startup option that a client uses to select one of several templates.
const TEMPLATE_OPTION: &[u8] = b"pgfresh.template";

/// Names of the laboratory's databases.
#[derive(Debug)]
pub(super) struct Databases {
    major: u32,
    default: String,
    templates: Vec<String>,
    migrated: String,
    /// Number of fresh databases created so far.
    fresh: u32,
}

impl Databases {
    /// Copies the template's database before a statement can change it.
    pub(super) fn prepare(
        server: &Server,
        major: u32,
        default: String,
        templates: Vec<String>,
    ) -> Result<Self, LaboratoryError> {
        let databases = Self { major, migrated: default.clone(), default, templates, fresh: 0 };
        let place = if databases.default == ADMIN { OTHER } else { ADMIN };
        let mut session = databases.connect(server, place, &[])?;
        databases.copy(&mut session, &databases.default, BASE)?;
        session.close().during("copy the template")?;
        Ok(databases)
    }

    /// Opens a session in which the laboratory runs its own SQL.
    pub(super) fn admin(&self, server: &Server) -> Result<AdminConnection, LaboratoryError> {
        self.connect(server, ADMIN, &[])
    }

    /// Returns the name of the database that the migration has changed.
    pub(super) fn migrated(&self) -> &str {
        &self.migrated
    }

    /// Creates another copy of the template's database and returns its name.
    pub(super) fn create_fresh(&mut self, server: &Server) -> Result<String, LaboratoryError> {
        self.fresh += 1;
        let name = format!("pgfresh_fresh_{}", self.fresh);
        let mut session = self.admin(server)?;
        self.copy(&mut session, BASE, &name)?;
        Ok(name)
    }

    /// Creates the databases that the transcripts name, except those that the migration creates itself. Returns the
    /// sizes of all their relations.
    pub(super) fn prepare_for(
        &mut self,
        server: &Server,
        transcripts: &[SessionTranscript],
    ) -> Result<Sizes, LaboratoryError> {
        let mut session = self.admin(server)?;
        let rows = session.query("SELECT datname FROM pg_database").during("list the databases")?;
        let mut existing: HashSet<String> = rows.into_iter().flatten().flatten().collect();
        let (mut sizes, mut requests) = (Sizes::default(), BTreeMap::<&str, usize>::new());
        for transcript in transcripts.iter().filter(|transcript| !transcript.requests.is_empty()) {
            let name = &transcript.database;
            let source = self.source(transcript);
            if is_created(name, transcripts) {
                existing.insert(name.clone());
                continue;
            }
            let is_new = existing.insert(name.clone());
            if is_new {
                self.copy(&mut session, &source, name)?;
            }
            let is_default =
                source == BASE && (is_new || *name == self.default || requests.contains_key(&**name));
            if !sizes.has(name) {
                let mut counting = self.connect(server, name, &[("statement_timeout", "10s")])?;
                sizes.read(&mut counting, name)?;
                // The server refuses to drop or rename a database while a session is connected to it.
                counting.close().during("read the sizes of tables")?;
            }
            if is_default {
                *requests.entry(name).or_default() += transcript.requests.len();
            }
        }
        if let Some((name, _)) = requests.into_iter().max_by_key(|(_, requests)| *requests) {
            name.clone_into(&mut self.migrated);
        }
        Ok(sizes)
    }

    /// Returns the database to copy for a transcript.
    fn source(&self, transcript: &SessionTranscript) -> String {
        let parameters = transcript.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let params = StartupParams::new(parameters);
        let chosen = params.settings().iter().rev().find(|(name, _)| name == TEMPLATE_OPTION);
        let chosen = chosen.and_then(|(_, value)| std::str::from_utf8(value).ok());
        match chosen.filter(|name| *name != self.default && self.templates.iter().any(|one| one == name)) {
            Some(other) => other.to_owned(),
            None if transcript.database != self.default && self.templates.contains(&transcript.database) => {
                transcript.database.clone()
            }
            None => BASE.to_owned(),
        }
    }

    fn copy(&self, session: &mut AdminConnection, from: &str, to: &str) -> Result<(), LaboratoryError> {
        session.query(&create_copy(from, to, self.major)).during("copy the template's database")?;
        session.query(&complete_copy(from, to)).during("copy the template's database")?;
        Ok(())
    }

    fn connect(
        &self,
        server: &Server,
        database: &str,
        more: &[server::Setting],
    ) -> Result<AdminConnection, LaboratoryError> {
        let folder = server.run().socket_directory();
        AdminConnection::open_with(&folder, &admin_params(self.major, more), database, TIMEOUT)
            .during("connect")
    }
}

/// Returns true if a statement in the transcripts creates the database before the first session connects to it.
fn is_created(database: &str, transcripts: &[SessionTranscript]) -> bool {
    let sessions = transcripts.iter().filter(|transcript| transcript.database == database);
    let Some(first) = sessions.map(|transcript| transcript.began).min() else { return false };
    transcripts.iter().flat_map(|transcript| &transcript.requests).any(|request| {
        let is_before =
            |outcome: &pgwire::RequestOutcome| outcome.error.is_none() && outcome.answered <= first;
        request.outcome.as_ref().is_some_and(is_before)
            && frames(&request.messages).any(|frame| {
                let text = match frame.tag {
                    b'Q' => split_zero(frame.body).0,
                    b'P' => split_zero(split_zero(frame.body).1).0,
                    _ => return false,
                };
                creates(&String::from_utf8_lossy(text), database)
            })
    })
}

/// Returns true if a statement in `sql` creates the database.
fn creates(sql: &str, database: &str) -> bool {
    split_statements(sql).into_iter().any(|statement| {
        let [first, second, name, ..] = &tokens(statement)[..] else { return false };
        first.is_word(b"create") && second.is_word(b"database") && name.name().as_deref() == Some(database)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_databases_are_found() {
        assert!(creates("SELECT 1; create database \"Shop\" TEMPLATE template0", "Shop"));
        assert!(creates("CREATE DATABASE Shop", "shop"));
        assert!(!creates("CREATE DATABASE shops; CREATE TABLE shop ()", "shop"));
    }
}
