//! Checks the help texts of all commands.

use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory};

use super::Cli;

/// Columns of a small terminal.
const NARROW: usize = 80;
/// Maximum number of lines that `-h` prints on a small terminal.
const SHORT_LINES: usize = 38;
/// Limit for the length of `pgfresh run --help` on a small terminal, in lines. The help must be shorter.
const LONG_LINES: usize = 165;

/// Calls `visit` for every command with its path, which excludes "pgfresh".
fn visit_all(visit: &mut dyn FnMut(&str, &mut Command)) {
    fn visit_below(command: &mut Command, path: &str, visit: &mut dyn FnMut(&str, &mut Command)) {
        visit(path, command);
        for subcommand in command.get_subcommands_mut().filter(|command| command.get_name() != "help") {
            let path = format!("{path} {}", subcommand.get_name());
            visit_below(subcommand, path.trim_start(), visit);
        }
    }
    let mut command = Cli::command();
    command.build();
    visit_below(&mut command, "", visit);
}

/// Returns what pgfresh prints for `flag` on a terminal of this width.
fn printed(path: &str, flag: &str, width: usize) -> String {
    let words = ["pgfresh"].into_iter().chain(path.split_whitespace()).chain([flag]);
    Cli::command().term_width(width).try_get_matches_from(words).unwrap_err().to_string()
}

#[test]
fn short_help_of_every_command_fits_one_screen() {
    let mut lines = Vec::new();
    visit_all(&mut |path, _| {
        let help = printed(path, "-h", NARROW);
        assert!(help.lines().all(|line| line.chars().count() <= NARROW), "{path}\n{help}");
        lines.push((help.lines().count(), path.to_owned()));
    });
    assert!(lines.len() > 30);
    let long: Vec<_> = lines.iter().filter(|(count, _)| *count > SHORT_LINES).collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn long_help_of_run_is_short_and_grouped() {
    let help = printed("run", "--help", NARROW);
    assert!(help.lines().count() < LONG_LINES, "{} lines\n{help}", help.lines().count());
    for heading in
        ["Options", "Server", "Template", "Template cache", "Databases", "Background server", "Files"]
    {
        assert!(help.contains(&format!("\n{heading}:\n")), "{heading}\n{help}");
    }
}

/// Unlike `--help`, `-h` omits the options that a command shares with others.
#[test]
fn short_help_hides_shared_options() {
    visit_all(&mut |path, command| {
        let is_shared = |arg: &&Arg| arg.is_hide_short_help_set() && !arg.is_hide_set();
        let shared: Vec<_> = command.get_arguments().filter(is_shared).filter_map(Arg::get_long).collect();
        let (short, long) = (printed(path, "-h", NARROW), printed(path, "--help", NARROW));
        for name in &shared {
            let is_in = |help: &str| {
                let starts = |line: &str| line.trim_start().split(' ').next() == Some(&format!("--{name}"));
                help.lines().any(starts)
            };
            assert!(!is_in(&short) && is_in(&long), "{path} {name}\n{short}\n{long}");
        }
        assert!(shared.is_empty() || short.contains("see more with '--help'"), "{path}\n{short}");
    });
}

#[test]
fn options_without_effect_do_not_parse() {
    for line in [
        "stop --place ram",
        "sweep --set jit=off",
        "doctor --isolation clone",
        "bench suite --place ram -- true",
        "bench fresh --template app",
        "template show --cache-push always",
        "template keygen --cache x key",
        "postgres list --config x.toml",
        "profile --url x --cache x",
        "--place ram run -- true",
    ] {
        let arguments = ["pgfresh"].into_iter().chain(line.split_whitespace());
        let error = Cli::command().try_get_matches_from(arguments).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{line}");
    }
}

#[test]
fn usage_line_lists_only_required_options() {
    visit_all(&mut |path, command| {
        let usage = command.render_usage().to_string();
        let name = format!("pgfresh {path}");
        assert!(usage.starts_with(&format!("Usage: {}", name.trim_end())), "{usage}");
        assert!(
            !usage.contains(" --") || ["profile", "template gc", "migrate roundtrip"].contains(&path),
            "{usage}"
        );
    });
}
