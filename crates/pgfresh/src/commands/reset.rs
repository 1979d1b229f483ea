//! `pgfresh reset`: returns a leased database to the state of its template.

use std::process::ExitCode;

use contract::ResetRequest;
use ureq::http::Method;

use crate::cli::Reset;
use crate::context::Context;
use crate::control::{instead_of_closing, path_of};
use crate::end_of_test;
use crate::failure::Failure;
use crate::target::find;

pub(crate) fn execute(context: &Context, arguments: &Reset) -> Result<ExitCode, Failure> {
    let Reset { name, close, test, .. } = arguments;
    let request = ResetRequest { close_sessions: *close, test: test.clone(), ..ResetRequest::default() };
    let ended = find(context, name)?.send(&Method::POST, &path_of(name, "/reset"), &request);
    let closing = format!("\"pgfresh reset {name} --close\" closes them.");
    let ended = ended.map_err(|failure| instead_of_closing(failure, &closing))?;
    Ok(end_of_test::report(test.as_deref(), name, ended))
}
