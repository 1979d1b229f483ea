//! Compares a database with its template, to show what a test has changed.
//!
//! Since sessions can't connect to the template itself, the comparison leases a fresh copy of it.

use ::diff::DiffLimits;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use contract::{DatabaseDiff, DiffResponse, ErrorCode, Remedy};
use lease::{Isolation, LeaseError, Leases};
use tokio::task::spawn_blocking;

use crate::blocking::release_abandoned;
use crate::json::Json;
use crate::leases::find;
use crate::problem::Problem;
use crate::{ApiState, SharedState, path};

/// Maximum number of tables in a comparison, and maximum number of rows in each table.
const MOST: usize = 1000;

/// `GET /v1/databases/NAME/diff`: compares a database with its template.
pub(crate) async fn diff(
    State(api): SharedState,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Json<DiffResponse>, Problem> {
    let of = path::query(&uri, "template");
    let limits = DiffLimits {
        table: path::query(&uri, "table"),
        tables: number(&uri, "tables")?.unwrap_or(DiffLimits::default().tables),
        rows: number(&uri, "rows")?.unwrap_or(DiffLimits::default().rows),
        ..DiffLimits::default()
    };
    let (test, known) = origin(&api, &name).await?;
    let template = of.or(known).ok_or_else(|| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            ErrorCode::NotSupported,
            format!("cannot determine which template \"{name}\" was copied from"),
        )
        .hint(Remedy::NameTemplate, "Name the template to compare it with.")
    })?;
    let leases = api.leases.clone();
    let (database, with) = (name.clone(), template.clone());
    // The comparison must release the copy, so let it complete even if the request is dropped. It can't take forever,
    // because each statement has a timeout.
    let compared = spawn_blocking(move || compare(&leases, &database, &with, &limits)).await;
    let diff = compared.map_err(|_| Problem::defect())??;
    Ok(Json(DiffResponse { database: name, test, template, diff }))
}

/// Returns the names of a kept database's test and template, or just the name of a lease's template.
async fn origin(api: &ApiState, name: &str) -> Result<(Option<String>, Option<String>), Problem> {
    if let Some(kept) = api.history().and_then(|history| history.kept_database(name)) {
        return Ok((Some(kept.test), kept.template));
    }
    let lease = find(api, name).await?.ok_or_else(|| LeaseError::NotLeased(name.to_owned()))?;
    Ok((None, Some(lease.template)))
}

fn number(uri: &Uri, name: &str) -> Result<Option<usize>, Problem> {
    let Some(text) = path::query(uri, name) else { return Ok(None) };
    let number = text.parse().ok().filter(|number| *number <= MOST);
    number.map(Some).ok_or_else(|| Problem::invalid(name, &text, format!("Write a number from 0 to {MOST}.")))
}

/// A fresh copy of a template. Dropping this value ends the copy's lease.
struct FreshCopy<'a> {
    leases: &'a Leases,
    name: String,
}

impl Drop for FreshCopy<'_> {
    fn drop(&mut self) {
        release_abandoned(self.leases, &self.name);
    }
}

/// Compares a database with a fresh copy of its template. The template itself must have no sessions, so that pgfresh
/// can copy it at any time.
fn compare(
    leases: &Leases,
    name: &str,
    template: &str,
    limits: &DiffLimits,
) -> Result<DatabaseDiff, Problem> {
    let database = leases.inspect(name)?;
    let (copy, _) = leases.lease(Isolation::Clone, None, Some(template))?;
    let copy = FreshCopy { leases, name: copy };
    let fresh = leases.inspect(&copy.name)?;
    Ok(::diff::compare(fresh.session, database.session, limits)?)
}
