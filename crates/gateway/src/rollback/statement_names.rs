//! Tracks the names of prepared statements and portals that need special treatment.

use std::collections::{HashMap, VecDeque};

use super::statement::Kind;
use pgwire::{encode, split_zero};

/// A prepared statement that needs special treatment.
#[derive(Debug, Clone)]
struct Prepared {
    kind: Kind,
    /// The client's text, if the gateway has sent the server a different statement under this name.
    replaced: Option<Box<[u8]>>,
}

#[derive(Debug, Default)]
pub(super) struct Names {
    statements: HashMap<Vec<u8>, Prepared>,
    portals: HashMap<Vec<u8>, Kind>,
    /// Whether there may be an unnamed portal, even one without special treatment.
    unnamed: bool,
    /// Parse messages that the server hasn't confirmed yet. Each entry consists of the statement's name and the
    /// previous statement with this name.
    parsing: VecDeque<(Vec<u8>, Option<Prepared>)>,
}

impl Names {
    /// Records a Parse message. `replaced` is the client's text if the server receives a different one.
    pub(super) fn parse(&mut self, name: &[u8], kind: Kind, replaced: Option<&[u8]>) {
        let is_special = kind != Kind::Plain;
        let prepared = is_special.then(|| Prepared { kind, replaced: replaced.map(Into::into) });
        let before = replace(&mut self.statements, name, prepared);
        self.parsing.push_back((name.to_vec(), before));
    }

    /// Returns the prepared statements that the gateway has replaced on the server: their names, and the client's
    /// texts.
    pub(super) fn replaced(&self) -> Vec<(Vec<u8>, Box<[u8]>)> {
        let texts =
            self.statements.iter().map(|(name, prepared)| Some((name.clone(), prepared.replaced.clone()?)));
        texts.flatten().collect()
    }

    /// Records that the server has accepted the oldest pending Parse.
    pub(super) fn parsed(&mut self) {
        self.parsing.pop_front();
    }

    /// Reverts all pending Parse messages, because the server didn't accept them: their names regain their earlier
    /// meanings. The exception is the unnamed statement, which the server has already removed.
    pub(super) fn failed(&mut self) {
        for (name, before) in self.parsing.drain(..).rev() {
            let before = before.filter(|_| !name.is_empty());
            replace(&mut self.statements, &name, before);
        }
    }

    /// Records a Bind message. `body` need not contain the parameter values unless [`Self::wants_values`] returns true.
    pub(super) fn bind(&mut self, body: &[u8]) {
        let (portal, rest) = split_zero(body);
        let prepared = self.statements.get(split_zero(rest).0);
        let kind = match prepared.map(|prepared| prepared.kind.clone()) {
            Some(Kind::MaySet(changes)) => Some(Kind::MaySet(changes.with_values(body))),
            kind => kind,
        };
        self.unnamed |= portal.is_empty();
        replace(&mut self.portals, portal, kind);
    }

    /// Returns true if a parameter value can determine which setting a statement changes.
    pub(super) fn wants_values(&self) -> bool {
        let wants = |kind: &Kind| matches!(kind, Kind::MaySet(changes) if changes.wants_values());
        self.statements.values().any(|prepared| wants(&prepared.kind))
    }

    pub(super) fn of_portal(&self, name: &[u8]) -> Option<Kind> {
        self.portals.get(name).cloned()
    }

    /// Records a Close message.
    pub(super) fn close(&mut self, body: &[u8]) {
        match body.split_first() {
            Some((b'S', name)) => drop(self.statements.remove(split_zero(name).0)),
            Some((_, name)) => drop(self.portals.remove(split_zero(name).0)),
            None => {}
        }
    }

    /// Removes the unnamed statement, because a Query removes it on the server.
    pub(super) fn forget_unnamed(&mut self) {
        self.statements.remove(&b""[..]);
    }

    /// Returns the messages that close all portals after their transaction was rolled back.
    pub(super) fn end_portals(&mut self) -> Vec<u8> {
        self.unnamed = false;
        let closes = self.portals.drain().map(|(name, _)| encode(b'C', &[b"P", &name[..], b"\0"].concat()));
        closes.flatten().collect()
    }

    /// Returns a message that closes the unnamed portal at the end of a successful transaction. The server lists all
    /// other portals as cursors, so COMMIT closes them by name.
    pub(super) fn end_unnamed_portal(&mut self) -> Vec<u8> {
        self.portals.clear();
        if std::mem::take(&mut self.unnamed) { encode(b'C', b"P\0") } else { Vec::new() }
    }
}

fn replace<T>(map: &mut HashMap<Vec<u8>, T>, name: &[u8], value: Option<T>) -> Option<T> {
    match value {
        Some(value) => map.insert(name.to_vec(), value),
        None => map.remove(name),
    }
}
