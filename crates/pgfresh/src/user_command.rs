//! Prepares the user's command: sets its environment variables and formats it as one line.

use std::ffi::OsString;
use std::process::Command;

use server::Installation;

use crate::service::Service;
use crate::variable::Variable;

/// Message for the user if the command never connected to the server.
pub(crate) const NO_SESSION: &str =
    "No session began: the command did not connect to the server. Does it read DATABASE_URL or PG*?";

/// Builds the command, with the server's address in its environment. Appends the programs of `installation` to the
/// command's PATH.
pub(crate) fn command(
    words: &[OsString],
    env: &[Variable],
    service: &Service,
    installation: &Installation,
) -> Command {
    let address = service.address(&service.database);
    let (program, rest) = words.split_first().expect("clap demands one");
    let mut command = Command::new(program);
    command.args(rest);
    address.describe_to(&mut command);
    service.describe_to(&mut command);
    installation.append_to_path(&mut command);
    for variable in env {
        command.env(variable.name(), variable.value(&address));
    }
    command
}

/// Formats the command as one line without the passwords in URLs, so that users can safely paste it elsewhere.
pub(crate) fn to_line(command: &[OsString]) -> String {
    without_passwords(command).join(" ")
}

/// Returns the words of a command without the passwords in URLs.
pub(crate) fn without_passwords(command: &[OsString]) -> Vec<String> {
    command.iter().map(|word| without_password(&word.to_string_lossy())).collect()
}

fn without_password(word: &str) -> String {
    let known = word.split_once("://").and_then(|(scheme, rest)| {
        let (user, host) = rest.split_once('@')?;
        let (name, _) = user.split_once(':')?;
        Some(format!("{scheme}://{name}:…@{host}"))
    });
    known.unwrap_or_else(|| word.to_owned())
}
