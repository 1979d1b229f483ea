//! Defines fault requests and descriptions of a lease's faults.

use serde::{Deserialize, Serialize};

#[cfg(test)]
use crate::MOST_FAULTS;
use crate::lease::whole;
#[cfg(test)]
use crate::openapi::TIME;
#[cfg(test)]
use crate::openapi::faults::{BANDWIDTH, TEXT, effects};

/// Request for a fault in a leased database. It has exactly one of `error`, `connection`, `delay` and `bandwidth`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(extend("anyOf" = effects())))]
#[serde(deny_unknown_fields)]
pub struct FaultRequest {
    /// SQLSTATE of the error, such as `40001`, or `failover`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How the connection fails: `reset` closes it with a TCP reset, and `silent` leaves it open without further
    /// responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// How long pgfresh delays the message, with a unit: `2s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(regex(pattern = TIME)))]
    pub delay: Option<String>,
    /// Bandwidth limit per second in each direction, from the moment when the fault fires, such as `10kB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(regex(pattern = BANDWIDTH)))]
    pub bandwidth: Option<String>,
    /// When the fault happens: `commit`, `before statement`, `during statement`, `after statement`, `before commit`,
    /// `after commit` or `connect`. The default is `before statement`, or `connect` for `failover`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Prefix of the statements to count. `…` matches any text. The default is all statements.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(regex(pattern = TEXT)))]
    pub statement: Option<String>,
    /// Number of the first statement, commit or connection that the fault hits, counted from 1. The default is 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    #[cfg_attr(test, schemars(range(min = 1, max = MOST_FAULTS)))]
    pub nth: Option<u64>,
    /// Number of statements, commits or connections that the fault hits, starting at `nth`. The default is 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    #[cfg_attr(test, schemars(range(min = 1, max = MOST_FAULTS)))]
    pub times: Option<u64>,
    /// How long new connections fail after `failover` or the SQLSTATE `57P03`, with a unit, such as `2s`. By default, the
    /// next `times` connections fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(regex(pattern = TIME)))]
    pub duration: Option<String>,
    /// How long transactions are read-only after a `failover`, with a unit: `2s`. By default, they are never read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(regex(pattern = TIME)))]
    pub read_only: Option<String>,
}

/// Faults of a leased database, in the order that clients requested them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FaultList {
    /// All faults since the lease began or was reset.
    pub faults: Vec<FaultDescription>,
    /// Descriptions of the faults that haven't fired yet. If the test ends now, it must fail.
    pub unfired_faults: Vec<String>,
}

/// A fault of a leased database, with the statements that the fault hit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FaultDescription {
    /// Number of the fault within the lease, counted from 1.
    pub number: u64,
    /// Description of the fault: `40001 at commit`.
    pub fault: String,
    /// Number of times that the fault should fire.
    pub times: u64,
    /// Number of times that the fault has fired.
    pub fired: u64,
    /// Number of statements, commits or connections that the fault counted, including those that it hit.
    pub candidates: u64,
    /// Statements that the fault hit, in order: at most 100, each with at most 1023 bytes.
    pub statements: Vec<String>,
}
