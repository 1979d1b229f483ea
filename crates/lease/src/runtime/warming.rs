//! Starts backends in databases that wait for a lease, with the startup parameters that clients are likely to use.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pgwire::StartupParams;

use crate::address::DatabaseAddress;
use crate::backends::backend::{
    Backend, CatalogStamp, WaitingBackend, has_unlimited, is_for_superuser, may_be_too_idle,
};
use crate::error::LeaseError;
use crate::reset::catalog::TemplateCatalog;
use crate::runtime::checkout::Access;
use crate::runtime::inner::Inner;
use crate::runtime::resources::PooledCopy;
use crate::table::{DatabaseId, Outcome};

/// While the processors are busy, how long to pause before starting backends in a ready database.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// A backend that is likely to be needed but hasn't been started yet.
struct Lacking {
    params: StartupParams,
    /// True if no other backend with these parameters is waiting in the database.
    is_first: bool,
}

impl Inner {
    /// Starts the expected backends in a ready database that lacks some.
    pub(crate) fn warm_up_ready(&self, id: DatabaseId) -> Outcome {
        if self.processors.are_busy() {
            drop(self.core.wait(&self.shortage, self.lock(), BUSY_PAUSE));
        }
        let Some(Access::Exclusive(mut database)) = self.core.check_out(id) else {
            return Outcome::DroppedOrRenamed;
        };
        let Some(copy) = database.copy_mut() else { return Outcome::DroppedOrRenamed };
        if let Err(outcome) = self.reveal(&mut copy.identity) {
            copy.tried = usize::MAX;
            return outcome;
        }
        self.warm_up(id, copy);
        self.put_back_ready(id, database, false);
        Outcome::Done
    }

    /// Starts backends until there are as many as the last leases needed. A backend may fail to start, for example
    /// because its role may not connect; the client will then get the error. If an event trigger fires at each login, no
    /// backends are started, because the trigger should fire only for clients. This also stops once a client is waiting
    /// for the database. Such a client starts its own backend while this worker makes the next copy.
    pub(crate) fn warm_up(&self, id: DatabaseId, copy: &mut PooledCopy) {
        let Some(lacking) = self.lacking(id, copy) else { return };
        if lacking.is_empty() || copy.template.fires_at_login || self.ends_idle {
            return;
        }
        let Ok((stamp, before)) = self.read_stamp(&copy.identity.address) else { return };
        if let Ok(started) = self.start_lacking(id, copy, lacking, &stamp)
            && self.is_stamp_unchanged(&copy.identity.address, &stamp, before)
        {
            copy.waiting.extend(started);
        }
    }

    /// Returns the backends that a copy lacks, given the startup parameters that pgfresh has learned to expect. Returns
    /// `None` if now is not the time to start any.
    fn lacking(&self, id: DatabaseId, copy: &mut PooledCopy) -> Option<Vec<Lacking>> {
        let core = self.lock();
        if !core.has_room() || core.table.is_awaited(id) {
            return None;
        }
        let sets = core.expected.sets();
        let expected = copy.expects(sets);
        let mut lacking = Vec::new();
        for (params, expected) in sets.iter().zip(&expected).rev() {
            let there = copy.waiting_for(params);
            lacking.extend(
                (there..*expected).map(|number| Lacking { params: params.clone(), is_first: number == 0 }),
            );
        }
        lacking.sort_by_key(|lacking| !lacking.is_first);
        if core.table.is_being_made(id) && !self.has_had_clients.load(Ordering::Relaxed) {
            // A command that needs no databases has often finished before the others are due.
            lacking.retain(|lacking| lacking.is_first);
        } else {
            copy.tried = expected.iter().sum();
        }
        Some(lacking)
    }

    /// Starts these backends in a database with this stamp.
    ///
    /// # Errors
    /// Returns an error if the database's name belongs to another one now.
    fn start_lacking(
        &self,
        id: DatabaseId,
        copy: &mut PooledCopy,
        lacking: Vec<Lacking>,
        stamp: &CatalogStamp,
    ) -> Result<Vec<WaitingBackend>, LeaseError> {
        // Visiting all tables takes as long as making a copy, so skip this for the many planned copies.
        let looked_at = copy.template.catalog().filter(|_| !self.lock().table.is_one_of_stock(id));
        let tables = looked_at.map_or_else(Vec::new, TemplateCatalog::names);
        let mut started = Vec::new();
        for lacking in lacking {
            {
                let core = self.lock();
                if core.table.is_awaited(id) {
                    copy.tried = 0;
                    break;
                }
                if !lacking.is_first && core.pool.idle() + started.len() >= core.most_idle {
                    break;
                }
            }
            // Practice only with the first backend. The others cost clients no more than a backend started on demand.
            let tables = lacking.is_first.then_some(&*tables);
            started.extend(self.start_ahead(&copy.identity.address, lacking.params, stamp, tables)?);
        }
        Ok(started)
    }

    /// Starts a backend, which opens these tables, if any. Returns `None` if no backend with these startup parameters
    /// should wait in the database, or if the server has no room or refuses.
    fn start_ahead(
        &self,
        address: &DatabaseAddress,
        params: StartupParams,
        stamp: &CatalogStamp,
        tables: Option<&[&str]>,
    ) -> Result<Option<WaitingBackend>, LeaseError> {
        if may_be_too_idle(&params, stamp) || !has_unlimited(is_for_superuser(&params), stamp) {
            return Ok(None);
        }
        let Some(seat) = self.seats.try_take() else { return Ok(None) };
        let backend = Backend::start_ahead(&self.options.directory, &params, &address.name);
        // The database will have a different name when the client connects, so the startup response must not contain the
        // name.
        let backend = backend.filter(Backend::may_greet_another);
        let backend = match tables {
            Some(tables) => backend.and_then(|backend| backend.practise(tables)),
            None => backend,
        };
        let Some(backend) = backend.filter(|backend| has_unlimited(backend.is_superuser(), stamp)) else {
            self.lock().expected.forget(&params);
            return Ok(None);
        };
        address.expect(backend.database(&self.admin)?)?;
        let (backend, stamp) = (Backend { seat, ..backend }, Arc::clone(stamp));
        Ok(Some(WaitingBackend { params, backend, stamp, since: None, is_used: false }))
    }
}
