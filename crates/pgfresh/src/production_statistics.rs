//! Reads the file that contains production's statistics.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use plans::Statistics;
use storage::Attempt;

use crate::bounded_file;
use crate::failure::Failure;
use crate::settings::ResolvedSettings;

/// Maximum size of a statistics file in bytes. For scale: the statistics of 50,000 tables take about 700 MB.
pub(crate) const MOST_STATISTICS: u64 = 2_000_000_000;

/// Reads the statistics from the file `given`, falling back to the file that the configuration file names.
pub(crate) fn read(settings: &ResolvedSettings, given: Option<&Path>) -> Result<Statistics, Failure> {
    let Some(path) = given.or(settings.plans.statistics.as_deref()) else {
        return Err(Failure::new("no production statistics are given").hint(
            "Write them with \"pgfresh template import --statistics URL > FILE\", and name the file with --statistics FILE."
                .to_owned(),
        ));
    };
    read_file(path)
}

/// Reads a file written by pgfresh or by `pg_dump --statistics-only`.
pub(crate) fn read_file(path: &Path) -> Result<Statistics, Failure> {
    let bytes = bounded_file::read(path, MOST_STATISTICS).attempt_given("read", path)?;
    let mut statistics = Statistics::parse(&bytes).map_err(|error| {
        Failure::new(format!("\"{}\" has no valid statistics: {error}", path.display())).hint(
            "The file must be the output of \"pgfresh template import --statistics\" or \"pg_dump --statistics-only\"."
                .to_owned(),
        )
    })?;
    // The output of pg_dump doesn't contain its date, so use the file's modification time.
    if statistics.taken == 0 {
        let modified = fs::metadata(path).and_then(|file| file.modified()).attempt_given("read", path)?;
        statistics.taken = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    }
    Ok(statistics)
}

/// Returns a warning, without a full stop, if production's major version isn't `major`. A file without a version gets
/// no warning.
pub(crate) fn other_major(statistics: &Statistics, major: u32) -> Option<String> {
    let production = Some(statistics.server_version / 10_000).filter(|number| *number > 0)?;
    (production != major).then(|| {
        format!(
            "production has PostgreSQL {production}, but PostgreSQL {major} made these plans, and each version plans in its \
             own way"
        )
    })
}
