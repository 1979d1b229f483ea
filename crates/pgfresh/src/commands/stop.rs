//! `pgfresh stop`: stops background servers.

use std::process::ExitCode;

use crate::background::{self, Stopped};
use crate::cli::Stop;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::print_line;

pub(crate) fn execute(context: &Context, arguments: &Stop) -> Result<ExitCode, Failure> {
    let all = arguments.all;
    let Stopped { count, mut staying } = background::stop(context, all)?;
    if !context.verbosity.is_quiet() {
        staying.sort();
        // `--all` stops named servers, too.
        match (count, all) {
            (0, _) if !staying.is_empty() => {
                let (servers, keep) =
                    if staying.len() == 1 { ("server", "keeps") } else { ("servers", "keep") };
                let names = staying.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
                print_line!("nothing to stop; {servers} {names} {keep} running (pgfresh stop --all)");
            }
            (0, _) => print_line!("nothing to stop"),
            (1, true) => print_line!("stopped one server"),
            (1, false) => print_line!("stopped the background server"),
            (count, true) => print_line!("stopped {count} servers"),
            (count, false) => print_line!("stopped {count} background servers"),
        }
    }
    Ok(ExitCode::SUCCESS)
}
