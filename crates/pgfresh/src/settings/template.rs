//! `[template]` and `[template.NAME]`, the flags for the same, and which of them is meant.

use std::path::{Path, PathBuf};

use template::{TemplateSpec, check_name};
use toml_edit::{Item, TableLike};

use super::toml_file::File;
use crate::cli::Options;
use crate::failure::Failure;

/// What an unnamed template is called, and its database.
pub(super) const UNNAMED: &str = "app";
/// The word for no template.
const NONE: &str = "none";
/// What a template may say.
const KEYS: [&str; 6] = ["setup", "inputs", "sql", "dump", "from", "env"];

/// A template, and where in the file it names the one that it goes on from.
struct Read {
    spec: TemplateSpec,
    from: Option<(String, usize)>,
}

/// Reads all templates of the file.
pub(super) fn read(
    file: &File<'_>,
    table: &dyn TableLike,
    folder: &Path,
) -> Result<Vec<TemplateSpec>, Failure> {
    let mut all = Vec::new();
    if table.iter().any(|(_, item)| !item.is_table_like()) {
        let keys = table.iter().filter(|(_, item)| !item.is_table_like());
        let at = table.iter().next().and_then(|(key, _)| position(table, key)).unwrap_or(0);
        all.push(read_one(file, "template", keys, at, (UNNAMED, folder), table)?);
    }
    for (name, item) in table.iter() {
        let Some(inner) = item.as_table_like() else { continue };
        let at = position(table, name).unwrap_or(0);
        if KEYS.contains(&name) {
            return Err(
                file.failure(at, &format!("bad value for \"{name}\": expected a string, not a table"))
            );
        }
        check_name(name).map_err(|why| file.failure(at, &why))?;
        if name == UNNAMED && all.iter().any(|read| read.spec.name == UNNAMED) {
            return Err(file.failure(at, &format!("\"{UNNAMED}\" is what [template] is called already")));
        }
        all.push(read_one(file, &format!("template.{name}"), inner.iter(), at, (name, folder), inner)?);
    }
    (0..all.len()).map(|index| resolve(file, &all, index, &mut Vec::new())).collect()
}

fn position(table: &dyn TableLike, key: &str) -> Option<usize> {
    table.key(key).and_then(toml_edit::Key::span).map(|span| span.start)
}

fn read_one<'i>(
    file: &File<'_>,
    title: &str,
    items: impl Iterator<Item = (&'i str, &'i Item)>,
    at: usize,
    (name, folder): (&str, &Path),
    table: &dyn TableLike,
) -> Result<Read, Failure> {
    let mut spec =
        TemplateSpec { name: name.to_owned(), folder: folder.to_owned(), ..TemplateSpec::default() };
    let mut from = None;
    for (key, item) in items {
        match key {
            "setup" => spec.setup = Some(file.text(item, key)?.to_owned()),
            "inputs" => spec.inputs = file.texts(item, key)?,
            "sql" => spec.sql = file.texts(item, key)?,
            "dump" => spec.dump = Some(file.text(item, key)?.to_owned()),
            "env" => spec.env = file.texts(item, key)?,
            "from" => {
                let at = item.span().map_or(0, |span| span.start);
                from = Some((file.text(item, key)?.to_owned(), at));
            }
            _ => {
                let at = position(table, key).unwrap_or(0);
                return Err(file.unknown(at, key, &format!("key in [{title}]"), KEYS.into_iter()));
            }
        }
    }
    if spec.sql.is_empty() && spec.dump.is_none() && spec.setup.is_none() && from.is_none() {
        let failure = file.failure(at, &format!("[{title}] says nothing of what to do"));
        return Err(failure.hint(
            "Give it setup = \"COMMAND\", sql = [\"FILE\"], dump = \"FILE\" or from = \"TEMPLATE\"."
                .to_owned(),
        ));
    }
    Ok(Read { spec, from })
}

/// The specification at `index` with those that it goes on from; `path` are the names on the way to it.
fn resolve<'r>(
    file: &File<'_>,
    all: &'r [Read],
    index: usize,
    path: &mut Vec<&'r str>,
) -> Result<TemplateSpec, Failure> {
    let Read { spec, from } = &all[index];
    let mut recipe_made = spec.clone();
    path.push(&spec.name);
    if let Some((name, at)) = from {
        let names = || all.iter().map(|read| read.spec.name.as_str());
        let Some(found) = names().position(|other| other == name) else {
            return Err(file.unknown(*at, name, "template", names()));
        };
        if path.contains(&name.as_str()) {
            return Err(file.failure(*at, &format!("template \"{name}\" would go on from itself")));
        }
        recipe_made.from = Some(Box::new(resolve(file, all, found, path)?));
    }
    Ok(recipe_made)
}

/// Which template the flags and variables ask for.
#[derive(Debug)]
pub(super) enum TemplateRequest {
    /// None: a bare server.
    Bare,
    /// The one that flags describe, without what it goes on from, and the name of that.
    Described(TemplateSpec, Option<String>),
    /// Flags that belong to a described one, without what describes it.
    Incomplete,
    /// The one of that name in the file.
    Named(String),
    /// The unnamed one of the file, or the only one.
    Usual,
}

impl TemplateRequest {
    pub(super) fn of(options: &Options) -> Self {
        let named = options.template.as_deref().filter(|name| !name.is_empty());
        if named == Some(NONE) {
            return Self::Bare;
        }
        if options.setup.is_some() || !options.sql.is_empty() || options.dump.is_some() {
            let spec = TemplateSpec {
                name: named.unwrap_or(UNNAMED).to_owned(),
                sql: options.sql.clone(),
                dump: options.dump.clone(),
                setup: options.setup.clone(),
                inputs: options.inputs.clone(),
                env: options.setup_env.clone(),
                ..TemplateSpec::default()
            };
            return Self::Described(spec, options.from.clone());
        }
        if !options.inputs.is_empty() || !options.setup_env.is_empty() || options.from.is_some() {
            return Self::Incomplete;
        }
        named.map_or(Self::Usual, |name| Self::Named(name.to_owned()))
    }

    /// The template itself; `templates` are those of the file.
    pub(super) fn choose(&self, templates: &[TemplateSpec]) -> Result<Option<TemplateSpec>, Failure> {
        match (self, templates) {
            (Self::Bare, _) | (Self::Usual, []) => Ok(None),
            (Self::Described(spec, from), _) => describe(spec, from.as_deref(), templates).map(Some),
            (Self::Incomplete, _) => {
                let failure = Failure::new("cannot use --inputs, --setup-env or --from alone");
                Err(failure
                    .detail("They belong to a template that --setup, --sql or --dump describes.".to_owned())
                    .hint("For a template of pgfresh.toml, write them there.".to_owned()))
            }
            (Self::Named(name), _) => find(templates, name).map(Some),
            (Self::Usual, [first, ..]) if first.name == UNNAMED || templates.len() == 1 => {
                Ok(Some(first.clone()))
            }
            (Self::Usual, _) => {
                let failure =
                    Failure::new("cannot choose a template: there are several, and none is unnamed");
                Err(failure.detail(format!("They are: {}.", names(templates))).hint(
                    "Name one with --template NAME or PGFRESH_TEMPLATE (\"none\" for a bare server), or call one [template]."
                        .to_owned(),
                ))
            }
        }
    }
}

/// The template of that name in the file.
pub(super) fn find(templates: &[TemplateSpec], name: &str) -> Result<TemplateSpec, Failure> {
    templates.iter().find(|spec| spec.name == name).cloned().ok_or_else(|| {
        let known = if templates.is_empty() {
            "No pgfresh.toml here or above describes any.".to_owned()
        } else {
            format!("Known are: {}.", names(templates))
        };
        Failure::new(format!("there is no template \"{name}\"")).detail(known)
    })
}

fn names(templates: &[TemplateSpec]) -> String {
    templates.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The template that flags and variables describe, all of it, from the working directory.
fn describe(
    spec: &TemplateSpec,
    from: Option<&str>,
    templates: &[TemplateSpec],
) -> Result<TemplateSpec, Failure> {
    check_name(&spec.name).map_err(Failure::new)?;
    let from = from.map(|from| find(templates, from)).transpose()?.map(Box::new);
    Ok(TemplateSpec { folder: working_directory()?, from, ..spec.clone() })
}

pub(super) fn working_directory() -> Result<PathBuf, Failure> {
    let here = std::env::current_dir().and_then(|here| here.canonicalize());
    here.map_err(|error| Failure::new(format!("could not find the working directory: {error}")))
}
