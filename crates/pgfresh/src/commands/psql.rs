//! `pgfresh psql`: runs psql in a database on this run's server, or on the background server outside of a run.

use std::io::Read;
use std::process::{Command, ExitCode};

use contract::LeaseRequest;
use serde_json::Value;
use ureq::http::Method;

use crate::background;
use crate::cli::Psql;
use crate::context::Context;
use crate::context::provisioning;
use crate::control::{Control, path_of};
use crate::failure::Failure;
use crate::foreground;

pub(crate) fn execute(context: &Context, arguments: &Psql) -> Result<ExitCode, Failure> {
    let mut command = Command::new(provisioning::find_psql(&provisioning::installation(context)?)?);
    command.args(&arguments.arguments);
    let name = arguments.name.as_deref();
    let control = Control::of_this_run_or(|| Ok(background::join_for(context, name)?.control))?;
    // If the user names a database, psql's own session creates it. This database then outlives psql, like any other
    // leased one.
    let leased = arguments.name.is_none().then(|| lease(&control)).transpose()?;
    let leased = leased.as_ref().map(|(name, _held)| name.as_str());
    let name = arguments.name.as_deref().or(leased).unwrap_or_default();
    control.address(name).describe_to(&mut command);
    control.describe_to(&mut command);
    let code = foreground::run(None, command);
    // End the lease even if psql failed to start.
    let released = leased.map(|leased| control.call(&Method::DELETE, &path_of(leased, ""), &Value::Null));
    let code = code?.code;
    released.transpose()?;
    Ok(ExitCode::from(code))
}

/// Leases a database under a new name until the caller drops the returned reader or this process dies.
fn lease(control: &Control) -> Result<(String, impl Read + use<>), Failure> {
    let (holder, hold) = control.hold()?;
    let leased = control.lease(&LeaseRequest { holder: Some(holder), ..LeaseRequest::default() })?;
    Ok((leased.name, hold))
}
