//! The state of all leases behind one lock: the table, the resources of its databases, and the slots for answers.
//!
//! The table decides, and this module carries the decisions to the threads: it stores tasks for workers, and wakes clients with
//! their answers.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pgwire::StartupParams;
use server::AdminConnection;
use sys::lock;

use crate::address::DatabaseAddress;
use crate::admin::MakeRoom;
use crate::backend::{CatalogStamp, WaitingBackend, params_id};
use crate::catalog::{Content, FileMap, TemplateCatalog};
use crate::client::Client;
use crate::counters::Counters;
use crate::evidence::Epoch;
use crate::expected::ExpectedParams;
use crate::growth::Growth;
use crate::leased_server::LeasedServer;
use crate::names::preparing;
use crate::rollback::TransactionSession;
use crate::slot::{Newcomer, Slot};
use crate::stats::DatabaseStats;
use crate::table::{Action, Answer, DatabaseId, Event, LeaseTable, ParamsId, Task, Ticket, Want};
use crate::template::Template;
use crate::wal::Changes;

/// Maximum number of rows that the leases of one database may have written and rolled back. These rows take up space until a
/// VACUUM, and nothing starts one.
const MOST_ROLLED_BACK: u64 = 10_000;
/// The lowest number for a file that initdb has not created. Source: `FirstNormalObjectId` in `src/include/access/transam.h`.
const FIRST_NORMAL: u32 = 16384;
/// Maximum number of backends that wait in leased databases after their clients have left.
const MOST_WAITING: usize = 64;
/// Interval at which pgfresh reads the log while any database is leased, because the server recycles old segments.
const CATCH_UP: Duration = Duration::from_secs(1);
/// How long no backends wait for clients after the server had no room for a client's session.
const CROWDED: Duration = Duration::from_secs(10);

/// The data behind the lock.
#[derive(Debug, Default)]
pub(crate) struct Core {
    pub(crate) table: LeaseTable,
    /// Tasks that a client waits for while its own thread is busy with something else.
    urgent: VecDeque<Task>,
    pub(crate) slots: HashMap<Ticket, Arc<Slot>>,
    pub(crate) databases: HashMap<DatabaseId, Held>,
    pub(crate) expected: ExpectedParams,
    /// When each idle maintenance worker wakes up by itself.
    pub(crate) idle_workers: Vec<Instant>,
    /// When pgfresh last read the log on behalf of long leases.
    pub(crate) caught_up: Option<Instant>,
    /// Number of resets at the time of the last VACUUM of `pg_database`.
    vacuumed: u64,
    /// Maximum number of backends that wait for a client, plus pgfresh's own sessions that wait for a reset.
    pub(crate) most_idle: usize,
    /// Until this time, no backend waits for a client.
    crowded: Option<Instant>,
    serial: u64,
    last_ticket: u64,
    pub(crate) closed: bool,
    pub(crate) counters: Counters,
}

/// The resources of one database in the table: its backends, sessions and files.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Oid of the database. It is 0 until the database exists, and for a lease with its own server.
    pub(crate) oid: u32,
    /// The database's name while no lease has it.
    pub(crate) own_name: String,
    /// Names that pgfresh has given the database and that it may have now. A database with a different name belongs to SQL.
    pub(crate) names: BTreeSet<String>,
    /// The name under which the last lease had the database.
    pub(crate) last_name: String,
    /// The database's state when the last lease ended.
    pub(crate) stats: Option<DatabaseStats>,
    pub(crate) template: Option<Template>,
    /// The template's changes before it was copied. Only for `template1`, because SQL may change it.
    pub(crate) copied_after: Option<Changes>,
    /// The database's own catalog, if its template has none.
    pub(crate) catalog: Option<Arc<TemplateCatalog>>,
    /// Whether a session that uses an object of the database may leave something in its backend.
    pub(crate) leaves_traces: bool,
    /// Backends that wait here for a client.
    pub(crate) waiting: Vec<WaitingBackend>,
    /// The stamp that a session would have if it started now, and whether pgfresh has read it for this very session.
    pub(crate) stamp: (CatalogStamp, bool),
    /// The database's files, if they differ from the template's.
    pub(crate) files: Option<FileMap>,
    /// pgfresh's own session in the database, once a reset has opened one.
    pub(crate) session: Option<AdminConnection>,
    /// The session for leases in rollback isolation, while no client uses it.
    pub(crate) transaction: Option<Box<TransactionSession>>,
    pub(crate) growth: Growth,
    /// Number of rows that leases have written and rolled back.
    rolled_back: u64,
    /// The lease's own server, in isolation `server`.
    pub(crate) server: Option<Arc<Mutex<LeasedServer>>>,
    /// Generation of the server in which the database was fresh. See [`Inner::generation`](crate::inner::Inner).
    pub(crate) generation: u32,
    /// Epoch of the log since which pgfresh knows all changes in the database.
    pub(crate) epoch: Epoch,
    pub(crate) clients: Vec<Arc<Client>>,
    /// Whether a session has started since the database received its lease's name.
    pub(crate) entered: bool,
}

/// Data that tell what a file of one database contains.
#[derive(Debug)]
pub(crate) struct KnownFiles {
    files: Option<FileMap>,
    /// Whether any file may be a catalog while `files` is `None`. This is false for the system's own template, whose catalogs have
    /// the files that initdb has given them.
    is_unread: bool,
}

impl MakeRoom for Mutex<Core> {
    fn make_room(&self) {
        lock(self).evict_idle();
    }
}

impl Held {
    pub(crate) fn new(own_name: String, template: Option<Template>, epoch: Epoch) -> Self {
        let names = BTreeSet::from([own_name.clone()]);
        // Until pgfresh has looked for functions, it assumes that the database has some.
        Self { own_name, names, template, leaves_traces: true, epoch, ..Self::default() }
    }

    /// Returns the address while a lease has the database.
    pub(crate) fn leased_address(&self) -> DatabaseAddress {
        DatabaseAddress::new(self.oid, &self.last_name)
    }

    /// Returns the address while no lease has the database.
    pub(crate) fn own_address(&self) -> DatabaseAddress {
        DatabaseAddress::new(self.oid, &self.own_name)
    }

    pub(crate) fn of_server(server: LeasedServer, epoch: Epoch) -> Self {
        let server = Some(Arc::new(Mutex::new(server)));
        Self { server, ..Self::new(String::new(), None, epoch) }
    }

    pub(crate) fn catalog(&self) -> Option<&TemplateCatalog> {
        self.catalog.as_deref().or_else(|| self.template.as_ref()?.catalog())
    }

    /// Returns the data that show if a file belongs to a catalog. They can be used without the lock.
    pub(crate) fn known_files(&self) -> KnownFiles {
        let files = self.files.as_ref().or_else(|| Some(&self.catalog()?.files)).cloned();
        KnownFiles { files, is_unread: self.template.as_ref().is_some_and(Template::is_recyclable) }
    }

    /// Counts rows that a lease has rolled back. Returns false once there are too many.
    pub(crate) fn has_room_for(&mut self, rows: u64) -> bool {
        self.rolled_back = self.rolled_back.saturating_add(rows);
        self.rolled_back <= MOST_ROLLED_BACK
    }

    /// Returns the number of sessions that wait in the database.
    fn idle(&self) -> usize {
        self.waiting.len() + usize::from(self.session.is_some())
    }

    /// Removes and returns a waiting backend with these parameters.
    pub(crate) fn take_waiting(&mut self, params: &StartupParams) -> Option<WaitingBackend> {
        let at = self.waiting.iter().position(|at| at.params == *params)?;
        Some(self.waiting.swap_remove(at))
    }

    /// Closes the sessions that wait in the database.
    pub(crate) fn close_waiting(&mut self) {
        self.waiting.clear();
        self.session = None;
    }
}

impl KnownFiles {
    pub(crate) fn may_be_definition(&self, file: u32) -> bool {
        match &self.files {
            Some(known) => matches!(
                known.get(file),
                None | Some(Content::Catalog(_) | Content::CatalogValues(_) | Content::Classes)
            ),
            None => self.is_unread || file < FIRST_NORMAL,
        }
    }
}

impl Core {
    pub(crate) fn new(capacity: usize) -> Self {
        let (table, caught_up) = (LeaseTable::new(capacity), Some(Instant::now()));
        Self { table, caught_up, most_idle: usize::MAX, ..Self::default() }
    }

    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Returns a new name for a database that pgfresh prepares.
    pub(crate) fn next_name(&mut self) -> String {
        preparing(self.next_serial())
    }

    /// Returns the parameters of a waiting client.
    pub(crate) fn params_of(&self, id: ParamsId) -> Option<StartupParams> {
        let mut waiting = self.slots.values().filter_map(|slot| slot.params());
        waiting.find(|params| params_id(params) == id).cloned()
    }

    /// Whether the server has room for backends that wait for a client.
    pub(crate) fn has_room(&self) -> bool {
        self.crowded.is_none_or(|until| until <= Instant::now())
    }

    /// Returns `waiting` if the server has room for waiting backends, or else an empty list.
    pub(crate) fn admit(&self, waiting: Vec<WaitingBackend>) -> Vec<WaitingBackend> {
        if self.has_room() { waiting } else { Vec::new() }
    }

    /// Makes room for another backend that a client leaves in its database. Returns false if that backend must close. If the lease
    /// ends with this client, no room is needed, because the backend then waits in a ready database. At the limit, closes the
    /// waiting backends of the lease that ends next.
    pub(crate) fn make_room_for_left(&mut self, id: DatabaseId) -> bool {
        if !self.has_room() {
            return false;
        }
        if self.table.ends_with_its_session(id) {
            return true;
        }
        let is_left =
            |(id, held): &(&DatabaseId, &Held)| !held.waiting.is_empty() && self.table.is_leased(**id);
        let waiting =
            self.databases.iter().filter(is_left).map(|(_, held)| held.waiting.len()).sum::<usize>();
        if waiting < MOST_WAITING {
            return true;
        }
        let ends = self
            .table
            .by_end()
            .find(|id| self.databases.get(id).is_some_and(|held| !held.waiting.is_empty()));
        match ends.and_then(|id| self.databases.get_mut(&id)) {
            Some(held) => {
                held.waiting.clear();
                true
            }
            None => false,
        }
    }

    /// Closes waiting sessions beyond the maximum `most_idle`. It begins with databases that pgfresh is removing, and continues
    /// with leases, those that end first being first. It closes sessions in ready databases last, in the reverse order of their
    /// use. It leaves the database `stays` alone.
    pub(crate) fn trim_idle(&mut self, stays: DatabaseId) {
        let mut idle = self.databases.values().map(Held::idle).sum::<usize>();
        if idle <= self.most_idle {
            return;
        }
        for id in self.table.by_need().filter(|id| *id != stays) {
            if idle <= self.most_idle {
                return;
            }
            if let Some(held) = self.databases.get_mut(&id) {
                idle -= held.idle();
                held.close_waiting();
            }
        }
    }

    /// Ends all backends that wait for a client, and keeps others from waiting for a while.
    pub(crate) fn evict_idle(&mut self) {
        self.crowded = Some(Instant::now() + CROWDED);
        self.databases.values_mut().for_each(Held::close_waiting);
        // A lease is using none of these sessions, because the databases are ready.
        for id in self.table.ready_databases() {
            if let Some(held) = self.databases.get_mut(&id) {
                held.transaction = None;
            }
        }
    }

    pub(crate) fn close_waiting_in_leases(&mut self) {
        for lease in self.table.leases() {
            if let Some(held) = lease.database.and_then(|id| self.databases.get_mut(&id)) {
                held.close_waiting();
            }
        }
    }

    /// Returns the most urgent task, or else the time at which a task may be due.
    pub(crate) fn next_task(&mut self) -> Result<Task, Option<Instant>> {
        match self.urgent.pop_front() {
            Some(task) => Ok(task),
            None => self.table.next_task(Instant::now()),
        }
    }

    /// Returns the next task of this database: one that a client waits for, or else one that is due. Returns `None` while clients
    /// wait only for tasks of other databases.
    pub(crate) fn next_in(&mut self, database: DatabaseId) -> Option<Task> {
        if self.urgent.is_empty() {
            return self.table.take_due(database);
        }
        let at = self.urgent.iter().position(|task| task.database == database)?;
        self.urgent.remove(at)
    }

    /// Returns the time at which pgfresh reads the log next. Returns `None` while no database is leased.
    pub(crate) fn reads_log_at(&self) -> Option<Instant> {
        let next = || self.caught_up.map_or_else(Instant::now, |last| last + CATCH_UP);
        self.table.is_used().then(next)
    }

    /// Whether `resets` resets have happened since this method last returned true.
    pub(crate) fn take_vacuum_due(&mut self, resets: u64) -> bool {
        let is_due = self.counters.recycled.0 >= self.vacuumed + resets;
        if is_due {
            self.vacuumed = self.counters.recycled.0;
        }
        is_due
    }

    /// Whether an idle maintenance worker should check the table now. A busy worker does so anyway.
    pub(crate) fn needs_worker(&mut self) -> bool {
        let Some(wakes_at) = self.idle_workers.iter().min().copied() else { return false };
        if !self.urgent.is_empty() || self.expected.is_note_due() {
            return true;
        }
        let now = Instant::now();
        match self.table.next_task(now) {
            Ok(task) => {
                self.urgent.push_back(task);
                true
            }
            Err(soonest) => soonest.into_iter().chain(self.reads_log_at()).any(|time| time < wakes_at),
        }
    }

    /// Passes an event to the table. Returns the tasks that belong to the ticket `mine`.
    pub(crate) fn handle(&mut self, event: Event, mine: Option<Ticket>) -> Vec<Task> {
        let actions = self.table.handle(event, Instant::now());
        for id in self.table.take_gone() {
            self.databases.remove(&id);
        }
        self.act_on(actions, mine)
    }

    /// Passes an event to the table when no thread waits that could run its tasks.
    pub(crate) fn raise_in_background(&mut self, event: Event) {
        self.handle(event, None);
    }

    pub(crate) fn act_on(&mut self, actions: Vec<Action>, mine: Option<Ticket>) -> Vec<Task> {
        let mut tasks = Vec::new();
        for action in actions {
            match action {
                Action::Run { task, ticket } if Some(ticket) == mine => tasks.push(task),
                Action::Run { task, .. } => self.urgent.push_back(task),
                Action::Answer { ticket, answer } => {
                    // Every client waits until it has its answer, so each session counted here has a client.
                    let Some(slot) = self.slots.remove(&ticket) else { continue };
                    // This client must learn if its session ends, even before its own thread continues.
                    if let (Answer::Session(id), Some(client)) = (&answer, slot.client())
                        && let Some(held) = self.databases.get_mut(id)
                    {
                        held.clients.push(Arc::clone(client));
                    }
                    slot.answer(answer);
                }
            }
        }
        tasks
    }
}

impl Core {
    /// Begins a request. Returns the slot for its answer, its ticket, and the tasks for its thread.
    pub(crate) fn request(
        &mut self,
        name: &str,
        want: Want,
        newcomer: Option<Newcomer>,
    ) -> (Arc<Slot>, Ticket, Vec<Task>) {
        self.notice_gone_clients(name);
        self.last_ticket += 1;
        let slot = Arc::new(Slot::new(newcomer));
        let ticket = Ticket(self.last_ticket);
        self.slots.insert(ticket, Arc::clone(&slot));
        let tasks = self.handle(Event::Request { ticket, name: name.to_owned(), want }, Some(ticket));
        (slot, ticket, tasks)
    }

    /// Reports clients to the table that have disconnected while their sessions have not ended yet. If any client is still
    /// connected, the lease goes on anyway. So the method stops there, instead of checking hundreds of clients each time that a
    /// client comes.
    fn notice_gone_clients(&mut self, name: &str) {
        let Some(id) = self.table.holder(name) else { return };
        let Some(held) = self.databases.get(&id) else { return };
        if held.clients.iter().any(|client| client.is_present()) {
            return;
        }
        let count = held.clients.iter().filter(|client| client.leave()).count();
        for _ in 0..count {
            self.raise_in_background(Event::Leaving { database: id });
        }
    }

    /// Removes a session from its lease. Returns whether its client was leaving. Returns `None` if the lease has already ended
    /// without the session.
    pub(crate) fn count_out(&mut self, id: DatabaseId, client: &Arc<Client>) -> Option<bool> {
        let clients = &mut self.databases.get_mut(&id)?.clients;
        let at = clients.iter().position(|other| Arc::ptr_eq(other, client))?;
        clients.swap_remove(at);
        Some(client.is_leaving())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isolation;
    use crate::table::{Explicit, Outcome, Proof, Source, TaskKind, Terms};

    /// Leases `name` with a new session, and runs all tasks.
    fn lease(core: &mut Core, name: &str, linger: Duration) -> DatabaseId {
        let terms =
            Terms { template: "app".to_owned(), isolation: Isolation::Clone, linger, retained: false };
        let want = Want::Session { params: ParamsId(0), terms, explicit: Explicit::default(), reset: false };
        let tasks = core.request(name, want, None).2;
        work(core, tasks);
        core.table.holder(name).expect("it is leased")
    }

    /// Runs these tasks, and all tasks that are due.
    fn work(core: &mut Core, mut tasks: Vec<Task>) {
        while let Some(Task { database, kind }) = tasks.pop().or_else(|| core.next_task().ok()) {
            let outcome = match kind {
                TaskKind::Create(_) => Outcome::Fresh(Proof::new()),
                _ => Outcome::Done,
            };
            core.raise_in_background(Event::Finished { database, outcome });
        }
    }

    /// Returns a lease with one session and without remaining tasks.
    fn leased(linger: Duration) -> (Core, DatabaseId) {
        let mut core = Core::new(1);
        core.table.add_source(Source::Template("app".to_owned()), true);
        let database = lease(&mut core, "db", linger);
        (core, database)
    }

    #[test]
    fn idle_worker_wakes_for_work_before_its_timer() {
        let hour = Duration::from_hours(1);
        for (linger, needed) in [(hour, false), (Duration::from_millis(1), true)] {
            let (mut core, database) = leased(linger);
            assert!(!core.needs_worker(), "one that works looks by itself");
            // A worker reads the log while any database is leased. A worker that sleeps longer has not heard of the lease.
            core.idle_workers = vec![Instant::now() + hour];
            assert!(core.needs_worker());
            core.idle_workers.push(Instant::now() + CATCH_UP / 2);
            assert!(!core.needs_worker());
            core.raise_in_background(Event::Disconnected { database, leaving: false });
            assert_eq!(core.needs_worker(), needed, "{linger:?}");
        }
    }

    #[test]
    fn log_reads_are_scheduled_only_while_leases_exist() {
        let (mut core, database) = leased(Duration::ZERO);
        let last = Instant::now();
        core.caught_up = Some(last);
        assert_eq!(core.reads_log_at(), Some(last + CATCH_UP));
        core.raise_in_background(Event::Disconnected { database, leaving: false });
        assert_eq!(core.next_task(), Ok(Task { database, kind: TaskKind::Unname }));
        core.raise_in_background(Event::Finished { database, outcome: Outcome::Done });
        assert_eq!(core.reads_log_at(), None);
    }

    #[test]
    fn core_forgets_database_dropped_by_sql() {
        let (mut core, database) = leased(Duration::ZERO);
        core.databases.insert(database, Held::default());
        core.raise_in_background(Event::Lost { database, leaving: false });
        assert_eq!(core.next_task(), Ok(Task { database, kind: TaskKind::Unname }));
        core.raise_in_background(Event::Finished { database, outcome: Outcome::Vanished });
        assert!(core.databases.is_empty(), "{:?}", core.databases);
    }

    fn waiting_backend() -> WaitingBackend {
        let (stream, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let backend = crate::Backend { stream, greeting: Vec::new(), seat: crate::seats::Seat::default() };
        let params = StartupParams::new([("user", "postgres")]);
        WaitingBackend { params, backend, stamp: "".into(), since: None }
    }

    #[test]
    fn limit_on_waiting_backends_evicts_older_exempts_pool() {
        let mut core = Core::new(1000);
        core.table.add_source(Source::Template("app".to_owned()), true);
        let waiting = |core: &Core| core.databases.values().map(|held| held.waiting.len()).sum::<usize>();
        for serial in 0..3 * MOST_WAITING {
            let database = lease(&mut core, &format!("db_{serial}"), Duration::from_hours(1));
            core.databases.insert(database, Held::default());
            assert!(core.make_room_for_left(database));
            core.databases.get_mut(&database).unwrap().waiting.push(waiting_backend());
            core.raise_in_background(Event::Disconnected { database, leaving: false });
            assert_eq!(waiting(&core), (serial + 1).min(MOST_WAITING));
        }
        let database = lease(&mut core, "brief", Duration::ZERO);
        assert!(core.make_room_for_left(database));
        assert_eq!(waiting(&core), MOST_WAITING);
    }

    #[test]
    fn trim_idle_closes_sessions_needed_last() {
        let mut core = Core::new(1000);
        core.table.add_source(Source::Template("app".to_owned()), true);
        let soon = lease(&mut core, "soon", Duration::from_mins(1));
        let late = lease(&mut core, "late", Duration::from_hours(1));
        let open = lease(&mut core, "open", Duration::from_hours(1));
        for database in [soon, late] {
            core.raise_in_background(Event::Disconnected { database, leaving: false });
        }
        assert!(core.next_task().is_err());
        // Workers make copies only after no client has come for a moment.
        std::thread::sleep(Duration::from_millis(5));
        work(&mut core, Vec::new());
        let ready: Vec<_> = core.table.by_need().filter(|id| ![soon, late, open].contains(id)).collect();
        let [last, first] = ready[..] else { panic!("two are ready, not {ready:?}") };
        let all = [soon, late, open, first, last];
        for id in all {
            let held = Held { waiting: vec![waiting_backend(), waiting_backend()], ..Held::default() };
            core.databases.insert(id, held);
        }
        let waits = |core: &Core| all.map(|id| core.databases[&id].idle() > 0);
        for (most_idle, expected) in [
            (10, [true; 5]),
            (9, [false, true, true, true, true]),
            (6, [false, false, true, true, true]),
            (5, [false, false, true, true, false]),
            // Sessions in a lease with a client are not closed, and neither are those in the spared database.
            (0, [false, false, true, true, false]),
        ] {
            core.most_idle = most_idle;
            core.trim_idle(first);
            assert_eq!(waits(&core), expected, "{most_idle}");
        }
    }

    #[test]
    fn waiting_client_keeps_its_params_among_many_others() {
        let mut core = Core::new(1);
        core.table.add_source(Source::Template("app".to_owned()), true);
        let mut ask = |number: u32| {
            let params = StartupParams::new([("application_name", &*number.to_string())]);
            let (template, linger) = ("app".to_owned(), Duration::ZERO);
            let terms = Terms { template, isolation: Isolation::Rollback, linger, retained: false };
            let want = Want::Session {
                params: params_id(&params),
                terms,
                explicit: Explicit::default(),
                reset: false,
            };
            let client = Arc::new(Client::new(None));
            core.request("db", want, Some(Newcomer { client, params: params.clone() }));
            params
        };
        let first = ask(0);
        (1..5000).for_each(|number| drop(ask(number)));
        assert_eq!(core.params_of(params_id(&first)), Some(first));
    }

    #[test]
    fn rolled_back_rows_add_up_across_leases() {
        let mut held = Held::new("pgfresh_ready_1".to_owned(), None, Epoch::default());
        let leases = (0..100).take_while(|_| held.has_room_for(1000)).count();
        assert_eq!(leases, 10);
    }

    #[test]
    fn first_free_worker_takes_work_of_woken_one() {
        let (mut core, database) = leased(Duration::ZERO);
        core.idle_workers = vec![Instant::now()];
        core.raise_in_background(Event::Disconnected { database, leaving: false });
        assert!(core.needs_worker() && core.needs_worker());
        assert_eq!(core.next_task(), Ok(Task { database, kind: TaskKind::Unname }));
        assert!(core.next_task().is_err());
    }
}
