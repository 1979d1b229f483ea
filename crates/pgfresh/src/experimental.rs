//! Marks support for a system as experimental if pgfresh was only cross-built for it and has never run there. Prints
//! this label when pgfresh first uses a cache.

use storage::Cache;

use crate::notice::notice;
use crate::output::Verbosity;

/// Name of a note in the cache. The note exists once pgfresh has printed the label.
const NOTE: &str = "experimental-1";

/// Prints the label for this machine's system, once for each cache. Prints nothing if the verbosity is quiet.
pub(crate) fn announce(cache: &Cache, verbosity: Verbosity) {
    let system = std::env::consts::OS;
    let Some(label) = label(system, || verbosity.is_quiet() || cache.recall(NOTE).is_some()) else { return };
    notice!("pgfresh: {label}");
    if let Err(error) = cache.remember(NOTE, label) {
        tracing::debug!(%error, "could not record that the label was printed");
    }
}

/// Returns the label for `system`, a name in Rust's notation such as `macos`. Returns `None` if the system is
/// tested or if `is_needless` returns true. Calls `is_needless` only for an untested system, because `is_needless`
/// reads a file.
fn label(system: &str, is_needless: impl FnOnce() -> bool) -> Option<&'static str> {
    let label = match system {
        "macos" => {
            "macOS support is experimental: cross-built, its logic tested on Linux, never run on a Mac\n\
             DETAIL:  pgfresh prints this once for each cache. docs/platforms.md says what is tested and what is not."
        }
        _ => return None,
    };
    (!is_needless()).then_some(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untested_systems_get_the_label_once() {
        let first = label("macos", || false).unwrap();
        assert!(first.contains("never run on a Mac"), "{first}");
        assert_eq!(label("macos", || true), None);
    }

    #[test]
    fn linux_reads_no_note_and_prints_nothing() {
        assert_eq!(label("linux", || unreachable!("Linux needs no label")), None);
    }
}
