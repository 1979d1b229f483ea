//! Runs git on the repository that contains a folder.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::failure::Failure;

/// Variables that git sets for hooks and aliases. They would make git use their repository instead of the folder's.
const REPOSITORY_VARIABLES: [&str; 7] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_NAMESPACE",
];

/// A repository with a working tree.
#[derive(Debug)]
pub(super) struct Repository {
    /// Root of the working tree, without links.
    pub(super) root: PathBuf,
}

impl Repository {
    /// Finds the repository that contains `folder`.
    pub(super) fn of(folder: &Path) -> Result<Self, Failure> {
        let output = run(folder, ["rev-parse", "--show-toplevel"])?;
        if output.status.success() {
            return Ok(Self { root: PathBuf::from(text_of(&output)) });
        }
        let failure = Failure::new(format!(
            "cannot find the revision before the migrations of \"{}\"",
            folder.display()
        ));
        Err(failure.detail(format!("git said: {}.", complaint(&output))).hint(
            "pgfresh checks migrations against the template of an older git revision: run it in a git repository.".to_owned(),
        ))
    }

    /// Returns git's output without the last line feed, or `None` if git fails.
    pub(super) fn ask<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Result<Option<String>, Failure> {
        let output = run(&self.root, words)?;
        Ok(output.status.success().then(|| text_of(&output)))
    }

    /// Runs git and returns its output, or an error if git fails. `action` completes the error message "could not".
    pub(super) fn expect(&self, action: &str, command: &mut Command) -> Result<Vec<u8>, Failure> {
        let output = finish(command.current_dir(&self.root))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(Failure::new(format!("could not {action}")).detail(format!("git said: {}.", complaint(&output))))
    }

    /// Returns true if the clone lacks older commits.
    pub(super) fn is_shallow(&self) -> Result<bool, Failure> {
        Ok(self.ask(["rev-parse", "--is-shallow-repository"])?.as_deref() == Some("true"))
    }
}

/// Returns a git command whose environment doesn't refer to another repository.
pub(super) fn git<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("git");
    command.args(words).stdin(Stdio::null());
    for name in REPOSITORY_VARIABLES {
        command.env_remove(name);
    }
    command
}

fn run<'a>(folder: &Path, words: impl IntoIterator<Item = &'a str>) -> Result<Output, Failure> {
    finish(git(words).current_dir(folder))
}

fn finish(command: &mut Command) -> Result<Output, Failure> {
    sys::die_with_parent(command);
    sys::restore_open_file_limit(command);
    command.output().map_err(|error| {
        let failure = Failure::new(format!("could not run git: {error}"));
        let hint = "pgfresh takes the revision before the migrations from git: install it.";
        if error.kind() == io::ErrorKind::NotFound { failure.hint(hint.to_owned()) } else { failure }
    })
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim_end_matches(['\n', '\r']).to_owned()
}

/// Returns git's last error message, without the word "fatal" and without a full stop.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.starts_with("fatal: ")).or_else(|| text.lines().last());
    let line = line.unwrap_or_default().trim_start_matches("fatal: ").trim_end_matches('.');
    server::printable(line)
}
