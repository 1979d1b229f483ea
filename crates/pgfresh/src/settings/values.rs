//! Types for the values in `pgfresh.toml`. Each type parses its own notation and describes that notation in its errors.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use server::VersionRequest;
use storage::TrustedKey;

/// A string, a number or a Boolean.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string, a number, true or false")]
pub(super) enum Scalar {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
}

impl Scalar {
    /// Converts the value to text for the server. Booleans become on and off.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Boolean(value) => if value { "on" } else { "off" }.to_owned(),
        }
    }
}

/// A list of strings, written as one string or an array.
#[derive(Debug, Default)]
pub(super) struct Strings(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a string or an array of strings")]
        enum OneOrSeveral {
            One(String),
            Several(Vec<String>),
        }
        OneOrSeveral::deserialize(from).map(|strings| match strings {
            OneOrSeveral::One(string) => Self(vec![string]),
            OneOrSeveral::Several(strings) => Self(strings),
        })
    }
}

/// Trusted keys, written as one string or an array of strings.
#[derive(Debug, Default)]
pub(super) struct TrustedKeys(pub(super) Vec<TrustedKey>);

impl<'de> Deserialize<'de> for TrustedKeys {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Strings(strings) = Strings::deserialize(from)?;
        strings.iter().map(|text| text.parse().map_err(D::Error::custom)).collect::<Result<_, _>>().map(Self)
    }
}

/// Names and values of server settings, in file order. If a name occurs more than once, the last value wins. As in
/// postgresql.conf, names are case-insensitive.
#[derive(Debug, Default)]
pub(super) struct ServerSettings(pub(super) Vec<(String, Scalar)>);

impl<'de> Deserialize<'de> for ServerSettings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = ServerSettings;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                std::iter::from_fn(|| map.next_entry().transpose())
                    .collect::<Result<_, _>>()
                    .map(ServerSettings)
            }
        }
        from.deserialize_map(InOrder)
    }
}

/// A value written as text, such as one of a few words, and parsed as a `T`.
#[derive(Debug)]
pub(super) struct Parsed<T>(pub(super) T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// A requested PostgreSQL version. The file can contain a major version as a number.
#[derive(Debug)]
pub(super) struct Version(pub(super) VersionRequest);

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Scalar::deserialize(from)?.into_text().parse().map(Self).map_err(D::Error::custom)
    }
}

/// A nonnegative integer.
#[derive(Debug)]
pub(super) struct Count(pub(super) u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        u64::deserialize(from).map(Self).map_err(|_| D::Error::custom("expected a number of at least 0"))
    }
}

/// Number of replicas, 0 or 1. The field is true for 1.
#[derive(Debug)]
pub(super) struct Replicas(pub(super) bool);

impl<'de> Deserialize<'de> for Replicas {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match u64::deserialize(from) {
            Ok(count @ (0 | 1)) => Ok(Self(count == 1)),
            _ => Err(D::Error::custom("expected 0 or 1")),
        }
    }
}

/// A time, written as a number with a unit.
#[derive(Debug)]
pub(super) struct Span(pub(super) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        with_unit(from, gateway::parse_span, "expected a time such as \"5s\"", "s").map(Self)
    }
}

/// A size in bytes, written as a number with a unit.
#[derive(Debug)]
pub(super) struct Size(pub(super) u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        with_unit(from, storage::parse_bytes, "expected a size such as \"10GB\"", "MB").map(Self)
    }
}

/// Reads a number with a unit. If the unit is missing, the second line of the error is a hint.
fn with_unit<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl Fn(&str) -> Option<T>,
    expected: &str,
    unit: &str,
) -> Result<T, D::Error> {
    let text = Scalar::deserialize(from).map(Scalar::into_text).unwrap_or_default();
    let hint = text.parse::<u64>().map(|_| format!("\nA number needs its unit, as in \"{text}{unit}\"."));
    parse(&text).ok_or_else(|| D::Error::custom(expected.to_owned() + &hint.unwrap_or_default()))
}
