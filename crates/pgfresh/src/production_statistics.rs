//! Reads the file with production's statistics.

use std::fmt;
use std::fs;
use std::path::Path;

use plans::Statistics;

use crate::failure::Failure;
use crate::settings::ResolvedSettings;

/// Reads the statistics in the file `given`, or else in that of the configuration file.
pub(crate) fn read(settings: &ResolvedSettings, given: Option<&Path>) -> Result<Statistics, Failure> {
    let Some(path) = given.or(settings.plans.statistics.as_deref()) else {
        return Err(Failure::new("no statistics of production are given").hint(
            "Write them with \"pgfresh template import --statistics URL > FILE\", and name the file with --statistics FILE."
                .to_owned(),
        ));
    };
    let unusable =
        |error: &dyn fmt::Display| Failure::new(format!("could not read \"{}\": {error}", path.display()));
    let bytes = fs::read(path).map_err(|error| unusable(&error))?;
    Statistics::parse(&bytes).map_err(|error| {
        unusable(&error).hint(
            "The file must be one of \"pgfresh template import --statistics\" or of \"pg_dump --statistics-only\"."
                .to_owned(),
        )
    })
}
