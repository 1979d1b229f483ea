//! Defines the schema of `pgfresh.toml`: its tables, their keys, and the values of the keys.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lease::Isolation;
use remote::RemoteAddress;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use server::{Preset, VersionRequest};
use storage::{PlaceRequest, TrustedKey};
use template::Steps;
use toml::Spanned;

use super::remote::PushPolicy;

/// All tables with their keys. The keys are the fields of the table's structure.
pub(crate) const TABLES: [(&str, &[&str]); 7] = [
    ("postgres", &["version", "settings", "preset", "place", "space"]),
    ("template", &["setup", "inputs", "sql", "dump", "from", "env", "steps"]),
    ("database", &["isolation", "linger"]),
    ("databases", &["names", "except"]),
    ("budget", &["statements", "n_plus_one", "time"]),
    ("server", &["idle"]),
    ("cache", &["size", "keys", "remote", "push"]),
];

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PostgresTable {
    #[serde(deserialize_with = "version")]
    pub(super) version: Option<VersionRequest>,
    #[serde(deserialize_with = "in_order")]
    pub(super) settings: Vec<(String, Scalar)>,
    #[serde(deserialize_with = "parsed")]
    pub(super) preset: Option<Preset>,
    #[serde(deserialize_with = "parsed")]
    pub(super) place: Option<PlaceRequest>,
    #[serde(deserialize_with = "size")]
    pub(super) space: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TemplateTable {
    pub(super) setup: Option<String>,
    #[serde(deserialize_with = "texts")]
    pub(super) inputs: Vec<String>,
    #[serde(deserialize_with = "texts")]
    pub(super) sql: Vec<String>,
    pub(super) dump: Option<String>,
    pub(super) from: Option<Spanned<String>>,
    #[serde(deserialize_with = "texts")]
    pub(super) env: Vec<String>,
    #[serde(deserialize_with = "parsed")]
    pub(super) steps: Option<Steps>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DatabaseTable {
    #[serde(deserialize_with = "parsed")]
    pub(super) isolation: Option<Isolation>,
    #[serde(deserialize_with = "time")]
    pub(super) linger: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DatabasesTable {
    #[serde(deserialize_with = "texts")]
    pub(super) names: Vec<String>,
    #[serde(deserialize_with = "texts")]
    pub(super) except: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct BudgetTable {
    #[serde(deserialize_with = "count")]
    pub(super) statements: Option<u64>,
    #[serde(deserialize_with = "count")]
    pub(super) n_plus_one: Option<u64>,
    #[serde(deserialize_with = "time")]
    pub(super) time: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServerTable {
    #[serde(deserialize_with = "time")]
    pub(super) idle: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CacheTable {
    #[serde(deserialize_with = "size")]
    pub(super) size: Option<u64>,
    #[serde(deserialize_with = "keys")]
    pub(super) keys: Vec<TrustedKey>,
    #[serde(deserialize_with = "parsed")]
    pub(super) remote: Option<RemoteAddress>,
    #[serde(deserialize_with = "parsed")]
    pub(super) push: Option<PushPolicy>,
}

/// A value that consists of one word.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string, a number, true or false")]
pub(super) enum Scalar {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
}

impl Scalar {
    /// Converts the value to text that the server can read. The server accepts true and false for on and off.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Boolean(value) => if value { "on" } else { "off" }.to_owned(),
        }
    }
}

/// One or several strings.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string or an array of strings")]
enum Texts {
    One(String),
    Several(Vec<String>),
}

fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Texts::deserialize(from).map(|texts| match texts {
        Texts::One(text) => vec![text],
        Texts::Several(texts) => texts,
    })
}

/// Reads names and values in their order. If a name occurs several times, its last value counts. As in postgresql.conf,
/// names ignore case.
fn in_order<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, Scalar)>, D::Error> {
    struct InOrder;
    impl<'de> Visitor<'de> for InOrder {
        type Value = Vec<(String, Scalar)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            std::iter::from_fn(|| map.next_entry().transpose()).collect()
        }
    }
    from.deserialize_map(InOrder)
}

fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(from: D) -> Result<Option<T>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
}

fn version<'de, D: Deserializer<'de>>(from: D) -> Result<Option<VersionRequest>, D::Error> {
    Scalar::deserialize(from)?.into_text().parse().map(Some).map_err(D::Error::custom)
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    with_unit(from, gateway::parse_span, "expected a time such as \"5s\"", "s")
}

fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    u64::deserialize(from).map(Some).map_err(|_| D::Error::custom("expected a number from 0 on"))
}

fn keys<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<TrustedKey>, D::Error> {
    texts(from)?.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    with_unit(from, storage::parse_bytes, "expected a size such as \"10GB\"", "MB")
}

/// Reads a value with a unit. For a number without a unit, the error has a hint on a second line.
fn with_unit<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl Fn(&str) -> Option<T>,
    expected: &str,
    unit: &str,
) -> Result<Option<T>, D::Error> {
    let text = Scalar::deserialize(from).map(Scalar::into_text).unwrap_or_default();
    let hint = text.parse::<u64>().map(|_| format!("\nA number needs its unit, as in \"{text}{unit}\"."));
    parse(&text).map(Some).ok_or_else(|| D::Error::custom(expected.to_owned() + &hint.unwrap_or_default()))
}
