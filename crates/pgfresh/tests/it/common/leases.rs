//! Leases on a server without a gateway.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lease::{
    ConnectRequest, Connected, Entered, Isolation, LeaseError, LeaseOptions, Leases, NameRules,
    TemplateDatabase,
};
use pgwire::StartupParams;
use server::AdminConnection;
use template::{Provisioner, ServerOptions, Started, TemplateSpec};

use super::watchdog::Watchdog;
use super::{User, WAIT_TIMEOUT, ground, wait_until};

/// Server with the template database `app`, and its leases, which close before the server stops.
pub(crate) struct LeaseFixture {
    pub(crate) leases: Leases,
    pub(crate) started: Started,
    _watchdog: Watchdog,
}

impl Drop for LeaseFixture {
    fn drop(&mut self) {
        self.leases.close();
    }
}

impl LeaseFixture {
    /// Starts a server and runs `setup` in the template.
    pub(crate) fn new(options: ServerOptions, setup: &str, linger: Duration, paranoid: bool) -> Self {
        let provisioner = provisioner(options, &ground::cache(User::Ourselves));
        let mut started = provisioner.start(&|_| ()).unwrap();
        admin(&started, "postgres").query("CREATE DATABASE app").unwrap();
        admin(&started, "app").query(setup).unwrap();
        // The cache doesn't contain a template with this content.
        started.entry = None;
        Self::open(&provisioner, started, "app", linger, paranoid)
    }

    /// Starts a server whose only template is `template1`, as initdb has made it.
    pub(crate) fn without_template(options: ServerOptions, linger: Duration) -> Self {
        let provisioner = provisioner(options, &ground::cache(User::Ourselves));
        let started = provisioner.start(&|_| ()).unwrap();
        assert!(started.entry.is_some(), "its data are a copy of an entry");
        Self::open(&provisioner, started, "template1", linger, false)
    }

    /// Starts a server with a cached template from `sql` and `setup`. Before that, an `earlier` server has started
    /// with the same cache entry.
    pub(crate) fn noted(
        options: ServerOptions,
        sql: &str,
        setup: Option<&str>,
        linger: Duration,
        earlier: impl FnOnce(&Self),
    ) -> Self {
        let folder = ground::directory(User::Ourselves);
        let cache = folder.join("cache");
        ground::copy_base_cache(User::Ourselves, &cache);
        fs::write(folder.join("setup.sql"), sql).unwrap();
        let template = TemplateSpec {
            name: "app".to_owned(),
            folder,
            sql: vec!["setup.sql".to_owned()],
            setup: setup.map(ToOwned::to_owned),
            ..TemplateSpec::default()
        };
        let options = ServerOptions { template: Some(template), ..options };
        let provisioner = provisioner(options, &cache);
        let open = || Self::open(&provisioner, provisioner.start(&|_| ()).unwrap(), "app", linger, false);
        let first = open();
        // pgfresh reads the template during the second copy, before a client connects.
        wait_until("two ready databases", || first.leases.status().ready[0].1 > 1);
        earlier(&first);
        drop(first);
        open()
    }

    fn open(
        provisioner: &Provisioner,
        mut started: Started,
        template: &str,
        linger: Duration,
        paranoid: bool,
    ) -> Self {
        let options = LeaseOptions {
            directory: started.server.run().socket_directory(),
            data: started.server.run().data(),
            major: provisioner.installation.version().major,
            budget: 1 << 30,
            templates: vec![TemplateDatabase { name: template.to_owned(), database: template.to_owned() }],
            entry: started.entry.clone(),
            names: NameRules::default(),
            isolation: Isolation::Clone,
            linger,
            suite: None,
            paranoid,
            provisioner: None,
            observer: None,
        };
        let leases = Leases::open(options, None).unwrap();
        // The tests count sessions, so this session must end.
        started.session = None;
        let watchdog = Watchdog::new(&started.server.run().data());
        Self { leases, started, _watchdog: watchdog }
    }

    /// Connects and disconnects a client with `params`. The cache must not contain a note about them yet.
    pub(crate) fn note(&self, params: &StartupParams) {
        let entry = self.started.entry.as_ref().expect("it is a copy of an entry");
        let before = entry.recall("clients");
        drop(self.connect_with("noted", None, params).unwrap());
        wait_until("a note of a client", || entry.recall("clients") != before);
    }

    pub(crate) fn connect_with(
        &self,
        name: &str,
        template: Option<&str>,
        params: &StartupParams,
    ) -> Result<Connected, LeaseError> {
        let request = ConnectRequest { template, ..ConnectRequest::new(name, params) };
        match self.leases.connect(&request)? {
            Entered::Plain(connected) => Ok(connected),
            Entered::Transaction(_) => panic!("a clone was asked for"),
        }
    }

    /// Runs `sql` in the database `postgres`.
    pub(crate) fn admin(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        // The gateway does the same for a client's statement.
        let _hold = sql.contains(" DATABASE ").then(|| self.leases.hold_spares());
        admin(&self.started, "postgres").query(sql).unwrap()
    }
}

/// Returns startup parameters for `user`. With them, a statement that waits for a prepared
/// transaction's lock fails soon.
pub(crate) fn params(user: &str) -> StartupParams {
    StartupParams::new([("user", user), ("options", "-c lock_timeout=100ms")])
}

fn provisioner(options: ServerOptions, cache: &Path) -> Provisioner {
    let cache = storage::Cache::locate(Some(cache)).unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_pgfresh"));
    Provisioner::find(options, cache, program).unwrap()
}

fn admin(started: &Started, database: &str) -> AdminConnection {
    let folder = started.server.run().socket_directory();
    AdminConnection::open(&folder, "postgres", database, WAIT_TIMEOUT).unwrap()
}
