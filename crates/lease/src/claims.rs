//! Names of templates that are made or removed just now: each by one thread at a time.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, PoisonError};

use sys::lock;

#[derive(Debug, Default)]
pub(crate) struct Claims {
    names: Mutex<BTreeSet<String>>,
    freed: Condvar,
}

/// A name that is this thread's until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    name: &'a str,
}

impl Claims {
    /// Claims a name, once no other thread has it: what that does is bounded.
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
