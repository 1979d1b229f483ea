//! `pgfresh postgres`: which installations there are, and which one would be used.

use std::process::ExitCode;

use serde_json::json;

use crate::cli::{Options, Postgres};
use crate::failure::Failure;

pub(crate) fn execute(options: &Options, command: &Postgres) -> Result<ExitCode, Failure> {
    match command {
        Postgres::Path => println!("{}", super::bare_maker(options)?.installation.bin().display()),
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
                println!("{}", serde_json::Value::from(all));
            } else {
                for found in &found {
                    let installation = &found.installation;
                    let version = installation.version().to_string();
                    println!("{version:<8} {}  ({})", installation.bin().display(), found.source);
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
