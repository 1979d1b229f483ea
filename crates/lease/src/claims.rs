//! Locks on template names, so that only one thread at a time creates or removes the template with a name.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, PoisonError};

use sys::lock;

#[derive(Debug, Default)]
pub(crate) struct Claims {
    names: Mutex<BTreeSet<String>>,
    freed: Condvar,
}

/// A lock on a name. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    name: &'a str,
}

impl Claims {
    /// Locks a name, and waits while another thread has locked it. All work under the lock has a time limit.
    pub(crate) fn claim<'a>(&'a self, name: &'a str) -> Claim<'a> {
        let is_taken = |names: &mut BTreeSet<String>| names.contains(name);
        let free = self.freed.wait_while(lock(&self.names), is_taken);
        free.unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        Claim { claims: self, name }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        lock(&self.claims.names).remove(self.name);
        self.claims.freed.notify_all();
    }
}
