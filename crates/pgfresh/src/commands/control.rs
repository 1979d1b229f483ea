//! `pgfresh url`, `reset`, `release`, `snapshot` and `status`: steering a server that runs.

use std::process::ExitCode;

use serde_json::{Value, json};
use ureq::http::Method;

use crate::control::{Control, path_of};
use crate::failure::Failure;

pub(crate) fn url(name: Option<&str>, template: Option<&str>) -> Result<ExitCode, Failure> {
    let leased = Control::find()?.call(
        &Method::POST,
        "/v1/databases",
        &json!({ "name": name, "template": template }),
    )?;
    println!("{}", text(&leased["url"]));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn reset(name: &str, close: bool) -> Result<ExitCode, Failure> {
    let body = json!({ "close_sessions": close });
    Control::find()?.call(&Method::POST, &path_of(name, "/reset"), &body)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn release(name: &str) -> Result<ExitCode, Failure> {
    Control::find()?.call(&Method::DELETE, &path_of(name, ""), &Value::Null)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn snapshot(name: &str, template: &str) -> Result<ExitCode, Failure> {
    let body = json!({ "template": template });
    Control::find()?.call(&Method::POST, &path_of(name, "/snapshot"), &body)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn status(as_json: bool) -> Result<ExitCode, Failure> {
    let status = Control::find()?.call(&Method::GET, "/v1/status", &Value::Null)?;
    if as_json {
        println!("{status}");
        return Ok(ExitCode::SUCCESS);
    }
    for template in list(&status["templates"]) {
        println!("template {}: {} ready", text(&template["name"]), template["ready"]);
    }
    for lease in list(&status["leases"]) {
        println!(
            "database {}: of {}, {} sessions, {:.0} s old",
            text(&lease["database"]),
            text(&lease["template"]),
            lease["sessions"],
            lease["age_seconds"].as_f64().unwrap_or(0.0)
        );
    }
    let count = |name: &str| status[name]["count"].as_u64().unwrap_or(0);
    println!("{} copied, {} recycled", count("created"), count("recycled"));
    Ok(ExitCode::SUCCESS)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
