//! Finds the revision to compare with, from before the migrations.

use super::git::Repository;
use crate::failure::Failure;
use crate::settings::pull_request_target;

/// Usual names of default branches.
const USUAL: [&str; 4] = ["origin/main", "origin/master", "main", "master"];
const FULL_CLONE: &str =
    "Fetch it, as with \"git fetch --unshallow\"; in GitHub's checkout action, set fetch-depth to 0.";

/// The revision before the migrations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Revision {
    /// Full commit hash.
    pub(super) commit: String,
    /// Short commit hash.
    pub(super) short: String,
    /// Name with the short hash, such as `main (1a2b3c4)`.
    pub(super) name: String,
}

impl Revision {
    /// Finds the commit named by `wanted`. Without `wanted`, finds the commit where the current branch diverged from
    /// the pull request's target branch, or from the default branch outside of a pull request.
    pub(super) fn find(repository: &Repository, wanted: Option<&str>) -> Result<Self, Failure> {
        match wanted {
            Some(wanted) => Self::named(repository, wanted),
            None => Self::merge_base(repository),
        }
    }

    fn named(repository: &Repository, wanted: &str) -> Result<Self, Failure> {
        // A CI job's clone often only has the remote's branches.
        for name in [wanted.to_owned(), format!("origin/{wanted}")] {
            if let Some(commit) = commit_of(repository, &name)? {
                return Self::new(repository, commit, wanted);
            }
        }
        let failure =
            Failure::new(format!("there is no revision \"{wanted}\" in \"{}\"", repository.root.display()));
        Err(if repository.is_shallow()? {
            failure.detail("The clone is shallow.".to_owned()).hint(FULL_CLONE.to_owned())
        } else {
            failure.hint("Name a branch, a tag or a commit, as in --from main.".to_owned())
        })
    }

    fn merge_base(repository: &Repository) -> Result<Self, Failure> {
        if commit_of(repository, "HEAD")?.is_none() {
            let failure = Failure::new(format!("\"{}\" has no commit yet", repository.root.display()));
            return Err(failure.hint("Commit the state before the migrations first.".to_owned()));
        }
        let Some((branch, shown)) = default_branch(repository)? else {
            let failure = Failure::new("cannot determine which branch the migrations are for");
            if repository.is_shallow()? {
                return Err(failure.detail("The clone is shallow.".to_owned()).hint(FULL_CLONE.to_owned()));
            }
            let detail = format!("None of these branches exists: {}.", USUAL.join(", "));
            return Err(failure
                .detail(detail)
                .hint("Name the revision from before the migrations: --from REF.".to_owned()));
        };
        match repository.ask(["merge-base", "HEAD", &branch])? {
            Some(commit) => Self::new(repository, commit, &shown),
            None if repository.is_shallow()? => {
                let failure = Failure::new(format!("cannot find the commit where this branch left {shown}"));
                Err(failure.detail("The clone is shallow.".to_owned()).hint(FULL_CLONE.to_owned()))
            }
            None => {
                let failure = Failure::new(format!("this branch and {shown} have no commit in common"));
                Err(failure.hint("Name the revision from before the migrations: --from REF.".to_owned()))
            }
        }
    }

    fn new(repository: &Repository, commit: String, name: &str) -> Result<Self, Failure> {
        let short = repository.ask(["rev-parse", "--short", &commit])?.unwrap_or_else(|| commit.clone());
        let name = if name.starts_with(&short) { short.clone() } else { format!("{name} ({short})") };
        Ok(Self { commit, short, name })
    }
}

/// Returns the commit that `name` refers to, or `None` if the revision doesn't exist.
fn commit_of(repository: &Repository, name: &str) -> Result<Option<String>, Failure> {
    repository.ask(["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{name}^{{commit}}")])
}

/// Returns the commit of the branch that the current branch will be merged into, and that branch's name
/// without the remote.
fn default_branch(repository: &Repository) -> Result<Option<(String, String)>, Failure> {
    let target = pull_request_target().map(|name| format!("origin/{name}"));
    let remote = repository.ask(["symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD"])?;
    let usual = USUAL.into_iter().map(str::to_owned);
    for name in target.into_iter().chain(remote).chain(usual) {
        if commit_of(repository, &name)?.is_some() {
            let shown = name.strip_prefix("origin/").unwrap_or(&name).to_owned();
            return Ok(Some((name, shown)));
        }
    }
    Ok(None)
}
