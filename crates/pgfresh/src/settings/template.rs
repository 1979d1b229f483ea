//! Reads `[template]`, `[template.NAME]` and the flags that override these tables, and selects the server's template.

use std::path::{Path, PathBuf};

use template::{TemplateSpec, check_name};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::schema::{TemplateTable, keys_of};
use super::toml_file::File;
use super::values::{Parsed, Replicas};
use crate::cli::TemplateOptions;
use crate::failure::Failure;

/// Name of the unnamed template and of its database.
pub(super) const UNNAMED: &str = "app";
/// The word that requests a server without a template.
const NONE: &str = "none";

/// A template as it appears in the file.
struct ReadTemplate {
    spec: TemplateSpec,
    /// Name of the template this one extends.
    from: Option<Spanned<String>>,
}

/// Reads all templates in the file. `at` is the position of the table that contains the templates.
pub(super) fn read(
    file: &File<'_>,
    table: DeTable<'_>,
    at: usize,
    folder: &Path,
) -> Result<Vec<TemplateSpec>, Failure> {
    let (named, own): (DeTable<'_>, DeTable<'_>) =
        table.into_iter().partition(|(_, value)| value.get_ref().is_table());
    let mut all: Vec<ReadTemplate> = Vec::new();
    let empty = |name: &str| TemplateSpec {
        name: name.to_owned(),
        folder: folder.to_owned(),
        ..TemplateSpec::default()
    };
    let first = own.keys().next().map(|key| key.span().start);
    // A `[template]` table without keys might exist only to contain other tables, so an empty table only counts as a
    // template if it contains no other tables.
    if let Some(at) = first.or(named.is_empty().then_some(at)) {
        all.push(read_one(file, "template", &own, at, empty(UNNAMED))?);
    }
    for (key, value) in named {
        let DeValue::Table(table) = value.into_inner() else { continue };
        let (name, at) = (key.get_ref().as_ref(), key.span().start);
        if keys_of::<TemplateTable>().contains(&name) {
            return Err(file.bad(at, name, "expected a string, not a table"));
        }
        check_name(name).map_err(|error| file.failure(at, &error.to_string()))?;
        if all.iter().any(|read| read.spec.name == name) {
            return Err(file.failure(at, &format!("[template] already has the name \"{name}\"")));
        }
        all.push(read_one(file, &format!("template.{name}"), &table, at, empty(name))?);
    }
    all.iter().map(|read| resolve(file, &all, read, &mut Vec::new())).collect()
}

fn read_one(
    file: &File<'_>,
    title: &str,
    table: &DeTable<'_>,
    at: usize,
    empty: TemplateSpec,
) -> Result<ReadTemplate, Failure> {
    if let Some((key, value)) = table.iter().find(|(_, value)| is_blank(value.get_ref())) {
        return Err(file.bad(value.span().start, key.get_ref(), "it is empty"));
    }
    let TemplateTable { prepare, setup, inputs, sql, dump, from, env, steps, replicas } =
        file.read(title, table)?;
    let has_step = !sql.0.is_empty() || prepare.is_some() || dump.is_some() || setup.is_some();
    if !has_step && from.is_none() {
        let hint = "Set setup = \"COMMAND\", sql = [\"FILE\"], dump = \"FILE\" or from = \"TEMPLATE\".";
        return Err(file
            .failure(at, &format!("[{title}] needs setup, sql, dump or from"))
            .hint(hint.to_owned()));
    }
    let spec = TemplateSpec {
        prepare,
        sql: sql.0,
        dump,
        setup,
        inputs: inputs.0,
        env: env.0,
        steps: steps.map(|Parsed(steps)| steps).unwrap_or_default(),
        has_replica: replicas.is_some_and(|Replicas(has_replica)| has_replica),
        ..empty
    };
    Ok(ReadTemplate { spec, from })
}

/// Returns true for a text without visible characters, or a list that contains such text.
fn is_blank(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::String(text) => text.trim().is_empty(),
        DeValue::Array(all) => all.iter().any(|value| is_blank(value.get_ref())),
        _ => false,
    }
}

/// Resolves a template's specification, including the specifications of the templates it extends. `path` contains the
/// names of the templates that were followed to get here.
fn resolve<'r>(
    file: &File<'_>,
    all: &'r [ReadTemplate],
    read: &'r ReadTemplate,
    path: &mut Vec<&'r str>,
) -> Result<TemplateSpec, Failure> {
    let ReadTemplate { spec, from } = read;
    path.push(&spec.name);
    let Some(from) = from else { return Ok(spec.clone()) };
    let (name, at) = (from.get_ref().as_str(), from.span().start);
    let Some(found) = all.iter().find(|other| other.spec.name == name) else {
        let names: Vec<_> = all.iter().map(|read| read.spec.name.as_str()).collect();
        return Err(file.unknown(at, name, "template", &names, &[]));
    };
    if let Some(begin) = path.iter().position(|known| *known == name) {
        let why = match &path[begin..] {
            [_] => format!("template \"{name}\" would extend itself"),
            circle => {
                format!("templates extend each other in a circle: {}, {name}", circle.join(", "))
            }
        };
        return Err(file.failure(at, &why));
    }
    Ok(TemplateSpec { from: Some(Box::new(resolve(file, all, found, path)?)), ..spec.clone() })
}

/// The template that the user requested with flags and variables.
#[derive(Debug)]
pub(super) enum TemplateRequest {
    /// No template at all, only PostgreSQL's own databases.
    Bare,
    /// A template described by flags, with the name of the template it extends, if any.
    Described(Box<TemplateSpec>, Option<String>),
    /// Flags that only refine a template's description without providing one.
    Incomplete,
    /// The template with this name in the file.
    Named(String),
    /// No request: use the file's unnamed template, or the file's only template.
    Usual,
}

impl TemplateRequest {
    pub(super) fn of(options: &TemplateOptions) -> Self {
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
                steps: options.steps.unwrap_or_default(),
                ..TemplateSpec::default()
            };
            return Self::Described(Box::new(spec), options.from.clone());
        }
        let has_lists = !options.inputs.is_empty() || !options.setup_env.is_empty();
        if has_lists || options.steps.is_some() || options.from.is_some() {
            return Self::Incomplete;
        }
        named.map_or(Self::Usual, |name| Self::Named(name.to_owned()))
    }

    /// Returns true if the user has to select one of `templates`, the file's templates.
    pub(super) fn is_open(&self, templates: &[TemplateSpec]) -> bool {
        matches!((self, templates), (Self::Usual, [first, _, ..]) if first.name != UNNAMED)
    }

    /// Returns the requested template. `templates` come from the file.
    pub(super) fn choose(&self, templates: &[TemplateSpec]) -> Result<Option<TemplateSpec>, Failure> {
        match (self, templates) {
            (Self::Bare, _) | (Self::Usual, []) => Ok(None),
            (Self::Described(spec, from), _) => describe(spec, from.as_deref(), templates).map(Some),
            (Self::Incomplete, _) => {
                let failure = Failure::new("cannot use --inputs, --setup-env, --steps or --from alone");
                Err(failure
                    .detail(
                        "These options apply to a template that --setup, --sql or --dump describes."
                            .to_owned(),
                    )
                    .hint("For a template in pgfresh.toml, set them there.".to_owned()))
            }
            (Self::Named(name), _) => find(templates, name).map(Some),
            (Self::Usual, [first, ..]) if !self.is_open(templates) => Ok(Some(first.clone())),
            (Self::Usual, _) => {
                let failure = Failure::new("cannot select a template: there are several, and all have names");
                Err(failure.detail(format!("The templates are: {}.", names(templates))).hint(
                    "Select one with --template NAME or PGFRESH_TEMPLATE (\"none\" for an empty server), or rename one to [template]."
                        .to_owned(),
                ))
            }
        }
    }
}

/// Returns the template for a comma-separated list of names. Several templates share a cluster, and the first one is
/// the default.
pub(super) fn find(templates: &[TemplateSpec], wanted: &str) -> Result<TemplateSpec, Failure> {
    let unknown = |name: &str| {
        let known = if templates.is_empty() {
            "No pgfresh.toml in this or a parent directory defines a template.".to_owned()
        } else {
            format!("Expected one of: {}.", names(templates))
        };
        Failure::new(format!("there is no template \"{name}\"")).detail(known)
    };
    let find =
        |name: &str| templates.iter().find(|spec| spec.name == name).cloned().ok_or_else(|| unknown(name));
    let names = wanted.split(',').map(str::trim);
    if names.clone().any(str::is_empty) {
        let failure = Failure::new(format!(
            "cannot use \"{wanted}\" as a list of templates: a name between commas is missing"
        ));
        return Err(failure.hint("Write NAME,NAME.".to_owned()));
    }
    let chosen = names.map(find).collect::<Result<Vec<_>, _>>()?;
    TemplateSpec::side_by_side(&chosen).ok_or_else(|| unknown(wanted))
}

fn names(templates: &[TemplateSpec]) -> String {
    templates.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Builds the specification of the template described by flags and variables. Its paths are relative to the working
/// directory.
fn describe(
    spec: &TemplateSpec,
    from: Option<&str>,
    templates: &[TemplateSpec],
) -> Result<TemplateSpec, Failure> {
    let one = |name: &str, what| {
        let several = || Failure::new(format!("cannot use \"{name}\": {what} a single template"));
        if name.contains(',') { Err(several()) } else { Ok(()) }
    };
    one(&spec.name, "--setup, --sql or --dump describes")?;
    check_name(&spec.name).map_err(|error| Failure::new(error.to_string()))?;
    let from = from.map(|from| {
        one(from, "--from names")?;
        find(templates, from)
    });
    let from = from.transpose()?.map(Box::new);
    Ok(TemplateSpec { folder: working_directory()?, from, ..spec.clone() })
}

/// Returns true if `[template.NAME]` can have this name.
pub(crate) fn is_template_name(name: &str) -> bool {
    check_name(name).is_ok() && !keys_of::<TemplateTable>().contains(&name)
}

/// Returns the working directory without links.
pub(crate) fn working_directory() -> Result<PathBuf, Failure> {
    let here = std::env::current_dir().and_then(|here| here.canonicalize());
    here.map_err(|error| Failure::new(format!("could not find the working directory: {error}")))
}
