//! Servers of ours at the path that is examined, and in RAM.

use std::path::Path;

use server::{Data, Order, Preset, Server};
use storage::{Place, PlaceError, Wish};
use template::{Maker, MakerError, Template};

/// Where a server lives and what it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setup {
    /// At the path, as durable as `PostgreSQL` is out of the box.
    Durable,
    /// The same, but commits do not wait.
    Asynchronous,
    /// At the path, with nothing flushed.
    Fast,
    /// The same in RAM.
    FastInRam,
}

/// All that is needed for such servers.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    maker: &'a Maker,
    template: Template,
    disk: Place,
    ram: Result<Place, PlaceError>,
}

impl<'a> Stage<'a> {
    /// For servers on copies of `template`.
    ///
    /// # Errors
    /// The server's account cannot go to `path`, or it is full.
    pub(crate) fn new(maker: &'a Maker, template: Template, path: &Path) -> Result<Self, MakerError> {
        let choose = |wish| Place::choose(&wish, template.entry.bytes(), maker.cache.root(), &maker.account);
        let disk = choose(Wish::At(path.to_owned()))?;
        let ram = choose(Wish::Ram);
        Ok(Self { maker, template, disk, ram })
    }

    /// Whether the path itself is in RAM: there is no other then.
    pub(crate) fn is_ram(&self) -> bool {
        self.disk.kind() == sys::Kind::Memory
    }

    /// Why there are no servers in RAM; `None` if there are.
    pub(crate) fn why_no_ram(&self) -> Option<String> {
        self.ram.as_ref().err().map(ToString::to_string)
    }

    /// The database that was prepared in the template.
    pub(crate) fn database(&self) -> &str {
        &self.template.database
    }

    /// Starts a server, which goes away when it is dropped. Settings that the user wishes are over those of the setup.
    ///
    /// # Errors
    /// It does not start, or there is no place for it.
    pub(crate) fn start(&self, setup: Setup) -> Result<Server, MakerError> {
        let place = match (setup, &self.ram) {
            (Setup::FastInRam, Ok(ram)) => ram,
            _ => &self.disk,
        };
        let preset = match setup {
            Setup::Durable | Setup::Asynchronous => Preset::Durable,
            Setup::Fast | Setup::FastInRam => Preset::Fast,
        };
        let mut settings = self.maker.settings_of(preset, place.budget())?;
        if setup == Setup::Asynchronous {
            settings.set("synchronous_commit", "off")?;
        }
        let order = Order {
            installation: &self.maker.installation,
            account: &self.maker.account,
            place,
            settings: &settings,
            program: &self.maker.program,
        };
        Ok(Server::start(&order, Data::Copy(&self.template.entry))?)
    }
}
