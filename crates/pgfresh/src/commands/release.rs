//! `pgfresh release`: ends the lease of a database.

use std::process::ExitCode;

use gateway::KeptDatabase;
use serde_json::Value;
use server::percent_encode;
use ureq::http::Method;

use crate::cli::Release;
use crate::context::Context;
use crate::control::{path_of, text};
use crate::failure::Failure;
use crate::kept_databases;
use crate::over_budget;
use crate::target::find;

pub(crate) fn execute(context: &Context, arguments: &Release) -> Result<ExitCode, Failure> {
    let (name, failed, test) = (&arguments.name, arguments.failed, arguments.test.as_deref());
    let test_query = test.map(|test| format!("&test={}", percent_encode(test))).unwrap_or_default();
    let path = path_of(name, &format!("?failed={failed}{test_query}"));
    let control = find(context, name)?;
    let answer = control.call(&Method::DELETE, &path, &Value::Null)?;
    if let Some((_, kept)) = text(&answer["url"]).rsplit_once('/') {
        let seen = control.call(&Method::GET, &format!("/v1/databases/{kept}"), &Value::Null)?;
        let mut kept: KeptDatabase = serde_json::from_value(seen)
            .map_err(|error| Failure::new(format!("cannot read what is known of \"{name}\": {error}")))?;
        test.unwrap_or(name).clone_into(&mut kept.test);
        kept_databases::print(&[kept], |name| control.address(name).url());
    }
    Ok(over_budget::end_of_test(test, &answer))
}
