//! `pgfresh stop`: stops background servers.

use std::process::ExitCode;

use crate::background::{self, Stopped};
use crate::cli::Stop;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::say;

pub(crate) fn execute(context: &Context, arguments: &Stop) -> Result<ExitCode, Failure> {
    let all = arguments.all;
    let Stopped { count, mut staying } = background::stop(context, all)?;
    if !context.verbosity.is_quiet() {
        staying.sort();
        // `--all` also stops named servers.
        match (count, all) {
            (0, _) if !staying.is_empty() => {
                let (servers, keep) =
                    if staying.len() == 1 { ("server", "keeps") } else { ("servers", "keep") };
                let names = staying.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
                say!("nothing to stop; {servers} {names} {keep} running (pgfresh stop --all)");
            }
            (0, _) => say!("nothing to stop"),
            (1, true) => say!("stopped one server"),
            (1, false) => say!("stopped the background server"),
            (count, true) => say!("stopped {count} servers"),
            (count, false) => say!("stopped {count} background servers"),
        }
    }
    Ok(ExitCode::SUCCESS)
}
