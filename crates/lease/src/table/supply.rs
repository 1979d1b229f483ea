//! Demand and supply: who waits for a ready database, and how many are made ahead of that.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::database::{Change, Database, Work};
use super::line::NameState;
use super::{Action, DatabaseId, DatabaseState, LeaseTable, ParamsId, Source, Task, TaskKind, Want};
use crate::{Isolation, LeaseError};

/// The most ready copies of one template that are made ahead of demand.
const MOST_AHEAD: usize = 16;
/// The most that are kept ready once they have been made and used. With the same bound for both, each lease after a burst would
/// have a copy made while it lasts, and one dropped at its end.
const MOST_READY: usize = 2 * MOST_AHEAD;
/// How many are kept ready before a client has asked for one.
const FIRST_READY: usize = 2;
/// The most that are made at once while clients wait.
const MOST_MAKING: usize = 2;
/// The most that are made at once ahead of demand: the other processors are for who uses the databases.
const MOST_MAKING_AHEAD: usize = 1;
/// How long a session that was just given a database has the machine to itself before the next is made: that long a
/// session takes to start and to have its first answer.
const QUIET: Duration = Duration::from_millis(3);

/// The longest pause before the next attempt to make a database, where none could be.
const LONGEST_PAUSE: Duration = Duration::from_millis(3200);

/// While the processors are all busy, no copy is made for clients who wait no longer than this for a database to come back: it would
/// take the processors from those who give one back, and one more database would not bring them back sooner.
const CROWD_PATIENCE: Duration = Duration::from_millis(100);

/// How long a client waits where there is no room for another database, and none of those that there are goes to a client:
/// all may be in use for as long as their clients like. While they go from client to client, its turn comes.
const ROOM_TIMEOUT: Duration = Duration::from_secs(1);

/// What is known of one source of databases.
#[derive(Debug)]
pub(super) struct Supply {
    /// How many should be ready.
    wanted: usize,
    /// Names that wait for one, first come first served.
    pub(super) line: VecDeque<String>,
    /// No other is made before then: the last one could not be.
    not_before: Option<Instant>,
    /// How many of them could not be since one was made.
    failures: u32,
    /// Until then what a client has just left counts as coming.
    returns_until: Option<Instant>,
    /// Until then nothing that is being made goes on, either: who was given one last gives it back at once.
    pause_until: Option<Instant>,
    /// When one was last made ready again after its lease, and about how often one is.
    returned_at: Option<Instant>,
    return_every: Duration,
}

/// What a name that waits for a database asks for.
struct Demand {
    name: String,
    isolation: Isolation,
    params: Option<ParamsId>,
}

impl Supply {
    /// Whether so many databases come back that the last who waits gets one soon.
    fn serves_soon(&self, now: Instant) -> bool {
        let Some(returned_at) = self.returned_at else { return false };
        let every = self.return_every.max(now.saturating_duration_since(returned_at));
        let waiting = u32::try_from(self.line.len()).unwrap_or(u32::MAX).max(1);
        every.saturating_mul(waiting) <= CROWD_PATIENCE
    }
}

impl LeaseTable {
    /// Databases are made from this source from now on, or, if they are not `expected`, once the first is asked for.
    pub(crate) fn add_source(&mut self, source: Source, expected: bool) {
        let wanted = if expected { FIRST_READY } else { 0 };
        let line = VecDeque::new();
        let supply = Supply {
            wanted,
            line,
            not_before: None,
            failures: 0,
            returns_until: None,
            pause_until: None,
            returned_at: None,
            return_every: Duration::ZERO,
        };
        self.supplies.insert(source, supply);
    }

    /// No more are made from it, and those that are ready are dropped. Those that are leased stay.
    pub(crate) fn remove_source(&mut self, source: &Source, now: Instant) -> Vec<Action> {
        let Some(supply) = self.supplies.remove(source) else { return Vec::new() };
        for name in supply.line {
            self.refuse_wanted(&name, source, now);
        }
        for id in self.ready_of(source).collect::<Vec<_>>() {
            self.unname(id, true, None);
        }
        std::mem::take(&mut self.actions)
    }

    fn refuse_wanted(&mut self, name: &str, source: &Source, now: Instant) {
        let error = LeaseError::UnknownTemplate { name: source_name(source), known: self.template_names() };
        let Some(line) = self.names.get_mut(name) else { return };
        // It may have given up since, and have been asked for on other terms.
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

    /// Ready databases of a source that any client may get.
    pub(crate) fn ready(&self, source: &Source) -> usize {
        let is_for_any = |(_, database): &(DatabaseId, &Database)| {
            database.source == *source && database.isolation != Isolation::Rollback
        };
        self.databases.ready().filter(is_for_any).count()
    }

    /// Whether as many are ready as should be, or as there is room for, and none is being made.
    pub(crate) fn is_supplied(&self) -> bool {
        let is_full = self.databases.len() >= self.capacity;
        self.supplies.iter().all(|(source, supply)| {
            self.making(source) == 0 && (is_full || self.ready(source) >= supply.wanted)
        })
    }

    /// Gives ready databases to those who wait for them.
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

    /// The ready database that suits best.
    fn pick(&self, source: &Source, demand: &Demand) -> Option<DatabaseId> {
        let worth = |database: &Database| match (database.isolation, demand.isolation) {
            // Its session is for these parameters alone.
            (Isolation::Rollback, Isolation::Rollback) if database.params == demand.params => 3,
            (Isolation::Rollback, _) => 0,
            _ if database.is_warm_for(demand.params) => 2,
            _ => 1,
        };
        // The first among equals is the oldest: it is the one that was used most, and is best known to the processors.
        let mut best = None;
        for (id, database) in self.databases.ready().filter(|(_, database)| database.source == *source) {
            let worth = worth(database);
            if worth > best.map_or(0, |(_, most)| most) {
                best = Some((id, worth));
            }
        }
        best.map(|(id, _)| id)
    }

    /// Begins to give a ready database a name.
    pub(super) fn assign(&mut self, id: DatabaseId, name: &str, now: Instant) {
        let Some(line) = self.names.get_mut(name) else { return };
        let NameState::Wanted(terms) = line.state.clone() else { return };
        let Some(request) = line.requests.front_mut() else { return };
        let (params, ticket) = (request.want.params(), request.ticket);
        request.begun |= matches!(request.want, Want::Lease { .. });
        line.state = NameState::Held(id);
        let isolation = terms.isolation;
        // A client that waits already waits no longer for that.
        if let Some(supply) = self.supplies.get_mut(&terms.source()).filter(|supply| supply.line.is_empty()) {
            supply.returns_until = Some(now + QUIET);
            supply.pause_until = supply.returns_until.filter(|_| terms.linger <= QUIET);
        }
        if let Some(database) = self.databases.get_mut(id) {
            database.state = DatabaseState::Changing(Change::Naming(name.to_owned()));
            database.terms = Some(terms);
        }
        self.quiet_until = Some(now + QUIET);
        self.assigned_at = Some(now);
        self.run_now(id, TaskKind::Name { to: name.to_owned(), isolation, params }, ticket);
    }

    /// Nothing is ready, and a client waits: more are kept ready from now on. False if there is no room, nor will be.
    fn expand(&mut self, source: &Source, now: Instant) -> bool {
        let Some(supply) = self.supplies.get_mut(source) else { return false };
        let most = if matches!(source, Source::Server(_)) { 1 } else { MOST_AHEAD };
        self.is_short = true;
        if supply.line.len() > supply.wanted / 2 {
            supply.wanted = (supply.wanted * 2).clamp(FIRST_READY.min(most), most);
        }
        self.databases.len() < self.capacity || self.evict_idle(now)
    }

    /// Ends what is not needed, for the client whose turn it is to have its room. False if everything is in use.
    fn evict_idle(&mut self, now: Instant) -> bool {
        // What has failed may fail for ever: nothing comes of it until it is done.
        let is_coming = |database: &Database| {
            database.frees_room() || database.is_returning() && !matches!(database.work, Work::RetryAt(_))
        };
        if self.databases.busy().any(|(_, database)| is_coming(database)) {
            return true;
        }
        let Some(source) = self.next_source(None, now) else { return true };
        let other = |database: &Database| database.source != source;
        let is_idle = |database: &Database| other(database) || database.isolation == Isolation::Rollback;
        let idle = self.databases.ready().find(|(_, database)| is_idle(database));
        if let Some((id, retire)) = idle.map(|(id, database)| (id, other(database))) {
            self.unname(id, retire, None);
            return true;
        }
        let deadline = |database: &Database| database.lease().and_then(|lease| lease.deadline);
        let lingers =
            self.databases.iter().filter_map(|(id, database)| Some((deadline(database)?, id))).min();
        let Some((_, id)) = lingers.or_else(|| self.oldest_kept()) else { return false };
        if let Some(lease) = self.databases.get_mut(id).and_then(Database::lease_mut) {
            lease.deadline = Some(now);
        }
        true
    }

    /// The database of a failed test that was kept first of those that have no session, and when.
    fn oldest_kept(&self) -> Option<(Instant, DatabaseId)> {
        let unused = |database: &Database| {
            database.lease().filter(|lease| lease.sessions() == 0).and_then(|lease| lease.kept)
        };
        self.databases.iter().filter_map(|(id, database)| Some((unused(database)?, id))).min()
    }

    /// There is no room for another database, nor will be before a client gives one back: who has waited long enough for that is
    /// refused.
    fn refuse_for_room(&mut self, source: &Source, now: Instant) {
        loop {
            let next = self.next_impatient(source);
            let Some((_, name)) = next.clone().filter(|(ends, _)| *ends <= now) else {
                return next.into_iter().for_each(|(ends, _)| self.look_at_lines(ends));
            };
            let leased = self.databases.iter().filter(|(_, database)| database.lease().is_some()).count();
            let is_kept = |database: &Database| database.lease().is_some_and(|lease| lease.kept.is_some());
            let kept = self.databases.iter().filter(|(_, database)| is_kept(database)).count();
            if let Some(supply) = self.supplies.get_mut(source) {
                supply.line.retain(|waiting| *waiting != name);
            }
            self.refuse_name(&name, LeaseError::Full { leased, kept, most: self.capacity }, now);
        }
    }

    /// Whose patience ends first of those who wait for room, and when.
    fn next_impatient(&self, source: &Source) -> Option<(Instant, String)> {
        let line = &self.supplies.get(source)?.line;
        let ends = |name: &String| {
            let line = self.names.get(name)?;
            let waits = matches!(&line.state, NameState::Wanted(terms) if terms.source() == *source);
            let since = line.requests.front().filter(|_| waits)?.since;
            let moved = self.assigned_at.map_or(since, |assigned| assigned.max(since));
            Some((moved + ROOM_TIMEOUT, name.clone()))
        };
        // The first of those that came at the same time.
        line.iter().filter_map(ends).min_by_key(|(ends, _)| *ends)
    }

    /// A name that waited for a database gets none.
    pub(super) fn refuse_name(&mut self, name: &str, error: LeaseError, now: Instant) {
        if let Some(line) = self.names.get_mut(name) {
            line.give_up_waiting();
        }
        self.refuse_head(name, error);
        self.advance(name, now);
    }

    /// A database could not be made: the first who waits hears why, and the next attempt waits.
    pub(super) fn not_made(&mut self, source: &Source, error: LeaseError, now: Instant) {
        self.make_later(source, now);
        let first = self.first_demand(source).map(|demand| demand.name);
        if let (Some(_), Some(supply)) = (&first, self.supplies.get_mut(source)) {
            supply.line.pop_front();
        }
        if let Some(name) = first {
            self.refuse_name(&name, error, now);
        }
    }

    /// The next is not made at once, and later each time.
    pub(super) fn make_later(&mut self, source: &Source, now: Instant) {
        if let Some(supply) = self.supplies.get_mut(source) {
            let time = now + super::pause_after(supply.failures, LONGEST_PAUSE);
            supply.not_before = Some(time);
            supply.failures += 1;
            // Where all room is taken, it is made for who waits then.
            self.look_at_lines(time);
        }
    }

    /// One was made.
    pub(super) fn made(&mut self, source: &Source) {
        if let Some(supply) = self.supplies.get_mut(source) {
            supply.failures = 0;
        }
    }

    /// The task of making a database, if one is wanted now; else when one may be.
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
            let most = if waiting > 0 { MOST_MAKING } else { MOST_MAKING_AHEAD };
            if lacks == 0 || making >= most {
                if waiting + supply.wanted > self.ready(source) + coming - leaving {
                    soonest = [quiet, returns].into_iter().fold(soonest, earlier);
                }
                continue;
            }
            if let Some(time) = supply.not_before.filter(|time| *time > now) {
                soonest = earlier(soonest, Some(time));
                continue;
            }
            // First for clients to whom no database comes back soon, then for the one that has waited longest.
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
        self.databases.insert(id, Database::new(source.clone()));
        Ok(Task { database: id, kind: TaskKind::Create(source) })
    }

    /// Databases of a source that are being made.
    fn making(&self, source: &Source) -> usize {
        let is_made = |(_, database): &(DatabaseId, &Database)| {
            database.source == *source
                && database.state == DatabaseState::Creating
                && database.work == Work::Running
                && !database.gives_way
        };
        self.databases.busy().filter(is_made).count()
    }

    /// Databases of a source whose lease has ended and that are made ready again, a millisecond's work.
    fn returning(&self, source: &Source) -> usize {
        let returns =
            |(_, database): &(DatabaseId, &Database)| database.source == *source && database.is_returning();
        self.databases.busy().filter(returns).count()
    }

    /// Databases of a source whose clients have gone, and whose leases end with their sessions: within a millisecond as a rule, but
    /// a statement may go on in one.
    fn about_to_return(&self, source: &Source) -> usize {
        let is_left = |(_, database): &(DatabaseId, &Database)| {
            database.source == *source
                && database.isolation == Isolation::Clone
                && matches!(&database.state, DatabaseState::Leased(lease) if lease.is_over())
        };
        self.databases.busy().filter(is_left).count()
    }

    /// Whether a database that has just come back, which is ready now, is worth its room.
    pub(super) fn keeps_ready(&self, id: DatabaseId, now: Instant) -> bool {
        self.keeps(id, 0, now)
    }

    /// Whether a database that has just lost its name is worth being made ready.
    pub(super) fn keeps_returning(&self, id: DatabaseId, now: Instant) -> bool {
        self.databases.get(id).is_some_and(|database| self.keeps(id, self.returning(&database.source), now))
    }

    /// Whether a database is used again: it is one of those that its template's clients may need, and its room is theirs.
    fn keeps(&self, id: DatabaseId, returning: usize, now: Instant) -> bool {
        let Some(source) = self.databases.get(id).map(|database| &database.source) else { return false };
        let is_needed = |supply: &Supply| {
            self.ready(source) + returning <= MOST_READY + supply.line.len()
                && !matches!(source, Source::Server(_))
        };
        self.supplies.get(source).is_some_and(is_needed) && !self.is_due_elsewhere(id, source, now)
    }

    /// Whether the client whose turn it is waits for a database of another source, and has no room but that of this one, which has come
    /// back. One at a time gives its room away: to remove one and make another takes as long as many leases.
    fn is_due_elsewhere(&self, id: DatabaseId, source: &Source, now: Instant) -> bool {
        self.databases.len() >= self.capacity
            && !self.databases.busy().any(|(other, database)| other != id && database.frees_room())
            && self.next_source(Some(id), now).is_some_and(|next| next != *source)
    }

    /// What the client waits for that has waited longest of those for whom no database is on its way. One that has `come_back` is
    /// on its way to no client yet.
    fn next_source(&self, come_back: Option<DatabaseId>, now: Instant) -> Option<Source> {
        let come_back = come_back.and_then(|id| self.databases.get(id));
        let next = |(source, supply): (&Source, &Supply)| {
            let own = come_back.filter(|own| own.source == *source);
            let since = self.needs_one_since(source, supply, own, now)?;
            // Of two that came at the same time the one that needs no other database.
            Some((since, own.is_none(), source.clone()))
        };
        self.supplies.iter().filter_map(next).min().map(|(.., source)| source)
    }

    /// Since when the first waits for whom no database of a source is on its way, where another one may be made now, or the one that
    /// has come back is one.
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

    /// Whether a client has waited for a while to whom only a new copy helps, and one may be made.
    pub(super) fn is_copy_overdue(&self, now: Instant) -> bool {
        let is_overdue = |(source, supply): (&Source, &Supply)| {
            !supply.serves_soon(now)
                && self
                    .needs_one_since(source, supply, None, now)
                    .is_some_and(|since| since + CROWD_PATIENCE <= now)
        };
        self.closed.is_none() && self.databases.len() < self.capacity && self.supplies.iter().any(is_overdue)
    }

    /// Whether the making of a database, which had better wait, is put off altogether: a client waits for another template, whose
    /// copy cannot be made meanwhile. From then on it takes no maker's time and no place among those that are made at once.
    pub(crate) fn gives_way(&mut self, id: DatabaseId, now: Instant) -> bool {
        let Some(source) = self.databases.get(id).map(|database| database.source.clone()) else {
            return false;
        };
        // Copies that would have to wait, too, are no reason.
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

    /// Since when the client waits that has so many before it in the line of a source.
    fn waits_since(&self, source: &Source, before: usize) -> Option<Instant> {
        let since = |name: &String| {
            let line = self.names.get(name)?;
            let waits = matches!(&line.state, NameState::Wanted(terms) if terms.source() == *source);
            line.requests.front().filter(|_| waits).map(|head| head.since)
        };
        self.supplies.get(source)?.line.iter().filter_map(since).nth(before)
    }

    /// Whether a client waits in the line for a database like this.
    pub(crate) fn is_awaited(&self, id: DatabaseId) -> bool {
        let supply = self.databases.get(id).and_then(|database| self.supplies.get(&database.source));
        supply.is_some_and(|supply| !supply.line.is_empty())
    }

    /// For how long making this one had better be put off, for the sake of clients that come and go meanwhile: until one waits for
    /// it, and not for a database that is about to come back.
    pub(crate) fn pause(&self, id: DatabaseId, now: Instant) -> Option<Duration> {
        let source = &self.databases.get(id)?.source;
        let supply = self.supplies.get(source)?;
        let pause = supply.pause_until?.checked_duration_since(now).filter(|pause| !pause.is_zero())?;
        let returning = self.returning(source) + self.about_to_return(source);
        (supply.line.len() <= returning).then_some(pause)
    }

    /// Whether databases like this come back so often that the last client who waits for one has it soon.
    pub(crate) fn come_back_soon(&self, id: DatabaseId, now: Instant) -> bool {
        let supply = self.databases.get(id).and_then(|database| self.supplies.get(&database.source));
        supply.is_some_and(|supply| supply.serves_soon(now))
    }

    /// A database is ready again after its lease.
    pub(super) fn note_return(&mut self, source: &Source, now: Instant) {
        let Some(supply) = self.supplies.get_mut(source) else { return };
        if let Some(before) = supply.returned_at.replace(now) {
            // Of the last few, each counts less than the next.
            supply.return_every = (supply.return_every * 7 + now.saturating_duration_since(before)) / 8;
        }
    }

    /// Whether a client has found no database ready, since this was last asked.
    pub(crate) fn take_shortage(&mut self) -> bool {
        std::mem::take(&mut self.is_short)
    }

    /// Whether a ready database had better get a session before it is ready: no client will have to wait for it.
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
