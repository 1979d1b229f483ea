//! Manages spares: backends that wait for clients of databases without a lease, such as `postgres`.
//!
//! Spares have never had a client. When a client comes, pgfresh starts a spare for the next one. Since PostgreSQL
//! refuses to drop, rename or copy a database with sessions, spares make way for such statements.

use pgwire::StartupParams;

use crate::address::DatabaseAddress;
use crate::backends::backend::WaitingBackend;
use crate::backends::expected::may_come_again;

/// Maximum number of spares.
const MOST: usize = 2;
/// The database that CREATE DATABASE copies. It doesn't get any spares, because hardly any client
/// connects to this database, and each CREATE DATABASE would have to wait for the spare to exit.
const COPIED: &str = "template1";

/// A backend that waits in a database without a lease.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) address: DatabaseAddress,
    pub(crate) waiting: WaitingBackend,
}

/// A kind of session: the database's name and the startup parameters.
pub(crate) type SpareKind = (String, StartupParams);

/// The spares of all databases without a lease.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    waiting: Vec<Spare>,
    /// Kinds requested by the last clients, latest last.
    expected: Vec<SpareKind>,
    /// Kinds of the spares that threads are starting.
    starting: Vec<SpareKind>,
    /// Number of clients that may drop, rename or copy databases. While this isn't 0, pgfresh doesn't start spares.
    holds: usize,
}

impl Spares {
    /// Records that a client has requested a session of this kind.
    pub(crate) fn ask(&mut self, name: &str, params: &StartupParams) {
        if name == COPIED || !may_come_again(params) {
            return;
        }
        self.expected.retain(|(other, known)| !(other == name && known == params));
        self.expected.push((name.to_owned(), params.clone()));
        if self.expected.len() > MOST {
            self.expected.remove(0);
        }
        // Close spares in excess of their kind's share.
        let mut left: Vec<_> = self.expected.iter().map(|kind| (kind, self.share())).collect();
        self.waiting.retain(|spare| {
            let left = left.iter_mut().find(|((name, params), left)| *left > 0 && spare.is(name, params));
            left.map(|(_, left)| *left -= 1).is_some()
        });
    }

    /// Returns how many spares each expected kind may have.
    fn share(&self) -> usize {
        MOST / self.expected.len().max(1)
    }

    /// Returns the most recently requested kind that lacks a spare. Returns `None` while spares are on hold.
    fn lacking(&self) -> Option<&SpareKind> {
        let lacks = |kind: &&SpareKind| {
            let (name, params) = kind;
            let waiting = self.waiting.iter().filter(|spare| spare.is(name, params)).count();
            waiting + self.starting.iter().filter(|other| other == kind).count() < self.share()
        };
        self.expected.iter().rev().find(lacks).filter(|_| self.holds == 0)
    }

    /// Takes a matching spare, if any.
    pub(crate) fn take(&mut self, name: &str, params: &StartupParams) -> Option<Spare> {
        let at = self.waiting.iter().position(|spare| spare.is(name, params))?;
        Some(self.waiting.swap_remove(at))
    }

    /// Returns true if a spare should be started.
    pub(crate) fn is_lacking(&self) -> bool {
        self.lacking().is_some()
    }

    /// Returns the kind of the next spare to start. The caller must then call [`Self::started`].
    pub(crate) fn start_next(&mut self) -> Option<SpareKind> {
        let next = self.lacking()?.clone();
        self.starting.push(next.clone());
        Some(next)
    }

    /// Adds a spare that has started. If `spare` is `None`, forgets the kind until a client requests it again.
    pub(crate) fn started(&mut self, kind: &SpareKind, spare: Option<Spare>) {
        if let Some(at) = self.starting.iter().position(|other| other == kind) {
            self.starting.swap_remove(at);
        }
        match spare {
            Some(spare) if self.holds == 0 => self.waiting.push(spare),
            Some(_) => {}
            None => self.expected.retain(|known| known != kind),
        }
    }

    /// Closes all spares and starts none until [`Self::release`] is called.
    pub(crate) fn hold(&mut self) {
        self.holds += 1;
        self.waiting.clear();
    }

    /// Undoes one call to [`Self::hold`].
    pub(crate) fn release(&mut self) {
        self.holds -= 1;
    }

    /// Closes all spares.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Returns the number of waiting spares.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl Spare {
    fn is(&self, name: &str, params: &StartupParams) -> bool {
        self.address.name == name && self.waiting.params == *params
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::backend::Backend;
    use crate::backends::seats::Seat;

    fn params(user: &str) -> StartupParams {
        StartupParams::new([("user", user)])
    }

    fn spare((name, params): &SpareKind) -> Spare {
        let (stream, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let backend = Backend { stream, startup_response: Vec::new(), seat: Seat::default() };
        let waiting =
            WaitingBackend { params: params.clone(), backend, stamp: "".into(), since: None, is_used: false };
        Spare { address: DatabaseAddress::new(5, name), waiting }
    }

    fn fill(spares: &mut Spares) -> Vec<String> {
        let mut names = Vec::new();
        while let Some(kind) = spares.start_next() {
            spares.started(&kind, Some(spare(&kind)));
            names.push(kind.0);
        }
        names
    }

    #[test]
    fn spares_follow_the_latest_kinds_of_sessions() {
        let mut spares = Spares::default();
        assert!(fill(&mut spares).is_empty());
        spares.ask("postgres", &params("a"));
        assert_eq!(fill(&mut spares), ["postgres", "postgres"]);
        assert!(
            spares.take("postgres", &params("b")).is_none() && spares.take("other", &params("a")).is_none()
        );
        assert!(spares.take("postgres", &params("a")).is_some());
        assert_eq!(fill(&mut spares), ["postgres"]);
        spares.ask("other", &params("a"));
        assert_eq!(spares.len(), 1, "each kind has its share");
        assert_eq!(fill(&mut spares), ["other"]);
        spares.ask("third", &params("a"));
        assert_eq!(spares.len(), 1, "the first kind is forgotten");
        assert_eq!(fill(&mut spares), ["third"]);
    }

    #[test]
    fn no_spare_waits_for_copied_database_or_replication() {
        let mut spares = Spares::default();
        spares.ask("template1", &params("a"));
        spares.ask("postgres", &StartupParams::new([("user", "a"), ("replication", "true")]));
        assert!(!spares.is_lacking());
    }

    #[test]
    fn spares_make_way_until_the_last_release() {
        let mut spares = Spares::default();
        spares.ask("postgres", &params("a"));
        let kind = spares.start_next().unwrap();
        fill(&mut spares);
        spares.hold();
        spares.hold();
        spares.started(&kind, Some(spare(&kind)));
        assert_eq!(spares.len(), 0, "one that was starting makes way, too");
        spares.release();
        assert!(!spares.is_lacking());
        spares.release();
        assert_eq!(fill(&mut spares).len(), MOST);
    }

    #[test]
    fn kind_that_does_not_start_is_forgotten() {
        let mut spares = Spares::default();
        spares.ask("postgres", &params("a"));
        let kind = spares.start_next().unwrap();
        spares.started(&kind, None);
        assert!(!spares.is_lacking());
    }
}
