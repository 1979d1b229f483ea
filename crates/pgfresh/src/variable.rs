//! Handles the environment variables that users define for their command as `NAME=TEMPLATE`. Placeholders in the
//! template, such as `{port}`, stand for the server's values.

use std::str::FromStr;

use server::Address;

/// An environment variable for the user's command. Placeholders in its value stand for the server's values.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    name: String,
    /// The value in parts, each a literal text followed by an optional placeholder.
    parts: Vec<(String, Option<Placeholder>)>,
}

/// A function that returns a placeholder's value.
type Placeholder = fn(&Address) -> String;

const PLACEHOLDERS: [(&str, Placeholder); 6] = [
    ("url", |address| address.url()),
    ("host", |address| address.host.clone()),
    ("port", |address| address.port.to_string()),
    ("user", |address| address.user.to_owned()),
    ("password", |address| address.password.clone().unwrap_or_default()),
    ("database", |address| address.database.clone()),
];

/// Reasons why a text doesn't define a variable.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParseVariableError {
    #[error("expected NAME=TEMPLATE")]
    NoAssignment,
    #[error("the name is empty")]
    EmptyName,
    #[error("a \"{{\" is not closed")]
    UnclosedBrace,
    #[error("\"{{{word}}}\" is not a placeholder: expected {}", PLACEHOLDERS.map(|(name, _)| format!("{{{name}}}")).join(", "))]
    UnknownPlaceholder { word: String },
}

impl FromStr for Variable {
    type Err = ParseVariableError;

    fn from_str(assignment: &str) -> Result<Self, Self::Err> {
        let (name, mut rest) = assignment.split_once('=').ok_or(ParseVariableError::NoAssignment)?;
        if name.is_empty() {
            return Err(ParseVariableError::EmptyName);
        }
        let mut parts = Vec::new();
        while let Some((before, after)) = rest.split_once('{') {
            let (word, after) = after.split_once('}').ok_or(ParseVariableError::UnclosedBrace)?;
            let known = PLACEHOLDERS.iter().find(|(name, _)| *name == word);
            let (_, placeholder) =
                known.ok_or_else(|| ParseVariableError::UnknownPlaceholder { word: word.to_owned() })?;
            parts.push((before.to_owned(), Some(*placeholder)));
            rest = after;
        }
        parts.push((rest.to_owned(), None));
        Ok(Self { name: name.to_owned(), parts })
    }
}

impl Variable {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn value(&self, address: &Address) -> String {
        let filled = |(text, placeholder): &(String, Option<Placeholder>)| {
            text.clone() + &placeholder.map_or_else(String::new, |value| value(address))
        };
        self.parts.iter().map(filled).collect()
    }
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
        for (assignment, expected) in [
            ("A=x{url}&p={port}{password}", "xpostgresql://postgres:secret@127.0.0.1:5433/shop&p=5433secret"),
            ("A={host}={user}/{database}}", "127.0.0.1=postgres/shop}"),
            ("A=", ""),
        ] {
            let variable: Variable = assignment.parse().unwrap();
            assert_eq!((variable.name.as_str(), variable.value(&address()).as_str()), ("A", expected));
        }
        for wrong in ["URL", "=x", "A={nothing}", "A={url"] {
            assert!(wrong.parse::<Variable>().is_err(), "{wrong}");
        }
        let names = "{url}, {host}, {port}, {user}, {password}, {database}";
        assert_eq!(
            "A={urll}".parse::<Variable>().unwrap_err().to_string(),
            format!("\"{{urll}}\" is not a placeholder: expected {names}")
        );
    }
}
