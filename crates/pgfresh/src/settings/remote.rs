//! Reads the settings for the remote template cache: its address (`[cache] remote`) and when to push templates there
//! after a build (`push`).

use std::env;

use remote::RemoteAddress;
use serde::{Deserialize, Deserializer};

use crate::failure::Failure;

/// Variables where CI systems store the target branch of a pull request. Sources: the manuals of GitHub, GitLab,
/// Azure, Buildkite and Bitbucket.
const TARGET_VARIABLES: [&str; 5] = [
    "GITHUB_BASE_REF",
    "CI_MERGE_REQUEST_TARGET_BRANCH_NAME",
    "SYSTEM_PULLREQUEST_TARGETBRANCHNAME",
    "BUILDKITE_PULL_REQUEST_BASE_BRANCH",
    "BITBUCKET_PR_DESTINATION_BRANCH",
];

/// Variable for the remote's address. Unlike the address in the configuration file, this address can
/// contain a password.
const REMOTE: &str = "PGFRESH_CACHE_REMOTE";

/// Decides when to push a template built on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum PushPolicy {
    #[default]
    Never,
    Always,
    /// A job pushes templates if the CI system reports that the job runs on this branch.
    Branch(String),
}

impl From<&str> for PushPolicy {
    fn from(text: &str) -> Self {
        match text {
            "" | "never" => Self::Never,
            "always" => Self::Always,
            branch => Self::Branch(branch.to_owned()),
        }
    }
}

impl<'de> Deserialize<'de> for PushPolicy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(|text| text.as_str().into())
    }
}

impl PushPolicy {
    /// Returns true if this process should push the templates it builds.
    pub(crate) fn applies(&self) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Branch(name) => current_branch().as_ref() == Some(name),
        }
    }

    /// Returns a message if only another branch pushes templates.
    pub(crate) fn waits_for(&self) -> Option<String> {
        let Self::Branch(name) = self else { return None };
        (!self.applies()).then(|| match current_branch() {
            Some(here) => format!("only the branch \"{name}\" pushes, and this is \"{here}\""),
            None => format!("only the branch \"{name}\" pushes, and no CI system names the current branch"),
        })
    }
}

/// The settings for the remote template cache.
#[derive(Debug, Clone)]
pub(crate) struct RemoteSettings {
    pub(crate) address: RemoteAddress,
    pub(crate) push: PushPolicy,
}

/// The address and the push policy from flags and variables.
#[derive(Debug, Clone, Copy)]
pub(super) struct RemoteOptions<'a> {
    /// The remote's address. An empty text disables the remote in the file.
    pub(super) address: Option<&'a str>,
    pub(super) push: Option<&'a str>,
}

impl RemoteOptions<'_> {
    /// Combines these options with the address and push policy in the file.
    pub(super) fn resolve(
        self,
        address: Option<RemoteAddress>,
        push: Option<PushPolicy>,
    ) -> Result<Option<RemoteSettings>, Failure> {
        let address = match self.address {
            Some("") => None,
            Some(text) => Some(parse_address(text, env::var(REMOTE).is_ok_and(|value| value == text))?),
            None => match address {
                Some(address) if address.has_secret() => return Err(visible("in pgfresh.toml")),
                address => address,
            },
        };
        let push = self.push.map(PushPolicy::from).or(push);
        Ok(address.map(|address| RemoteSettings { address, push: push.unwrap_or_default() }))
    }
}

/// Parses an address. Only an address from the environment can contain a password.
pub(crate) fn parse_address(text: &str, from_environment: bool) -> Result<RemoteAddress, Failure> {
    let address: RemoteAddress =
        text.parse().map_err(|why| Failure::new(format!("cannot use the remote template cache: {why}")))?;
    if address.has_secret() && !from_environment {
        return Err(visible("on the command line"));
    }
    Ok(address)
}

fn visible(place: &str) -> Failure {
    Failure::new(format!("the password of the remote template cache is {place}, where others can read it"))
        .hint(format!("Set {REMOTE} to the whole URL, as a secret of the CI system."))
}

/// Returns the target branch of this CI job's pull request, or `None` if the job doesn't belong to one.
pub(crate) fn pull_request_target() -> Option<String> {
    let mut named = TARGET_VARIABLES.iter().filter_map(|name| env::var(name).ok());
    named.find(|name| !name.is_empty())
}

fn current_branch() -> Option<String> {
    branch(|name| env::var(name).ok())
}

/// Returns the branch whose code this job runs, if a CI system reports it. Returns `None` for a pull request's code.
fn branch(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let get = |name: &str| variable(name).filter(|value| !value.is_empty());
    let is = |name: &str, values: &[&str]| get(name).is_some_and(|value| values.contains(&value.as_str()));
    if get("GITHUB_ACTIONS").is_some() {
        // Jobs for other events also have secrets, but may run a pull request's code.
        let own = is("GITHUB_EVENT_NAME", &["push", "schedule", "workflow_dispatch", "repository_dispatch"]);
        return get("GITHUB_REF_NAME").filter(|_| own && is("GITHUB_REF_TYPE", &["branch"]));
    }
    if get("GITLAB_CI").is_some() {
        // GitLab doesn't set this variable in merge request pipelines.
        return get("CI_COMMIT_BRANCH");
    }
    if is("CI", &["woodpecker"]) {
        return get("CI_COMMIT_BRANCH").filter(|_| is("CI_PIPELINE_EVENT", &["push", "cron", "manual"]));
    }
    if get("CIRCLECI").is_some() {
        // For a fork's code, CircleCI sets this to something like "pull/7" instead of a branch.
        return get("CIRCLE_BRANCH");
    }
    if get("TF_BUILD").is_some() {
        let whole = get("BUILD_SOURCEBRANCH").filter(|_| !is("BUILD_REASON", &["PullRequest"]));
        return whole?.strip_prefix("refs/heads/").map(str::to_owned);
    }
    if get("BUILDKITE").is_some() {
        return get("BUILDKITE_BRANCH").filter(|_| is("BUILDKITE_PULL_REQUEST", &["false"]));
    }
    get("BRANCH_NAME").filter(|_| get("JENKINS_URL").is_some() && get("CHANGE_ID").is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch_of(variables: &[(&str, &str)]) -> Option<String> {
        branch(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn ci_branch_is_known_only_for_branch_pushes() {
        let github = |event, name| {
            branch_of(&[
                ("GITHUB_ACTIONS", "true"),
                ("GITHUB_EVENT_NAME", event),
                ("GITHUB_REF_TYPE", "branch"),
                ("GITHUB_REF_NAME", name),
            ])
        };
        assert_eq!(github("push", "main").as_deref(), Some("main"));
        for event in ["pull_request", "pull_request_target", "workflow_run", "issue_comment", ""] {
            assert_eq!(github(event, "main"), None, "{event}");
        }
        let tag = [
            ("GITHUB_ACTIONS", "true"),
            ("GITHUB_EVENT_NAME", "push"),
            ("GITHUB_REF_TYPE", "tag"),
            ("GITHUB_REF_NAME", "main"),
        ];
        assert_eq!(branch_of(&tag), None);
        let main: [&[(&str, &str)]; 6] = [
            &[("GITLAB_CI", "true"), ("CI_COMMIT_BRANCH", "main")],
            &[("CI", "woodpecker"), ("CI_COMMIT_BRANCH", "main"), ("CI_PIPELINE_EVENT", "push")],
            &[("CIRCLECI", "true"), ("CIRCLE_BRANCH", "main")],
            &[
                ("TF_BUILD", "True"),
                ("BUILD_SOURCEBRANCH", "refs/heads/main"),
                ("BUILD_REASON", "IndividualCI"),
            ],
            &[("BUILDKITE", "true"), ("BUILDKITE_BRANCH", "main"), ("BUILDKITE_PULL_REQUEST", "false")],
            &[("JENKINS_URL", "http://x"), ("BRANCH_NAME", "main")],
        ];
        for variables in main {
            assert_eq!(branch_of(variables).as_deref(), Some("main"), "{variables:?}");
        }
        let proposed: [&[(&str, &str)]; 5] = [
            &[("CI", "woodpecker"), ("CI_COMMIT_BRANCH", "main"), ("CI_PIPELINE_EVENT", "pull_request")],
            &[
                ("TF_BUILD", "True"),
                ("BUILD_SOURCEBRANCH", "refs/pull/7/merge"),
                ("BUILD_REASON", "PullRequest"),
            ],
            &[("BUILDKITE", "true"), ("BUILDKITE_BRANCH", "main"), ("BUILDKITE_PULL_REQUEST", "7")],
            &[("JENKINS_URL", "http://x"), ("BRANCH_NAME", "main"), ("CHANGE_ID", "7")],
            // These variables may also be set on a laptop, without any CI system.
            &[("CI_COMMIT_BRANCH", "main"), ("BRANCH_NAME", "main"), ("GITHUB_REF_NAME", "main")],
        ];
        for variables in proposed {
            assert_eq!(branch_of(variables), None, "{variables:?}");
        }
    }

    #[test]
    fn push_policy_is_never_always_or_branch() {
        assert_eq!(PushPolicy::from("never"), PushPolicy::Never);
        assert_eq!(PushPolicy::from("always"), PushPolicy::Always);
        assert_eq!(PushPolicy::from("main"), PushPolicy::Branch("main".to_owned()));
        assert!(!PushPolicy::Never.applies() && PushPolicy::Always.applies());
    }
}
