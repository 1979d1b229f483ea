//! Handles finished tasks: decides what happens to the database next and answers the request waiting for the task.

use std::time::Instant;

use super::database::{Change, Database, DatabaseState, Lease, Then, Work};
use super::line::{Line, NameState, Request};
use super::{Action, Answer, DatabaseId, LeaseTable, Outcome, Terms, Want};
use crate::error::LeaseError;
use crate::isolation::Isolation;

impl LeaseTable {
    pub(super) fn finished(&mut self, id: DatabaseId, outcome: Outcome, now: Instant) {
        let Some(database) = self.databases.get_mut(id) else { return };
        database.work = Work::None;
        if matches!(outcome, Outcome::Failed(_)) {
            self.failures += 1;
        }
        match database.state.clone() {
            DatabaseState::Creating => self.created(id, outcome, now),
            DatabaseState::Changing(Change::Naming(name)) => self.named(id, &name, outcome, now),
            DatabaseState::Changing(Change::Unnaming { retire }) => {
                self.unnamed(id, retire, outcome, now);
            }
            DatabaseState::Changing(Change::Keeping { to, lease }) => {
                self.kept(id, &to, lease, outcome, now);
            }
            DatabaseState::Changing(Change::Copying(lease)) => {
                self.answer_name_of(id, outcome);
                self.resume(id, lease, now);
            }
            DatabaseState::Changing(Change::Server(lease)) => self.resume(id, lease, now),
            DatabaseState::Resetting(then) => self.was_reset(id, then, outcome, now),
            DatabaseState::Retiring => match outcome {
                Outcome::Done | Outcome::DroppedOrRenamed => self.forget(id),
                outcome => self.retry(id, outcome, now),
            },
            DatabaseState::Ready | DatabaseState::Leased(_) => {}
        }
        if let Some(database) = self.databases.get_mut(id)
            && !matches!(database.work, Work::RetryAt(_))
        {
            (database.failures, database.error) = (None, None);
        }
    }

    fn created(&mut self, id: DatabaseId, outcome: Outcome, now: Instant) {
        let Some(Database { source, begun, .. }) = self.databases.get(id) else { return };
        let (source, took) = (source.clone(), now.saturating_duration_since(*begun));
        match outcome {
            Outcome::Fresh(_proof) => {
                self.set_state(id, DatabaseState::Ready);
                self.made(&source, took);
                if !self.supplies.contains_key(&source) {
                    return self.unname(id, true, None);
                }
                self.serve(&source, now);
            }
            Outcome::PutOff => self.forget(id),
            // The task may have created part of the database before failing, or something is wrong with the new
            // database. Since the next one may be no better, wait before creating it.
            outcome => {
                self.retire(id, "it could not be made");
                self.not_made(&source, outcome, now);
            }
        }
    }

    fn named(&mut self, id: DatabaseId, name: &str, outcome: Outcome, now: Instant) {
        let terms = self.databases.get(id).and_then(|database| database.terms.clone());
        match (outcome, terms) {
            (Outcome::Done | Outcome::Fresh(_), Some(terms)) => {
                self.leave_old_name(id, name, now);
                let Some(database) = self.databases.get_mut(id) else { return };
                database.name = Some(name.to_owned());
                database.isolation = terms.isolation;
                database.params = self.names.get(name).and_then(|line| match line.requests.front()?.want {
                    Want::Session { params, .. } => Some(params),
                    _ => None,
                });
                database.warm.clear();
                if let Some(line) = self.names.get_mut(name) {
                    line.unfit = None;
                }
                self.resume(id, Lease::new(terms, now), now);
            }
            (Outcome::NameTaken, _) => {
                // The database still has the name it had before.
                self.set_state(id, DatabaseState::Ready);
                self.taken(id, name, now);
                // Requests for that name may have arrived in the meantime.
                self.advance_name_of(id, now);
            }
            (outcome, terms) => {
                // The database may or may not have the name now. Either way, take the name away before another database
                // receives it.
                self.leave_old_name(id, name, now);
                if let Some(database) = self.databases.get_mut(id) {
                    database.name = Some(name.to_owned());
                }
                // A client that found all of the server's sessions in use never got into the database.
                let is_used =
                    !matches!(outcome, Outcome::Stale | Outcome::Failed(LeaseError::TooManyClients { .. }));
                // The next database may still suit the lease.
                let is_unfit = matches!(outcome, Outcome::Stale | Outcome::DroppedOrRenamed);
                let retained = terms.as_ref().is_some_and(|terms| terms.retained);
                let stays = match outcome {
                    Outcome::Failed(error) => {
                        self.refuse_head(name, error);
                        false
                    }
                    outcome => is_unfit && self.tries_another(name, outcome, now),
                };
                self.unname(id, is_used, terms.filter(|_| stays || retained));
            }
        }
    }

    /// Frees a database's previous name after it has received the new `name`.
    fn leave_old_name(&mut self, id: DatabaseId, name: &str, now: Instant) {
        let old = self.databases.get_mut(id).and_then(|database| database.name.take());
        if let Some(old) = old.filter(|old| old != name) {
            self.free(&old, None, now);
        }
    }

    /// Handles a lease's name that SQL has given to another database. Clients requesting a session get one there.
    fn taken(&mut self, id: DatabaseId, name: &str, now: Instant) {
        let Some(line) = self.names.get_mut(name) else { return };
        if line.state != NameState::Held(id) {
            // Meanwhile, pgfresh has given the name to a kept database.
            return self.advance(name, now);
        }
        line.state = NameState::Free;
        let (sessions, others): (Vec<_>, Vec<_>) =
            line.requests.drain(..).partition(|request| matches!(request.want, Want::Session { .. }));
        line.requests.extend(others);
        for request in sessions {
            self.actions.push(Action::Answer { ticket: request.ticket, answer: Answer::Elsewhere });
        }
        if self
            .names
            .get(name)
            .and_then(|line| line.requests.front())
            .is_some_and(|head| matches!(head.want, Want::Lease { .. } | Want::Reset { .. }))
        {
            self.refuse_head(name, LeaseError::Leased(name.to_owned()));
        }
        self.advance(name, now);
    }

    /// Handles a finished task that took a database's name away.
    fn unnamed(&mut self, id: DatabaseId, retire: bool, outcome: Outcome, now: Instant) {
        let is_gone = match outcome {
            Outcome::Done | Outcome::Fresh(_) => false,
            Outcome::DroppedOrRenamed => true,
            outcome => return self.retry(id, outcome, now),
        };
        let Some(database) = self.databases.get_mut(id) else { return };
        let (name, again) = (database.name.take(), database.terms.take());
        database.isolation = match database.isolation {
            Isolation::Rollback => Isolation::Clone,
            other => other,
        };
        database.params = None;
        if is_gone {
            self.forget(id);
        } else if retire || !self.keeps_returning(id, now) {
            self.set_due(id, DatabaseState::Retiring);
        } else {
            self.set_due(id, DatabaseState::Resetting(Then::Ready));
        }
        if let Some(name) = name {
            self.free(&name, again, now);
        }
    }

    /// Frees a name that has lost its database, or finds another database for it on the terms `again`.
    fn free(&mut self, name: &str, again: Option<Terms>, now: Instant) {
        let Some(line) = self.names.get_mut(name) else { return };
        match again {
            // The name gets its database with the first session, which brings the startup parameters.
            Some(terms) if terms.isolation == Isolation::Rollback => line.state = NameState::Reserved(terms),
            Some(terms) if !line.requests.is_empty() => {
                self.want_database(name, terms, now);
            }
            _ => line.state = NameState::Free,
        }
        self.advance(name, now);
    }

    fn kept(&mut self, id: DatabaseId, to: &str, mut lease: Lease, outcome: Outcome, now: Instant) {
        let name = self.databases.get(id).and_then(|database| database.name.clone()).unwrap_or_default();
        match outcome {
            Outcome::Done | Outcome::Fresh(_) => {
                lease.terms.retained = true;
                lease.deadline = None;
                lease.kept = Some(now);
                if let Some(database) = self.databases.get_mut(id) {
                    database.name = Some(to.to_owned());
                    database.state = DatabaseState::Leased(lease);
                }
                self.names.entry(to.to_owned()).or_insert_with(Line::free).state = NameState::Held(id);
                self.answer_first(&name, Answer::Done(Some(id)));
                self.free(&name, None, now);
                // Requests for the new name may have arrived in the meantime.
                self.advance(to, now);
            }
            Outcome::DroppedOrRenamed => {
                self.answer_first(&name, Answer::Refused(LeaseError::NotLeased(name.clone())));
                self.forget(id);
                self.free(&name, None, now);
            }
            Outcome::NameTaken => {
                self.answer_name_of(id, Outcome::NameTaken);
                self.resume(id, lease, now);
            }
            // The database may have either name now, so retry giving it the new one.
            outcome => self.retry(id, outcome, now),
        }
    }

    fn was_reset(&mut self, id: DatabaseId, then: Then, outcome: Outcome, now: Instant) {
        if matches!(outcome, Outcome::SessionSpent) {
            // The database equals its template, but no client may use its session again. Taking the name away closes
            // that session.
            return self.unname(id, false, terms_of(then));
        }
        let reason = match outcome {
            Outcome::Fresh(_proof) => {
                return match then {
                    Then::Lease(lease) => self.resume(id, lease, now),
                    Then::Ready => self.ready_again(id, now),
                };
            }
            Outcome::Doubt(reason) => reason,
            Outcome::DroppedOrRenamed => "it was dropped or renamed by SQL",
            _ => "a statement of the reset failed",
        };
        *self.dropped.entry(reason).or_default() += 1;
        // A database in rollback isolation still has its lease's name, so take that away before removing it.
        self.unname(id, true, terms_of(then));
    }

    fn ready_again(&mut self, id: DatabaseId, now: Instant) {
        self.set_state(id, DatabaseState::Ready);
        let Some(database) = self.databases.get(id) else { return };
        let source = database.source.clone();
        self.note_return(&source, now);
        if !self.keeps_ready(id, now) {
            self.unname(id, true, None);
        }
        self.advance_name_of(id, now);
        self.serve(&source, now);
    }

    /// Begins or continues a lease. Waiting requests are answered before the lease may end.
    fn resume(&mut self, id: DatabaseId, mut lease: Lease, now: Instant) {
        (lease.deadline, lease.moved) = (None, now);
        self.set_state(id, DatabaseState::Leased(lease));
        self.advance_name_of(id, now);
        if let Some(DatabaseState::Leased(lease)) =
            self.databases.get_mut(id).map(|database| &mut database.state)
        {
            lease.begin_to_end(now);
        }
    }

    /// Answers the request that triggered the task.
    fn answer_name_of(&mut self, id: DatabaseId, outcome: Outcome) {
        let Some(name) = self.databases.get(id).and_then(|database| database.name.clone()) else { return };
        let answer = match outcome {
            Outcome::Done | Outcome::Fresh(_) => Answer::Done(Some(id)),
            Outcome::Failed(error) => Answer::Refused(error),
            Outcome::NameTaken => Answer::Refused(LeaseError::Leased(name.clone())),
            _ => Answer::Refused(LeaseError::NotLeased(name.clone())),
        };
        self.answer_first(&name, answer);
    }

    fn answer_first(&mut self, name: &str, answer: Answer) {
        let Some(line) = self.names.get_mut(name) else { return };
        // If the task took too long, its request has timed out, so the first request may be a different one by now.
        let is_its_own = |request: &Request| matches!(request.want, Want::Keep { .. } | Want::Copy { .. });
        if line.requests.front().is_some_and(is_its_own)
            && let Some(request) = line.requests.pop_front()
        {
            self.actions.push(Action::Answer { ticket: request.ticket, answer });
        }
    }

    fn retire(&mut self, id: DatabaseId, reason: &'static str) {
        *self.dropped.entry(reason).or_default() += 1;
        self.set_due(id, DatabaseState::Retiring);
    }

    fn set_state(&mut self, id: DatabaseId, state: DatabaseState) {
        if let Some(database) = self.databases.get_mut(id) {
            database.state = state;
        }
    }

    /// Sets a state whose task is due immediately.
    fn set_due(&mut self, id: DatabaseId, state: DatabaseState) {
        if let Some(database) = self.databases.get_mut(id) {
            (database.state, database.work) = (state, Work::Due);
        }
    }

    /// Forgets a database that no longer exists.
    fn forget(&mut self, id: DatabaseId) {
        self.databases.remove(id);
        self.gone.push(id);
    }

    /// If there was no room for more databases, serves the waiting clients again, who may find room now or may have
    /// waited too long.
    pub(super) fn serve_where_full(&mut self, now: Instant) {
        if self.databases.len() >= self.capacity {
            self.serve_all(now);
        }
    }

    pub(super) fn serve_all(&mut self, now: Instant) {
        let sources: Vec<_> = self.supplies.keys().cloned().collect();
        for source in sources {
            self.serve(&source, now);
        }
    }
}

/// Returns the terms of the lease that continues after the reset, if there is one.
fn terms_of(then: Then) -> Option<Terms> {
    match then {
        Then::Lease(lease) => Some(lease.terms),
        Then::Ready => None,
    }
}
