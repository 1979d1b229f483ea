//! Defines the schema of `pgfresh.toml`: its tables, their keys, and the value types.

use lease::Isolation;
use remote::RemoteAddress;
use serde::de::value::Error as NoValue;
use serde::de::{DeserializeOwned, Deserializer, Error, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use server::Preset;
use storage::PlaceRequest;
use template::Steps;
use toml::Spanned;

use super::remote::PushPolicy;
use super::values::{Count, Parsed, Replicas, ServerSettings, Size, Span, Strings, TrustedKeys, Version};

/// Keys of a table.
pub(crate) type Keys = &'static [&'static str];

/// Returns all tables with their keys.
pub(crate) fn tables() -> [(&'static str, Keys); 9] {
    [
        ("postgres", keys_of::<PostgresTable>()),
        ("template", keys_of::<TemplateTable>()),
        ("database", keys_of::<DatabaseTable>()),
        ("databases", keys_of::<DatabasesTable>()),
        ("budget", keys_of::<BudgetTable>()),
        ("server", keys_of::<ServerTable>()),
        ("cache", keys_of::<CacheTable>()),
        ("plans", keys_of::<PlansTable>()),
        ("migrate", keys_of::<MigrateTable>()),
    ]
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PostgresTable {
    pub(super) version: Option<Version>,
    pub(super) settings: ServerSettings,
    pub(super) preset: Option<Parsed<Preset>>,
    pub(super) place: Option<Parsed<PlaceRequest>>,
    pub(super) space: Option<Size>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TemplateTable {
    pub(super) prepare: Option<String>,
    pub(super) setup: Option<String>,
    pub(super) inputs: Strings,
    pub(super) sql: Strings,
    pub(super) dump: Option<String>,
    pub(super) from: Option<Spanned<String>>,
    pub(super) env: Strings,
    pub(super) steps: Option<Parsed<Steps>>,
    pub(super) replicas: Option<Replicas>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DatabaseTable {
    pub(super) isolation: Option<Parsed<Isolation>>,
    pub(super) linger: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DatabasesTable {
    pub(super) names: Strings,
    pub(super) except: Strings,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct BudgetTable {
    pub(super) statements: Option<Count>,
    pub(super) n_plus_one: Option<Count>,
    pub(super) time: Option<Span>,
    pub(super) plan_cost: Option<Count>,
    pub(super) no_seq_scan_over: Option<Size>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServerTable {
    pub(super) idle: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CacheTable {
    pub(super) size: Option<Size>,
    pub(super) keys: TrustedKeys,
    pub(super) remote: Option<Parsed<RemoteAddress>>,
    pub(super) push: Option<PushPolicy>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PlansTable {
    pub(super) statistics: Option<String>,
    pub(super) baseline: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MigrateTable {
    pub(super) access_exclusive: Option<Span>,
    pub(super) share: Option<Span>,
    pub(super) lock_timeout: Option<Span>,
    pub(super) rewrites: Option<Count>,
    pub(super) broken_statements: Option<Count>,
    pub(super) data: Option<String>,
    pub(super) allow: Vec<AllowTable>,
}

/// An exception in `[[migrate.allow]]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AllowTable {
    pub(super) statement: Option<String>,
    pub(super) migration: Option<String>,
    pub(super) reason: Option<String>,
}

/// Returns a table's keys, which are the field names of `T`.
pub(super) fn keys_of<T: DeserializeOwned>() -> Keys {
    let mut keys: Keys = &[];
    let read = T::deserialize(FieldRecorder(&mut keys));
    debug_assert!(read.is_err(), "the recorder has no value");
    keys
}

/// A deserializer that doesn't provide values and only records which fields a struct requests.
struct FieldRecorder<'a>(&'a mut Keys);

impl<'de> Deserializer<'de> for FieldRecorder<'_> {
    type Error = NoValue;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        Err(NoValue::custom("there is no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: Keys,
        visitor: V,
    ) -> Result<V::Value, NoValue> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_table_are_its_fields() {
        assert_eq!(keys_of::<PostgresTable>(), ["version", "settings", "preset", "place", "space"]);
        assert!(tables().iter().all(|(_, keys)| !keys.is_empty()));
    }
}
