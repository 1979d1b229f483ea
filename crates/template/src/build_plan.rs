//! Describes how a template's files may change over time, and how a build therefore starts. Incremental builds are
//! possible only if the project promises that it only ever adds files.

use std::str::FromStr;

use crate::Fingerprint;

/// How a template's files may change after they have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Steps {
    /// Files may change in any way, so each change runs all files again.
    #[default]
    Any,
    /// The project only adds files. If pgfresh notices any other change, all files run again.
    AppendOnly,
}

/// Error for a text other than `any` and `append-only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected \"append-only\" or \"any\"")]
pub struct ParseStepsError;

impl FromStr for Steps {
    type Err = ParseStepsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "any" => Ok(Self::Any),
            "append-only" => Ok(Self::AppendOnly),
            _ => Err(ParseStepsError),
        }
    }
}

/// How a build starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildPlan {
    /// The build starts from an earlier template with the same name, called the parent.
    Incremental {
        /// Fingerprint of the parent.
        parent: Fingerprint,
        /// Names of the new files, which aren't in the parent.
        added: Vec<String>,
    },
    /// The build runs all steps.
    Full {
        /// Reasons why no earlier template is usable. Empty if pgfresh didn't look for an earlier template.
        reasons: Vec<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_every_step() {
        assert_eq!("append-only".parse(), Ok(Steps::AppendOnly));
        assert_eq!("any".parse(), Ok(Steps::default()));
        for wrong in ["", "append", "append_only", "Any"] {
            assert!(wrong.parse::<Steps>().is_err(), "{wrong}");
        }
    }
}
