//! Builds help texts that show only relevant options. `-h` fits on one screen and shows a command's own options.
//! `--help` also shows the options for the server, templates and databases, if they affect the command.

use clap::{Arg, CommandFactory};

use super::Cli;

const SERVER: [&str; 7] = ["postgres", "place", "space", "download", "no_download", "preset", "set"];
const TEMPLATE: [&str; 9] =
    ["template", "setup", "inputs", "setup_env", "sql", "dump", "steps", "from", "cache_size"];
/// Option for trusted public keys.
const KEYS: [&str; 1] = ["cache_key"];
/// Options for the remote template cache.
const REMOTE: [&str; 2] = ["cache_remote", "cache_push"];
const DATABASES: [&str; 4] = ["isolation", "linger", "created", "except"];
/// Options that locate the project, its templates and its background server.
const FILES: [&str; 2] = ["config", "cache"];
const INSTALLATION: [&str; 3] = ["postgres", "download", "no_download"];
const BACKGROUND: [&str; 1] = ["idle"];
/// Options that every command has.
const OUTPUT: [&str; 2] = ["verbose", "quiet"];

/// Returns the options from [`super::Options`] that affect a command.
fn effective(command: &str) -> Vec<&'static str> {
    let groups: &[&[&str]] = match command.split(' ').next().unwrap_or_default() {
        "run" => &[&SERVER, &TEMPLATE, &KEYS, &REMOTE, &DATABASES, &FILES],
        "doctor" => &[&SERVER, &TEMPLATE, &DATABASES, &FILES],
        "serve" | "psql" | "url" => &[&SERVER, &TEMPLATE, &KEYS, &REMOTE, &DATABASES, &FILES, &BACKGROUND],
        "bench" => match command {
            "bench suite" => &[&SERVER, &TEMPLATE, &DATABASES, &FILES],
            _ => &[&SERVER, &TEMPLATE, &FILES],
        },
        "reset" | "release" | "diff" | "status" | "open" | "stop" => &[&FILES],
        "sweep" => &[&["place"], &FILES],
        "ci" => &[&["postgres", "config"]],
        "snapshot" => &[&INSTALLATION, &FILES],
        "postgres" => match command {
            "postgres list" => &[&["cache"]],
            "postgres install" => &[&["download", "no_download", "cache"]],
            _ => &[&INSTALLATION, &FILES],
        },
        "template" => match command {
            "template show" => &[&SERVER, &TEMPLATE, &FILES],
            "template build" | "template push" | "template pull" => {
                &[&SERVER, &TEMPLATE, &KEYS, &REMOTE, &FILES]
            }
            "template verify" => &[&KEYS, &["config"]],
            "template keygen" | "template sign" => &[],
            "template list" | "template gc" => &[&["cache_remote"], &FILES],
            "template import" => &[&INSTALLATION, &FILES],
            _ => &[&FILES],
        },
        _ => &[],
    };
    groups.iter().copied().flatten().copied().chain(OUTPUT).collect()
}

/// Builds the command-line parser, including the help.
pub(crate) fn command() -> clap::Command {
    let mut command = with_long_help(Cli::command());
    // `build` also passes the global options on to each command.
    command.build();
    let all = [&SERVER[..], &TEMPLATE, &KEYS, &REMOTE, &DATABASES, &FILES, &BACKGROUND].concat();
    adapt(command, "", &all)
}

/// Gives every command a long help, because clap looks for one before it knows which options `-h` leaves out.
fn with_long_help(command: clap::Command) -> clap::Command {
    let about = command.get_after_help().cloned().unwrap_or_default();
    let has_long = command.get_after_long_help().is_some();
    let command = if has_long { command } else { command.after_long_help(about) };
    command.mut_subcommands(with_long_help)
}

/// Hides options that don't affect the command. Also hides all global options from `-h`.
fn adapt(mut command: clap::Command, path: &str, all: &[&str]) -> clap::Command {
    let effective = effective(path);
    let shared = |arg: &Arg| all.contains(&arg.get_id().as_str());
    let mut shortened = false;
    command = command.mut_args(|arg| {
        if !shared(&arg) {
            return arg;
        }
        // pgfresh itself has only global options, so its `--help` lists all of them.
        let has_effect = path.is_empty() || effective.contains(&arg.get_id().as_str());
        shortened |= has_effect;
        arg.hide(!has_effect).hide_short_help(true)
    });
    // Otherwise, a variable's value would make an option look required in an error's usage line.
    let usage = command.render_usage().to_string();
    command = command.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    if shortened {
        let about = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let name = if path.is_empty() { String::new() } else { format!(" {path}") };
        let more = format!("\"pgfresh{name} --help\" lists the global options, too.");
        // The list of all commands is long, so there is no room for a blank line.
        let gap = match path {
            _ if about.is_empty() => "",
            "" => "\n",
            _ => "\n\n",
        };
        command = command.after_help(format!("{about}{gap}{more}"));
    }
    command.mut_subcommands(|subcommand| {
        let name = subcommand.get_name();
        if name == "help" {
            return subcommand.hide(true);
        }
        let path = if path.is_empty() { name.to_owned() } else { format!("{path} {name}") };
        adapt(subcommand, &path, all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `visit` for every command with its path after "pgfresh".
    fn all(command: &mut clap::Command, path: &str, visit: &mut dyn FnMut(&str, &mut clap::Command)) {
        visit(path, command);
        for subcommand in command.get_subcommands_mut().filter(|command| command.get_name() != "help") {
            let name = subcommand.get_name();
            let path = if path.is_empty() { name.to_owned() } else { format!("{path} {name}") };
            all(subcommand, &path, visit);
        }
    }

    #[test]
    fn short_help_of_every_command_fits_one_screen() {
        let mut lines = Vec::new();
        all(&mut command(), "", &mut |path, command| {
            lines.push((command.render_help().to_string().lines().count(), path.to_owned()));
        });
        assert!(lines.len() > 30);
        let long: Vec<_> = lines.iter().filter(|(count, _)| *count >= 35).collect();
        assert!(long.is_empty(), "{long:?}");
    }

    #[test]
    fn long_help_lists_exactly_the_effective_global_options() {
        let global = Cli::command();
        let global: Vec<_> = global.get_arguments().filter(|arg| arg.is_global_set()).collect();
        assert!(global.len() > 15);
        all(&mut command(), "", &mut |path, command| {
            let help = command.render_long_help().to_string();
            for arg in &global {
                let name = format!("--{} ", arg.get_long().unwrap());
                let shown = help.contains(&name) || help.contains(&name.replace(' ', "\n"));
                let expected = path.is_empty() || effective(path).contains(&arg.get_id().as_str());
                let own = ["postgres", "template"].contains(&path) || arg.get_id() == "verbose";
                assert!(shown == expected || own, "{path:?} {name:?}\n{help}");
            }
        });
    }

    /// Passes the flag to the parser instead of rendering the help directly, to test the text that users see.
    #[test]
    fn help_flag_prints_short_or_long_help() {
        let mut paths = Vec::new();
        all(&mut command(), "", &mut |path, _| paths.push(path.to_owned()));
        let printed = |path: &str, flag: &str| {
            let words = ["pgfresh"].into_iter().chain(path.split_whitespace()).chain([flag]);
            command().try_get_matches_from(words).unwrap_err().to_string()
        };
        for path in paths.iter().filter(|path| !effective(path).iter().all(|name| OUTPUT.contains(name))) {
            let (short, long) = (printed(path, "-h"), printed(path, "--help"));
            assert!(short.lines().count() < 35, "{path}");
            assert!(
                !short.contains("--cache") && short.contains("lists the global options"),
                "{path}\n{short}"
            );
            assert!(long.contains("--cache <") || long.contains("--config <"), "{path}\n{long}");
            assert!(!long.contains("lists the global options"), "{path}\n{long}");
        }
        for path in ["template", "bench", "postgres"] {
            assert!(!printed(path, "--help").contains("\n  help "), "{path}");
        }
    }

    #[test]
    fn usage_line_lists_only_required_options() {
        all(&mut command(), "", &mut |path, command| {
            let usage = command.render_usage().to_string();
            let name = format!("pgfresh {path}");
            assert!(usage.starts_with(&format!("Usage: {}", name.trim_end())), "{usage}");
            assert!(!usage.contains(" --") || ["profile", "template gc"].contains(&path), "{usage}");
        });
    }
}
