//! How a template is made: what the user writes down.

use std::path::PathBuf;

use crate::Steps;

/// Names that a template cannot have: databases that are always there, and the word for no template.
const TAKEN: [&str; 4] = ["none", "postgres", "template0", "template1"];
/// The longest name of a database, in bytes. Source: `NAMEDATALEN`.
const LONGEST: usize = 63;

/// How one template is made. Its steps come in this order: SQL files, dump, setup command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TemplateSpec {
    /// The template's name, and that of its database; see [`check_name`].
    pub name: String,
    /// What paths and globs are relative to, and where the setup command runs.
    pub folder: PathBuf,
    /// The template that it goes on from; its database is renamed. Without one: the base image.
    pub from: Option<Box<TemplateSpec>>,
    /// Globs of files of SQL, run in this order; those of one glob in the order of their names.
    pub sql: Vec<String>,
    /// What `pg_dump` made, in any of its formats.
    pub dump: Option<String>,
    /// A command for `sh -c`.
    pub setup: Option<String>,
    /// Globs of what the command reads. Without any it runs each time.
    pub inputs: Vec<String>,
    /// Names of environment variables that the command reads.
    pub env: Vec<String>,
    /// Whether it can be built on an earlier template of its name. No part of the fingerprint: the result is the same.
    pub steps: Steps,
}

impl TemplateSpec {
    /// The specifications that lead to this one, first things first, itself included.
    #[must_use]
    pub fn chain(&self) -> Vec<&TemplateSpec> {
        let mut chain = self.from.as_ref().map_or_else(Vec::new, |from| from.chain());
        chain.push(self);
        chain
    }

    /// Whether it has a command whose inputs are unknown, so that its work cannot be kept.
    #[must_use]
    pub fn runs_each_time(&self) -> bool {
        self.setup.is_some() && self.inputs.is_empty()
    }

    /// Its steps in a few words.
    #[must_use]
    pub fn words(&self) -> String {
        let from = self.from.as_ref().map(|from| format!("from {}", from.name));
        let sql = (!self.sql.is_empty()).then(|| self.sql.join(", "));
        let steps = [from, sql, self.dump.clone(), self.setup.clone()];
        steps.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// Whether `name` can be a template's: letters, digits, `_` and `-`, at most 63, and not taken.
///
/// # Errors
/// What is wrong with it.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if TAKEN.contains(&name) {
        Err(format!("\"{name}\" cannot be the name of a template"))
    } else if name.is_empty() || name.len() > LONGEST || name.starts_with('-') || !name.bytes().all(plain) {
        Err("a template's name has letters, digits, \"_\" and \"-\" only, at most 63".to_owned())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_fit_for_a_file_and_a_database() {
        for good in ["app", "Shop_2", "a-b"] {
            assert_eq!(check_name(good), Ok(()));
        }
        for bad in ["", "none", "postgres", "a/b", "a b", "-x", "é", &"x".repeat(64)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_chain_begins_with_what_is_made_first() {
        let base = TemplateSpec { name: "base".into(), sql: vec!["a.sql".into()], ..TemplateSpec::default() };
        let app = TemplateSpec {
            name: "app".into(),
            from: Some(base.into()),
            setup: Some("x".into()),
            ..TemplateSpec::default()
        };
        assert_eq!(app.chain().iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), ["base", "app"]);
        assert_eq!(app.words(), "from base; x");
        assert!(app.runs_each_time() && !app.chain()[0].runs_each_time());
    }
}
