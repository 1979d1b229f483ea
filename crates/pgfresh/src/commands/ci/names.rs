//! Writes the names of a template's inputs in the syntax of each CI system.
//!
//! A name passes through two languages: the CI system's own (an expression, a list of patterns or a shell command), and
//! YAML around it. [`check`] rejects names that the system's language can't express.

use crate::cli::System;
use crate::failure::Failure;

/// Returns an error if `system` can't express one of `names` in its configuration.
pub(super) fn check(system: System, names: &[String]) -> Result<(), Failure> {
    let Some((name, reason)) = names.iter().find_map(|name| Some((name, obstacle(system, name)?))) else {
        return Ok(());
    };
    Err(Failure::new(format!("cannot write the input {name:?} in a configuration for this CI system"))
        .detail(reason.to_owned())
        .hint("Rename the file, or name its folder in inputs.".to_owned()))
}

/// Returns why `system` can't express `name`, or `None` if it can.
fn obstacle(system: System, name: &str) -> Option<&'static str> {
    let has = |texts: &[&str]| texts.iter().any(|text| name.contains(text));
    if name.contains(char::is_control) {
        return Some("The name has a line break or another control character.");
    }
    match system {
        System::Github | System::Azure if name.trim() != name => {
            Some("The CI system removes spaces at the start and end of a name.")
        }
        System::Github if name.starts_with('#') => {
            Some("GitHub reads a pattern that starts with # as a comment.")
        }
        System::Azure if has(&["|", ",", "$(", "${{"]) => {
            Some("In a cache key, Azure gives |, a comma, $( and ${{ a meaning of their own.")
        }
        System::Gitlab if name.contains('$') => Some("GitLab expands variables in a cache key."),
        _ => None,
    }
}

/// Returns the arguments of GitHub's function `hashFiles`.
pub(super) fn arguments(names: &[String]) -> String {
    let literals: Vec<_> = names.iter().map(|name| format!("'{}'", name.replace('\'', "''"))).collect();
    literals.join(", ")
}

/// Returns a file pattern of Azure's cache key.
pub(super) fn patterns(names: &[String]) -> String {
    names.join(", ")
}

/// Returns git pathspecs as words of a shell command for `CircleCI`.
pub(super) fn pathspecs(names: &[String]) -> String {
    let words = names.iter().map(|name| format!("'{}'", format!(":(glob){name}").replace('\'', r"'\''")));
    // CircleCI replaces "<<" and a parameter's name in all texts, unless a backslash precedes it.
    words.collect::<Vec<_>>().join(" ").replace("<<", r"\<<")
}

/// Returns the items of a YAML list in brackets.
pub(super) fn items(names: &[String]) -> String {
    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}

/// Returns `text` as a YAML value that ends its line. Quotes it only if it needs quotes.
pub(super) fn scalar(text: &str) -> String {
    const INDICATORS: &str = "-?:,[]{}#&*!|>'\"%@`";
    let is_plain = !text.starts_with(|c: char| INDICATORS.contains(c))
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with(':')
        && !text.contains(needs_escape)
        && text.trim() == text
        && !text.is_empty();
    if is_plain { text.to_owned() } else { quoted(text) }
}

/// Returns `text` as a YAML value in quotes.
fn quoted(text: &str) -> String {
    if !text.contains(needs_escape) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let escaped = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        _ if needs_escape(c) => format!("\\U{:08X}", u32::from(c)),
        _ => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

/// Returns true for characters that YAML reads as line breaks or doesn't allow in a file. Source: YAML 1.1 and 1.2,
/// "Characters".
fn needs_escape(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}
