//! `pgfresh psql`: runs psql in a database of this run's server, or else of the background server.

use std::io::Read;
use std::process::{Command, ExitCode};

use serde_json::{Value, json};
use ureq::http::Method;

use crate::background;
use crate::cli::Psql;
use crate::context::Context;
use crate::context::provisioning;
use crate::control::{Control, path_of};
use crate::failure::Failure;
use crate::foreground;

pub(crate) fn execute(context: &Context, arguments: &Psql) -> Result<ExitCode, Failure> {
    let mut command = Command::new(provisioning::find_psql(&context.provisioner()?.installation)?);
    command.args(&arguments.arguments);
    let name = arguments.name.as_deref();
    let control = Control::of_this_run_or(|| Ok(background::join_for(context, name)?.control))?;
    // If the user names a database, psql's session creates it. This database outlives psql like any other lease.
    let leased = arguments.name.is_none().then(|| lease(&control)).transpose()?;
    let leased = leased.as_ref().map(|(name, _held)| name.as_str());
    let name = arguments.name.as_deref().or(leased).unwrap_or_default();
    control.address(name).describe_to(&mut command);
    control.describe_to(&mut command);
    let code = foreground::run(None, command);
    // The lease must end even if psql didn't start.
    let released = leased.map(|leased| control.call(&Method::DELETE, &path_of(leased, ""), &Value::Null));
    let code = code?;
    released.transpose()?;
    Ok(ExitCode::from(code))
}

/// Leases a database with a new name. The lease lasts until the returned reader is dropped. It also ends if this
/// process is killed.
fn lease(control: &Control) -> Result<(String, impl Read + use<>), Failure> {
    let (holder, hold) = control.hold()?;
    let leased = control.call(&Method::POST, "/v1/databases", &json!({ "holder": holder }))?;
    Ok((leased["name"].as_str().unwrap_or_default().to_owned(), hold))
}
