//! Tasks that give leases' names to databases, and take them away again.
//!
//! SQL may rename or drop any database at any time. So each statement changes the row of one oid, and only if the row still has a
//! name that pgfresh has given it. A database that SQL has renamed belongs to SQL, and pgfresh forgets it.

use std::sync::Arc;

use sys::lock;

use crate::address::DatabaseAddress;
use crate::backend::WaitingBackend;
use crate::core::Held;
use crate::inner::Inner;
use crate::rollback::TransactionSession;
use crate::stats::DatabaseStats;
use crate::table::{DatabaseId, Outcome, ParamsId};
use crate::template::{Template, rename};
use crate::wal::Lsn;
use crate::{Isolation, LeaseError};

impl Inner {
    /// Gives the name of a lease to a ready database.
    pub(crate) fn name(
        &self,
        id: DatabaseId,
        to: &str,
        isolation: Isolation,
        params: Option<ParamsId>,
    ) -> Outcome {
        let server = self.lock().databases.get(&id).and_then(|held| held.server.clone());
        if let Some(server) = server {
            return lock(&server).rename(to).map_or_else(Outcome::Failed, |()| Outcome::Done);
        }
        let renamed = if self.is_parked_as(id, to) { self.look_again(id) } else { self.rename(id, to) };
        if !matches!(renamed, Outcome::Done) {
            return renamed;
        }
        if let Err(error) = self.restore_attributes(id) {
            return Outcome::Failed(error);
        }
        let (oid, epoch, stamp, transaction) = {
            let mut core = self.lock();
            let Some(held) = core.databases.get_mut(&id) else { return Outcome::Vanished };
            held.clients.clear();
            held.entered = false;
            (held.oid, held.epoch, Arc::clone(&held.stamp.0), held.transaction.take())
        };
        // After a crash, the unlogged tables of every database are empty.
        if self.has_crashed_since(id) || self.has_template_changed_since(id) {
            return Outcome::Unfit;
        }
        // A ready database has had no sessions. If it has changed nevertheless, pgfresh resets it first.
        if epoch != self.evidence.epoch() || !self.evidence.is_untouched(oid) {
            return Outcome::Unfit;
        }
        if isolation != Isolation::Rollback {
            return Outcome::Done;
        }
        let transaction = match transaction {
            Some(session) => Some(session).filter(|session| {
                let unchanged = session.since.is_none_or(|since| self.evidence.are_settings_unchanged(since));
                session.stamp == stamp && unchanged && session.will_serve()
            }),
            None => match self.open_transaction_session(id, to, params) {
                Ok(session) => Some(session),
                Err(LeaseError::NotLeased(_)) => return Outcome::Vanished,
                Err(error) => return Outcome::Failed(error),
            },
        };
        let Some(transaction) = transaction else { return Outcome::Unfit };
        if let Some(held) = self.lock().databases.get_mut(&id) {
            held.transaction = Some(transaction);
        }
        Outcome::Done
    }

    /// Whether a crash may have emptied unlogged tables of a database since pgfresh last knew the database to be fresh.
    pub(crate) fn has_crashed_since(&self, id: DatabaseId) -> bool {
        let known = {
            let core = self.lock();
            let Some(held) = core.databases.get(&id) else { return true };
            if !held.template.as_ref().is_some_and(Template::has_unlogged) {
                return false;
            }
            held.generation
        };
        known == 0 || known != self.generation()
    }

    /// Whether SQL has changed the template of a ready database since pgfresh copied it. SQL is allowed to do so for `template1`.
    fn has_template_changed_since(&self, id: DatabaseId) -> bool {
        let (oid, copied_after) = {
            let core = self.lock();
            let Some(held) = core.databases.get(&id) else { return true };
            let Some(template) = &held.template else { return false };
            (template.oid, held.copied_after.clone())
        };
        copied_after.is_some_and(|before| before != self.evidence.changes(oid))
    }

    /// Whether a database still has this name after a rollback.
    fn is_parked_as(&self, id: DatabaseId, name: &str) -> bool {
        let core = self.lock();
        core.databases.get(&id).is_some_and(|held| held.transaction.is_some() && held.last_name == name)
    }

    /// Restores the attributes of a database that has just received its name. Some statements change the attributes of every
    /// database of a role.
    fn restore_attributes(&self, id: DatabaseId) -> Result<(), LeaseError> {
        let (address, attributes) = {
            let core = self.lock();
            let Some(held) = core.databases.get(&id) else { return Ok(()) };
            let attributes = held.template.as_ref().and_then(|template| template.attributes.clone());
            let Some(attributes) = attributes.filter(|noted| !noted.are_in(&held.stamp.0)) else {
                return Ok(());
            };
            (held.leased_address(), attributes)
        };
        // The statement fails if SQL has changed a role. pgfresh reports such changes elsewhere.
        let sql = attributes.put_on(&address.oid.to_string());
        if let Err(error) = self.admin.run("restore the owner of a database", &sql) {
            tracing::debug!(%error, name = address.name, "could not restore what hangs on a database");
        }
        let (stamp, _) = self.read_stamp(&address)?;
        if let Some(held) = self.lock().databases.get_mut(&id) {
            held.stamp = (stamp, true);
        }
        Ok(())
    }

    /// Reads the settings that a session would find in a database that keeps its name.
    fn look_again(&self, id: DatabaseId) -> Outcome {
        let address = self.lock().databases.get(&id).map(Held::leased_address);
        let Some(address) = address else { return Outcome::Vanished };
        match self.read_stamp(&address) {
            Ok((stamp, _)) if stamp.is_empty() => Outcome::Vanished,
            Ok((stamp, _)) => {
                if let Some(held) = self.lock().databases.get_mut(&id) {
                    held.stamp = (stamp, true);
                }
                Outcome::Done
            }
            Err(error) => Outcome::Failed(error),
        }
    }

    fn open_transaction_session(
        &self,
        id: DatabaseId,
        name: &str,
        params: Option<ParamsId>,
    ) -> Result<Box<TransactionSession>, LeaseError> {
        let (params, waiting, stamp, address, unread) = {
            let mut core = self.lock();
            let known = params.and_then(|params| core.params_of(params));
            let params = known.ok_or_else(|| LeaseError::NotLeased(name.to_owned()))?;
            let held = core.databases.get_mut(&id).ok_or_else(|| LeaseError::NotLeased(name.to_owned()))?;
            let stamp = Arc::clone(&held.stamp.0);
            let waiting = held.take_waiting(&params).filter(|at| at.stamp == stamp && at.since.is_none());
            held.waiting.clear();
            let unread = held.template.clone().filter(|template| !template.is_recyclable());
            let address = DatabaseAddress::new(held.oid, name);
            (params, waiting, stamp, address, unread.filter(|_| held.catalog().is_none()))
        };
        if let Some(template) = unread {
            let catalog = Arc::new(self.read_catalog(&address, &template)?);
            if let Some(held) = self.lock().databases.get_mut(&id) {
                held.catalog = Some(catalog);
            }
        }
        let (backend, since) = if let Some(waiting) = waiting.filter(WaitingBackend::will_serve) {
            (waiting.backend, None)
        } else {
            let since = self.evidence.position();
            (self.start_backend_in(&address, &params)?, Some(since))
        };
        let session = TransactionSession::new(params, backend, stamp, since);
        session.map(Box::new).map_err(|source| LeaseError::Sql { verb: "prepare a session", source })
    }

    /// Takes a name away from its database.
    pub(crate) fn unname(&self, id: DatabaseId) -> Outcome {
        let (own_name, last_name) = {
            let mut core = self.lock();
            let own_name = core.next_name();
            let Some(held) = core.databases.get_mut(&id) else { return Outcome::Vanished };
            if held.server.is_some() {
                return Outcome::Done;
            }
            held.transaction = None;
            held.clients.clear();
            held.own_name.clone_from(&own_name);
            (own_name, held.last_name.clone())
        };
        self.shared().ended(&last_name);
        let unnamed = match self.take_name(id, &own_name) {
            // SQL has given that name to a different database. A client may wait for the lease's name, so pgfresh immediately tries
            // another one.
            Outcome::NameTaken => {
                let mut core = self.lock();
                let own_name = core.next_name();
                if let Some(held) = core.databases.get_mut(&id) {
                    held.own_name.clone_from(&own_name);
                }
                drop(core);
                self.take_name(id, &own_name)
            }
            unnamed => unnamed,
        };
        if matches!(unnamed, Outcome::NameTaken) {
            Outcome::Failed(LeaseError::Leased(own_name))
        } else {
            unnamed
        }
    }

    /// Takes a name away from its database, and reads the state in which its lease has left the database.
    fn take_name(&self, id: DatabaseId, own_name: &str) -> Outcome {
        let read = |to: &DatabaseAddress, names: &[String]| {
            let stats = DatabaseStats::rename_and_read(to, names, &self.admin)?;
            Ok((stats.mark, stats))
        };
        self.change_name(id, own_name, read, |held, stats| held.stats = Some(stats))
    }

    /// Gives a database the name of a lease.
    pub(crate) fn rename(&self, id: DatabaseId, name: &str) -> Outcome {
        let rename = |to: &DatabaseAddress, names: &[String]| {
            let (stamp, mark) = rename(to, names, &self.options, &self.admin)?;
            Ok((mark, stamp))
        };
        self.change_name(id, name, rename, |held, stamp| {
            held.stamp = (stamp, true);
            name.clone_into(&mut held.last_name);
        })
    }

    /// Runs `change`, which gives a database this name, and passes its result to `note`. `change` receives the names that the
    /// database may have had before.
    fn change_name<T>(
        &self,
        id: DatabaseId,
        name: &str,
        change: impl FnOnce(&DatabaseAddress, &[String]) -> Result<(Lsn, T), LeaseError>,
        note: impl FnOnce(&mut Held, T),
    ) -> Outcome {
        let (to, names) = {
            let mut core = self.lock();
            let Some(held) = core.databases.get_mut(&id) else { return Outcome::Vanished };
            // If the connection is lost, the database may have either name.
            held.names.insert(name.to_owned());
            (DatabaseAddress::new(held.oid, name), held.names.iter().cloned().collect::<Vec<_>>())
        };
        let changed = change(&to, &names);
        if let Ok((mark, _)) = &changed {
            self.evidence.read(*mark);
        }
        let mut core = self.lock();
        let Some(held) = core.databases.get_mut(&id) else { return Outcome::Vanished };
        match changed {
            Ok((_, found)) => {
                held.names.retain(|other| other == name);
                note(held, found);
                Outcome::Done
            }
            Err(LeaseError::NotLeased(_)) => Outcome::Vanished,
            Err(error) if matches!(error.sqlstate(), "23505" | "42P04") => {
                held.names.remove(name);
                Outcome::NameTaken
            }
            Err(error) => Outcome::Failed(error),
        }
    }
}
