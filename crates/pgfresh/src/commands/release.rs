//! `pgfresh release`: ends the lease of a database.

use std::process::ExitCode;

use contract::{DatabaseDescription, EndOfTest};
use gateway::KeptDatabase;
use serde_json::Value;
use server::percent_encode;
use ureq::http::Method;

use crate::cli::Release;
use crate::context::Context;
use crate::control::path_of;
use crate::end_of_test;
use crate::failure::Failure;
use crate::kept_databases;
use crate::target::find;

pub(crate) fn execute(context: &Context, arguments: &Release) -> Result<ExitCode, Failure> {
    let (name, failed, test) = (&arguments.name, arguments.failed, arguments.test.as_deref());
    let test_query = test.map(|test| format!("&test={}", percent_encode(test))).unwrap_or_default();
    let path = path_of(name, &format!("?failed={failed}{test_query}"));
    let control = find(context, name)?;
    let ended: EndOfTest = control.send(&Method::DELETE, &path, &Value::Null)?;
    if let Some((_, kept)) = ended.url.as_deref().and_then(|url| url.rsplit_once('/')) {
        let seen: DatabaseDescription =
            control.send(&Method::GET, &format!("/v1/databases/{kept}"), &Value::Null)?;
        let kept = KeptDatabase {
            name: seen.name,
            test: test.unwrap_or(name).to_owned(),
            template: seen.template,
            inherited: false,
            statements: seen.statements.unwrap_or_default(),
        };
        kept_databases::print(&[kept], |name| control.address(name).url());
    }
    Ok(end_of_test::report(test, name, ended))
}
