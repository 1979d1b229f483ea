//! Starts pgfresh's own servers at the examined path and in RAM.
//!
//! The examination measures commits and remedies on these servers, so it never touches the user's servers.

use std::path::Path;

use report::Progress;
use server::{Data, Preset, Server, StartOptions};
use storage::{Place, PlaceError, PlaceRequest};
use template::{ProvisionError, Provisioner, Template};

/// A server's settings and the place of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setup {
    /// At the path, with PostgreSQL's default durability.
    Durable,
    /// At the path, with `synchronous_commit=off`.
    Asynchronous,
    /// At the path, without flushes.
    Fast,
    /// In RAM, without flushes.
    FastInRam,
}

/// A template for these servers, and the places for their data.
#[derive(Debug)]
pub(crate) struct Fixture<'a> {
    provisioner: &'a Provisioner,
    template: Template,
    disk: Place,
    ram: Result<Place, PlaceError>,
}

impl<'a> Fixture<'a> {
    /// Prepares to start servers on copies of `template`.
    ///
    /// # Errors
    /// Returns an error if the servers' account can't access `path` or if there isn't enough space.
    pub(crate) fn new(
        provisioner: &'a Provisioner,
        template: Template,
        path: &Path,
    ) -> Result<Self, ProvisionError> {
        let choose = |wish| {
            Place::choose(&wish, template.entry.bytes(), provisioner.cache.root(), &provisioner.account)
        };
        let disk = choose(PlaceRequest::At(path.to_owned()))?;
        let ram = choose(PlaceRequest::Ram);
        Ok(Self { provisioner, template, disk, ram })
    }

    /// Returns true if the path itself is in RAM, which makes separate servers in RAM pointless.
    pub(crate) fn is_ram(&self) -> bool {
        self.disk.kind() == sys::FilesystemKind::Memory
    }

    /// Returns the reason why there can't be servers in RAM, or `None` if there can be.
    pub(crate) fn why_no_ram(&self) -> Option<String> {
        self.ram.as_ref().err().map(ToString::to_string)
    }

    /// Returns the name of the template's database.
    pub(crate) fn database(&self) -> &str {
        &self.template.database
    }

    /// Starts a server for each distinct setup and runs `sql` on it. Stops starting servers once the user has canceled.
    ///
    /// # Errors
    /// Returns an error if a server doesn't start or refuses a statement.
    pub(crate) fn start_each(
        &self,
        setups: impl IntoIterator<Item = Setup>,
        sql: &[&str],
        progress: &dyn Progress,
    ) -> Result<Vec<(Setup, Server)>, ProvisionError> {
        let mut servers: Vec<(Setup, Server)> = Vec::new();
        for setup in setups {
            if !progress.is_cancelled() && servers.iter().all(|(other, _)| *other != setup) {
                let server = self.start(setup)?;
                let mut session = server.session("postgres")?;
                sql.iter().try_for_each(|sql| session.query(sql).map(drop))?;
                servers.push((setup, server));
            }
        }
        Ok(servers)
    }

    /// Starts a server that stops when the returned value is dropped. The user's settings override those of the setup.
    ///
    /// # Errors
    /// Returns an error if the server doesn't start.
    pub(crate) fn start(&self, setup: Setup) -> Result<Server, ProvisionError> {
        let place = match (setup, &self.ram) {
            (Setup::FastInRam, Ok(ram)) => ram,
            _ => &self.disk,
        };
        let preset = match setup {
            Setup::Durable | Setup::Asynchronous => Preset::Durable,
            Setup::Fast | Setup::FastInRam => Preset::Fast,
        };
        let mut settings = self.provisioner.settings_of(preset, place.budget())?;
        if setup == Setup::Asynchronous {
            settings.set("synchronous_commit", "off")?;
        }
        let order = StartOptions {
            installation: &self.provisioner.installation,
            account: &self.provisioner.account,
            place,
            settings: &settings,
            program: &self.provisioner.program,
        };
        Ok(Server::start(&order, Data::Copy(&self.template.entry), &|_, _| ())?)
    }
}
