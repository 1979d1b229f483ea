//! `pgfresh postgres`: lists and installs installations, and shows the one that pgfresh uses.

use std::process::ExitCode;

use serde_json::json;
use server::VersionRequest;
use template::{Provisioner, ServerOptions};

use crate::cli::{Options, Postgres};
use crate::failure::Failure;
use crate::output::say;
use crate::progress;
use crate::settings::ResolvedSettings;
use crate::startup;

pub(crate) fn execute(options: &Options, command: &Postgres) -> Result<ExitCode, Failure> {
    match command {
        Postgres::Install { major } => return install(options, *major),
        Postgres::Path => say!(
            "{}",
            startup::provisioner_without_template(&ResolvedSettings::resolve(options)?)?
                .installation
                .bin()
                .display()
        ),
        Postgres::List { json } => {
            let found = server::list(&startup::cache(options.cache.as_deref())?);
            if *json {
                let all: Vec<_> = found
                    .iter()
                    .map(|found| {
                        json!({
                            "version": found.installation.version().to_string(),
                            "bin": found.installation.bin(),
                            "source": found.source,
                        })
                    })
                    .collect();
                say!("{}", serde_json::Value::from(all));
            } else {
                for found in &found {
                    let installation = &found.installation;
                    let version = installation.version().to_string();
                    say!("{version:<8} {}  ({})", installation.bin().display(), found.source);
                }
            }
            if found.is_empty() {
                // This fails, and the error says where pgfresh searched and what the user can do.
                startup::installed(&ResolvedSettings::resolve(options)?)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Downloads an installation if it is missing, and starts a server to check that the installation works.
fn install(options: &Options, major: u32) -> Result<ExitCode, Failure> {
    let cache = startup::cache(options.cache.as_deref())?;
    let installation = startup::bring((options.download(), options.verbosity()), &cache, major)?;
    let server_options = ServerOptions {
        installation: VersionRequest::Bin(installation.bin().to_owned()),
        ..ServerOptions::default()
    };
    let proof = || -> Result<(), Failure> {
        let provisioner = Provisioner::find(server_options, cache.clone(), sys::this_program().to_owned())?;
        provisioner.start(&progress::announce(options.verbosity()))?.server.stop()?;
        Ok(())
    };
    if let Err(failure) = proof() {
        server::discard(&installation, &cache)?;
        return Err(failure);
    }
    say!("PostgreSQL {} in \"{}\"", installation.version(), installation.bin().display());
    Ok(ExitCode::SUCCESS)
}
