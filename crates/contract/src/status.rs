//! Defines the status of the server.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Current status of the server. Counts start when the server starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StatusResponse {
    /// Version of pgfresh.
    pub version: String,
    /// Time since the server started.
    pub uptime_seconds: f64,
    /// Templates that the server copies.
    pub templates: Vec<TemplateEntry>,
    /// Leased databases.
    pub leases: Vec<LeaseEntry>,
    /// Copies made from templates.
    pub created: WorkTotal,
    /// Databases that pgfresh returned to their template's state.
    pub recycled: WorkTotal,
    /// Number of databases that pgfresh dropped and copied again instead, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Number of sessions.
    pub sessions: SessionCounts,
    /// Recycled databases that differ from their template. Each one is a bug in pgfresh.
    pub differences: Vec<DifferenceEntry>,
    /// Changes to state that all databases share.
    pub leaks: Vec<LeakEntry>,
    /// Number of failed background tasks, by task.
    pub errors: BTreeMap<String, u64>,
    /// Databases of failed tests.
    pub kept: Vec<KeptEntry>,
}

/// A template that the server copies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TemplateEntry {
    /// Name of the template.
    pub name: String,
    /// Number of copies that are ready for clients.
    pub ready: usize,
}

/// A leased database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeaseEntry {
    /// Name of the database.
    pub database: String,
    /// Name of its template.
    pub template: String,
    /// Number of open sessions.
    pub sessions: usize,
    /// Age of the lease.
    pub age_seconds: f64,
}

/// Total of one kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorkTotal {
    /// Number of databases.
    pub count: u64,
    /// Total time.
    pub seconds: f64,
}

/// Number of sessions, by the kind of backend that they began with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SessionCounts {
    /// Number of sessions that began with an existing backend.
    pub warm: u64,
    /// Number of sessions that began with a new backend.
    pub cold: u64,
}

/// A recycled database that differs from its template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DifferenceEntry {
    /// Name of the database during its last lease.
    pub database: String,
    /// First relation that differs.
    pub relation: String,
}

/// A change to state that all databases share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeakEntry {
    /// Kind of the state, for example "roles".
    pub what: String,
    /// Databases that might have made the changes, at most 100. At least one of them made each change.
    pub suspects: Vec<String>,
    /// Number of changes.
    pub count: u64,
}

/// A kept database of a failed test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeptEntry {
    /// Name of the database.
    pub database: String,
    /// Name of the test.
    pub test: String,
}
