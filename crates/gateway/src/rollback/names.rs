//! The client's prepared statements and portals, as far as they are not plain.

use std::collections::{HashMap, VecDeque};

use super::statement::Kind;
use pgwire::{encode, split_zero};

#[derive(Debug, Default)]
pub(super) struct Names {
    statements: HashMap<Vec<u8>, Kind>,
    portals: HashMap<Vec<u8>, Kind>,
    /// There may be an unnamed portal, of whatever kind.
    unnamed: bool,
    /// Sent to the server and not confirmed yet, with what the name meant before.
    parsing: VecDeque<(Vec<u8>, Option<Kind>)>,
}

impl Names {
    pub(super) fn parse(&mut self, name: &[u8], kind: Kind) {
        let before = replace(&mut self.statements, name, (kind != Kind::Plain).then_some(kind));
        self.parsing.push_back((name.to_vec(), before));
    }

    /// The server has taken the first of those that were sent.
    pub(super) fn parsed(&mut self) {
        self.parsing.pop_front();
    }

    /// The server has not taken the rest. An unnamed one is gone all the same, and a portal of it with it.
    pub(super) fn failed(&mut self) {
        for (name, before) in self.parsing.drain(..).rev() {
            let before = before.filter(|_| !name.is_empty());
            replace(&mut self.statements, &name, before);
        }
    }

    /// Takes note of a Bind, of which the values have to be there only if [`Self::wants_values`].
    pub(super) fn bind(&mut self, body: &[u8]) {
        let (portal, rest) = split_zero(body);
        let kind = match self.statements.get(split_zero(rest).0).cloned() {
            Some(Kind::MaySet(changes)) => Some(Kind::MaySet(changes.with_values(body))),
            kind => kind,
        };
        self.unnamed |= portal.is_empty();
        replace(&mut self.portals, portal, kind);
    }

    /// Whether the value of a parameter tells which setting a statement changes.
    pub(super) fn wants_values(&self) -> bool {
        self.statements.values().any(|kind| matches!(kind, Kind::MaySet(changes) if changes.wants_values()))
    }

    pub(super) fn of_portal(&self, name: &[u8]) -> Option<Kind> {
        self.portals.get(name).cloned()
    }

    /// Takes note of a Close.
    pub(super) fn close(&mut self, body: &[u8]) {
        match body.split_first() {
            Some((b'S', name)) => drop(self.statements.remove(split_zero(name).0)),
            Some((_, name)) => drop(self.portals.remove(split_zero(name).0)),
            None => {}
        }
    }

    /// A Query ends the unnamed statement.
    pub(super) fn forget_unnamed(&mut self) {
        self.statements.remove(&b""[..]);
    }

    /// The messages that close them all: their transaction is undone.
    pub(super) fn end_portals(&mut self) -> Vec<u8> {
        self.unnamed = false;
        let closes = self.portals.drain().map(|(name, _)| encode(b'C', &[b"P", &name[..], b"\0"].concat()));
        closes.flatten().collect()
    }

    /// The same where their transaction ends well: the server counts those that have names as cursors, which are closed by their
    /// names.
    pub(super) fn end_unnamed_portal(&mut self) -> Vec<u8> {
        self.portals.clear();
        if std::mem::take(&mut self.unnamed) { encode(b'C', b"P\0") } else { Vec::new() }
    }
}

fn replace(map: &mut HashMap<Vec<u8>, Kind>, name: &[u8], kind: Option<Kind>) -> Option<Kind> {
    match kind {
        Some(kind) => map.insert(name.to_vec(), kind),
        None => map.remove(name),
    }
}
