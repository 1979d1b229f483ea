//! Generates the JSON schema of a fault request, which shows the valid combinations of members.

use serde_json::{Map, Value, json};

use crate::{FaultKind, FaultMoment};

/// Pattern for a number of bytes per second with a unit.
pub(crate) const BANDWIDTH: &str = "^0*[1-9][0-9]{0,11} ?(B|kB|MB)$";
/// Pattern for a text that isn't only white space.
pub(crate) const TEXT: &str = r"\S";

/// Members that name the effect of a fault. Each request has exactly one of them.
const EFFECTS: [&str; 4] = ["error", "connection", "delay", "bandwidth"];

/// Returns two schemas for each kind of fault: one for the moment `connect`, and one for all other moments. A member
/// that a fault can't have must be `null` or missing.
pub(crate) fn effects() -> Value {
    let (connect, others): (Vec<_>, Vec<_>) =
        FaultMoment::ALL.into_iter().partition(|moment| *moment == FaultMoment::Connect);
    let of_kind = |kind| [effect(kind, &others), effect(kind, &connect)];
    FaultKind::ALL.into_iter().flat_map(of_kind).collect()
}

/// Returns the schema for a kind of fault at `moments`. A member is allowed if the fault can have it at all of these
/// moments.
fn effect(kind: FaultKind, moments: &[FaultMoment]) -> Value {
    let (name, value) = kind.effect();
    let has_statement = moments.iter().all(|moment| moment.has_statement());
    let has_nth = moments.iter().all(|moment| kind.has_nth_at(*moment));
    let further = [
        ("duration", kind.has_duration()),
        ("read_only", kind.has_read_only()),
        ("statement", has_statement),
    ];
    let excluded = EFFECTS.map(|other| (other, other == name)).into_iter().chain(further);
    let excluded = excluded.filter(|(_, is_possible)| !is_possible);
    let mut members: Map<_, _> =
        excluded.map(|(other, _)| (other.to_owned(), json!({ "type": "null" }))).collect();
    if !has_nth {
        members.insert("nth".to_owned(), json!({ "enum": [null, 1] }));
    }
    let possible = moments.iter().filter(|moment| kind.is_possible_at(**moment));
    let is_default = moments.contains(&kind.default_moment());
    let names =
        is_default.then_some(Value::Null).into_iter().chain(possible.map(|moment| moment.name().into()));
    members.insert("at".to_owned(), json!({ "enum": names.collect::<Vec<_>>() }));
    members.insert(name.to_owned(), value);
    let required = if is_default { vec![name] } else { vec![name, "at"] };
    json!({ "required": required, "properties": members })
}
