//! Servers of their own: leases for tests of what all databases of a server share, of its settings, and of its end.
//!
//! A lease is a whole server, started from the same template, with one database of the lease's name in it. Once the
//! first was asked for, one more is always ready; it is what the next lease gets.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use ::template::{Maker, MakerError, Started};
use server::{Guard, SUPERUSER, Server, Session};
use storage::Place;

use crate::databases::{Tenancy, cut, lock};
use crate::sql::identifier;
use crate::{Backend, Connected, LeaseError, Kind, LeaseStatus};

/// What the database of a spare is called until it has a holder.
const READY: &str = "pgfresh_ready";
/// How long a statement of ours may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// Servers, each leased by the name of the one database in it; clones are the same.
#[derive(Debug, Clone)]
pub struct Servers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    maker: Maker,
    /// How long a lease that does not last outlives its last session.
    linger: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    spare: Option<Machine>,
    /// Whether somebody is making one.
    making: bool,
    leases: HashMap<String, Arc<Leased>>,
    /// Names of leases that somebody is making.
    coming: HashSet<String>,
    serial: u64,
    closed: bool,
}

/// A leased server.
#[derive(Debug)]
struct Leased {
    machine: Mutex<Machine>,
    since: Instant,
    sessions: Mutex<Sessions>,
}

/// A session's right to be with a leased server.
#[derive(Debug, Clone)]
pub(crate) struct Stay {
    servers: Servers,
    name: String,
    leased: Arc<Leased>,
}

#[derive(Debug)]
struct Sessions {
    open: usize,
    /// Whether the lease stays without any.
    lasting: bool,
    /// How often the last one has left.
    left: u64,
}

/// A server that may be off.
#[derive(Debug)]
struct Machine {
    place: Place,
    /// Where its socket is, while it is on.
    directory: PathBuf,
    power: Power,
}

#[derive(Debug)]
enum Power {
    On(Server),
    /// Shut down, with its data.
    Off(Guard),
    /// Its data are gone: it was released, or, for this reason, did not start again.
    Lost(String),
}

/// What a lease's holder may have done to its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Shut down, if it runs, and started.
    Restart,
    /// Shut down; it stays so until it is restarted.
    Stop,
    /// Ended at once, as by a loss of power, and started: it recovers.
    Crash,
}

impl Servers {
    /// Servers as `maker` makes them. None is started until one is asked for.
    #[must_use]
    pub fn new(maker: Maker, linger: Duration) -> Self {
        Self(Arc::new(Inner { maker, linger, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Leases a server whose database has that name; one is made up where none is given. Returns the name. Takes a few
    /// milliseconds with a spare, the time of a start without. It lasts until it is released, or else until it has had
    /// no session for a while.
    pub fn lease(&self, name: Option<&str>, lasting: bool) -> Result<String, LeaseError> {
        let name = self.reserve(name)?;
        let machine = self.machine_for(&name);
        let mut state = lock(&self.0.state);
        state.coming.remove(&name);
        let leased = machine.map(|machine| {
            let sessions = Mutex::new(Sessions { open: 0, lasting, left: 0 });
            let leased = Leased { machine: Mutex::new(machine), since: Instant::now(), sessions };
            state.leases.insert(name.clone(), Arc::new(leased));
            name
        });
        drop(state);
        self.0.changed.notify_all();
        leased
    }

    /// The right to make a lease of that name, once nobody else is making it.
    fn reserve(&self, name: Option<&str>) -> Result<String, LeaseError> {
        let mut state = lock(&self.0.state);
        state.serial += 1;
        let name = name.map_or_else(|| format!("fresh_server_{}", state.serial), |name| cut(name).to_owned());
        while state.coming.contains(&name) {
            state = self.0.wait(state);
        }
        if state.leases.contains_key(&name) {
            return Err(LeaseError::Leased(name));
        }
        state.coming.insert(name.clone());
        Ok(name)
    }

    /// Whether the name is that of a lease.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    /// A session with the database of a lease.
    ///
    /// # Errors
    /// [`LeaseError::Stopped`] while it is off, [`LeaseError::Lost`] once it cannot be started any more.
    pub fn connect(&self, name: &str, kind: &Kind) -> Result<Connected, LeaseError> {
        let leased = self.find(name)?;
        let directory = {
            let machine = lock(&leased.machine);
            match &machine.power {
                Power::On(_) => machine.directory.clone(),
                Power::Off(_) => return Err(LeaseError::Stopped(cut(name).to_owned())),
                Power::Lost(why) => return Err(lost(name, why)),
            }
        };
        lock(&leased.sessions).open += 1;
        let tenancy = Tenancy::of_server(Stay { servers: self.clone(), name: cut(name).to_owned(), leased });
        Ok(Connected { backend: Backend::connect(&directory, kind, cut(name))?, tenancy })
    }

    /// Where the socket of a lease's server is.
    #[must_use]
    pub fn directory(&self, name: &str) -> Option<PathBuf> {
        self.find(name).ok().map(|leased| lock(&leased.machine).directory.clone())
    }

    /// Restarts, stops or crashes the server of a lease. Returns when that is over.
    pub fn turn(&self, name: &str, turn: Turn) -> Result<(), LeaseError> {
        let leased = self.find(name)?;
        let mut machine = lock(&leased.machine);
        let failed = |verb| move |error: MakerError| LeaseError::Server { verb, source: Box::new(error) };
        let power = std::mem::replace(&mut machine.power, Power::Lost(String::new()));
        let off = match (power, turn) {
            (Power::On(server), Turn::Crash) => {
                server.crash().map_err(|error| failed("end a server")(error.into()))
            }
            (Power::On(server), _) => {
                server.shut_down().map_err(|error| failed("stop a server")(error.into()))
            }
            (Power::Off(guard), _) => Ok(guard),
            (Power::Lost(why), _) => Err(lost(name, &why)),
        };
        let power = off.and_then(|guard| match turn {
            Turn::Stop => Ok(Power::Off(guard)),
            Turn::Restart | Turn::Crash => {
                let started = self.0.maker.start_again(guard, &machine.place);
                started.map(Power::On).map_err(failed("start a server again"))
            }
        });
        match power {
            Ok(power) => machine.power = power,
            Err(error) => {
                let why = error.detail().unwrap_or_else(|| error.to_string());
                machine.power = Power::Lost(why);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives the lease another server, fresh, in place of its own. Open sessions end with that if `close`, else they are
    /// an error.
    pub fn reset(&self, name: &str, close: bool) -> Result<(), LeaseError> {
        let leased = self.find(name)?;
        let sessions = lock(&leased.sessions).open;
        if sessions > 0 && !close {
            return Err(LeaseError::InUse { name: cut(name).to_owned(), sessions });
        }
        let fresh = self.machine_for(cut(name))?;
        let used = std::mem::replace(&mut *lock(&leased.machine), fresh);
        drop(used);
        Ok(())
    }

    /// Ends a lease: its server is no more.
    pub fn release(&self, name: &str) -> Result<(), LeaseError> {
        let gone = lock(&self.0.state).leases.remove(cut(name));
        let gone = gone.ok_or_else(|| LeaseError::NotLeased(cut(name).to_owned()))?;
        // A session may hold it still, which ends with the server.
        lock(&gone.machine).power = Power::Lost("it was released".to_owned());
        Ok(())
    }

    /// The leases there are.
    #[must_use]
    pub fn status(&self) -> Vec<LeaseStatus> {
        let state = lock(&self.0.state);
        let status = |(name, leased): (&String, &Arc<Leased>)| LeaseStatus {
            database: name.clone(),
            template: "a server of its own".to_owned(),
            sessions: lock(&leased.sessions).open,
            age: leased.since.elapsed(),
        };
        state.leases.iter().map(status).collect()
    }

    /// Stops all of them, and makes no more.
    pub fn close(&self) {
        let mut state = lock(&self.0.state);
        state.closed = true;
        let (spare, leases) = (state.spare.take(), std::mem::take(&mut state.leases));
        drop(state);
        thread::scope(|scope| {
            scope.spawn(|| drop(spare));
            for leased in leases.values() {
                scope.spawn(|| {
                    lock(&leased.machine).power = Power::Lost("pgfresh is shutting down".to_owned());
                });
            }
        });
    }

    fn find(&self, name: &str) -> Result<Arc<Leased>, LeaseError> {
        let found = lock(&self.0.state).leases.get(cut(name)).cloned();
        found.ok_or_else(|| LeaseError::NotLeased(cut(name).to_owned()))
    }

    /// A fresh server whose database has that name.
    fn machine_for(&self, name: &str) -> Result<Machine, LeaseError> {
        let machine = self.take_spare();
        let machine = machine.map_or_else(|| self.0.make(), Ok)?;
        self.make_spare();
        let sql = format!("ALTER DATABASE {READY} RENAME TO {}", identifier(name));
        machine.run("name a database", &sql)?;
        Ok(machine)
    }

    /// The spare, if there is one or will be in a moment.
    fn take_spare(&self) -> Option<Machine> {
        let mut state = lock(&self.0.state);
        while state.spare.is_none() && state.making {
            state = self.0.wait(state);
        }
        state.spare.take()
    }

    /// Makes the next spare in the background.
    fn make_spare(&self) {
        let mut state = lock(&self.0.state);
        if state.making || state.closed || state.spare.is_some() {
            return;
        }
        state.making = true;
        let inner = Arc::clone(&self.0);
        thread::spawn(move || {
            // Whoever needs it makes it then, and hears why it cannot be.
            let made = inner.make().ok();
            let mut state = lock(&inner.state);
            state.making = false;
            let unwanted = if state.closed { made } else { std::mem::replace(&mut state.spare, made) };
            drop(state);
            inner.changed.notify_all();
            drop(unwanted);
        });
    }
}

fn lost(name: &str, why: &str) -> LeaseError {
    LeaseError::Lost { name: cut(name).to_owned(), why: why.to_owned() }
}

impl Inner {
    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Starts a server, and calls its database as that of a spare.
    fn make(&self) -> Result<Machine, LeaseError> {
        let started = self.maker.start(&|_| ());
        let Started { server, place, database, .. } = started
            .map_err(|source| LeaseError::Server { verb: "start a server", source: Box::new(source) })?;
        let directory = server.run().address().to_owned();
        let machine = Machine { place, directory, power: Power::On(server) };
        let sql = if database == "postgres" {
            format!("CREATE DATABASE {READY}")
        } else {
            format!("ALTER DATABASE {} RENAME TO {READY}", identifier(&database))
        };
        machine.run("prepare a server", &sql)?;
        Ok(machine)
    }
}

impl Machine {
    fn run(&self, verb: &'static str, sql: &str) -> Result<(), LeaseError> {
        let session = Session::open(&self.directory, SUPERUSER, "postgres", PATIENCE);
        let done = session.and_then(|mut session| session.query(sql).map(|_| ()));
        done.map_err(|source| LeaseError::Sql { verb, source })
    }
}

impl Stay {
    /// Counts the session out. With the last one the lease's end begins, unless it lasts.
    pub(crate) fn leave(&self) {
        let mut sessions = lock(&self.leased.sessions);
        sessions.open -= 1;
        if sessions.open > 0 || sessions.lasting {
            return;
        }
        sessions.left += 1;
        let (left, stay) = (sessions.left, self.clone());
        drop(sessions);
        thread::spawn(move || {
            thread::sleep(stay.servers.0.linger);
            let sessions = lock(&stay.leased.sessions);
            let unused = sessions.open == 0 && sessions.left == left;
            drop(sessions);
            if unused {
                let _ = stay.servers.release(&stay.name);
            }
        });
    }
}
