//! `pgfresh postgres`: which installations there are, and which one would be used.

use std::process::ExitCode;

use serde_json::json;
use server::{FetchError, Installation, Wanted};
use storage::Cache;
use template::{Maker, Wishes};

use crate::cli::{Options, Postgres};
use crate::failure::Failure;
use crate::output::say;
use crate::progress;

pub(crate) fn execute(options: &Options, command: &Postgres) -> Result<ExitCode, Failure> {
    match command {
        Postgres::Install { major } => return install(options, *major),
        Postgres::Path => say!("{}", super::bare_maker(options)?.installation.bin().display()),
        Postgres::List { json } => {
            let found = server::list(&super::cache(options)?);
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
                // The error of a search says where it looked and what to do.
                super::bare_maker(options)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Brings an installation, unless it is there, and proves that it works by starting a server.
fn install(options: &Options, major: u32) -> Result<ExitCode, Failure> {
    let cache = super::cache(options)?;
    let installation = bring(options, &cache, major)?;
    let wishes = Wishes { installation: Wanted::Bin(installation.bin().to_owned()), ..Wishes::default() };
    let proof = || -> Result<(), Failure> {
        let maker = Maker::find(wishes, cache.clone(), super::OURSELVES.into())?;
        maker.start(&progress::announce(options))?.server.stop()?;
        Ok(())
    };
    if let Err(failure) = proof() {
        server::discard(&installation, &cache)?;
        return Err(failure);
    }
    say!("PostgreSQL {} in \"{}\"", installation.version(), installation.bin().display());
    Ok(ExitCode::SUCCESS)
}

/// Brings one, and says so.
pub(super) fn bring(options: &Options, cache: &Cache, major: u32) -> Result<Installation, FetchError> {
    server::fetch(major, cache, super::OURSELVES.as_ref(), &|client| {
        if !options.quiet {
            eprintln!("pgfresh: installing PostgreSQL {major} with {}, this once", client.name());
        }
    })
}
