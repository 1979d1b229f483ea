//! Schema of a fault: which of its members go together.

use serde_json::{Map, Value, json};

/// Pattern of a number of bytes per second with its unit.
pub(crate) const BANDWIDTH: &str = "^0*[1-9][0-9]{0,11} ?(B|kB|MB)$";
/// Pattern of a text that is not blank.
pub(crate) const TEXT: &str = r"\S";
/// Largest number for `nth` and `times`.
pub(crate) const MOST_FAULTS: u64 = 1_000_000;

/// Moments at which the server can report an error. `null` stands for `before statement`.
const OF_ERRORS: [Option<&str>; 6] = [
    None,
    Some("commit"),
    Some("before statement"),
    Some("after statement"),
    Some("before commit"),
    Some("connect"),
];

/// Returns the schema of a connection with a statement, which no fault can have.
pub(crate) fn connection_with_statement() -> Value {
    json!({
        "required": ["at", "statement"],
        "properties": { "at": { "const": "connect" }, "statement": { "type": "string" } }
    })
}

/// Returns one schema for each effect. A member that the effect excludes may be `null`.
pub(crate) fn effects() -> Value {
    let at_any = [&OF_ERRORS[..], &[Some("during statement"), Some("after commit")]].concat();
    let sqlstate = json!({
        "type": "string",
        "pattern": "^(0[3-9A-Z]|[1-9A-Z][0-9A-Z])[0-9A-Z]{3}$",
        "not": { "enum": ["57P01", "57P02", "57P03", "53300"] }
    });
    json!([
        // Without `at`, a failover happens at a connection, which has no statement.
        effect("error", json!({ "const": "failover" }), &at_any, &["duration", "read_only"]),
        effect(
            "error",
            json!({ "const": "failover" }),
            &at_any[1..],
            &["duration", "read_only", "statement"]
        ),
        effect("error", json!({ "const": "57P03" }), &at_any, &["duration", "statement"]),
        effect("error", json!({ "enum": ["57P01", "57P02", "53300"] }), &at_any, &["statement"]),
        effect("error", sqlstate, &OF_ERRORS, &["statement"]),
        effect("connection", json!({ "enum": ["reset", "silent"] }), &at_any, &["statement"]),
        effect("delay", json!({ "type": "string" }), &at_any, &["statement"]),
        effect("bandwidth", json!({ "type": "string" }), &at_any, &["statement"]),
    ])
}

/// Returns the schema of an effect: its member and value, its moments, and the further members that it can have.
fn effect(name: &str, value: Value, moments: &[Option<&str>], more: &[&str]) -> Value {
    let all = ["error", "connection", "delay", "bandwidth", "duration", "read_only", "statement"];
    let excluded = all.iter().filter(|other| **other != name && !more.contains(other));
    let mut members: Map<_, _> =
        excluded.map(|other| ((*other).to_owned(), json!({ "type": "null" }))).collect();
    members.insert("at".to_owned(), json!({ "enum": moments }));
    members.insert(name.to_owned(), value);
    let required = if moments.contains(&None) { vec![name] } else { vec![name, "at"] };
    json!({ "required": required, "properties": members })
}
