//! Keeps the reference pages complete. `docs/reference-cli.md` contains the help of every command, while
//! `docs/reference-config.md` is hand-written and lists every key, flag and variable. Tests compare both pages with the
//! code.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Arg, Args, Command};

/// Text before the list of commands.
const INTRODUCTION: &str = "# CLI reference

This page is what `pgfresh COMMAND --help` prints, for every command. A test generates it:
`PGFRESH_WRITE_DOCS=1 cargo test -p pgfresh reference` writes it again.
";

const SHARED: &str = "
## Shared options

Commands that these options affect accept them after their name; each command above lists those that it accepts.
Options are read from flags, then `PGFRESH_*` variables, then [`pgfresh.toml`](reference-config.md). In a variable, `;` separates
the values of a repeatable option.
";

const OUTPUT: &str = "
## Output options

Every command accepts these options, before or after its name.
";

const EXIT_CODES: &str = "
## Exit codes

| code | `run`, `psql`, `migrate`, `faults` | other commands |
|---|---|---|
| 0 to 255 | the command's own exit code | 0 for success |
| 1 | `psql`: pgfresh failed; `migrate`: the check fails; `faults`: there are findings | pgfresh failed |
| 2 | the command line is wrong | the command line is wrong |
| 125 | `run`, `migrate`, `faults`: pgfresh failed; without `--keep` nothing is left behind | |
| 126 | the command cannot be run | |
| 127 | the command does not exist | |
| 128 + N | signal N ended the command | |
";

fn page() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut command = super::command();
    // Give the subcommands their full names.
    command.build();
    for subcommand in command.get_subcommands_mut() {
        describe(subcommand, &mut text);
    }
    text.push_str(SHARED);
    table(shared_options().get_arguments(), "option", &mut text);
    text.push_str(OUTPUT);
    table(command.get_arguments().filter(|arg| arg.is_global_set()), "option", &mut text);
    text.push_str(EXIT_CODES);
    text
}

/// Returns an artificial command that has the options shared by several commands.
fn shared_options() -> Command {
    super::Options::augment_args(Command::new("shared"))
}

fn describe(command: &mut Command, text: &mut String) {
    if command.get_name() == "help" {
        return;
    }
    if command.has_subcommands() {
        command.get_subcommands_mut().for_each(|subcommand| describe(subcommand, text));
        return;
    }
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let name =
        usage.split([' ']).take_while(|word| word.starts_with(|first: char| first.is_ascii_lowercase()));
    let name = name.collect::<Vec<_>>().join(" ");
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    write!(text, "\n## `{name}`\n\n{about}.\n\n```sh\n{usage}\n```\n").unwrap();
    table(command.get_arguments().filter(|arg| arg.is_positional()), "argument", text);
    let all = shared_options();
    let is_shared = |arg: &Arg| all.get_arguments().any(|shared| shared.get_id() == arg.get_id());
    let options = || command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
    let own = |arg: &&Arg| !is_shared(arg) && !arg.is_global_set() && !is_standard(arg);
    table(options().filter(own), "option", text);
    let shared = options().filter(|arg| is_shared(arg)).filter_map(Arg::get_long);
    let shared: Vec<_> = shared.map(|name| format!("`--{name}`")).collect();
    if !shared.is_empty() {
        write!(text, "\n[Shared options](#shared-options): {}.\n", shared.join(", ")).unwrap();
    }
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    if let Some(after) = after {
        write!(text, "\n```text\n{}\n```\n", after.to_string().trim()).unwrap();
    }
}

fn is_standard(arg: &Arg) -> bool {
    ["help", "version"].contains(&arg.get_id().as_str())
}

/// Appends a table of arguments, or nothing if there are none.
fn table<'a>(arguments: impl Iterator<Item = &'a Arg>, what: &str, text: &mut String) {
    let rows: Vec<_> = arguments.filter(|arg| !arg.is_hide_set()).map(row).collect();
    if !rows.is_empty() {
        write!(text, "\n| {what} | meaning | default | variable |\n|---|---|---|---|\n{}", rows.concat())
            .unwrap();
    }
}

fn row(arg: &Arg) -> String {
    let value = arg.get_value_names().filter(|_| arg.get_action().takes_values());
    let value = value.map(|names| format!("<{}>", names.join(" "))).unwrap_or_default();
    let name = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long} {value}"),
        (None, Some(long)) => format!("--{long} {value}"),
        _ => value,
    };
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let (help, stated) = match help.split_once(" [default: ") {
        Some((start, rest)) => {
            let (default, rest) = rest.split_once(']').unwrap_or((rest, ""));
            (format!("{start}{rest}"), default.to_owned())
        }
        None => (help, String::new()),
    };
    let default: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let default = if arg.is_hide_default_value_set() || default == ["false"] {
        stated
    } else {
        stated + &default.join(" ")
    };
    let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    let help = help.replace("\n\n", ". ").replace('\n', " ").replace('|', "\\|");
    format!("| `{}` | {help} | {default} | {variable} |\n", name.trim().replace('|', "\\|"))
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

#[test]
fn cli_reference_matches_help() {
    let path = file("reference-cli.md");
    if std::env::var_os("PGFRESH_WRITE_DOCS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(
        written == page(),
        "PGFRESH_WRITE_DOCS=1 cargo test -p pgfresh reference writes docs/reference-cli.md"
    );
}

#[test]
fn configuration_reference_lists_exactly_existing_settings() {
    let page = std::fs::read_to_string(file("reference-config.md")).unwrap();
    let command = <super::Cli as clap::CommandFactory>::command();
    let mut expected = vec!["`PGFRESH_SET`".to_owned()];
    for arg in shared_options().get_arguments() {
        expected.push(format!("`--{}", arg.get_long().unwrap()));
        expected.extend(arg.get_env().map(|name| format!("`{}`", name.to_str().unwrap())));
    }
    for (table, keys) in crate::settings::tables() {
        expected.push(format!("[{table}]"));
        expected.extend(keys.iter().map(|key| format!("`{key}`")));
    }
    let missing: Vec<_> = expected.iter().filter(|word| !page.contains(*word)).collect();
    assert!(expected.len() > 40 && missing.is_empty(), "docs/reference-config.md lacks {missing:?}");

    let mut known: BTreeSet<String> = ["PGFRESH_SET", crate::settings::PASSWORD].map(str::to_owned).into();
    variables(&command, &mut known);
    let is_part = |letter: char| letter.is_ascii_uppercase() || letter == '_';
    let named =
        page.split(|letter| !is_part(letter)).filter(|word| word.starts_with("PGFRESH_") && word.len() > 8);
    let unknown: Vec<_> = named.filter(|word| !known.contains(*word)).collect();
    assert!(unknown.is_empty(), "docs/reference-config.md names {unknown:?}, which pgfresh does not read");
}

/// Collects all environment variables read by this command and its subcommands.
fn variables(command: &Command, all: &mut BTreeSet<String>) {
    all.extend(command.get_arguments().filter_map(|arg| Some(arg.get_env()?.to_str()?.to_owned())));
    command.get_subcommands().for_each(|command| variables(command, all));
}
