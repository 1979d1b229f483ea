//! Advice about the `linger` setting, based on measurements from a run.

use lease::LingerUse;
use profile::LingerWait;
use storage::Cache;

use crate::settings::ResolvedSettings;

/// Minimum number of names before pgfresh gives advice. A run with fewer names says little about the whole suite.
const LEAST_NAMES: u64 = 21;

/// Returns advice if names had to wait for new copies while databases of earlier names remained leased even though
/// clients no longer used them. Each project gets this advice once. Projects that set `linger` never get it.
pub(crate) fn advice(seen: LingerUse, settings: &ResolvedSettings, cache: &Cache) -> Option<String> {
    let text = text(avoidable_wait(seen, settings)?);
    let hash = blake3::hash(settings.folder.as_os_str().as_encoded_bytes()).to_hex();
    let note = format!("linger-1-{}", &hash[..24]);
    if cache.recall(&note).is_some() {
        return None;
    }
    if let Err(error) = cache.remember(&note, "") {
        tracing::debug!(%error, "could not record that the advice was given");
    }
    Some(text)
}

/// Returns how long the run's names waited because of lingering. Returns `None` if lingering was useful, if there was no
/// such wait, or if the project sets `linger`.
pub(crate) fn avoidable_wait(seen: LingerUse, settings: &ResolvedSettings) -> Option<LingerWait> {
    wait(seen).filter(|_| !settings.is_linger_set)
}

fn wait(LingerUse { names, is_used, waited }: LingerUse) -> Option<LingerWait> {
    let is_due = names >= LEAST_NAMES && !is_used && !waited.is_zero();
    is_due.then_some(LingerWait { names, waited: waited.as_secs_f64() })
}

fn text(LingerWait { names, waited }: LingerWait) -> String {
    format!(
        "{names} names waited {waited:.2} s in all for new databases, and no client reused a name after its last session: in \
         pgfresh.toml, [database] linger = \"0\" saves this time, and linger = \"5s\" hides this advice"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn advice_needs_many_unused_names_that_waited() {
        let seen = |names, is_used, waited| {
            let waited = Duration::from_millis(waited);
            wait(LingerUse { names, is_used, waited }).map(text)
        };
        let advice = seen(21, false, 310).unwrap();
        assert!(advice.starts_with("21 names waited 0.31 s in all"), "{advice}");
        assert_eq!([seen(20, false, 310), seen(21, true, 310), seen(21, false, 0)], [None, None, None]);
    }
}
