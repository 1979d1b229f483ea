//! Reads `.env` files and expands variables, as Docker Compose does.

use std::collections::BTreeMap;
use std::path::Path;

use super::folder;

/// Maximum nesting depth of variables in default values.
const MAX_DEPTH: usize = 8;
/// Maximum length of a value, in bytes. A longer value isn't a name, version or setting, and could grow with each
/// line of a file.
const MAX_VALUE: usize = 1000;
/// Maximum number of bytes that expansion may add to a text. After that, the remaining variables stay unexpanded.
const MAX_GROWTH: usize = 10_000;

/// Variable names and values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Reads a `.env` file. Returns no variables if the file can't be read.
    pub(crate) fn read(path: &Path) -> Self {
        folder::read(path).map(|text| Self::parse(&text)).unwrap_or_default()
    }

    fn parse(text: &str) -> Self {
        let mut variables = Self::default();
        for line in text.lines() {
            let line = line.trim();
            let line = line.strip_prefix("export ").unwrap_or(line);
            let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else {
                continue;
            };
            let value = match unquoted(value.trim()) {
                (value, true) => value,
                (value, false) => variables.expand(&value),
            };
            if value.len() <= MAX_VALUE {
                variables.0.insert(name.trim().to_owned(), value);
            }
        }
        variables
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Adds a variable unless a variable with this name exists.
    pub(super) fn add_default(&mut self, name: &str, value: String) {
        self.0.entry(name.to_owned()).or_insert(value);
    }

    /// Returns all names and values.
    pub(super) fn into_pairs(self) -> impl Iterator<Item = (String, String)> {
        self.0.into_iter()
    }

    /// Expands `$NAME` and `${NAME}`, also with a default (`:-`, `-`), an alternative (`:+`, `+`) or an error (`:?`,
    /// `?`). `$$` stands for a dollar sign. An unknown variable expands to an empty text.
    pub(super) fn expand(&self, text: &str) -> String {
        self.expand_within(text, 0)
    }

    fn expand_within(&self, text: &str, depth: usize) -> String {
        let mut result = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$')
            && result.len() <= text.len() + MAX_GROWTH
        {
            result += before;
            rest = if let Some(after) = after.strip_prefix('$') {
                result.push('$');
                after
            } else if let Some((inner, after)) = after.strip_prefix('{').and_then(braced) {
                result += &self.value_of(inner, depth);
                after
            } else {
                let end = name_length(after);
                if end == 0 {
                    result.push('$');
                }
                result += self.get(&after[..end]).unwrap_or_default();
                &after[end..]
            };
        }
        result + rest
    }

    /// Returns the value of the expression `inner` between `${` and `}`.
    fn value_of(&self, inner: &str, depth: usize) -> String {
        let (name, operator) = inner.split_at(name_length(inner));
        let (must_have_text, operator) =
            operator.strip_prefix(':').map_or((false, operator), |rest| (true, rest));
        let value = self.get(name).filter(|value| !must_have_text || !value.is_empty());
        let other = |text: &str| {
            if depth < MAX_DEPTH { self.expand_within(text, depth + 1) } else { String::new() }
        };
        match (operator.chars().next(), value) {
            (Some('-'), None) | (Some('+'), Some(_)) => other(&operator[1..]),
            (Some('+'), None) => String::new(),
            (_, value) => value.unwrap_or_default().to_owned(),
        }
    }
}

/// Splits the text after `${` at its closing brace.
fn braced(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (at, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => return Some((&text[..at], &text[at + 1..])),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn name_length(text: &str) -> usize {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return 0;
    }
    text.find(|character| !is_part(character)).unwrap_or(text.len())
}

/// Removes quotes or a trailing comment. Returns true if the value was in single quotes, which prevent expansion.
fn unquoted(value: &str) -> (String, bool) {
    for quote in ['"', '\''] {
        if let Some((inner, _)) = value.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return (inner.to_owned(), quote == '\'');
        }
    }
    let value = value.split_once(" #").map_or(value, |(value, _)| value);
    (value.trim_end().to_owned(), false)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn env_file_has_quotes_comments_and_references() {
        let text = "# A=0\nA=1 # one\r\nexport B=\"two # $A\"\nC='$A'\nD=${B}-${E:-x}\nA=3\nno line\n=4\n";
        let variables = Variables::parse(text);
        let values = ["A", "B", "C", "D", "E"].map(|name| variables.get(name));
        assert_eq!(values, [Some("3"), Some("two # 1"), Some("$A"), Some("two # 1-x"), None]);
    }

    #[test]
    fn variables_have_defaults_and_alternatives() {
        let variables = Variables::parse("TAG=16\nEMPTY=\n");
        for (text, expected) in [
            ("postgres:${TAG}", "postgres:16"),
            ("$TAG-x", "16-x"),
            ("${NONE:-15}", "15"),
            ("${EMPTY:-15}", "15"),
            ("${EMPTY-15}", ""),
            ("${NONE-15}", "15"),
            ("${NONE:-${TAG:-15}}", "16"),
            ("${TAG:?needed}", "16"),
            ("${TAG:+set}${NONE:+set}", "set"),
            ("$$TAG ${ $ $1", "$TAG ${ $ $1"),
        ] {
            assert_eq!(variables.expand(text), expected, "{text}");
        }
    }

    /// Each line repeats the previous one ten times.
    #[test]
    fn growing_values_are_bounded() {
        let lines: Vec<_> =
            (1..200).map(|line| format!("A{line}={}\n", format!("${{A{}}}", line - 1).repeat(10))).collect();
        let variables = Variables::parse(&format!("A0=0123456789\n{}", lines.concat()));
        assert_eq!(variables.get("A2").map(str::len), Some(1000));
        let text = "${A2}".repeat(100_000);
        assert!(variables.expand(&text).len() < 3 * text.len());
    }

    proptest! {
        #[test]
        fn any_text_expands_without_panic(text in "([${}:?+A_a1é-]|\\$\\{){0,60}") {
            Variables::parse(&format!("A={text}\nB='{text}'\n")).expand(&text);
        }
    }
}
