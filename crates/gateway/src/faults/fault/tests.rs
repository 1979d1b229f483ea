use std::cell::RefCell;
use std::collections::HashMap;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::*;

thread_local! {
    /// Compiled regular expressions of the schema's patterns.
    static PATTERNS: RefCell<HashMap<String, Regex>> = RefCell::default();
}

fn matches(pattern: &str, text: &str) -> bool {
    PATTERNS.with_borrow_mut(|known| {
        let regex = known.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).unwrap());
        regex.is_match(text)
    })
}

/// Returns true if `value` satisfies `schema`. Supports only the keywords in the fault schema.
fn fits(schema: &Value, value: &Value) -> bool {
    let Value::Object(keywords) = schema else { panic!("no schema: {schema}") };
    let fits_keyword = |(keyword, rule): (&String, &Value)| match keyword.as_str() {
        "anyOf" => rule.as_array().unwrap().iter().any(|one| fits(one, value)),
        "not" => !fits(rule, value),
        "const" => rule == value,
        "enum" => rule.as_array().unwrap().contains(value),
        "type" => match rule {
            Value::Array(types) => types.iter().any(|one| has_type(one, value)),
            one => has_type(one, value),
        },
        "required" => rule.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some()),
        "properties" => {
            let rules = rule.as_object().unwrap();
            rules.iter().all(|(name, rule)| value.get(name).is_none_or(|member| fits(rule, member)))
        }
        "pattern" => value.as_str().is_none_or(|text| matches(rule.as_str().unwrap(), text)),
        "minimum" => value.as_u64().is_none_or(|number| number >= rule.as_u64().unwrap()),
        "maximum" => value.as_u64().is_none_or(|number| number <= rule.as_u64().unwrap()),
        "additionalProperties" | "description" | "format" | "title" => true,
        other => panic!("the test does not know {other}"),
    };
    keywords.iter().all(fits_keyword)
}

fn has_type(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "object" => value.is_object(),
        other => panic!("the test does not know the type {other}"),
    }
}

/// Returns all combinations of the given values. `None` leaves a member out.
fn combinations(members: &[(&str, Vec<Option<Value>>)]) -> Vec<Map<String, Value>> {
    let Some(((name, values), rest)) = members.split_first() else { return vec![Map::new()] };
    let rest = combinations(rest);
    let with = |value: &Option<Value>| {
        let add = |mut fault: Map<String, Value>| {
            fault.extend(value.clone().map(|value| ((*name).to_owned(), value)));
            fault
        };
        rest.iter().cloned().map(add).collect::<Vec<_>>()
    };
    values.iter().flat_map(with).collect()
}

/// Returns `None` and each of `values`.
fn or_none(values: &[Value]) -> Vec<Option<Value>> {
    std::iter::once(None).chain(values.iter().cloned().map(Some)).collect()
}

#[test]
fn schema_allows_what_the_gateway_accepts() {
    let document: Value = serde_json::from_str(contract::OPENAPI).unwrap();
    let schema = &document["components"]["schemas"]["FaultRequest"];
    let errors = [
        "failover", "Failover", "40001", "XX000", "03000", "57P01", "57P02", "57P03", "57P05", "25P03",
        "25P04", "53300", "00000", "01000", "02000", "4000", "40p01", "",
    ];
    let effects = errors
        .map(|error| ("error", json!(error)))
        .into_iter()
        .chain(["reset", "silent", "lost"].map(|loss| ("connection", json!(loss))))
        .chain(["2s", "0", "5 min", "5", "soon"].map(|time| ("delay", json!(time))))
        .chain(["10kB", "1 MB", "007B", "0B", "10", "fast"].map(|rate| ("bandwidth", json!(rate))));
    let moments = FaultMoment::ALL.map(|moment| json!(moment.name()));
    let members = [
        ("at", or_none(&[&moments[..], &[Value::Null, json!("At commit")]].concat())),
        ("statement", or_none(&[json!("SELECT"), json!(" ")])),
        ("nth", or_none(&[json!(0), json!(1), json!(2)])),
        ("times", or_none(&[json!(MOST_FAULTS + 1)])),
        ("duration", or_none(&[json!("1s")])),
        ("read_only", or_none(&[json!("1s")])),
        ("connection", or_none(&[json!("reset")])),
    ];
    let combinations = combinations(&members);
    let (mut accepted, mut refused) = (0, 0);
    for (name, value) in effects {
        for members in &combinations {
            let mut request = members.clone();
            request.insert(name.to_owned(), value.clone());
            let request = Value::Object(request);
            let read: Result<FaultRequest, _> = serde_json::from_value(request.clone());
            let fault = read.map_err(|error| error.to_string());
            let fault = fault.and_then(|read| Fault::try_from(read).map_err(|error| error.what));
            assert_eq!(fits(schema, &request), fault.is_ok(), "{request}: {fault:?}");
            if fault.is_ok() { accepted += 1 } else { refused += 1 }
        }
    }
    assert!(accepted > 1000 && refused > 1000, "{accepted} {refused}");
}

#[test]
fn wrong_values_have_a_reason_and_maximum() {
    let of = |edit: fn(&mut FaultRequest)| {
        let mut request = FaultRequest::default();
        edit(&mut request);
        let error = Fault::try_from(request).unwrap_err();
        format!("{}. {}", error.what, error.hint)
    };
    let delay = of(|fault| fault.delay = Some("99999h".to_owned()));
    assert!(delay.ends_with("The maximum is \"8784h\"."), "{delay}");
    let bandwidth = of(|fault| fault.bandwidth = Some("1000000000000MB".to_owned()));
    assert!(bandwidth.ends_with("The maximum is \"999999999999MB\"."), "{bandwidth}");
    let statement = of(|fault| {
        (fault.error, fault.statement) = (Some("40001".to_owned()), Some("/* all */".to_owned()));
    });
    assert!(statement.starts_with("\"statement\" is empty."), "{statement}");
}
