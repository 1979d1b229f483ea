//! Determines the command that runs the new migrations.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use server::{Address, Installation};
use template::{TemplateSpec, matching_files};

use super::base::Base;
use super::missing_migrations;
use crate::context::Context;
use crate::context::provisioning;
use crate::failure::Failure;
use crate::notice::notice;
use crate::progress::some_of;
use crate::user_command;
use crate::variable::Variable;

/// Shell script that runs SQL files as a template build does, and then the setup command unless it is empty.
const SCRIPT: &str = "psql=$1 setup=$2; shift 2
for file; do \"$psql\" -X -q -v ON_ERROR_STOP=1 -f \"$file\" || exit; done
if [ -n \"$setup\" ]; then exec sh -c \"$setup\"; fi";

/// A command that migrates a database.
#[derive(Debug, Clone)]
pub(super) struct MigrationCommand {
    words: Vec<OsString>,
    folder: PathBuf,
    /// The command on one line, for messages.
    pub(super) shown: String,
}

impl MigrationCommand {
    /// Creates a command from the user's `words`. The command runs in the working directory.
    pub(super) fn of_words(words: &[OsString]) -> Result<Self, Failure> {
        let folder = crate::settings::working_directory()?;
        Ok(Self { words: words.to_vec(), folder, shown: user_command::to_line(words) })
    }

    /// Creates a command from a line for the shell. The command runs in `folder`, the project's folder.
    pub(super) fn of_shell(command: &str, folder: PathBuf) -> Self {
        let words = ["sh", "-c", command].map(OsString::from).to_vec();
        Self { words, folder, shown: user_command::to_line(&[command.into()]) }
    }

    /// Determines the command that brings the older template to the working tree's state: first the new SQL files,
    /// then the setup command, which must skip older migrations. Returns `None` if there are neither new files nor a
    /// setup command.
    pub(super) fn of_template(context: &Context, base: &Base) -> Result<Option<Self>, Failure> {
        let Some(spec) = context.settings()?.with_template()?.template else {
            let failure =
                Failure::new("cannot determine which command runs the migrations: there is no template");
            return Err(failure.hint(HINT.to_owned()));
        };
        if spec.beside.is_some() {
            let failure = Failure::new("cannot determine which of several templates the migrations change");
            return Err(failure.hint("Select one with --template NAME.".to_owned()));
        }
        // Templates that extend this one only add data to the same tables, so use the first template with steps.
        let steps = |spec: &TemplateSpec| spec.setup.is_some() || !spec.sql.is_empty();
        let Some(spec) = spec.chain().into_iter().find(|spec| steps(spec)).cloned() else {
            let failure = Failure::new("cannot determine which command runs the migrations");
            return Err(failure
                .detail(format!("Template \"{}\" has neither setup nor sql.", spec.name))
                .hint(HINT.to_owned()));
        };
        let older = base.spec.chain().into_iter().find(|other| other.name == spec.name).unwrap_or(&base.spec);
        let mut files = new_files(context, &spec, older, &base.revision.name);
        let missing = missing_migrations::find(&base.spec);
        // The older template has already run the renamed files under their previous names.
        files.retain(|file| !missing.iter().any(|one| one.renamed_to.as_ref() == Some(file)));
        if files.is_empty() && spec.setup.is_none() {
            return Ok(None);
        }
        let shown = files.iter().map(|file| format!("psql -f {file}")).chain(spec.setup.clone());
        let shown = user_command::to_line(&[shown.collect::<Vec<_>>().join("; ").into()]);
        let psql = if files.is_empty() {
            OsString::new()
        } else {
            provisioning::find_psql(&base.provisioner.installation)?.into_os_string()
        };
        let words = ["sh".into(), "-c".into(), SCRIPT.into(), "sh".into(), psql];
        let setup = spec.setup.unwrap_or_default().into();
        let files = files.into_iter().map(OsString::from);
        let words = words.into_iter().chain([setup]).chain(files).collect();
        Ok(Some(Self { words, folder: spec.folder, shown }))
    }

    /// Returns the command for the database at `address`. Appends the programs of `installation` to the command's
    /// PATH. Sends its output to standard error, because the report goes to standard output.
    pub(super) fn at(&self, address: &Address, env: &[Variable], installation: &Installation) -> Command {
        let (program, rest) = self.words.split_first().expect("a command has a program");
        let mut command = Command::new(program);
        command.args(rest).current_dir(&self.folder).stdout(io::stderr());
        address.describe_to(&mut command);
        installation.append_to_path(&mut command);
        for variable in env {
            command.env(variable.name(), variable.value(address));
        }
        command
    }
}

const HINT: &str = "Write it after \"--\", as in \"pgfresh migrate check -- alembic upgrade head\".";

/// Returns the SQL files that only the working tree has, in build order. Reports older files and a prepare command that
/// have changed since, because an already migrated database doesn't run them again.
fn new_files(context: &Context, spec: &TemplateSpec, older: &TemplateSpec, revision: &str) -> Vec<String> {
    let all = |spec: &TemplateSpec| -> Vec<String> {
        spec.sql.iter().flat_map(|pattern| matching_files(&spec.folder, pattern)).collect()
    };
    let before: BTreeSet<String> = all(older).into_iter().collect();
    let (old, new): (Vec<_>, Vec<_>) = all(spec).into_iter().partition(|file| before.contains(file));
    let contents = |spec: &TemplateSpec, file: &String| fs::read(spec.folder.join(file)).ok();
    let changed_files = old.into_iter().filter(|file| contents(spec, file) != contents(older, file));
    let prepare = (spec.prepare != older.prepare).then(|| "prepare".to_owned());
    let changed: Vec<_> = prepare.into_iter().chain(changed_files).collect();
    if !changed.is_empty() && !context.verbosity.is_quiet() {
        let files = some_of(&changed);
        notice!("pgfresh: changed since {revision}, and not run again: {files}");
    }
    new
}
