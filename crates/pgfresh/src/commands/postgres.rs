//! `pgfresh postgres`: lists and downloads installations and shows which one pgfresh uses.

use std::process::ExitCode;

use serde_json::json;
use server::VersionRequest;
use template::ServerOptions;

use crate::cli::{Install, ListInstallations, Postgres};
use crate::context::Context;
use crate::context::provisioning;
use crate::failure::Failure;
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
        // Fail with the error that explains where pgfresh searched and what the user can do.
        provisioning::find_installed(ServerOptions::default(), cache)?;
    }
    Ok(())
}

/// Downloads an installation if it is missing, then starts a server to check that the installation works.
fn install(context: &Context, arguments: &Install) -> Result<(), Failure> {
    let cache = context.cache()?;
    let installation =
        provisioning::download(&cache, arguments.major, arguments.download(), context.verbosity)?;
    let server_options = ServerOptions {
        installation: VersionRequest::Bin(installation.bin().to_owned()),
        ..ServerOptions::default()
    };
    let proof = || -> Result<(), Failure> {
        let provisioner = provisioning::find_installed(server_options, cache.clone())?;
        provisioner.start(&progress::announce(context.verbosity))?.server.stop()?;
        Ok(())
    };
    if let Err(failure) = proof() {
        server::discard(&installation, &cache)?;
        return Err(failure);
    }
    print_line!("PostgreSQL {} in \"{}\"", installation.version(), installation.bin().display());
    Ok(())
}
