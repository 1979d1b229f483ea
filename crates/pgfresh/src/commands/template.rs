//! `pgfresh template`: builds, lists, shows and removes templates in the cache.

mod shared;
mod signed;
mod statistics;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use serde_json::json;
use storage::{CacheError, human_bytes};
use template::{BuildPlan, CachedTemplate, DumpFile, ServerOptions, TemplateSpec, TemplateStatus};

use self::shared::Target;
use crate::cancellation::cancellable;
use crate::cli::{Build, Import, Remove, Template};
use crate::context::Context;
use crate::context::provisioning;
use crate::failure::Failure;
use crate::notice::notice;
use crate::output::{print, print_line};
use crate::progress;
use crate::settings::ResolvedSettings;

/// Number of fingerprint digits in human-readable output.
const DIGITS: usize = 8;

pub(crate) fn execute(context: &Context, command: &Template) -> Result<ExitCode, Failure> {
    match command {
        Template::Build(arguments) => build(context, arguments)?,
        Template::List(arguments) => list(context, arguments.json)?,
        Template::Show(arguments) => show(context, arguments.name.as_deref(), arguments.json)?,
        Template::Rm(arguments) => remove(context, arguments)?,
        Template::Import(arguments) => import(context, arguments)?,
        Template::Push(arguments) => match shared::target(context, arguments.target.as_deref())? {
            Target::Folder(folder) => push(context, &folder, arguments.key.as_deref())?,
            Target::Remote(address) => shared::push(context, address, arguments.key.as_deref())?,
        },
        Template::Pull(arguments) => match shared::target(context, arguments.target.as_deref())? {
            Target::Folder(folder) => pull(context, &folder, arguments.unsigned)?,
            Target::Remote(address) => shared::pull(context, address)?,
        },
        Template::Gc(arguments) => shared::collect(context, arguments)?,
        Template::Keygen(arguments) => signed::keygen(&arguments.file)?,
        Template::Sign(arguments) => signed::sign(context, arguments)?,
        Template::Verify(arguments) => signed::verify(context, &arguments.folder)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the specification of the template `name`. Without `name`, returns the template that the options select.
fn spec(settings: &ResolvedSettings, name: Option<&str>) -> Result<TemplateSpec, Failure> {
    if let Some(name) = name {
        return settings.find_template(name);
    }
    settings.with_template()?.template.ok_or_else(|| {
        Failure::new("there is no template").hint(
            "Describe one in pgfresh.toml, [template] setup = \"COMMAND\" and inputs = [\"GLOB\"], or with --setup and --inputs."
                .to_owned(),
        )
    })
}

fn build(context: &Context, arguments: &Build) -> Result<(), Failure> {
    let settings = context.settings()?;
    let spec = spec(settings, arguments.name.as_deref())?;
    let name = spec.title();
    let (keep, full) = (arguments.keep, arguments.full);
    let server_options =
        ServerOptions { template: Some(spec), keep, full, ..settings.server_options.clone() };
    let provisioner = provisioning::provisioner(context, server_options)?;
    let template = provisioner.template(&progress::announce(context.verbosity))?;
    if !context.verbosity.is_quiet() {
        let bytes = human_bytes(template.entry.occupied()?);
        print_line!("{name} {} {bytes}", template.fingerprint);
    }
    Ok(())
}

fn list(context: &Context, json: bool) -> Result<(), Failure> {
    let all = template::list(&context.cache()?)?;
    if json {
        print_line!("{}", all.iter().map(describe_in_json).collect::<serde_json::Value>());
        return Ok(());
    }
    let now = SystemTime::now();
    if !all.is_empty() {
        print_line!("{:<16} {:<8} {:>7} {:>7} {:>8}  MADE FROM", "NAME", "PRINT", "SIZE", "AGE", "LAST USE");
    }
    for shelved in &all {
        let about = shelved.about.as_ref();
        let created = about.map(|about| SystemTime::UNIX_EPOCH + Duration::from_secs(about.created));
        let age = created.map_or_else(String::new, |created| ago(now, created));
        let from = about.map_or_else(String::new, |about| match about.name {
            Some(_) => {
                format!("{}{}: {}", about.folder.display(), on(about.parent.as_deref()), about.made_from)
            }
            None => format!("{} of PostgreSQL {}", about.made_from, about.version),
        });
        print_line!(
            "{:<16} {:<8} {:>7} {age:>7} {:>8}  {from}",
            shelved.name().unwrap_or("(base image)"),
            short(&shelved.fingerprint),
            human_bytes(shelved.occupied),
            ago(now, shelved.last_use),
        );
    }
    shared::list(context)
}

fn describe_in_json(shelved: &CachedTemplate) -> serde_json::Value {
    let last_use = shelved.last_use.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let about = shelved.about.as_ref();
    json!({
        "name": shelved.name(),
        "fingerprint": shelved.fingerprint,
        "bytes": shelved.occupied,
        "created": about.map(|about| about.created),
        "last_use": last_use,
        "version": about.map(|about| &about.version),
        "folder": about.map(|about| &about.folder),
        "made_from": about.map(|about| &about.made_from),
        "parent": about.and_then(|about| about.parent.as_ref()),
    })
}

fn show(context: &Context, name: Option<&str>, json: bool) -> Result<(), Failure> {
    let settings = context.settings()?;
    let known = name.is_none_or(|name| settings.find_template(name).is_ok());
    if let (Some(word), false) = (name, known) {
        return show_shelved(context, word, json);
    }
    let spec = spec(settings, name)?;
    let provisioner = provisioning::find_or_download(context, settings.server_options.clone())?;
    let status = provisioner.status(&spec)?;
    let state = state(&spec, &status)?;
    if json {
        let (parent, reasons) = match &status.plan {
            Some(BuildPlan::Incremental { parent, .. }) => (Some(parent.as_str()), &[][..]),
            Some(BuildPlan::Full { reasons }) => (None, &reasons[..]),
            None => (status.parent.as_deref(), &[][..]),
        };
        let value = json!({
            "name": spec.title(),
            "fingerprint": status.fingerprint.as_str(),
            "built": status.entry.is_some(),
            "bytes": status.entry.as_ref().map(storage::Entry::occupied).transpose()?,
            "made_from": spec.summary(),
            "parent": parent,
            "full_build_reasons": reasons,
            "changes": status.changes,
            "ingredients": status.fingerprint_inputs,
        });
        print_line!("{value}");
        return Ok(());
    }
    print_line!("{} {}: {state}", spec.title(), status.fingerprint);
    print_line!("made from {}: {}", spec.folder.display(), spec.summary());
    show_ingredients(&status.fingerprint_inputs);
    Ok(())
}

/// Describes what a run would do to get the template, such as build it or use the cached one.
fn state(spec: &TemplateSpec, status: &TemplateStatus) -> Result<String, Failure> {
    if spec.chain().into_iter().any(TemplateSpec::runs_each_time) {
        return Ok("runs each time, because its setup has no inputs".to_owned());
    }
    Ok(match (&status.entry, &status.plan, &status.changes) {
        (Some(entry), ..) => {
            let on = on(status.parent.as_deref());
            format!("built{on}, {} in {} files", human_bytes(entry.occupied()?), entry.files())
        }
        (None, Some(BuildPlan::Incremental { parent, added }), _) => {
            format!("to be built{}: {}", on(Some(parent.as_str())), progress::incremental(added))
        }
        (None, Some(BuildPlan::Full { reasons }), _) if !reasons.is_empty() => {
            format!("to be built in full: {}", progress::some_of(reasons))
        }
        (None, _, Some(changes)) if !changes.is_empty() => {
            format!("to be rebuilt: {}", progress::some_of(changes))
        }
        (None, ..) => "not built".to_owned(),
    })
}

/// Formats an incremental build's parent as " on PARENT". Returns an empty text if there is no parent.
fn on(parent: Option<&str>) -> String {
    parent.map_or_else(String::new, |parent| format!(" on {}", short(parent)))
}

fn show_shelved(context: &Context, word: &str, json: bool) -> Result<(), Failure> {
    let all = template::list(&context.cache()?)?;
    let Some(shelved) = template::select(&all, word, &context.settings()?.folder).into_iter().next() else {
        return Err(unknown(word));
    };
    let about = shelved.about.as_ref();
    if json {
        let mut value = describe_in_json(shelved);
        value["ingredients"] = json!(about.map(|about| &about.fingerprint_inputs));
        print_line!("{value}");
        return Ok(());
    }
    let name = shelved.name().unwrap_or("(base image)");
    print_line!("{name} {}: {} on disk", short(&shelved.fingerprint), human_bytes(shelved.occupied));
    if let Some(about) = about {
        let (folder, on) = (about.folder.display(), on(about.parent.as_deref()));
        print_line!("made from {folder}{on}: {} (in {:.1} s)", about.made_from, about.took);
        show_ingredients(&about.fingerprint_inputs);
    }
    Ok(())
}

fn show_ingredients(fingerprint_inputs: &template::FingerprintInputs) {
    for (name, value) in fingerprint_inputs.iter() {
        // Users only compare digests, so their first digits suffice.
        let digest = value.len() >= 32 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = if digest { short(value) } else { value };
        print_line!("  {name}: {}", value.replace('\n', "\n    "));
    }
}

fn remove(context: &Context, arguments: &Remove) -> Result<(), Failure> {
    let cache = context.cache()?;
    let all = template::list(&cache)?;
    let mut selected: Vec<_> = if arguments.all { all.iter().collect() } else { Vec::new() };
    if !arguments.all {
        let folder = &context.settings()?.folder;
        for name in &arguments.names {
            let found = template::select(&all, name, folder);
            if found.is_empty() {
                return Err(unknown(name));
            }
            selected.extend(found);
        }
    }
    let (mut removed, mut in_use) = (String::new(), Vec::new());
    let outcome = selected.into_iter().try_for_each(|shelved| {
        let line = format!("{} {}", shelved.name().unwrap_or("(base image)"), short(&shelved.fingerprint));
        if cache.remove(&shelved.fingerprint)? {
            removed += &format!("removed {line}, {}\n", human_bytes(shelved.occupied));
        } else {
            in_use.push(line);
        }
        Ok::<_, CacheError>(())
    });
    // Keep removing templates even if the reader of the output is gone.
    if !context.verbosity.is_quiet() {
        print(removed);
    }
    outcome?;
    if in_use.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("could not remove {}: in use", in_use.join(", "))))
}

fn import(context: &Context, arguments: &Import) -> Result<(), Failure> {
    match (&arguments.statistics, &arguments.url, &arguments.file) {
        (Some(source), ..) => statistics::import(context, source, &arguments.redact),
        (None, Some(url), Some(file)) => import_schema(context, url, file),
        (None, ..) => Err(Failure::new("a URL and a file are missing")),
    }
}

fn import_schema(context: &Context, url: &str, file: &Path) -> Result<(), Failure> {
    let target = DumpFile::for_schema(file)?;
    let installation = provisioning::installation(context)?;
    let left_out = template::import(&installation, url, target)?;
    if context.verbosity.is_quiet() {
        return Ok(());
    }
    if let Some(why) = left_out {
        notice!("pgfresh: roles, owners and grants are left out, because roles could not be read: {why}");
    }
    print_line!("# Wrote {}. In pgfresh.toml, beside it:", file.display());
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    print_line!("[template]\nsql = [{}]", json!(name));
    Ok(())
}

fn push(context: &Context, folder: &Path, key: Option<&Path>) -> Result<(), Failure> {
    let settings = context.settings()?;
    // Check for the key first, so that a missing key fails before the build.
    let key = signed::key_for_push(settings, key)?;
    let spec = spec(settings, None)?;
    let name = spec.title();
    let server_options = ServerOptions { template: Some(spec), ..settings.server_options.clone() };
    let template = provisioning::provisioner(context, server_options)?
        .template(&progress::announce(context.verbosity))?;
    cancellable(|cancelled| {
        template.entry.export(folder, key.as_ref(), cancelled).map_err(server::StartError::from)
    })?;
    if !context.verbosity.is_quiet() {
        print_line!("{name} {}", template.fingerprint);
    }
    Ok(())
}

fn pull(context: &Context, folder: &Path, unsigned: bool) -> Result<(), Failure> {
    let trusted = if unsigned { &[] } else { &context.settings()?.trusted[..] };
    signed::pull(&context.cache()?, folder, trusted, context.verbosity.is_quiet())
}

fn unknown(word: &str) -> Failure {
    Failure::new(format!("there is no template \"{word}\""))
        .hint("\"pgfresh template list\" shows what the cache has.".to_owned())
}

fn short(fingerprint: &str) -> &str {
    &fingerprint[..DIGITS.min(fingerprint.len())]
}

/// Formats the time since `then` as one number with its unit.
fn ago(now: SystemTime, then: SystemTime) -> String {
    let seconds = now.duration_since(then).unwrap_or_default().as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}
