//! Promise that a template's files are only ever added, and the start of a build, which depends on it.

use std::str::FromStr;

use crate::Fingerprint;

/// Kinds of change that a template's files may undergo after they have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Steps {
    /// Each change means that all files run again.
    #[default]
    Any,
    /// The project only adds files. pgfresh notices every other change, and then runs all files.
    AppendOnly,
}

impl FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "any" => Ok(Self::Any),
            "append-only" => Ok(Self::AppendOnly),
            _ => Err("expected \"append-only\" or \"any\"".to_owned()),
        }
    }
}

/// Start of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildPlan {
    /// The build begins on an earlier template of the same name, its parent.
    Incremental {
        /// Fingerprint of the parent.
        parent: Fingerprint,
        /// Names of the files that the parent has not run.
        added: Vec<String>,
    },
    /// The build runs all steps.
    Full {
        /// Reasons why no earlier template will do. Empty if there is no reason to look for one.
        reasons: Vec<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_named_in_full() {
        assert_eq!("append-only".parse(), Ok(Steps::AppendOnly));
        assert_eq!("any".parse(), Ok(Steps::default()));
        for wrong in ["", "append", "append_only", "Any"] {
            assert!(wrong.parse::<Steps>().is_err(), "{wrong}");
        }
    }
}
