//! `pgfresh postgres`: lists and downloads installations and shows which one pgfresh uses.

use std::cell::Cell;
use std::process::ExitCode;

use serde_json::json;
use server::{ExtensionName, Installation, Server, SessionError, VersionRequest};
use storage::Cache;
use template::{ProvisionError, ServerOptions};

use crate::cli::{Install, ListInstallations, Postgres};
use crate::context::Context;
use crate::context::provisioning;
use crate::failure::Failure;
use crate::notice::notice;
use crate::output::print_line;
use crate::progress;

pub(crate) fn execute(context: &Context, command: &Postgres) -> Result<ExitCode, Failure> {
    match command {
        Postgres::Install(arguments) => install(context, arguments)?,
        Postgres::Path(_) => print_line!("{}", provisioning::installation(context)?.bin().display()),
        Postgres::List(arguments) => list(context, arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(context: &Context, arguments: &ListInstallations) -> Result<(), Failure> {
    let cache = context.cache()?;
    let found = server::list(&cache);
    if arguments.json {
        let all = found.iter().map(|found| {
            json!({
                "version": found.installation.version().to_string(),
                "bin": found.installation.bin(),
                "source": found.source,
            })
        });
        print_line!("{}", all.collect::<serde_json::Value>());
    } else {
        for found in &found {
            let installation = &found.installation;
            let version = installation.version().to_string();
            print_line!("{version:<8} {}  ({})", installation.bin().display(), found.source);
        }
    }
    if found.is_empty() {
        // Return the error that explains where pgfresh searched and what the user can do.
        provisioning::find_installed(ServerOptions::default(), cache)?;
    }
    Ok(())
}

/// Downloads an installation and extensions if they are missing, then starts a server to check that they work.
fn install(context: &Context, arguments: &Install) -> Result<(), Failure> {
    let cache = context.cache()?;
    let (major, policy) = (arguments.major, arguments.download());
    let is_new = Cell::new(false);
    let installation = server::fetch(major, &cache, sys::this_program(), policy, &|package, folder| {
        is_new.set(true);
        provisioning::announce(package, major, folder, context.verbosity);
    })?;
    if !arguments.with.is_empty() {
        provisioning::add_extensions(&installation, &arguments.with, &cache, policy, context.verbosity)?;
    }
    let server_options = ServerOptions {
        installation: VersionRequest::Bin(installation.bin().to_owned()),
        ..ServerOptions::default()
    };
    let start = || -> Result<Server, Failure> {
        let provisioner = provisioning::find_installed(server_options, cache.clone())?;
        Ok(provisioner.start(&progress::announce(context.verbosity))?.server)
    };
    let server = match start() {
        Ok(server) => server,
        Err(failure) => {
            // If the installation already existed, keep it: other servers may use it, and the cause may be
            // a full disk.
            if is_new.get() {
                server::discard(&installation, &cache)?;
            }
            return Err(failure);
        }
    };
    let created = create_extensions(&server, &installation, &arguments.with);
    server.stop()?;
    created?;
    print_line!("PostgreSQL {} in \"{}\"", installation.version(), installation.bin().display());
    note_other_choice(context, &installation, cache);
    Ok(())
}

/// Creates the extensions in one of the server's databases, which loads the extensions' libraries. Uninstalls an
/// extension that fails.
fn create_extensions(
    server: &Server,
    installation: &Installation,
    names: &[ExtensionName],
) -> Result<(), Failure> {
    for name in names {
        let sql = format!("CREATE EXTENSION IF NOT EXISTS {} CASCADE", server::identifier(name.as_str()));
        match server.session("postgres").map_err(ProvisionError::from)?.query(&sql) {
            Ok(_) => {}
            Err(error @ SessionError::Server { .. }) if server::expects_preload(installation, name) => {
                notice!("pgfresh: extension \"{}\" needs a setting: {error}", name.as_str());
            }
            Err(error) => {
                if !is_about_machine(&error) {
                    server::withdraw_extension(installation, name)?;
                }
                let failure = Failure::new(format!("extension \"{}\" does not work: {error}", name.as_str()));
                return Err(failure.detail(error.detail()));
            }
        }
    }
    Ok(())
}

/// Returns true if the error is due to a lack of resources or a server shutdown. The extension itself may still work.
fn is_about_machine(error: &SessionError) -> bool {
    match error {
        SessionError::Io { .. } => true,
        SessionError::Server { sqlstate, .. } => ["53", "57"].iter().any(|class| sqlstate.starts_with(class)),
    }
}

/// Prints a note if pgfresh prefers another installation of the same major version.
fn note_other_choice(context: &Context, installation: &Installation, cache: Cache) {
    let major = installation.version().major;
    let options = ServerOptions { installation: VersionRequest::Major(major), ..ServerOptions::default() };
    if let Ok(other) = provisioning::find_installed(options, cache)
        && other.installation.bin().canonicalize().ok() != installation.bin().canonicalize().ok()
        && !context.verbosity.is_quiet()
    {
        notice!(
            "pgfresh: --postgres {major} means \"{}\"; name the downloaded one with --postgres PATH, PGFRESH_POSTGRES or postgres.version",
            other.installation.bin().display()
        );
    }
}
