//! Whether a template's files are only ever added, and where a build begins because of that.

use std::str::FromStr;

use crate::Fingerprint;

/// What may become of the files of a template once they have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Steps {
    /// Anything: each change means that all of them run again.
    #[default]
    Any,
    /// New ones are added. No other change is expected, though each is noticed.
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

/// Where a build begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildPlan {
    /// On an earlier template of the same name.
    Incremental {
        /// That template.
        parent: Fingerprint,
        /// The files that it has not, by name.
        added: Vec<String>,
    },
    /// Where the first build began: all steps run.
    Full {
        /// Why no earlier template will do; none where there is no reason to look for one.
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
