//! Runs one statement and observes what it does.

use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::Duration;

use pgwire::TokenKind;
use server::literal;

use super::answer::Answer;
use super::bystander::Traps;
use super::catalog::Relations;
use super::class::StatementClass;
use super::code::Code;
use super::deferred::keeps_changes;
use super::error::LaboratoryError;
use super::facts::{Facts, HiddenLocks};
use super::hidden::never_waits;
use super::progress::{Expected, Progress, Statement, is_refused, needs_transaction};
use super::questions::{Counters, Question, RelationState, SessionState};
use super::repetition::{Repetition, Scope, shortened};
use super::requests::Request;
use super::session::{Exchange, RepeatedSession};
use crate::ObservedStatement;
use crate::sql_text::tokens;

/// Time after which a session of an old major version reports its counters. Another session sees them after the same
/// time.
const COUNTERS_DELAY: Duration = Duration::from_millis(600);

impl Repetition<'_> {
    /// Repeats a statement as the tool ran it, and adds the facts to `observed`.
    pub(super) fn observe(
        &mut self,
        open: &mut RepeatedSession,
        statement: &Statement,
        parts: &mut Request,
        progress: &Progress<'_>,
        observed: &mut ObservedStatement,
    ) -> Result<Answer, LaboratoryError> {
        let is_idle = open.status == b'I';
        // SET LOCAL affects the later statements of its Query message, so it needs a transaction too.
        let is_setting = statement.class == StatementClass::Bare && progress.is_several;
        if is_idle && needs_transaction(&progress.expected()) {
            return self.exchange(open, statement, parts, progress);
        }
        if is_idle && (statement.class == StatementClass::Ordinary || is_setting) {
            self.ask(open, "BEGIN")?;
            open.is_wrapped = true;
        } else if is_idle && matches!(statement.class, StatementClass::Outside { .. }) {
            return self.observe_alone(open, statement, parts, progress, observed);
        }
        if statement.class == StatementClass::Ordinary {
            self.read_state(open, is_idle && open.is_wrapped)?;
        }
        let before = open.state.clone();
        let code = self.read_code(open, statement, before.as_ref(), observed)?;
        if matches!(statement.class, StatementClass::End { .. }) && keeps_changes(&statement.sql) {
            observed.locks = self.locks_of_deferred(open, progress.database)?;
        }
        let fails = matches!(progress.expected(), Expected::Error(_));
        let first = self.catalogs.next_transaction()?;
        let mut hidden = None;
        let answer = match &before {
            Some(before) if fails && statement.class == StatementClass::Ordinary => {
                self.observe_failing(open, statement, parts, progress, (before, observed))?
            }
            Some(before) if code.may_roll_back() => {
                let (answer, locks) =
                    self.observe_hidden(open, statement, parts, progress, (before, &code))?;
                hidden = Some(locks);
                answer
            }
            _ => self.exchange(open, statement, parts, progress)?,
        };
        if is_idle && open.is_wrapped && is_refused(answer.sqlstate()) {
            self.undo(open, parts, progress)?;
            return self.observe_alone(open, statement, parts, progress, observed);
        }
        if statement.class == StatementClass::Begin && open.is_wrapped {
            // The client sent BEGIN in the middle of a Query message, so its transaction outlives the request.
            open.is_wrapped = false;
        }
        if open.is_in_transaction() && answer.error.is_none() {
            let is_watched = fails || hidden.is_some() || statement.class != StatementClass::Ordinary;
            if !is_watched {
                self.note_rollback(first, statement)?;
            }
            self.look(open, statement, before, (progress, hidden), observed)?;
        }
        Ok(answer)
    }

    /// Reads the state of an open transaction, if it isn't known. `is_new` means that the transaction holds no locks.
    fn read_state(&mut self, open: &mut RepeatedSession, is_new: bool) -> Result<(), LaboratoryError> {
        if !open.is_in_transaction() || open.state.is_some() {
            return Ok(());
        }
        let mut state = SessionState::read(&self.question(open, Question::Counters)?);
        if !is_new {
            // The transaction may already hold locks, for example after ROLLBACK TO.
            state.relations.extend(SessionState::read(&self.question(open, Question::Held)?).relations);
        }
        open.state = Some(state);
        Ok(())
    }

    /// Rolls back the laboratory's own transaction, so that the request can run again.
    fn undo(
        &mut self,
        open: &mut RepeatedSession,
        parts: &Request,
        progress: &Progress<'_>,
    ) -> Result<(), LaboratoryError> {
        self.ask(open, "ROLLBACK")?;
        let mut watch = self.watch(open.pid, progress.limit());
        let catalogs = &mut self.catalogs;
        open.forget(&parts.prepared, &mut |elapsed| watch.tick(elapsed, catalogs))
    }

    /// Reads the code that a statement runs, and the `lock_timeout` that applies to it.
    fn read_code(
        &mut self,
        open: &mut RepeatedSession,
        statement: &Statement,
        before: Option<&SessionState>,
        observed: &mut ObservedStatement,
    ) -> Result<Code, LaboratoryError> {
        let Some(before) = before else { return Ok(Code::default()) };
        let is_ordinary = statement.class == StatementClass::Ordinary;
        let code = if is_ordinary { self.code_of(open, &statement.sql)? } else { Code::default() };
        let has_no_wait = never_waits(&statement.sql);
        observed.lock_timeout =
            if has_no_wait { Some(Duration::ZERO) } else { code.lock_timeout(before.lock_timeout) };
        Ok(code)
    }

    /// Reads the session's locks after a statement and derives the statement's facts from them. `hidden` are the locks
    /// that other sessions observed.
    fn look(
        &mut self,
        open: &mut RepeatedSession,
        statement: &Statement,
        before: Option<SessionState>,
        (progress, hidden): (&Progress<'_>, Option<HiddenLocks>),
        observed: &mut ObservedStatement,
    ) -> Result<(), LaboratoryError> {
        // Without an earlier state, don't ask: a question would take a snapshot, and PostgreSQL then refuses SET
        // TRANSACTION.
        let Some(before) = before else { return Ok(()) };
        let mut after = SessionState::read(&self.question(open, Question::Held)?);
        if hidden.is_some() {
            self.restore_lock_timeout(open, &before, &mut after)?;
            // The counters of a part that was rolled back stay, but its locks are gone.
            let mut all = SessionState::read(&self.question(open, Question::Counters)?).relations;
            all.extend(std::mem::take(&mut after.relations));
            after.relations = all;
        }
        if statement.class == StatementClass::Ordinary {
            let mut facts = self.changes(progress.database, &before, &after)?;
            if let Some(hidden) = hidden {
                facts.add_locks(&before.relations, &hidden);
            }
            if observed.sql.get(..8).is_some_and(|word| word.eq_ignore_ascii_case("truncate")) {
                facts.mark_emptied();
            }
            if !statement.continues {
                // Only a statement that continues a portal, such as FETCH, can also continue an earlier scan. For other
                // statements, rows without a new scan don't count.
                facts.scans.retain(|scan| scan.scans > 0);
            }
            observed.add_facts(facts);
        }
        // Keep the relations from before: their counters stay valid even when a rollback to a savepoint releases their
        // locks.
        let mut relations = before.relations;
        for state in relations.values_mut() {
            state.modes.clear();
        }
        relations.extend(after.relations);
        open.state = Some(SessionState { relations, lock_timeout: after.lock_timeout });
        Ok(())
    }

    /// Compares two states of a transaction.
    pub(super) fn changes(
        &mut self,
        database: &str,
        before: &SessionState,
        after: &SessionState,
    ) -> Result<Facts, LaboratoryError> {
        let is_changed = |(oid, state): &(&u32, &RelationState)| before.relations.get(oid) != Some(*state);
        let changed: HashMap<u32, RelationState> =
            after.relations.iter().filter(is_changed).map(|(oid, state)| (*oid, state.clone())).collect();
        let oids: Vec<u32> = changed.keys().copied().collect();
        let committed = self.catalogs.committed(database, &oids)?;
        self.sizes.note_renamed(database, &committed);
        let counters: HashMap<u32, Counters> =
            before.relations.iter().map(|(oid, state)| (*oid, state.counters)).collect();
        Ok(Facts::of_statement(&before.relations, &changed, &counters, &committed))
    }

    /// Sends a statement and reads the response.
    pub(super) fn exchange(
        &mut self,
        open: &mut RepeatedSession,
        statement: &Statement,
        parts: &mut Request,
        progress: &Progress<'_>,
    ) -> Result<Answer, LaboratoryError> {
        let mut watch = self.watch(open.pid, progress.limit());
        let catalogs = &mut self.catalogs;
        let exchange = Self::exchange_of(statement);
        let answer =
            open.exchange(&exchange, &mut parts.copies, &mut |elapsed| watch.tick(elapsed, catalogs))?;
        if watch.has_cancelled() {
            self.records.note(format!(
                "facts of \"{}\": it waited for another session in the laboratory, or took too long",
                shortened(&statement.sql)
            ));
        }
        Ok(answer)
    }

    /// Runs a statement outside transactions while another session observes its locks.
    fn observe_alone(
        &mut self,
        open: &mut RepeatedSession,
        statement: &Statement,
        parts: &mut Request,
        progress: &Progress<'_>,
        observed: &mut ObservedStatement,
    ) -> Result<Answer, LaboratoryError> {
        observed.is_outside_transactions = true;
        // The question also makes the server count rows.
        let settings = self.question(open, Question::Counters)?;
        let session = SessionState::read(&settings).lock_timeout;
        observed.lock_timeout = self.code_of(open, &statement.sql)?.lock_timeout(session);
        if let StatementClass::Outside { is_of_database: true } = statement.class {
            self.catalogs.close();
            return self.exchange(open, statement, parts, progress);
        }
        let database = progress.database;
        self.settle(open)?;
        let before = self.catalogs.all(database)?;
        let tables = self.tables_of(open, &statement.sql, database, &before)?;
        let is_vacuum = observed.sql.get(..6).is_some_and(|word| word.eq_ignore_ascii_case("vacuum"));
        let timeouts = settings.first().and_then(|row| row.get(1)?.clone());
        let first = self.catalogs.next_transaction()?;
        // Waiting for a trap must not count against the client's timeout, so turn it off until the statement ends.
        self.set_lock_timeout(open, "0", Scope::Session)?;
        let (held, why) = (&HashMap::new(), "which runs outside transactions");
        let traps = Traps { held, tables: &tables, relations: &before, opens_early: is_vacuum, why };
        let (answer, locks) = self.exchange_beside(open, statement, parts, progress, &traps)?;
        if !open.is_over {
            self.set_lock_timeout(open, timeouts.as_deref().unwrap_or("0"), Scope::Session)?;
            self.settle(open)?;
        }
        let after = self.catalogs.all(database)?;
        let transactions = self.catalogs.ended_since(first)?.committed.max(1);
        let mut facts = Facts::of_lone_statement(&before, &after, &locks);
        for changed in &mut facts.changed {
            changed.rows /= transactions;
        }
        observed.add_facts(facts);
        Ok(answer)
    }

    /// Makes the session report its counters, so that other sessions see them.
    fn settle(&mut self, open: &mut RepeatedSession) -> Result<(), LaboratoryError> {
        if self.catalogs.can_force_counters() {
            self.answer(open, "SELECT pg_catalog.pg_stat_force_next_flush()")?;
        } else {
            thread::sleep(COUNTERS_DELAY);
            self.ask(open, "SELECT 1")?;
            thread::sleep(COUNTERS_DELAY);
        }
        Ok(())
    }

    /// Returns the tables that a statement may lock: those that it names and those connected to them. Returns all
    /// tables if it names none.
    fn tables_of(
        &mut self,
        open: &mut RepeatedSession,
        sql: &str,
        database: &str,
        relations: &Relations,
    ) -> Result<Vec<u32>, LaboratoryError> {
        let near = self.tables_named_in(open, sql, database)?;
        Ok(if near.is_empty() { Self::all_tables(relations) } else { near })
    }

    /// Returns the tables that a statement names, and the tables connected to them.
    pub(super) fn tables_named_in(
        &mut self,
        open: &mut RepeatedSession,
        sql: &str,
        database: &str,
    ) -> Result<Vec<u32>, LaboratoryError> {
        let resolved: Vec<String> = names_in(sql)
            .into_iter()
            .map(|name| {
                format!("SELECT pg_catalog.to_regclass({})::pg_catalog.oid::pg_catalog.text", literal(&name))
            })
            .collect();
        let rows = self.answer(open, &resolved.join(" UNION "))?;
        let named: Vec<u32> =
            rows.into_iter().flatten().flatten().filter_map(|oid| oid.parse().ok()).collect();
        self.catalogs.tables_near(database, &named)
    }

    pub(super) fn all_tables(relations: &Relations) -> Vec<u32> {
        let mut all: Vec<u32> = relations
            .iter()
            .filter(|(_, relation)| matches!(relation.letter, 'r' | 'p' | 'm'))
            .map(|(oid, _)| *oid)
            .collect();
        all.sort_unstable();
        all
    }

    pub(super) fn exchange_of(statement: &Statement) -> Exchange<'_> {
        let is_copy = statement.sql.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("copy"));
        Exchange {
            messages: &statement.messages,
            is_extended: statement.is_extended,
            is_copy,
            wants_rows: false,
            tick: Duration::from_millis(20),
        }
    }
}

/// Returns the names in a statement, with their schemas.
fn names_in(sql: &str) -> HashSet<String> {
    let mut names = HashSet::new();
    let mut current = String::new();
    let mut follows_point = false;
    for token in tokens(sql) {
        let text = String::from_utf8_lossy(token.text);
        match token.kind {
            TokenKind::Word | TokenKind::QuotedName => {
                if !follows_point {
                    current.clear();
                }
                current += &text;
                names.insert(current.clone());
                follows_point = false;
            }
            TokenKind::Sign if token.is_sign(b'.') => {
                current.push('.');
                follows_point = true;
            }
            _ => follows_point = false,
        }
    }
    names.retain(|name| name.matches('.').count() < 2);
    names
}
