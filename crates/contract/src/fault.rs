//! Faults of a leased database.

use serde::{Deserialize, Serialize};

#[cfg(test)]
use crate::MOST_FAULTS;
use crate::lease::whole;
#[cfg(test)]
use crate::openapi::TIME;
#[cfg(test)]
use crate::openapi::faults::{BANDWIDTH, TEXT, effects};

/// Request for a fault of a leased database. It has exactly one of `error`, `connection`, `delay` and `bandwidth`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(extend("anyOf" = effects())))]
#[serde(deny_unknown_fields)]
pub struct FaultRequest {
    /// SQLSTATE of an error, for instance `40001`, or `failover`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How the connection is lost: `reset` closes it, and with `silent` it stays open without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// Time by which pgfresh delays the message, with its unit: `2s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(regex(pattern = TIME)))]
    pub delay: Option<String>,
    /// Number of bytes per second in each direction, from the moment on: `10kB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(regex(pattern = BANDWIDTH)))]
    pub bandwidth: Option<String>,
    /// Moment of the fault: `commit`, `before statement`, `during statement`, `after statement`, `before commit`,
    /// `after commit` or `connect`. The default is `before statement`, and `connect` for `failover`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Statements that count: their text, or the beginning of it. `…` stands for any text. The default is all statements.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(regex(pattern = TEXT)))]
    pub statement: Option<String>,
    /// Number of the first statement, commit or connection that the fault hits, from 1. The default is 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    #[cfg_attr(test, schemars(range(min = 1, max = MOST_FAULTS)))]
    pub nth: Option<u64>,
    /// Number of statements, commits or connections that the fault hits, from `nth` on. The default is 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    #[cfg_attr(test, schemars(range(min = 1, max = MOST_FAULTS)))]
    pub times: Option<u64>,
    /// How long `failover` and the SQLSTATE `57P03` refuse new connections, with its unit. The default is until the fault
    /// has hit `times` connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(regex(pattern = TIME)))]
    pub duration: Option<String>,
    /// How long transactions are read-only after a `failover`, with its unit. The default is not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(regex(pattern = TIME)))]
    pub read_only: Option<String>,
}

/// Faults of a leased database, in the order in which clients requested them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FaultList {
    /// All faults since the lease began or was reset.
    pub faults: Vec<FaultDescription>,
    /// Faults that have not fired yet, in words. If the test ends now, it must fail.
    pub unfired_faults: Vec<String>,
}

/// A fault of a leased database, with the statements that it hit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FaultDescription {
    /// Number of the fault among those of the lease, from 1.
    pub number: u64,
    /// The fault in words: `40001 at commit`.
    pub fault: String,
    /// Number of times that the fault is to fire.
    pub times: u64,
    /// Number of times that the fault has fired.
    pub fired: u64,
    /// Number of statements, commits or connections that the fault could have hit, with those that it hit.
    pub candidates: u64,
    /// Statements that the fault hit, each with at most 1023 bytes, in order. It lists at most 100.
    pub statements: Vec<String>,
}
