//! Reports a lease's statements and whether they exceed a budget.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use contract::{EndOfTest, ErrorCode, Measurement, Remedy};
use gateway::{Budget, TestMeasurement, parse_span};
use lease::LeaseError;

use crate::json::Json;
use crate::problem::Problem;
use crate::{ApiState, SharedState, path};

/// `GET /v1/databases/NAME/statements`: returns a lease's statements, compared with a budget.
pub(crate) async fn statements(
    State(api): SharedState,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Json<Measurement>, Problem> {
    let budget = budget_of(&uri)?;
    if api.leases.isolation(&name).is_none() {
        return Err(LeaseError::NotLeased(name).into());
    }
    let measured = api.recorder.measure(&name, &budget, &api.leases).ok_or_else(|| not_recorded(&name))?;
    Ok(Json(described(measured)))
}

/// Returns the statements of the lease `name` if they exceed the budget `own` or the budget for all tests.
///
/// # Errors
///
/// Returns 409 if `own` has a limit but the lease isn't recorded.
pub(crate) fn beyond(api: &ApiState, name: &str, own: &Budget) -> Result<Option<TestMeasurement>, Problem> {
    match api.recorder.measure(name, own, &api.leases) {
        None if !own.is_empty() && api.leases.isolation(name).is_some() => Err(not_recorded(name)),
        measured => Ok(measured.filter(|measured| !measured.exceeded.is_empty())),
    }
}

/// Returns the response for a finished test.
pub(crate) fn answer(ended: EndOfTest) -> Response {
    if ended == EndOfTest::default() {
        return StatusCode::NO_CONTENT.into_response();
    }
    Json(ended).into_response()
}

pub(crate) fn described(measured: TestMeasurement) -> Measurement {
    let message = measured.message();
    let TestMeasurement { statements, exceeded } = measured;
    Measurement { message, over_budget: exceeded, statements }
}

/// Reads the budget from the query string, such as `?statements=5&n_plus_one=0&time=200ms`.
pub(crate) fn budget_of(uri: &Uri) -> Result<Budget, Problem> {
    let count = |name: &str| match path::query(uri, name) {
        None => Ok(None),
        Some(text) => {
            text.parse().map(Some).map_err(|_| Problem::invalid(name, &text, "Write a number of at least 0."))
        }
    };
    let time = path::query(uri, "time");
    Ok(Budget {
        statements: count("statements")?,
        n_plus_one: count("n_plus_one")?,
        time: self::time(time.as_deref())?,
    })
}

/// Parses a duration with a unit, such as `200ms`.
pub(crate) fn time(text: Option<&str>) -> Result<Option<Duration>, Problem> {
    let parse = |text| {
        parse_span(text)
            .ok_or_else(|| Problem::invalid("time", text, "Write a number and ms, s, min or h: \"200ms\"."))
    };
    text.map(parse).transpose()
}

fn not_recorded(name: &str) -> Problem {
    let what = format!("the statements of database \"{name}\" are not recorded");
    Problem::new(StatusCode::CONFLICT, ErrorCode::WrongState, what)
        .hint(Remedy::Record, "Lease it with \"record\": true.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Budget, Problem> {
        budget_of(&format!("/v1/databases/a/statements?{query}").parse().unwrap())
    }

    #[test]
    fn budget_parses_query_and_rejects_invalid_values() {
        let whole = read("test=x&statements=5&n_plus_one=0&time=200ms").unwrap();
        let time = Some(Duration::from_millis(200));
        assert_eq!(whole, Budget { statements: Some(5), n_plus_one: Some(0), time });
        assert_eq!(read("test=x"), Ok(Budget::default()));
        for wrong in ["statements=-1", "statements=", "n_plus_one=x", "time=5", "time=0.2"] {
            assert_eq!(read(wrong).unwrap_err().status, StatusCode::BAD_REQUEST, "{wrong}");
        }
    }
}
