//! The command that the user wants to be run: what it is told of its server, and how it reads on one line.

use std::ffi::OsString;
use std::process::Command;

use server::{Address, Installation};

use crate::failure::Failure;
use crate::service::Service;

/// What the user wants to be run, told where the server is. It finds the programs of `installation` where the user has none.
pub(crate) fn command(
    words: &[OsString],
    env: &[String],
    service: &Service,
    installation: &Installation,
) -> Result<Command, Failure> {
    let address = service.address(&service.database);
    let (program, rest) = words.split_first().expect("clap demands one");
    let mut command = Command::new(program);
    command.args(rest);
    address.describe_to(&mut command);
    service.describe_to(&mut command);
    installation.offer_to(&mut command);
    for assignment in env {
        let (name, value) = fill_in(&address, assignment)?;
        command.env(name, value);
    }
    Ok(command)
}

/// The command on one line, for people who paste it elsewhere: without the passwords of URLs.
pub(crate) fn words(command: &[OsString]) -> String {
    command.iter().map(|word| without_password(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn without_password(word: &str) -> String {
    let known = word.split_once("://").and_then(|(scheme, rest)| {
        let (user, host) = rest.split_once('@')?;
        let (name, _) = user.split_once(':')?;
        Some(format!("{scheme}://{name}:…@{host}"))
    });
    known.unwrap_or_else(|| word.to_owned())
}

/// Fills in what `NAME=TEMPLATE` asks for.
fn fill_in(address: &Address, assignment: &str) -> Result<(String, String), Failure> {
    let wrong = |why: &str| {
        let failure = Failure::new(format!("cannot read --env \"{assignment}\": {why}"));
        failure.hint(
            "Write --env 'NAME={url}'; {host}, {port}, {user}, {password} and {database} are known too."
                .to_owned(),
        )
    };
    let (name, mut rest) = assignment.split_once('=').ok_or_else(|| wrong("it is not NAME=TEMPLATE"))?;
    if name.is_empty() {
        return Err(wrong("the name is empty"));
    }
    let mut value = String::new();
    while let Some((before, after)) = rest.split_once('{') {
        let (word, after) = after.split_once('}').ok_or_else(|| wrong("a \"{\" is not closed"))?;
        value.push_str(before);
        match word {
            "url" => value.push_str(&address.url()),
            "host" => value.push_str(&address.host),
            "port" => value.push_str(&address.port.to_string()),
            "user" => value.push_str(address.user),
            "password" => value.push_str(address.password.as_deref().unwrap_or_default()),
            "database" => value.push_str(&address.database),
            _ => return Err(wrong(&format!("\"{{{word}}}\" is not known"))),
        }
        rest = after;
    }
    value.push_str(rest);
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        Address {
            host: "127.0.0.1".to_owned(),
            port: 5433,
            user: "postgres",
            password: Some("secret".to_owned()),
            database: "shop".to_owned(),
        }
    }

    #[test]
    fn placeholders_are_filled_in_and_unknown_ones_refused() {
        let filled = fill_in(&address(), "URL=x{url}&p={port}{password}").unwrap();
        assert_eq!(
            filled,
            ("URL".into(), "xpostgresql://postgres:secret@127.0.0.1:5433/shop&p=5433secret".into())
        );
        assert_eq!(fill_in(&address(), "A=").unwrap(), ("A".into(), String::new()));
        for wrong in ["URL", "=x", "A={nothing}", "A={url"] {
            assert!(fill_in(&address(), wrong).is_err(), "{wrong}");
        }
    }
}
