//! Defines specifications, which describe how to build a template.

use std::path::PathBuf;

use crate::Steps;

/// Names that a template can't have: the databases of every cluster, and the word "none", which users write if they
/// want no template.
const RESERVED_NAMES: [&str; 4] = ["none", "postgres", "template0", "template1"];
/// Prefix for the names of pgfresh's own databases. Other databases can't have a name with this prefix.
pub const PREFIX: &str = "pgfresh_";
/// Maximum length of a template's name, in bytes. A server allows names of up to 63 bytes (`NAMEDATALEN`), and the
/// background server calls a template's database `pgfresh_template_NAME`.
const MAX_NAME_LENGTH: usize = 63 - PREFIX.len() - "template_".len();

/// Describes how to build one template. Its steps run in this order: prepare command, SQL files, dump, setup command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TemplateSpec {
    /// Name of the template and its database, see [`check_name`].
    pub name: String,
    /// Folder where the setup command runs. Paths and globs are relative to this folder.
    pub folder: PathBuf,
    /// Folder of the project, if `folder` is a temporary checkout of it. The cache then lists the template under the
    /// project, and keeps no notes for later builds. The fingerprint doesn't depend on this.
    pub checkout_of: Option<PathBuf>,
    /// Template that this one extends: the new template's database begins as that template's database. `None` means the
    /// base image.
    pub from: Option<Box<TemplateSpec>>,
    /// Command that runs with `sh -c` in the new database before all other steps. Unlike the other steps, it belongs to
    /// the cluster and not to the migrations, so a migration check doesn't run it.
    pub prepare: Option<String>,
    /// Globs for SQL files. The globs run in this order, and the files of one glob run in name order.
    pub sql: Vec<String>,
    /// A dump written by `pg_dump`, in any format.
    pub dump: Option<String>,
    /// Setup command that runs with `sh -c`.
    pub setup: Option<String>,
    /// Globs for the files that the two commands read. Without any, the commands run each time.
    pub inputs: Vec<String>,
    /// Names of the environment variables that the two commands read.
    pub env: Vec<String>,
    /// Whether a build can start from an earlier template with this name. The fingerprint doesn't depend on this,
    /// because the result is the same either way.
    pub steps: Steps,
    /// The template that precedes this one in a shared cluster, see [`Self::side_by_side`]. `None` if the cluster has
    /// only one template.
    pub beside: Option<Box<TemplateSpec>>,
    /// Name of the default template in a shared cluster. `None` means this template. The fingerprint doesn't depend on
    /// this.
    pub default: Option<String>,
    /// Whether a server leased for this template has a replica. The fingerprint doesn't depend on this.
    pub has_replica: bool,
}

impl TemplateSpec {
    /// Puts several templates, and the templates they extend, into one cluster. The first template is the default. Each
    /// template is built on the cluster with all templates before it, so pgfresh can build, cache and share each step
    /// separately. Returns `None` for an empty list.
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
        // Put the templates that run each time last, because neither these nor any templates after them can be cached.
        parts.sort_by_key(|part| part.chain().into_iter().any(Self::runs_each_time));
        let all = parts
            .into_iter()
            .fold(None, |beside: Option<Box<Self>>, part| Some(Box::new(Self { beside, ..part.clone() })))?;
        Some(Self { default: Some(first.name.clone()), ..*all })
    }

    /// Returns the template whose cluster this template is built on. `None` means the base image.
    pub(crate) fn base(&self) -> Option<&Self> {
        self.beside.as_deref().or(self.from.as_deref())
    }

    /// Returns the specifications of all templates below this one in build order, followed by this one.
    #[must_use]
    pub fn chain(&self) -> Vec<&Self> {
        let mut chain = self.base().map_or_else(Vec::new, Self::chain);
        chain.push(self);
        chain
    }

    /// Returns the names of all templates in the cluster, which are also the names of their databases. The default is
    /// first.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let default = self.default.as_ref().unwrap_or(&self.name);
        let parts = std::iter::successors(Some(self), |part| part.beside.as_deref());
        let mut names: Vec<_> = parts.map(|part| part.name.as_str()).collect();
        names.reverse();
        names.sort_by_key(|name| name != default);
        names
    }

    /// Returns true if any template in the cluster has a replica.
    #[must_use]
    pub fn any_has_replica(&self) -> bool {
        std::iter::successors(Some(self), |part| part.beside.as_deref()).any(|part| part.has_replica)
    }

    /// Returns the title for messages and for the cache, which lists the names of all templates in the cluster in build
    /// order.
    #[must_use]
    pub fn title(&self) -> String {
        let beside = self.beside.as_ref().map_or_else(String::new, |beside| beside.title() + ",");
        beside + &self.name
    }

    /// Returns true if the template has a command without inputs. The command's result can't be cached then.
    #[must_use]
    pub fn runs_each_time(&self) -> bool {
        (self.prepare.is_some() || self.setup.is_some()) && self.inputs.is_empty()
    }

    /// Summarizes the steps on one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let beside = self.beside.as_ref().map(|beside| format!("beside {}", beside.title()));
        let from = self.from.as_ref().map(|from| format!("from {}", from.name));
        let sql = (!self.sql.is_empty()).then(|| self.sql.join(", "));
        let steps = [beside, from, self.prepare.clone(), sql, self.dump.clone(), self.setup.clone()];
        let lines = steps.iter().flatten().flat_map(|step| step.lines()).map(str::trim);
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

/// Reasons why a text can't be the name of a template. Each variant contains the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateNameError {
    /// PostgreSQL or pgfresh uses the name for something else.
    #[error("\"{0}\" cannot be the name of a template")]
    Reserved(String),
    /// The name begins with [`PREFIX`].
    #[error(
        "\"{0}\" cannot be the name of a template: names that begin with pgfresh_ are reserved for pgfresh"
    )]
    Prefix(String),
    /// The name is empty or too long, begins with `-`, or has a character that isn't allowed.
    #[error(
        "\"{0}\" cannot be the name of a template: expected at most {MAX_NAME_LENGTH} letters, digits, \"_\" and \"-\""
    )]
    Characters(String),
}

/// Checks whether `name` is valid for a template. It can have up to 46 letters, digits, `_` and `-`, and must not be
/// reserved.
///
/// # Errors
/// Returns the rule that the name breaks.
pub fn check_name(name: &str) -> Result<(), TemplateNameError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if RESERVED_NAMES.contains(&name) {
        Err(TemplateNameError::Reserved(name.to_owned()))
    } else if name.starts_with(PREFIX) {
        Err(TemplateNameError::Prefix(name.to_owned()))
    } else if name.is_empty()
        || name.len() > MAX_NAME_LENGTH
        || name.starts_with('-')
        || !name.bytes().all(plain)
    {
        Err(TemplateNameError::Characters(name.to_owned()))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn template_name_suits_files_and_databases() {
        for good in ["app", "Shop_2", "a-b"] {
            assert_eq!(check_name(good), Ok(()));
        }
        for bad in ["", "none", "postgres", "pgfresh_1", "a/b", "a b", "-x", "é", &"x".repeat(47)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn chain_begins_with_first_built_template() {
        let base = TemplateSpec { name: "base".into(), sql: vec!["a.sql".into()], ..TemplateSpec::default() };
        let app = TemplateSpec {
            name: "app".into(),
            from: Some(base.into()),
            setup: Some("x\n  y\n".into()),
            ..TemplateSpec::default()
        };
        assert_eq!(app.chain().iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), ["base", "app"]);
        assert_eq!(app.summary(), "from base; x; y");
        assert!(app.runs_each_time() && !app.chain()[0].runs_each_time());
        assert_eq!((app.title(), app.names()), ("app".to_owned(), vec!["app"]));
    }

    /// Generates templates from words. Each letter of a word is the name of a template, which extends the template of
    /// the preceding letter.
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
        // The words "ab" and "cab" together, for example, would make two templates named "b".
        let words = prop::sample::subsequence(vec!["a", "ab", "abc", "abd", "e", "ef"], 1..6).prop_shuffle();
        words.prop_map(move |words| words.into_iter().map(|word| one(word.to_owned())).collect())
    }

    proptest! {
        #[test]
        fn each_template_is_built_once_after_its_parent(templates in some_templates()) {
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
            prop_assert_eq!(all.names()[0], first);
            if templates.len() > 1 {
                let mut served = all.names();
                served.sort_unstable();
                prop_assert_eq!(served.len(), chain.len());
            }
        }
    }
}
