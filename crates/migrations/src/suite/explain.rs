//! Explains statements in a session, and reads which locks this took.

use std::time::Duration;

use plans::{BoundStatement, BoundValue, count_parameters, run_bound};
use serde_json::Value;
use server::{AdminConnection, SessionError, literal};

use super::copy::in_place_of_copy;
use crate::LockMode;

/// Maximum time for planning a statement.
const LIMIT: Duration = Duration::from_secs(5);
/// Number of statements whose planning may exceed [`LIMIT`]. After that, pgfresh doesn't explain any more statements.
const MOST_SLOW: u32 = 10;
/// Lowest object identifier of a relation that initdb didn't create, `FirstNormalObjectId`.
const FIRST_OF_USERS: u32 = 16_384;
/// SQLSTATEs for a binary value that doesn't fit the parameter's type.
const WRONG_BINARY: [&str; 3] = ["22P03", "08P01", "22021"];

/// Reason why pgfresh can't examine the statements of a suite.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// The session that explains statements failed.
    #[error("could not explain them")]
    Session(#[from] SessionError),
    /// The server's response to EXPLAIN isn't a plan.
    #[error("got no plan from the server")]
    NoPlan(#[from] serde_json::Error),
}

/// A statement's plans, and the locks that its transaction held after EXPLAIN.
pub(super) struct Explained {
    /// Topmost plan nodes. Because of rules, a statement can have several plans or none.
    pub(super) plans: Vec<Value>,
    /// Object identifiers of locked user relations, with the lock modes.
    pub(super) locks: Vec<(u32, LockMode)>,
}

/// PostgreSQL's error message for a statement that it can't explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) String);

/// A session that explains statements.
pub(super) struct Explainer<'a> {
    connection: &'a mut AdminConnection,
    slow: u32,
}

impl<'a> Explainer<'a> {
    pub(super) fn new(connection: &'a mut AdminConnection) -> Self {
        Self { connection, slow: 0 }
    }

    pub(super) fn connection(&mut self) -> &mut AdminConnection {
        self.connection
    }

    /// Explains a statement in its own transaction and rolls back. PostgreSQL executes only functions that it may
    /// evaluate during planning.
    pub(super) fn explain(
        &mut self,
        statement: &BoundStatement,
    ) -> Result<Result<Explained, Refusal>, SuiteError> {
        if self.slow >= MOST_SLOW {
            return Ok(Err(Refusal("the statements before it took too long to plan".to_owned())));
        }
        let values = values(statement);
        let mut result = self.attempt(statement, &values)?;
        if let Err(error) = &result
            && let SessionError::Server { sqlstate, .. } = error
            && WRONG_BINARY.contains(&sqlstate.as_str())
        {
            // A driver encodes binary values for the types that the server reports. Here the types differ, so replace
            // these values by NULL.
            let is_undeclared = |value: &BoundValue| value.type_oid == 0 && value.format != 0;
            let without = values.into_iter().map(|value| if is_undeclared(&value) { null() } else { value });
            result = self.attempt(statement, &without.collect::<Vec<_>>())?;
        }
        result.map_or_else(|error| self.refuse(error).map(Err), |explained| Ok(Ok(explained)))
    }

    /// Explains a statement once. An outer error means that the session failed.
    fn attempt(
        &mut self,
        statement: &BoundStatement,
        values: &[BoundValue],
    ) -> Result<Result<Explained, SessionError>, SuiteError> {
        let mut begin = "BEGIN;".to_owned();
        for (name, value) in &statement.settings {
            begin += &format!("SELECT pg_catalog.set_config({}, {}, true);", literal(name), literal(value));
        }
        begin += &format!("SET LOCAL statement_timeout = {}; SET TRANSACTION READ ONLY", LIMIT.as_millis());
        let text = in_place_of_copy(&statement.text);
        let sql = format!("EXPLAIN (VERBOSE, FORMAT JSON) {}", text.as_deref().unwrap_or(&statement.text));
        let lines = self.connection.query(&begin).and_then(|_| run_bound(self.connection, &sql, values));
        let answer = match lines {
            Ok(lines) => {
                let plans = serde_json::from_str::<Vec<Value>>(&lines.concat())?;
                let plans: Vec<_> =
                    plans.into_iter().filter_map(|mut one| Some(one.get_mut("Plan")?.take())).collect();
                self.locks(&plans).map(|locks| Explained { plans, locks })
            }
            Err(error) => Err(error),
        };
        match answer {
            Err(error) if error.is_fatal() => Err(error.into()),
            answer => {
                self.connection.query("ROLLBACK")?;
                Ok(answer)
            }
        }
    }

    /// Returns the locks that the transaction holds, and those that `nextval` would take on the sequences in the plans.
    fn locks(&mut self, plans: &[Value]) -> Result<Vec<(u32, LockMode)>, SessionError> {
        let mut sql = format!(
            "SELECT relation, mode FROM pg_catalog.pg_locks WHERE locktype = 'relation' \
             AND pid = pg_catalog.pg_backend_pid() AND relation >= {FIRST_OF_USERS}"
        );
        for sequence in sequences(plans) {
            let name = literal(&sequence);
            sql += &format!(
                " UNION ALL SELECT pg_catalog.to_regclass({name})::pg_catalog.oid, 'RowExclusiveLock'"
            );
        }
        let rows = self.connection.query(&sql)?;
        let lock = |row: Vec<Option<String>>| {
            let [relation, mode] = <[_; 2]>::try_from(row).ok()?;
            Some((relation?.parse().ok()?, LockMode::from_catalog(&mode?)?))
        };
        Ok(rows.into_iter().filter_map(lock).collect())
    }

    fn refuse(&mut self, error: SessionError) -> Result<Refusal, SuiteError> {
        match error {
            SessionError::Server { sqlstate, .. } if sqlstate == "57014" => {
                self.slow += 1;
                Ok(Refusal(format!("its planning takes longer than {} s", LIMIT.as_secs())))
            }
            SessionError::Server { message, .. } => Ok(Refusal(message)),
            error @ SessionError::Io { .. } => Err(error.into()),
        }
    }
}

/// Returns a value for each parameter. The object identifier of a user-defined type can mean a different type on this
/// server, so the server determines these types itself.
fn values(statement: &BoundStatement) -> Vec<BoundValue> {
    let known = statement.parameters.iter().cloned().map(|value| {
        let type_oid = if value.type_oid < FIRST_OF_USERS { value.type_oid } else { 0 };
        BoundValue { type_oid, ..value }
    });
    let missing = count_parameters(&statement.text).saturating_sub(statement.parameters.len());
    known.chain((0..missing).map(|_| null())).collect()
}

fn null() -> BoundValue {
    BoundValue { type_oid: 0, format: 0, value: None }
}

/// Returns the sequence names in all `nextval` calls of the plans.
fn sequences(plans: &[Value]) -> Vec<String> {
    let mut names = Vec::new();
    for plan in plans {
        visit_texts(plan, &mut |text| {
            for (at, start) in text.match_indices("nextval('") {
                let rest = &text[at + start.len()..];
                if let Some(end) = rest.find("'::regclass") {
                    names.push(rest[..end].replace("''", "'"));
                }
            }
        });
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// Calls `visit` for each string in a plan.
pub(super) fn visit_texts(value: &Value, visit: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(values) => values.iter().for_each(|value| visit_texts(value, visit)),
        Value::Object(fields) => fields.values().for_each(|value| visit_texts(value, visit)),
        _ => {}
    }
}

/// Calls `visit` for each node of a plan, before its children.
pub(super) fn visit_nodes<'a>(node: &'a Value, visit: &mut dyn FnMut(&'a Value)) {
    visit(node);
    for child in node.get("Plans").and_then(Value::as_array).into_iter().flatten() {
        visit_nodes(child, visit);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sequences_of_plans_are_found() {
        let plan = json!({"Output": ["nextval('shop.\"it''s\"'::regclass)", "a"], "Plans": [
            {"Filter": "(nextval('b'::regclass) > nextval('c'::regclass))"}]});
        assert_eq!(sequences(&[plan]), ["b", "c", "shop.\"it's\""]);
    }

    #[test]
    fn missing_values_are_null_and_user_types_undeclared() {
        let value = |type_oid| BoundValue { type_oid, format: 1, value: Some(vec![1]) };
        let statement = BoundStatement {
            text: "SELECT $1, $2, $4".to_owned(),
            parameters: vec![value(23), value(20_000)],
            ..BoundStatement::default()
        };
        assert_eq!(values(&statement), [value(23), value(0), null(), null()]);
    }
}
