//! What can go wrong with a remote, in one line each, without a secret.

use std::error::Error;
use std::time::Duration;

use storage::CacheError;

/// The longest reason that is passed on of what a remote has said, in characters.
const LONGEST: usize = 160;

/// Why a template was not fetched, pushed or removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The remote refused, broke off, or is not there.
    #[error("could not {verb} {object}: {why}")]
    Failed {
        /// What was tried.
        verb: &'static str,
        /// On what.
        object: String,
        /// What came back.
        why: String,
    },
    /// The remote has answered: there is no such object.
    #[error("could not {verb} {object}: it is missing")]
    Missing {
        /// What was tried.
        verb: &'static str,
        /// On what.
        object: String,
    },
    /// It did not answer.
    #[error("could not {verb} {object}: no answer within {:.0} s", after.as_secs_f64())]
    Silent {
        /// What was tried.
        verb: &'static str,
        /// On what.
        object: String,
        /// How long was waited.
        after: Duration,
    },
    /// It answers, but what is left would take longer than to build it.
    #[error("the transfer would take {left:.0} s more, and building it took {took:.1} s")]
    Slow {
        /// Seconds.
        left: f64,
        /// Seconds.
        took: f64,
    },
    /// It was being pushed for longer than it took to build.
    #[error("the transfer was not over after {after:.0} s, and building it took {took:.1} s")]
    Late {
        /// Seconds.
        after: f64,
        /// Seconds.
        took: f64,
    },
    /// No trusted key has signed it, or it is another one.
    #[error("cannot trust template {fingerprint}: {why}")]
    Untrusted {
        /// Which.
        fingerprint: String,
        /// Why not.
        why: String,
    },
    /// What is there is not what it says it is.
    #[error("{object} is damaged: {what}")]
    Damaged {
        /// What.
        object: String,
        /// What is wrong with it.
        what: String,
    },
    /// It does not fit.
    #[error("the template has {}, and the cache may have {}", storage::human_bytes(*bytes), storage::human_bytes(*limit))]
    TooLarge {
        /// Bytes of all files.
        bytes: u64,
        /// Bytes.
        limit: u64,
    },
    /// The machine's own cache refused.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// What a store answered where it did not do what was asked.
#[derive(Debug)]
pub(crate) enum StoreError {
    /// There is no such object.
    Absent,
    /// There is one already.
    Exists,
    /// It failed, for that reason, and may do better at a second try.
    Broken(String),
    /// It refused, for that reason.
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

    /// What failed below `error`, in one line.
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

/// The words of the last cause: those before it repeat it, and name URLs.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    plain(&last.to_string())
}

/// One line without URLs, whose queries may be signatures, and not a long one.
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
        fn what_a_server_says_becomes_one_short_line_without_urls(text in "(.|\n){0,400}", secret in "[a-z]{8}") {
            let said = plain(&format!("{text} https://x/y?sig={secret} {text}"));
            prop_assert!(!said.contains(&secret) || text.to_lowercase().contains(&secret));
            prop_assert!(!said.contains('\n') && said.chars().count() <= 2 * LONGEST);
        }
    }
}
