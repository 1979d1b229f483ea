//! `pgfresh url`: prints the URL of a fresh database.

use std::process::ExitCode;

use serde_json::{Value, json};
use ureq::http::Method;

use crate::cli::Url;
use crate::context::Context;
use crate::control::{path_of, text};
use crate::failure::Failure;
use crate::output::{self, print_line};
use crate::target::join;

pub(crate) fn execute(context: &Context, arguments: &Url) -> Result<ExitCode, Failure> {
    let (name, template) = (arguments.name.as_deref(), arguments.of.as_deref());
    let control = join(context, name)?;
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
            print_line!("{}", control.address(name).url());
        }
        (Err(failure), _) => return Err(failure),
    }
    Ok(ExitCode::SUCCESS)
}
