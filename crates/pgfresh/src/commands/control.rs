//! `pgfresh url`, `reset`, `release`, `snapshot`, `status`, `open` and `stop`: control a running server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use contract::{
    DatabaseDescription, EndOfTest, ErrorCode, LeaseRequest, Remedy, ResetRequest, SnapshotRequest,
    SnapshotResponse,
};
use gateway::KeptDatabase;
use serde_json::{Value, json};
use server::percent_encode;
use template::DumpFile;
use ureq::http::Method;

use crate::background::{self, About, Found, Stopped};
use crate::browser;
use crate::cli::Options;
use crate::control::{Control, path_of};
use crate::evidence;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::over_budget;
use crate::settings::ResolvedSettings;
use crate::startup;

/// Returns the server of this run, or else the background server for database `name`. Starts the background server if
/// necessary.
fn join(options: &Options, name: Option<&str>) -> Result<Control, Failure> {
    Control::of_this_run_or(|| Ok(background::join_for(&ResolvedSettings::resolve(options)?, name)?.control))
}

/// Finds the server that has the database `name`, without starting one.
fn find(options: &Options, name: &str) -> Result<Control, Failure> {
    Control::of_this_run_or(|| holder_of(&ResolvedSettings::resolve(options)?, name))
}

fn holder_of(settings: &ResolvedSettings, name: &str) -> Result<Control, Failure> {
    let keeper = background::keeper_of(settings, name)?;
    Ok(keeper.map_or_else(|| find_in_background(settings), Ok)?.control)
}

fn find_in_background(settings: &ResolvedSettings) -> Result<Found, Failure> {
    let found = background::running(settings)?.into_iter().find(|found| found.about.is_usual());
    found.ok_or_else(background::none_runs)
}

pub(crate) fn url(
    options: &Options,
    name: Option<&str>,
    template: Option<&str>,
) -> Result<ExitCode, Failure> {
    let control = join(options, name)?;
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
        // The name already has a lease, and this is the lease's URL.
        (Err(failure), Some(name)) if failure.is(ErrorCode::AlreadyLeased) && template.is_none() => {
            say!("{}", control.address(name).url());
        }
        (Err(failure), _) => return Err(failure),
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn reset(
    options: &Options,
    name: &str,
    close: bool,
    test: Option<&str>,
) -> Result<ExitCode, Failure> {
    let request =
        ResetRequest { close_sessions: close, test: test.map(str::to_owned), ..ResetRequest::default() };
    let ended = find(options, name)?.send(&Method::POST, &path_of(name, "/reset"), &request);
    let closing = format!("\"pgfresh reset {name} --close\" closes them.");
    Ok(end_of_test(test, &ended.map_err(|failure| instead_of_closing(failure, &closing))?))
}

/// Replaces the API's hint, which names a key of the request, with a hint for the command line.
fn instead_of_closing(failure: Failure, hint: &str) -> Failure {
    if failure.has_remedy(Remedy::CloseSessions) { failure.hint(hint.to_owned()) } else { failure }
}

/// Prints a message if a test exceeded its budget. Tests without a name are reported at the end of the run.
fn end_of_test(test: Option<&str>, ended: &EndOfTest) -> ExitCode {
    let is_beyond = test.is_some_and(|test| over_budget::tell_answer(test, ended));
    if is_beyond { ExitCode::from(over_budget::EXIT) } else { ExitCode::SUCCESS }
}

pub(crate) fn release(
    options: &Options,
    name: &str,
    failed: bool,
    test: Option<&str>,
) -> Result<ExitCode, Failure> {
    let test_query = test.map(|test| format!("&test={}", percent_encode(test))).unwrap_or_default();
    let path = path_of(name, &format!("?failed={failed}{test_query}"));
    let control = find(options, name)?;
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
        evidence::tell(&[kept], |name| control.address(name).url());
    }
    Ok(end_of_test(test, &ended))
}

pub(crate) fn snapshot(
    options: &Options,
    name: &str,
    template: &str,
    file: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let snapshot = |control: &Control| {
        let request = SnapshotRequest { template: template.to_owned(), close_sessions: false };
        let made = control.send::<SnapshotResponse>(&Method::POST, &path_of(name, "/snapshot"), &request);
        made.map_err(|failure| instead_of_closing(failure, "Close its sessions first."))
    };
    let Some(file) = file else {
        snapshot(&find(options, name)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    let target = DumpFile::for_dump(file)?;
    let settings = ResolvedSettings::resolve(options)?;
    let control = Control::of_this_run_or(|| holder_of(&settings, name))?;
    snapshot(&control)?;
    save(&settings, &control, template, target)
        .map_err(|failure| failure.after(&format!("template \"{template}\" was made, but not written")))?;
    if !settings.verbosity.is_quiet() {
        say!("# Wrote {}. In pgfresh.toml:", file.display());
        say!("[template.{template}]\ndump = {}", json!(file));
    }
    Ok(ExitCode::SUCCESS)
}

/// Saves a template of the server as a file.
fn save(
    settings: &ResolvedSettings,
    control: &Control,
    template: &str,
    file: DumpFile,
) -> Result<(), Failure> {
    let installation = startup::provisioner_without_template(settings)?.installation;
    // A new copy is equal to the template and has no other sessions.
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

pub(crate) fn stop(settings: &ResolvedSettings, all: bool) -> Result<ExitCode, Failure> {
    let Stopped { count, mut staying } = background::stop(settings, all)?;
    if !settings.verbosity.is_quiet() {
        staying.sort();
        // `--all` also stops named servers.
        match (count, all) {
            (0, _) if !staying.is_empty() => {
                let (servers, keep) =
                    if staying.len() == 1 { ("server", "keeps") } else { ("servers", "keep") };
                let names = staying.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
                say!("nothing to stop; {servers} {names} {keep} running (pgfresh stop --all)");
            }
            (0, _) => say!("nothing to stop"),
            (1, true) => say!("stopped one server"),
            (1, false) => say!("stopped the background server"),
            (count, true) => say!("stopped {count} servers"),
            (count, false) => say!("stopped {count} background servers"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The servers that a command acts on.
struct Servers {
    /// The server of this run, or else the project's background server.
    control: Control,
    /// The server's description, if it runs in the background.
    about: Option<About>,
    log_file: Option<PathBuf>,
    /// The project's other servers: named servers, and those that keep databases of failed tests.
    others: Vec<Found>,
}

impl Servers {
    fn find(options: &Options) -> Result<Self, Failure> {
        if let Some(control) = Control::of_this_run()? {
            return Ok(Self { control, about: None, log_file: None, others: Vec::new() });
        }
        let mut found = background::running(&ResolvedSettings::resolve(options)?)?.into_iter();
        let Found { about, control, log_file } = found.next().ok_or_else(background::none_runs)?;
        Ok(Self { control, about: Some(about), log_file, others: found.collect() })
    }
}

pub(crate) fn status(options: &Options, as_json: bool) -> Result<ExitCode, Failure> {
    let Servers { control, about, log_file, others } = Servers::find(options)?;
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
    if as_json {
        say!("{status}");
        return Ok(ExitCode::SUCCESS);
    }
    if about.is_none_or(|about| about.name.is_none()) {
        say!("server {}", control.address("").url());
        say!("page {}", text(&status["page"]));
    }
    for server in list(&status["named"]) {
        say!("server {}: {}", text(&server["name"]), text(&server["url"]));
        say!("page {}", text(&server["page"]));
    }
    tell(&status);
    Ok(ExitCode::SUCCESS)
}

/// Describes a named server and its address.
fn describe(about: &About, control: &Control) -> Option<Value> {
    let (url, page) = (control.address(&about.database).url(), control.address("").page_url());
    about.name.as_ref().map(|name| json!({ "name": name, "url": url, "page": page }))
}

/// Prints the status of the servers.
fn tell(status: &Value) {
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
    for kept in list(&status["kept"]) {
        say!("failed {}  {}", text(&kept["test"]), text(&kept["url"]));
    }
    let count = |name: &str| status[name]["count"].as_u64().unwrap_or(0);
    if status["templates"].as_array().is_some_and(|templates| !templates.is_empty()) {
        say!("{} copied, {} recycled", count("created"), count("recycled"));
    }
    if let Some(path) = status["log"].as_str() {
        say!("log {path}");
    }
}

pub(crate) fn open(options: &Options) -> Result<ExitCode, Failure> {
    let control = Servers::find(options)?.control;
    let address = control.address("");
    // Other users can read a browser's arguments, so this URL contains no secret.
    if browser::open(&control.invite(&address.http_url())) {
        say!("opened {}", address.http_url());
    } else {
        say!("{}", address.page_url());
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the status of a server, and adds the URLs of the databases that the server keeps.
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

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
