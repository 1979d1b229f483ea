//! `pgfresh url`: prints the URL of a fresh database.

use std::process::ExitCode;

use serde_json::{Value, json};
use ureq::http::Method;

use crate::cli::Options;
use crate::control::{path_of, text};
use crate::failure::Failure;
use crate::output::{self, say};
use crate::target::join;

pub(crate) fn execute(
    options: &Options,
    name: Option<&str>,
    template: Option<&str>,
) -> Result<ExitCode, Failure> {
    let control = join(options, name)?;
    let serve_options = json!({ "name": name, "template": template });
    match (control.call(&Method::POST, "/v1/databases", &serve_options), name) {
        (Ok(leased), _) => {
            if let Err(error) = output::try_print(format_args!("{}\n", text(&leased["url"]))) {
                control.call(&Method::DELETE, &path_of(text(&leased["name"]), ""), &Value::Null)?;
                output::end(&error);
            }
        }
        // The name already has a lease, and this is the lease's URL.
        (Err(failure), Some(name)) if failure.is("42P04") && template.is_none() => {
            say!("{}", control.address(name).url());
        }
        (Err(failure), _) => return Err(failure),
    }
    Ok(ExitCode::SUCCESS)
}
