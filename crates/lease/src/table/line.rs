//! Serves the requests for each name. A name has one queue of requests, which are answered in order of arrival.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::database::{Change, Closes, Database, DatabaseState, Lease, Then, Work};
use super::failures::Failures;
use super::{Action, Answer, DatabaseId, Explicit, LeaseTable, Source, Task, TaskKind, Terms, Ticket, Want};
use crate::error::LeaseError;
use crate::isolation::Isolation;
use crate::names::{is_preparing, is_replica_copy};

/// How long a request that may terminate sessions waits for those whose clients have all disconnected. Such
/// a session usually exits on its own within a millisecond, and its backend can serve the next client.
pub(super) const SPARE_TIMEOUT: Duration = Duration::from_millis(50);
/// How long a request waits for open sessions that it must not terminate, since they may be about to close.
const IN_USE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a request waits for sessions that pgfresh has signaled to terminate.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client in rollback isolation waits for the previous client's session to close.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a request waits for sessions whose clients have all disconnected.
const LEAVING_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a request for a new lease waits for the old one to end after the old one's clients have all disconnected.
/// Using another database is cheaper than waiting any longer.
const OVER_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a request waits for anything else. Copying a large template takes the longest.
const LONGEST_WAIT: Duration = Duration::from_mins(10);

/// The state of a name. A free name without requests has no entry in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NameState {
    Free,
    /// A lease has the name but no database, which it will get with its first session.
    Reserved(Terms),
    /// The name is waiting for a ready database.
    Wanted(Terms),
    /// The name belongs to this database, or soon will.
    Held(DatabaseId),
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) ticket: Ticket,
    pub(super) want: Want,
    pub(super) since: Instant,
    /// When this request began terminating sessions, if it has to.
    closes_since: Option<Instant>,
    /// Whether the requested change has begun. The client gets its answer once the change is done.
    pub(super) begun: bool,
    /// Whether this request would have found a database immediately if databases didn't linger after their last
    /// sessions.
    pub(super) is_avoidable: bool,
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) state: NameState,
    pub(super) requests: VecDeque<Request>,
    /// The databases, one after another, that no client of the name may use, since the last that a client could use.
    pub(super) unfit: Option<Failures>,
}

/// The next step for the first request in a queue.
pub(super) enum Step {
    Next,
    /// Leave the request in the queue until an event or its timeout.
    Wait,
}

impl Request {
    /// Returns the time when the request gives up waiting for a lease's sessions. The wait starts when the previous
    /// request got its answer, so that queuing doesn't shorten it.
    fn waits_until(&self, lease: &Lease) -> Instant {
        let since = self.closes_since.unwrap_or_else(|| self.since.max(lease.moved));
        since + session_timeout(&self.want, lease)
    }

    /// Returns the time when the request stops sparing a lease's sessions, or `None` if it spares none.
    fn spares_until(&self, lease: &Lease) -> Option<Instant> {
        let is_sparing = lease.open == 0 && lease.leaving > 0 && lease.closing == Closes::None;
        self.closes_since.filter(|_| is_sparing).map(|since| since + SPARE_TIMEOUT)
    }

    /// Returns true if the request concerns an existing lease rather than a new one.
    fn is_for_a_lease(&self) -> bool {
        !matches!(self.want, Want::Session { .. } | Want::Lease { .. })
    }

    /// Returns true if the request terminates a lease's sessions.
    fn closes(&self) -> bool {
        self.is_for_a_lease()
            && !matches!(
                self.want,
                Want::Reset { close: false } | Want::Copy { close: false, .. } | Want::Server
            )
    }
}

impl Line {
    /// Returns the entry for a name without a database.
    pub(super) fn free() -> Self {
        Self { state: NameState::Free, requests: VecDeque::new(), unfit: None }
    }

    /// Stops waiting for a database. A lease in rollback isolation that lasts until its release continues without one.
    pub(super) fn give_up_waiting(&mut self) {
        if let NameState::Wanted(terms) = &self.state {
            let stays = terms.retained && terms.isolation == Isolation::Rollback;
            self.state = if stays { NameState::Reserved(terms.clone()) } else { NameState::Free };
        }
    }
}

impl LeaseTable {
    pub(super) fn request(&mut self, ticket: Ticket, name: &str, want: Want, now: Instant) {
        if let Some(why) = self.closed {
            return self.actions.push(refused(ticket, why.error()));
        }
        // If the lease is already ending, answer this release once it has ended.
        let begun = want == Want::Release && self.is_ending(name);
        let line = self.names.entry(name.to_owned()).or_insert_with(Line::free);
        line.requests.push_back(Request {
            ticket,
            want,
            since: now,
            closes_since: None,
            begun,
            is_avoidable: false,
        });
        self.asked.insert(name.to_owned());
        self.look_at_lines(now + LONGEST_WAIT);
        self.retry_for(name, now);
        self.advance(name, now);
    }

    /// Returns true if the lease with this name is over but its database still has the name.
    fn is_ending(&self, name: &str) -> bool {
        let database = self.database_named(name).and_then(|id| self.databases.get(id));
        database.is_some_and(Database::is_ending)
    }

    /// Serves as many requests for a name as possible.
    pub(super) fn advance(&mut self, name: &str, now: Instant) {
        while let Some(Step::Next) = self.step(name, now) {}
        let Some(line) = self.names.get_mut(name) else { return };
        if line.requests.is_empty() {
            line.give_up_waiting();
            if line.state == NameState::Free {
                self.names.remove(name);
            }
        }
    }

    /// Returns the time when the first request in a queue times out.
    pub(super) fn times_out_at(&self, line: &Line) -> Option<Instant> {
        let head = line.requests.front()?;
        let longest = head.since + LONGEST_WAIT;
        let NameState::Held(id) = line.state else { return Some(longest) };
        let sooner = match &self.databases.get(id)?.state {
            DatabaseState::Leased(lease) => {
                Some(head.spares_until(lease).unwrap_or_else(|| head.waits_until(lease)))
            }
            _ => self.refuse_at(id, head.since),
        };
        Some(sooner.map_or(longest, |sooner| sooner.min(longest)))
    }

    fn step(&mut self, name: &str, now: Instant) -> Option<Step> {
        let line = self.names.get_mut(name)?;
        let head = line.requests.front_mut()?;
        if now >= head.since + LONGEST_WAIT {
            let error = LeaseError::Timeout { name: name.to_owned(), waited: LONGEST_WAIT };
            return self.refuse_head(name, error);
        }
        match line.state.clone() {
            NameState::Free => self.step_free(name, now),
            NameState::Reserved(terms) => self.step_reserved(name, terms, now),
            NameState::Wanted(_) => Some(Step::Wait),
            NameState::Held(id) => match &self.databases.get(id)?.state {
                DatabaseState::Ready => self.step_parked(name, id, now),
                DatabaseState::Leased(_) => self.step_leased(name, id, now),
                _ => self.step_changing(name, id, now),
            },
        }
    }

    /// Returns true if a session may begin a lease with this name, provided that the name is free.
    pub(crate) fn creates(&self, name: &str) -> bool {
        let is_issued = self.is_issued.is_some_and(|is_issued| is_issued(name));
        !is_issued && (self.rules.allow(name) || is_preparing(name) || is_replica_copy(name))
    }

    /// Serves a request for a name with neither a lease nor a database.
    fn step_free(&mut self, name: &str, now: Instant) -> Option<Step> {
        let head = self.names.get(name)?.requests.front()?;
        match head.want.clone() {
            _ if head.begun => self.answer_head(name, Answer::Done(None)),
            Want::Session { .. } if !self.creates(name) => {
                self.refuse_head(name, LeaseError::NoDatabase(name.to_owned()))
            }
            Want::Lease { terms, .. } if terms.isolation == Isolation::Rollback => {
                self.names.get_mut(name)?.state = NameState::Reserved(terms);
                self.answer_head(name, Answer::Done(None))
            }
            Want::Session { mut terms, .. } | Want::Lease { mut terms, .. } => {
                terms.retained |= self.retained.contains(name) && terms.isolation == Isolation::Clone;
                self.want_database(name, terms, now)
            }
            Want::Server => self.refuse_head(name, LeaseError::NoServer(name.to_owned())),
            Want::Reset { .. } | Want::Release | Want::Keep { .. } | Want::Copy { .. } => {
                self.refuse_head(name, LeaseError::NotLeased(name.to_owned()))
            }
        }
    }

    /// Adds the name to its source's queue, where names wait for a ready database.
    pub(super) fn want_database(&mut self, name: &str, terms: Terms, now: Instant) -> Option<Step> {
        let source = terms.source();
        let error = match &source {
            _ if self.supplies.contains_key(&source) => self.blocked_by(&source, name),
            Source::Template(name) => {
                Some(LeaseError::UnknownTemplate { name: name.clone(), known: self.template_names() })
            }
            Source::Server(name) => Some(LeaseError::NoServerFrom(name.clone())),
        };
        if let Some(error) = error {
            self.names.get_mut(name)?.state = NameState::Free;
            return self.refuse_head(name, error);
        }
        self.names.get_mut(name)?.state = NameState::Wanted(terms);
        let supply = self.supplies.get_mut(&source)?;
        if supply.line.is_empty() {
            supply.stock.client_came(now);
        }
        supply.line.push_back(name.to_owned());
        self.serve(&source, now);
        self.note_wait(name);
        // The request may have been refused by now. If so, continue with the next one.
        let is_free = self.names.get(name)?.state == NameState::Free;
        Some(if is_free { Step::Next } else { Step::Wait })
    }

    /// Serves a request for a name whose lease has no database yet.
    fn step_reserved(&mut self, name: &str, reserved: Terms, now: Instant) -> Option<Step> {
        let head = self.names.get(name)?.requests.front()?;
        match &head.want {
            Want::Session { .. } => {
                if let Some(error) = other_terms(name, &head.want, &reserved) {
                    return self.refuse_head(name, error);
                }
                let terms = terms_after_reset(&head.want, reserved);
                self.want_database(name, terms, now)
            }
            Want::Lease { .. } => self.refuse_head(name, LeaseError::Leased(name.to_owned())),
            Want::Reset { .. } => {
                if !reserved.retained {
                    self.names.get_mut(name)?.state = NameState::Free;
                }
                self.answer_head(name, Answer::Done(None))
            }
            Want::Release => {
                self.names.get_mut(name)?.state = NameState::Free;
                self.answer_head(name, Answer::Done(None))
            }
            Want::Keep { .. } | Want::Copy { .. } => {
                let isolation = reserved.isolation;
                self.refuse_head(name, LeaseError::NotCopied { name: name.to_owned(), isolation })
            }
            Want::Server => self.refuse_head(name, LeaseError::NoServer(name.to_owned())),
        }
    }

    /// Serves a request for a name without a lease but still used by a rolled-back database.
    fn step_parked(&mut self, name: &str, id: DatabaseId, now: Instant) -> Option<Step> {
        let database = self.databases.get(id)?;
        let head = self.names.get(name)?.requests.front()?;
        match head.want.clone() {
            _ if head.begun => self.answer_head(name, Answer::Done(None)),
            Want::Session { .. } if !self.creates(name) => {
                self.refuse_head(name, LeaseError::NoDatabase(name.to_owned()))
            }
            Want::Session { params, terms, .. }
                if terms.isolation == Isolation::Rollback
                    && database.params == Some(params)
                    && database.source == terms.source() =>
            {
                self.names.get_mut(name)?.state = NameState::Wanted(terms);
                self.assign(id, name, now);
                None
            }
            Want::Session { .. } | Want::Lease { .. } => {
                let ticket = head.ticket;
                self.unname(id, false, None);
                self.run_now(id, TaskKind::Unname, ticket);
                None
            }
            Want::Server => self.refuse_head(name, LeaseError::NoServer(name.to_owned())),
            Want::Reset { .. } | Want::Release | Want::Keep { .. } | Want::Copy { .. } => {
                self.refuse_head(name, LeaseError::NotLeased(name.to_owned()))
            }
        }
    }

    fn step_leased(&mut self, name: &str, id: DatabaseId, now: Instant) -> Option<Step> {
        let head = self.names.get_mut(name)?.requests.front_mut()?;
        let DatabaseState::Leased(lease) = &self.databases.get(id)?.state else { return None };
        if head.closes() {
            head.closes_since.get_or_insert(now);
        }
        let (isolation, waits_until, ticket) = (lease.terms.isolation, head.waits_until(lease), head.ticket);
        let (is_over, other_terms) = (lease.is_over(), other_terms(name, &head.want, &lease.terms));
        let (is_late, is_for_the_next) = (now >= waits_until, !head.begun && !head.is_for_a_lease());
        if self.is_at_its_end(id, now) {
            self.end_lease(id, false);
            return None;
        }
        self.look_at_lines(waits_until);
        if is_over && is_for_the_next {
            return if is_late { self.leave_behind(id, ticket) } else { Some(Step::Wait) };
        }
        let lease = self.databases.get(id)?.lease()?;
        let head = self.names.get(name)?.requests.front()?;
        match &head.want {
            // The requested change is done.
            Want::Lease { .. } | Want::Reset { .. } if head.begun => {
                self.answer_head(name, Answer::Done(Some(id)))
            }
            Want::Session { .. } => match other_terms {
                Some(error) => self.refuse_head(name, error),
                None => self.step_session(name, id, is_late, now),
            },
            Want::Lease { .. } => self.refuse_head(name, LeaseError::Leased(name.to_owned())),
            Want::Server if isolation != Isolation::Server => {
                self.refuse_head(name, LeaseError::NoServer(name.to_owned()))
            }
            Want::Server => {
                let lease = lease.clone();
                self.databases.get_mut(id)?.state = DatabaseState::Changing(Change::Server(lease));
                self.answer_head(name, Answer::Done(Some(id)))
            }
            Want::Keep { .. } | Want::Copy { .. } if isolation != Isolation::Clone => {
                self.refuse_head(name, LeaseError::NotCopied { name: name.to_owned(), isolation })
            }
            Want::Reset { .. } | Want::Release | Want::Keep { .. } | Want::Copy { .. } => {
                self.step_change(name, id, is_late, now)
            }
        }
    }

    /// Returns true if a lease ends now: it has no sessions, its deadline has passed, and no request from before the
    /// deadline is still waiting to change the lease.
    pub(super) fn is_at_its_end(&self, id: DatabaseId, now: Instant) -> bool {
        let Some(database) = self.databases.get(id) else { return false };
        let DatabaseState::Leased(lease) = &database.state else { return false };
        let head = database.name.as_ref().and_then(|name| self.names.get(name)?.requests.front());
        let is_awaited = head.is_some_and(|head| {
            head.is_for_a_lease() && lease.deadline.is_some_and(|deadline| head.since <= deadline)
        });
        lease.sessions() == 0 && lease.is_due(now) && !is_awaited
    }

    /// Ends a lease even though a session without a client is still running in its database, so that the name can
    /// receive another database.
    fn leave_behind(&mut self, id: DatabaseId, ticket: Ticket) -> Option<Step> {
        self.end_lease(id, true);
        let task = self.start_due(id)?;
        self.actions.push(Action::Run { task, ticket });
        None
    }

    /// Serves a request for a session in a leased database.
    fn step_session(&mut self, name: &str, id: DatabaseId, is_late: bool, now: Instant) -> Option<Step> {
        self.note_use_after_last_session(id);
        let database = self.databases.get_mut(id)?;
        let DatabaseState::Leased(lease) = &mut database.state else { return None };
        let head = self.names.get_mut(name)?.requests.front_mut()?;
        let new_terms = terms_after_reset(&head.want, lease.terms.clone());
        let Want::Session { params, reset, .. } = &mut head.want else { return None };
        let (sessions, ticket) = (lease.sessions(), head.ticket);
        let is_alone = lease.terms.isolation == Isolation::Rollback;
        if lease.closing == Closes::Running || sessions > 0 && (*reset || is_alone) {
            let error = match *reset {
                _ if !is_late => return Some(Step::Wait),
                false if is_alone => LeaseError::Busy(name.to_owned()),
                _ => LeaseError::InUse { name: name.to_owned(), sessions },
            };
            return self.refuse_head(name, error);
        }
        if *reset {
            *reset = false;
            let lease = lease.clone();
            if new_terms != lease.terms {
                self.unname(id, false, Some(new_terms));
                self.run_now(id, TaskKind::Unname, ticket);
                return None;
            }
            self.reset_lease(id, lease, ticket);
            return None;
        }
        if lease.terms.isolation == Isolation::Rollback && database.params != Some(*params) {
            return self.refuse_head(name, LeaseError::OtherParameters(name.to_owned()));
        }
        lease.open += 1;
        (lease.deadline, lease.moved) = (None, now);
        self.answer_head(name, Answer::Session(id))
    }

    /// Serves a request for a change that needs a database without sessions.
    fn step_change(&mut self, name: &str, id: DatabaseId, is_late: bool, now: Instant) -> Option<Step> {
        self.note_use_after_last_session(id);
        let head = self.names.get_mut(name)?.requests.front_mut()?;
        let (ticket, want, closes) = (head.ticket, head.want.clone(), head.closes());
        let database = self.databases.get_mut(id)?;
        let DatabaseState::Leased(lease) = &mut database.state else { return None };
        let sessions = lease.sessions();
        let is_closing = lease.closing == Closes::Running;
        if (sessions > 0 || is_closing) && !is_late {
            if let Some(until) = head.spares_until(lease).filter(|until| *until > now) {
                self.look_at_lines(until);
            } else if closes && lease.closing == Closes::None {
                lease.closing = Closes::Running;
                let task = Task { database: id, kind: TaskKind::Close };
                self.actions.push(Action::Run { task, ticket });
            }
            return Some(Step::Wait);
        }
        if sessions > 0 && !closes {
            return self.refuse_head(name, LeaseError::InUse { name: name.to_owned(), sessions });
        }
        let stays = sessions > 0 || is_closing;
        if !is_closing {
            lease.closing = Closes::None;
        }
        let lease = lease.clone();
        match want {
            Want::Reset { .. } if stays => {
                self.names.get_mut(name)?.requests.front_mut()?.begun = true;
                self.unname(id, true, Some(lease.terms));
                self.run_now(id, TaskKind::Unname, ticket);
            }
            Want::Reset { .. } => {
                self.names.get_mut(name)?.requests.front_mut()?.begun = true;
                self.reset_lease(id, lease, ticket);
            }
            Want::Keep { .. } | Want::Copy { .. } if stays => {
                return self.refuse_head(name, LeaseError::InUse { name: name.to_owned(), sessions });
            }
            Want::Keep { to } => {
                self.change(id, Change::Keeping { to: to.clone(), lease }, TaskKind::Keep { to }, ticket);
            }
            Want::Copy { to, .. } => {
                self.change(id, Change::Copying(lease), TaskKind::Copy { to }, ticket);
            }
            _ => {
                self.names.get_mut(name)?.requests.front_mut()?.begun = true;
                self.end_lease(id, stays);
                let task = self.start_due(id)?;
                self.actions.push(Action::Run { task, ticket });
            }
        }
        None
    }

    fn change(&mut self, id: DatabaseId, change: Change, kind: TaskKind, ticket: Ticket) {
        if let Some(database) = self.databases.get_mut(id) {
            database.state = DatabaseState::Changing(change);
        }
        self.run_now(id, kind, ticket);
    }

    /// Resets a lease's database, or exchanges it for a different database that equals the template.
    fn reset_lease(&mut self, id: DatabaseId, lease: Lease, ticket: Ticket) {
        // Replace a lease's own server instead of resetting it.
        let is_server = lease.terms.isolation == Isolation::Server;
        if is_server || self.may_exchange(&lease) {
            self.unname(id, is_server, Some(lease.terms));
            return self.run_now(id, TaskKind::Unname, ticket);
        }
        if let Some(database) = self.databases.get_mut(id) {
            database.state = DatabaseState::Resetting(Then::Lease(lease));
        }
        self.run_now(id, TaskKind::Reset { in_place: true }, ticket);
    }

    /// Returns true if a reset can immediately exchange the lease's database
    /// for a ready one. The used database is then reset in the background.
    fn may_exchange(&self, lease: &Lease) -> bool {
        self.exchanges
            && lease.terms.isolation == Isolation::Clone
            && lease.kept.is_none()
            && self.has_spare(&lease.terms.source())
    }

    pub(super) fn run_now(&mut self, id: DatabaseId, kind: TaskKind, ticket: Ticket) {
        if let Some(database) = self.databases.get_mut(id) {
            database.work = Work::Running;
        }
        self.actions.push(Action::Run { task: Task { database: id, kind }, ticket });
    }

    /// Answers the first request for a name.
    fn answer_head(&mut self, name: &str, answer: Answer) -> Option<Step> {
        let request = self.names.get_mut(name)?.requests.pop_front()?;
        self.actions.push(Action::Answer { ticket: request.ticket, answer });
        Some(Step::Next)
    }

    /// Refuses the first request for a name.
    pub(super) fn refuse_head(&mut self, name: &str, error: LeaseError) -> Option<Step> {
        self.answer_head(name, Answer::Refused(error))
    }
}

/// Returns an error if a session explicitly requests terms different from the lease's. A session that resets the lease
/// may request another template.
fn other_terms(name: &str, want: &Want, leased: &Terms) -> Option<LeaseError> {
    let Want::Session { terms, explicit, reset, .. } = want else { return None };
    let name = name.to_owned();
    if explicit.isolation && terms.isolation != leased.isolation {
        return Some(LeaseError::OtherIsolation { name, isolation: leased.isolation });
    }
    let is_other = explicit.template && !reset && terms.template != leased.template;
    let (template, asked) = (leased.template.clone(), terms.template.clone());
    is_other.then_some(LeaseError::OtherTemplate { name, template, asked })
}

/// Returns a lease's terms after a session's request, which may have reset the lease to another template.
fn terms_after_reset(want: &Want, leased: Terms) -> Terms {
    match want {
        Want::Session { terms, explicit: Explicit { template: true, .. }, reset: true, .. } => {
            Terms { template: terms.template.clone(), ..leased }
        }
        _ => leased,
    }
}

/// Returns how long a request waits for a lease's sessions.
fn session_timeout(want: &Want, lease: &Lease) -> Duration {
    match want {
        Want::Session { .. } | Want::Lease { .. } if lease.is_over() => OVER_TIMEOUT,
        // All clients have disconnected, but the server hasn't terminated their sessions yet.
        Want::Session { .. }
        | Want::Lease { .. }
        | Want::Reset { close: false }
        | Want::Copy { close: false, .. }
            if lease.open == 0 =>
        {
            LEAVING_TIMEOUT
        }
        Want::Session { reset: true, .. }
        | Want::Reset { close: false }
        | Want::Copy { close: false, .. } => IN_USE_TIMEOUT,
        Want::Session { .. } if lease.terms.isolation == Isolation::Rollback => BUSY_TIMEOUT,
        Want::Session { .. } | Want::Lease { .. } | Want::Server => LONGEST_WAIT,
        Want::Reset { .. } | Want::Release | Want::Keep { .. } | Want::Copy { .. } => CLOSE_TIMEOUT,
    }
}

pub(super) fn refused(ticket: Ticket, error: LeaseError) -> Action {
    Action::Answer { ticket, answer: Answer::Refused(error) }
}
