//! Defines a client's script: the failing statement, the block around it, the way that a driver sends it, and
//! the statements after it.

use super::provocation::Provocation;
use crate::common::client::{message, query};

/// Block around the failing statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    None,
    Transaction,
    Savepoint,
}

/// How the client sends the statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// Simple query.
    Simple,
    /// Second of three statements in one query string.
    String,
    /// Parse, Bind, Describe, Execute, Sync.
    Extended,
    /// Parse, Bind, Execute, Sync.
    Undescribed,
    /// Parse, Describe and Flush. After the response, Bind, Execute, Sync.
    Flushed,
    /// Bind and Execute for a named prepared statement.
    Prepared,
    /// `EXECUTE` for a statement that was prepared with `PREPARE`.
    PreparedBySql,
    /// Two Executes with a limit of one row.
    Limited,
    /// Three statements before one Sync.
    Pipeline,
    /// Several statements without waiting for responses, each with a Sync.
    Pipelines,
}

impl Sending {
    pub(super) const ALL: [Self; 10] = [
        Self::Simple,
        Self::String,
        Self::Extended,
        Self::Undescribed,
        Self::Flushed,
        Self::Prepared,
        Self::PreparedBySql,
        Self::Limited,
        Self::Pipeline,
        Self::Pipelines,
    ];

    /// Whether the client can send `statement` in this way.
    fn suits(self, provocation: Provocation, statement: &str, block: Block) -> bool {
        let verb = statement.split(' ').next().unwrap_or_default();
        let is_query = ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"].contains(&verb);
        let needs_block = ["FETCH", "LOCK"].contains(&verb);
        let fits = match self {
            // The gateway doesn't parse what EXECUTE runs, so these errors name EXECUTE instead of the
            // prepared statement. A server sends EXECUTE's rows only when it has all of them, so before a late
            // error there are no rows.
            Self::PreparedBySql => {
                is_query
                    && !matches!(
                        provocation,
                        Provocation::ReadOnly
                            | Provocation::UpdateConflict
                            | Provocation::ReadConflict
                            | Provocation::LateCancel
                    )
            }
            // The gateway ends the session before the whole string, so the first statement doesn't get a response.
            Self::String if provocation.is_fatal() => false,
            // The error comes after three rows.
            Self::Limited => provocation != Provocation::LateCancel,
            // Within a string or a pipeline, a client that copies can't tell when to send its rows.
            Self::String | Self::Pipeline | Self::Pipelines => !statement.ends_with("FROM STDIN"),
            _ => true,
        };
        fits && (!needs_block || block != Block::None)
    }
}

/// The client's statements after the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// Continues in both protocols, and commits.
    Continue,
    /// Rolls back with a simple query.
    Rollback,
    /// Rolls back to the savepoint or to the start of the transaction, writes, and commits.
    Retry,
    /// Rolls back with the extended protocol.
    ExtendedRollback,
}

impl Tail {
    pub(super) const ALL: [Self; 4] = [Self::Continue, Self::Rollback, Self::Retry, Self::ExtendedRollback];
}

/// Bytes that the client sends together, and the messages that end the response to them.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) bytes: Vec<u8>,
    /// Message tags that each end a part of the response.
    pub(super) ends: &'static [u8],
    /// Number of parts in the response.
    pub(super) parts: usize,
}

/// A client's whole script.
#[derive(Debug, Clone, Copy)]
pub(super) struct Script {
    pub(super) provocation: Provocation,
    pub(super) statement: &'static str,
    pub(super) block: Block,
    pub(super) sending: Sending,
    pub(super) tail: Tail,
}

impl Script {
    /// Returns all scripts for one real error.
    pub(super) fn all(provocation: Provocation) -> Vec<Self> {
        let mut all = Vec::new();
        for statement in provocation.statements() {
            for block in provocation.blocks() {
                let suits = |sending: &Sending| sending.suits(provocation, statement, *block);
                for sending in Sending::ALL.into_iter().filter(suits) {
                    all.extend(Tail::ALL.map(|tail| Self {
                        provocation,
                        statement,
                        block: *block,
                        sending,
                        tail,
                    }));
                }
            }
        }
        all
    }

    /// Returns the exchanges before the error. `begin` is the statement that begins the transaction.
    pub(super) fn before(&self, begin: &str, statement: &str) -> Vec<Exchange> {
        let mut all = vec![simple(self.provocation.settings())];
        match self.sending {
            Sending::Prepared => {
                let described = message(b'D', b"Sstruck\0");
                all.push(synced([parse("struck", statement), described].concat()));
            }
            Sending::PreparedBySql => all.push(simple(&format!("PREPARE struck AS {statement}"))),
            _ => {}
        }
        if self.block != Block::None {
            all.push(simple(begin));
            all.extend(self.provocation.first().iter().map(|sql| simple(sql)));
        }
        if self.block == Block::Savepoint {
            all.push(synced(run("SAVEPOINT here")));
        }
        all
    }

    /// Returns the text of the failing statement, as the client sends it.
    pub(super) fn struck<'a>(&self, statement: &'a str) -> &'a str {
        if self.sending == Sending::PreparedBySql { "EXECUTE struck" } else { statement }
    }

    /// Returns the exchanges for the failing statement.
    pub(super) fn failing(&self, statement: &str) -> Vec<Exchange> {
        let neighbour = self.provocation.neighbour();
        match self.sending {
            Sending::Simple | Sending::PreparedBySql => vec![simple(self.struck(statement))],
            Sending::String => vec![simple(&format!("{neighbour}; {statement};SELECT 'next'"))],
            Sending::Extended => vec![synced(run(statement))],
            Sending::Undescribed => {
                vec![synced([parse("", statement), bind("", ""), execute("", 0)].concat())]
            }
            Sending::Flushed => {
                let described = [parse("", statement), message(b'D', b"S\0"), message(b'H', b"")].concat();
                vec![
                    Exchange { bytes: described, ends: b"TnE", parts: 1 },
                    synced([bind("", ""), execute("", 0)].concat()),
                ]
            }
            Sending::Prepared => vec![synced([bind("", "struck"), execute("", 0)].concat())],
            Sending::Limited => {
                let executed = [execute("some", 1), execute("some", 1)].concat();
                vec![synced([parse("", statement), bind("some", ""), executed].concat())]
            }
            Sending::Pipeline => {
                vec![synced([neighbour, statement, "SELECT 'next'"].map(run).concat())]
            }
            Sending::Pipelines => {
                let texts = [neighbour, statement, "SELECT 'next'"];
                let bytes = texts.map(|sql| synced(run(sql)).bytes).concat();
                vec![Exchange { bytes, ends: b"Z", parts: 3 }]
            }
        }
    }

    /// Returns the exchanges after the error.
    pub(super) fn after(&self) -> Vec<Exchange> {
        let savepoint = self.block == Block::Savepoint;
        let mut all = match self.tail {
            Tail::Continue => vec![
                simple("SELECT 'more'"),
                synced(run("SELECT 'more'")),
                simple("SAVEPOINT late"),
                simple("COMMIT"),
            ],
            Tail::Rollback => vec![simple("ROLLBACK")],
            Tail::Retry => vec![
                simple(if savepoint { "ROLLBACK TO here" } else { "ROLLBACK" }),
                simple("SELECT 'again'"),
                simple("COMMIT"),
            ],
            Tail::ExtendedRollback => vec![synced(run("ROLLBACK"))],
        };
        all.push(simple("BEGIN; INSERT INTO entry VALUES (9, 'end'); COMMIT"));
        all
    }
}

pub(super) fn simple(sql: &str) -> Exchange {
    Exchange { bytes: query(sql), ends: b"Z", parts: 1 }
}

pub(super) fn synced(mut bytes: Vec<u8>) -> Exchange {
    bytes.extend(message(b'S', b""));
    Exchange { bytes, ends: b"Z", parts: 1 }
}

fn parse(name: &str, sql: &str) -> Vec<u8> {
    message(b'P', format!("{name}\0{sql}\0\0\0").as_bytes())
}

fn bind(portal: &str, name: &str) -> Vec<u8> {
    message(b'B', format!("{portal}\0{name}\0\0\0\0\0\0\0").as_bytes())
}

fn execute(portal: &str, limit: u32) -> Vec<u8> {
    message(b'E', &[portal.as_bytes(), b"\0", &limit.to_be_bytes()].concat())
}

/// Encodes Parse, Bind, Describe and Execute for an unnamed statement.
pub(super) fn run(sql: &str) -> Vec<u8> {
    [parse("", sql), bind("", ""), message(b'D', b"P\0"), execute("", 0)].concat()
}
