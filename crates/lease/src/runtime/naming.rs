//! Gives databases the names of leases, and removes these names when leases end.
//!
//! SQL may rename or drop any database at any time. Therefore each of pgfresh's
//! statements finds its database by oid and changes it only if it still has a name
//! given by pgfresh. A database renamed by SQL belongs to SQL, so pgfresh forgets it.

use std::collections::BTreeSet;
use std::sync::Arc;

use sys::lock;

use crate::address::DatabaseAddress;
use crate::backends::backend::{CatalogStamp, WaitingBackend};
use crate::error::LeaseError;
use crate::isolation::Isolation;
use crate::lsn::Lsn;
use crate::names::ready;
use crate::reset::catalog::TemplateCatalog;
use crate::reset::rollback::TransactionSession;
use crate::reset::stats::DatabaseStats;
use crate::runtime::checkout::{Access, CheckedOut};
use crate::runtime::claims::Claim;
use crate::runtime::inner::Inner;
use crate::runtime::resources::{CrashEffect, Identity, Phase, PooledCopy, Resources, RollbackCopy};
use crate::runtime::template::{Generation, HIDE, rename};
use crate::table::{DatabaseId, Outcome, ParamsId};

/// Number of new names to try for a database losing its lease's name.
const NAME_ATTEMPTS: usize = 2;

impl Inner {
    /// Gives a lease's name to a ready database.
    pub(crate) fn name(
        &self,
        id: DatabaseId,
        to: &str,
        isolation: Isolation,
        params: Option<ParamsId>,
    ) -> Outcome {
        let mut database = match self.core.check_out(id) {
            Some(Access::Exclusive(database)) => database,
            Some(Access::Server(server)) => {
                return lock(&server).rename(to).map_or_else(Outcome::Failed, |()| Outcome::Done);
            }
            None => return Outcome::DroppedOrRenamed,
        };
        let named = self.name_copy(&mut database, to).and_then(|()| match isolation {
            Isolation::Rollback => self.give_transaction_session(&mut database, to, params),
            Isolation::Clone | Isolation::Server => Ok(()),
        });
        named.map_or_else(|outcome| outcome, |()| Outcome::Done)
    }

    /// Gives a lease's name to a copy of a template and checks that the copy is still fresh.
    fn name_copy(&self, database: &mut CheckedOut<'_>, to: &str) -> Result<(), Outcome> {
        let has_session = matches!(**database, Resources::Rollback(RollbackCopy { session: Some(_), .. }));
        let copy = database.copy_mut().ok_or(Outcome::Failed(LeaseError::Panicked))?;
        // After a rollback, the database still has its last lease's name, which may already be the right one.
        let keeps_name = has_session && copy.identity.address.name == to;
        if keeps_name { self.look_again(copy) } else { self.rename(copy, to) }?;
        self.restore_attributes(copy).map_err(Outcome::Failed)?;
        // A crash empties the unlogged tables in every database.
        if self.has_crashed_since(copy.crash_effect()) || self.has_template_changed_since(copy) {
            return Err(Outcome::Stale);
        }
        // No client has used a ready database. If the log shows a change nonetheless, pgfresh resets the database
        // before a client gets it.
        if copy.epoch != self.evidence.epoch() || !self.evidence.is_untouched(copy.identity.address.oid) {
            return Err(Outcome::Stale);
        }
        Ok(())
    }

    /// Gives a database the session shared by all clients of a lease in rollback isolation. If the last lease's session
    /// is still waiting there, it is reused, provided that a new session would be no different.
    fn give_transaction_session(
        &self,
        database: &mut CheckedOut<'_>,
        to: &str,
        params: Option<ParamsId>,
    ) -> Result<(), Outcome> {
        if let Resources::Rollback(RollbackCopy { copy, session, .. }) = &mut **database
            && let Some(used) = session.take()
        {
            let unchanged = used.since.is_none_or(|since| self.evidence.are_settings_unchanged(since));
            let is_current = copy.stamp() == Some(&used.stamp) && unchanged && used.will_serve();
            *session = Some(used).filter(|_| is_current);
            return if is_current { Ok(()) } else { Err(Outcome::Stale) };
        }
        let copy = database.copy_mut().ok_or(Outcome::Failed(LeaseError::Panicked))?;
        match self.open_transaction_session(copy, to, params) {
            Ok((session, catalog)) => {
                database.change(|resources| resources.into_rollback(session, catalog));
                Ok(())
            }
            Err(LeaseError::NotLeased(_)) => Err(Outcome::DroppedOrRenamed),
            Err(error) => Err(Outcome::Failed(error)),
        }
    }

    /// Returns true if a server crash may have emptied a database's unlogged tables.
    pub(crate) fn has_crashed_since(&self, effect: CrashEffect) -> bool {
        match effect {
            CrashEffect::Nothing => false,
            CrashEffect::EmptiesTables(known) => known.is_none() || known != self.generation(),
        }
    }

    /// Reads the server's current generation, or returns `None` if the server doesn't respond.
    pub(crate) fn generation(&self) -> Option<Generation> {
        let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
        let rows = self.admin.run("look at the server", sql).ok()?;
        Some(Generation(rows.first()?.first()?.as_deref()?.parse().ok()?))
    }

    /// Returns true if SQL has changed the template since pgfresh made this copy, which is possible only for
    /// `template1`.
    fn has_template_changed_since(&self, copy: &PooledCopy) -> bool {
        copy.copied_after.as_ref().is_some_and(|before| *before != self.evidence.changes(copy.template.oid))
    }

    /// Restores the attributes of a database that has just received its name. Some statements (such as `REASSIGN
    /// OWNED`) change the attributes of all databases owned by a role, even unused ones.
    fn restore_attributes(&self, copy: &mut PooledCopy) -> Result<(), LeaseError> {
        let (Some(attributes), Some(stamp)) = (&copy.template.attributes, copy.stamp()) else {
            return Ok(());
        };
        if attributes.are_in(stamp) {
            return Ok(());
        }
        // The statement fails if SQL has changed a role. Since pgfresh reports such changes elsewhere, don't fail the
        // task.
        let address = &copy.identity.address;
        let sql = attributes.put_on(&address.oid.to_string());
        if let Err(error) = self.admin.run("restore the owner of a database", &sql) {
            tracing::debug!(%error, name = address.name, "could not restore what hangs on a database");
        }
        let (stamp, _) = self.read_stamp(address)?;
        copy.begin_lease(stamp);
        Ok(())
    }

    /// Reads the stamp (settings and roles) of a database that retains its name. Otherwise, the rename would return the
    /// stamp.
    fn look_again(&self, copy: &mut PooledCopy) -> Result<(), Outcome> {
        match self.read_stamp(&copy.identity.address) {
            Ok((stamp, _)) if stamp.is_empty() => Err(Outcome::DroppedOrRenamed),
            Ok((stamp, _)) => {
                copy.begin_lease(stamp);
                Ok(())
            }
            Err(error) => Err(Outcome::Failed(error)),
        }
    }

    /// Opens the session for a lease in rollback isolation. If the template has no catalog, this also reads and returns
    /// one for this copy.
    fn open_transaction_session(
        &self,
        copy: &mut PooledCopy,
        name: &str,
        params: Option<ParamsId>,
    ) -> Result<(Box<TransactionSession>, Option<Arc<TemplateCatalog>>), LeaseError> {
        let params = params.and_then(|params| self.lock().params_of(params));
        let params = params.ok_or_else(|| LeaseError::NotLeased(name.to_owned()))?;
        let stamp = copy.stamp().map_or_else(|| CatalogStamp::from(""), Arc::clone);
        let waiting = copy.take_waiting(&params).filter(|at| at.stamp == stamp && at.since.is_none());
        copy.waiting.clear();
        let address = &copy.identity.address;
        let unread = Some(&copy.template).filter(|template| !template.is_recyclable());
        let catalog = unread.map(|template| self.read_catalog(address, template)).transpose()?.map(Arc::new);
        let (backend, since) = if let Some(waiting) = waiting.filter(WaitingBackend::will_serve) {
            (waiting.backend, None)
        } else {
            let since = self.evidence.position();
            (self.start_backend_in(address, &params)?, Some(since))
        };
        let session = TransactionSession::new(params, backend, stamp, since)
            .map_err(|source| LeaseError::Sql { verb: "prepare a session", source })?;
        Ok((Box::new(session), catalog))
    }

    /// Removes the lease's name from a database.
    pub(crate) fn unname(&self, id: DatabaseId) -> Outcome {
        let mut database = match self.core.check_out(id) {
            Some(Access::Exclusive(database)) => database,
            Some(Access::Server(server)) => {
                if let Some(observer) = &self.options.observer {
                    observer.look(lock(&server).name(), None);
                }
                return Outcome::Done;
            }
            None => return Outcome::DroppedOrRenamed,
        };
        // Some sessions may still be exiting, but they no longer belong to a lease.
        if let Some(clients) = self.lock().pool.clients_mut(id) {
            clients.clear();
        }
        self.observe(&database);
        database.change(Resources::into_clone);
        if let Some(lease) = database.copy().and_then(|copy| copy.last_lease.as_deref()) {
            self.shared().ended(lease);
        }
        let mut taken = String::new();
        // If SQL already uses the first new name, try another one immediately, because a client may be waiting for the
        // lease's name.
        for _ in 0..NAME_ATTEMPTS {
            let claim = self.claim_next_name();
            let name = claim.name().to_owned();
            match self.take_name(&mut database, claim) {
                Ok(()) => return Outcome::Done,
                Err(Outcome::NameTaken) => taken = name,
                Err(outcome) => return outcome,
            }
        }
        Outcome::Failed(LeaseError::Leased(taken))
    }

    /// Lets the observer inspect a database whose lease ends or that a client resets.
    pub(crate) fn observe(&self, database: &CheckedOut<'_>) {
        let Some(observer) = &self.options.observer else { return };
        let Resources::Clone(copy) = &**database else { return };
        let address = &copy.identity.address;
        match self.admin.open_in(address, &[]) {
            Ok(mut session) => observer.look(&address.name, Some(&mut session)),
            Err(error) => {
                self.report_error("look into a database", &error);
                observer.look(&address.name, None);
            }
        }
    }

    /// Renames a database to the name in `claim` and reads the statistics and attributes left by its lease.
    fn take_name(&self, database: &mut CheckedOut<'_>, claim: Claim) -> Result<(), Outcome> {
        let to = claim.name().to_owned();
        let identity = database.identity_mut().ok_or(Outcome::DroppedOrRenamed)?;
        let stats = self.change_name(identity, &to, Some(claim), |to, names| {
            let stats = DatabaseStats::rename_and_read(to, names, &self.admin)?;
            Ok((Some(stats.mark), stats))
        })?;
        if let Some(copy) = database.copy_mut() {
            let expected = self.lock().expected.ids();
            copy.learn(&expected);
            copy.phase = Phase::Unleased(Some(stats));
        }
        Ok(())
    }

    /// Generates and claims a new name for a database in preparation.
    pub(crate) fn claim_next_name(&self) -> Claim {
        let name = self.lock().next_name();
        self.preparing.claim(&name)
    }

    /// Renames a database that pgfresh keeps for a failed test.
    pub(crate) fn keep(&self, id: DatabaseId, to: &str) -> Outcome {
        let Some(Access::Exclusive(mut database)) = self.core.check_out(id) else {
            return Outcome::DroppedOrRenamed;
        };
        let Some(copy) = database.copy_mut() else { return Outcome::Failed(LeaseError::Panicked) };
        self.rename(copy, to).map_or_else(|outcome| outcome, |()| Outcome::Done)
    }

    /// Gives a database a lease's name.
    fn rename(&self, copy: &mut PooledCopy, name: &str) -> Result<(), Outcome> {
        let stamp = self.change_name(&mut copy.identity, name, None, |to, names| {
            let (stamp, mark) = rename(to, names, &self.options, &self.admin)?;
            Ok((Some(mark), stamp))
        })?;
        copy.begin_lease(stamp);
        copy.last_lease = Some(Arc::from(name));
        Ok(())
    }

    /// Hides a ready database from programs that list all databases and connect to each one. Idle sessions in the
    /// database aren't affected, because they started earlier. After a rollback, this does nothing, because the
    /// database retains its lease's name.
    pub(crate) fn hide(&self, identity: &mut Identity) {
        let Some(claim) = &identity.preparing else { return };
        let to = ready(claim.name());
        let hidden = self.change_name(identity, &to, None, |to, names| {
            // Nothing relies on the log here.
            let (rows, _mark) = self.admin.rename_and_mark("hide a database", &HIDE, to, names)?;
            rows.first().map(|_| (None, ())).ok_or_else(|| LeaseError::NotLeased(to.name.clone()))
        });
        if let Err(outcome) = hidden {
            tracing::debug!(?outcome, "a ready database can be seen");
        }
    }

    /// Runs `change`, which gives a database this name, and returns its result. `preparing` is the caller's claim on
    /// the name, if there is one.
    ///
    /// `change` receives the names that the database may have now. If the connection is lost, it adds the new one,
    /// because the database may then have either name. If the caller relies on the log, `change` also returns the end
    /// of the log.
    fn change_name<T>(
        &self,
        identity: &mut Identity,
        name: &str,
        preparing: Option<Claim>,
        change: impl FnOnce(&DatabaseAddress, &mut BTreeSet<String>) -> Result<(Option<Lsn>, T), LeaseError>,
    ) -> Result<T, Outcome> {
        let to = DatabaseAddress::new(identity.address.oid, name);
        match change(&to, &mut identity.names) {
            Ok((mark, found)) => {
                if let Some(mark) = mark {
                    self.evidence.read(mark);
                }
                identity.names = BTreeSet::from([name.to_owned()]);
                (identity.address, identity.preparing) = (to, preparing);
                Ok(found)
            }
            Err(LeaseError::NotLeased(_)) => Err(Outcome::DroppedOrRenamed),
            Err(error) if matches!(error.sqlstate(), "23505" | "42P04") => {
                identity.names.remove(name);
                Err(Outcome::NameTaken)
            }
            Err(error) => Err(Outcome::Failed(error)),
        }
    }
}
