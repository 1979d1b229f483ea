//! Defines the errors that occur while using a remote.
//!
//! Each message fits on one line and contains no secret, because it ends up in the output of test runs.

use std::error::Error;
use std::time::Duration;

use storage::CacheError;

/// Maximum length of a reason provided by a remote, in characters.
const LONGEST: usize = 160;

/// An error that occurred while fetching, pushing, counting or removing templates.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The remote rejected the request, closed the connection, or is unreachable.
    #[error("could not {verb} {object}: {why}")]
    Failed {
        /// The attempted action, e.g., "read".
        verb: &'static str,
        /// The object in question, e.g., a head or a blob.
        object: String,
        /// Why the attempt failed.
        why: String,
    },
    /// The remote doesn't have this object.
    #[error("could not {verb} {object}: it is missing")]
    Missing {
        /// The attempted action, e.g., "read".
        verb: &'static str,
        /// The missing object.
        object: String,
    },
    /// The remote didn't respond in time.
    #[error("could not {verb} {object}: no response within {:.0} s", after.as_secs_f64())]
    Silent {
        /// The attempted action, e.g., "read".
        verb: &'static str,
        /// The object in question.
        object: String,
        /// The timeout that expired.
        after: Duration,
    },
    /// The rest of the transfer would take longer than building the template here.
    #[error("the transfer would take {left:.0} s more, but building the template took {took:.1} s")]
    Slow {
        /// Estimated number of seconds until the transfer completes.
        left: f64,
        /// How long the build took, in seconds.
        took: f64,
    },
    /// The push has already taken longer than the template's build.
    #[error("the transfer was still running after {after:.0} s, but building the template took {took:.1} s")]
    Late {
        /// Time since the start of the push, in seconds.
        after: f64,
        /// How long the build took, in seconds.
        took: f64,
    },
    /// No trusted key has signed the template, or its content differs from what was signed.
    #[error("cannot trust template {fingerprint}: {why}")]
    Untrusted {
        /// The template's fingerprint.
        fingerprint: String,
        /// Why the template isn't trusted.
        why: String,
    },
    /// An object in the remote is malformed.
    #[error("{object} is damaged: {what}")]
    Damaged {
        /// The malformed object.
        object: String,
        /// Description of the damage, worded as the end of a sentence.
        what: String,
    },
    /// The template exceeds the space available to the cache.
    #[error("the template has a size of {}, but the cache is limited to {}", storage::human_bytes(*bytes), storage::human_bytes(*limit))]
    TooLarge {
        /// Total size of the template's files, in bytes.
        bytes: u64,
        /// Maximum size, in bytes.
        limit: u64,
    },
    /// The local cache failed.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// The error of a single store request.
#[derive(Debug)]
pub(crate) enum StoreError {
    /// The store doesn't have this object.
    Absent,
    /// The store already has the object.
    Exists,
    /// The request failed for this reason, but a retry may succeed.
    Broken(String),
    /// The store rejected the request for this reason. A retry would fail again.
    Refused(String),
}

impl StoreError {
    pub(crate) fn why(self) -> String {
        match self {
            Self::Absent => "it is missing".to_owned(),
            Self::Exists => "it already exists".to_owned(),
            Self::Broken(why) | Self::Refused(why) => why,
        }
    }

    /// Builds a [`Self::Broken`] error from the innermost cause of `error`.
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

/// Formats an error's innermost cause. The outer errors only repeat it, and some of them contain URLs.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    plain(&last.to_string())
}

/// Shortens `text` to one line and masks URLs, because their queries can contain signatures.
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
