//! `pgfresh url`: prints the URL of a fresh database.

use std::process::ExitCode;

use contract::{ErrorCode, LeaseRequest};
use serde_json::Value;
use ureq::http::Method;

use crate::cli::Url;
use crate::context::Context;
use crate::control::path_of;
use crate::failure::Failure;
use crate::output::{self, print_line};
use crate::target::join;

pub(crate) fn execute(context: &Context, arguments: &Url) -> Result<ExitCode, Failure> {
    let (name, template) = (arguments.name.as_deref(), arguments.of.as_deref());
    let control = join(context, name)?;
    let request = LeaseRequest {
        name: name.map(str::to_owned),
        template: template.map(str::to_owned),
        ..LeaseRequest::default()
    };
    match (control.lease(&request), name) {
        (Ok(leased), _) => {
            if let Err(error) = output::try_print(format_args!("{}\n", leased.url)) {
                control.call(&Method::DELETE, &path_of(&leased.name, ""), &Value::Null)?;
                output::end(&error);
            }
        }
        // The name already has a lease, so print its database's URL.
        (Err(failure), Some(name)) if failure.is(ErrorCode::AlreadyLeased) && template.is_none() => {
            print_line!("{}", control.address(name).url());
        }
        (Err(failure), _) => return Err(failure),
    }
    Ok(ExitCode::SUCCESS)
}
