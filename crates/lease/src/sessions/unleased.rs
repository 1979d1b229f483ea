//! Opens sessions in databases without a lease, whether created by initdb or by SQL.

use std::sync::Arc;

use pgwire::StartupParams;
use server::literal;

use crate::address::{DatabaseAddress, oid_in};
use crate::backends::backend::{Backend, WaitingBackend, has_unlimited, is_for_superuser, may_fire_at_login};
use crate::backends::spares::{Spare, SpareKind};
use crate::error::LeaseError;
use crate::runtime::inner::Inner;
use crate::runtime::leases::Leases;
use crate::sessions::session::{Connected, Entered, SessionGuard};

/// Keeps databases without a lease free of waiting backends (spares), which would block a client's statements that
/// drop, rename or copy a database. The client's hold lasts from its first such statement until its session ends.
#[derive(Debug)]
pub struct SpareHold(Arc<Inner>);

impl Drop for SpareHold {
    fn drop(&mut self) {
        let mut core = self.0.lock();
        core.pool.spares.release();
        self.0.wake_worker(core);
    }
}

impl Leases {
    /// Closes the backends waiting in databases without a lease and starts none until the returned guard is dropped.
    #[must_use]
    pub fn hold_spares(&self) -> SpareHold {
        self.0.lock().pool.spares.hold();
        SpareHold(Arc::clone(&self.0))
    }
}

impl Inner {
    /// Starts a session in a database without a lease.
    pub(crate) fn connect_unleased(&self, name: &str, params: &StartupParams) -> Result<Entered, LeaseError> {
        let spare = self.take_spare(name, params);
        let is_warm = spare.is_some();
        let backend = spare.map_or_else(|| self.start_backend(name, params), Ok)?;
        let mut core = self.lock();
        *(if is_warm { &mut core.counters.warm } else { &mut core.counters.cold }) += 1;
        core.pool.spares.ask(name, params);
        self.wake_worker(core);
        Ok(Entered::Plain(Connected { backend, guard: SessionGuard::unleased() }))
    }

    /// Starts a session in a database that SQL created.
    ///
    /// # Errors
    /// Returns [`LeaseError::NotLeased`] if a lease has taken the name in the meantime.
    pub(crate) fn connect_elsewhere(
        &self,
        name: &str,
        params: &StartupParams,
    ) -> Result<Entered, LeaseError> {
        let entered = self.connect_unleased(name, params)?;
        let leased = {
            let core = self.lock();
            core.table.database_named(name).and_then(|id| core.pool.oid_of(id))
        };
        if let (Some(_), Entered::Plain(Connected { backend, .. })) = (leased, &entered)
            && backend.database(&self.admin)? == leased
        {
            return Err(LeaseError::NotLeased(name.to_owned()));
        }
        Ok(entered)
    }

    /// Takes a backend that waits in the database with this name and is equivalent to a new one.
    fn take_spare(&self, name: &str, params: &StartupParams) -> Option<Backend> {
        loop {
            let Spare { address, waiting } = self.lock().pool.spares.take(name, params)?;
            // The stamp is empty if the name now belongs to a different database.
            let (stamp, _) = self.read_stamp(&address).ok()?;
            if !stamp.is_empty() && stamp == waiting.stamp && waiting.will_serve() {
                return Some(waiting.backend);
            }
        }
    }

    /// Starts a backend for the next client of a database without a lease.
    pub(crate) fn start_spare(&self, kind: &SpareKind) {
        let spare = self.new_spare(kind);
        let mut core = self.lock();
        let spare = spare.filter(|_| !core.closed);
        core.pool.spares.started(kind, spare);
    }

    /// Returns a new backend, unless the backend could differ from one started later or occupy a session that a client
    /// needs.
    fn new_spare(&self, (name, params): &SpareKind) -> Option<Spare> {
        let sql = format!("SELECT oid FROM pg_database WHERE datname = {}", literal(name));
        let oid = oid_in(&self.admin.run("look for a database", &sql).ok()?)?;
        let address = DatabaseAddress::new(oid, name);
        let (stamp, before) = self.read_stamp(&address).ok()?;
        if stamp.is_empty()
            || may_fire_at_login(&stamp)
            || !self.may_wait(params, &stamp)
            || !has_unlimited(is_for_superuser(params), &stamp)
        {
            return None;
        }
        let seat = if self.lock().has_room() { self.seats.try_take()? } else { return None };
        let backend = Backend::start_ahead(&self.options.directory, params, name)?;
        if !has_unlimited(backend.is_superuser(), &stamp) {
            return None;
        }
        address.expect(backend.database(&self.admin).ok()?).ok()?;
        if !self.is_stamp_unchanged(&address, &stamp, before) {
            return None;
        }
        let (params, backend) = (params.clone(), Backend { seat, ..backend });
        Some(Spare {
            address,
            waiting: WaitingBackend { params, backend, stamp, since: None, is_used: false },
        })
    }
}
