//! Locates the disk that a command examines, and the sensors of that disk.

use std::path::{Path, PathBuf};

use storage::{Account, Place, PlaceRequest};
use sys::{Bottom, Mount, Roots, Sensors, Stack};
use template::ProvisionError;

use crate::context::Context;
use crate::failure::Failure;

/// Returns the directories of the kernel's files: `/sys` and `/proc` by default.
pub(crate) fn roots(sysfs: Option<PathBuf>, procfs: Option<PathBuf>) -> Roots {
    let defaults = Roots::default();
    Roots { sysfs: sysfs.unwrap_or(defaults.sysfs), procfs: procfs.unwrap_or(defaults.procfs) }
}

/// Returns the directory named by the user. If the user named none, returns the directory that would contain a
/// server's data on disk.
pub(crate) fn path(context: &Context, named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    let request = match &context.settings()?.server_options.place {
        PlaceRequest::At(path) => PlaceRequest::At(path.clone()),
        PlaceRequest::Auto | PlaceRequest::Ram | PlaceRequest::Disk => PlaceRequest::Disk,
    };
    let cache = context.cache()?;
    let place = Place::choose(&request, 0, cache.root(), &Account::ours());
    Ok(place.map_err(ProvisionError::from)?.root().to_owned())
}

/// Finds the sensors of the disk that contains a directory. Returns `None` if the disks below the directory's file
/// system can't be determined.
pub(crate) fn sensors(disk: &Path, roots: &Roots) -> Option<Sensors> {
    let stack = Stack::below(roots, &Mount::of(roots, disk).ok()?);
    let Bottom::Disks(disks) = stack.bottom else { return None };
    Some(Sensors::of(roots, disks.first()))
}
