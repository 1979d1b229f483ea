//! `pgfresh url`, `reset`, `release`, `snapshot`, `status` and `stop`: steering a server that runs.

use std::path::Path;
use std::process::ExitCode;

use gateway::ExecutedStatement;
use serde_json::{Value, json};
use ureq::http::Method;

use crate::background::{self, Found};
use crate::cli::Options;
use crate::control::{Control, path_of};
use crate::evidence;
use crate::failure::Failure;
use crate::output::say;
use crate::settings::ResolvedSettings;
use crate::startup;

/// The server of this run, or else the background server, started if need be.
fn join(options: &Options) -> Result<Control, Failure> {
    match Control::of_this_run()? {
        Some(control) => Ok(control),
        None => Ok(background::join(&ResolvedSettings::resolve(options)?)?.control),
    }
}

/// The same, if it is there.
fn find(options: &Options) -> Result<Control, Failure> {
    match Control::of_this_run()? {
        Some(control) => Ok(control),
        None => Ok(find_in_background(&ResolvedSettings::resolve(options)?)?.control),
    }
}

fn find_in_background(settings: &ResolvedSettings) -> Result<Found, Failure> {
    let found = background::running(settings)?.into_iter().next();
    found.ok_or_else(|| {
        Failure::new("no server of this project runs")
            .hint("\"pgfresh url\" starts one; within \"pgfresh run -- COMMAND\" there is one.".to_owned())
    })
}

pub(crate) fn url(
    options: &Options,
    name: Option<&str>,
    template: Option<&str>,
) -> Result<ExitCode, Failure> {
    let control = join(options)?;
    let serve_options = json!({ "name": name, "template": template });
    match (control.call(&Method::POST, "/v1/databases", &serve_options), name) {
        (Ok(leased), _) => say!("{}", text(&leased["url"])),
        // It is leased already: that is where it is.
        (Err(failure), Some(name)) if failure.is("42P04") && template.is_none() => {
            say!("{}", control.address(name).url());
        }
        (Err(failure), _) => return Err(failure),
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn reset(options: &Options, name: &str, close: bool) -> Result<ExitCode, Failure> {
    let body = json!({ "close_sessions": close });
    find(options)?.call(&Method::POST, &path_of(name, "/reset"), &body)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn release(options: &Options, name: &str, failed: bool) -> Result<ExitCode, Failure> {
    let path = path_of(name, if failed { "?failed=true" } else { "" });
    let control = find(options)?;
    let kept = control.call(&Method::DELETE, &path, &Value::Null)?;
    if let (Some(url), Some((_, name))) = (kept["url"].as_str(), text(&kept["url"]).rsplit_once('/')) {
        let mut seen = control.call(&Method::GET, &format!("/v1/databases/{name}"), &Value::Null)?;
        let statements: Vec<ExecutedStatement> =
            serde_json::from_value(seen["statements"].take()).unwrap_or_default();
        evidence::tell(url, &statements);
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn snapshot(
    options: &Options,
    name: &str,
    template: &str,
    file: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let snapshot = |control: &Control| {
        control.call(&Method::POST, &path_of(name, "/snapshot"), &json!({ "template": template }))
    };
    let Some(file) = file else {
        snapshot(&find(options)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    let settings = ResolvedSettings::resolve(options)?;
    let control = match Control::of_this_run()? {
        Some(control) => control,
        None => find_in_background(&settings)?.control,
    };
    snapshot(&control)?;
    save(&settings, &control, template, file)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a template of that server's into a file, and says what to do with it.
fn save(settings: &ResolvedSettings, control: &Control, template: &str, file: &Path) -> Result<(), Failure> {
    let installation = startup::provisioner_without_template(settings)?.installation;
    // It has no other session, and it is what the template is.
    let serve_options = json!({ "template": template, "isolation": "clone" });
    let copy = control.call(&Method::POST, "/v1/databases", &serve_options)?;
    let saved = template::save(&installation, text(&copy["url"]), file);
    control.call(&Method::DELETE, &path_of(text(&copy["name"]), ""), &Value::Null)?;
    saved?;
    if !settings.verbosity.is_quiet() {
        say!("# Wrote {}. In pgfresh.toml:", file.display());
        say!("[template.{template}]\ndump = {}", json!(file));
    }
    Ok(())
}

pub(crate) fn stop(settings: &ResolvedSettings, all: bool) -> Result<ExitCode, Failure> {
    let count = background::stop(settings, all)?;
    if !settings.verbosity.is_quiet() {
        match count {
            0 => say!("nothing to stop"),
            1 => say!("stopped the background server"),
            count => say!("stopped {count} background servers"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn status(options: &Options, as_json: bool) -> Result<ExitCode, Failure> {
    let (control, log_file) = if let Some(control) = Control::of_this_run()? {
        (control, None)
    } else {
        let found = find_in_background(&ResolvedSettings::resolve(options)?)?;
        (found.control, found.log_file)
    };
    let mut status = control.call(&Method::GET, "/v1/status", &Value::Null)?;
    let page = control.address("").page_url();
    if as_json {
        status["page"] = page.into();
        if let Some(path) = log_file {
            status["log"] = path.display().to_string().into();
        }
        say!("{status}");
        return Ok(ExitCode::SUCCESS);
    }
    say!("server {}", control.address("").url());
    say!("page {page}");
    for template in list(&status["templates"]) {
        say!("template {}: {} ready", text(&template["name"]), template["ready"]);
    }
    for lease in list(&status["leases"]) {
        say!(
            "database {}: of {}, {} sessions, {:.0} s old",
            text(&lease["database"]),
            text(&lease["template"]),
            lease["sessions"],
            lease["age_seconds"].as_f64().unwrap_or(0.0)
        );
    }
    let count = |name: &str| status[name]["count"].as_u64().unwrap_or(0);
    say!("{} copied, {} recycled", count("created"), count("recycled"));
    if let Some(path) = log_file {
        say!("log {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
