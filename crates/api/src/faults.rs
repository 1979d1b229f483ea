//! Handles fault requests for a lease, and lists the lease's faults.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use contract::{ErrorCode, FaultDescription, FaultList, FaultRequest, Remedy};
use gateway::{Fault, FaultError};

use crate::SharedState;
use crate::blocking::blocking;
use crate::json::Json;
use crate::problem::Problem;

/// `POST /v1/databases/NAME/faults`: requests a fault. Responds once all open sessions obey it.
pub(crate) async fn add(
    State(api): SharedState,
    Path(name): Path<String>,
    Json(request): Json<FaultRequest>,
) -> Result<(StatusCode, Json<FaultDescription>), Problem> {
    let fault = Fault::try_from(request)?;
    let faults = Arc::clone(&api.faults);
    let added = blocking(&api.leases, move |leases| faults.add(&name, fault, leases));
    Ok((StatusCode::CREATED, Json(added.await?)))
}

/// `GET /v1/databases/NAME/faults`: lists the faults.
pub(crate) async fn list(
    State(api): SharedState,
    Path(name): Path<String>,
) -> Result<Json<FaultList>, Problem> {
    Ok(Json(api.faults.list(&name, &api.leases)?))
}

impl From<FaultError> for Problem {
    fn from(FaultError { what, hint }: FaultError) -> Self {
        let what = format!("cannot request the fault: {what}");
        Self::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidValue, what).hint(Remedy::CorrectValue, hint)
    }
}
