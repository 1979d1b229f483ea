//! Formats command-line errors in the same style as all other errors.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use super::Cli;
use crate::failure::Failure;

/// Exit code for an invalid command line.
pub(crate) const USAGE: u8 = 2;
/// Maximum number of commands that a hint lists as owners of an option.
const OWNERS: usize = 4;

/// Converts a clap error. Its text begins with "error: MESSAGE", or with a heading followed by more lines. Then come
/// tips, the usage and a pointer to the help.
pub(super) fn failure(error: &clap::Error, arguments: &[OsString]) -> Failure {
    let text = error.render().to_string();
    let mut message = Vec::new();
    let mut hints = Vec::new();
    for line in text.lines().map(str::trim) {
        match line.strip_prefix("tip: ") {
            Some(tip) => hints.push(sentence(tip)),
            None if line.starts_with("Usage:") || line.starts_with("For more information") => break,
            None if hints.is_empty() && !line.is_empty() => message.push(line),
            None => {}
        }
    }
    let path = command_path(arguments);
    if let Some(nearest) = nearest_command(error, &path) {
        hints = vec![format!("Did you mean \"{nearest}\"?")];
    }
    if let Some(hint) = owner_of_option(error, &path) {
        hints = vec![hint];
    }
    // After "--", these commands take the user's command instead of a value.
    if find(&Cli::command(), &path).is_some_and(takes_command) {
        hints.retain(|hint| !hint.contains(" as a value, use '-- "));
    }
    if hints.is_empty() {
        hints.push(format!("\"{path} --help\" lists what it accepts."));
    }
    if is_without_command(error) {
        let hint = format!("Write it after \"--\", as in \"{path} -- pytest\".");
        return Failure::new("the command to run is missing").hint(hint).exit_with(USAGE);
    }
    let message = message.join(" ");
    let mut message = message
        .strip_prefix("error: ")
        .unwrap_or(&message)
        .replace("unrecognized subcommand", "unknown command");
    if let Some((flag, variable)) = variable(error, &path, arguments) {
        message = message.replacen(&format!("'{flag}'"), &variable, 1);
    }
    Failure::new(message).hint(hints.join(" ")).exit_with(USAGE)
}

/// Returns true if the user's command is the only missing argument.
fn is_without_command(error: &clap::Error) -> bool {
    let missing = error.get(ContextKind::InvalidArg);
    error.kind() == ErrorKind::MissingRequiredArgument
        && matches!(missing, Some(ContextValue::Strings(names)) if *names == ["<COMMAND>..."])
}

fn takes_command(command: &Command) -> bool {
    command.get_positionals().any(clap::Arg::is_trailing_var_arg_set)
}

/// Returns the subcommands that the arguments name, ignoring unknown ones.
pub(super) fn command_path(arguments: &[OsString]) -> String {
    let mut command = &Cli::command();
    let mut path = command.get_name().to_owned();
    for word in arguments.iter().skip(1).take_while(|word| *word != "--") {
        if let Some(inner) = word.to_str().and_then(|word| command.find_subcommand(word)) {
            command = inner;
            path = format!("{path} {}", command.get_name());
        }
    }
    path
}

/// Returns the command at `path`, which begins with "pgfresh".
fn find<'c>(root: &'c Command, path: &str) -> Option<&'c Command> {
    path.split(' ').skip(1).try_fold(root, |command, name| command.find_subcommand(name))
}

/// Returns a hint if the unknown option belongs to other commands or precedes its command on the command line.
fn owner_of_option(error: &clap::Error, path: &str) -> Option<String> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = option.strip_prefix("--").filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
    let root = Cli::command();
    let has_option = |command: &Command| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    if has_option(find(&root, path)?) {
        return Some(format!("Write it after the command, as in \"{path} {option}\"."));
    }
    let mut owners = Vec::new();
    collect(&root, "", &mut |path, command| {
        if has_option(command) {
            owners.push(format!("\"{path}\""));
        }
    });
    let more = owners.len().saturating_sub(OWNERS);
    owners.truncate(OWNERS);
    let more = if more > 0 { " and others" } else { "" };
    (!owners.is_empty()).then(|| format!("\"{option}\" is an option of {}{more}.", owners.join(", ")))
}

/// Calls `visit` with a command and each of its descendants, together with their full names.
fn collect(command: &Command, parent: &str, visit: &mut dyn FnMut(&str, &Command)) {
    let path = format!("{parent} {}", command.get_name());
    visit(path.trim_start(), command);
    command.get_subcommands().for_each(|subcommand| collect(subcommand, path.trim_start(), visit));
}

/// Returns the flag whose value `error` rejects and the variable the value comes from.
fn variable(error: &clap::Error, path: &str, arguments: &[OsString]) -> Option<(String, String)> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let (name, _) = flag.split_once(' ')?;
    let is_given = |word: &OsString| word.to_str().is_some_and(|word| word.split('=').next() == Some(name));
    if arguments.iter().any(is_given) {
        return None;
    }
    let root = Cli::command();
    let mut arguments = find(&root, path)?.get_arguments();
    let argument = arguments.find(|argument| argument.get_long() == name.strip_prefix("--"))?;
    Some((flag.clone(), argument.get_env()?.to_str()?.to_owned()))
}

/// Renders the help for the command that the arguments name.
pub(super) fn help_of(arguments: &[OsString]) -> String {
    let mut all = Cli::command();
    // Give the subcommands their full names.
    all.build();
    let path = command_path(arguments);
    let command = path
        .split(' ')
        .skip(1)
        .fold(&mut all, |command, name| command.find_subcommand_mut(name).expect("the path names commands"));
    command.render_help().to_string()
}

fn sentence(tip: &str) -> String {
    let mut letters = tip.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    format!("{}.", first.chain(letters).collect::<String>())
}

/// Returns the known command most similar to the unknown one, or `None` if none is similar enough.
fn nearest_command(error: &clap::Error, path: &str) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let root = Cli::command();
    let names = find(&root, path)?.get_subcommands().map(clap::Command::get_name);
    let (distance, name) = names.map(|name| (strsim::osa_distance(name, word), name)).min()?;
    (distance <= 2 && distance < name.len().min(word.len())).then(|| format!("{path} {name}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn split(line: &str) -> Vec<OsString> {
        std::iter::once("pgfresh").chain(line.split_whitespace()).map(OsString::from).collect()
    }

    #[track_caller]
    fn check(line: &str, message: &str, hint: &str) {
        let arguments = split(line);
        let failure = failure(&Cli::try_parse_from(&arguments).unwrap_err(), &arguments).to_string();
        assert_eq!(failure, format!("pgfresh: {message}\nHINT:  {hint}\n"));
    }

    #[test]
    fn a_misspelt_word_gets_the_nearest_one() {
        check("rnu -- true", "unknown command 'rnu'", "Did you mean \"pgfresh run\"?");
        check("template biuld", "unknown command 'biuld'", "Did you mean \"pgfresh template build\"?");
        check("frobnicate", "unknown command 'frobnicate'", "\"pgfresh --help\" lists what it accepts.");
        check(
            "postgres list --jsno",
            "unexpected argument '--jsno' found",
            "A similar argument exists: '--json'.",
        );
    }

    #[test]
    fn invalid_argument_error_explains_expected_form() {
        let help = "\"pgfresh bench fresh --help\" lists what it accepts.";
        check(
            "bench fresh --rounds 1",
            "invalid value '1' for '--rounds <ROUNDS>': expected a number from 3 to 10000",
            help,
        );
        check(
            "run --linger 5 -- true",
            "invalid value '5' for '--linger <TIME>': expected a time with its unit (ms, s, min or h), such as 5s",
            "\"pgfresh run --help\" lists what it accepts.",
        );
        check(
            "run --cache-size 10 -- true",
            "invalid value '10' for '--cache-size <SIZE>': expected a size with a unit, such as 10GB",
            "\"pgfresh run --help\" lists what it accepts.",
        );
        check(
            "run",
            "the command to run is missing",
            "Write it after \"--\", as in \"pgfresh run -- pytest\".",
        );
        check(
            "bench suite",
            "the command to run is missing",
            "Write it after \"--\", as in \"pgfresh bench suite -- pytest\".",
        );
    }

    #[test]
    fn option_of_another_command_names_its_commands() {
        check(
            "status --idle 1s",
            "unexpected argument '--idle' found",
            "\"--idle\" is an option of \"pgfresh run\", \"pgfresh serve\", \"pgfresh psql\", \"pgfresh url\".",
        );
        check(
            "template list --rounds=3",
            "unexpected argument '--rounds' found",
            "\"--rounds\" is an option of \"pgfresh run\", \"pgfresh bench start\", \"pgfresh bench fresh\", \
            \"pgfresh bench pools\" and others.",
        );
        check(
            "--cache-size 10GB run -- true",
            "unexpected argument '--cache-size' found",
            "Write it after the command, as in \"pgfresh run --cache-size\".",
        );
    }

    #[test]
    fn command_without_subcommand_shows_its_help() {
        for (line, usage) in [
            ("", "Usage: pgfresh [OPTIONS]"),
            ("template", "Usage: pgfresh template"),
            ("-q bench", "Usage: pgfresh bench"),
        ] {
            let help = help_of(&split(line));
            assert!(help.contains(usage) && help.contains("Commands:"), "{line:?}: {help}");
            assert!(!help.contains("\n\n\n"), "{line:?}: {help}");
        }
    }

    /// Checks that arguments in any order are either valid or produce an error with one message and one hint.
    #[test]
    fn invalid_command_line_yields_one_message_and_hint() {
        let command = super::super::command();
        let mut known =
            vec!["--".to_owned(), "x".to_owned(), "1..=3".to_owned(), "\n".to_owned(), String::new()];
        for inner in command.get_subcommands() {
            known.push(inner.get_name().to_owned());
            known.extend(inner.get_subcommands().map(|inner| inner.get_name().to_owned()));
            known.extend(inner.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))));
        }
        let strategy = proptest::collection::vec(proptest::sample::select(known), 0..6);
        proptest::proptest!(proptest::test_runner::Config::with_cases(64), |(line in strategy)| {
            let arguments: Vec<OsString> = std::iter::once("pgfresh".into()).chain(line.into_iter().map(OsString::from)).collect();
            if let Err(error) = Cli::try_parse_from(&arguments) && error.use_stderr() {
                let text = failure(&error, &arguments).to_string();
                proptest::prop_assert!(text.starts_with("pgfresh: ") && !text.contains("error:"), "{text}");
                proptest::prop_assert!(text.matches("\nHINT:  ").count() == 1 && !text.contains("Usage:"), "{text}");
            }
        });
    }
}
