//! Provides the state before the migrations: a checkout of the older revision and the template defined there.

use std::fs;
use std::path::{Path, PathBuf};

use storage::Attempt;
use template::{ProvisionError, Provisioner, ServerOptions, SetupError, TemplateSpec};

use super::checkout::Checkout;
use super::git::Repository;
use super::revision::Revision;
use crate::context::Context;
use crate::context::provisioning;
use crate::failure::Failure;
use crate::notice::notice;
use crate::progress;
use crate::settings::ResolvedSettings;

/// The state before the migrations.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) revision: Revision,
    pub(super) repository: Repository,
    pub(super) checkout: Checkout,
    /// Context with the older revision's settings.
    pub(super) context: Context,
    /// Provisioner with the older template.
    pub(super) provisioner: Provisioner,
    /// The older template.
    pub(super) spec: TemplateSpec,
}

impl Base {
    /// Checks out the revision `from` and reads its settings. Without `from`, the revision is the commit where the
    /// branch diverged from the default branch. Doesn't build the template yet.
    pub(super) fn of(context: &Context, from: Option<&str>) -> Result<Self, Failure> {
        let folder = &context.settings()?.folder;
        let folder = folder.canonicalize().attempt("find", folder)?;
        let repository = Repository::of(&folder)?;
        let revision = Revision::find(&repository, from)?;
        context.verbosity.detail(|| format!("checking out {}", revision.name));
        let checkout = Checkout::of(context, &repository, &revision)?;
        let config = config_file(context, &folder, &repository, &checkout, &revision)?;
        let older = context.with_config(config);
        let in_revision = |failure: Failure| failure.after(&format!("in {}", revision.name));
        let mut options = older.settings().and_then(ResolvedSettings::with_template).map_err(in_revision)?;
        let Some(spec) = options.template.take() else { return Err(no_template(&revision)) };
        let spec = moved(spec, &repository, &checkout)?;
        options.template = Some(spec.clone());
        let provisioner = provisioning::provisioner(&older, options)?;
        Ok(Self { revision, repository, checkout, context: older, provisioner, spec })
    }

    /// Builds the template if it isn't cached. A template whose setup has no inputs is built at every start.
    pub(super) fn build_template(&self) -> Result<(), Failure> {
        self.build(&self.provisioner).map_err(|error| {
            let inspect = || {
                format!(
                    "To inspect it, check out {} and run \"pgfresh template build --keep\" there.",
                    self.revision.short
                )
            };
            let hint = error.cause_hint().unwrap_or_else(inspect);
            self.with_lasting_paths(error.into()).hint(hint).after(&format!("in {}", self.revision.name))
        })
    }

    fn build(&self, provisioner: &Provisioner) -> Result<(), ProvisionError> {
        if provisioner.is_cacheable() {
            provisioner.template(&progress::announce(self.context.verbosity))?;
        }
        Ok(())
    }

    /// Replaces paths in the checkout with the corresponding paths in the repository, because the checkout is gone when
    /// the user reads the failure.
    fn with_lasting_paths(&self, failure: Failure) -> Failure {
        let [checkout, repository] =
            [&self.checkout.root, &self.repository.root].map(|path| path.display().to_string());
        failure.replacing(&checkout, &repository)
    }

    /// Runs the `[migrate] data` command on the older template. The result is an additional template that depends on
    /// all of the revision's files.
    pub(super) fn with_data(self, context: &Context) -> Result<Self, Failure> {
        self.build_template()?;
        let Some(data) = context.settings()?.migrate.data.clone() else { return Ok(self) };
        if self.spec.beside.is_some() {
            let failure = Failure::new("cannot run \"data\" of [migrate] for several templates");
            return Err(failure.hint("Select one with --template NAME.".to_owned()));
        }
        let tree = ["rev-parse", &format!("{}^{{tree}}", self.revision.commit)];
        let tree = self.repository.ask(tree)?.unwrap_or_default();
        let spec = TemplateSpec {
            name: self.spec.name.clone(),
            folder: self.spec.folder.clone(),
            checkout_of: self.spec.checkout_of.clone(),
            setup: Some(data),
            inputs: vec![self.checkout.note_tree(&self.spec.folder, &tree)?],
            from: Some(Box::new(self.spec.clone())),
            ..TemplateSpec::default()
        };
        let options =
            ServerOptions { template: Some(spec.clone()), ..self.provisioner.server_options().clone() };
        // The rows stay on this machine, so only the underlying template is pulled from the remote cache or
        // pushed there.
        let provisioner = provisioning::find_or_download(&self.context, options)?;
        self.build(&provisioner).map_err(|error| self.data_failed(error))?;
        Ok(Self { provisioner, spec, ..self })
    }

    fn data_failed(&self, error: ProvisionError) -> Failure {
        let status = match &error {
            ProvisionError::Setup(setup) => match &**setup {
                SetupError::Failed { status, .. } => *status,
                _ => return self.with_lasting_paths(error.into()),
            },
            _ => return self.with_lasting_paths(error.into()),
        };
        let revision = &self.revision.name;
        let failure = Failure::new(format!("\"data\" of [migrate] failed on {revision} with {status}"));
        self.with_lasting_paths(failure.detail(error.detail()))
            .hint("The command runs in a checkout of that revision, so check that all files it needs are committed there.".to_owned())
    }
}

fn no_template(revision: &Revision) -> Failure {
    let failure = Failure::new(format!("there is no template in {}", revision.name));
    failure
        .detail("Without a template, pgfresh does not know the database before the migrations.".to_owned())
        .hint("Write [template] in pgfresh.toml, as \"pgfresh init\" does.".to_owned())
}

/// Returns the path of the configuration file in the checkout. If the revision has no such file, copies the current file
/// there. Returns `None` if the project has no configuration file.
fn config_file(
    context: &Context,
    folder: &Path,
    repository: &Repository,
    checkout: &Checkout,
    revision: &Revision,
) -> Result<Option<PathBuf>, Failure> {
    let given = context.options().config.config.clone();
    let file = given.unwrap_or_else(|| folder.join("pgfresh.toml"));
    if !file.exists() {
        return Ok(None);
    }
    let file = file.canonicalize().attempt("find", &file)?;
    let Some(older) = checkout.path_of(repository, &file) else {
        let root = repository.root.display();
        let failure = Failure::new(format!("\"{}\" is not in the repository \"{root}\"", file.display()));
        return Err(failure.hint("Use a configuration file inside the repository.".to_owned()));
    };
    if !older.is_file() {
        if !context.verbosity.is_quiet() {
            let name = file.strip_prefix(&repository.root).unwrap_or(&file).display();
            notice!("pgfresh: {} has no \"{name}\", so the current settings apply", revision.name);
        }
        let parent = older.parent().unwrap_or(&checkout.root);
        fs::create_dir_all(parent).attempt("create", parent)?;
        fs::copy(&file, &older).attempt("copy", &file)?;
    }
    Ok(Some(older))
}

/// Replaces the working tree's folders, in a template and in those it extends, with the checkout's folders.
fn moved(spec: TemplateSpec, repository: &Repository, checkout: &Checkout) -> Result<TemplateSpec, Failure> {
    let Some(folder) = checkout.path_of(repository, &spec.folder) else {
        let root = repository.root.display();
        return Err(Failure::new(format!(
            "\"{}\" is not in the repository \"{root}\"",
            spec.folder.display()
        )));
    };
    if !folder.is_dir() {
        return Err(Failure::new(format!("the older revision has no folder \"{}\"", spec.folder.display())));
    }
    let project = folder.strip_prefix(&checkout.root).map(|path| repository.root.join(path));
    let below = |other: Option<Box<TemplateSpec>>| {
        other.map(|other| moved(*other, repository, checkout).map(Box::new)).transpose()
    };
    Ok(TemplateSpec {
        checkout_of: Some(project.unwrap_or_else(|_| repository.root.clone()).components().collect()),
        folder,
        from: below(spec.from)?,
        beside: below(spec.beside)?,
        ..spec
    })
}
