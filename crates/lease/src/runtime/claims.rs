//! Locks names, so that, for example, only one thread at a time creates or removes the template with a given name.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use sys::{lock, sound};

/// The locked names. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claims(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    names: Mutex<BTreeSet<String>>,
    freed: Condvar,
}

/// A lock on a name. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Claims,
    name: String,
}

impl Claims {
    /// Locks a name, waiting if another thread holds the lock. The wait is bounded, because all work under such a lock
    /// has a time limit.
    pub(crate) fn claim(&self, name: &str) -> Claim {
        let Shared { names, freed } = &*self.0;
        let is_taken = |names: &mut BTreeSet<String>| names.contains(name);
        sound(freed.wait_while(lock(names), is_taken)).insert(name.to_owned());
        Claim { claims: self.clone(), name: name.to_owned() }
    }

    /// Waits until the name is unlocked, but no longer than `timeout`.
    pub(crate) fn wait(&self, name: &str, timeout: Duration) {
        let Shared { names, freed } = &*self.0;
        let is_taken = |names: &mut BTreeSet<String>| names.contains(name);
        drop(sound(freed.wait_timeout_while(lock(names), timeout, is_taken)));
    }
}

impl Claim {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Shared { names, freed } = &*self.claims.0;
        lock(names).remove(&self.name);
        freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn claimed_name_is_awaited_until_free_or_timeout() {
        let claims = Claims::default();
        let claim = claims.claim("one");
        claims.wait("other", Duration::from_hours(1));
        claims.wait("one", Duration::from_millis(10));
        thread::scope(|scope| {
            let waits = scope.spawn(|| claims.wait("one", Duration::from_hours(1)));
            let claims = scope.spawn(|| drop(claims.claim("one")));
            drop(claim);
            waits.join().unwrap();
            claims.join().unwrap();
        });
    }
}
