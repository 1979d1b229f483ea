//! `pgfresh status`: shows the templates, leases and connections of the running servers.

use std::process::ExitCode;

use serde_json::{Value, json};
use server::printable;
use ureq::http::Method;

use crate::background::ServerInfo;
use crate::cli::Status;
use crate::context::Context;
use crate::control::{Control, text};
use crate::failure::Failure;
use crate::output::print_line;
use crate::target::Servers;

pub(crate) fn execute(context: &Context, arguments: &Status) -> Result<ExitCode, Failure> {
    let Servers { control, about, log_file, others } = Servers::find(context)?;
    let mut status = look(&control)?;
    let mut named: Vec<_> = about.iter().filter_map(|about| describe(about, &control)).collect();
    for other in &others {
        let theirs = look(&other.control)?;
        if let Some(kept) = status["kept"].as_array_mut() {
            kept.extend(list(&theirs["kept"]).cloned());
        }
        named.extend(describe(&other.about, &other.control));
    }
    status["named"] = named.into();
    status["page"] = control.address("").page_url().into();
    if let Some(path) = log_file {
        status["log"] = path.display().to_string().into();
    }
    if arguments.json {
        print_line!("{status}");
        return Ok(ExitCode::SUCCESS);
    }
    if about.is_none_or(|about| about.name.is_none()) {
        print_line!("server {}", control.address("").url());
        print_line!("page {}", text(&status["page"]));
    }
    for server in list(&status["named"]) {
        print_line!("server {}: {}", text(&server["name"]), text(&server["url"]));
        print_line!("page {}", text(&server["page"]));
    }
    print(&status);
    Ok(ExitCode::SUCCESS)
}

/// Describes a named server and its address.
fn describe(about: &ServerInfo, control: &Control) -> Option<Value> {
    let (url, page) = (control.address(&about.database).url(), control.address("").page_url());
    about.name.as_ref().map(|name| json!({ "name": name, "url": url, "page": page }))
}

/// Prints the status of the servers.
fn print(status: &Value) {
    for template in list(&status["templates"]) {
        print_line!("template {}: {} ready", text(&template["name"]), template["ready"]);
    }
    for lease in list(&status["leases"]) {
        print_line!(
            "database {}: of {}, {} sessions, {:.0} s old",
            text(&lease["database"]),
            text(&lease["template"]),
            lease["sessions"],
            lease["age_seconds"].as_f64().unwrap_or(0.0)
        );
    }
    for kept in list(&status["kept"]) {
        print_line!("failed {}  {}", printable(text(&kept["test"])), text(&kept["url"]));
    }
    let count = |name: &str| status[name]["count"].as_u64().unwrap_or(0);
    if status["templates"].as_array().is_some_and(|templates| !templates.is_empty()) {
        print_line!("{} copied, {} recycled", count("created"), count("recycled"));
    }
    if let Some(path) = status["log"].as_str() {
        print_line!("log {path}");
    }
}

/// Reads a server's status and adds the URLs of the databases kept for failed tests.
fn look(control: &Control) -> Result<Value, Failure> {
    let mut status = control.call(&Method::GET, "/v1/status", &Value::Null)?;
    for kept in status["kept"].as_array_mut().into_iter().flatten() {
        kept["url"] = control.address(text(&kept["database"])).url().into();
    }
    Ok(status)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
