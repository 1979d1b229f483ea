//! What is ready, what is leased, and what has to be done: the facts behind one lock.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::backend::Waiting;
use crate::leaks::Watch;
use crate::recycle::Baseline;
use crate::{LeaseError, Difference, Kind};

/// The most copies of one template that are kept ready.
const MOST_READY: usize = 32;
/// How many are kept ready before anybody has asked for one.
const FIRST_READY: usize = 2;
/// How long whoever has just been given a database has the machine to himself before the next is made: that long a
/// session takes to start and to have its first answer.
const GRACE: Duration = Duration::from_millis(3);

/// The most sessions that are kept in leased databases after their clients have left.
const MOST_LEFT: usize = 64;
/// Databases that may wait to be dropped while others are made: each takes its megabytes until then.
const BACKLOG: usize = 16;
/// Processes that are forked beforehand. A session whose kind nobody has had before needs one.
const FORKED: usize = 2;
/// How long backends do not wait for clients after the server had no room for one that was needed.
const CROWDED: Duration = Duration::from_secs(10);

/// A copy that nobody has yet.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    pub(crate) template: String,
    pub(crate) oid: u32,
    /// What it is called until somebody has it.
    pub(crate) database: String,
    /// Sessions that wait in it for a client.
    pub(crate) warm: Vec<Waiting>,
    pub(crate) baseline: Baseline,
}

/// A database that somebody has.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) template: String,
    /// 0 until it is there.
    pub(crate) oid: u32,
    pub(crate) since: Instant,
    pub(crate) linger: Duration,
    pub(crate) sessions: usize,
    /// When it ends, unless another session comes before.
    pub(crate) ends: Option<Instant>,
    /// Whether it goes on when its last session has ended.
    pub(crate) lasting: bool,
    /// What its sessions have left.
    pub(crate) left: Vec<Waiting>,
    pub(crate) baseline: Baseline,
    /// It is being made or ended: who wants it waits.
    pub(crate) changing: bool,
}

/// Work for the background.
#[derive(Debug)]
pub(crate) enum Job {
    /// Make a copy of this template.
    Fill(String),
    /// Take back what was leased under this name.
    End(String),
    /// Drop this database.
    Drop(String),
    /// Have the server fork a process for a session that nobody has asked for yet.
    Fork,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) ready: Vec<Ready>,
    pub(crate) leases: HashMap<String, Lease>,
    pub(crate) to_drop: VecDeque<String>,
    /// Connections for which the server has forked a process, and on which nothing has been said yet.
    pub(crate) forked: Vec<UnixStream>,
    /// By template: how many copies shall be ready, and how many are being made.
    depth: HashMap<String, Depth>,
    /// Until when nothing is made unless it is urgent.
    calm: Option<Instant>,
    /// Until when no backend waits for a client.
    crowded: Option<Instant>,
    /// Names whose leases last.
    pub(crate) retained: HashSet<String>,
    /// Kinds of session that clients came with, the latest last.
    pub(crate) kinds: Vec<Kind>,
    pub(crate) serial: u64,
    pub(crate) closed: bool,
    pub(crate) created: (u64, Duration),
    pub(crate) warm: u64,
    pub(crate) cold: u64,
    pub(crate) recycled: (u64, Duration),
    /// By reason.
    pub(crate) dropped: BTreeMap<&'static str, u64>,
    pub(crate) differences: Vec<Difference>,
    pub(crate) watch: Watch,
}

#[derive(Debug, Clone, Copy)]
struct Depth {
    wanted: usize,
    making: usize,
}

impl State {
    /// Copies of it are made ready from now on, or, if they are not `expected`, after the first was asked for.
    pub(crate) fn add_template(&mut self, name: &str, expected: bool) {
        let wanted = if expected { FIRST_READY } else { 0 };
        self.depth.insert(name.to_owned(), Depth { wanted, making: 0 });
    }

    /// No more copies of it are made, and those that are ready are dropped.
    pub(crate) fn remove_template(&mut self, name: &str) {
        self.depth.remove(name);
        for ready in self.ready.extract_if(.., |ready| ready.template == name) {
            self.to_drop.push_back(ready.database);
        }
    }

    /// Ends all backends that wait for a client, and has no more wait for a while. Returns whether there were any.
    pub(crate) fn make_room(&mut self) -> bool {
        self.crowded = Some(Instant::now() + CROWDED);
        let ready = self.ready.iter_mut().map(|ready| &mut ready.warm);
        let left = self.leases.values_mut().map(|lease| &mut lease.left);
        ready.chain(left).map(|waiting| waiting.drain(..).count()).sum::<usize>() > 0
    }

    /// Whether the server has room for backends that only wait.
    pub(crate) fn has_room(&self) -> bool {
        self.crowded.is_none_or(|until| until <= Instant::now())
    }

    /// Whether it has room for one more that a client has left in a leased database.
    pub(crate) fn has_room_for_left(&self) -> bool {
        self.has_room() && self.leases.values().map(|lease| lease.left.len()).sum::<usize>() < MOST_LEFT
    }

    /// Whether one more ready copy is worth its room.
    pub(crate) fn wants_more(&self, template: &str) -> bool {
        let ready = self.ready.iter().filter(|ready| ready.template == template).count();
        self.depth.contains_key(template) && ready < MOST_READY
    }

    /// Whether a database that could be ready now had better get a session first: the kind that came last has none in
    /// it, and nobody will have to wait.
    pub(crate) fn has_time_for(&self, used: &Ready) -> bool {
        let lacks = |kind: &Kind| used.warm.iter().all(|waits| waits.kind != *kind);
        self.has_room() && !self.ready.is_empty() && self.kinds.last().is_some_and(lacks)
    }

    /// A name for a database of ours.
    pub(crate) fn next_name(&mut self, role: &str) -> String {
        self.serial += 1;
        format!("{}{role}_{}", crate::template::PREFIX, self.serial)
    }

    /// Takes a ready copy, best one with a warm session of `kind`; finding none, more will be kept ready.
    pub(crate) fn take_ready(&mut self, template: &str, kind: Option<&Kind>) -> Option<Ready> {
        let of_template = |ready: &Ready| ready.template == template;
        let fits =
            |ready: &Ready| of_template(ready) && ready.warm.iter().any(|waits| Some(&waits.kind) == kind);
        let at = self.ready.iter().position(fits).or_else(|| self.ready.iter().position(of_template));
        if at.is_none()
            && let Some(depth) = self.depth.get_mut(template)
        {
            depth.wanted = (depth.wanted * 2).clamp(FIRST_READY, MOST_READY);
        }
        self.calm = Some(Instant::now() + GRACE);
        at.map(|at| self.ready.remove(at))
    }

    /// Remembers what kind of session clients want. Two are kept warm: a driver's own and its pool's.
    pub(crate) fn remember(&mut self, kind: &Kind) {
        if self.kinds.last() != Some(kind) {
            self.kinds.retain(|known| known != kind);
            self.kinds.push(kind.clone());
            if self.kinds.len() > 2 {
                self.kinds.remove(0);
            }
        }
    }

    /// Ends the lease that lingers longest, for there is no room for another.
    ///
    /// # Errors
    /// All leases are in use.
    pub(crate) fn hurry(&mut self, most: usize) -> Result<(), LeaseError> {
        let leased = self.leases.len();
        let changing = self.leases.values().any(|lease| lease.changing);
        match self.leases.values_mut().filter_map(|lease| lease.ends.as_mut()).min() {
            Some(ends) => *ends = Instant::now(),
            None if changing => {}
            None => return Err(LeaseError::Full { leased, most }),
        }
        Ok(())
    }

    /// The most urgent job, or the time until there may be one. `room`: copies that still fit into the budget.
    pub(crate) fn next_job(&mut self, room: usize) -> Result<Job, Option<Duration>> {
        let now = Instant::now();
        let due = self.leases.iter().find(|(_, lease)| lease.ends.is_some_and(|ends| ends <= now));
        if let Some((name, _)) = due {
            let name = name.clone();
            if let Some(lease) = self.leases.get_mut(&name) {
                lease.ends = None;
                lease.changing = true;
            }
            return Ok(Job::End(name));
        }
        let calm = self.calm.filter(|calm| *calm > now);
        if self.to_drop.len() > BACKLOG
            && let Some(name) = self.to_drop.pop_front()
        {
            return Ok(Job::Drop(name));
        }
        if room > 0
            && let Some(template) = self.shortest(calm.is_none())
        {
            return Ok(Job::Fill(template));
        }
        if let Some(name) = self.to_drop.pop_front() {
            return Ok(Job::Drop(name));
        }
        if calm.is_none() && self.forked.len() < FORKED {
            return Ok(Job::Fork);
        }
        let next = self.leases.values().filter_map(|lease| lease.ends).chain(calm).min();
        Err(next.map(|ends| ends.saturating_duration_since(now)))
    }

    /// A template that lacks ready copies, or, unless there is `time`, more than half of them; one more counts as being
    /// made from now on.
    fn shortest(&mut self, time: bool) -> Option<String> {
        let ready = |name: &str| self.ready.iter().filter(|ready| ready.template == name).count();
        let enough = |wanted: usize| if time { wanted } else { wanted / 2 };
        let (name, _) = self
            .depth
            .iter()
            .map(|(name, depth)| {
                (name.clone(), enough(depth.wanted).saturating_sub(ready(name) + depth.making))
            })
            .filter(|(_, lacking)| *lacking > 0)
            .max_by_key(|(_, lacking)| *lacking)?;
        self.depth.get_mut(&name)?.making += 1;
        Some(name)
    }

    /// A copy that [`Job::Fill`] was for is there, or failed.
    pub(crate) fn made(&mut self, template: &str) {
        if let Some(depth) = self.depth.get_mut(template) {
            depth.making = depth.making.saturating_sub(1);
        }
    }

    /// All databases of ours that take room now.
    pub(crate) fn count(&self) -> usize {
        let making: usize = self.depth.values().map(|depth| depth.making).sum();
        self.ready.len() + self.leases.len() + self.to_drop.len() + making
    }
}
