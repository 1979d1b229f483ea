//! Runs named servers for development, which keep their data, port and password between starts.
//!
//! ```text
//! DATA/pgfresh/NAME-PROJECT/about    the facts in [`Remembered`], as JSON; see `storage::PersistentData`
//! ```

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use storage::{Cache, PersistentData};
use template::Provisioner;

use crate::background::{self, Registration};
use crate::context::Context;
use crate::failure::Failure;
use crate::lifecycle;
use crate::notice::notice;
use crate::output::Verbosity;
use crate::progress;
use crate::service::{ServeOptions, Service};
use crate::settings::{Password, ResolvedSettings};

/// Facts about a named server that persist until its next start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    name: String,
    /// The project's folder.
    folder: PathBuf,
    port: u16,
    password: String,
    /// True once the data directory is complete.
    complete: bool,
    /// Database created by the template's setup.
    database: String,
    /// PostgreSQL version at the server's last start.
    version: String,
    major: u32,
    /// Fingerprint of the template that the data was created from. If the template has changed since then and the user
    /// has been informed, the fingerprint of the changed template.
    fingerprint: String,
}

/// A running named server.
#[derive(Debug)]
pub(crate) struct NamedServer {
    pub(crate) provisioner: Provisioner,
    pub(crate) service: Service,
    name: String,
    registration: Registration,
}

impl NamedServer {
    /// Starts the server on its existing data. If the data is missing, or if `reset` discards it, creates new data
    /// from the template.
    pub(crate) fn start(
        context: &Context,
        name: &str,
        reset: bool,
        serve_options: ServeOptions,
    ) -> Result<Self, Failure> {
        let settings = context.settings()?;
        let provisioner = serve_options.encrypt_setups(context.provisioner()?.clone());
        lifecycle::sweep(context, &provisioner);
        let wanted = SocketAddr::new(serve_options.listen, serve_options.port);
        let (registration, data) = take(settings, name, &provisioner, wanted)?;
        let before = if reset { recall(&data).ok().flatten() } else { recall(&data)? };
        let serve_options = match &before {
            Some(before) => before.amend(serve_options),
            None => serve_options,
        };
        let complete = before.as_ref().filter(|before| before.complete && !reset);
        complete.map_or(Ok(()), |before| before.check(&provisioner))?;
        expect_free(&provisioner.cache, SocketAddr::new(serve_options.listen, serve_options.port))?;
        if let Some(before) = before.as_ref().filter(|_| complete.is_none()) {
            // Store the port and password now, so that the URL remains valid even if this process dies.
            Remembered { complete: false, ..before.clone() }.remember(&data)?;
        }
        let path = data.path().to_owned();
        let announce = progress::announce(context.verbosity);
        let mut started = provisioner.start_persistent(data, complete.is_none(), &announce)?;
        if let Some(before) = complete {
            before.report_change(context.verbosity, &provisioner)?;
            started.database.clone_from(&before.database);
        } else if !context.verbosity.is_quiet() {
            notice!("pgfresh: server \"{name}\" keeps its data in \"{}\"", path.display());
        }
        lifecycle::report_start(context, &provisioner, &started);
        let service = Service::open(&provisioner, started, serve_options)?;
        let now = Remembered::of(settings, name, &provisioner, &service)?;
        if let Some(data) = service.server.run().persistent().filter(|_| complete != Some(&now)) {
            now.remember(data)?;
        }
        Ok(Self { provisioner, service, name: name.to_owned(), registration })
    }

    /// Makes the server visible to "status" and "stop --all".
    pub(crate) fn announce(&mut self, settings: &ResolvedSettings) -> Result<(), Failure> {
        let about = background::about(settings, &self.provisioner, &self.service);
        self.registration.announce(&background::ServerInfo { name: Some(self.name.clone()), ..about })
    }

    /// Shuts the server down cleanly.
    pub(crate) fn stop(self) -> Result<(), Failure> {
        let Self { service, registration, .. } = self;
        service.close().stop()?;
        drop(registration);
        Ok(())
    }
}

impl Remembered {
    fn of(
        settings: &ResolvedSettings,
        name: &str,
        provisioner: &Provisioner,
        service: &Service,
    ) -> Result<Self, Failure> {
        let version = provisioner.installation.version();
        Ok(Self {
            name: name.to_owned(),
            folder: settings.folder.clone(),
            port: service.access().address().port(),
            password: service.access().secret().to_owned(),
            complete: true,
            database: service.database.clone(),
            version: version.to_string(),
            major: version.major,
            fingerprint: provisioner.fingerprint()?.as_str().to_owned(),
        })
    }

    /// Adds the remembered port and password to the options.
    fn amend(&self, serve_options: ServeOptions) -> ServeOptions {
        let port = if serve_options.port == 0 { self.port } else { serve_options.port };
        let password = serve_options.password.or_else(|| Some(Password(self.password.clone())));
        ServeOptions { port, password, ..serve_options }
    }

    /// Rejects data from a different PostgreSQL major version.
    fn check(&self, provisioner: &Provisioner) -> Result<(), Failure> {
        let (theirs, ours) = (self.major, provisioner.installation.version().major);
        if theirs == ours {
            return Ok(());
        }
        let name = &self.name;
        let what = format!(
            "cannot start server \"{name}\" with PostgreSQL {ours}: its data is from PostgreSQL {theirs}"
        );
        let hint = format!("Start it with --postgres {theirs}, or with --reset to discard its data.");
        Err(Failure::new(what).hint(hint))
    }

    /// Tells the user once if the template has changed since the data was created from it.
    fn report_change(&self, verbosity: Verbosity, provisioner: &Provisioner) -> Result<(), Failure> {
        let version = provisioner.installation.version().to_string();
        // The PostgreSQL version is part of the fingerprint, but a new version alone doesn't count as a
        // changed template.
        let is_same = version != self.version || provisioner.fingerprint()?.as_str() == self.fingerprint;
        if !is_same && !verbosity.is_quiet() {
            notice!(
                "pgfresh: the template has changed since server \"{}\" got its data\n\
                 HINT:  Migrate its database, or start it with --reset to discard its data and begin again.",
                self.name
            );
        }
        Ok(())
    }

    fn remember(&self, data: &PersistentData) -> Result<(), Failure> {
        let text = serde_json::to_string(self).map_err(|error| Failure::new(error.to_string()))?;
        Ok(data.remember(&text)?)
    }
}

/// Acquires exclusive access to the name and the server's data.
fn take(
    settings: &ResolvedSettings,
    name: &str,
    provisioner: &Provisioner,
    wanted: SocketAddr,
) -> Result<(Registration, PersistentData), Failure> {
    let runs = |process: &str| {
        let failure = Failure::new(format!("server \"{name}\" of this project is already running{process}"));
        failure.hint("\"pgfresh status\" prints its URL.".to_owned())
    };
    let key = key(settings, name);
    let registration = Registration::begin(&provisioner.cache, &key)?;
    let registration = registration.map_err(|pid| runs(&format!(" (process {pid})")))?;
    let root = PersistentData::root()?;
    // A refused port must not leave an empty folder.
    if !root.join(&key).exists() {
        expect_free(&provisioner.cache, wanted)?;
    }
    let data = PersistentData::open(&root, &key, &provisioner.account)?;
    Ok((registration, data.ok_or_else(|| runs(""))?))
}

fn recall(data: &PersistentData) -> Result<Option<Remembered>, Failure> {
    let text = data.recall()?;
    text.map(|text| serde_json::from_str(&text)).transpose().map_err(|error| {
        let path = data.path().display();
        let failure = Failure::new(format!("cannot read \"{path}/about\": {error}"));
        failure.hint("Start the server with --reset to discard its data.".to_owned())
    })
}

/// Computes the slot's key from the name and the project. The key must be the same in all versions of pgfresh.
fn key(settings: &ResolvedSettings, name: &str) -> String {
    let project = blake3::hash(settings.folder.as_os_str().as_encoded_bytes()).to_hex();
    format!("{name}-{}", &project[..16])
}

/// Checks that the port is free before anything starts. If the port is in use, the error names the pgfresh server or
/// the other program that listens on the port.
fn expect_free(cache: &Cache, address: SocketAddr) -> Result<(), Failure> {
    match TcpListener::bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let who = background::at_port(cache, address.port())?;
            let other = || sys::listener_at(address.port());
            let who = who.or_else(|| other().map(|(name, pid)| format!("{name} (process {pid})")));
            let who = who.unwrap_or_else(|| "another program".to_owned());
            let failure = Failure::new(format!("could not listen on {address}: {who} already does"));
            Err(failure.hint("Stop it, or choose another port with --port.".to_owned()))
        }
        // The gateway reports all other errors when it opens the port.
        _ => Ok(()),
    }
}
