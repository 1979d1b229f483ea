//! How a template is made: what the user writes down.

use std::path::PathBuf;

use crate::Steps;

/// Names that a template cannot have: databases that are always there, and the word for no template.
const TAKEN: [&str; 4] = ["none", "postgres", "template0", "template1"];
/// What the names of pgfresh's own databases begin with; no other database may have such a name.
pub const PREFIX: &str = "pgfresh_";
/// The longest name, in bytes: a server's is at most 63 (`NAMEDATALEN`), and in service a template's database is called
/// `pgfresh_template_NAME`.
const LONGEST: usize = 63 - PREFIX.len() - "template_".len();

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
    /// What its cluster has already, where it is one of several templates in one; see [`Self::side_by_side`].
    pub beside: Option<Box<TemplateSpec>>,
    /// Which of several in one cluster is the default; itself if this says nothing. No part of the fingerprint.
    pub default: Option<String>,
}

impl TemplateSpec {
    /// Several templates in one cluster, of which the first is the default; none without any. What one of them goes on from is
    /// there, too. Each is made in the cluster of those before it, so that each can be built, cached and shared by itself.
    #[must_use]
    pub fn side_by_side(templates: &[TemplateSpec]) -> Option<Self> {
        let (first, more) = templates.split_first()?;
        if more.is_empty() {
            return Some(first.clone());
        }
        let mut parts: Vec<&TemplateSpec> = Vec::new();
        for part in templates.iter().flat_map(Self::chain) {
            if parts.iter().all(|other| other.name != part.name) {
                parts.push(part);
            }
        }
        // Such a one is in no image, nor is what comes after it.
        parts.sort_by_key(|part| part.chain().into_iter().any(Self::runs_each_time));
        let all = parts
            .into_iter()
            .fold(None, |beside: Option<Box<Self>>, part| Some(Box::new(Self { beside, ..part.clone() })))?;
        Some(Self { default: Some(first.name.clone()), ..*all })
    }

    /// What its cluster is made from; without one, the base image.
    pub(crate) fn goes_on_from(&self) -> Option<&Self> {
        self.beside.as_deref().or(self.from.as_deref())
    }

    /// The specifications that lead to this one, first things first, itself included.
    #[must_use]
    pub fn chain(&self) -> Vec<&Self> {
        let mut chain = self.goes_on_from().map_or_else(Vec::new, Self::chain);
        chain.push(self);
        chain
    }

    /// The names of all templates in its cluster, and of their databases, the default first.
    #[must_use]
    pub fn served(&self) -> Vec<&str> {
        let default = self.default.as_ref().unwrap_or(&self.name);
        let parts = std::iter::successors(Some(self), |part| part.beside.as_deref());
        let mut names: Vec<_> = parts.map(|part| part.name.as_str()).collect();
        names.reverse();
        names.sort_by_key(|name| name != default);
        names
    }

    /// What people call it, and the cache: the names of all templates in its cluster, in the order in which they are made.
    #[must_use]
    pub fn title(&self) -> String {
        let beside = self.beside.as_ref().map_or_else(String::new, |beside| beside.title() + ",");
        beside + &self.name
    }

    /// Whether it has a command whose inputs are unknown, so that its work cannot be kept.
    #[must_use]
    pub fn runs_each_time(&self) -> bool {
        self.setup.is_some() && self.inputs.is_empty()
    }

    /// Its steps in a few words.
    #[must_use]
    pub fn words(&self) -> String {
        let beside = self.beside.as_ref().map(|beside| format!("beside {}", beside.title()));
        let from = self.from.as_ref().map(|from| format!("from {}", from.name));
        let sql = (!self.sql.is_empty()).then(|| self.sql.join(", "));
        let steps = [beside, from, sql, self.dump.clone(), self.setup.clone()];
        steps.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// Whether `name` can be a template's: letters, digits, `_` and `-`, at most 46, and not taken.
///
/// # Errors
/// What is wrong with it.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if TAKEN.contains(&name) {
        Err(format!("\"{name}\" cannot be the name of a template"))
    } else if name.starts_with(PREFIX) {
        Err(format!("\"{name}\" cannot be the name of a template: pgfresh's own databases are called so"))
    } else if name.is_empty() || name.len() > LONGEST || name.starts_with('-') || !name.bytes().all(plain) {
        Err(format!(
            "\"{name}\" cannot be the name of a template: it has letters, digits, \"_\" and \"-\" only, at most {LONGEST}"
        ))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_fit_for_a_file_and_a_database() {
        for good in ["app", "Shop_2", "a-b"] {
            assert_eq!(check_name(good), Ok(()));
        }
        for bad in ["", "none", "postgres", "pgfresh_1", "a/b", "a b", "-x", "é", &"x".repeat(47)] {
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
        assert_eq!((app.title(), app.served()), ("app".to_owned(), vec!["app"]));
    }

    /// Templates called after letters; each goes on from the one before it in its word.
    fn some_templates() -> impl Strategy<Value = Vec<TemplateSpec>> {
        let one = |word: String| {
            let one = |from: Option<TemplateSpec>, letter: char| {
                Some(TemplateSpec {
                    name: letter.into(),
                    from: from.map(Box::new),
                    ..TemplateSpec::default()
                })
            };
            word.chars().fold(None, one).unwrap()
        };
        // "ab" and "cab" would be two that are called "b".
        let words = prop::sample::subsequence(vec!["a", "ab", "abc", "abd", "e", "ef"], 1..6).prop_shuffle();
        words.prop_map(move |words| words.into_iter().map(|word| one(word.to_owned())).collect())
    }

    proptest! {
        #[test]
        fn each_of_several_is_made_once_after_what_it_goes_on_from(templates in some_templates()) {
            let first = &templates[0].name;
            let all = TemplateSpec::side_by_side(&templates).unwrap();
            let chain: Vec<_> = all.chain().into_iter().map(|spec| spec.name.clone()).collect();
            let mut wanted: Vec<_> = templates.iter().flat_map(TemplateSpec::chain).map(|spec| spec.name.clone()).collect();
            let mut made = chain.clone();
            wanted.sort();
            wanted.dedup();
            made.sort();
            prop_assert_eq!(made, wanted);
            for (place, spec) in all.chain().into_iter().enumerate() {
                let from = spec.from.as_ref().map(|from| &from.name);
                prop_assert!(from.is_none_or(|from| chain[..place].contains(from)), "{:?}", chain);
                if templates.len() > 1 {
                    prop_assert_eq!(spec.title(), chain[..=place].join(","));
                }
            }
            prop_assert_eq!(all.served()[0], first);
            if templates.len() > 1 {
                let mut served = all.served();
                served.sort_unstable();
                prop_assert_eq!(served.len(), chain.len());
            }
        }
    }
}
