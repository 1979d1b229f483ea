//! Pushes, pulls, lists and removes templates in a remote cache.

use std::path::PathBuf;
use std::time::Duration;

use remote::{RemoteAddress, RemoteCache, RemoteError, Timeouts};
use serde_json::json;
use storage::human_bytes;
use template::ServerOptions;

use super::{signed, spec};
use crate::cli::Collect;
use crate::context::Context;
use crate::context::provisioning;
use crate::failure::Failure;
use crate::notice::notice;
use crate::output::print_line;
use crate::progress;
use crate::settings::{RemoteSettings, ResolvedSettings, no_trusted_key, parse_address};

/// Maximum time that "list" waits for the remote's response.
const LISTING: Duration = Duration::from_secs(3);

/// Destination of a push, or source of a pull.
pub(super) enum Target {
    Folder(PathBuf),
    Remote(RemoteAddress),
}

/// Interprets `target` as a directory or a remote's URL. Without `target`, returns the configured remote.
pub(super) fn target(context: &Context, target: Option<&str>) -> Result<Target, Failure> {
    match target {
        Some(url) if url.contains("://") => Ok(Target::Remote(parse_address(url, false)?)),
        Some(folder) => Ok(Target::Folder(folder.into())),
        None => Ok(Target::Remote(configured(context.settings()?)?.address.clone())),
    }
}

fn configured(settings: &ResolvedSettings) -> Result<&RemoteSettings, Failure> {
    settings.remote.as_ref().ok_or_else(|| {
        Failure::new("there is no remote template cache").hint(
            "Write remote = \"s3://BUCKET/PREFIX\" under [cache] in pgfresh.toml, use --cache-remote, or name a directory."
                .to_owned(),
        )
    })
}

fn remote(context: &Context, address: RemoteAddress) -> Result<RemoteCache, Failure> {
    Ok(RemoteCache::new(address, context.cache()?, context.settings()?.trusted.clone()))
}

/// Builds the failure for an action on `address`.
fn failed(what: &'static str, address: &RemoteAddress) -> impl FnOnce(RemoteError) -> Failure + use<> {
    let address = address.to_string();
    move |error| Failure::new(format!("could not {what} {address}: {error}"))
}

/// Pushes the template, building it first if it isn't cached.
pub(super) fn push(
    context: &Context,
    address: RemoteAddress,
    file: Option<&std::path::Path>,
) -> Result<(), Failure> {
    let settings = context.settings()?;
    // Check for the key first, so that a missing key fails before the build.
    let key = signed::key_for_push(settings, file)?.ok_or_else(signed::no_key)?;
    let remote = remote(context, address)?;
    remote.expect_usable().map_err(failed("push to", remote.address()))?;
    let spec = spec(settings, None)?;
    let name = &spec.title();
    let options = ServerOptions { template: Some(spec), ..settings.server_options.clone() };
    let announce = progress::announce(context.verbosity);
    let template = provisioning::provisioner(context, options)?.template(&announce)?;
    let progress = |done, total| announce(template::Step::Pushing { name, done, total });
    let pushed = remote
        .push(&template.entry, &key, Timeouts::ASKED_FOR, &progress)
        .map_err(failed("push to", remote.address()))?;
    if !context.verbosity.is_quiet() {
        let what = match (pushed.bytes, pushed.shared) {
            (0, _) => "is already in the remote".to_owned(),
            (bytes, 0) => format!("pushed, {}", human_bytes(bytes)),
            (bytes, shared) => format!("pushed, {}, and shares {}", human_bytes(bytes), human_bytes(shared)),
        };
        print_line!("{name} {} {what}", template.fingerprint);
    }
    Ok(())
}

/// Pulls the template the options select. The fingerprint depends only on the template's inputs, so no build is needed.
pub(super) fn pull(context: &Context, address: RemoteAddress) -> Result<(), Failure> {
    let settings = context.settings()?;
    if settings.trusted.is_empty() {
        return Err(no_trusted_key(&address));
    }
    let spec = spec(settings, None)?;
    let name = &spec.title();
    let options = ServerOptions { template: Some(spec), ..settings.server_options.clone() };
    let provisioner = provisioning::provisioner(context, options)?;
    let fingerprint = provisioner.fingerprint()?;
    let announce = progress::announce(context.verbosity);
    let building =
        provisioner.cache.building(fingerprint.as_str(), || announce(template::Step::Waiting { name }))?;
    let mut what = "is already in the cache";
    if provisioner.cache.examine(fingerprint.as_str())?.is_none() {
        let progress = |done, total| announce(template::Step::Fetching { name, done, total });
        let limit = settings.server_options.cache_size.unwrap_or(u64::MAX);
        let into = remote::Destination { building: &building, limit };
        let (shown, failed) = (address.to_string(), failed("pull from", &address));
        remote(context, address)?
            .fetch(fingerprint.as_str(), into, Timeouts::ASKED_FOR, &progress)
            .map_err(failed)?
            .ok_or_else(|| {
                Failure::new(format!("there is no template {fingerprint} in {shown}"))
                    .hint("\"pgfresh template push\" writes it.".to_owned())
            })?;
        what = "taken over";
    }
    if !context.verbosity.is_quiet() {
        print_line!("{name} {fingerprint} {what}");
    }
    Ok(())
}

/// Prints the contents of the configured remote, if any, or a warning if the remote doesn't respond.
pub(super) fn list(context: &Context) -> Result<(), Failure> {
    let Some(RemoteSettings { address, .. }) = &context.settings()?.remote else { return Ok(()) };
    match remote(context, address.clone())?.usage(LISTING) {
        Ok(usage) => {
            let (templates, bytes) = (counted(usage.templates, "template"), human_bytes(usage.bytes));
            print_line!("{address}: {templates}, {bytes}");
        }
        Err(error) => notice!("pgfresh: {address}: {error}"),
    }
    Ok(())
}

/// Removes templates older than the user's limit from the configured remote.
pub(super) fn collect(context: &Context, arguments: &Collect) -> Result<(), Failure> {
    let age = arguments.older_than;
    let address = configured(context.settings()?)?.address.clone();
    let collected = remote(context, address.clone())?.collect(age).map_err(failed("clean up", &address))?;
    if arguments.json {
        let value =
            json!({"templates": collected.templates, "objects": collected.blobs, "bytes": collected.bytes});
        print_line!("{value}");
        return Ok(());
    }
    if context.verbosity.is_quiet() {
        return Ok(());
    }
    for fingerprint in &collected.templates {
        print_line!("removed {}", super::short(fingerprint));
    }
    let templates = counted(collected.templates.len(), "template");
    let objects = counted(collected.blobs, "object");
    print_line!("{address}: removed {templates}, {objects}, {}", human_bytes(collected.bytes));
    Ok(())
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
