//! Errors of remotes. Each fits on one line and contains no secret.

use std::error::Error;
use std::time::Duration;

use storage::CacheError;

/// Limit for a reason that comes from a remote, in characters.
const LONGEST: usize = 160;

/// Failure to fetch, push, count or remove templates.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The remote refused, closed the connection, or is unreachable.
    #[error("could not {verb} {object}: {why}")]
    Failed {
        /// Attempted action.
        verb: &'static str,
        /// Object of the action.
        object: String,
        /// Reason.
        why: String,
    },
    /// The remote has no such object.
    #[error("could not {verb} {object}: it is missing")]
    Missing {
        /// Attempted action.
        verb: &'static str,
        /// Object of the action.
        object: String,
    },
    /// The remote did not respond in time.
    #[error("could not {verb} {object}: no answer within {:.0} s", after.as_secs_f64())]
    Silent {
        /// Attempted action.
        verb: &'static str,
        /// Object of the action.
        object: String,
        /// Timeout.
        after: Duration,
    },
    /// The rest of the transfer would take longer than a build of the template.
    #[error("the transfer would take {left:.0} s more, and building it took {took:.1} s")]
    Slow {
        /// Estimated seconds left.
        left: f64,
        /// Seconds that the build took.
        took: f64,
    },
    /// The push has taken longer than the build of the template.
    #[error("the transfer was not over after {after:.0} s, and building it took {took:.1} s")]
    Late {
        /// Seconds since the start of the push.
        after: f64,
        /// Seconds that the build took.
        took: f64,
    },
    /// No trusted key has signed the template, or its content differs from the signed one.
    #[error("cannot trust template {fingerprint}: {why}")]
    Untrusted {
        /// Fingerprint of the template.
        fingerprint: String,
        /// Reason.
        why: String,
    },
    /// An object in the remote is malformed.
    #[error("{object} is damaged: {what}")]
    Damaged {
        /// The object.
        object: String,
        /// Damage, as the end of a sentence.
        what: String,
    },
    /// The template is larger than the cache may grow.
    #[error("the template has {}, and the cache may have {}", storage::human_bytes(*bytes), storage::human_bytes(*limit))]
    TooLarge {
        /// Size of all files in bytes.
        bytes: u64,
        /// Limit in bytes.
        limit: u64,
    },
    /// The local cache failed.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// Error of one request to a store.
#[derive(Debug)]
pub(crate) enum StoreError {
    /// The store has no such object.
    Absent,
    /// The store has the object already.
    Exists,
    /// The request failed with this reason, and a retry may succeed.
    Broken(String),
    /// The store refused with this reason, and a retry is useless.
    Refused(String),
}

impl StoreError {
    pub(crate) fn why(self) -> String {
        match self {
            Self::Absent => "it is missing".to_owned(),
            Self::Exists => "it is there already".to_owned(),
            Self::Broken(why) | Self::Refused(why) => why,
        }
    }

    /// Wraps the innermost cause of `error` as [`Self::Broken`].
    pub(crate) fn broken(error: &(dyn Error + 'static)) -> Self {
        Self::Broken(innermost(error))
    }

    pub(crate) fn attempt(self, verb: &'static str, object: impl Into<String>) -> RemoteError {
        let object = object.into();
        match self {
            Self::Absent => RemoteError::Missing { verb, object },
            other => RemoteError::Failed { verb, object, why: other.why() },
        }
    }
}

/// Formats the innermost cause. The outer errors repeat it and name URLs.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    plain(&last.to_string())
}

/// Shortens `text` to one line and replaces URLs, because their queries may contain signatures.
pub(crate) fn plain(text: &str) -> String {
    let words = text
        .split_whitespace()
        .map(|word| if word.contains("://") || word.contains('?') { "…" } else { word });
    let line = words.collect::<Vec<_>>().join(" ");
    let line: String = line.chars().filter(|letter| !letter.is_control()).take(LONGEST).collect();
    line.to_lowercase().trim_end_matches(['.', ':']).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn server_error_becomes_short_line_without_urls(text in "(.|\n){0,400}", secret in "[a-z]{8}") {
            let said = plain(&format!("{text} https://x/y?sig={secret} {text}"));
            prop_assert!(!said.contains(&secret) || text.to_lowercase().contains(&secret));
            prop_assert!(!said.contains('\n') && said.chars().count() <= 2 * LONGEST);
        }
    }
}
