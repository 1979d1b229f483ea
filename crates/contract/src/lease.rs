//! Defines the requests and responses that begin, reset and end leases.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::ExecutedStatement;
#[cfg(test)]
use crate::openapi::{LAG, MOST, NAME, TEMPLATE, TIME, reserved_leases, reserved_templates};

/// Request for a lease. Without a body, pgfresh leases a copy of the default template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// Template of the database. The default is the template with the same name as `name`, or otherwise the first
    /// template.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(regex(pattern = NAME)))]
    pub template: Option<String>,
    /// Name of the database. pgfresh truncates it to 63 bytes, as PostgreSQL does. The default is a new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(regex(pattern = NAME), extend("not" = reserved_leases())))]
    pub name: Option<String>,
    /// `clone`, `rollback` or `server`. The default is the server's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(extend("enum" = ["clone", "rollback", "server", null])))]
    pub isolation: Option<String>,
    /// Holder of the lease. The lease ends when the holder's `GET /v1/hold` request ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Whether pgfresh records the statements of the lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub record: bool,
}

/// A leased database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeaseResponse {
    /// Name of the database, unique on its server.
    pub name: String,
    /// URL for drivers that read libpq's URLs, over TCP.
    pub url: String,
    /// URL for JDBC drivers.
    pub jdbc_url: String,
    /// URL with the server's unix socket, without a password.
    pub socket_url: String,
    /// URL of the database's replica. Missing unless the template has a replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_url: Option<String>,
    /// Name of the template that the database is a copy of.
    pub template: String,
    /// Whether pgfresh records the lease's statements. Missing if it doesn't.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recorded: bool,
}

/// Description of a leased or kept database, without a way to connect to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatabaseDescription {
    /// Name of the database.
    pub name: String,
    /// Template of the lease. Missing if the database isn't a lease of this server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Number of open sessions. Missing if the database isn't a lease of this server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<usize>,
    /// Age of the lease. Missing if the database isn't a lease of this server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// The last statements, newest last. Missing unless pgfresh keeps the databases of failed tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statements: Option<Vec<ExecutedStatement>>,
}

/// Request for a reset. All members except `close_sessions` describe the test that has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ResetRequest {
    /// Whether pgfresh closes open sessions. Otherwise, they cause an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub close_sessions: bool,
    /// Name of the test. pgfresh uses the first 1000 characters. The name can be empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<String>,
    /// Maximum number of statements in the test.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    #[cfg_attr(test, schemars(range(max = MOST)))]
    pub statements: Option<u64>,
    /// Maximum number of times that one query can run with different values.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    #[cfg_attr(test, schemars(range(max = MOST)))]
    pub n_plus_one: Option<u64>,
    /// Maximum total time of all statements, with a unit: `200ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(regex(pattern = TIME)))]
    pub time: Option<String>,
}

/// Request to make the replica lag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReplicaRequest {
    /// The lag: `none`, `paused`, or the delay before a commit becomes visible, with a unit: `500ms`.
    #[cfg_attr(test, schemars(regex(pattern = LAG)))]
    pub lag: String,
}

/// Request to make a template from a database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SnapshotRequest {
    /// Name of the new template: at most 46 letters, digits, `_` and `-`, but not `none`.
    #[cfg_attr(test, schemars(regex(pattern = TEMPLATE), extend("not" = reserved_templates())))]
    pub template: String,
    /// Whether pgfresh closes open sessions. Otherwise, they cause an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub close_sessions: bool,
}

/// A new template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SnapshotResponse {
    /// Name of the template.
    pub template: String,
}

/// First line of the response to `GET /v1/hold`. The response then stays open until the client closes the connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HoldResponse {
    /// Name of the holder, for the member `holder` of a lease request.
    pub holder: String,
}

/// A nonnegative whole number. In JSON, `5.0` equals `5`, and some languages write it that way.
struct Whole(u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct WholeVisitor;
        impl Visitor<'_> for WholeVisitor {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of at least 0")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
                // From 2^53 on, a float can't represent every whole number, so reject larger ones.
                let text = (0.0..9_007_199_254_740_992.0).contains(&number).then(|| number.to_string());
                let whole = text.and_then(|text| text.parse().ok());
                whole.map(Whole).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Float(number), &self))
            }
        }
        from.deserialize_any(WholeVisitor)
    }
}

/// Parses a nonnegative whole number, in any JSON notation.
pub(crate) fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Whole>::deserialize(from)?.map(|Whole(number)| number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_whole_numbers_in_any_notation() {
        let limit = |text: &str| {
            let body = format!("{{\"statements\": {text}}}");
            serde_json::from_str(&body).ok().map(|request: ResetRequest| request.statements)
        };
        for (text, expected) in [
            ("5", Some(Some(5))),
            ("5.0", Some(Some(5))),
            ("5e1", Some(Some(50))),
            ("null", Some(None)),
            ("18446744073709551615", Some(Some(u64::MAX))),
            ("5.5", None),
            ("-1", None),
            ("-1.0", None),
            ("1e300", None),
            ("\"5\"", None),
        ] {
            assert_eq!(limit(text), expected, "{text}");
        }
        assert_eq!(serde_json::from_str::<ResetRequest>("{}").unwrap(), ResetRequest::default());
    }
}
