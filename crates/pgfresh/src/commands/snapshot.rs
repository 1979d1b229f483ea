//! `pgfresh snapshot`: turns a leased database into a template.

use std::process::ExitCode;

use contract::{LeaseRequest, SnapshotRequest, SnapshotResponse};
use serde_json::{Value, json};
use template::DumpFile;
use ureq::http::Method;

use crate::cli::Snapshot;
use crate::context::Context;
use crate::context::provisioning;
use crate::control::{Control, instead_of_closing, path_of};
use crate::failure::Failure;
use crate::output::print_line;
use crate::target::find;

pub(crate) fn execute(context: &Context, arguments: &Snapshot) -> Result<ExitCode, Failure> {
    let (name, template) = (&arguments.name, arguments.template()?);
    let snapshot = |control: &Control| {
        let request = SnapshotRequest { template: template.to_owned(), close_sessions: false };
        let made = control.send::<SnapshotResponse>(&Method::POST, &path_of(name, "/snapshot"), &request);
        made.map_err(|failure| instead_of_closing(failure, "Close its sessions first."))
    };
    let Some(file) = &arguments.save else {
        snapshot(&find(context, name)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    let target = DumpFile::for_dump(file)?;
    let control = find(context, name)?;
    snapshot(&control)?;
    save(context, &control, template, target).map_err(|failure| {
        failure.after(&format!("template \"{template}\" was created, but could not be written to the file"))
    })?;
    if !context.verbosity.is_quiet() {
        print_line!("# Wrote {}. In pgfresh.toml:", file.display());
        print_line!("[template.{template}]\ndump = {}", json!(file));
    }
    Ok(ExitCode::SUCCESS)
}

/// Saves one of the server's templates as a file.
fn save(context: &Context, control: &Control, template: &str, file: DumpFile) -> Result<(), Failure> {
    let installation = provisioning::installation(context)?;
    // Dump a new copy, because it equals the template and has no other sessions.
    let request = LeaseRequest {
        template: Some(template.to_owned()),
        isolation: Some("clone".to_owned()),
        ..LeaseRequest::default()
    };
    let copy = control.lease(&request)?;
    let saved = template::save(&installation, &copy.url, file);
    control.call(&Method::DELETE, &path_of(&copy.name, ""), &Value::Null)?;
    Ok(saved?)
}
