//! Gives ready databases to waiting clients and decides how many databases to create ahead of demand.
//!
//! Clients should find a ready database, but copies cost processor time and space. Therefore pgfresh starts with a few
//! ready databases and creates more only after a client has found none.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::database::{Change, Database, DatabaseState, Work};
use super::failures::Failures;
use super::line::NameState;
use super::stock::Stock;
use super::{Action, DatabaseId, LeaseTable, ParamsId, Source, Task, TaskKind, Want};
use crate::error::LeaseError;
use crate::isolation::Isolation;

/// Maximum number of ready copies of one template created ahead of demand.
const MOST_AHEAD: usize = 16;
/// Maximum number of returned databases to keep ready. If this weren't higher than the limit for new copies, each lease
/// after a burst would make pgfresh create a copy at its start and remove one at its end.
const MOST_READY: usize = 2 * MOST_AHEAD;
/// Number of databases to keep ready before any client has requested one.
pub(crate) const FIRST_READY: usize = 2;
/// Maximum number of databases created simultaneously from one source while clients wait.
const MOST_MAKING: usize = 2;
/// Maximum number of databases created simultaneously from one source ahead of demand, which leaves the other
/// processors to the clients.
const MOST_MAKING_AHEAD: usize = 1;
/// How long the table creates fewer copies after a client has received a database. A new session usually
/// gets its first response within this time, and pgfresh leaves the processors to the session until then.
const QUIET: Duration = Duration::from_millis(3);

/// Maximum delay after failing to create a database.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(3200);

/// If clients are likely to get a returned database within this time, the table doesn't create a copy for them while
/// all processors are busy. A copy would only slow down the clients about to return theirs.
const CROWD_TIMEOUT: Duration = Duration::from_millis(100);

/// The state of one source of databases.
#[derive(Debug)]
pub(super) struct Supply {
    /// Number of databases that should be ready.
    pub(super) wanted: usize,
    pub(super) stock: Stock,
    /// Names waiting for a database, in order of arrival.
    pub(super) line: VecDeque<String>,
    /// Time of the next attempt after failing to create a database.
    not_before: Option<Instant>,
    /// Failures to create a database. `None` if the last attempt succeeded.
    pub(super) failures: Option<Failures>,
    /// Error of the last attempt. `None` while requests still wait for the next one.
    pub(super) error: Option<Arc<LeaseError>>,
    /// Until this time, a database whose client has just disconnected counts as about to be returned.
    returns_until: Option<Instant>,
    /// Until this time, copies being created pause too. Since the last lease doesn't linger, its database may be back
    /// any moment.
    pause_until: Option<Instant>,
    /// When a database last became ready again after a lease, and (in the next field) the average interval between such
    /// returns.
    returned_at: Option<Instant>,
    return_every: Duration,
}

/// A name waiting for a database, with the desired properties.
struct Demand {
    name: String,
    isolation: Isolation,
    params: Option<ParamsId>,
}

impl Supply {
    /// Returns the time of the next attempt after failing to create a database, if it is still to come.
    pub(super) fn next_attempt(&self, now: Instant) -> Option<Instant> {
        self.not_before.filter(|time| *time > now)
    }

    /// Returns true if databases are returned so often that even the last client in the queue gets one soon.
    fn serves_soon(&self, now: Instant) -> bool {
        let Some(returned_at) = self.returned_at else { return false };
        let every = self.return_every.max(now.saturating_duration_since(returned_at));
        let waiting = u32::try_from(self.line.len()).unwrap_or(u32::MAX).max(1);
        every.saturating_mul(waiting) <= CROWD_TIMEOUT
    }
}

impl LeaseTable {
    /// Adds a source of databases. If clients are `expected`, the table starts creating databases immediately,
    /// otherwise with the first request.
    pub(crate) fn add_source(&mut self, source: Source, expected: bool) {
        let wanted = if expected { FIRST_READY } else { 0 };
        let line = VecDeque::new();
        let supply = Supply {
            wanted,
            stock: Stock::default(),
            line,
            not_before: None,
            failures: None,
            error: None,
            returns_until: None,
            pause_until: None,
            returned_at: None,
            return_every: Duration::ZERO,
        };
        self.supplies.insert(source, supply);
    }

    /// Removes a source and drops its ready databases. Leased databases remain.
    pub(crate) fn remove_source(&mut self, source: &Source, now: Instant) -> Vec<Action> {
        let Some(supply) = self.supplies.remove(source) else { return Vec::new() };
        for name in supply.line {
            self.refuse_wanted(&name, source, now);
        }
        for id in self.ready_of(source).collect::<Vec<_>>() {
            self.unname(id, true, None);
        }
        self.actions.take()
    }

    fn refuse_wanted(&mut self, name: &str, source: &Source, now: Instant) {
        let error = LeaseError::UnknownTemplate { name: source_name(source), known: self.template_names() };
        let Some(line) = self.names.get_mut(name) else { return };
        // By now, the name may have stopped waiting or may be waiting on different terms.
        if matches!(&line.state, NameState::Wanted(terms) if terms.source() == *source) {
            line.state = NameState::Free;
            self.refuse_head(name, error);
            self.advance(name, now);
        }
    }

    pub(super) fn template_names(&self) -> Vec<String> {
        let of = |source: &Source| match source {
            Source::Template(name) => Some(name.clone()),
            Source::Server(_) => None,
        };
        self.supplies.keys().filter_map(of).collect()
    }

    fn ready_of<'a>(&'a self, source: &'a Source) -> impl Iterator<Item = DatabaseId> + 'a {
        self.databases.ready().filter(move |(_, database)| database.source == *source).map(|(id, _)| id)
    }

    /// Returns how many of a source's ready databases suit any client, which excludes those in rollback isolation.
    pub(crate) fn ready(&self, source: &Source) -> usize {
        let is_for_any = |(_, database): &(DatabaseId, &Database)| {
            database.source == *source && database.isolation != Isolation::Rollback
        };
        self.databases.ready().filter(is_for_any).count()
    }

    /// Returns true if there is nothing left to create: no task is creating a database, and there are enough ready ones
    /// or no room for more.
    pub(crate) fn is_supplied(&self) -> bool {
        let is_full = self.databases.len() >= self.capacity;
        self.supplies.iter().all(|(source, supply)| {
            let is_stocked = self.ready(source) >= supply.wanted && supply.stock.lacks(0) == 0;
            self.making(source) == 0 && (is_full || is_stocked)
        })
    }

    /// Gives ready databases to the names waiting for one, in queue order.
    pub(super) fn serve(&mut self, source: &Source, now: Instant) {
        while let Some(demand) = self.first_demand(source) {
            if self.closed.is_some() {
                return;
            }
            let Some(id) = self.pick(source, &demand) else {
                if !self.expand(source, now) {
                    self.refuse_for_room(source, now);
                }
                return;
            };
            if let Some(supply) = self.supplies.get_mut(source) {
                supply.line.pop_front();
                if supply.line.is_empty() {
                    supply.stock.all_served(now);
                }
            }
            self.assign(id, &demand.name, now);
        }
    }

    fn first_demand(&mut self, source: &Source) -> Option<Demand> {
        let supply = self.supplies.get_mut(source)?;
        loop {
            let name = supply.line.front()?.clone();
            let line = self.names.get(&name);
            if let Some(line) = line
                && let NameState::Wanted(terms) = &line.state
                && terms.source() == *source
            {
                let params = line.requests.front().and_then(|request| request.want.params());
                return Some(Demand { name, isolation: terms.isolation, params });
            }
            supply.line.pop_front();
        }
    }

    /// Returns the ready database that suits the client best.
    fn pick(&self, source: &Source, demand: &Demand) -> Option<DatabaseId> {
        let worth = |database: &Database| match (database.isolation, demand.isolation) {
            // The session in this database has the requested parameters.
            (Isolation::Rollback, Isolation::Rollback) if database.params == demand.params => 3,
            (Isolation::Rollback, _) => 0,
            _ if database.is_warm_for(demand.params) => 2,
            _ => 1,
        };
        // If several suit equally well, take the oldest: clients have used it most, so its data is most likely to be in
        // the processors' caches.
        let mut best = None;
        for (id, database) in self.databases.ready().filter(|(_, database)| database.source == *source) {
            let worth = worth(database);
            if worth > best.map_or(0, |(_, most)| most) {
                best = Some((id, worth));
            }
        }
        best.map(|(id, _)| id)
    }

    /// Starts giving a ready database to a name.
    pub(super) fn assign(&mut self, id: DatabaseId, name: &str, now: Instant) {
        let Some(line) = self.names.get_mut(name) else { return };
        let NameState::Wanted(terms) = line.state.clone() else { return };
        let Some(request) = line.requests.front_mut() else { return };
        let (params, ticket) = (request.want.params(), request.ticket);
        request.begun |= matches!(request.want, Want::Lease { .. });
        let (since, is_avoidable) = (request.since, request.is_avoidable);
        line.state = NameState::Held(id);
        let isolation = terms.isolation;
        self.note_named(&terms, since, is_avoidable, now);
        // If no other client is waiting, expect this database back soon.
        if let Some(supply) = self.supplies.get_mut(&terms.source()).filter(|supply| supply.line.is_empty()) {
            supply.returns_until = Some(now + QUIET);
            supply.pause_until = supply.returns_until.filter(|_| terms.linger <= QUIET);
        }
        if let Some(database) = self.databases.get_mut(id) {
            database.state = DatabaseState::Changing(Change::Naming(name.to_owned()));
            let is_new = !std::mem::replace(&mut database.was_leased, true);
            if let Some(supply) = self.supplies.get_mut(&terms.source()).filter(|_| is_new) {
                supply.stock.took_new();
            }
            database.terms = Some(terms);
        }
        self.quiet_until = Some(now + QUIET);
        self.assigned_at = Some(now);
        self.run_now(id, TaskKind::Name { to: name.to_owned(), isolation, params }, ticket);
    }

    /// Increases the number of databases to keep ready, because a client found none. Returns false if there is no room
    /// for another database and none of the existing ones can make room.
    fn expand(&mut self, source: &Source, now: Instant) -> bool {
        let Some(supply) = self.supplies.get_mut(source) else { return false };
        let most = if matches!(source, Source::Server(_)) { 1 } else { MOST_AHEAD };
        self.is_short = true;
        if supply.line.len() > supply.wanted / 2 {
            supply.wanted = (supply.wanted * 2).clamp(FIRST_READY.min(most), most);
        }
        self.databases.len() < self.capacity || self.evict_idle(now)
    }

    /// Answers a waiting name's first request with an error and removes the name from the queue.
    pub(super) fn refuse_name(&mut self, name: &str, error: LeaseError, now: Instant) {
        if let Some(line) = self.names.get_mut(name) {
            line.give_up_waiting();
        }
        self.refuse_head(name, error);
        self.advance(name, now);
    }

    /// Removes the first name from a source's queue and returns it.
    pub(super) fn take_first(&mut self, source: &Source) -> Option<String> {
        let name = self.first_demand(source)?.name;
        self.supplies.get_mut(source)?.line.pop_front();
        Some(name)
    }

    /// Delays the next attempt to create a database from this source.
    pub(super) fn make_later(&mut self, source: &Source, pause: Duration, now: Instant) {
        if let Some(supply) = self.supplies.get_mut(source) {
            supply.not_before = Some(now + pause);
            // A client may be waiting for this very attempt, so check the queues at that time.
            self.look_at_lines(now + pause);
        }
    }

    /// Records that a task created a database in this time. The next failure starts with a short delay again.
    pub(super) fn made(&mut self, source: &Source, took: Duration) {
        if let Some(supply) = self.supplies.get_mut(source) {
            (supply.failures, supply.error) = (None, None);
            supply.stock.made(took);
        }
    }

    /// Returns the task to create another database if the table needs one now, otherwise the time when it may need one.
    pub(super) fn next_to_make(&mut self, now: Instant) -> Result<Task, Option<Instant>> {
        let quiet = self.quiet_until.filter(|until| *until > now);
        let mut soonest = None;
        let mut lacking = Vec::new();
        for (source, supply) in &self.supplies {
            let making = self.making(source);
            let returns = supply.returns_until.filter(|until| *until > now);
            let leaving = if returns.is_some() { self.about_to_return(source) } else { 0 };
            let coming = making + self.returning(source) + leaving;
            let waiting = supply.line.len();
            let ahead = if quiet.is_some() { supply.wanted / 2 } else { supply.wanted };
            let lacks = (waiting + ahead).saturating_sub(self.ready(source) + coming);
            let planned = supply.stock.lacks(making);
            let begins_at = supply.stock.waits_until(now).filter(|_| planned > 0);
            let is_stocking = planned > 0 && begins_at.is_none();
            let most = if waiting > 0 { MOST_MAKING } else { MOST_MAKING_AHEAD };
            soonest = earlier(soonest, begins_at);
            if lacks == 0 && !is_stocking || making >= most {
                if waiting + supply.wanted > self.ready(source) + coming - leaving {
                    soonest = [quiet, returns].into_iter().fold(soonest, earlier);
                }
                continue;
            }
            if let Some(time) = supply.not_before.filter(|time| *time > now) {
                soonest = earlier(soonest, Some(time));
                continue;
            }
            // Clients that can't expect a returned database soon come first, starting with the one that has waited
            // longest.
            let since = self.waits_since(source, making + self.returning(source));
            let is_urgent = since.is_some() && !supply.serves_soon(now);
            lacking.push((since.is_some(), is_urgent, since.map(Reverse), lacks, source.clone()));
        }
        if self.databases.len() >= self.capacity {
            return Err(soonest);
        }
        let Some((.., source)) = lacking.into_iter().max() else { return Err(soonest) };
        self.last_id += 1;
        let id = DatabaseId(self.last_id);
        self.databases.insert(id, Database::new(source.clone(), now));
        Ok(Task { database: id, kind: TaskKind::Create(source) })
    }

    /// Returns how many of a source's databases are being created.
    fn making(&self, source: &Source) -> usize {
        let is_made = |(_, database): &(DatabaseId, &Database)| {
            database.source == *source
                && database.state == DatabaseState::Creating
                && database.work == Work::Running
                && !database.gives_way
        };
        self.databases.busy().filter(is_made).count()
    }

    /// Returns how many of a source's databases are on their way back from a lease. Each takes about a millisecond to
    /// become ready again.
    fn returning(&self, source: &Source) -> usize {
        let returns =
            |(_, database): &(DatabaseId, &Database)| database.source == *source && database.is_returning();
        self.databases.busy().filter(returns).count()
    }

    /// Returns true if a lease may exchange its used database for a ready one. This requires at least as many other
    /// ready databases as there are used ones still to be reset. Otherwise, resets would outpace the server's cleanup,
    /// and new clients would find nothing ready.
    pub(super) fn has_spare(&self, source: &Source) -> bool {
        let is_waited_for = self.supplies.get(source).is_none_or(|supply| !supply.line.is_empty());
        !is_waited_for && self.ready(source) > self.returning(source)
    }

    /// Returns how many of a source's leases are over except for sessions that the server has yet to terminate. This
    /// usually takes less than a millisecond, but a session may still be running a statement.
    fn about_to_return(&self, source: &Source) -> usize {
        let is_left = |(_, database): &(DatabaseId, &Database)| {
            database.source == *source
                && database.isolation == Isolation::Clone
                && matches!(&database.state, DatabaseState::Leased(lease) if lease.is_over())
        };
        self.databases.busy().filter(is_left).count()
    }

    /// Returns true if the table should keep a database that is ready again after its lease, although it takes up
    /// space.
    pub(super) fn keeps_ready(&self, id: DatabaseId, now: Instant) -> bool {
        self.keeps(id, 0, now)
    }

    /// Returns true if a database should be reset rather than removed after its lease.
    pub(super) fn keeps_returning(&self, id: DatabaseId, now: Instant) -> bool {
        self.databases.get(id).is_some_and(|database| self.keeps(id, self.returning(&database.source), now))
    }

    /// Returns true if a database should be reused, because clients of its template may need it and no client of
    /// another template needs its room.
    fn keeps(&self, id: DatabaseId, returning: usize, now: Instant) -> bool {
        let Some(source) = self.databases.get(id).map(|database| &database.source) else { return false };
        let is_needed = |supply: &Supply| {
            self.ready(source) + returning <= MOST_READY.max(supply.stock.keeps()) + supply.line.len()
                && !matches!(source, Source::Server(_))
        };
        self.supplies.get(source).is_some_and(is_needed) && !self.is_due_elsewhere(id, source, now)
    }

    /// Returns true if this returned database has to make room, because the client whose turn it is needs a database
    /// from another source. Only one database makes room at a time, because removing it and creating another takes as
    /// long as many leases.
    fn is_due_elsewhere(&self, id: DatabaseId, source: &Source, now: Instant) -> bool {
        self.databases.len() >= self.capacity
            && !self.databases.busy().any(|(other, database)| other != id && database.frees_room())
            && self.next_source(Some(id), now).is_some_and(|next| next != *source)
    }

    /// Finds the client that has waited longest without a database being prepared for it and returns the source needed
    /// by this client. `come_back` is a database that has just been returned and isn't assigned to a client yet.
    pub(super) fn next_source(&self, come_back: Option<DatabaseId>, now: Instant) -> Option<Source> {
        let come_back = come_back.and_then(|id| self.databases.get(id));
        let next = |(source, supply): (&Source, &Supply)| {
            let own = come_back.filter(|own| own.source == *source);
            let since = self.needs_one_since(source, supply, own, now)?;
            // If two clients arrived at the same time, prefer the one that can use the returned database.
            Some((since, own.is_none(), source.clone()))
        };
        self.supplies.iter().filter_map(next).min().map(|(.., source)| source)
    }

    /// Returns since when the first client in the source's queue without a database in preparation
    /// has been waiting. Returns `None` if no client is waiting without one, or if the source
    /// couldn't serve the client now because no database may be created and none has `come_back`.
    fn needs_one_since(
        &self,
        source: &Source,
        supply: &Supply,
        come_back: Option<&Database>,
        now: Instant,
    ) -> Option<Instant> {
        supply.line.front()?;
        let making = self.making(source);
        let may_be_made = making < MOST_MAKING && supply.not_before.is_none_or(|time| time <= now);
        let returning = self.returning(source) - usize::from(come_back.is_some_and(Database::is_returning));
        self.waits_since(source, making + returning).filter(|_| may_be_made || come_back.is_some())
    }

    /// Returns true if a client has been waiting too long for a new copy that could be created now.
    pub(super) fn is_copy_overdue(&self, now: Instant) -> bool {
        let is_overdue = |(source, supply): (&Source, &Supply)| {
            !supply.serves_soon(now)
                && self
                    .needs_one_since(source, supply, None, now)
                    .is_some_and(|since| since + CROWD_TIMEOUT <= now)
        };
        self.closed.is_none() && self.databases.len() < self.capacity && self.supplies.iter().any(is_overdue)
    }

    /// Returns true if the paused task creating this database should stop, because a client is waiting for a copy of
    /// another template that no other worker may create. Once stopped, the task no longer occupies a worker or counts
    /// toward the maximum.
    pub(crate) fn gives_way(&mut self, id: DatabaseId, now: Instant) -> bool {
        let Some(source) = self.databases.get(id).map(|database| database.source.clone()) else {
            return false;
        };
        // Ignore copies that would have to pause as well.
        let is_kept_from = |(other, supply): (&Source, &Supply)| {
            *other != source
                && !supply.serves_soon(now)
                && self.needs_one_since(other, supply, None, now).is_some()
        };
        let gives_way = (self.is_making_most() || self.databases.len() >= self.capacity)
            && self.supplies.iter().any(is_kept_from);
        if gives_way && let Some(database) = self.databases.get_mut(id) {
            database.gives_way = true;
            if let Some(supply) = self.supplies.get_mut(&source) {
                supply.not_before = Some(now + QUIET);
            }
        }
        gives_way
    }

    /// Returns since when the client with `before` others ahead of it in the source's queue has been waiting.
    fn waits_since(&self, source: &Source, before: usize) -> Option<Instant> {
        let since = |name: &String| {
            let line = self.names.get(name)?;
            let waits = matches!(&line.state, NameState::Wanted(terms) if terms.source() == *source);
            line.requests.front().filter(|_| waits).map(|head| head.since)
        };
        self.supplies.get(source)?.line.iter().filter_map(since).nth(before)
    }

    /// Returns true if any client is waiting for a database from this one's source.
    pub(crate) fn is_awaited(&self, id: DatabaseId) -> bool {
        let supply = self.databases.get(id).and_then(|database| self.supplies.get(&database.source));
        supply.is_some_and(|supply| !supply.line.is_empty())
    }

    /// Returns how long the task creating this database should pause to leave the processors to clients. Returns `None`
    /// if no pause is due, or if a client needs this very database because too few others will be returned.
    pub(crate) fn pause(&self, id: DatabaseId, now: Instant) -> Option<Duration> {
        let source = &self.databases.get(id)?.source;
        let supply = self.supplies.get(source)?;
        let pause = supply.pause_until?.checked_duration_since(now).filter(|pause| !pause.is_zero())?;
        let returning = self.returning(source) + self.about_to_return(source);
        (supply.line.len() <= returning).then_some(pause)
    }

    /// Returns true if databases from this one's source are returned so often that even the last client in the queue
    /// gets one soon.
    pub(crate) fn come_back_soon(&self, id: DatabaseId, now: Instant) -> bool {
        let supply = self.databases.get(id).and_then(|database| self.supplies.get(&database.source));
        supply.is_some_and(|supply| supply.serves_soon(now))
    }

    /// Records that a database from this source is ready again after its lease.
    pub(super) fn note_return(&mut self, source: &Source, now: Instant) {
        let Some(supply) = self.supplies.get_mut(source) else { return };
        if let Some(before) = supply.returned_at.replace(now) {
            // Maintain a moving average of the intervals, weighted toward recent ones.
            supply.return_every = (supply.return_every * 7 + now.saturating_duration_since(before)) / 8;
        }
    }

    /// Returns true if a client has found no ready database since the last call.
    pub(crate) fn take_shortage(&mut self) -> bool {
        std::mem::take(&mut self.is_short)
    }

    /// Returns true if there is time to start idle backends in a database before it becomes
    /// ready, because a different database is already ready and no client is waiting.
    pub(crate) fn has_time_for(&self, id: DatabaseId) -> bool {
        let ready = self.databases.get(id).map_or(0, |database| self.ready(&database.source));
        ready > 0 && !self.is_awaited(id)
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

fn source_name(source: &Source) -> String {
    match source {
        Source::Template(name) | Source::Server(name) => name.clone(),
    }
}
